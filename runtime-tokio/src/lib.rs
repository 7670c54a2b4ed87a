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
//! [`Client::run_command`] runs a command; [`Client::select`] gives a [`Server`], and that one
//! connections on loan: [`CheckedOut`].
//!
//! The map: `client` is what applications hold, `builder` creates it, and `operations` is what can
//! be done with a deployment. `dns` looks up servers that are named there. `runtime` supplies what
//! [`host::Runtime`](sdam_core::host::Runtime) asks for. `pump` moves the bytes of one monitoring
//! link, and `application` is the stream under an application's connection, read and written by
//! whoever has it on loan; `provider` answers what authentication has to ask, `aws` where that is
//! credentials. `connector` makes the connections of both, through a proxy and with TLS if there
//! are any; `dialer` finds out what to open, and `connect` resolves names and opens sockets;
//! `certificates` reads the files for TLS. `socket` is all that can be open alike, with `stream`
//! for what the application opened.

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
