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
//! `connect` resolves names and opens sockets; `socket` is TCP and Unix domain sockets alike;
//! `builder` creates clients, and `dns` looks up those whose servers are named there.

mod builder;
mod client;
mod connect;
mod dns;
mod pump;
mod runtime;
mod socket;

pub use builder::ClientBuilder;
pub use client::{Client, ClientError, environment};
pub use dns::{LookupFuture, Resolver, SystemResolver};
pub use runtime::Tokio;
