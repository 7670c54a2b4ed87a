//! Drives the machines of [`sdam_core`] from threads, without an async runtime inside.
//!
//! ```no_run
//! use sdam_blocking::Topology;
//! use sdam_core::bson::rawdoc;
//!
//! # fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let topology = Topology::connect("mongodb://localhost/?replicaSet=rs0")?;
//! let reply = topology.run_command("admin", &rawdoc! { "buildInfo": 1 })?;
//! println!("version {}", reply.get_str("version")?);
//! # Ok(())
//! # }
//! ```
//!
//! Applications use the crate `sdam`, which has databases and collections above it.
//!
//! # Threads
//!
//! All clients of a process have one thread in the background, however many servers there are: it
//! waits for the sockets of all monitors at once, and establishes connections. It starts with the
//! first client, and ends with the last. Others come and go when something blocks, as the system's
//! resolver and a dialer do: for each client one at most for each server, for reading certificates,
//! for looking servers up in DNS, for asking a provider of credentials and for deriving keys from
//! passwords, and 8 in all. What hangs there holds up nothing else, until 8 of them hang, and no
//! other client ever. A connection in use is used by the thread that has it, with plain reads and
//! writes.
//!
//! What belongs to an application and is called on that one thread must not block, for all clients
//! would wait: the predicate of [`Criteria`](sdam_core::selection::Criteria), the subscriber of
//! `tracing`, and wakers of the application's own.
//!
//! # Without any thread
//!
//! With [`single_threaded`](sdam_core::config::OptionsBuilder::single_threaded) in its options, a
//! client has no thread at all, as the specifications describe it for single-threaded drivers: its
//! callers do the work, one at a time for all of them, and between two calls nothing happens. What
//! blocks, as the system's resolver and a dialer do, makes all callers wait. The first operation
//! looks at all servers, one after another, and so does the first one after heartbeatFrequencyMS,
//! then 60 s by default, or after an error that says that things have changed.
//!
//! ```no_run
//! # use sdam_blocking::Topology;
//! # use sdam_core::config::Options;
//! # fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let uri = "mongodb://localhost/?replicaSet=rs0";
//! let topology = Topology::new(Options::builder().uri(uri)?.single_threaded(true).build()?)?;
//! # Ok(())
//! # }
//! ```
//!
//! How long an operation may take to find a server: with `serverSelectionTryOnce`, the default, as
//! long as one look at all servers, whatever serverSelectionTimeoutMS says; without it, until that
//! time-out. A deadline of the operation's own always holds. Subscribers receive events during
//! calls, and a subscriber that waits for the next event is a caller, too, who does the work that
//! is left and may wait for ever.
//!
//! # The map
//!
//! What is the same in every runtime is in [`sdam_host`]. `topology`, `selected_server`,
//! `checked_out` and `subscription` are what applications hold, `builder` creates it from a
//! `blueprint`, and `process` is what a fork makes of it. `engine` runs tasks, on a thread of its
//! own or on the caller's, and `helper` what blocks; `block_on` has a thread wait for a future.
//! `runtime` supplies what [`Reactor`](sdam_host::Reactor) asks for: sockets, timers and tasks;
//! `socket` is what is open, and `dialer` how applications open it themselves.
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

mod block_on;
mod blueprint;
mod builder;
mod checked_out;
mod dialer;
pub mod driver;
mod engine;
mod helper;
mod process;
mod runtime;
mod selected_server;
mod socket;
mod subscription;
mod topology;

pub use block_on::block_on;
pub use builder::ClientBuilder;
pub use checked_out::{CheckedOut, Exhaust};
pub use dialer::{ByteStream, Dialer};
pub use runtime::{Blocking, BlockingReactor, Registry};
pub use selected_server::SelectedServer;
pub use socket::Socket;
pub use subscription::{Events, Source, Subscription, Views};
pub use topology::Topology;
