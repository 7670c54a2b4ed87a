//! The outcome of a commit as a value, and asking again for one that is not known.

use std::time::Duration;

use sdam_core::operation::{TRANSIENT_TRANSACTION, Timeout, UNKNOWN_COMMIT_RESULT};
use sdam_core::session::{
    CommitFault, CommitOutcome, CommitToken, Session, SessionTimeout, TransactionError,
    TransactionRole,
};

use crate::error::{ArgumentError, Error};
use crate::machines::Host;
use crate::machines::runtime::Runtime;
use crate::observe::spans::OperationSpan;
use crate::operations::session::{ClientSession, DriverSession, SessionGuard, session_timeout};
use crate::operations::transaction::{
    EndTransaction, ThreadSession, begin_end, finish_end, limit_of, origin,
};

impl<R: Runtime> EndTransaction<&ClientSession<R>> {
    /// Ends the transaction, and returns what became of it. After a commit whose outcome is not
    /// known, servers can be asked again by the token that comes with that, also by another
    /// process; the session is best ended then, as they forget the outcome when it is used for
    /// another transaction.
    ///
    /// ```
    /// # use sdam_core::session::CommitOutcome;
    /// # use sdam_host::{ClientSession, Error, Runtime};
    /// # fn save(_: &str) {}
    /// # async fn example<R: Runtime>(session: ClientSession<R>) -> Result<(), Error> {
    /// match session.commit_transaction().outcome().await? {
    ///     CommitOutcome::Committed => println!("done"),
    ///     CommitOutcome::Unknown(token) => save(&token.to_string()),
    ///     CommitOutcome::Aborted | CommitOutcome::Forgotten | _ => println!("not done"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if there is nothing to be ended, and with errors that say nothing of the transaction,
    /// as if the user may not commit.
    pub async fn outcome(self) -> Result<CommitOutcome, Error> {
        outcome_of(self.session, self.role, self.timeout).await
    }
}

impl<S: ThreadSession> EndTransaction<&S> {
    /// Ends the transaction, and returns what became of it, as the method of futures does.
    ///
    /// # Errors
    ///
    /// Fails if there is nothing to be ended, and with errors that say nothing of the transaction,
    /// as if the user may not commit.
    pub fn outcome(self) -> Result<CommitOutcome, Error> {
        let (session, thread) = (self.session.session(), self.session);
        thread.wait(outcome_of(session, self.role, self.timeout))
    }
}

async fn outcome_of<R: Runtime>(
    session: &ClientSession<R>,
    role: TransactionRole,
    of_call: Option<Duration>,
) -> Result<CommitOutcome, Error> {
    let host = session.host().ok_or(TransactionError::SessionEnded)?;
    let timeout = limit_of(&host, session, of_call);
    let mut guard = session.acquire(&host, timeout).await?;
    let ending = begin_end(&mut guard, role)?;
    let error = match finish_end(&host, &mut guard, (role, ending), timeout).await {
        Ok(()) if role == TransactionRole::Commit => return Ok(CommitOutcome::Committed),
        Ok(()) => return Ok(CommitOutcome::Aborted),
        Err(error) => error,
    };
    meaning(&host, &guard, &error, error.commit_token()).ok_or(error)
}

/// Asks what became of a transaction, by committing it once more.
pub(crate) async fn recover_commit<R: Runtime>(
    host: &Host<R>,
    token: &CommitToken,
    timeout: Timeout,
) -> Result<CommitOutcome, Error> {
    let session = Session::of_token(token);
    let mut guard = ClientSession::ending(host, session, None, OperationSpan::NONE);
    let role = TransactionRole::Commit;
    let ending = begin_end(&mut guard, role)?;
    let Err(error) = finish_end(host, &mut guard, (role, ending), timeout).await else {
        return Ok(CommitOutcome::Committed);
    };
    // Who asks for another has no answer, whatever servers say.
    token.origin().check(origin(host)).map_err(ArgumentError::from)?;
    meaning(host, &guard, &error, Some(token)).ok_or(error)
}

/// Returns what the error of a commit means for its transaction.
fn meaning<R: Runtime>(
    host: &Host<R>,
    guard: &SessionGuard<R>,
    error: &Error,
    token: Option<&CommitToken>,
) -> Option<CommitOutcome> {
    let fault = CommitFault {
        code: error.code(),
        is_transient: error.has_label(TRANSIENT_TRANSACTION),
        is_unknown: error.has_label(UNKNOWN_COMMIT_RESULT),
        elapsed: guard.since_commit(),
    };
    let kept_for = match session_timeout(host) {
        SessionTimeout::After(time) => Some(time),
        _ => None,
    };
    fault.outcome(token, kept_for)
}
