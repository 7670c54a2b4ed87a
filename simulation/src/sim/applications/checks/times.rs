//! Commands carry the latest cluster time that any reply has brought, and reads in a session what
//! its operations have seen.

use std::collections::BTreeMap;

use bson::Timestamp;
use sdam_core::bson;
use sdam_core::time::Instant;

use super::super::conversation::{Command, Reply};
use super::super::operations::{Holder, Operations};
use super::{Finding, ensure};
use crate::sim::tap::Line;

/// The latest time that has been heard: what has come at the very instant at which a command is
/// sent may not have been read yet.
#[derive(Clone, Copy, Debug, Default)]
struct Latest {
    before: Option<Timestamp>,
    now: Option<(Instant, Timestamp)>,
}

impl Latest {
    fn hear(&mut self, at: Instant, time: Timestamp) {
        if let Some((heard, earlier)) = self.now
            && heard < at
        {
            self.before = self.before.max(Some(earlier));
            self.now = None;
        }
        let latest = self.now.map_or(time, |(_, other)| other.max(time));
        self.now = Some((at, latest));
    }

    /// Takes note that a time which has come now may not have been read.
    fn unread(&mut self, now: Instant) {
        self.now.take_if(|(at, _)| *at == now);
    }

    fn known_at(&self, at: Instant) -> Option<Timestamp> {
        let heard = self.now.filter(|(heard, _)| *heard < at).map(|(_, time)| time);
        self.before.max(heard)
    }
}

/// The times that clients and sessions have heard.
#[derive(Debug, Default)]
pub(in crate::sim::applications) struct Times {
    clients: BTreeMap<usize, Latest>,
    sessions: BTreeMap<i64, Latest>,
}

impl Times {
    /// A command is sent.
    ///
    /// "Drivers MUST examine all responses from server commands to see if they contain a top level
    /// field named `$clusterTime`", and send the greatest one (Driver Sessions, "Gossipping the
    /// cluster time"); "the driver MUST save the operationTime [...] whether or not an error
    /// occurred" (Causal Consistency).
    pub(super) fn sent(&self, command: &Command, operations: &Operations) -> Finding {
        if command.is_of_handshake() {
            return Ok(());
        }
        let latest = self.clients.get(&command.line.client);
        let known = latest.and_then(|it| it.known_at(command.at));
        let said = command.cluster_time();
        ensure(said >= known, "commands say the latest cluster time", || {
            format!("{} says {said:?}, and {known:?} was heard", command.name)
        })?;
        // A transaction sees what it has seen at first.
        let goes_on =
            command.is_of_transaction() && command.body.get_bool("startTransaction").is_err();
        let concern = command.body.get_document("readConcern").ok();
        let level = concern.and_then(|it| it.get_str("level").ok());
        // "snapshot" and "causalConsistency" are "mutually exclusive" (Snapshot Reads).
        let is_of_snapshot = level == Some("snapshot") && !command.is_of_transaction();
        let reads = ["find", "aggregate", "distinct", "count"];
        let is_read = reads.contains(&&*command.name) && !goes_on && !is_of_snapshot;
        let Some(session) = session_of(command, operations).filter(|_| is_read) else {
            return Ok(());
        };
        let known = self.sessions.get(&session).and_then(|it| it.known_at(command.at));
        let after = concern.and_then(|it| it.get_timestamp("afterClusterTime").ok());
        ensure(after >= known, "reads of a session come after its operations", || {
            format!("{} is after {after:?}, and {known:?} was heard", command.name)
        })
    }

    /// A client has closed a connection on which a reply has come now, of whichever session.
    pub(super) fn unread(&mut self, now: Instant, line: Line) {
        self.clients.entry(line.client).or_default().unread(now);
        self.sessions.values_mut().for_each(|latest| latest.unread(now));
    }

    pub(super) fn replied(&mut self, command: &Command, reply: &Reply, operations: &Operations) {
        if command.is_of_handshake() {
            return;
        }
        if let Some(time) = reply.cluster_time() {
            self.clients.entry(command.line.client).or_default().hear(reply.at, time);
        }
        let session = session_of(command, operations);
        if let (Some(session), Ok(time)) = (session, reply.body.get_timestamp("operationTime")) {
            self.sessions.entry(session).or_default().hear(reply.at, time);
        }
    }
}

/// Returns the session of the application's that a command is of.
fn session_of(command: &Command, operations: &Operations) -> Option<i64> {
    match operations.get(command.operation?)?.holder {
        Holder::Session(session) => Some(session),
        Holder::Operation(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use bson::raw::cstr;
    use bson::rawdoc;
    use sdam_core::bson;

    use super::super::testing::{begin, command, reply, time};
    use super::{Operations, Times};

    /// Has a reply bring a time, and says whether a command later may say another one.
    fn is_found(body: bson::RawDocumentBuf, said: u32) -> bool {
        let (mut times, mut operations) = (Times::default(), Operations::default());
        let [first, second] = begin(&mut operations, [None, None]);
        let insert = command((0, 0, 1), Some(first), Some(1), rawdoc! { "insert": "a" });
        times.replied(&insert, &reply(5, body), &operations);
        let find = rawdoc! { "find": "a", "$clusterTime": { "clusterTime": time(said) } };
        let at_once = command((5, 0, 2), Some(second), Some(2), find.clone());
        times.sent(&at_once, &operations).unwrap();
        let later = command((6, 0, 2), Some(second), Some(2), find);
        times.sent(&later, &operations).is_err()
    }

    #[test]
    fn a_cluster_time_that_is_not_passed_on_is_found_also_that_of_an_error() {
        for ok in [1.0, 0.0] {
            let body = rawdoc! { "ok": ok, "$clusterTime": { "clusterTime": time(9) } };
            assert!(is_found(body.clone(), 8));
            assert!(!is_found(body, 9));
        }
    }

    #[test]
    fn a_read_of_a_session_that_may_see_less_than_its_operations_is_found() {
        let (mut times, mut operations) = (Times::default(), Operations::default());
        let session = operations.session(0);
        let [write, read, other] = begin(&mut operations, [Some(session), Some(session), None]);
        let write = command((0, 0, 1), Some(write), Some(1), rawdoc! { "insert": "a" });
        let late = rawdoc! { "code": 64 };
        let body = rawdoc! { "ok": 1.0, "writeConcernError": late, "operationTime": time(9) };
        times.replied(&write, &reply(5, body), &operations);
        let find = |after| {
            let find = rawdoc! { "find": "a", "readConcern": { "afterClusterTime": time(after) } };
            command((6, 0, 2), Some(read), Some(1), find)
        };
        times.sent(&find(8), &operations).unwrap_err();
        times.sent(&find(9), &operations).unwrap();
        let plain = command((6, 0, 2), Some(other), Some(2), rawdoc! { "find": "a" });
        times.sent(&plain, &operations).unwrap();
        let concern = rawdoc! { "level": "snapshot" };
        let mut snapshot = rawdoc! { "find": "a", "readConcern": concern };
        times
            .sent(&command((6, 0, 2), Some(read), Some(1), snapshot.clone()), &operations)
            .unwrap();
        snapshot.append(cstr!("autocommit"), false);
        snapshot.append(cstr!("startTransaction"), true);
        times.sent(&command((6, 0, 2), Some(read), Some(1), snapshot), &operations).unwrap_err();
    }
}
