//! An embedded deployment: replica set members inside this process that speak the wire protocol.
//!
//! ```
//! use sdam_cluster::{EmbeddedCluster, EmbeddedOptions};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let options = EmbeddedOptions::default().with_keeps_data(true);
//! let cluster = EmbeddedCluster::start(options).await?;
//! println!("a client connects to {}", cluster.uri());
//!
//! let primary = cluster.elected().await?;
//! cluster.step_down(primary).await?;
//! println!("after it, {} is primary", cluster.elected().await?.0);
//! # Ok(())
//! # }
//! ```
//!
//! # Contents
//!
//! [`Cluster`] is the model, a deterministic [`Machine`](sdam_core::machine::Machine) without I/O:
//! members that can be killed, shut down, started and stepped down, elect a primary, change their
//! configuration, and answer `hello` as real servers do, awaitable and streaming included; what is
//! said here of real servers was seen on 4.2.6, 4.4.2, 5.0.4, 6.0.5 and 6.0.27.
//! [`EmbeddedCluster`] runs it on loopback ports, for anyone who wants to watch discovery and
//! failover with no server at hand.
//!
//! # Data
//!
//! The members store no data unless [`ClusterOptions::keeps_data`] says so. Without it, writes
//! succeed on members that accept them and change nothing, and `find` finds the same few documents
//! everywhere; with it, they keep documents, replicate them, and forget what a majority never saw.
//! Transactions are snapshots of that data: two that change the same conflict, a commit is one
//! entry of the log, and mongos recover each other's by the token that their replies have.
//! Change streams report what of the log a majority has, as far back as
//! [`ClusterOptions::oplog_entries`] goes. A primary begins with an entry that changes nothing. An
//! idle one writes another when a stream asks for events and the newest is ten seconds old, so that
//! the tokens of quiet streams go on; real ones write it whether a stream asks or not, which would
//! only be a step of a simulation here.
//! `replSetGetStatus`, `serverStatus` and their like report the actual state, and
//! `replSetStepDown`, the fail point `failCommand`, and the parameters of the rate limit for new
//! connections do what they do on real servers; any command that is not known is answered with
//! `CommandNotFound`.
//!
//! # Logins
//!
//! With users, members demand a login by SCRAM for all that real servers demand one for; with
//! tokens, one by MONGODB-OIDC; with users of GSSAPI, one by a script that needs no Kerberos, of
//! which [`ScriptedGssapi`] is the client's half. They judge the version of the API that commands
//! declare, and refuse the commands of indexes for searches, as servers do that have no process for
//! these.
//!
//! # Features
//!
//! - `certificates`: an authority that issues certificates for members and clients.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod authentication;
#[cfg(feature = "certificates")]
pub mod certificates;
mod commands;
mod data;
mod model;
mod options;
mod server;
mod store;
mod wire;

#[cfg(test)]
mod tests;

pub use authentication::ScriptedGssapi;
pub use data::{CommittedChange, CommittedChanges, LoggedWrite};
pub use model::{
    Action, Change, Cluster, ClusterEvent, ClusterState, Condition, ConnectionId, Input,
    MAX_SERVERS, MAX_UNREAD_EVENTS, MAX_UNREAD_IN_ALL, MAX_UNREAD_LEN, MemberState, ReconfigError,
    UNREAD_SHARE,
};
pub use options::{
    ClusterOptions, Deployment, MAX_CONNECTIONS, MAX_MEMBERS, MAX_MONGOS, MAX_OPLOG_ENTRIES,
    MAX_PRIORITY, MAX_USERS, MAX_WRITE_BATCH_SIZE, MIN_ELECTION_TIMEOUT, MemberId, MemberOptions,
    OptionsError, ScramMechanism, ServerVersion, User, UserError,
};
pub use server::{
    EmbeddedCluster, EmbeddedOptions, MAX_PEM_LEN, MAX_PENDING_IN_ALL, MAX_PENDING_OUTPUT, PAUSE,
    PENDING_SHARE, TlsIdentity, TlsIdentityError, encoded,
};
pub use wire::ClientName;
