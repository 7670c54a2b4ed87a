//! Questions that drivers ask of the errors of operations, and applications do not.

use std::sync::Arc;
use std::time::Duration;

use sdam_core::diagnosis::Verdict;
use sdam_core::metrics::{ErrorType, OTHER};
use sdam_core::operation::CommandError;
use sdam_core::spans::SpanEnd;

use super::{Error, ErrorKind, Reported, Repr};

/// The name that applications have for the type of every error, in the spans of what has failed
/// (`exception.type`).
pub(crate) const ERROR_TYPE: &str = "sdam::Error";

/// Questions that authors of drivers ask of the error of an operation.
pub trait DriverError: Sized {
    /// Returns what metrics call it: the cause that the client has found, or the server's number.
    fn error_type(&self) -> ErrorType;

    /// Ends the span of an operation that has failed with it: what the server has replied is
    /// recorded with the command.
    fn span_end(&self) -> SpanEnd;

    /// Adds the labels that the client has given the error of a write concern, as servers from 4.4
    /// on do themselves (Retryable Writes, "RetryableWriteError Labels").
    #[must_use]
    fn with_labels(self, added: &[String]) -> Self;

    /// Adds the likely cause that the driver has found.
    #[must_use]
    fn explained(self, verdict: Verdict) -> Self;

    /// Adds that the time of the call is over in which it has come.
    #[must_use]
    fn out_of_time(self) -> Self;

    /// Adds how long the call took in all that has ended with it, if its time was over: it may have
    /// had other commands before.
    #[must_use]
    fn of_call(self, took: Duration) -> Self;

    /// Returns whether there was no connection for the command, whatever a server has said while
    /// one was being established: nothing was sent.
    fn is_of_check_out(&self) -> bool;

    /// Returns whether the time was over before anything was sent: the operation has waited for its
    /// session, for a server or for a connection.
    fn is_early_timeout(&self) -> bool;

    /// Returns whether the server of a cursor can be asked at once to close it, as far as this
    /// error shows: it has answered in time, and has not changed its state.
    fn is_of_a_server_at_hand(&self) -> bool;

    /// Returns whether this error of a getMore says that the server does not know the cursor, or
    /// has given it up, so that nothing is left to close.
    fn is_of_a_closed_cursor(&self) -> bool;
}

impl DriverError for Error {
    fn error_type(&self) -> ErrorType {
        match self.repr() {
            Repr::Operation(error) if !self.0.timed_out => error.into(),
            Repr::Reported(Reported::SessionTimeout { .. }) => {
                ErrorType::Named(ErrorKind::Timeout.name())
            }
            Repr::Reported(error) => match (self.code(), error.cause()) {
                (Some(code), _) => ErrorType::Code(code),
                (None, Some(cause)) => cause.error_type(),
                (None, None) => ErrorType::Named(OTHER),
            },
            _ => ErrorType::Named(self.kind().name()),
        }
    }

    fn span_end(&self) -> SpanEnd {
        SpanEnd::exception(ERROR_TYPE, self.to_string())
    }

    fn with_labels(mut self, added: &[String]) -> Self {
        let inner = Arc::get_mut(&mut self.0);
        if let Some(Repr::Reported(error)) = inner.map(|inner| &mut inner.cause) {
            error.add_labels(added);
        }
        self
    }

    fn explained(self, verdict: Verdict) -> Self {
        self.judged(Some(verdict))
    }

    fn out_of_time(self) -> Self {
        self.timed_out()
    }

    fn of_call(mut self, took: Duration) -> Self {
        if self.is_timeout()
            && let Some(spent) = Arc::get_mut(&mut self.0).and_then(|inner| inner.spent.as_mut())
        {
            spent.before = Duration::ZERO;
            spent.before = took.saturating_sub(spent.total());
        }
        self
    }

    fn is_of_check_out(&self) -> bool {
        matches!(self.repr(), Repr::CheckOut(_))
    }

    fn is_early_timeout(&self) -> bool {
        match self.repr() {
            Repr::Selection(_) | Repr::CheckOut(_) => self.is_timeout(),
            Repr::Reported(Reported::SessionTimeout { .. }) => true,
            Repr::Client(_) | Repr::Operation(_) | Repr::NotSent(_) | Repr::Reported(_) => false,
        }
    }

    fn is_of_a_server_at_hand(&self) -> bool {
        let root = self.root_cause();
        let is_answer = || {
            let changes = root.reply().and_then(CommandError::state_change);
            root.kind() == ErrorKind::Command && changes.is_none()
        };
        matches!(root.repr(), Repr::Reported(_)) || is_answer()
    }

    fn is_of_a_closed_cursor(&self) -> bool {
        /// CursorNotFound, QueryPlanKilled, CursorKilled.
        const CLOSED: [i32; 3] = [43, 175, 237];
        // Not that of a login, for one.
        let root = self.root_cause();
        root.kind() == ErrorKind::Command && root.code().is_some_and(|code| CLOSED.contains(&code))
    }
}
