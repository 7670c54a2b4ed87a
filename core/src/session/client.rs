//! A session of an application: what it was started with, and what it has seen.
//!
//! Implements "ClientSession" of Driver Sessions, Causal Consistency and Snapshot Reads.

use std::time::Duration;

use bson::{RawBsonRef, RawDocument, RawDocumentBuf, Timestamp, cstr};

use super::cluster_time::ClusterTime;
use super::commit_origin::CommitOrigin;
use super::commit_token::{CommitToken, LONGEST_RECOVERY};
use super::pool::ServerSession;
use super::transaction::{
    Ending, ReplyWithin, SessionTransaction, TransactionError, TransactionOptions,
};
use crate::config::ReadConcern;

/// The options of a session.
///
/// ```
/// use sdam_core::session::{Session, SessionError, SessionOptions};
///
/// let options = SessionOptions::default().with_snapshot(true);
/// assert!(Session::new(options.clone()).is_ok_and(|session| !session.is_causally_consistent()));
/// let both = options.with_causal_consistency(Some(true));
/// assert_eq!(Session::new(both).unwrap_err(), SessionError::CausalAndSnapshot);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct SessionOptions {
    /// True if reads see what earlier operations of the session have seen and written:
    /// `causalConsistency`; by default it is, unless snapshot reads are asked for.
    pub causal_consistency: Option<bool>,
    /// True if all reads see the data at one time: `snapshot`.
    pub snapshot: bool,
    /// The time of the snapshot, if it is not that of the first read: `snapshotTime`.
    pub snapshot_time: Option<Timestamp>,
    /// The options of its transactions, where those have none of their own:
    /// `defaultTransactionOptions`.
    pub default_transaction_options: Option<TransactionOptions>,
    /// The limit of commits, aborts, whole transactions and the end of the session, where it is not
    /// that of the client: `defaultTimeoutMS`.
    pub default_timeout: Option<Duration>,
}

impl SessionOptions {
    /// Replaces [`causal_consistency`](Self::causal_consistency).
    #[must_use]
    pub const fn with_causal_consistency(mut self, value: Option<bool>) -> Self {
        self.causal_consistency = value;
        self
    }

    /// Replaces [`snapshot`](Self::snapshot).
    #[must_use]
    pub const fn with_snapshot(mut self, value: bool) -> Self {
        self.snapshot = value;
        self
    }

    /// Replaces [`snapshot_time`](Self::snapshot_time).
    #[must_use]
    pub const fn with_snapshot_time(mut self, value: Option<Timestamp>) -> Self {
        self.snapshot_time = value;
        self
    }

    /// Replaces [`default_transaction_options`](Self::default_transaction_options).
    #[must_use]
    pub fn with_default_transaction_options(
        mut self,
        value: impl Into<Option<TransactionOptions>>,
    ) -> Self {
        self.default_transaction_options = value.into();
        self
    }

    /// Replaces [`default_timeout`](Self::default_timeout).
    #[must_use]
    pub fn with_default_timeout(mut self, value: impl Into<Option<Duration>>) -> Self {
        self.default_timeout = value.into();
        self
    }
}

/// The reason why a session cannot be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// Causal consistency and snapshot reads exclude each other.
    #[error("a session of snapshot reads cannot be causally consistent, too")]
    CausalAndSnapshot,
    /// There is a time of a snapshot, and no snapshot.
    #[error("snapshotTime is only for sessions with snapshot=true")]
    SnapshotTimeWithoutSnapshot,
}

/// A session: options, the session of the servers that it has, and what it has seen.
///
/// An explicit one is the application's. An implicit one is made for an operation that was given
/// none: it takes a server session only when that is sent, and is never causally consistent.
#[derive(Debug)]
pub struct Session {
    options: SessionOptions,
    is_implicit: bool,
    server_session: Option<ServerSession>,
    cluster_time: Option<ClusterTime>,
    operation_time: Option<Timestamp>,
    snapshot_time: Option<Timestamp>,
    transaction: SessionTransaction,
    ended: bool,
}

