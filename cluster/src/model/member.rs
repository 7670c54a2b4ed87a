//! A member of the replica set, and the server process that runs while it is up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{RawDocumentBuf, rawdoc};
use sdam_core::bson;
use sdam_core::config::ServerAddress;
use sdam_core::time::Instant;

use super::config::Config;
use super::counters::Counters;
use super::fail_point::{self, FailPoint};
use super::rate_limit::RateLimit;
use crate::options::{MemberId, MemberOptions, ServerVersion};
use crate::store::{Cursor, Data, Routed, Transactions};
use crate::wire::{CommandError, Request};

/// The role of a member in the replica set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It has no configuration, or one that does not name it.
    Unconfigured,
    /// It runs but does not replicate yet, or not all its data has come.
    Startup,
    /// It votes and holds no data.
    Arbiter,
    /// It replicates.
    Secondary,
    /// It was elected, and has not heard of another election since.
    Primary {
        /// The time when it was elected.
        since: Instant,
        /// The term that its election began.
        term: i64,
    },
    /// It is a mongos, and no member of a replica set.
    Mongos,
    /// It is a server of its own, and no member of a replica set.
    Standalone,
}

impl Role {
    /// Returns the role that a configuration gives to a process at once.
    pub(super) fn configured(options: Option<&MemberOptions>) -> Self {
        match options {
            None => Self::Unconfigured,
            Some(options) if options.arbiter => Self::Arbiter,
            Some(_) => Self::Startup,
        }
    }

    /// Returns whether the member takes writes.
    pub(crate) const fn is_writable(self) -> bool {
        matches!(self, Self::Primary { .. } | Self::Mongos | Self::Standalone)
    }

    /// Checks that the member takes writes.
    ///
    /// # Errors
    ///
    /// Fails if it is not primary.
    pub(crate) fn check_writable(self) -> Result<(), CommandError> {
        match self.is_writable() {
            true => Ok(()),
            false => Err(CommandError::coded(10107, "not primary")),
        }
    }

    /// Checks that the member serves a read (Server Selection, "Passing Read Preference").
    ///
    /// # Errors
    ///
    /// Fails if it is a secondary and the read preference does not allow that, or if it has no
    /// data.
    pub(crate) fn check_readable(self, request: &Request<'_>) -> Result<(), CommandError> {
        let mode = request.read_mode();
        match self {
            Self::Primary { .. } | Self::Mongos | Self::Standalone => Ok(()),
            Self::Secondary if mode != "primary" => Ok(()),
            _ if mode == "primary" => {
                Err(CommandError::coded(13435, "not primary and secondaryOk=false"))
            }
            _ => Err(CommandError::coded(13436, "not primary or secondary")),
        }
    }

    /// Returns whether the server belongs to a replica set, or could.
    pub(crate) const fn is_of_set(self) -> bool {
        !matches!(self, Self::Mongos | Self::Standalone)
    }
}

/// The position of an entry in the oplog: the term it was written in, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OpTime {
    pub(crate) term: i64,
    pub(crate) at: Instant,
}

/// The state of a member that survives a restart of the server process.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    /// The address it listens on, also if it does not belong to the set any more.
    pub(crate) address: ServerAddress,
    /// The version that its next process will have.
    pub(crate) version: ServerVersion,
    /// The newest configuration it has heard of.
    pub(crate) config: Option<Arc<Config>>,
    /// Its initial sync is over.
    pub(crate) has_data: bool,
    /// The last entry of its oplog at the moment it ceased to follow a primary.
    pub(crate) applied: OpTime,
    /// Its data, if the members of the deployment keep any.
    pub(crate) data: Data,
    /// The transactions of clients' sessions: a process that ends forgets them.
    pub(crate) transactions: Transactions,
    /// The other members do not reach it, nor it them.
    pub(crate) cut_off: bool,
    /// The time that it takes to answer a hello.
    pub(crate) hello_latency: Duration,
    /// The running process, unless the member is down.
    pub(crate) process: Option<Process>,
}

impl Member {
    /// A server that has been a member from the beginning, or one that knows of nothing yet.
    pub(super) fn new(
        address: ServerAddress,
        version: ServerVersion,
        oplog_entries: usize,
        config: Option<Arc<Config>>,
    ) -> Self {
        let applied = OpTime { term: 0, at: Instant::ZERO };
        let has_data = config.is_some();
        Self {
            address,
            version,
            config,
            has_data,
            applied,
            data: Data::new(oplog_entries),
            transactions: Transactions::default(),
            cut_off: false,
            hello_latency: Duration::ZERO,
            process: None,
        }
    }

