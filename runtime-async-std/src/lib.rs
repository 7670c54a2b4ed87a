//! Drives the machines of [`sdam_core`] from smol, async-std, or any other executor.
//!
//! ```no_run
//! use sdam_async_std::{Client, Smol};
//! use sdam_core::config::Options;
//!
//! # #[cfg(feature = "smol")]
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::new(Options::parse("mongodb://localhost/?replicaSet=rs0")?, Smol)?;
//! let mut events = client.subscribe();
//! while let Some(event) = events.next().await {
//!     println!("{:?} {:?}", event.at, event.kind);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Sockets and timers are those of `async-io`, which both smol and async-std are built on, and
//! which work below any executor; only where tasks run is left to choose: [`Smol`] (feature `smol`,
//! in by default), [`AsyncStd`] (feature `async-std`), or a closure, see [`Executor`]. async-std is
//! discontinued by its maintainers (RUSTSEC-2025-0052); its feature is there for applications that
//! have not left it yet.
//!
//! What is the same in every runtime is in [`sdam_host`]. The map: `client` is what
//! applications hold, and `builder` creates it. `executor` is where tasks run, and `runtime`
//! supplies what [`Reactor`](sdam_host::Reactor) asks for: sockets, timers and tasks; `socket` is
//! what can be open, and `dialer` how applications open it themselves.

mod builder;
mod client;
mod dialer;
mod executor;
mod runtime;
mod socket;

pub use builder::ClientBuilder;
pub use client::{CheckedOut, Client, Exhaust, Server};
pub use dialer::{ByteStream, Dialer, Dialing};
#[cfg(feature = "async-std")]
pub use executor::AsyncStd;
#[cfg(feature = "smol")]
pub use executor::Smol;
pub use executor::{Executor, Task};
pub use runtime::{AsyncIo, AsyncIoReactor};
pub use sdam_host::system::environment;
pub use sdam_host::{ClientError, CredentialProvider, CredentialSources, LookupFuture, Resolver};
pub use socket::Socket;
