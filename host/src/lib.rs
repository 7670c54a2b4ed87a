//! The part of a client that every runtime shares: the machines behind their locks, the published
//! view, monitors' streams, and connections with the commands on them.
//!
//! A [`Host`] keeps the machines of one client behind their locks, performs their actions in order,
//! and asks the runtime for the few things that only a runtime can do. It does no I/O, reads no
//! clock and starts nothing itself; what runtimes ask of the operating system is in [`system`].
//!
//! Locks are taken in one order: the topology's, then a pool's, then those of the commands that
//! run, of the list of subscribers, of the metrics, of a recording and of the alarm. Nothing is
//! awaited, and no code of the application or of the runtime runs, under any of them, but for
//! clocks and predicates: whoever is woken, handed something or dropped may come back at once. All
//! that is collected under the locks (`Later`) and done when they are free, wakers are cloned
//! before they are taken (`sync`), and what comes up in the meantime is noted (`Deferred`).

mod abandoned;
mod blueprint;
mod builder;
mod client;
mod client_tasks;
mod connection;
mod counted;
mod credentials;
mod dial;
mod dns;
mod error;
mod farewell;
mod monitor_stream;
mod operate;
#[cfg(feature = "otel")]
pub mod otel;
mod process;
mod reactor;
mod registry;
mod request;
mod runtime;
mod selected_server;
mod session;
mod shared;
mod siblings;
mod socket_runtime;
mod spans;
mod steps;
mod stream;
mod streams;
mod sync;
#[allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "it is what asks the operating system"
)]
pub mod system;
#[cfg(test)]
mod tests;

pub use blueprint::{Blueprint, Settings};
pub use builder::ClientBuilder;
pub use client::{Client, ClientError};
pub use connection::checked_out::CheckedOut;
pub use connection::exchange::{Exhaust, Outcome, Reply};
pub use counted::CountedOperation;
pub use credentials::sources::CredentialSources;
pub use credentials::{CredentialProvider, ask_provider};
pub use dial::{Connector, Route, dial};
pub use dns::{LookupFuture, Records, Resolver, srv_records};
pub use error::{Error, ErrorKind, Spent};
pub use process::Process;
pub use reactor::{CurrentReactor, DialWith, Dialed, Lane, Reactor};
pub use registry::Registry;
pub use request::{Message, Request, Target, ToWrite, WrittenCommand};
pub use runtime::{Answering, Interrupter, Offloaded, Runtime, Socket, Task, Work};
pub use sdam_core::session::ClusterTimeError;
pub use selected_server::SelectedServer;
pub use session::ClientSession;
pub use shared::alarm::{Deadlines, Timekeeper};
pub use shared::recording::{FLIGHT_RECORDER_LEN, Recording};
pub use shared::subscription::{EVENT_BYTES_LIMIT, EVENT_LIMIT, Events, Views};
pub use shared::tasks::{Link, PendingConnection, Progress, Rescan};
pub use shared::{Host, NotShared};
pub use socket_runtime::SocketRuntime;
pub use spans::{OperationSpan, Span, Tracer};
pub use steps::{PoolStep, TopologyStep};
pub use stream::Connected;
