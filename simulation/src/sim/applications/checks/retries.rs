//! An operation is sent again as often as its errors allow, and not to a server that has refused it
//! while there is another one.

use std::collections::{BTreeMap, BTreeSet};

use sdam_core::operation::{RETRYABLE_WRITE, SYSTEM_OVERLOADED};
use sdam_core::time::Instant;

use super::super::conversation::{Command, Reply};
use super::super::operations::Operations;
use super::{Finding, ensure};
use crate::sim::tap::Line;

/// The members that a client may choose from.
#[derive(Clone, Debug, Default)]
pub(in crate::sim::applications) struct Choice {
    /// Those that it knows, and that suit any read of the nearest.
    pub(in crate::sim::applications) members: BTreeSet<usize>,
    /// The time since which it knows them so.
    pub(in crate::sim::applications) since: Instant,
}

/// One command of an operation: its name, and the number that it has in each attempt if it is a
/// write that may be sent again.
type Key = (i64, String, Option<i64>);

fn key(number: i64, command: &Command) -> Key {
    (number, command.name.clone(), command.body.get_i64("txnNumber").ok())
}

/// The attempts of one command of an operation.
#[derive(Clone, Debug, Default)]
struct Attempts {
    count: u32,
    /// True if a server has said that it is overloaded.
    is_overloaded: bool,
    /// The members that have refused it, and the time of the first refusal.
    refused: BTreeSet<usize>,
    since: Option<Instant>,
    /// True if it is a commit that a mongos was too busy for while no error had unpinned it.
    may_be_pinned: bool,
}

/// The retries of all operations.
#[derive(Clone, Debug)]
pub(in crate::sim::applications) struct Retries {
    /// `maxAdaptiveRetries`.
    most: u32,
    /// True if all servers are mongos, any of which will do.
    is_sharded: bool,
    /// True if another member is preferred after overload.
    retargets: bool,
    attempts: BTreeMap<Key, Attempts>,
    /// The last time that a client has closed a connection to a member which it had not used, by
    /// client and member: it was refused if it could not be established, and no reply says so.
    unused: BTreeMap<(usize, usize), Instant>,
}

impl Retries {
    pub(in crate::sim::applications) const fn new(
        most: u32,
        is_sharded: bool,
        retargets: bool,
    ) -> Self {
        Self { most, is_sharded, retargets, attempts: BTreeMap::new(), unused: BTreeMap::new() }
    }

    /// Returns `maxAdaptiveRetries`.
    pub(super) const fn most(&self) -> u32 {
        self.most
    }

    /// A command is sent.
    ///
    /// "allowed_retries = if is_csot then math.inf else 1", and "MAX_RETRIES" after overload, also
    /// where `timeoutMS` is set (Client Backpressure); "the server address MUST be added to the
    /// list of deprioritized servers" (Retryable Reads).
    pub(super) fn sent(
        &mut self,
        command: &Command,
        operations: &Operations,
        choice: &Choice,
    ) -> Finding {
        let Some((number, operation)) = command
            .operation
            .and_then(|number| Some((number, operations.get(number)?)))
            .filter(|_| command.name != "getMore" && !is_within_transaction(command))
            .filter(|(_, operation)| !operation.repeats)
        else {
            return Ok(());
        };
        let attempts = self.attempts.entry(key(number, command)).or_default();
        let retry = attempts.count;
        attempts.count += 1;
        let said =
            || format!("{} of operation {number}, retry {retry}, {attempts:?}", command.name);
        let limit = match (attempts.is_overloaded, operation.timeout) {
            (true, _) => Some(self.most),
            (false, Some(_)) => None,
            // The server was overloaded for a connection, if at all: that attempt is not heard.
            (false, None) => Some(self.most.saturating_sub(1).max(1)),
        };
        let is_allowed = limit.is_none_or(|limit| retry <= limit);
        ensure(is_allowed, "retries have a limit, also after overload", said)?;
        let member = command.line.member;
        let chooses = match self.is_sharded {
            true => true,
            false => self.retargets && is_of_nearest(command),
        };
        let is_settled = attempts.since.is_some_and(|since| choice.since < since);
        let may_have_refused = |member: usize| {
            attempts.refused.contains(&member)
                || (self.unused.get(&(operation.client, member)))
                    .is_some_and(|at| *at >= operation.began)
        };
        let has_other = choice.members.iter().any(|it| !may_have_refused(*it));
        let had_refused = attempts.refused.contains(&member);
        let may_choose = chooses && !attempts.may_be_pinned;
        let goes_back = may_choose && is_settled && has_other && had_refused;
        ensure(!goes_back, "servers that have refused an operation are avoided", || {
            format!("{} goes to {member}, of {choice:?}", said())
        })
    }

