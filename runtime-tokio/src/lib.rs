//! Drives the machines of [`sdam_core`] from tokio.
//!
//! ```no_run
//! use sdam_tokio::Topology;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Topology::connect("mongodb://localhost/?replicaSet=rs0").await?;
//! let mut events = client.subscribe();
//! while let Some(event) = events.next().await {
//!     println!("{:?} {:?}", event.at, event.kind);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A [`Topology`] runs commands, [selects](sdam_host::Topology::select) a [`SelectedServer`], and that
//! one gives connections in use: [`CheckedOut`].
//!
//! What is the same in every runtime is in [`sdam_host`]; here is what is tokio's. The map:
//! `client` has the names that applications know. `runtime` supplies what
//! [`Reactor`](sdam_host::Reactor) asks for: sockets, timers and tasks; `socket` is what can be
//! open, and `dialer` how applications open it themselves.

mod client;
mod dialer;
mod runtime;
mod socket;

pub use client::{CheckedOut, ClientBuilder, Exhaust, Registry, SelectedServer, Topology};
pub use dialer::{ByteStream, Dialer, Dialing};
pub use runtime::{Setup, Tokio, TokioReactor, resolver};
pub use socket::Socket;
