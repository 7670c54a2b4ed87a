//! A session of the servers is used by one holder at a time: not by another one while a command of
//! it has no reply, while a cursor is read with it, after its connection was lost, or after its
//! application has ended it; and it is used again while it is fresh enough.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sdam_core::time::Instant;

use super::super::conversation::{Command, Reply, SessionName};
use super::super::operations::{Holder, Operations};
use super::{Finding, ensure};
use crate::sim::network::StreamId;

/// `logicalSessionTimeoutMinutes` of all servers that there are.
const TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// The time that must be left to a session for a client to use it: "If it has less than one minute
/// left before becoming stale discard it" (Driver Sessions).
const MARGIN: Duration = Duration::from_secs(60);

/// The use of a session of the servers.
#[derive(Debug)]
struct Use {
    client: usize,
    /// The last holder; `None` if it was a task of the client's own.
    holder: Option<Holder>,
    /// The connection on which its last command has no reply.
    unanswered: Option<StreamId>,
    /// True if the server sends one reply after the other to its last command.
    is_streaming: bool,
    /// True if its connection was lost with a command of it under way.
    is_dirty: bool,
    /// True if a task of the client's own has lost it, or if it may be kept for nothing but the
    /// question what became of a commit.
    may_be_gone: bool,
    last: Instant,
}

/// The sessions of all clients.
#[derive(Debug, Default)]
pub(in crate::sim::applications) struct Sessions {
    uses: BTreeMap<SessionName, Use>,
    /// The operations that read a cursor which is open.
    reading: BTreeMap<i64, SessionName>,
    /// The operations whose cursors are read no further, also if one comes late.
    left: BTreeSet<i64>,
    /// The sessions that applications have ended.
    ended: BTreeSet<i64>,
    /// Those that were named to servers to be forgotten.
    forgotten: BTreeSet<SessionName>,
    /// The holders that have sent a command.
    heard: BTreeSet<i64>,
    /// The number of new sessions of each client that were left by holders which sent nothing.
    left_unused: BTreeMap<usize, usize>,
}

impl Sessions {
    /// A command is sent, by a client that may do nothing else.
    pub(super) fn sent(
        &mut self,
        command: &Command,
        operations: &Operations,
        is_alone: bool,
    ) -> Finding {
        self.forget(command);
        let Some(name) = &command.session else { return Ok(()) };
        let holder = command.operation.and_then(|it| operations.get(it)).map(|it| it.holder);
        let is_kill = command.name == "killCursors";
        if !is_kill {
            self.judge(command, name, holder)?;
        }
        if is_alone && let Some(Holder::Operation(operation)) = holder {
            self.judge_new(command, name, (operation, operations))?;
        }
        match holder {
            Some(Holder::Operation(number) | Holder::Session(number)) => {
                self.heard.insert(number);
            }
            None => {}
        }
        let client = command.line.client;
        let used = self.uses.entry(name.clone()).or_insert(Use {
            client,
            holder,
            unanswered: None,
            is_streaming: false,
            is_dirty: false,
            may_be_gone: false,
            last: command.at,
        });
        used.last = command.at;
        if !is_kill {
            (used.holder, used.unanswered) = (holder, Some(command.line.stream));
        }
        Ok(())
    }

    /// A client asks what became of a transaction of another one, whose session it names; none of
    /// its own is used.
    pub(super) fn asked(&mut self, command: &Command) {
        self.heard.extend(command.operation);
    }

