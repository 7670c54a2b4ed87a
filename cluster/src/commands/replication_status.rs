//! `replSetGetStatus`: what a member knows of its set, which here is how things are.
//!
//! A member that cannot be reached is shown so at once, as no heartbeats are modelled; nor is there
//! a time of the last one.

use bson::raw::cstr;
use bson::{DateTime, RawArrayBuf, RawDocumentBuf, Timestamp, rawdoc};
use sdam_core::bson;
use sdam_core::time::Instant;

use crate::model::{Cluster, Config, OpTime, Role};
use crate::options::{MemberId, MemberOptions};
use crate::wire::CommandError;

/// The state of a member as others see it (Replica Set Member States).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplicaState {
    Startup,
    Primary,
    Secondary,
    Startup2,
    Arbiter,
    Down,
    Removed,
}

impl ReplicaState {
    const fn number(self) -> i32 {
        match self {
            Self::Startup => 0,
            Self::Primary => 1,
            Self::Secondary => 2,
            Self::Startup2 => 5,
            Self::Arbiter => 7,
            Self::Down => 8,
            Self::Removed => 10,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Startup => "STARTUP",
            Self::Primary => "PRIMARY",
            Self::Secondary => "SECONDARY",
            Self::Startup2 => "STARTUP2",
            Self::Arbiter => "ARBITER",
            Self::Down => "(not reachable/healthy)",
            Self::Removed => "REMOVED",
        }
    }
}

impl Cluster {
    /// Answers `replSetGetStatus`.
    ///
    /// # Errors
    ///
    /// Fails as real servers do if the member has no configuration, or one without it.
    pub(super) fn replication_status(
        &self,
        now: Instant,
        member: MemberId,
    ) -> Result<RawDocumentBuf, CommandError> {
        let config = self.known_config(member)?;
        if !config.contains(member) {
            let reason = "the configuration of the replica set does not name this member";
            return Err(CommandError::coded(93, reason));
        }
        let knows_voters = self.process(member).is_some_and(|it| it.version.has_awaitable_hello());
        let (source_host, source_id) = self.sync_source(member, config);
        let mut status = rawdoc! {
            "set": self.options.set_name.as_str(),
            "date": DateTime::from_millis(self.wall_millis(now)),
            "myState": self.seen_state(member, member).number(),
            "term": self.known_term(now, member),
            "syncSourceHost": source_host,
            "syncSourceId": source_id,
            "heartbeatIntervalMillis": i64::from(self.heartbeat_millis()),
            "majorityVoteCount": int32(config.majority()),
            "writeMajorityCount": int32(config.write_majority()),
        };
        if knows_voters {
            status.append(cstr!("votingMembersCount"), int32(config.voters()));
            let writable = int32(config.voters_with_data());
            status.append(cstr!("writableVotingMembersCount"), writable);
        }
        status.append(cstr!("optimes"), self.optimes(self.last_write(now, member)));
        let members = config.members().map(|(id, it)| self.status_of(now, member, id, it));
        status.append(cstr!("members"), members.collect::<RawArrayBuf>());
        status.append(cstr!("ok"), 1.0);
        Ok(status)
    }

    /// Returns the configuration that a member has heard of, whether it is named there or not.
    pub(super) fn known_config(&self, member: MemberId) -> Result<&Config, CommandError> {
        if !self.options.deployment.has_set() {
            return Err(CommandError::coded(76, "the server is no member of a replica set"));
        }
        let config = self.members[member.0].config.as_deref();
        config.ok_or_else(|| CommandError::coded(94, "no replset config has been received"))
    }

    /// Returns the latest term that a member has heard of.
    pub(super) fn known_term(&self, now: Instant, member: MemberId) -> i64 {
        match self.process(member).map(|it| it.role) {
            Some(Role::Primary { term, .. }) => term,
            _ if self.members[member.0].cut_off => self.last_write(now, member).term,
            _ => self.term,
        }
    }

    /// Returns how often members hear from each other.
    pub(super) fn heartbeat_millis(&self) -> i32 {
        i32::try_from((self.options.election_timeout / 20).as_millis()).unwrap_or(i32::MAX)
    }

    /// Returns what `observer` takes a member for.
    fn seen_state(&self, observer: MemberId, member: MemberId) -> ReplicaState {
        let process = self.process(member).filter(|_| self.reaches(observer, member));
        match process.map(|it| it.role) {
            None => ReplicaState::Down,
            Some(Role::Primary { .. }) => ReplicaState::Primary,
            Some(Role::Secondary) => ReplicaState::Secondary,
            Some(Role::Startup) => ReplicaState::Startup2,
            Some(Role::Arbiter) => ReplicaState::Arbiter,
            Some(Role::Unconfigured | Role::Mongos | Role::Standalone) => {
                let was_member = self.members[member.0].config.is_some();
                if was_member { ReplicaState::Removed } else { ReplicaState::Startup }
            }
        }
    }

