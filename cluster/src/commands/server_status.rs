//! `serverStatus`: what exporters ask a member every few seconds.
//!
//! It has only what is true here: there is no storage, no journal and no memory of its own.

use bson::raw::cstr;
use bson::{DateTime, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use sdam_core::bson;
use sdam_core::time::Instant;

use super::replication_status::int32;
use crate::model::{Cluster, Connection, ConnectionId, Process, Role, Then};
use crate::options::MemberId;
use crate::wire::{Hello, ReplyForm, ReplyTo, Request, integer};

impl Cluster {
    pub(super) fn count_request(&mut self, member: MemberId, request: &Request<'_>) {
        if let Some(process) = self.process_mut(member) {
            process.counters.note(request);
        }
    }

    /// Answers `serverStatus`, without the sections that the command switches off.
    pub(super) fn server_status(
        &self,
        now: Instant,
        id: ConnectionId,
        process: &Process,
        command: &RawDocument,
    ) -> RawDocumentBuf {
        let Some(connection) = self.connections.get(&id) else {
            return RawDocumentBuf::new();
        };
        let up = i64::try_from((now - process.started).as_millis()).unwrap_or(i64::MAX);
        let seconds = up / 1000;
        let mut status = rawdoc! {
            "host": self.host(connection.member),
            "version": process.version.release(),
            "process": process.program(),
            "uptime": f64::from(i32::try_from(seconds).unwrap_or(i32::MAX)),
            "uptimeMillis": up,
            "uptimeEstimate": seconds,
            "localTime": DateTime::from_millis(self.wall_millis(now)),
        };
        let wants = |section| !command.get(section).ok().flatten().is_some_and(is_false);
        if wants("connections") {
            let connections = self.connection_counts(id, connection.member, process);
            status.append(cstr!("connections"), connections);
        }
        if wants("network") {
            status.append(cstr!("network"), process.counters.network());
        }
        if wants("opcounters") {
            status.append(cstr!("opcounters"), process.counters.operations());
        }
        if wants("repl") && process.role.is_of_set() {
            status.append(cstr!("repl"), self.replication_section(now, connection, process));
        }
        if wants("transactions") && self.options.keeps_data {
            status.append(cstr!("transactions"), self.transaction_counts(connection.member));
        }
        if wants("metrics") && self.options.keeps_data {
            status.append(cstr!("metrics"), process.counters.metrics());
        }
        if command.get("oplog").ok().flatten().is_some_and(|it| !is_false(it))
            && let Some(section) = self.oplog_section(connection.member)
        {
            status.append(cstr!("oplog"), section);
        }
        status.append(cstr!("ok"), 1.0);
        status
    }

    /// Counts the connections of a member; those that wait for a reply are active.
    fn connection_counts(
        &self,
        asking: ConnectionId,
        member: MemberId,
        process: &Process,
    ) -> RawDocumentBuf {
        let own = self.connections.iter().filter(|(_, it)| it.member == member);
        let (mut active, mut awaiting, mut streams) = (0, 0, [0, 0]);
        for (id, connection) in own {
            let is_waiting = connection.pending.is_some();
            active += i32::from(is_waiting || *id == asking);
            awaiting += i32::from(connection.awaits_change());
            if let Some(hello) = streamed(connection) {
                streams[usize::from(hello.legacy)] += 1;
            }
        }
        let left = self.options.max_connections.saturating_sub(process.connected);
        let mut counts = rawdoc! {
            "current": int32(process.connected),
            "available": int32(left),
            "totalCreated": process.connections_created(),
            "active": active,
        };
        if process.version.has_awaitable_hello() {
            let [modern, legacy] = streams;
            counts.append(cstr!("exhaustIsMaster"), legacy);
            counts.append(cstr!("exhaustHello"), modern);
            counts.append(cstr!("awaitingTopologyChanges"), awaiting);
        }
        counts
    }

    /// Says what the member is to its set, in the words of its hello.
    fn replication_section(
        &self,
        now: Instant,
        connection: &Connection,
        process: &Process,
    ) -> RawDocumentBuf {
        let mut section = RawDocumentBuf::new();
        if process.version.has_awaitable_hello() {
            section.append(cstr!("topologyVersion"), process.topology_version());
        }
        let writable = process.role.is_writable();
        match process.version.has_hello_ok() {
            true => section.append(cstr!("isWritablePrimary"), writable),
            false => section.append(cstr!("ismaster"), writable),
        }
        match process.role {
            Role::Unconfigured => self.append_no_set(connection.member, process, &mut section),
            _ => self.append_set(now, connection, process, &mut section),
        }
        section
    }
}

/// Returns the hello that is answered again and again on a connection.
fn streamed(connection: &Connection) -> Option<Hello> {
    let is_exhaust = |to: &ReplyTo| matches!(to.form, ReplyForm::Msg { exhaust: true, .. });
    match &connection.pending.as_ref()?.then {
        Then::SayHello(to, hello) if is_exhaust(to) => Some(*hello),
        Then::Stream(_, hello, _) => Some(*hello),
        _ => None,
    }
}

/// Returns whether a client means no.
fn is_false(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Boolean(value) => !value,
        value => integer(value) == Some(0),
    }
}
