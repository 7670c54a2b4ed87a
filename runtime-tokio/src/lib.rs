//! Drives the machines of [`sdam_core`] from tokio.
//!
//! ```no_run
//! use sdam_core::config::Options;
//! use sdam_tokio::Client;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::new(Options::parse("mongodb://localhost/?replicaSet=rs0")?)?;
//! let mut events = client.subscribe();
//! while let Some(event) = events.next().await {
//!     println!("{:?} {:?}", event.at, event.kind);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! [`Client::run_command`](sdam_host::Client::run_command) runs a command;
//! [`Client::select`](sdam_host::Client::select) gives a [`Server`], and that one connections
//! in use: [`CheckedOut`].
//!
//! What is the same in every runtime is in [`sdam_host`]; here is what is tokio's. The map:
//! `client` is what applications hold, and `builder` creates it. `runtime` supplies what
//! [`Reactor`](sdam_host::Reactor) asks for: sockets, timers and tasks; `socket` is what can be
//! open, and `dialer` how applications open it themselves.

mod builder;
mod client;
mod dialer;
mod runtime;
mod socket;

pub use builder::ClientBuilder;
pub use client::{CheckedOut, Client, ClientError, Exhaust, Server};
pub use dialer::{ByteStream, Dialer, Dialing};
pub use runtime::{Tokio, TokioReactor, resolver};
pub use sdam_host::system::environment;
pub use sdam_host::{CredentialProvider, CredentialSources, LookupFuture, Records, Resolver};
pub use socket::Socket;
