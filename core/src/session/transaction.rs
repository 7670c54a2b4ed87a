//! The transaction of a session: the calls that its state allows, the fields that commands carry
//! in it, and what is kept of each attempt.
//!
//! Implements Driver Transactions, as far as that needs no server; what an error means for the
//! transaction, [`judge`](crate::operation::judge) says.

use std::time::Duration;

use bson::{RawBsonRef, RawDocument, RawDocumentBuf, Timestamp};

use super::commit_token::{CommitFault, CommitToken};
use super::standing::Progress;
use crate::config::{ReadConcern, ReadPreference, WriteConcern};

/// The `wtimeout` of a commit that comes again, if its write concern has none: "in order to avoid
/// waiting forever".
const RETRIED_COMMIT_WTIMEOUT: Duration = Duration::from_secs(10);

/// The options of a transaction. What is absent is that of the session's default, or else that of
/// the client; those of databases and collections do not count.
///
/// ```
/// use sdam_core::config::{ReadConcern, WriteConcern};
/// use sdam_core::session::TransactionOptions;
///
/// let options = TransactionOptions::default()
///     .with_read_concern(ReadConcern::snapshot())
///     .with_write_concern(WriteConcern::majority());
/// assert_eq!(options.read_preference, None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TransactionOptions {
    /// The data that all reads of the transaction see: `readConcern`.
    pub read_concern: Option<ReadConcern>,
    /// The members that must have the transaction when it is committed: `writeConcern`.
    pub write_concern: Option<WriteConcern>,
    /// The members that it reads from, which must be the primary: `readPreference`.
    pub read_preference: Option<ReadPreference>,
    /// The time that the server may take for the commit: `maxCommitTimeMS`, deprecated in favour of
    /// `timeoutMS`.
    pub max_commit_time: Option<Duration>,
}

impl TransactionOptions {
    /// Replaces [`read_concern`](Self::read_concern).
    #[must_use]
    pub fn with_read_concern(mut self, value: impl Into<Option<ReadConcern>>) -> Self {
        self.read_concern = value.into();
        self
    }

    /// Replaces [`write_concern`](Self::write_concern).
    #[must_use]
    pub fn with_write_concern(mut self, value: impl Into<Option<WriteConcern>>) -> Self {
        self.write_concern = value.into();
        self
    }

    /// Replaces [`read_preference`](Self::read_preference).
    #[must_use]
    pub fn with_read_preference(mut self, value: impl Into<Option<ReadPreference>>) -> Self {
        self.read_preference = value.into();
        self
    }

    /// Replaces [`max_commit_time`](Self::max_commit_time).
    #[must_use]
    pub fn with_max_commit_time(mut self, value: impl Into<Option<Duration>>) -> Self {
        self.max_commit_time = value.into();
        self
    }

    /// Returns these options, and of others those that are absent here.
    #[must_use]
    pub fn or(self, others: &Self) -> Self {
        Self {
            read_concern: self.read_concern.or_else(|| others.read_concern.clone()),
            write_concern: self.write_concern.or_else(|| others.write_concern.clone()),
            read_preference: self.read_preference.or_else(|| others.read_preference.clone()),
            max_commit_time: self.max_commit_time.or(others.max_commit_time),
        }
    }
}

/// The state of the transaction of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum TransactionState {
    /// There is none.
    #[default]
    None,
    /// It was started, and no command of it was sent.
    Starting,
    /// A command of it was sent.
    InProgress,
    /// Its commit was called.
    Committed,
    /// It was aborted.
    Aborted,
}

/// The reason why a call is refused, in the state of the session's transaction. Nothing is changed
/// by such a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum TransactionError {
    /// A transaction is started within another.
    #[error("Transaction already in progress: commit or abort it before another is started")]
    AlreadyInProgress,
    /// A transaction is started in a session of snapshot reads.
    #[error("Transactions are not supported in snapshot sessions")]
    SnapshotSession,
    /// A transaction is started whose commit would ask for no reply.
    #[error("transactions do not support unacknowledged write concerns")]
    Unacknowledged,
    /// A transaction is started in a session that has ended.
    #[error("a transaction cannot be started: the session has ended")]
    SessionEnded,
    /// There is none to be committed or aborted.
    #[error("No transaction started")]
    NotStarted,
    /// A transaction is committed that was aborted.
    #[error("Cannot call commitTransaction after calling abortTransaction")]
    CommitAfterAbort,
    /// A transaction is aborted that was committed.
    #[error("Cannot call abortTransaction after calling commitTransaction")]
    AbortAfterCommit,
    /// A transaction is aborted that was aborted.
    #[error("Cannot call abortTransaction twice")]
    AbortTwice,
    /// An operation within has a read concern of its own.
    #[error(
        "Cannot set read concern after starting a transaction: set that of the transaction when it \
         is started"
    )]
    ReadConcern,
    /// An operation within has a write concern of its own.
    #[error(
        "Cannot set write concern after starting a transaction: set that of the transaction when \
         it is started"
    )]
    WriteConcern,
    /// An operation within would read from another member than the primary.
    #[error("read preference in a transaction must be primary")]
    ReadPreference,
    /// An operation that no server runs in a transaction.
    #[error("{operation} cannot run in a transaction: {instead}")]
    NotInTransaction {
        /// The operation.
        operation: &'static str,
        /// The advice.
        instead: &'static str,
    },
    /// An operation within has a time-out of its own, which would go on when that of the whole is
    /// over.
    #[error(
        "Cannot set timeoutMS of an operation within with_transaction that has one: set that of \
         the whole"
    )]
    Timeout,
}