    /// Returns from whom a secondary replicates: its address and its number, or none.
    fn sync_source(&self, member: MemberId, config: &Config) -> (String, i32) {
        let process = self.process(member).filter(|it| it.role == Role::Secondary);
        let source = process.and_then(|it| it.primary);
        let source = source.filter(|it| self.reaches(member, *it) && self.is_running(*it));
        let known = source.and_then(|it| Some((config.get(it)?.address.to_string(), int32(it.0))));
        known.unwrap_or_else(|| (String::new(), -1))
    }

    /// Describes a member, as another one or it itself sees it.
    fn status_of(
        &self,
        now: Instant,
        observer: MemberId,
        member: MemberId,
        options: &MemberOptions,
    ) -> RawDocumentBuf {
        let (state, is_self) = (self.seen_state(observer, member), observer == member);
        let process = self.process(member).filter(|_| state != ReplicaState::Down);
        // It is seen since both have run.
        let own_start = self.process(observer).map_or(now, |it| it.started);
        let uptime = process.map_or(0, |it| (now - it.started.max(own_start)).as_secs());
        let mut status = rawdoc! {
            "_id": int32(member.0),
            "name": options.address.to_string(),
            "health": if process.is_some() { 1.0 } else { 0.0 },
            "state": state.number(),
            "stateStr": state.name(),
            "uptime": i32::try_from(uptime).unwrap_or(i32::MAX),
        };
        if !options.arbiter {
            let written = process.map(|_| self.last_write(now, member));
            self.append_optimes(&mut status, written, is_self);
        }
        let own_config = self.members[member.0].config.as_deref();
        let source = process.and_then(|_| Some(self.sync_source(member, own_config?)));
        let (source_host, source_id) = source.unwrap_or_else(|| (String::new(), -1));
        status.append(cstr!("syncSourceHost"), source_host);
        status.append(cstr!("syncSourceId"), source_id);
        status.append(cstr!("infoMessage"), "");
        if let Some(Role::Primary { since, .. }) = process.map(|it| it.role) {
            let elected = self.timestamp(since);
            status.append(cstr!("electionTime"), elected);
            status.append(cstr!("electionDate"), date(elected));
        }
        status.append(cstr!("configVersion"), own_config.map_or(-2, |it| it.version));
        if self.process(observer).is_some_and(|it| it.version.has_awaitable_hello()) {
            let term = i32::try_from(self.known_term(now, member)).unwrap_or(i32::MAX);
            status.append(cstr!("configTerm"), term);
        }
        if is_self {
            status.append(cstr!("self"), true);
        }
        let silent = self.process(member).is_some() && process.is_none();
        let message = match (process, silent) {
            (Some(_), _) => "",
            (None, true) => "no response within the election timeout",
            (None, false) => "connection refused",
        };
        status.append(cstr!("lastHeartbeatMessage"), message);
        status
    }

    /// Says how far a member has come, or that this is not known.
    fn append_optimes(&self, status: &mut RawDocumentBuf, written: Option<OpTime>, is_self: bool) {
        let unknown = (Timestamp { time: 0, increment: 0 }, -1);
        let (timestamp, term) = written.map_or(unknown, |it| (self.timestamp(it.at), it.term));
        status.append(cstr!("optime"), rawdoc! { "ts": timestamp, "t": term });
        status.append(cstr!("optimeDate"), date(timestamp));
        if !is_self {
            status.append(cstr!("optimeDurable"), rawdoc! { "ts": timestamp, "t": term });
            status.append(cstr!("optimeDurableDate"), date(timestamp));
        }
    }

    /// Says how far a member is: nothing lags behind, so that all of it is the same.
    fn optimes(&self, written: OpTime) -> RawDocumentBuf {
        let time = rawdoc! { "ts": self.timestamp(written.at), "t": written.term };
        let wall = DateTime::from_millis(self.wall_millis(written.at));
        rawdoc! {
            "lastCommittedOpTime": time.clone(),
            "lastCommittedWallTime": wall,
            "appliedOpTime": time.clone(),
            "durableOpTime": time,
            "lastAppliedWallTime": wall,
            "lastDurableWallTime": wall,
        }
    }
}

/// Returns the second of a timestamp.
fn date(timestamp: Timestamp) -> DateTime {
    DateTime::from_millis(i64::from(timestamp.time) * 1000)
}

/// Returns a number of members, of which there are few.
pub(super) fn int32(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
