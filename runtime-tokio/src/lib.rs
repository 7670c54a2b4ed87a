//! Drives the machines of [`sdam_core`] from tokio.
//!
//! ```no_run
//! use sdam_tokio::Topology;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let topology = Topology::connect("mongodb://localhost/?replicaSet=rs0").await?;
//! let mut events = topology.subscribe();
//! while let Some(event) = events.next().await {
//!     println!("{:?} {:?}", event.at, event.kind);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A [`Topology`] runs commands, [selects](sdam_host::Topology::select) a [`SelectedServer`], and
//! that one gives connections in use: [`CheckedOut`].
//!
//! Applications use the crate `sdam`, which has databases and collections above it.
//!
//! # The map
//!
//! What is the same in every runtime is in [`sdam_host`]; here is what is tokio's. `names` has the
//! names that applications know. `runtime` supplies what [`Reactor`](sdam_host::Reactor) asks for:
//! sockets, timers and tasks; `socket` is what can be open, and `dialer` how applications open it
//! themselves.
//!
//! # Features
//!
//! - `aws`: authentication with the credentials of Amazon Web Services (MONGODB-AWS).
//! - `gssapi`: logins by Kerberos (GSSAPI), with the system's library of it.
//! - `oidc-environments`: tokens of MONGODB-OIDC from the metadata of Azure and Google Cloud
//!   (`ENVIRONMENT:azure` and `gcp`).
//! - `saslprep` (default): passwords for SCRAM-SHA-256 that are not of ASCII alone, which SASLprep
//!   prepares.
//! - `snappy` (default): compression of messages with Snappy.
//! - `ocsp` (default): revocation of certificates: staples and responders of OCSP.
//! - `public-suffixes`: the list of public suffixes, without which `srvAllowedHostsSuffix` is
//!   refused.
//! - `tls` (default): TLS, with certificates from files or from the system's store.
//! - `tls-encrypted-keys` (default): private keys that are encrypted with a password.
//! - `zlib` (default): compression of messages with zlib.
//! - `zstd`: compression of messages with Zstandard; needs a C compiler.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod dialer;
mod names;
mod runtime;
mod socket;

pub use dialer::{ByteStream, Dialer, Dialing};
pub use names::{CheckedOut, ClientBuilder, Exhaust, Registry, SelectedServer, Topology};
pub use runtime::{Setup, Tokio, TokioReactor, resolver};
pub use socket::Socket;
