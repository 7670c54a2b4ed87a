//! Drives the machines of [`sdam_core`] from tokio.
//!
//! ```no_run
//! use sdam_core::options::Options;
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
//! The map: `client` is what applications hold, and `builder` creates it; `dns` looks up servers
//! that are named there. `runtime` supplies what [`host::Runtime`](sdam_core::host::Runtime) asks
//! for. `pump` moves the bytes of one link; `connector` makes its connection, through a proxy and
//! with TLS if there are any; `dialer` finds out what to open, and `connect` resolves names and
//! opens sockets; `certificates` reads the files for TLS; `provider` finds tokens, and `aws`
//! credentials. `socket` is all that can be open alike, with `stream` for what the application
//! opened.

mod application;
#[cfg(feature = "aws")]
mod aws;
mod builder;
#[cfg(feature = "tls")]
mod certificates;
mod client;
mod connect;
mod connector;
mod dialer;
mod dns;
mod operations;
mod provider;
mod pump;
mod runtime;
mod socket;
mod stream;

pub use application::ApplicationSocket;
pub use builder::ClientBuilder;
pub use client::{Client, ClientError, environment};
pub use dialer::{ByteStream, Dialer, Dialing};
pub use dns::{LookupFuture, Resolver, SystemResolver};
pub use operations::{CheckedOut, Exhaust, Server};
pub use provider::CredentialProvider;
pub use runtime::Tokio;
