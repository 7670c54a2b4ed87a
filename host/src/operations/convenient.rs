//! Transactions that are run as a whole: started, committed, and run again where that is safe.
//!
//! Implements the Convenient API for Transactions; what comes next, a value of core says.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use sdam_core::operation::{
    MAX_TIME_EXPIRED, NotSent, TRANSIENT_TRANSACTION, Timeout, UNKNOWN_COMMIT_RESULT,
};
use sdam_core::session::{
    TransactionError, TransactionFault, TransactionLoop, TransactionOptions, TransactionRole,
    TransactionStep,
};
use sdam_core::spans::SpanEnd;
use sdam_core::time::Instant;

use crate::error::{Error, Reported, Repr};
use crate::machines::Host;
use crate::machines::runtime::Runtime;
use crate::machines::sleep::sleep_until;
use crate::operations::session::{ClientSession, DriverSession, SessionAccessError};
use crate::operations::transaction::{self, StartTransaction, ThreadSession, end, limit};

/// An error that the callback of a transaction may return: one of an application's own, in which
/// that of the operation which has failed is found again.
///
/// ```
/// use sdam_host::{CallbackError, Error};
///
/// enum TransferError {
///     /// The account has too little.
///     Overdrawn,
///     Database(Error),
/// }
///
/// impl From<Error> for TransferError {
///     fn from(error: Error) -> Self {
///         Self::Database(error)
///     }
/// }
///
/// impl CallbackError for TransferError {
///     fn database_error(&self) -> Option<&Error> {
///         match self {
///             Self::Overdrawn => None,
///             Self::Database(error) => Some(error),
///         }
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no error that the callback of a transaction may return",
    note = "implement `CallbackError` for an error of your own, which wraps others such as \
            `anyhow::Error`; `sdam::Error` and `Box<dyn Error + Send + Sync>` implement it"
)]
pub trait CallbackError: From<Error> {
    /// Returns the error of an operation, if it is one: its labels say whether the transaction is
    /// run again. An error without one ends it. [`database_error_in`] finds it where it is wrapped.
    fn database_error(&self) -> Option<&Error>;
}

/// Finds the error of an operation in an error: itself, or the first among its
/// [sources](std::error::Error::source).
pub fn database_error_in<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

impl CallbackError for Error {
    fn database_error(&self) -> Option<&Error> {
        Some(self)
    }
}

/// The error of an operation may be among its sources.
impl CallbackError for Box<dyn std::error::Error + Send + Sync> {
    fn database_error(&self) -> Option<&Error> {
        database_error_in(&**self)
    }
}

/// The error of an operation may be among its sources.
impl CallbackError for Box<dyn std::error::Error> {
    fn database_error(&self) -> Option<&Error> {
        database_error_in(&**self)
    }
}

impl<S> StartTransaction<S> {
    /// Sets `timeoutMS` of a transaction that is [run as a whole](Self::and_run): the limit of all
    /// attempts together, zero for none; by default that of the session or of the client, and two
    /// minutes for trying again if there is none. A transaction that is not run as a whole has no
    /// such limit.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }
}

impl<R: Runtime> StartTransaction<&ClientSession<R>> {
    /// Runs a transaction as a whole: starts it, calls the callback, which runs its operations in
    /// the session that it is given, and commits it; returns the value of the callback. If the
    /// callback fails, the transaction is aborted.
    ///
    /// **The callback may be called several times**, as after a write conflict or a failover, and
    /// only what it does in the session is undone: do nothing else in it that must not be done
    /// twice. **It must return the errors of its operations**: most of them abort the transaction
    /// at the server. If it returns `Ok` nevertheless, the error names the command that has failed.
    /// For another way with errors, use [`ClientSession::start_transaction`] and
    /// [`ClientSession::commit_transaction`].
    ///
    /// It is run again, after a pause that grows, for errors with the label
    /// [`TRANSIENT_TRANSACTION`], and its commit for those with [`UNKNOWN_COMMIT_RESULT`], until it
    /// was committed or time is over: see [`timeout`](Self::timeout). If it is dropped before that,
    /// the transaction is aborted in the background.
    ///
    /// ```
    /// # use sdam_host::{ClientSession, Error, Runtime};
    /// # async fn withdraw<R: Runtime>(_: u32, _: &ClientSession<R>) -> Result<(), Error> {
    /// # Ok(())
    /// # }
    /// # async fn example<R: Runtime>(session: &ClientSession<R>) -> Result<(), Error> {
    /// let amount = 100;
    /// session.start_transaction().and_run(async |session| withdraw(amount, &session).await).await
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails with the error of the callback, or of the commit. If time is over before a transaction
    /// was committed, the error is a [time-out](Error::is_timeout) with the last error and its
    /// labels. A commit whose error has the label [`UNKNOWN_COMMIT_RESULT`] may have been done.
    pub async fn and_run<T, E, F>(
        self,
        mut callback: impl FnMut(ClientSession<R>) -> F,
    ) -> Result<T, E>
    where
        E: CallbackError,
        F: Future<Output = Result<T, E>>,
    {
        let (host, mut run) = (host_of(self.session)?, Run::new(self.session, self.timeout));
        loop {
            run.start(&host, &self.options).await?;
            let outcome = callback(self.session.clone()).await;
            if let ControlFlow::Break(value) = run.judge(&host, outcome).await? {
                return Ok(value);
            }
        }
    }
}

