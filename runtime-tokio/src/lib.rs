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
//! on loan: [`CheckedOut`].
//!
//! What is the same in every runtime is in [`sdam_host`]; here is what is tokio's. The map:
//! `client` is what applications hold, and `builder` creates it. `runtime` supplies what
//! [`host::Runtime`](sdam_host::Runtime) asks for: `connect` resolves names and opens sockets
//! unless the application has a `dialer`, `socket` is what can be open, and `dns` talks to name
//! servers; `provider` answers what authentication has to ask, `aws` where that is credentials.
//! Files, variables and random bytes come from `sdam_host::system`.

#[cfg(feature = "aws")]
mod aws;
mod builder;
mod client;
mod connect;
mod dialer;
mod dns;
mod provider;
mod runtime;
mod socket;

pub use builder::ClientBuilder;
pub use client::{CheckedOut, Client, ClientError, Exhaust, Server};
pub use dialer::{ByteStream, Dialer, Dialing};
pub use dns::{StubResolver, SystemResolver};
pub use runtime::Tokio;
pub use sdam_host::system::environment;
pub use sdam_host::{CredentialProvider, LookupFuture, Resolver};
pub use socket::Socket;