impl Session {
    /// Starts an explicit session.
    ///
    /// # Errors
    ///
    /// Fails if the options exclude each other.
    pub fn new(options: SessionOptions) -> Result<Self, SessionError> {
        if options.snapshot && options.causal_consistency == Some(true) {
            return Err(SessionError::CausalAndSnapshot);
        }
        if options.snapshot_time.is_some() && !options.snapshot {
            return Err(SessionError::SnapshotTimeWithoutSnapshot);
        }
        let snapshot_time = options.snapshot_time;
        Ok(Self { options, is_implicit: false, snapshot_time, ..Self::implicit() })
    }

    /// Starts an implicit session.
    pub fn implicit() -> Self {
        let options = SessionOptions::default().with_causal_consistency(Some(false));
        Self {
            options,
            is_implicit: true,
            server_session: None,
            cluster_time: None,
            operation_time: None,
            snapshot_time: None,
            transaction: SessionTransaction::default(),
            ended: false,
        }
    }

    /// Returns what the session was started with.
    pub const fn options(&self) -> &SessionOptions {
        &self.options
    }

    /// Returns whether it was made for an operation that was given no session.
    pub const fn is_implicit(&self) -> bool {
        self.is_implicit
    }

    /// Returns whether reads see what earlier operations of the session have seen and written.
    pub fn is_causally_consistent(&self) -> bool {
        self.options.causal_consistency.unwrap_or(!self.options.snapshot)
    }

    /// Returns the latest cluster time that the session has seen or was given.
    pub const fn cluster_time(&self) -> Option<&ClusterTime> {
        self.cluster_time.as_ref()
    }

    /// Takes note of a cluster time, if it is later than the one known.
    pub fn advance_cluster_time(&mut self, time: ClusterTime) {
        let known = self.cluster_time.as_ref().map(ClusterTime::timestamp);
        if known.is_none_or(|known| known < time.timestamp()) {
            self.cluster_time = Some(time);
        }
    }

    /// Returns the time of the last operation, as its server has reported it.
    pub const fn operation_time(&self) -> Option<Timestamp> {
        self.operation_time
    }

    /// Takes note of the time of an operation, if it is later than the one known.
    pub fn advance_operation_time(&mut self, time: Timestamp) {
        if self.operation_time.is_none_or(|known| known < time) {
            self.operation_time = Some(time);
        }
    }

    /// Returns the time of the snapshot that reads see, once it is known.
    pub const fn snapshot_time(&self) -> Option<Timestamp> {
        self.snapshot_time
    }

    /// Returns the session of the servers that it has.
    pub const fn server_session(&self) -> Option<&ServerSession> {
        self.server_session.as_ref()
    }

    /// Returns the session of the servers that it has, or takes that of `take`; `None` if the
    /// session has ended.
    pub fn server_session_or(
        &mut self,
        take: impl FnOnce() -> ServerSession,
    ) -> Option<&mut ServerSession> {
        match self.ended {
            true => None,
            false => Some(self.server_session.get_or_insert_with(take)),
        }
    }

    /// Returns its transaction.
    pub const fn transaction(&self) -> &SessionTransaction {
        &self.transaction
    }

    /// Returns its transaction, to be changed.
    pub const fn transaction_mut(&mut self) -> &mut SessionTransaction {
        &mut self.transaction
    }

    /// Starts a transaction; of options that it has not, those of the session count, and then
    /// those of the client.
    ///
    /// # Errors
    ///
    /// Fails if one is in progress, if the session reads from a snapshot or has ended, and if the
    /// commit would not be acknowledged.
    pub fn start_transaction(
        &mut self,
        options: TransactionOptions,
        client: &TransactionOptions,
    ) -> Result<(), TransactionError> {
        if self.options.snapshot {
            return Err(TransactionError::SnapshotSession);
        }
        let options = match &self.options.default_transaction_options {
            Some(default) => options.or(default).or(client),
            None => options.or(client),
        };
        let server_session = &mut self.server_session;
        let next = || server_session.as_mut().map(ServerSession::next_transaction_number);
        self.transaction.start(options, next)
    }

