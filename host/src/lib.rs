//! The part of a client that every runtime shares: the machines behind their locks, the published
//! view, monitors' streams, and connections with the commands on them.
//!
//! A [`Host`] keeps the machines of one client behind their locks, performs their actions in order,
//! and asks the runtime for the few things that only a runtime can do. It does no I/O, reads no
//! clock and starts nothing itself; what runtimes ask of the operating system is in [`system`].
//! Applications have a [`Topology`] of it, below their client, and [`driver`] is what those use who
//! build such a client.
//!
//! Applications use the crate `sdam`, which has databases and collections above a [`Topology`].
//!
//! # Contents
//!
//! - [`Topology`]: a deployment as drivers, proxies and tools hold it. It selects servers
//!   ([`SelectedServer`]), checks out connections ([`CheckedOut`]), runs commands ([`Reply`]), and
//!   shows what happens ([`Events`], [`Views`], [`Recording`]).
//! - [`ClientBuilder`], [`Settings`], [`Blueprint`]: the ways to make one; [`Registry`] has the
//!   monitors that several share.
//! - [`Reactor`], [`Socket`], [`CurrentReactor`]: the traits of a runtime: sockets, timers, tasks.
//! - [`driver`], [`ClientSession`]: an operation with its retries, as a driver hands it down.
//! - [`Error`], [`ErrorKind`]: the one error of all of it, and of operations; [`results`] of
//!   writes, which it has, too.
//! - [`system`]: requests to the operating system.
//!
//! # Locks
//!
//! Locks are taken in one order: the topology's, then a pool's, then those of the commands that
//! run, of the list of subscribers, of the metrics, of a recording and of the alarm. Nothing is
//! awaited, and no code of the application or of the runtime runs, under any of them, but for
//! clocks and predicates: what is woken, dropped or receives a value may call back at once. All
//! that is collected under the locks (`PostUnlock`) and done when they are free, wakers are cloned
//! before they are taken (`sync`), and what comes up in the meantime is noted (`Deferred`).
//!
//! # Features
//!
//! - `aws`: credentials of Amazon Web Services, from where the environment says (MONGODB-AWS).
//! - `ocsp`: revocation of certificates: staples and responders of OCSP.
//! - `gssapi`: logins by Kerberos (GSSAPI), with the system's library of it.
//! - `oidc-environments`: tokens of MONGODB-OIDC from the metadata of Azure and Google Cloud
//!   (`ENVIRONMENT:azure` and `gcp`).
//! - `otel`: spans for the crate `opentelemetry`.
//! - `stream`: events and views as the `Stream` of `futures-core`.
//! - `tls`: TLS, with certificates from files or from the system's store.
//! - `tls-encrypted-keys`: private keys that are encrypted with a password, which takes as many
//!   crates as TLS itself.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod client;
mod documents;
pub mod driver;
mod error;
mod machines;
mod net;
mod observe;
mod operations;
mod process;
pub mod results;
mod sync;
#[allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "it is what asks the operating system"
)]
pub mod system;
#[cfg(test)]
mod tests;

pub use client::Topology;
pub use client::blueprint::{Blueprint, Settings};
pub use client::builder::ClientBuilder;
pub use client::flight_recorder;
pub use client::registry::Registry;
pub use client::socket_runtime::SocketRuntime;
pub use documents::DeserializeError;
pub use error::{
    ArgumentError, BulkWriteError, ClientBulkWriteError, ClientError, Error, ErrorKind,
    GridFsError, GridFsErrorKind, GridFsFileIdentifier, ReplyError, Result, Spent, TimingError,
    WriteConcernError, WriteError,
};
pub use machines::runtime::Runtime;
pub use machines::{Host, NotShared};
pub use net::credentials::sources::CredentialSources;
pub use net::credentials::{Answering, CredentialProvider, ask_provider};
pub use net::dial::{Connector, Route, dial};
pub use net::dns::{LookupFuture, Records, Resolver, srv_records};
pub use net::reactor::{CurrentReactor, DialWith, Dialed, Lane, Reactor};
pub use net::socket::Socket;
pub use net::stream::Connected;
#[cfg(feature = "otel")]
pub use observe::otel;
pub use observe::recording::{FLIGHT_RECORDER_LEN, Recording};
pub use observe::spans::{Span, Tracer};
pub use observe::subscription::{EVENT_BYTES_LIMIT, EVENT_LIMIT, Events, Views};
pub use operations::checked_out::CheckedOut;
pub use operations::convenient::{CallbackError, database_error_in};
pub use operations::exchange::{Exhaust, Outcome, Reply};
pub use operations::selected_server::SelectedServer;
pub use operations::session::{ClientSession, SessionAccessError};
pub use operations::transaction::{EndTransaction, StartTransaction, TransactionFuture};
pub use process::Process;
pub use sdam_core::session::ClusterTimeError;
pub use sync::Interrupter;

// What a host asks of its runtime, for the runtime of the simulation; it is no part of the
// interface.
#[doc(hidden)]
pub use machines::alarm::{Deadlines, Timekeeper};
#[doc(hidden)]
pub use machines::runtime::{Offloaded, Task, Work};
pub use machines::steps::{PoolStep, TopologyStep};
#[doc(hidden)]
pub use machines::tasks::{Link, PendingConnection, Progress, Rescan};
#[cfg(feature = "ocsp")]
#[doc(hidden)]
pub use net::revocation::{Inquiry, vouch};
#[cfg(feature = "ocsp")]
#[doc(hidden)]
pub use system::Statuses;