/// The part that a command has in a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TransactionRole {
    /// A command within it.
    Within,
    /// The command that commits it.
    Commit,
    /// The command that aborts it.
    Abort,
}

/// The demand of a call that ends a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Nothing: no server knows of the transaction.
    Nothing,
    /// Its command is to be sent.
    Send,
}

/// The way in which an attempt at a command has failed that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptFailure {
    /// The server has refused it for overload, and it may be sent again.
    Overload,
    /// The server has replied with another error.
    Answered,
    /// No reply has come, or none that can be read.
    Lost,
}

/// The fields that a command carries in a transaction, besides the session's name.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TransactionFields<'a> {
    /// `txnNumber`, with `autocommit: false`.
    pub number: i64,
    /// True if it is the first command: `startTransaction: true`.
    pub starts: bool,
    /// `recoveryToken`, of commands that end it.
    pub recovery_token: Option<&'a RawDocument>,
    /// `writeConcern`, of commands that end it.
    pub write_concern: Option<RawDocumentBuf>,
    /// `maxTimeMS` of a commit, unless `timeoutMS` is set.
    pub max_time: Option<Duration>,
}

/// The part of a reply that says something of the transaction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReplyWithin<'a> {
    recovery_token: Option<&'a RawDocument>,
    refuses_writes: bool,
}

impl<'a> ReplyWithin<'a> {
    /// Reads a field of the reply.
    pub(super) fn read(&mut self, name: &str, value: RawBsonRef<'a>) {
        match (name, value) {
            ("recoveryToken", RawBsonRef::Document(token)) => self.recovery_token = Some(token),
            ("writeErrors", RawBsonRef::Array(_)) => self.refuses_writes = true,
            // `bulkWrite` counts them.
            ("nErrors", RawBsonRef::Int32(count)) => self.refuses_writes |= count > 0,
            _ => {}
        }
    }

    #[cfg(test)]
    pub(super) fn of(reply: &'a RawDocument) -> Self {
        let mut of_reply = Self::default();
        for (name, value) in reply.iter().map_while(Result::ok) {
            of_reply.read(name.as_str(), value);
        }
        of_reply
    }
}

/// The transaction of a session, as a value.
#[derive(Debug, Default)]
pub struct SessionTransaction {
    state: TransactionState,
    options: TransactionOptions,
    number: i64,
    recovery_token: Option<RawDocumentBuf>,
    /// The command that is to end it, while that is called.
    ending: Option<TransactionRole>,
    /// True while a command is underway which was the first one.
    is_first: bool,
    /// True if it was committed before a command was sent.
    is_empty: bool,
    /// True once a commit may have been carried out, so that the next one asks for a majority.
    was_attempted: bool,
    /// True once a server may have got the command that ends it.
    was_heard: bool,
    /// True while a commit may have been carried out, and no server has said what became of it.
    is_in_doubt: bool,
    /// True if its abort was left to a task, which is the last attempt.
    is_given_up: bool,
    /// The time of the servers when its commit was called first.
    committed_since: Option<Timestamp>,
    /// The last command within that has failed.
    failed_command: Option<String>,
    pub(super) progress: Progress,
}

impl SessionTransaction {
    /// Returns the state.
    pub const fn state(&self) -> TransactionState {
        self.state
    }

    /// Returns the options, with those of the session and the client where it has none of its own.
    pub const fn options(&self) -> &TransactionOptions {
        &self.options
    }

    /// Returns whether operations of the session belong to a transaction.
    pub const fn is_active(&self) -> bool {
        matches!(self.state, TransactionState::Starting | TransactionState::InProgress)
    }