    /// A connection is closed, and a command has no reply: a failure of the network, after which a
    /// client prefers another mongos.
    pub(super) fn lost(&mut self, now: Instant, command: &Command) {
        let Some(number) = command.operation.filter(|_| self.is_sharded) else { return };
        if let Some(attempts) = self.attempts.get_mut(&key(number, command)) {
            attempts.refused.insert(command.line.member);
            attempts.since.get_or_insert(now);
        }
    }

    /// Returns whether a client has known a member since a time, and has closed no connection to it
    /// that was not used.
    pub(super) fn was_steady(
        &self,
        (client, member): (usize, usize),
        since: Instant,
        choice: &Choice,
    ) -> bool {
        let is_known = choice.members.contains(&member) && choice.since <= since;
        is_known && self.unused.get(&(client, member)).is_none_or(|at| *at < since)
    }

    /// A connection is closed that was not used.
    pub(super) fn unused(&mut self, now: Instant, line: Line) {
        self.unused.insert((line.client, line.member), now);
    }

    pub(super) fn replied(&mut self, command: &Command, reply: &Reply) {
        let Some(number) = command.operation else { return };
        let key = key(number, command);
        // The write concern may have failed so that the write is sent again.
        if reply.is_ok() && !reply.has_label(RETRYABLE_WRITE) {
            self.attempts.remove(&key);
            return;
        }
        let is_overload = reply.has_label(SYSTEM_OVERLOADED);
        let refuses = is_overload || self.is_sharded;
        if let Some(attempts) = self.attempts.get_mut(&key) {
            attempts.is_overloaded |= is_overload;
            // Overload does not unpin a transaction (Transactions, "When to unpin").
            let of_transaction = command.is_of_transaction();
            attempts.may_be_pinned |= is_overload && of_transaction && attempts.refused.is_empty();
            if refuses {
                attempts.refused.insert(command.line.member);
                attempts.since.get_or_insert(reply.at);
            }
        }
    }
}

/// Returns whether a command is one of a transaction other than its commit: it is sent once, to one
/// server, or aborts what the application has left, for as long as that takes.
fn is_within_transaction(command: &Command) -> bool {
    command.is_of_transaction() && command.name != "commitTransaction"
}

