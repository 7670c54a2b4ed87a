//! An embedded deployment: replica set members inside this process that speak the wire protocol.
//!
//! [`Cluster`] is the model, a deterministic [`Machine`](sdam_core::machine::Machine) without I/O:
//! members that can be killed, shut down, started and stepped down, elect a primary, change their
//! configuration, and answer `hello` as real servers do, awaitable and streaming included; what is
//! said here of real servers was seen on 4.2.6, 4.4.2, 5.0.4, 6.0.5 and 6.0.27.
//! [`EmbeddedCluster`] runs it on loopback ports, for anyone who wants to watch discovery and
//! failover with no server at hand.
//!
//! The members store no data unless [`ClusterOptions::keeps_data`] says so. Without it, writes
//! succeed on members that accept them and change nothing, and `find` finds the same few documents
//! everywhere; with it, they keep documents, replicate them, and forget what a majority never saw.
//! `replSetGetStatus`, `serverStatus` and their like report the actual state, and
//! `replSetStepDown`, the fail point `failCommand`, and the parameters of the rate limit for new
//! connections do what they do on real servers; any command that is not known is answered with
//! `CommandNotFound`.
//!
//! With users, members demand a login by SCRAM for all that real servers demand one for; with
//! tokens, one by MONGODB-OIDC. They judge the version of the API that commands declare, and refuse
//! the commands of indexes for searches, as servers do that have no process for these.

mod administration;
mod aggregate;
mod authentication;
#[cfg(feature = "certificates")]
pub mod certificates;
mod cluster_time;
mod collections;
mod command_error;
mod commands;
mod config;
mod connection;
mod cursor;
mod data;
mod diagnostics;
mod election;
mod engine;
mod error_labels;
mod event;
mod fail_point;
mod freeze;
mod greeting;
mod listening;
mod member;
mod model;
mod op_query;
mod options;
mod parameters;
mod partition;
mod protocol;
mod rate_limit;
mod reconfig;
mod replication_config;
mod replication_status;
mod reply;
mod search;
mod server;
mod server_status;
mod shutdown;
mod socket;
mod stable_api;
mod store;
mod takeover;
mod tls;
mod truth;
mod writes;

#[cfg(test)]
mod tests;

pub use administration::PAUSE;
pub use authentication::{MAX_USERS, ScramMechanism, User, UserError};
pub use connection::{MAX_UNREAD_IN_ALL, MAX_UNREAD_LEN, UNREAD_SHARE};
pub use data::LoggedWrite;
pub use event::{ClientName, ClusterEvent, MAX_UNREAD_EVENTS};
pub use model::{Action, Cluster, ConnectionId, Input};
pub use options::{
    ClusterOptions, Deployment, MAX_CONNECTIONS, MAX_MEMBERS, MAX_MONGOS, MAX_PRIORITY,
    MAX_WRITE_BATCH_SIZE, MIN_ELECTION_TIMEOUT, MemberId, MemberOptions, OptionsError,
    ServerVersion,
};
pub use reconfig::{Change, MAX_SERVERS, ReconfigError};
pub use server::{
    EmbeddedCluster, EmbeddedOptions, MAX_PENDING_IN_ALL, MAX_PENDING_OUTPUT, PENDING_SHARE,
    encoded,
};
pub use tls::{MAX_PEM_LEN, TlsIdentity, TlsIdentityError};
pub use truth::{Condition, MemberTruth, Truth};
