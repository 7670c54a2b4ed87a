//! The outcome of a commit as a value, and asking again for one that is not known.

use std::time::Duration;

use sdam_core::operation::Timeout;
use sdam_core::session::{
    CommitOutcome, CommitToken, Session, SessionTimeout, TransactionError, TransactionRole,
};

use crate::error::{ArgumentError, Error, ErrorKind};
use crate::machines::Host;
use crate::machines::runtime::Runtime;
use crate::observe::spans::OperationSpan;
use crate::operations::session::{ClientSession, DriverSession, SessionGuard, session_timeout};
use crate::operations::transaction::{
    EndTransaction, ThreadSession, begin_end, commit_fault, finish_end, limit_of, origin,
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
    /// as if the user may not commit; and if it was committed, and its write concern can never be
    /// met (100, UnsatisfiableWriteConcern, and 79, UnknownReplWriteConcern).
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
    /// as if the user may not commit; and if it was committed, and its write concern can never be
    /// met (100, UnsatisfiableWriteConcern, and 79, UnknownReplWriteConcern).
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
    let is_of_token = || token.origin().check(origin(host)).map_err(ArgumentError::from);
    is_of_token()?;
    let session = Session::of_token(token);
    let mut guard = ClientSession::ending(host, session, None, OperationSpan::NONE);
    let role = TransactionRole::Commit;
    let ending = begin_end(&mut guard, role)?;
    let Err(error) = finish_end(host, &mut guard, (role, ending), timeout).await else {
        return Ok(CommitOutcome::Committed);
    };
    // The name of the set may be known only now.
    is_of_token()?;
    use ErrorKind::{Closed, Forked, Invalid};
    let is_unasked = error.code().is_none() && !matches!(error.kind(), Closed | Forked | Invalid);
    let outcome = match meaning(host, &guard, &error, Some(token)) {
        None if is_unasked => CommitOutcome::Unknown(token.clone()),
        outcome => outcome.ok_or(error)?,
    };
    match outcome {
        // Another user may have been asked about.
        CommitOutcome::Aborted if !token.origin().names_user() => Ok(CommitOutcome::Forgotten),
        outcome => Ok(outcome),
    }
}

/// Returns what the error of a commit means for its transaction.
fn meaning<R: Runtime>(
    host: &Host<R>,
    guard: &SessionGuard<R>,
    error: &Error,
    token: Option<&CommitToken>,
) -> Option<CommitOutcome> {
    let kept_for = match session_timeout(host) {
        SessionTimeout::After(time) => Some(time),
        _ => None,
    };
    commit_fault(guard, error).outcome(token, kept_for)
}