    /// Judges whether a holder may use a session.
    fn judge(&self, command: &Command, name: &SessionName, holder: Option<Holder>) -> Finding {
        let has_ended = |it: &Holder| match it {
            Holder::Session(session) => self.ended.contains(session),
            Holder::Operation(_) => false,
        };
        let said = || format!("{} of {holder:?} names session {name:02x?}", command.name);
        // "drivers MUST abort" a transaction in progress when its session ends (Transactions,
        // "endSession changes").
        let rests = !holder.as_ref().is_some_and(has_ended) || command.name == "abortTransaction";
        ensure(rests, "a session that has ended rests", said)?;
        // "Cursors [...] MUST use the same session until exhausted or closed"
        let first = command.operation.and_then(|operation| self.reading.get(&operation));
        let goes_on = first.filter(|_| command.name == "getMore");
        ensure(goes_on.is_none_or(|it| it == name), "a cursor has one session", said)?;
        let Some(used) = self.uses.get(name) else { return Ok(()) };
        let said = || format!("{}, which is used as {used:?}", said());
        ensure(used.unanswered.is_none(), "a session has one command at a time", said)?;
        if used.holder == holder {
            return Ok(());
        }
        // "Dirty server sessions are discarded when returned to the server session pool"
        ensure(!used.is_dirty, "a session that is dirty is used no more", said)?;
        let reads = self.reading.values().any(|it| it == name);
        ensure(!reads, "a cursor has its session to itself", said)?;
        ensure(used.last + TIMEOUT > command.at, "a session that servers forget rests", said)
    }

    /// Judges whether a client that does nothing else may use a session that was never used before:
    /// only if none is left that can be used again, or if an earlier holder took it and sent
    /// nothing with it.
    fn judge_new(
        &mut self,
        command: &Command,
        name: &SessionName,
        (operation, operations): (i64, &Operations),
    ) -> Finding {
        let client = command.line.client;
        let free = |it: &&Use| self.is_kept(it, client, command.at);
        let free = self.uses.values().find(free);
        if self.uses.contains_key(name) || free.is_none() {
            return Ok(());
        }
        let all = operations.holders_before(operation, client);
        let silent = all.filter(|number| !self.heard.contains(number)).count();
        let left = self.left_unused.entry(client).or_default();
        *left += 1;
        ensure(*left <= silent, "a session that is fresh enough is used again", || {
            format!("{} takes a new one, though there is {free:?}", command.name)
        })
    }

    /// Returns whether a client has a session at a time, unless something uses it.
    fn is_kept(&self, used: &Use, client: usize, now: Instant) -> bool {
        let is_free = used.unanswered.is_none() && !used.is_dirty && !used.may_be_gone;
        used.client == client && is_free && used.last + (TIMEOUT - MARGIN) > now
    }

    fn forget(&mut self, command: &Command) {
        if command.name == "endSessions" {
            let all = command.body.get_array("endSessions").into_iter().flatten();
            let names = all.filter_map(|it| {
                let name = it.ok()?.as_document()?.get_binary("id").ok()?;
                Some(name.bytes.to_vec())
            });
            self.forgotten.extend(names);
        }
    }

    /// The commit of a session's transaction is called: if it comes to no known end, the session is
    /// used for that question only, and never given back.
    pub(in crate::sim::applications) fn may_be_retired(&mut self, name: &SessionName) {
        if let Some(used) = self.uses.get_mut(name) {
            used.may_be_gone = true;
        }
    }

    pub(super) fn replied(&mut self, command: &Command, reply: &Reply, operations: &Operations) {
        let Some(name) = &command.session else { return };
        if let Some(used) = self.uses.get_mut(name)
            && used.unanswered == Some(command.line.stream)
        {
            used.is_streaming = !reply.is_last;
            used.unanswered.take_if(|_| reply.is_last);
        }
        let Some(operation) = command.operation else { return };
        // A session of the application's may be ended while a cursor is open.
        let holder = operations.get(operation).map(|it| it.holder);
        let is_own = matches!(holder, Some(Holder::Operation(_)));
        // Behind an `invalidate` there is nothing: a change stream ends with it.
        let is_read = is_own && !self.left.contains(&operation) && !reply.invalidates();
        match reply.cursor().filter(|cursor| is_read && *cursor != 0) {
            Some(_) => drop(self.reading.insert(operation, name.clone())),
            None => drop(self.reading.remove(&operation)),
        }
    }

