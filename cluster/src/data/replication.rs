//! Replication: the log of the primary, the members that take it over, and what is lost.

use std::sync::Arc;
use std::time::Duration;

use bson::Timestamp;
use sdam_core::bson;
use sdam_core::time::Instant;
use sdam_core::wire::Message;

use super::arguments::Arguments;
use super::reads::View;
use crate::model::fail_point::Injection;
use crate::model::{Action, Cluster, Connection, ConnectionId, Done, NOOP_INTERVAL, Role, Then};
use crate::options::MemberId;
use crate::store::{Change, ChangeStream, Data, Entry, Past, Position};
use crate::wire::{CommandError, Request, integer};

/// The code of `WriteConflict`.
const WRITE_CONFLICT: i32 = 112;

/// Returns the end of the time that a command may take, if it says how much.
fn limit_of(now: Instant, request: &Request<'_>) -> Option<Instant> {
    let limit = request.body.get("maxTimeMS").ok().flatten().and_then(integer);
    let limit = limit.and_then(|it| u64::try_from(it).ok()).filter(|it| *it > 0);
    limit.map(|it| now + Duration::from_millis(it))
}

impl Cluster {
    /// Notes in the log what a member has written.
    pub(super) fn append(&mut self, now: Instant, member: MemberId, changes: Vec<Change>) {
        if !changes.is_empty() {
            self.append_entry(now, member, changes);
        }
    }

    /// Notes an entry in the log of a primary that changes nothing, for others to take over, if
    /// that is wanted.
    pub(crate) fn note_nothing(&mut self, now: Instant, member: MemberId, is_wanted: bool) {
        let role = self.process(member).map(|it| it.role).filter(|_| is_wanted);
        if matches!(role, Some(Role::Primary { .. })) {
            self.append_entry(now, member, Vec::new());
        }
    }

    /// Notes the entry with which a primary begins its term: what it and others have before is
    /// committed with it.
    pub(crate) fn begin_term(&mut self, now: Instant, member: MemberId) {
        if self.options.keeps_data {
            self.append_entry(now, member, Vec::new());
        }
    }

    /// Notes the entry that an idle primary writes from time to time, so that the tokens of streams
    /// without events go on. It is written when a stream is asked for events and it is due, as
    /// without a stream it would not be seen.
    pub(super) fn note_idleness(&mut self, now: Instant) {
        let is_mongos = self.options.deployment.has_mongos();
        let Some(writer) = self.primary().or(is_mongos.then_some(MemberId(0))) else { return };
        let newest = self.data_of(writer).entries().next_back().map(|it| it.at);
        if !self.is_frozen(writer) && newest.is_none_or(|at| at + NOOP_INTERVAL <= now) {
            self.append_entry(now, writer, Vec::new());
        }
    }

    fn append_entry(&mut self, now: Instant, member: MemberId, changes: Vec<Change>) {
        let term = match self.process(member).map(|it| it.role) {
            Some(Role::Primary { term, .. }) => term,
            _ => 0,
        };
        let timestamp = self.next_timestamp(now, Entry::times(&changes));
        let wall = bson::DateTime::from_millis(self.wall_millis(now));
        let owner = self.owner(member);
        let data = &mut self.members[owner].data;
        let position = Position { term, index: data.last().index + 1 };
        data.note(Arc::new(Entry { position, at: now, timestamp, wall, changes }));
        self.data_is_new = true;
        self.replicate(now);
    }

    /// Has those that follow the primary take over what it has written and they have not.
    pub(crate) fn replicate(&mut self, now: Instant) {
        if !self.options.keeps_data {
            return;
        }
        let Some(primary) = self.primary() else { return };
        let lag = self.options.replication_lag;
        for index in 0..self.members.len() {
            if !self.takes_over(MemberId(index), primary) {
                continue;
            }
            let [source, member] = match self.members.get_disjoint_mut([primary.0, index]) {
                Ok([source, member]) => [&mut source.data, &mut member.data],
                Err(_) => continue,
            };
            if member.last() == source.last() {
                continue;
            }
            let has_lost = !member.roll_back_to(source).is_empty();
            self.data_is_new |= has_lost;
            while let Some(entry) = member.next_of(source).filter(|it| it.at + lag <= now) {
                member.apply(entry);
                self.data_is_new = true;
            }
            // What cursors have seen is no more.
            if let Some(process) = self.members[index].process.as_mut().filter(|_| has_lost) {
                process.cursors.clear();
            }
        }
    }

