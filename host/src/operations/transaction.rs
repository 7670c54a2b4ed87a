//! Transactions: their start, which sends nothing, their commit and their abort.
//!
//! Implements Driver Transactions; what is allowed, and what commands carry, the session says.

use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bson::{RawDocumentBuf, rawdoc};
use sdam_core::config::{ReadConcern, ReadPreference, WriteConcern};
use sdam_core::operation::{
    CommandMessage, OperationOptions, TRANSIENT_TRANSACTION, Timeout, UNKNOWN_COMMIT_RESULT,
};
use sdam_core::selection::Criteria;
use sdam_core::session::{
    CommitFault, CommitOrigin, Ending, TransactionError, TransactionOptions, TransactionRole,
};

use crate::error::{ArgumentError, DriverError as _, Error, ErrorKind, WriteConcernError};
use crate::machines::Host;
use crate::machines::client_tasks::ClientTasks;
use crate::machines::runtime::Runtime;
use crate::operations::request::{Request, Target};
use crate::operations::session::{ClientSession, DriverSession, SessionGuard};

/// The time that a server gets to abort a transaction that nothing waits for, where `timeoutMS`
/// says nothing.
const ABORT_TIMEOUT: Duration = Duration::from_secs(10);

/// A session whose calls have a thread wait.
pub trait ThreadSession {
    /// The runtime of its client.
    type Runtime: Runtime;

    /// Returns the session.
    fn session(&self) -> &ClientSession<Self::Runtime>;

    /// Has this thread wait for a future.
    fn wait<T>(&self, future: impl Future<Output = T>) -> T;
}

/// The start of a transaction, see [`ClientSession::start_transaction`]. `S` is the session.
#[derive(Debug)]
#[must_use = "a transaction does not start until this is awaited, or run"]
pub struct StartTransaction<S> {
    pub(crate) session: S,
    pub(crate) options: TransactionOptions,
    /// `timeoutMS` of a transaction that is run as a whole.
    pub(crate) timeout: Option<Duration>,
}

impl<S> StartTransaction<S> {
    /// Sets which data its reads see; by default that of the session, or of the client.
    pub fn read_concern(mut self, concern: ReadConcern) -> Self {
        self.options = self.options.with_read_concern(concern);
        self
    }

    /// Sets when its commit counts as done; by default as the session or the client says.
    pub fn write_concern(mut self, concern: WriteConcern) -> Self {
        self.options = self.options.with_write_concern(concern);
        self
    }

    /// Sets which member it reads from, which must be the primary.
    pub fn read_preference(mut self, preference: ReadPreference) -> Self {
        self.options = self.options.with_read_preference(preference);
        self
    }

    /// Sets how long the server may take for the commit, in whole milliseconds; deprecated in
    /// favour of `timeoutMS`.
    pub fn max_commit_time(mut self, time: Duration) -> Self {
        self.options = self.options.with_max_commit_time(time);
        self
    }

    /// Sets all options.
    pub fn with_options(mut self, options: impl Into<Option<TransactionOptions>>) -> Self {
        self.options = options.into().unwrap_or_default();
        self
    }
}

impl<R: Runtime> StartTransaction<&ClientSession<R>> {
    /// Starts the transaction at once: nothing is sent, and nothing is waited for.
    ///
    /// # Errors
    ///
    /// Fails if a transaction is in progress, if the session reads from a snapshot, has ended or is
    /// in use, and if its commit would not be acknowledged.
    pub fn run(self) -> Result<(), Error> {
        let host = self.session.host().ok_or(TransactionError::SessionEnded)?;
        let mut guard = self.session.try_acquire().ok_or(ArgumentError::SessionInUse)?;
        start_with(&host, &mut guard, self.options)
    }
}

impl<S: ThreadSession> StartTransaction<&S> {
    /// Starts the transaction: nothing is sent. Waits for an operation that uses the session.
    ///
    /// # Errors
    ///
    /// Fails if a transaction is in progress, if the session reads from a snapshot, has ended or
    /// stays in use, and if its commit would not be acknowledged.
    pub fn run(self) -> Result<(), Error> {
        self.session.wait(start(self.session.session(), self.options))
    }
}

impl<S> StartTransaction<S> {
    /// Starts it in another form of the session.
    pub fn on<T>(self, session: T) -> StartTransaction<T> {
        StartTransaction { session, options: self.options, timeout: self.timeout }
    }
}

impl<S> EndTransaction<S> {
    /// Ends it in another form of the session.
    pub fn on<T>(self, session: T) -> EndTransaction<T> {
        EndTransaction { session, role: self.role, timeout: self.timeout }
    }
}

