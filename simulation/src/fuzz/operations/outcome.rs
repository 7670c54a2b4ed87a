//! The outcomes of attempts, and what the specifications say of each by itself.

use std::time::Duration;

use sdam_core::failure::{Cause, Stage};
use sdam_core::operation::{
    AttemptOutcome, CommandError, Fault, NO_WRITES_PERFORMED, NotSent, OperationError, RETRYABLE,
    RETRYABLE_WRITE, SYSTEM_OVERLOADED, TRANSIENT_TRANSACTION, UNKNOWN_COMMIT_RESULT,
};
use sdam_core::session::TransactionRole;

/// The error of a server that has used up `maxTimeMS`.
const MAX_TIME_EXPIRED: i32 = 50;

/// The end of an attempt.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum What {
    Reply,
    /// No server was selected; true if that is for lack of time.
    NoServer(bool),
    /// The pool was found cleared.
    Cleared,
    /// An idle connection was found dead.
    Dead(OperationError),
    /// No connection could be established.
    Unconnected(OperationError),
    /// No connection was to be had for another reason; true if that is for lack of time.
    NoConnection(bool),
    Exchanged(OperationError),
    WriteConcern(CommandError),
    Refused(NotSent),
}

impl What {
    fn error(&self) -> Option<&OperationError> {
        match self {
            Self::Dead(error) | Self::Unconnected(error) | Self::Exchanged(error) => Some(error),
            _ => None,
        }
    }

    fn labels(&self) -> Vec<&str> {
        match self {
            Self::Unconnected(error) | Self::Exchanged(error) => error.labels(),
            Self::WriteConcern(error) => error.labels.iter().map(String::as_str).collect(),
            _ => Vec::new(),
        }
    }

    pub(super) fn is_overload(&self) -> bool {
        self.labels().contains(&SYSTEM_OVERLOADED)
    }

    pub(super) fn is_labelled_retryable(&self) -> bool {
        self.labels().contains(&RETRYABLE)
    }

    pub(super) fn is_labelled_retryable_write(&self) -> bool {
        self.labels().contains(&RETRYABLE_WRITE)
    }

    /// Returns the label that the client gives the error in a transaction, if it is a retryable
    /// write's by its own judgement or not.
    ///
    /// "any network error or server selection error encountered running any command besides
    /// commitTransaction"; of a commit, also what is retried, what is late, and what is not known
    /// to have reached the members that it has to (Transactions, "Error Labels").
    pub(super) fn label_in(
        &self,
        role: TransactionRole,
        is_labelled: bool,
    ) -> Option<&'static str> {
        let is_unreachable = self.is_of_network() || matches!(self, Self::NoServer(_));
        if role != TransactionRole::Commit {
            return is_unreachable.then_some(TRANSIENT_TRANSACTION);
        }
        let is_retried = is_labelled || self.is_labelled_retryable_write();
        let is_unknown = match self {
            Self::WriteConcern(error) => ![Some(79), Some(100)].contains(&error.code),
            _ => is_unreachable || is_retried || self.code() == Some(MAX_TIME_EXPIRED),
        };
        is_unknown.then_some(UNKNOWN_COMMIT_RESULT)
    }

    /// Returns whether the session is not pinned any more after it, which has this label.
    pub(super) fn unpins(&self, role: TransactionRole, label: Option<&str>) -> bool {
        let has = |wanted| label == Some(wanted) || self.labels().contains(&wanted);
        match role {
            // One that was not sent in time is made later, at the same mongos.
            TransactionRole::Abort => {
                !matches!(self, Self::NoConnection(true) | Self::Refused(NotSent::Expired))
            }
            TransactionRole::Commit => has(TRANSIENT_TRANSACTION) || has(UNKNOWN_COMMIT_RESULT),
            _ => has(TRANSIENT_TRANSACTION),
        }
    }

    /// Returns whether the error is about an attempt at the command itself.
    pub(super) fn shows_attempt(&self) -> bool {
        let attempted = match self {
            Self::Exchanged(error) => !matches!(error, OperationError::Invalid(_)),
            Self::WriteConcern(_) => true,
            _ => false,
        };
        attempted && !self.labels().contains(&NO_WRITES_PERFORMED)
    }

    pub(super) fn is_labelled_unknown(&self) -> bool {
        self.labels().contains(&UNKNOWN_COMMIT_RESULT)
    }

    /// Returns whether a server says by it what became of a commit.
    pub(super) fn ends_doubt(&self) -> bool {
        self.labels().contains(&TRANSIENT_TRANSACTION) || matches!(self.code(), Some(225 | 251))
    }

    pub(super) fn is_of_network(&self) -> bool {
        let stream = match self.error() {
            // Others than the server were asked for those.
            Some(OperationError::Stream(failure)) if failure.stage != Stage::Credentials => {
                Some(&failure.cause)
            }
            _ => None,
        };
        *self == Self::Cleared
            || stream.is_some_and(|it| !matches!(it, Cause::Malformed | Cause::Configuration))
    }

    /// Returns the number of the error that the server gave to hello, to a step of authentication,
    /// or to the command.
    pub(super) fn code(&self) -> Option<i32> {
        match self {
            Self::Unconnected(OperationError::Reply { error, .. })
            | Self::Exchanged(OperationError::Reply { error, .. }) => error.code,
            _ => None,
        }
    }

    pub(super) fn is_timeout(&self) -> bool {
        match (self, self.error()) {
            (Self::NoServer(late) | Self::NoConnection(late), _) => *late,
            (Self::Refused(reason), _) => *reason == NotSent::Expired,
            (Self::WriteConcern(error), _) | (_, Some(OperationError::Reply { error, .. })) => {
                error.code == Some(MAX_TIME_EXPIRED)
            }
            (_, Some(OperationError::Stream(failure))) => failure.cause == Cause::Timeout,
            _ => false,
        }
    }
}

/// The outcome of one attempt.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Outcome {
    pub(super) number: usize,
    pub(super) what: What,
    pub(super) base: Option<Duration>,
    /// True if the client has added `RetryableWriteError`.
    pub(super) is_labelled: bool,
    /// The label that it has added for what the error means to a transaction.
    pub(super) transaction_label: Option<&'static str>,
}

impl Outcome {
    pub(super) const fn new(number: usize, what: What, base: Option<Duration>) -> Self {
        Self { number, what, base, is_labelled: false, transaction_label: None }
    }
}

impl AttemptOutcome for Outcome {
    fn fault(&self) -> Option<Fault<'_>> {
        Some(match &self.what {
            What::Reply => return None,
            What::NoServer(late) => Fault::Selection(*late),
            What::Cleared => Fault::PoolCleared,
            What::Dead(error) => Fault::IdleConnection(error),
            What::Unconnected(error) => Fault::Establishing(error),
            What::NoConnection(late) => Fault::CheckOut(*late),
            What::Exchanged(error) => Fault::Exchange(error),
            What::WriteConcern(error) => Fault::WriteConcern(error),
            What::Refused(reason) => Fault::Refused(*reason == NotSent::Expired),
        })
    }

    fn base_backoff(&self) -> Option<Duration> {
        self.base
    }

    fn add_label(&mut self, label: &'static str) {
        match label {
            RETRYABLE_WRITE => self.is_labelled = true,
            label => self.transaction_label = Some(label),
        }
    }
}