    /// Returns whether a member takes over what this primary writes.
    fn takes_over(&self, member: MemberId, primary: MemberId) -> bool {
        let role = self.process(member).map(|it| it.role);
        member != primary
            && role == Some(Role::Secondary)
            && self.members[member.0].follows(primary)
    }

    /// Returns when the next entry comes to a member that lags behind.
    pub(crate) fn replicates_at(&self) -> Option<Instant> {
        let lag = self.options.replication_lag;
        if !self.options.keeps_data || lag.is_zero() {
            return None;
        }
        let primary = self.primary()?;
        let source = &self.members[primary.0].data;
        let all = (0..self.members.len()).map(MemberId);
        let behind = all.filter(|member| self.takes_over(*member, primary));
        let next = behind.filter_map(|member| self.members[member.0].data.next_of(source));
        next.map(|entry| entry.at + lag).min()
    }

    /// A new primary takes over what others have that it reaches, before it writes itself.
    pub(crate) fn catch_up_data(&mut self, winner: MemberId) {
        let reached = (0..self.members.len()).filter(|it| {
            self.members[*it].process.is_some() && self.reaches(winner, MemberId(*it))
        });
        let newest = reached.max_by_key(|it| self.members[*it].data.last());
        let pair = newest.map(|newest| self.members.get_disjoint_mut([newest, winner.0]));
        if let Some(Ok([source, winner])) = pair
            && winner.data.last() < source.data.last()
        {
            winner.data.roll_back_to(&source.data);
            while let Some(entry) = winner.data.next_of(&source.data) {
                winner.data.apply(entry);
            }
        }
    }

    /// Returns how many members, or how many of those that vote, have an entry of the log.
    pub(crate) fn holders(&self, position: Position, by_vote: bool) -> usize {
        let all = self.members.iter().enumerate().map(|(index, it)| (MemberId(index), it));
        let all = all.filter(|(id, _)| !by_vote || self.config.votes(*id));
        let with_data = all.filter(|(id, _)| self.config.get(*id).is_some_and(|it| !it.arbiter));
        with_data.filter(|(_, member)| member.data.has(position)).count()
    }

    /// Returns the last entry of a member's log that a majority has.
    pub(crate) fn committed(&self, data: &Data) -> Position {
        if !self.options.deployment.has_set() {
            return data.last();
        }
        let needed = self.config.write_majority();
        let is_held = |position: &Position| self.holders(*position, true) >= needed;
        data.entries().rev().map(|it| it.position).find(is_held).unwrap_or_default()
    }