    pub(super) fn lost(&mut self, command: &Command) {
        let used = command.session.as_ref().and_then(|name| self.uses.get_mut(name));
        let Some(used) = used else { return };
        match command.operation {
            Some(operation) => {
                used.unanswered = None;
                // A client that reads a cursor no further closes its connection.
                let leaves = std::mem::take(&mut used.is_streaming);
                used.is_dirty |= !leaves;
                used.may_be_gone = true;
                self.reading.remove(&operation);
            }
            None => {
                used.unanswered.take_if(|stream| *stream == command.line.stream);
                used.may_be_gone = true;
            }
        }
    }

    /// A reply of it may not have been read.
    pub(super) fn unread(&mut self, command: &Command) {
        let used = command.session.as_ref().and_then(|name| self.uses.get_mut(name));
        used.into_iter().for_each(|used| used.may_be_gone = true);
    }

    /// An application reads the cursor of an operation no further.
    pub(in crate::sim::applications) fn reads_no_more(&mut self, operation: i64) {
        self.left.insert(operation);
        self.reading.remove(&operation);
    }

    /// An application has ended a session, and no operation uses it any more.
    pub(in crate::sim::applications) fn ended(&mut self, session: i64) {
        self.ended.insert(session);
    }

    /// Judges which sessions servers were to forget when a client was closed.
    ///
    /// "When a MongoClient is closed the driver MUST iterate over all the sessions in the pool and
    /// end them" (Driver Sessions, "endSessions").
    pub(in crate::sim::applications) fn closed(&self, client: usize, now: Instant) -> Finding {
        let is_left = |(name, used): &(&SessionName, &Use)| {
            self.is_kept(used, client, now) && !self.forgotten.contains(*name)
        };
        let left = self.uses.iter().find(is_left);
        ensure(left.is_none(), "sessions end with their client", || format!("{left:?} does not"))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bson::rawdoc;
    use sdam_core::bson;

    use super::super::testing::{at, begin, command, name_of, reply};
    use super::{Command, Operations, Sessions};

    const MINUTE: u64 = 60_000;

    fn insert(millis: u64, stream: u64, operation: i64) -> Arc<Command> {
        command((millis, 0, stream), Some(operation), Some(1), rawdoc! { "insert": "a" })
    }

    fn ok() -> bson::RawDocumentBuf {
        rawdoc! { "ok": 1.0 }
    }

    fn check(found: super::Finding) -> &'static str {
        found.unwrap_err().check
    }

    #[test]
    fn a_session_with_two_commands_at_a_time_is_found() {
        let (mut sessions, mut operations) = Default::default();
        let [first, second] = begin(&mut operations, [None, None]);
        Sessions::sent(&mut sessions, &insert(0, 1, first), &operations, false).unwrap();
        let found = sessions.sent(&insert(1, 2, second), &operations, false);
        assert_eq!(check(found), "a session has one command at a time");
        sessions.replied(&insert(0, 1, first), &reply(2, ok()), &operations);
        sessions.sent(&insert(3, 2, second), &operations, false).unwrap();
    }

    #[test]
    fn a_session_that_is_used_by_another_after_its_connection_was_lost_is_found() {
        let (mut sessions, mut operations): (Sessions, Operations) = Default::default();
        let [first, second] = begin(&mut operations, [None, None]);
        sessions.sent(&insert(0, 1, first), &operations, false).unwrap();
        sessions.lost(&insert(0, 1, first));
        sessions.sent(&insert(1, 2, first), &operations, false).unwrap();
        sessions.replied(&insert(1, 2, first), &reply(2, ok()), &operations);
        let found = sessions.sent(&insert(3, 3, second), &operations, false);
        assert_eq!(check(found), "a session that is dirty is used no more");
    }