    /// Begins the commit of its transaction.
    ///
    /// # Errors
    ///
    /// Fails if there is nothing to be committed.
    pub fn begin_commit(&mut self) -> Result<Ending, TransactionError> {
        let now = self.server_time();
        self.transaction.begin_commit(now)
    }

    /// Returns the name by which others can ask what became of the transaction, whose commit may
    /// have been carried out; the servers' session is not used for anything else after this one.
    /// `None` if a mongos has given a recovery token that is too long to be kept.
    pub fn commit_token(&mut self, origin: CommitOrigin) -> Option<CommitToken> {
        let server_session = self.server_session.as_mut()?;
        let recovery_token = self.transaction.recovery_token();
        if recovery_token.is_some_and(|token| token.as_bytes().len() > LONGEST_RECOVERY) {
            return None;
        }
        server_session.retire();
        Some(CommitToken {
            session: server_session.id().document().to_owned(),
            number: self.transaction.number(),
            recovery_token: recovery_token.map(ToOwned::to_owned),
            journal: self.transaction.options().write_concern.as_ref().and_then(|it| it.journal),
            origin,
            since: self.transaction.committed_since(),
        })
    }

    /// Returns the time since the commit of its transaction was called first, by the clocks of the
    /// servers; `None` if none is known.
    pub fn since_commit(&self) -> Option<Duration> {
        let since = self.transaction.committed_since()?.time;
        Some(Duration::from_secs(self.server_time()?.time.saturating_sub(since).into()))
    }

    /// Returns the latest time of the servers that it has seen.
    pub fn server_time(&self) -> Option<Timestamp> {
        let times = [self.operation_time, self.cluster_time.as_ref().map(ClusterTime::timestamp)];
        times.into_iter().flatten().max()
    }

    /// Makes the session of a transaction whose commit is to be asked for again.
    pub fn of_token(token: &CommitToken) -> Self {
        Self {
            is_implicit: false,
            server_session: Some(ServerSession::retired(token.session.clone(), token.number)),
            transaction: SessionTransaction::of_token(token),
            ..Self::implicit()
        }
    }

    /// Marks the servers' session dirty, after a network error.
    pub fn mark_dirty(&mut self) {
        self.server_session.iter_mut().for_each(ServerSession::mark_dirty);
    }

    /// Ends the session, and returns that of the servers, to be given back to the pool; another
    /// call does nothing.
    pub fn end(&mut self) -> Option<ServerSession> {
        self.ended = true;
        self.server_session.take()
    }

    /// Ends the session if a transaction of it was left open, and returns another one with that
    /// transaction and the servers' session, to abort the one and give back the other.
    pub fn end_with_transaction(&mut self) -> Option<Self> {
        if self.ended || !self.transaction.is_left_open() {
            return None;
        }
        self.ended = true;
        Some(Self {
            options: self.options.clone(),
            is_implicit: false,
            server_session: self.server_session.take(),
            cluster_time: self.cluster_time.clone(),
            operation_time: self.operation_time,
            snapshot_time: None,
            transaction: std::mem::take(&mut self.transaction),
            ended: false,
        })
    }

    /// Returns whether it was ended.
    pub const fn has_ended(&self) -> bool {
        self.ended
    }
}