impl<S: ThreadSession> EndTransaction<&S> {
    /// Ends the transaction, and has this thread wait for that.
    ///
    /// # Errors
    ///
    /// Fails as the method says that has made the action.
    pub fn run(self) -> Result<(), Error> {
        let (session, thread) = (self.session.session(), self.session);
        thread.wait(end_by(session, self.role, self.timeout))
    }
}

async fn end_by<R: Runtime>(
    session: &ClientSession<R>,
    role: TransactionRole,
    of_call: Option<Duration>,
) -> Result<(), Error> {
    let host = session.host().ok_or(TransactionError::SessionEnded)?;
    let timeout = limit_of(&host, session, of_call);
    end(&host, session, role, timeout).await
}

/// Starts a transaction, once no other operation uses the session.
pub(crate) async fn start<R: Runtime>(
    session: &ClientSession<R>,
    options: TransactionOptions,
) -> Result<(), Error> {
    let host = session.host().ok_or(TransactionError::SessionEnded)?;
    let mut guard = session.acquire(&host, limit_of(&host, session, None)).await?;
    start_with(&host, &mut guard, options)
}

fn start_with<R: Runtime>(
    host: &Host<R>,
    guard: &mut SessionGuard<R>,
    options: TransactionOptions,
) -> Result<(), Error> {
    guard.is_registered(host);
    guard.start_transaction(options, &of_client(host))?;
    // "The session MUST be unpinned before performing server selection for the first operation of
    // the new transaction".
    guard.pin = None;
    guard.begin_span(host);
    Ok(())
}

impl<'a, R: Runtime> IntoFuture for StartTransaction<&'a ClientSession<R>> {
    type Output = Result<(), Error>;
    type IntoFuture = TransactionFuture<'a>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(start(self.session, self.options))
    }
}

/// Returns the options that the transactions of a client have by default.
fn of_client<R: Runtime>(host: &Host<R>) -> TransactionOptions {
    let options = host.options();
    let level = options.read_concern_level().map(ToOwned::to_owned);
    let read_concern = ReadConcern::default().with_level(level);
    let write_concern = options.write_concern();
    TransactionOptions::default()
        .with_read_concern((!read_concern.is_server_default()).then_some(read_concern))
        .with_write_concern((!write_concern.is_server_default()).then(|| write_concern.clone()))
        .with_read_preference(options.read_preference().clone())
}

/// The end of a transaction, see [`ClientSession::commit_transaction`] and
/// [`ClientSession::abort_transaction`]. `S` is the session.
#[derive(Debug)]
#[must_use = "a transaction does not end until this is awaited, or run"]
pub struct EndTransaction<S> {
    pub(crate) session: S,
    pub(crate) role: TransactionRole,
    pub(crate) timeout: Option<Duration>,
}

impl<S> EndTransaction<S> {
    /// Sets its `timeoutMS`, zero for none; by default that of the session, or of the client.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }
}

/// The future of a [`StartTransaction`] or an [`EndTransaction`].
pub type TransactionFuture<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'a>>;

impl<'a, R: Runtime> IntoFuture for EndTransaction<&'a ClientSession<R>> {
    type Output = Result<(), Error>;
    type IntoFuture = TransactionFuture<'a>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(end_by(self.session, self.role, self.timeout))
    }
}

/// Returns the limit of the end of a transaction: `timeoutMS` of the call, of the session or of the
/// client; what is left, where that is [run as a whole](StartTransaction::and_run).
pub(crate) fn limit_of<R: Runtime>(
    host: &Host<R>,
    session: &ClientSession<R>,
    of_call: Option<Duration>,
) -> Timeout {
    if let Some(deadline) = session.deadline() {
        return Timeout::At(deadline);
    }
    Timeout::new(host.runtime().now(), limit(host, session, of_call))
}

/// Returns `timeoutMS` of a call, of the session or of the client.
pub(crate) fn limit<R: Runtime>(
    host: &Host<R>,
    session: &ClientSession<R>,
    of_call: Option<Duration>,
) -> Option<Duration> {
    of_call.or(session.options().default_timeout).or(host.options().timeout())
}

/// Ends the transaction of a session, once no other operation uses that.
pub(crate) async fn end<R: Runtime>(
    host: &Host<R>,
    session: &ClientSession<R>,
    role: TransactionRole,
    timeout: Timeout,
) -> Result<(), Error> {
    let mut guard = session.acquire(host, timeout).await?;
    let ending = begin_end(&mut guard, role)?;
    finish_end(host, &mut guard, (role, ending), timeout).await
}