impl<S: ThreadSession> StartTransaction<&S> {
    /// Runs a transaction as a whole, by this thread: starts it, calls the callback, which runs its
    /// operations in the session that it is given, and commits it; returns the value of the
    /// callback. If the callback fails, the transaction is aborted.
    ///
    /// **The callback may be called several times**, as after a write conflict or a failover, and
    /// only what it does in the session is undone: do nothing else in it that must not be done
    /// twice. **It must return the errors of its operations**: most of them abort the transaction
    /// at the server. If it returns `Ok` nevertheless, the error names the command that has failed.
    ///
    /// The transaction is run again, and its commit, for the same errors as that of futures, and
    /// for as long; the thread sleeps during the pauses. If the callback panics, the transaction is
    /// aborted in the background.
    ///
    /// # Errors
    ///
    /// Fails with the error of the callback, or of the commit. If time is over before a transaction
    /// was committed, the error is a [time-out](Error::is_timeout) with the last error and its
    /// labels. A commit whose error has the label [`UNKNOWN_COMMIT_RESULT`] may have been done.
    pub fn and_run<T, E: CallbackError>(
        self,
        mut callback: impl FnMut(&S) -> Result<T, E>,
    ) -> Result<T, E> {
        let session = self.session.session();
        let (host, mut run) = (host_of(session)?, Run::new(session, self.timeout));
        loop {
            self.session.wait(run.start(&host, &self.options))?;
            let outcome = callback(self.session);
            if let ControlFlow::Break(value) = self.session.wait(run.judge(&host, outcome))? {
                return Ok(value);
            }
        }
    }
}

fn host_of<R: Runtime>(session: &ClientSession<R>) -> Result<Arc<Host<R>>, Error> {
    session.host().ok_or_else(|| TransactionError::SessionEnded.into())
}

/// Returns what an error means for what comes next. With a client that is closed, or of another
/// process, another attempt comes to the same end at once, whatever the labels say.
fn fault_of(error: &Error) -> TransactionFault {
    if error.is_end_of_client() {
        return TransactionFault::default();
    }
    let labels = error.labels();
    TransactionFault {
        is_transient: labels.contains(&TRANSIENT_TRANSACTION),
        is_unknown: labels.contains(&UNKNOWN_COMMIT_RESULT),
        is_max_time: is_expired(error) || error.code() == Some(MAX_TIME_EXPIRED),
        // The callback has gone on behind a command that had failed, and would again.
        is_hidden: error.transaction().is_some_and(|stood| stood.failed_before.is_some()),
    }
}

/// Returns whether less time is left than a server takes, so that none is asked, however often that
/// is tried.
fn is_expired(error: &Error) -> bool {
    matches!(error.repr(), Repr::NotSent(NotSent::Expired))
}

/// A transaction that is run as a whole; if it is dropped before its end, that is aborted.
struct Run<'a, R: Runtime> {
    session: &'a ClientSession<R>,
    timeout: Option<Duration>,
    /// Present from the first attempt on.
    progress: Option<TransactionLoop>,
    pause: Duration,
    /// True while a commit is under way.
    is_committing: bool,
    /// The error for which something was run again.
    last: Option<Error>,
}

impl<'a, R: Runtime> Run<'a, R> {
    const fn new(session: &'a ClientSession<R>, timeout: Option<Duration>) -> Self {
        let (progress, pause, last) = (None, Duration::ZERO, None);
        Self { session, timeout, progress, pause, is_committing: false, last }
    }

    /// Begins an attempt, after a pause if it is not the first one.
    async fn start(&mut self, host: &Host<R>, options: &TransactionOptions) -> Result<(), Error> {
        let now = host.runtime().now();
        if !self.pause.is_zero() {
            sleep_until(&host.shared, now + self.pause).await;
        }
        transaction::start(self.session, options.clone()).await?;
        if self.progress.is_none() {
            self.timeout = limit(host, self.session, self.timeout);
            let deadline = self.timeout.filter(|limit| !limit.is_zero()).map(|limit| now + limit);
            // Not before it has started: within another one, which stays as it is, it does not.
            self.session.begin_whole(deadline);
        }
        let timeout = self.timeout;
        self.progress.get_or_insert_with(|| TransactionLoop::new(now, timeout)).started();
        Ok(())
    }