    /// Returns the part of the next command; `None` outside of transactions.
    pub const fn role(&self) -> Option<TransactionRole> {
        match self.ending {
            Some(role) => Some(role),
            None if self.is_active() => Some(TransactionRole::Within),
            None => None,
        }
    }

    /// Returns whether the next command is the first one.
    pub const fn is_starting(&self) -> bool {
        matches!(self.state, TransactionState::Starting)
    }

    /// Starts one, whose options are complete, by the next transaction number of the session.
    ///
    /// # Errors
    ///
    /// Fails if one is in progress, and if its commits would not be acknowledged.
    pub fn start(
        &mut self,
        options: TransactionOptions,
        next_number: impl FnOnce() -> Option<i64>,
    ) -> Result<(), TransactionError> {
        if self.is_active() {
            return Err(TransactionError::AlreadyInProgress);
        }
        if options.write_concern.as_ref().is_some_and(|concern| !concern.is_acknowledged()) {
            return Err(TransactionError::Unacknowledged);
        }
        let number = next_number().ok_or(TransactionError::SessionEnded)?;
        *self = Self { state: TransactionState::Starting, options, number, ..Self::default() };
        Ok(())
    }

    /// Makes the transaction that a token names: it was committed, perhaps.
    pub(super) fn of_token(token: &CommitToken) -> Self {
        let concern = WriteConcern { journal: token.journal, ..WriteConcern::default() };
        Self {
            state: TransactionState::Committed,
            options: TransactionOptions::default().with_write_concern(concern),
            number: token.number,
            recovery_token: token.recovery_token.clone(),
            committed_since: token.since,
            was_attempted: true,
            was_heard: true,
            ..Self::default()
        }
    }

    /// Returns its number in the session.
    pub const fn number(&self) -> i64 {
        self.number
    }

    /// Returns the token that a mongos has given last.
    pub fn recovery_token(&self) -> Option<&RawDocument> {
        self.recovery_token.as_deref()
    }

    /// Takes note that an operation begins which ends no transaction: one that was ended before is
    /// forgotten. Returns whether the session is then no longer pinned.
    pub fn begin_operation(&mut self) -> bool {
        let has_ended =
            matches!(self.state, TransactionState::Committed | TransactionState::Aborted);
        if has_ended {
            *self = Self::default();
        }
        has_ended
    }

    /// Returns the time of the servers when its commit was called first, if one was known then.
    pub const fn committed_since(&self) -> Option<Timestamp> {
        self.committed_since
    }

    /// Begins a commit, at this time of the servers.
    ///
    /// # Errors
    ///
    /// Fails if there is nothing to be committed.
    pub fn begin_commit(&mut self, now: Option<Timestamp>) -> Result<Ending, TransactionError> {
        match self.state {
            TransactionState::None => return Err(TransactionError::NotStarted),
            TransactionState::Aborted => return Err(TransactionError::CommitAfterAbort),
            TransactionState::Starting => self.is_empty = true,
            TransactionState::InProgress | TransactionState::Committed => {}
        }
        if self.state != TransactionState::Committed {
            self.committed_since = now;
        }
        self.state = TransactionState::Committed;
        Ok(self.end_by(TransactionRole::Commit))
    }

    /// Begins an abort.
    ///
    /// # Errors
    ///
    /// Fails if there is nothing to be aborted.
    pub fn begin_abort(&mut self) -> Result<Ending, TransactionError> {
        match self.state {
            TransactionState::None => return Err(TransactionError::NotStarted),
            TransactionState::Committed => return Err(TransactionError::AbortAfterCommit),
            TransactionState::Aborted => return Err(TransactionError::AbortTwice),
            TransactionState::Starting => self.is_empty = true,
            TransactionState::InProgress => {}
        }
        self.state = TransactionState::Aborted;
        Ok(self.end_by(TransactionRole::Abort))
    }

    /// Returns whether a server may hold it open, with its locks: no call has ended it, or one has
    /// whose command has come to no server.
    pub const fn is_left_open(&self) -> bool {
        match self.state {
            TransactionState::InProgress => true,
            TransactionState::Committed | TransactionState::Aborted => {
                !self.is_empty && !self.was_heard && !self.is_given_up
            }
            _ => false,
        }
    }

    /// Returns whether an abort was called whose command has come to no server.
    pub const fn is_abort_left(&self) -> bool {
        matches!(self.state, TransactionState::Aborted) && self.is_left_open()
    }

    /// Begins an abort once the application has given the transaction up, also where a call to end
    /// it has come to no server.
    ///
    /// # Errors
    ///
    /// Fails if there is nothing to be aborted.
    pub fn begin_abort_of_left(&mut self) -> Result<Ending, TransactionError> {
        if self.is_left_open() {
            self.state = TransactionState::InProgress;
        }
        let ending = self.begin_abort()?;
        self.is_given_up = true;
        Ok(ending)
    }

