//! A member of the replica set, and the server process that runs while it is up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bson::oid::ObjectId;
use sdam_core::bson;
use sdam_core::config::ServerAddress;
use sdam_core::time::Instant;

use super::config::Config;
use super::data::Cursor;
use super::fail_point::{self, FailPoint};
use super::options::{MemberId, MemberOptions, ServerVersion};
use super::rate_limit::RateLimit;
use super::server_status::Counters;
use super::store::Data;

/// The role of a member in the replica set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
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
    pub(super) const fn is_writable(self) -> bool {
        matches!(self, Self::Primary { .. } | Self::Mongos | Self::Standalone)
    }

    /// Returns whether the server belongs to a replica set, or could.
    pub(super) const fn is_of_set(self) -> bool {
        !matches!(self, Self::Mongos | Self::Standalone)
    }
}

/// The position of an entry in the oplog: the term it was written in, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OpTime {
    pub(super) term: i64,
    pub(super) at: Instant,
}

/// The state of a member that survives a restart of the server process.
#[derive(Clone, Debug)]
pub(super) struct Member {
    /// The address it listens on, also if it does not belong to the set any more.
    pub(super) address: ServerAddress,
    /// The version that its next process will have.
    pub(super) version: ServerVersion,
    /// The newest configuration it has heard of.
    pub(super) config: Option<Arc<Config>>,
    /// Its initial sync is over.
    pub(super) has_data: bool,
    /// The last entry of its oplog at the moment it ceased to follow a primary.
    pub(super) applied: OpTime,
    /// Its data, if the members of the deployment keep any.
    pub(super) data: Data,
    /// The other members do not reach it, nor it them.
    pub(super) cut_off: bool,
    /// The time that it takes to answer a hello.
    pub(super) hello_latency: Duration,
    /// The running process, unless the member is down.
    pub(super) process: Option<Process>,
}

impl Member {
    /// A server that has been a member from the beginning, or one that knows of nothing yet.
    pub(super) fn new(
        address: ServerAddress,
        version: ServerVersion,
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
            data: Data::default(),
            cut_off: false,
            hello_latency: Duration::ZERO,
            process: None,
        }
    }

    /// Returns whether the member is `primary` or replicates from it.
    pub(super) fn follows(&self, primary: MemberId) -> bool {
        let known = self.process.as_ref().and_then(|process| process.primary);
        known == Some(primary) && !self.cut_off
    }
}

/// One run of a server: what a restart forgets.
#[derive(Clone, Debug)]
pub(super) struct Process {
    pub(super) version: ServerVersion,
    /// Since when it has run.
    pub(super) started: Instant,
    /// `topologyVersion.processId`, another one at each start.
    pub(super) process_id: ObjectId,
    /// `topologyVersion.counter`, which counts the changes a client should hear of.
    pub(super) counter: i64,
    pub(super) role: Role,
    /// The primary as far as this member knows.
    pub(super) primary: Option<MemberId>,
    /// The time when it next hears from the other members, if there is news.
    pub(super) learns_at: Option<Instant>,
    /// The time when it will have all data, if its initial sync goes on.
    pub(super) synced_at: Option<Instant>,
    /// The time when it ends, if it is shutting down.
    pub(super) ends_at: Option<Instant>,
    /// Until when it does not take over from another primary, as it was asked to step down.
    pub(super) abstains_until: Instant,
    /// The name that a mongos gives to clients behind a load balancer, if it does.
    pub(super) service_id: Option<ObjectId>,
    /// It accepts connections and reads, but does not answer.
    pub(super) frozen: bool,
    pub(super) fail_points: BTreeMap<fail_point::Name, FailPoint>,
    /// The number of connections that it admits.
    pub(super) rate_limit: RateLimit,
    /// The counts of its requests.
    pub(super) counters: Counters,
    /// The cursors that clients have not read to their end.
    pub(super) cursors: BTreeMap<i64, Cursor>,
    /// The number of connections that it has now.
    pub(super) connected: usize,
    last_connection: i32,
    last_request_id: i32,
}

impl Process {
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
            connected: 0,
            last_connection: 0,
            last_request_id: 0,
        }
    }

    /// Returns the name of the program that it imitates.
    pub(super) const fn program(&self) -> &'static str {
        match self.role {
            Role::Mongos => "mongos",
            _ => "mongod",
        }
    }

    /// Returns whether it says that it is shutting down.
    pub(super) const fn is_ending(&self) -> bool {
        self.ends_at.is_some()
    }

    /// Returns how many connections there have been.
    pub(super) const fn connections_created(&self) -> i32 {
        self.last_connection
    }

    /// Numbers a connection for the `connectionId` of its replies.
    pub(super) const fn next_connection(&mut self) -> i32 {
        self.last_connection = self.last_connection.wrapping_add(1);
        self.last_connection
    }

    /// Numbers a message.
    pub(super) const fn next_request_id(&mut self) -> i32 {
        self.last_request_id = self.last_request_id.wrapping_add(1);
        self.last_request_id
    }
}