    /// Ends an attempt as its callback has ended; goes on if another one is to be made.
    async fn judge<T, E: CallbackError>(
        &mut self,
        host: &Host<R>,
        outcome: Result<T, E>,
    ) -> Result<ControlFlow<T>, E> {
        let error = match outcome {
            Ok(value) => return Ok(self.commit(host).await?.map_break(|()| value)),
            Err(error) => error,
        };
        self.abort(host).await;
        // It says nothing that the error of the attempt before does not say.
        let is_late =
            self.session.deadline().is_some() && error.database_error().is_some_and(is_expired);
        if let Some(last) = self.last.take().filter(|_| is_late) {
            return Err(self.time_out(host.runtime().now(), last).into());
        }
        let fault = error.database_error().map(fault_of).unwrap_or_default();
        let (now, random) = (host.runtime().now(), host.shared.random_bits());
        let step = self.progress().failed(now, fault, random);
        match (step, error.database_error()) {
            (TransactionStep::Run(pause), last) => {
                (self.pause, self.last) = (pause, last.cloned());
                Ok(ControlFlow::Continue(()))
            }
            (TransactionStep::TimeOut, Some(last)) => Err(self.time_out(now, last.clone()).into()),
            _ => Err(error),
        }
    }

    /// Commits the transaction, and again while it is not known what came of it; unless the
    /// callback has ended it.
    async fn commit(&mut self, host: &Host<R>) -> Result<ControlFlow<()>, Error> {
        // The callback has not waited for all its operations.
        let state = self.session.transaction_state();
        let state = state.map_err(|_| SessionAccessError::InTransaction)?;
        let mut step = self.progress().succeeded(state);
        let hidden = self.failed_command();
        while step == TransactionStep::Commit {
            let timeout = match self.session.deadline() {
                Some(deadline) => Timeout::At(deadline),
                None => Timeout::new(host.runtime().now(), self.timeout),
            };
            self.is_committing = true;
            let ended = end(host, self.session, TransactionRole::Commit, timeout).await;
            self.is_committing = false;
            let Err(error) = ended else { break };
            // It says nothing that the error before does not say.
            if let Some(last) = self.last.take().filter(|_| is_expired(&error)) {
                return Err(self.time_out(host.runtime().now(), last));
            }
            let fault = TransactionFault { is_hidden: hidden.is_some(), ..fault_of(&error) };
            let (now, random) = (host.runtime().now(), host.shared.random_bits());
            step = self.progress().commit_failed(now, fault, random);
            match (step, hidden.as_ref().filter(|_| fault.is_transient)) {
                (TransactionStep::Commit, _) => self.last = Some(error),
                (TransactionStep::Run(pause), _) => {
                    (self.pause, self.last) = (pause, Some(error));
                    return Ok(ControlFlow::Continue(()));
                }
                (TransactionStep::TimeOut, _) => return Err(self.time_out(now, error)),
                (TransactionStep::Return, Some(command)) => {
                    let command = command.clone();
                    return Err(Reported::HiddenFailure { command, error }.into());
                }
                (TransactionStep::Return, None) => return Err(error),
            }
        }
        Ok(ControlFlow::Break(()))
    }

    fn progress(&self) -> &TransactionLoop {
        self.progress.as_ref().expect("it has begun")
    }

    /// Returns the command that has failed in the transaction, if one has.
    fn failed_command(&self) -> Option<String> {
        let guard = self.session.try_acquire()?;
        guard.transaction().failed_command().map(ToOwned::to_owned)
    }

    /// Aborts the transaction after the callback has failed, unless that has ended it; with the
    /// whole time once more ("withTransaction refreshes the timeout for abortTransaction").
    async fn abort(&self, host: &Host<R>) {
        let is_active = |session: &ClientSession<R>| {
            session.try_acquire().is_some_and(|guard| guard.transaction().is_active())
        };
        if is_active(self.session) {
            let timeout = Timeout::new(host.runtime().now(), self.timeout);
            let _ = end(host, self.session, TransactionRole::Abort, timeout).await;
        }
    }

    /// Returns the error that says that time is over.
    fn time_out(&self, now: Instant, error: Error) -> Error {
        let (elapsed, attempts) = (self.progress().elapsed(now), self.progress().attempts());
        Reported::TransactionTimeout { elapsed, attempts, error }.into()
    }
}

impl<R: Runtime> Drop for Run<'_, R> {
    fn drop(&mut self) {
        if self.progress.is_none() {
            return;
        }
        let span = self.session.end_whole();
        self.session.abort_when_free(self.is_committing);
        span.end_with(SpanEnd::default);
    }
}

#[cfg(test)]
mod tests {
    use sdam_core::operation::{NotSent, UNKNOWN_COMMIT_RESULT};
    use sdam_core::session::{TransactionLoop, TransactionStep};
    use sdam_core::time::Instant;

    use super::fault_of;
    use crate::error::{Error, Repr};

    /// "Sequence of Actions": a commit is tried again while there is time for it, not in the rest
    /// of the time that is too short to ask a server.
    #[test]
    fn a_commit_that_no_time_is_left_for_is_not_tried_again() {
        let mut error = Error::from(Repr::NotSent(NotSent::Expired));
        error.add_label(UNKNOWN_COMMIT_RESULT);
        let run = TransactionLoop::new(Instant::ZERO, None);
        let step = run.commit_failed(Instant::ZERO, fault_of(&error), 0);
        assert_eq!(step, TransactionStep::Return);
    }
}