impl Session {
    /// Returns what a command of this session declares as `readConcern`, if anything: the level of
    /// the operation, merged with the time that reads must have reached, or with that of the
    /// snapshot.
    ///
    /// `concern` is the operation's, `None` if its command takes none: then only a session of
    /// snapshot reads declares one, with the time of the snapshot, so that the server refuses a
    /// command that it has no snapshots for (Snapshot Reads, "readConcern").
    ///
    /// `afterClusterTime` "MUST NOT be sent when connected to a deployment that does not support
    /// cluster times": `has_cluster_times` says whether it does.
    pub fn read_concern(
        &self,
        concern: Option<&ReadConcern>,
        has_cluster_times: bool,
    ) -> Option<RawDocumentBuf> {
        // "Drivers MUST add `readConcern` [...] to the command that starts a transaction [...] even
        // if the command is a write", and "MUST NOT" to those that follow (Transactions).
        let of_transaction = self.transaction.role().map(|_| {
            let own = self.transaction.read_concern().cloned().unwrap_or_default();
            self.transaction.is_starting().then_some(own)
        });
        let concern = match &of_transaction {
            Some(concern) => concern.as_ref(),
            None => concern,
        };
        if self.options.snapshot {
            let mut document = RawDocumentBuf::new();
            document.append(cstr!("level"), "snapshot");
            if let Some(time) = self.snapshot_time {
                document.append(cstr!("atClusterTime"), time);
            }
            return Some(document);
        }
        let concern = concern?;
        let is_causal = has_cluster_times && self.is_causally_consistent();
        let time = self.operation_time.filter(|_| is_causal);
        if concern.is_server_default() && time.is_none() {
            return None;
        }
        let mut document = concern.document();
        if let Some(time) = time {
            document.append(cstr!("afterClusterTime"), time);
        }
        Some(document)
    }

    /// Takes note of what a reply brings, even if it is an error: `operationTime`,
    /// `$clusterTime`, and that of the snapshot if it is the first read of one.
    pub fn advance_from_reply(&mut self, reply: &RawDocument) {
        self.read(reply);
    }

    /// Takes note of a reply that is no error: of the times in it, and of what it says of the
    /// transaction. `command` names the command that it answers.
    pub fn replied(&mut self, reply: &RawDocument, command: impl FnOnce() -> String) {
        let within = self.read(reply);
        self.transaction.sent();
        self.transaction.replied(within, command);
    }