/// Returns whether a command says that any member will do.
fn is_of_nearest(command: &Command) -> bool {
    let preference = command.body.get_document("$readPreference");
    preference.and_then(|it| it.get_str("mode")).is_ok_and(|mode| mode == "nearest")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bson::rawdoc;
    use sdam_core::bson;

    use super::super::testing::{at, begin, begin_limited, command, reply};
    use super::{Choice, Command, Operations, Retries};

    fn find(member: usize, operation: i64) -> Arc<Command> {
        let nearest = rawdoc! { "mode": "nearest" };
        let find = rawdoc! { "find": "a", "$readPreference": nearest };
        command((10, member, 1), Some(operation), Some(1), find)
    }

    fn refusal(is_overload: bool) -> bson::RawDocumentBuf {
        match is_overload {
            true => rawdoc! { "ok": 0.0, "errorLabels": ["SystemOverloadedError"] },
            false => rawdoc! { "ok": 0.0, "code": 6 },
        }
    }

    fn choice() -> Choice {
        Choice { members: [0, 1, 2].into(), since: at(1) }
    }

    #[test]
    fn the_first_of_two_refused_servers_that_is_asked_again_is_found() {
        for (is_sharded, retargets, is_overload, found) in [
            (true, false, false, true),
            (false, true, true, true),
            (false, false, true, false),
            (false, true, false, false),
        ] {
            let (mut retries, mut operations) =
                (Retries::new(4, is_sharded, retargets), Operations::default());
            let operation = begin_limited(&mut operations);
            for member in [0, 1] {
                retries.sent(&find(member, operation), &operations, &choice()).unwrap();
                retries.replied(&find(member, operation), &reply(10, refusal(is_overload)));
            }
            let changed = Choice { since: at(11), ..choice() };
            let mut others = retries.clone();
            others.sent(&find(2, operation), &operations, &choice()).unwrap();
            retries.clone().sent(&find(0, operation), &operations, &changed).unwrap();
            let again = retries.sent(&find(0, operation), &operations, &choice());
            assert_eq!(again.is_err(), found, "{is_sharded} {retargets} {is_overload}");
        }
    }

    /// A connection that fails while it is established has no reply, and is an overload.
    #[test]
    fn servers_that_may_have_refused_a_connection_are_not_taken_for_others() {
        for (closed, found) in [(None, true), (Some(0), true), (Some(1), false)] {
            let (mut retries, mut operations) =
                (Retries::new(4, true, false), Operations::default());
            let operation = operations.begin((0, at(1)), None, None);
            retries.unused(at(closed.unwrap_or(0)), find(2, operation).line);
            for member in [0, 1] {
                retries.sent(&find(member, operation), &operations, &choice()).unwrap();
                retries.replied(&find(member, operation), &reply(10, refusal(true)));
            }
            let again = retries.sent(&find(0, operation), &operations, &choice());
            assert_eq!(again.is_err(), found, "{closed:?}");
        }
    }

    #[test]
    fn a_mongos_that_a_connection_was_lost_to_is_avoided() {
        for (is_sharded, found) in [(true, true), (false, false)] {
            let (mut retries, mut operations) =
                (Retries::new(4, is_sharded, true), Operations::default());
            let operation = begin_limited(&mut operations);
            retries.sent(&find(0, operation), &operations, &choice()).unwrap();
            retries.lost(at(10), &find(0, operation));
            retries.clone().sent(&find(1, operation), &operations, &choice()).unwrap();
            let again = retries.sent(&find(0, operation), &operations, &choice());
            assert_eq!(again.is_err(), found, "{is_sharded}");
        }
    }

    #[test]
    fn a_commit_stays_at_a_mongos_that_is_overloaded_and_leaves_one_that_fails() {
        let commit = |member| {
            let commit =
                rawdoc! { "commitTransaction": 1, "txnNumber": 1_i64, "autocommit": false };
            command((10, member, 1), Some(1), Some(1), commit)
        };
        for (is_overload, found) in [(true, false), (false, true)] {
            let (mut retries, mut operations) =
                (Retries::new(4, true, false), Operations::default());
            begin_limited(&mut operations);
            retries.sent(&commit(0), &operations, &choice()).unwrap();
            retries.replied(&commit(0), &reply(10, refusal(is_overload)));
            retries.clone().sent(&commit(1), &operations, &choice()).unwrap();
            let again = retries.sent(&commit(0), &operations, &choice());
            assert_eq!(again.is_err(), found, "{is_overload}");
        }
    }

    #[test]
    fn retries_beyond_the_limit_after_overload_are_found() {
        for first in [true, false] {
            let (mut retries, mut operations) =
                (Retries::new(2, false, false), Operations::default());
            let operation = begin_limited(&mut operations);
            for retry in 0..3 {
                retries.sent(&find(0, operation), &operations, &choice()).unwrap();
                let is_overload = first && retry == 0;
                retries.replied(&find(0, operation), &reply(10, refusal(is_overload)));
            }
            let more = retries.sent(&find(0, operation), &operations, &choice());
            assert_eq!(more.is_err(), first);
        }
    }

    /// Of four retries that are allowed after overload, three are heard if the overload was not,
    /// as it was that of a connection.
    #[test]
    fn retries_beyond_the_limit_without_overload_are_found() {
        for (most, limit) in [(0, 1), (1, 1), (2, 1), (4, 3)] {
            let (mut retries, mut operations) =
                (Retries::new(most, false, false), Operations::default());
            let [operation] = begin(&mut operations, [None]);
            for retry in 0..=limit + 1 {
                let sent = retries.sent(&find(0, operation), &operations, &choice());
                assert_eq!(sent.is_ok(), retry <= limit, "retry {retry} of {most}");
                retries.replied(&find(0, operation), &reply(10, refusal(false)));
            }
        }
    }

    #[test]
    fn retries_after_errors_of_the_write_concern_count_and_other_commands_do_not() {
        let (mut retries, mut operations) = (Retries::new(2, false, false), Operations::default());
        let [operation] = begin(&mut operations, [None]);
        let insert = |number: i64| {
            let insert = rawdoc! { "insert": "a", "txnNumber": number };
            command((10, 0, 1), Some(operation), Some(1), insert)
        };
        let failed = rawdoc! {
            "ok": 1.0, "writeConcernError": { "code": 91 }, "errorLabels": ["RetryableWriteError"],
        };
        for (number, is_allowed) in [(1, true), (1, true), (2, true), (2, true), (2, false)] {
            let sent = retries.sent(&insert(number), &operations, &choice());
            assert_eq!(sent.is_ok(), is_allowed, "{number}");
            retries.replied(&insert(number), &reply(10, failed.clone()));
        }
    }
}
