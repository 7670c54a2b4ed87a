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
//! The map: `client` is what applications hold; `runtime` supplies what
//! [`host::Runtime`](sdam_core::host::Runtime) asks for; `pump` moves the bytes of one link;
//! `connector` makes a connection, through a proxy and with TLS if there are any; `certificates`
//! reads the files for the latter; `connect` resolves names and opens sockets; `socket` is TCP and
//! Unix domain sockets alike.

#[cfg(feature = "tls")]
mod certificates;
mod client;
mod connect;
mod connector;
mod pump;
mod runtime;
mod socket;

pub use client::{Client, ClientError, environment};
pub use runtime::Tokio;