    /// Reads all that a session needs of a reply at once: there are many fields that it needs not.
    fn read<'a>(&mut self, reply: &'a RawDocument) -> ReplyWithin<'a> {
        let (mut snapshot, mut within) = (None, ReplyWithin::default());
        for element in reply.iter_elements().map_while(Result::ok) {
            // A value that cannot be read says nothing, and leaves the others what they are.
            let Ok(value) = element.value() else { continue };
            match (element.key().as_str(), value) {
                ("operationTime", RawBsonRef::Timestamp(time)) => self.advance_operation_time(time),
                ("$clusterTime", RawBsonRef::Document(time)) => {
                    self.advance_cluster_time_from(time);
                }
                // "For find/aggregate commands the server returns atClusterTime within the cursor
                // field"; "for distinct commands [...] as a top-level field".
                ("atClusterTime", RawBsonRef::Timestamp(time)) => snapshot = Some(time),
                ("cursor", RawBsonRef::Document(cursor)) if self.options.snapshot => {
                    snapshot = cursor.get_timestamp("atClusterTime").ok().or(snapshot);
                }
                (name, value) => within.read(name, value),
            }
        }
        if self.options.snapshot {
            self.snapshot_time = self.snapshot_time.or(snapshot);
        }
        within
    }

    fn advance_cluster_time_from(&mut self, document: &RawDocument) {
        let known = self.cluster_time.as_ref().map(ClusterTime::timestamp);
        if ClusterTime::timestamp_of(document) > known
            && let Some(time) = ClusterTime::of_reply(document)
        {
            self.cluster_time = Some(time);
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::{RawDocumentBuf, Timestamp, rawdoc};

    use super::{Session, SessionError, SessionOptions};
    use crate::config::ReadConcern;
    use crate::session::{ClusterTime, SessionPool, SessionTimeout};
    use crate::time::Instant;

    fn session(options: SessionOptions) -> Session {
        Session::new(options).unwrap()
    }

    fn at(time: u32) -> Timestamp {
        Timestamp { time, increment: 1 }
    }

    fn majority() -> ReadConcern {
        ReadConcern::default().with_level(Some("majority".to_owned()))
    }

    fn declared(session: &Session, concern: Option<&ReadConcern>) -> Option<RawDocumentBuf> {
        session.read_concern(concern, true)
    }

    /// Causal Consistency, tests 1 to 6, 8 and 9.
    #[test]
    fn cc_reads_are_after_the_last_operation_of_a_causally_consistent_session() {
        let default = ReadConcern::default();
        let mut session = session(SessionOptions::default());
        assert_eq!(session.operation_time(), None, "test 1");
        assert_eq!(declared(&session, Some(&default)), None, "test 2");
        // Tests 3 and 5: even if it is an error.
        session.advance_from_reply(&rawdoc! { "ok": 0, "code": 1, "operationTime": at(5) });
        assert_eq!(session.operation_time(), Some(at(5)));
        let after = rawdoc! { "afterClusterTime": at(5) };
        assert_eq!(declared(&session, Some(&default)), Some(after), "test 4 and 8: no level");
        let after = rawdoc! { "level": "majority", "afterClusterTime": at(5) };
        assert_eq!(declared(&session, Some(&majority())), Some(after), "test 9: merged");
        assert_eq!(declared(&session, None), None, "runCommand has none");
        session.advance_from_reply(&rawdoc! { "ok": 1, "operationTime": at(4) });
        assert_eq!(session.operation_time(), Some(at(5)));
        // Behind a message that was cut within a character.
        let mut bytes = rawdoc! { "ok": 0, "errmsg": "?", "operationTime": at(6) }.into_bytes();
        bytes.iter_mut().filter(|byte| **byte == b'?').for_each(|byte| *byte = 0xc3);
        session.advance_from_reply(&RawDocumentBuf::from_bytes(bytes).unwrap());
        assert_eq!(session.operation_time(), Some(at(6)));
    }

    /// Causal Consistency, test 7: "A read operation in a causally consistent session against a
    /// deployment that does not support cluster times does not include the `afterClusterTime`
    /// parameter", also if the application has given the session a time.
    #[test]
    fn cc_p7_a_deployment_without_cluster_times_is_told_none() {
        let mut session = session(SessionOptions::default());
        session.advance_operation_time(at(5));
        assert_eq!(session.read_concern(Some(&ReadConcern::default()), false), None);
        let level = rawdoc! { "level": "majority" };
        assert_eq!(session.read_concern(Some(&majority()), false), Some(level));
        let after = rawdoc! { "afterClusterTime": at(5) };
        assert_eq!(session.read_concern(Some(&ReadConcern::default()), true), Some(after));
    }

    /// Causal Consistency, test 6; "For implicit sessions, the value of this property MUST be set
    /// to false".
    #[test]
    fn cc_p6_other_sessions_say_nothing_of_time() {
        let options = SessionOptions::default().with_causal_consistency(Some(false));
        for mut session in [session(options), Session::implicit()] {
            session.advance_from_reply(&rawdoc! { "ok": 1, "operationTime": at(5) });
            assert_eq!(session.operation_time(), Some(at(5)));
            assert_eq!(declared(&session, Some(&ReadConcern::default())), None);
            let level = rawdoc! { "level": "majority" };
            assert_eq!(declared(&session, Some(&majority())), Some(level));
        }
    }

    /// Snapshot Reads, "Server Command Responses", and the suite's unsupported operations.
    #[test]
    fn snapshot_reads_are_at_the_time_of_the_first() {
        let concern = ReadConcern::default();
        let cursor = rawdoc! { "ok": 1, "cursor": { "id": 0_i64, "atClusterTime": at(5) } };
        let distinct = rawdoc! { "ok": 1, "atClusterTime": at(5) };
        for first in [cursor, distinct] {
            let mut session = session(SessionOptions::default().with_snapshot(true));
            let level = rawdoc! { "level": "snapshot" };
            assert_eq!(declared(&session, Some(&concern)), Some(level));
            session.advance_from_reply(&first);
            session.advance_from_reply(
                &rawdoc! { "ok": 1, "atClusterTime": at(6), "operationTime": at(7) },
            );
            assert_eq!(session.snapshot_time(), Some(at(5)));
            let at_time = rawdoc! { "level": "snapshot", "atClusterTime": at(5) };
            assert_eq!(declared(&session, Some(&concern)), Some(at_time.clone()));
            // "on all commands in a snapshot session, including commands that do not accept a
            // readConcern"
            assert_eq!(declared(&session, None), Some(at_time));
        }
        let given = SessionOptions::default().with_snapshot(true).with_snapshot_time(Some(at(3)));
        let at_time = rawdoc! { "level": "snapshot", "atClusterTime": at(3) };
        assert_eq!(declared(&session(given), Some(&concern)), Some(at_time));
        let mut plain = session(SessionOptions::default());
        plain.advance_from_reply(&distinct_at(5));
        assert_eq!(plain.snapshot_time(), None, "a session without snapshot reads has none");
    }

    fn distinct_at(time: u32) -> RawDocumentBuf {
        rawdoc! { "ok": 1, "atClusterTime": at(time) }
    }

    /// Snapshot Reads, "snapshot" and "snapshotTime".
    #[test]
    fn options_that_exclude_each_other_are_refused() {
        let both =
            SessionOptions::default().with_snapshot(true).with_causal_consistency(Some(true));
        assert_eq!(Session::new(both).unwrap_err(), SessionError::CausalAndSnapshot);
        let time = SessionOptions::default().with_snapshot_time(Some(at(1)));
        assert_eq!(Session::new(time).unwrap_err(), SessionError::SnapshotTimeWithoutSnapshot);
    }

    /// Driver Sessions, "advanceClusterTime"; Causal Consistency, "advanceOperationTime".
    #[test]
    fn times_never_go_back() {
        let mut session = session(SessionOptions::default());
        let time = |time| rawdoc! { "clusterTime": at(time) };
        let shown = |session: &Session| session.cluster_time().map(ClusterTime::timestamp);
        for time in [3, 5, 4].map(time) {
            session.advance_cluster_time(ClusterTime::parse(&time).unwrap());
        }
        assert_eq!(shown(&session), Some(at(5)));
        session.advance_from_reply(&rawdoc! { "ok": 1, "$clusterTime": time(3) });
        assert_eq!(shown(&session), Some(at(5)));
        session.advance_from_reply(&rawdoc! { "ok": 1, "$clusterTime": time(6) });
        assert_eq!(shown(&session), Some(at(6)));
        session.advance_from_reply(&rawdoc! { "ok": 1, "$clusterTime": { "clusterTime": "now" } });
        assert_eq!(shown(&session), Some(at(6)));
        session.advance_operation_time(at(2));
        session.advance_operation_time(at(1));
        assert_eq!(session.operation_time(), Some(at(2)));
    }

    #[test]
    fn a_session_is_implicit_unless_an_application_has_started_it() {
        assert!(Session::implicit().is_implicit());
        assert!(!session(SessionOptions::default()).is_implicit());
    }

    /// Driver Sessions, "endSession": "A driver MUST allow multiple calls", and "Once a
    /// ClientSession has ended, drivers MUST report an error".
    #[test]
    fn a_session_that_has_ended_gives_its_server_session_back_once() {
        let mut pool = SessionPool::new([1, 2]);
        let mut session = session(SessionOptions::default());
        let mut take = || pool.take(Instant::ZERO, SessionTimeout::Never);
        let first = session.server_session_or(&mut take).unwrap().id().clone();
        assert_eq!(session.server_session_or(&mut take).unwrap().id(), &first);
        assert_eq!(session.server_session().unwrap().id(), &first);
        session.mark_dirty();
        assert!(!session.has_ended());
        let ended = session.end().unwrap();
        assert!(ended.is_dirty() && session.has_ended());
        assert!(session.end().is_none());
        assert!(session.server_session_or(&mut take).is_none());
    }
}
