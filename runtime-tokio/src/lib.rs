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
//! `connector` makes a connection, through a proxy and with TLS if there are any; `dialer` finds out
//! what to open for a server, and `connect` resolves names and opens sockets; `certificates` reads
//! the files for TLS; `socket` is all that can be open alike, with `stream` for what the application
//! opened.

#[cfg(feature = "tls")]
mod certificates;
mod client;
mod connect;
mod connector;
mod dialer;
mod pump;
mod runtime;
mod socket;
mod stream;

pub use client::{Client, ClientBuilder, ClientError, environment};
pub use dialer::{ByteStream, Dialer, Dialing};
pub use runtime::Tokio;