    #[test]
    fn the_session_of_an_open_cursor_that_another_uses_is_found() {
        let (mut sessions, mut operations): (Sessions, Operations) = Default::default();
        let [first, second] = begin(&mut operations, [None, None]);
        let find = command((0, 0, 1), Some(first), Some(1), rawdoc! { "find": "a" });
        sessions.sent(&find, &operations, false).unwrap();
        let cursor = rawdoc! { "ok": 1.0, "cursor": { "id": 7_i64 } };
        sessions.replied(&find, &reply(1, cursor), &operations);
        let found = sessions.sent(&insert(2, 2, second), &operations, false);
        assert_eq!(check(found), "a cursor has its session to itself");
        let more =
            |session| command((2, 0, 3), Some(first), Some(session), rawdoc! { "getMore": 7_i64 });
        let found = sessions.sent(&more(2), &operations, false);
        assert_eq!(check(found), "a cursor has one session");
        sessions.reads_no_more(first);
        sessions.sent(&insert(2, 2, second), &operations, false).unwrap();
    }

    #[test]
    fn a_session_that_has_ended_and_is_used_is_found() {
        let (mut sessions, mut operations): (Sessions, Operations) = Default::default();
        let session = operations.session(0);
        let [first] = begin(&mut operations, [Some(session)]);
        sessions.sent(&insert(0, 1, first), &operations, false).unwrap();
        sessions.replied(&insert(0, 1, first), &reply(1, ok()), &operations);
        sessions.ended(session);
        let found = sessions.sent(&insert(2, 1, first), &operations, false);
        assert_eq!(check(found), "a session that has ended rests");
    }

    #[test]
    fn sessions_that_are_too_old_or_not_used_again_are_found() {
        let (mut sessions, mut operations): (Sessions, Operations) = Default::default();
        let [first, second] = begin(&mut operations, [None, None]);
        sessions.sent(&insert(0, 1, first), &operations, true).unwrap();
        sessions.replied(&insert(0, 1, first), &reply(1, ok()), &operations);
        let found = sessions.sent(&insert(30 * MINUTE, 1, second), &operations, true);
        assert_eq!(check(found), "a session that servers forget rests");
        let new = |minute| {
            command((minute * MINUTE, 0, 1), Some(second), Some(2), rawdoc! { "insert": "a" })
        };
        let found = sessions.sent(&new(28), &operations, true);
        assert_eq!(check(found), "a session that is fresh enough is used again");
        sessions.sent(&new(28), &operations, false).unwrap();
        let mut sessions = Sessions::default();
        sessions.sent(&insert(0, 1, first), &operations, true).unwrap();
        sessions.replied(&insert(0, 1, first), &reply(1, ok()), &operations);
        sessions.sent(&new(29), &operations, true).unwrap();
    }

    #[test]
    fn a_new_session_may_have_been_left_by_an_operation_that_sent_nothing() {
        let (mut sessions, mut operations): (Sessions, Operations) = Default::default();
        let [first, _silent, third, fourth] = begin(&mut operations, [None; 4]);
        sessions.sent(&insert(0, 1, first), &operations, true).unwrap();
        sessions.replied(&insert(0, 1, first), &reply(1, ok()), &operations);
        let new = |operation, session| {
            command((2, 0, 1), Some(operation), Some(session), rawdoc! { "insert": "a" })
        };
        sessions.sent(&new(third, 2), &operations, true).unwrap();
        sessions.replied(&new(third, 2), &reply(3, ok()), &operations);
        let found = sessions.sent(&new(fourth, 3), &operations, true);
        assert_eq!(check(found), "a session that is fresh enough is used again");
    }

    #[test]
    fn a_session_that_servers_are_not_told_to_forget_is_found() {
        let (mut sessions, mut operations): (Sessions, Operations) = Default::default();
        let [first] = begin(&mut operations, [None]);
        sessions.sent(&insert(0, 1, first), &operations, false).unwrap();
        sessions.replied(&insert(0, 1, first), &reply(1, ok()), &operations);
        assert_eq!(check(sessions.closed(0, at(2))), "sessions end with their client");
        sessions.closed(1, at(2)).unwrap();
        let end = rawdoc! { "endSessions": [{ "id": name_of(1) }] };
        sessions.sent(&command((2, 0, 1), None, None, end), &operations, false).unwrap();
        sessions.closed(0, at(2)).unwrap();
    }
}