/// Begins the end of a transaction; says whether a command is to be sent for it.
pub(crate) fn begin_end<R: Runtime>(
    guard: &mut SessionGuard<R>,
    role: TransactionRole,
) -> Result<Ending, TransactionError> {
    match role {
        TransactionRole::Commit => guard.begin_commit(),
        _ => guard.transaction_mut().begin_abort(),
    }
}

pub(crate) async fn finish_end<R: Runtime>(
    host: &Host<R>,
    guard: &mut SessionGuard<R>,
    (role, ending): (TransactionRole, Ending),
    timeout: Timeout,
) -> Result<(), Error> {
    let ended = match ending {
        Ending::Send => send(host, guard, role, timeout).await,
        Ending::Nothing => Ok(()),
    };
    guard.end_span();
    if role == TransactionRole::Commit {
        guard.transaction_mut().ended();
        return ended.map_err(|error| commit_failed(host, guard, error));
    }
    if guard.transaction().is_abort_left() {
        // The guard has a task try it once more, at the same mongos.
        return Ok(());
    }
    guard.transaction_mut().ended();
    // "The session MUST be unpinned regardless of whether or the `abortTransaction` command
    // succeeds or fails, or was executed at all", and "drivers MUST NOT propagate errors".
    guard.pin = None;
    Ok(())
}

/// Returns the user and the replica set of the transactions of a client.
pub(crate) fn origin<R: Runtime>(host: &Host<R>) -> CommitOrigin {
    let view = host.view.load();
    let set = view.snapshot.description().set_name.as_deref();
    CommitOrigin::new(host.options().credential(), set)
}

async fn send<R: Runtime>(
    host: &Host<R>,
    guard: &mut SessionGuard<R>,
    role: TransactionRole,
    timeout: Timeout,
) -> Result<(), Error> {
    let command: RawDocumentBuf = match role {
        TransactionRole::Commit => rawdoc! { "commitTransaction": 1 },
        _ => rawdoc! { "abortTransaction": 1 },
    };
    let options = OperationOptions::write().with_retryable(true);
    let message = CommandMessage::new("admin", &command);
    let target = Target::Select(Arc::new(Criteria::write()));
    let request =
        Request::new(message, &options, target).with_session(Some(guard)).with_timeout(timeout);
    let reply = host.operate(request).await?;
    let labels = reply.write_concern_error().map(|error| error.labels.clone()).unwrap_or_default();
    let checked = WriteConcernError::check(&reply).map_err(|error| error.with_labels(&labels));
    checked.map_err(|error| guard.explain(host, message.name(), error))
}

/// Returns what the error of a commit says of the transaction.
pub(crate) fn commit_fault<R: Runtime>(guard: &SessionGuard<R>, error: &Error) -> CommitFault {
    CommitFault {
        code: error.code(),
        is_transient: error.has_label(TRANSIENT_TRANSACTION),
        is_unknown: error.has_label(UNKNOWN_COMMIT_RESULT),
        elapsed: guard.since_commit(),
    }
}

/// Adds to the error of a commit that it leaves open what became of the transaction, and the token
/// by which that is asked for, if it does.
fn commit_failed<R: Runtime>(
    host: &Host<R>,
    guard: &mut SessionGuard<R>,
    mut error: Error,
) -> Error {
    // What is refused here is refused each time.
    if error.kind() == ErrorKind::Invalid {
        return error;
    }
    let fault = commit_fault(guard, &error);
    if !guard.transaction_mut().commit_failed(&fault) {
        return error;
    }
    if !fault.is_unknown {
        error.commit_is_unknown();
    }
    error.with_commit_token(guard.commit_token(origin(host)))
}

/// Has a task of the client's abort the transaction of a session, which is given back then; nothing
/// waits for that.
pub(crate) fn abort_in_background<R: Runtime>(
    host: &Arc<Host<R>>,
    tasks: &Arc<ClientTasks>,
    mut guard: SessionGuard<R>,
) {
    guard.works_in_background();
    // It counts as aborted from now on, whatever becomes of the task.
    let role = TransactionRole::Abort;
    let Ok(ending) = guard.transaction_mut().begin_abort_of_left() else { return };
    let limit = guard.options().default_timeout.or(host.options().timeout());
    let running = host.shared.activity.begin();
    let (of_task, aborting) = (Arc::clone(host), host.transactions.begin_abort());
    let abort = async move {
        let _aborting = aborting;
        let limit = limit.filter(|limit| !limit.is_zero()).unwrap_or(ABORT_TIMEOUT);
        let timeout = Timeout::At(of_task.runtime().now() + limit);
        let _ = finish_end(&of_task, &mut guard, (role, ending), timeout).await;
    };
    host.runtime().spawn(Box::pin(tasks.begin(Box::pin(abort), running)));
}