    /// Returns what a member has to report a change stream.
    pub(super) fn past(&self, member: MemberId, stream: &ChangeStream) -> Past<'_> {
        let data = self.data_of(member);
        let committed = self.committed(data);
        let is_behind = stream.looks_up() && committed != data.last();
        let state = is_behind.then(|| data.until(|entry| entry.position <= committed));
        Past { data, committed, state, version: self.version_of(member) }
    }

    /// Returns the state that a command reads.
    pub(super) fn view(&self, member: MemberId, arguments: &Arguments) -> View {
        let data = self.data_of(member);
        let session = arguments.transaction.as_deref();
        let transactions = &self.members[self.owner(member)].transactions;
        if let Some(open) = session.and_then(|it| transactions.open(it)) {
            return View { store: open.store.clone(), at: None };
        }
        let concern = arguments.document("readConcern").ok().flatten();
        let level = concern.and_then(|it| it.get_str("level").ok()).unwrap_or("local");
        let committed = || {
            let committed = self.committed(data);
            move |entry: &Entry| entry.position <= committed
        };
        match level {
            "majority" => View { store: data.until(committed()), at: None },
            "snapshot" => {
                let given = concern.and_then(|it| it.get_timestamp("atClusterTime").ok());
                let at = given.unwrap_or_else(|| self.clock.timestamp());
                let is_past =
                    |time: Timestamp| (time.time, time.increment) <= (at.time, at.increment);
                let is_committed = committed();
                let store = data.until(|entry| is_committed(entry) && is_past(entry.timestamp));
                View { store, at: Some(at) }
            }
            _ => View { store: data.store.clone(), at: None },
        }
    }

    /// Returns until when a request waits before it is run, if it does: for documents that are
    /// still to come, or for what it wants to see.
    pub(crate) fn must_wait(
        &mut self,
        now: Instant,
        id: ConnectionId,
        request: &Request<'_>,
        limit: Option<Instant>,
    ) -> Option<Option<Instant>> {
        if !self.options.keeps_data {
            return None;
        }
        let member = self.connections.get(&id)?.member;
        if request.command_name() == "getMore" {
            return self.awaits_documents(now, member, request, limit).map(Some);
        }
        self.awaits_time(member, request).then(|| limit.or_else(|| limit_of(now, request)))
    }

    /// Returns until when a command waits for the end of a transaction that stands against what it
    /// writes, if it does: one outside of transactions does, as long as it may take.
    pub(crate) fn must_wait_for_transaction(
        &self,
        now: Instant,
        request: &Request<'_>,
        error: Option<&CommandError>,
        limit: Option<Instant>,
    ) -> Option<Option<Instant>> {
        let conflicts = error.is_some_and(|it| it.code == WRITE_CONFLICT);
        let waits = self.options.keeps_data && conflicts && !request.is_in_transaction();
        waits.then(|| limit.or_else(|| limit_of(now, request)))
    }

    /// Runs a request that has waited; one that has waited too long for what it wants to see fails.
    pub(crate) fn run_again(
        &mut self,
        now: Instant,
        id: ConnectionId,
        message: &Message,
        (mut injection, limit): (Injection, Option<Instant>),
        out: &mut Vec<Action>,
    ) {
        let member = self.connections.get(&id).map(|it| it.member);
        let is_over = limit.is_some_and(|it| it <= now);
        if let (Ok(request), Some(member), true) = (Request::parse(message), member, is_over)
            && self.awaits_time(member, &request)
        {
            injection.error = Some(CommandError::time_is_over());
        }
        self.run(now, id, message, injection, limit, out);
    }

    /// Answers a write that has waited for other members, successfully or not.
    pub(crate) fn acknowledge(
        &mut self,
        now: Instant,
        id: ConnectionId,
        message: &Message,
        done: Done,
        out: &mut Vec<Action>,
    ) {
        let member = self.connections.get(&id).map(|it| it.member);
        if let (Ok(request), Some(member)) = (Request::parse(message), member) {
            self.answer(now, (id, member), &request, done, out);
        }
    }

    /// Replicates what there is to the members, and answers the requests that have waited for it.
    pub(crate) fn settle_data(&mut self, now: Instant, out: &mut Vec<Action>) {
        self.replicate(now);
        while self.options.keeps_data && std::mem::take(&mut self.data_is_new) {
            let waiting = self.connections.iter().filter(|(_, it)| self.may_go_on(it));
            let waiting: Vec<ConnectionId> = waiting.map(|(id, _)| *id).collect();
            waiting.into_iter().for_each(|id| self.resume(now, id, out));
            self.replicate(now);
        }
    }

    fn may_go_on(&self, connection: &Connection) -> bool {
        let member = connection.member;
        let then = connection.pending.as_ref().map(|it| &it.then);
        !self.is_frozen(member)
            && match then {
                Some(Then::Await(..)) => true,
                Some(Then::Acknowledge(message, done)) => {
                    let request = Request::parse(message);
                    request.is_ok_and(|it| self.is_settled(member, &it, done.position))
                }
                _ => false,
            }
    }

    /// Returns whether a read must wait for what it wants to see (Causal Consistency,
    /// "afterClusterTime").
    pub(super) fn awaits_time(&self, member: MemberId, request: &Request<'_>) -> bool {
        let concern = request.body.get_document("readConcern").ok();
        let Some(time) = concern.and_then(|it| it.get_timestamp("afterClusterTime").ok()) else {
            return false;
        };
        // Without a primary, the member that may be the next one knows what there is to see.
        let all = self.members.iter().map(|it| &it.data);
        let newest = match self.primary() {
            Some(primary) => Some(self.data_of(primary)),
            None => all.max_by_key(|it| it.last()).filter(|_| self.options.deployment.has_set()),
        };
        let Some(newest) = newest else { return false };
        // A member that does not read refuses at once, as a server does.
        let role = self.process(member).map(|it| it.role);
        if role.is_none_or(|role| role.check_readable(request).is_err()) {
            return false;
        }
        let next = self.data_of(member).next_of(newest);
        next.is_some_and(|it| {
            (it.timestamp.time, it.timestamp.increment) <= (time.time, time.increment)
        })
    }
}
