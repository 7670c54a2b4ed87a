//! An embedded deployment: replica set members inside this process that speak the wire protocol.
//!
//! [`Cluster`] is the model, a deterministic [`Machine`](sdam_core::machine::Machine) without I/O:
//! members that can be killed, started and stepped down, elect a primary, and answer `hello` as
//! real servers do, awaitable and streaming included. [`EmbeddedCluster`] runs it on loopback
//! ports, for anyone who wants to watch discovery and failover with no server installed.
//!
//! The members store no data: every command but `hello`, `isMaster`, `ping`, `buildInfo` and
//! `endSessions` is answered with `CommandNotFound`.

mod connection;
mod election;
mod engine;
mod member;
mod model;
mod options;
mod protocol;
mod reply;
mod server;
mod story;

#[cfg(test)]
mod tests;

pub use connection::MAX_UNREAD_LEN;
pub use model::{Action, Cluster, ConnectionId, Input};
pub use options::{
    ClusterOptions, MAX_MEMBERS, MIN_ELECTION_TIMEOUT, MemberId, MemberOptions, OptionsError,
    ServerVersion,
};
pub use server::{EmbeddedCluster, EmbeddedOptions, MAX_CONNECTIONS, MAX_PENDING_OUTPUT};
pub use story::PAUSE;