    const fn end_by(&mut self, role: TransactionRole) -> Ending {
        if self.is_empty {
            return Ending::Nothing;
        }
        self.ending = Some(role);
        Ending::Send
    }

    /// Takes note that the call is over which ends the transaction.
    pub const fn ended(&mut self) {
        self.ending = None;
    }

    /// Returns what the next command carries; `None` outside of transactions. `has_timeout` says
    /// whether `timeoutMS` is set, with which `wtimeout` and `maxCommitTimeMS` do not count.
    pub fn fields(&self, has_timeout: bool) -> Option<TransactionFields<'_>> {
        let role = self.role()?;
        let ends = role != TransactionRole::Within;
        Some(TransactionFields {
            number: self.number,
            starts: self.is_starting(),
            recovery_token: self.recovery_token.as_deref().filter(|_| ends),
            write_concern: if ends { self.write_concern(role, has_timeout) } else { None },
            max_time: match role {
                TransactionRole::Commit if !has_timeout => self.options.max_commit_time,
                _ => None,
            },
        })
    }

    /// "writeConcern for commitTransaction attempts", and "Interaction with Client Backpressure".
    fn write_concern(&self, role: TransactionRole, has_timeout: bool) -> Option<RawDocumentBuf> {
        let mut concern = self.options.write_concern.clone().unwrap_or_default();
        if has_timeout {
            concern.timeout = None;
        }
        if role == TransactionRole::Commit && self.was_attempted {
            let majority = WriteConcern::majority();
            let least = (!has_timeout).then_some(RETRIED_COMMIT_WTIMEOUT);
            concern = WriteConcern { w: majority.w, timeout: concern.timeout.or(least), ..concern };
        }
        (!concern.is_server_default()).then(|| concern.document())
    }

    /// Returns what the first command declares as `readConcern`.
    pub const fn read_concern(&self) -> Option<&ReadConcern> {
        self.options.read_concern.as_ref()
    }

    /// Takes note that a command is sent.
    pub fn sent(&mut self) {
        self.is_first = self.state == TransactionState::Starting;
        if self.is_first {
            self.state = TransactionState::InProgress;
        }
    }

    /// Takes note of a reply to a command, which is no error: of the token that a mongos gives, and
    /// of writes that were refused, for which servers abort the transaction, too.
    pub(super) fn replied(&mut self, reply: ReplyWithin<'_>, command: impl FnOnce() -> String) {
        if self.role().is_none() {
            return;
        }
        if reply.refuses_writes {
            self.command_failed(command);
        }
        if let Some(token) = reply.recovery_token {
            self.recovery_token = Some(token.to_owned());
        }
        self.was_attempted |= self.ending == Some(TransactionRole::Commit);
        self.was_heard |= self.ending.is_some();
        self.is_in_doubt = false;
    }

    /// Takes note that a commit has failed with this error; returns whether that leaves open what
    /// became of the transaction, as an `UnknownTransactionCommitResult` does. Once that is open,
    /// it stays so until a server has said it: another commit that is not sent, or is answered with
    /// something else, says nothing of the one before.
    pub fn commit_failed(&mut self, fault: &CommitFault) -> bool {
        self.is_in_doubt = fault.is_unknown || (self.is_in_doubt && !fault.ends_doubt());
        self.is_in_doubt
    }

    /// Returns the last command within that has failed: servers abort a transaction for most
    /// errors.
    pub fn failed_command(&self) -> Option<&str> {
        self.failed_command.as_deref()
    }

    /// Takes note of a command within that has failed.
    pub fn command_failed(&mut self, command: impl FnOnce() -> String) {
        if self.role() == Some(TransactionRole::Within) {
            self.failed_command = Some(command());
        }
    }

    /// Takes note that an attempt has failed, or was given up. After an error of overload nothing
    /// was done, so that a command which comes again is what it was: the first one, or a commit
    /// with the same write concern.
    pub fn failed(&mut self, failure: AttemptFailure) {
        match (failure, self.ending) {
            (AttemptFailure::Overload, None) if self.is_first && self.is_active() => {
                self.state = TransactionState::Starting;
            }
            (AttemptFailure::Overload, Some(_)) => self.was_heard = true,
            (_, None) => {}
            (_, Some(role)) => {
                let is_commit = role == TransactionRole::Commit;
                self.was_heard = true;
                self.was_attempted |= is_commit;
                self.is_in_doubt |= is_commit && failure == AttemptFailure::Lost;
            }
        }
    }
}

#[cfg(test)]
mod tests;
