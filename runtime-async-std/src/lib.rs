//! Drives the machines of [`sdam_core`] from smol, async-std, or any other executor.
//!
//! ```no_run
//! # #[cfg(feature = "smol")]
//! use sdam_async_std::smol::Topology;
//!
//! # #[cfg(feature = "smol")]
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let topology = Topology::connect("mongodb://localhost/?replicaSet=rs0").await?;
//! let mut events = topology.subscribe();
//! while let Some(event) = events.next().await {
//!     println!("{:?} {:?}", event.at, event.kind);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Applications use the crate `sdam`, which has databases and collections above it.
//!
//! # Executors
//!
//! Sockets and timers are those of `async-io`, which both smol and async-std are built on, and
//! which work below any executor; only where tasks run is left to choose. That is what the modules
//! are for: `smol` (feature `smol`, in by default) and `async_std` (feature `async-std`); with
//! [`builder_on`], clients run on an [`Executor`] of the application's own. async-std is
//! discontinued by its maintainers (RUSTSEC-2025-0052); its feature is there for applications that
//! have not left it yet.
//!
//! # The map
//!
//! What is the same in every runtime is in [`sdam_host`]. The modules `smol` and `async_std` have
//! the names that applications know. `executor` is where tasks run, and `runtime` supplies what
//! [`Reactor`](sdam_host::Reactor) asks for: sockets, timers and tasks; `socket` is what can be
//! open, and `dialer` how applications open it themselves.
//!
//! # Features
//!
//! - `aws`: authentication with the credentials of Amazon Web Services (MONGODB-AWS).
//! - `async-std`: tasks of async-std.
//! - `smol` (default): tasks of smol's global executor.
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

#[cfg(feature = "async-std")]
pub mod async_std;
mod dialer;
mod executor;
mod runtime;
#[cfg(feature = "smol")]
pub mod smol;
mod socket;

pub use dialer::{ByteStream, Dialer, Dialing};
#[cfg(feature = "async-std")]
pub use executor::AsyncStd;
#[cfg(feature = "smol")]
pub use executor::Smol;
pub use executor::{Executor, Task};
pub use runtime::{AsyncIo, AsyncIoReactor, Setup, builder_on};
pub use socket::Socket;