    /// Returns whether the member is `primary` or replicates from it.
    pub(crate) fn follows(&self, primary: MemberId) -> bool {
        let known = self.process.as_ref().and_then(|process| process.primary);
        known == Some(primary) && !self.cut_off
    }
}

/// One run of a server: what a restart forgets.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) version: ServerVersion,
    /// Since when it has run.
    pub(crate) started: Instant,
    /// `topologyVersion.processId`, another one at each start.
    pub(crate) process_id: ObjectId,
    /// `topologyVersion.counter`, which counts the changes a client should hear of.
    pub(crate) counter: i64,
    pub(crate) role: Role,
    /// The primary as far as this member knows.
    pub(crate) primary: Option<MemberId>,
    /// The time when it next hears from the other members, if there is news.
    pub(crate) learns_at: Option<Instant>,
    /// The time when it will have all data, if its initial sync goes on.
    pub(crate) synced_at: Option<Instant>,
    /// The time when it ends, if it is shutting down.
    pub(crate) ends_at: Option<Instant>,
    /// Until when it does not take over from another primary, as it was asked to step down.
    pub(crate) abstains_until: Instant,
    /// The name that a mongos gives to clients behind a load balancer, if it does.
    pub(crate) service_id: Option<ObjectId>,
    /// It accepts connections and reads, but does not answer.
    pub(crate) frozen: bool,
    pub(crate) fail_points: BTreeMap<fail_point::Name, FailPoint>,
    /// The number of connections that it admits.
    pub(crate) rate_limit: RateLimit,
    /// The counts of its requests.
    pub(crate) counters: Counters,
    /// The cursors that clients have not read to their end.
    pub(crate) cursors: BTreeMap<i64, Cursor>,
    /// The transactions that it has begun as a mongos, by the id of their session.
    pub(crate) routed: BTreeMap<Vec<u8>, Routed>,
    /// The number of connections that it has now.
    pub(crate) connected: usize,
    last_connection: i32,
    last_request_id: i32,
}

impl Process {
    /// Returns whether it streams the batches of cursors: mongos does from 7.1 on.
    pub(crate) fn streams_batches(&self) -> bool {
        self.role != Role::Mongos || self.version >= ServerVersion::V8_0
    }

    pub(super) fn new(
        version: ServerVersion,
        started: Instant,
        process_id: ObjectId,
        role: Role,
        learns_at: Option<Instant>,
    ) -> Self {
        Self {
            version,
            started,
            process_id,
            counter: 0,
            role,
            primary: None,
            learns_at,
            synced_at: None,
            ends_at: None,
            abstains_until: Instant::ZERO,
            service_id: None,
            frozen: false,
            fail_points: BTreeMap::new(),
            rate_limit: RateLimit::default(),
            counters: Counters::default(),
            cursors: BTreeMap::new(),
            routed: BTreeMap::new(),
            connected: 0,
            last_connection: 0,
            last_request_id: 0,
        }
    }

    /// Returns what the replies since 4.4 say of the changes so far.
    pub(crate) fn topology_version(&self) -> RawDocumentBuf {
        rawdoc! { "processId": self.process_id, "counter": self.counter }
    }

    /// Returns the name of the program that it imitates.
    pub(crate) const fn program(&self) -> &'static str {
        match self.role {
            Role::Mongos => "mongos",
            _ => "mongod",
        }
    }

    /// Returns whether it says that it is shutting down.
    pub(crate) const fn is_ending(&self) -> bool {
        self.ends_at.is_some()
    }

    /// Returns how many connections there have been.
    pub(crate) const fn connections_created(&self) -> i32 {
        self.last_connection
    }

    /// Numbers a connection for the `connectionId` of its replies.
    pub(super) const fn next_connection(&mut self) -> i32 {
        self.last_connection = self.last_connection.wrapping_add(1);
        self.last_connection
    }

    /// Numbers a message.
    pub(crate) const fn next_request_id(&mut self) -> i32 {
        self.last_request_id = self.last_request_id.wrapping_add(1);
        self.last_request_id
    }
}
