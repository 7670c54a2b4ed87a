//! The pure core of sdam: bytes and the time in, actions out.
//!
//! Nothing in here does I/O, reads a clock, starts a thread or draws random numbers by itself. Your
//! loop passes inputs to a [`Machine`](machine::Machine) and performs its actions:
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use sdam_core::config::Options;
//! use sdam_core::machine::Machine;
//! use sdam_core::time::Instant;
//! use sdam_core::topology::{Action, Input, Topology};
//!
//! let options = Options::parse("mongodb://localhost")?;
//! let mut topology = Topology::new(Arc::new(options), 1);
//! let (mut now, mut actions) = (Instant::ZERO, Vec::new());
//! topology.tick(now.into(), &mut actions);
//! let mut hello = None;
//! while !actions.is_empty() {
//!     match actions.remove(0) {
//!         // A real loop opens a socket. This one is open two milliseconds later.
//!         Action::Open { link, .. } => {
//!             now = now + Duration::from_millis(2);
//!             topology.handle(now.into(), Input::Opened { link }, &mut actions);
//!         }
//!         // A real loop writes the bytes to the socket, and handles the reply.
//!         Action::Send { bytes, .. } => hello = Some(bytes),
//!         // The other actions publish views, emit events and manage pools.
//!         _ => {}
//!     }
//! }
//! assert!(hello.is_some() && topology.deadline() > Some(now));
//! # Ok::<(), sdam_core::config::OptionsError>(())
//! ```
//!
//! The example `std_net` is the whole program, with sockets and threads of the standard library:
//! it discovers a replica set and follows its failovers. The chapter "Use core in your own loop" of
//! the guide goes through it.
//!
//! # The map
//!
//! - [`machine`], [`time`], [`id`], [`rng`]: the contract, time, identities, seeded random numbers.
//! - [`config`]: options and connection strings.
//! - [`topology`]: the root machine, with a monitor for each server, and its events.
//! - [`description`]: servers and the deployment as values.
//! - [`selection`]: the choice of a server for an operation, and the reasons against each.
//! - [`diagnosis`]: the likely causes of failures, with advice.
//! - [`pool`]: the pool of one server, another machine; the topology says when it may be used.
//! - [`metrics`]: counts, times and states for graphs, from events.
//! - [`handshake`], [`auth`]: the first messages on a connection of the application.
//! - [`command`]: the events of commands.
//! - [`operation`]: an operation of an application, from selection to outcome: when it is sent
//!   again, by when it ends, what is added to its command; and the errors the topology has to know.
//! - [`session`]: sessions, their pool, and the times that they have seen.
//! - [`wire`], [`hello`]: messages, and the one command that monitors send.
//! - [`transport`]: filters for the bytes below the protocol: SOCKS5 and TLS.
//! - [`dns`]: the lookup of the hosts of a deployment.
//! - [`failure`]: causes of failure, as plain data.
//! - `http` (features `aws`, `ocsp` and `oidc-environments`): requests and responses of HTTP/1.1,
//!   as bytes.
//! - `logging`, `spans` (feature `logging`): messages for logs, and spans for traces, as values.
//! - `harness` (feature `harness`): a topology in virtual time, with scripted servers.
//! - `trace` (feature `trace`): the inputs and actions of a topology, as text that can be replayed.
//!
//! # Features
//!
//! - `aws`: authentication with the credentials of Amazon Web Services (MONGODB-AWS).
//! - `export`: traces as cases of the official suites.
//! - `harness`: a topology in virtual time, whose servers answer what they are made to answer.
//! - `logging`: log messages by the Logging specification, spans by that of OpenTelemetry, and
//!   the settings that the environment has for them.
//! - `ocsp`: revocation of certificates: staples and responders of OCSP.
//! - `oidc-environments`: tokens of MONGODB-OIDC from the metadata of Azure and Google Cloud
//!   (`ENVIRONMENT:azure` and `gcp`).
//! - `public-suffixes`: the list of public suffixes, without which `srvAllowedHostsSuffix` is
//!   refused.
//! - `saslprep`: passwords for SCRAM-SHA-256 that are not of ASCII alone, which SASLprep
//!   prepares.
//! - `snappy`: compression of messages with Snappy.
//! - `tls`: TLS, as a byte filter.
//! - `tls-encrypted-keys`: private keys that are encrypted with a password (PKCS#8, PBES2).
//! - `trace`: traces of the inputs and actions of a topology: recorded, redacted and replayed.
//! - `zlib`: compression of messages with zlib.
//! - `zstd`: compression of messages with Zstandard; needs a C compiler.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod auth;
pub mod backoff;
mod codes;
pub mod command;
pub mod config;
pub mod description;
pub mod diagnosis;
pub mod dns;
pub mod failure;
pub mod handshake;
#[cfg(any(test, feature = "harness"))]
pub mod harness;
pub mod hello;
#[cfg(any(feature = "aws", feature = "ocsp", feature = "oidc-environments"))]
pub mod http;
pub mod id;
#[cfg(feature = "logging")]
pub mod logging;
pub mod machine;
pub mod metrics;
pub mod operation;
pub mod pool;
pub mod process;
#[cfg(feature = "ocsp")]
pub mod revocation;
pub mod rng;
pub mod selection;
pub mod session;
#[cfg(feature = "logging")]
pub mod spans;
mod text;
pub mod time;
pub mod topology;
#[cfg(feature = "trace")]
pub mod trace;
pub mod transport;
pub mod wire;

pub use bson;
pub use bytes;
#[cfg(feature = "tls")]
pub use rustls;
