//! Sessions as applications and operations hold them, and the pool of servers' sessions that a
//! client has.
//!
//! Implements Driver Sessions; what a session is and has seen is a value of core.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::pin::pin;
use std::sync::{Arc, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bson::{RawDocument, RawDocumentBuf, Timestamp};
use sdam_core::config::{Acknowledgment, ServerAddress};
use sdam_core::operation::{
    CommandMessage, InvalidCommand, OperationError, RETRYABLE, SYSTEM_OVERLOADED, Sending,
    TRANSIENT_TRANSACTION, Timeout,
};
use sdam_core::session::{
    AttemptFailure, ClusterTime, ClusterTimeError, ServerSession, Session, SessionError,
    SessionOptions, SessionTimeout, TransactionOptions, TransactionRole, TransactionState,
};
use sdam_core::spans::{SpanEnd, SpanStart};
use sdam_core::time::Instant;

use crate::error::{ArgumentError, Error, Reported, TRANSACTION_IN_USE};
use crate::machines::Host;
use crate::machines::client_tasks::ClientTasks;
use crate::machines::runtime::Runtime;
use crate::machines::sleep::sleep_until;
use crate::machines::transactions::HasTransactions;
use crate::observe::spans::{OperationSpan, Span};
use crate::operations::convenient::CallbackError;
use crate::operations::exchange::{ExchangeError, Reply};
use crate::operations::pinned::Pinned;
use crate::operations::transaction::{self, EndTransaction, StartTransaction};
use crate::sync::{Mutex, MutexGuard, lock, wake_all};

/// A session: operations that are run with it one after the other, and the times that they have
/// seen (Driver Sessions).
///
/// `Client::start_session` starts one; handles that were made with it, by `with_session`, run their
/// operations in it, and so do the cursors that these open. One operation uses it at a time;
/// another one that comes meanwhile waits until that has ended, within
/// `serverSelectionTimeoutMS`, and then fails with [`SessionAccessError::InUse`]; if its
/// `timeoutMS` is over before, with [`SessionAccessError::TimedOut`]. As an [`Error`], both are a
/// [session in use](Error::is_session_in_use), and the latter is a time-out. Clones are the same
/// session.
///
/// Unless its options say otherwise, it is causally consistent: its reads see what it has written,
/// and what it has read before. Writes that are not acknowledged cannot be run with it. One that is
/// not used for a minute after it was started may be unknown to the servers when it is.
///
/// It ends when [`end`](Self::end) is called, or when the last clone, handle and cursor of it is
/// dropped; both wait for nothing, and the servers' session is used again.
pub struct ClientSession<R: Runtime> {
    shared: Arc<SharedSession<R>>,
}

/// The reason why a session cannot be used, or looked at.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SessionAccessError {
    /// Another operation uses it, and has not given it back within `serverSelectionTimeoutMS`.
    #[error("the session is in use by another operation")]
    InUse,
    /// Another operation uses it, and has not given it back within `timeoutMS`.
    #[error(
        "the operation has waited {} ms for its session, which another operation uses, and its \
         timeoutMS is over; nothing was sent",
        .waited.as_millis()
    )]
    TimedOut {
        /// The time for which the operation has waited.
        waited: Duration,
    },
    /// Another operation of its transaction uses it: those run one after the other.
    #[error("{}", TRANSACTION_IN_USE)]
    InTransaction,
    /// A time that is no `$clusterTime` as a server gave it out.
    #[error(transparent)]
    ClusterTime(#[from] ClusterTimeError),
}

impl From<SessionAccessError> for Error {
    fn from(error: SessionAccessError) -> Self {
        match error {
            SessionAccessError::InUse => ArgumentError::SessionInUse.into(),
            SessionAccessError::InTransaction => ArgumentError::TransactionInUse.into(),
            SessionAccessError::TimedOut { waited } => Reported::SessionTimeout { waited }.into(),
            SessionAccessError::ClusterTime(error) => error.into(),
        }
    }
}

/// The time for which an operation lets those go first that have waited for its session longer:
/// enough for a task that was woken.
const COURTESY: Duration = Duration::from_millis(1);

struct SharedSession<R: Runtime> {
    host: Weak<Host<R>>,
    id: Option<RawDocumentBuf>,
    options: SessionOptions,
    /// The tasks of the client, one of which may have to abort a transaction.
    tasks: Weak<ClientTasks>,
    slot: Mutex<Slot<R>>,
}

struct Slot<R: Runtime> {
    /// The session; `None` while an operation uses it.
    session: Option<Session>,
    /// The place that the commands of its transaction go to, if it is pinned.
    pin: Option<Pinned<R>>,
    /// True while an operation uses it that belongs to a transaction.
    is_in_transaction: bool,
    /// The span of its transaction.
    span: OperationSpan,
    /// Present while a transaction is [run as a whole](crate::StartTransaction::and_run).
    whole: Option<Whole>,
    /// True if it ends as soon as it comes back.
    is_ending: bool,
    /// True if its transaction is aborted as soon as it comes back.
    is_aborting: bool,
    /// True once it has had a transaction.
    has_transactions: bool,
    /// Those who wait for it, in the order in which they came.
    waiting: BTreeMap<u64, Waker>,
    /// True from when it came back while others waited until one of those has taken it.
    is_owed: bool,
    last: u64,
}

/// A transaction that is run as a whole.
#[derive(Clone, Copy)]
struct Whole {
    /// By when its operations are to end, if it has a limit.
    deadline: Option<Instant>,
}

impl<R: Runtime> Slot<R> {
    /// Ends the session, unless an operation uses it.
    fn end(&mut self) -> EndedSession<R> {
        let Some(session) = &mut self.session else { return EndedSession::default() };
        let in_transaction = session.end_with_transaction();
        let server_session = session.end();
        let span = std::mem::replace(&mut self.span, OperationSpan::NONE);
        EndedSession { server_session, in_transaction, pin: self.pin.take(), span }
    }
}

/// The remains of a session that has ended.
struct EndedSession<R: Runtime> {
    server_session: Option<ServerSession>,
    /// The part of it that is still to abort a transaction, with the servers' session.
    in_transaction: Option<Session>,
    pin: Option<Pinned<R>>,
    span: OperationSpan,
}

impl<R: Runtime> Default for EndedSession<R> {
    fn default() -> Self {
        Self { server_session: None, in_transaction: None, pin: None, span: OperationSpan::NONE }
    }
}

/// The wait of an operation for its turn.
struct Turn<'a, R: Runtime> {
    home: &'a ClientSession<R>,
    /// Its number, once it waits.
    number: Option<u64>,
}

/// A session that an operation uses; dropping it gives it back.
pub struct SessionGuard<R: Runtime> {
    /// Present until dropped.
    session: Option<Session>,
    /// The place that the commands of its transaction go to, if it is pinned.
    pub(crate) pin: Option<Pinned<R>>,
    home: ClientSession<R>,
}

/// Takes a session of the servers from the client's pool.
fn take_session<R: Runtime>(host: &Host<R>) -> ServerSession {
    let (now, timeout) = (host.shared.runtime.now(), session_timeout(host));
    lock(&host.sessions).take(now, timeout)
}

/// Says when servers forget a session that is not used, as far as the topology knows: nothing is
/// known of it behind a load balancer.
pub(crate) fn session_timeout<R: Runtime>(host: &Host<R>) -> SessionTimeout {
    match host.shared.options.load_balanced() {
        true => SessionTimeout::Never,
        false => {
            let view = host.view.load();
            let minutes = view.snapshot.description().logical_session_timeout_minutes;
            SessionTimeout::of_minutes(minutes)
        }
    }
}

/// Empties the client's pool, and returns the commands that end its sessions.
pub(crate) fn end_sessions<R: Runtime>(host: &Host<R>) -> Vec<RawDocumentBuf> {
    match host.shared.process.is_current() {
        true => lock(&host.sessions).end_all(),
        false => Vec::new(),
    }
}

impl<R: Runtime> ClientSession<R> {
    /// Starts a session of the application's.
    pub(crate) fn start(
        host: &Host<R>,
        tasks: &Arc<ClientTasks>,
        options: SessionOptions,
    ) -> Result<Self, SessionError> {
        let mut session = Session::new(options)?;
        if host.shared.process.is_current() {
            session.server_session_or(|| take_session(host));
        }
        Ok(Self::new(host, session, Arc::downgrade(tasks)))
    }

    /// Holds a session that ends as soon as it is given back, whatever becomes of its transaction.
    pub(crate) fn ending(
        host: &Host<R>,
        session: Session,
        pin: Option<Pinned<R>>,
        span: OperationSpan,
    ) -> SessionGuard<R> {
        let home = Self::new(host, session, Weak::new());
        let mut slot = home.slot();
        (slot.is_ending, slot.span) = (true, span);
        let session = slot.session.take();
        drop(slot);
        SessionGuard { session, pin, home }
    }

    fn new(host: &Host<R>, session: Session, tasks: Weak<ClientTasks>) -> Self {
        let id = session.server_session().map(|session| session.id().document().to_owned());
        let (host, options) = (Weak::clone(&host.me), session.options().clone());
        let (waiting, last) = (BTreeMap::new(), 0);
        let slot = Slot {
            session: Some(session),
            pin: None,
            is_in_transaction: false,
            span: OperationSpan::NONE,
            whole: None,
            is_ending: false,
            is_aborting: false,
            has_transactions: false,
            waiting,
            is_owed: false,
            last,
        };
        let slot = Mutex::new(slot);
        Self { shared: Arc::new(SharedSession { host, id, options, tasks, slot }) }
    }

    async fn wait(
        &self,
        host: &Host<R>,
        timeout: Timeout,
    ) -> Result<SessionGuard<R>, SessionAccessError> {
        let begun = host.runtime().now();
        if self.slot().is_owed {
            self.give_way(host, begun).await;
        }
        if let Some(guard) = self.try_acquire() {
            return Ok(guard);
        }
        if self.slot().is_in_transaction {
            return Err(SessionAccessError::InTransaction);
        }
        // An operation that comes to no end, such as a future that is kept and not polled, holds
        // up no other for ever.
        let most = begun + host.options().server_selection_timeout();
        let deadline = timeout.deadline().filter(|deadline| *deadline <= most);
        let until = deadline.unwrap_or(most);
        let mut turn = Turn { home: self, number: None };
        let mut late = pin!(sleep(host, until));
        std::future::poll_fn(|cx| match turn.poll(cx) {
            Poll::Ready(guard) => Poll::Ready(Ok(guard)),
            Poll::Pending => late.as_mut().poll(cx).map(|()| {
                let now = host.runtime().now();
                // The wait ends with the client, too.
                Err(match deadline.is_some_and(|deadline| deadline <= now) {
                    true => SessionAccessError::TimedOut { waited: now - begun },
                    false => SessionAccessError::InUse,
                })
            }),
        })
        .await
    }

    /// Lets the tasks that wait for the session take it, unless they are not polled.
    async fn give_way(&self, host: &Host<R>, now: Instant) {
        let mut pause = pin!(sleep(host, now + COURTESY));
        std::future::poll_fn(|cx| {
            let is_owed = self.slot().is_owed;
            if is_owed { pause.as_mut().poll(cx) } else { Poll::Ready(()) }
        })
        .await;
        self.slot().is_owed = false;
    }

    fn guard(&self, slot: &mut Slot<R>) -> Option<SessionGuard<R>> {
        let session = slot.session.take()?;
        slot.is_in_transaction = session.transaction().is_active();
        Some(SessionGuard { session: Some(session), pin: slot.pin.take(), home: self.clone() })
    }

    fn slot(&self) -> MutexGuard<'_, Slot<R>> {
        lock(&self.shared.slot)
    }

    /// Looks at the session unless an operation uses it.
    fn look<T>(&self, look: impl FnOnce(&mut Session) -> T) -> Result<T, SessionAccessError> {
        let mut slot = self.slot();
        Ok(look(slot.session.as_mut().ok_or(SessionAccessError::InUse)?))
    }
}

/// The methods of a [`ClientSession`] that drivers call, for whose operations it is.
pub trait DriverSession<R: Runtime>: sealed::Session + Sized {
    /// Starts the session of one operation that was given none, and of the cursor that this opens.
    /// It costs nothing before a command with it is sent.
    fn implicit(host: &Host<R>) -> Self;

    /// Returns whether this is its last handle.
    fn is_last(&self) -> bool;

    /// Takes the session for an operation of a client, which waits for the one that uses it, and
    /// lets those go first that have waited longer: a session is for one after another, but
    /// "Drivers MUST NOT attempt to detect simultaneous use" (Driver Sessions, "ClientSession").
    ///
    /// # Errors
    ///
    /// Fails if another operation does not give it back in time.
    fn acquire(
        &self,
        host: &Host<R>,
        timeout: Timeout,
    ) -> impl Future<Output = Result<SessionGuard<R>, SessionAccessError>> + Send;

    /// Takes the session unless an operation uses it.
    fn try_acquire(&self) -> Option<SessionGuard<R>>;

    /// Returns by when its operations are to end that run a transaction as a whole, if that has a
    /// limit (Client Side Operations Timeout, "Convenient Transactions API").
    fn deadline(&self) -> Option<Instant>;

    /// Fails if no transaction is in progress, or one whose commit need not wait for a majority, so
    /// that a token that is saved within may be undone.
    ///
    /// # Errors
    ///
    /// Fails as it says.
    fn check_checkpoint(&self) -> Result<(), ArgumentError>;

    /// Returns the server that its transaction is pinned to: a mongos, or a load balancer over one
    /// connection. `None` while an operation uses the session.
    fn pinned_server(&self) -> Option<ServerAddress>;
}

mod sealed {
    /// Only this crate has sessions.
    pub trait Session {}

    impl<R: crate::Runtime> Session for crate::ClientSession<R> {}
}

impl<R: Runtime> DriverSession<R> for ClientSession<R> {
    fn implicit(host: &Host<R>) -> Self {
        Self::new(host, Session::implicit(), Weak::new())
    }

    fn is_last(&self) -> bool {
        Arc::strong_count(&self.shared) == 1
    }

    async fn acquire(
        &self,
        host: &Host<R>,
        timeout: Timeout,
    ) -> Result<SessionGuard<R>, SessionAccessError> {
        let free = {
            let mut slot = self.slot();
            if slot.is_owed { None } else { self.guard(&mut slot) }
        };
        match free {
            Some(guard) => Ok(guard),
            None => self.wait(host, timeout).await,
        }
    }

    fn try_acquire(&self) -> Option<SessionGuard<R>> {
        self.guard(&mut self.slot())
    }

    fn deadline(&self) -> Option<Instant> {
        self.slot().whole?.deadline
    }

    fn check_checkpoint(&self) -> Result<(), ArgumentError> {
        let checked = self.look(|session| {
            let transaction = session.transaction();
            let concern = transaction.options().write_concern.as_ref();
            let w = concern.and_then(|concern| concern.w.as_ref());
            // A mode that the set defines may ask for one member only.
            match transaction.is_active() {
                true if w == Some(&Acknowledgment::from("majority")) => Ok(()),
                true => Err(ArgumentError::CheckpointConcern),
                false => Err(ArgumentError::CheckpointOutside),
            }
        });
        // The operation says what keeps it from its session.
        checked.unwrap_or(Ok(()))
    }

    fn pinned_server(&self) -> Option<ServerAddress> {
        self.slot().pin.as_ref().map(|pin| pin.server().clone())
    }
}

/// Waits until a time, or until the client is closed; in a process that was forked off, not at all.
async fn sleep<R: Runtime>(host: &Host<R>, until: Instant) {
    if host.shared.process.is_current() {
        sleep_until(&host.shared, until).await;
    }
}

impl<R: Runtime> ClientSession<R> {
    /// Returns the session's name, `{ id: <UUID> }`, that commands carry as `lsid`; `None` if it
    /// was started in a process that has been forked off from that of its client, or for an
    /// operation that was given none.
    pub fn id(&self) -> Option<&RawDocument> {
        self.shared.id.as_deref()
    }

    /// Returns what the session was started with.
    pub fn options(&self) -> &SessionOptions {
        &self.shared.options
    }

    /// Returns the latest cluster time that the session has received or was given.
    ///
    /// # Errors
    ///
    /// Fails if an operation uses the session.
    pub fn cluster_time(&self) -> Result<Option<RawDocumentBuf>, SessionAccessError> {
        self.look(|session| session.cluster_time().map(|time| time.document().to_owned()))
    }

    /// Has the session see at least what another has seen: its [`cluster_time`](Self::cluster_time)
    /// (Driver Sessions, "advanceClusterTime"). That of the client is left as it is.
    ///
    /// # Errors
    ///
    /// Fails if it is no `$clusterTime` as a server gave it out, and if an operation uses the
    /// session.
    pub fn advance_cluster_time(&self, time: &RawDocument) -> Result<(), SessionAccessError> {
        let time = ClusterTime::parse(time)?;
        self.look(|session| session.advance_cluster_time(time))
    }

    /// Returns the time of the last operation, as its server has reported it.
    ///
    /// # Errors
    ///
    /// Fails if an operation uses the session.
    pub fn operation_time(&self) -> Result<Option<Timestamp>, SessionAccessError> {
        self.look(|session| session.operation_time())
    }

    /// Has reads of the session see at least what was done at this time, the
    /// [`operation_time`](Self::operation_time) of another session.
    ///
    /// # Errors
    ///
    /// Fails if an operation uses the session.
    pub fn advance_operation_time(&self, time: Timestamp) -> Result<(), SessionAccessError> {
        self.look(|session| session.advance_operation_time(time))
    }

    /// Returns the time of the snapshot that reads see, once it is known.
    ///
    /// # Errors
    ///
    /// Fails if an operation uses the session.
    pub fn snapshot_time(&self) -> Result<Option<Timestamp>, SessionAccessError> {
        self.look(|session| session.snapshot_time())
    }

    /// Returns whether a network error came upon a command of the session, or a caller gave one up
    /// before its reply, so that the servers' session is not used again when this one has ended.
    ///
    /// # Errors
    ///
    /// Fails if an operation uses the session.
    pub fn is_dirty(&self) -> Result<bool, SessionAccessError> {
        self.look(|session| session.server_session().is_some_and(ServerSession::is_dirty))
    }

    pub(crate) fn is_of(&self, host: &Host<R>) -> bool {
        std::ptr::eq(self.shared.host.as_ptr(), host)
    }

    /// Returns the state of the session's transaction.
    ///
    /// # Errors
    ///
    /// Fails if an operation uses the session.
    pub fn transaction_state(&self) -> Result<TransactionState, SessionAccessError> {
        self.look(|session| session.transaction().state())
    }

    /// Begins to run a transaction as a whole, whose operations are to end by then.
    pub(crate) fn begin_whole(&self, deadline: Option<Instant>) {
        self.slot().whole = Some(Whole { deadline });
    }

    /// Takes note that a transaction was run as a whole, with all attempts; returns its span.
    pub(crate) fn end_whole(&self) -> OperationSpan {
        let mut slot = self.slot();
        slot.whole = None;
        std::mem::replace(&mut slot.span, OperationSpan::NONE)
    }

    /// Aborts the transaction of the session in the background, if one is in progress, or its end
    /// was given up before it has come to a server: at once, or as soon as the operation has ended
    /// that uses the session. `committing` says whether its commit was given up.
    pub(crate) fn abort_when_free(&self, committing: bool) {
        let mut slot = self.slot();
        match self.guard(&mut slot) {
            Some(guard) => {
                drop(slot);
                let transaction = guard.transaction();
                let is_left = transaction.is_left_open()
                    && (committing || transaction.state() != TransactionState::Committed);
                if transaction.is_active() || is_left {
                    self.shared.abort(guard);
                }
            }
            None => slot.is_aborting = true,
        }
    }

    /// Returns what operations are to be nested in.
    pub(crate) fn span(&self) -> Option<Arc<dyn Span>> {
        self.slot().span.shared()
    }

    /// Returns the host, unless the client is no more.
    pub(crate) fn host(&self) -> Option<Arc<Host<R>>> {
        self.shared.host.upgrade()
    }

    /// Ends the session, at the latest when the operation has ended that uses it; operations with
    /// it fail from then on. Another call does nothing.
    ///
    /// A transaction in progress is aborted in the background, as is one whose commit has come to
    /// no server: nothing waits for that.
    pub fn end(&self) {
        let mut slot = self.slot();
        slot.is_ending = true;
        let ended = slot.end();
        drop(slot);
        self.shared.finish(ended);
    }
}

impl<R: Runtime> ClientSession<R> {
    /// Starts a transaction: the operations that follow in this session belong to it, until it is
    /// committed or aborted. Nothing is sent before the first of them.
    ///
    /// Its concerns and its read preference are its own, those of the session's
    /// [`default_transaction_options`], or those of the client; those of databases, collections and
    /// operations do not count. It lasts for a minute at most, unless the servers are
    /// configured otherwise. Operations in it run one after the other.
    ///
    /// [`default_transaction_options`]:
    ///     sdam_core::session::SessionOptions::default_transaction_options
    ///
    /// ```
    /// # use sdam_core::config::ReadConcern;
    /// # use sdam_host::{ClientSession, Error, Runtime};
    /// # async fn example<R: Runtime>(session: ClientSession<R>) -> Result<(), Error> {
    /// session.start_transaction().read_concern(ReadConcern::snapshot()).await?;
    /// // Operations with `.session(&session)`.
    /// session.commit_transaction().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The action fails if a transaction is in progress, if the session reads from a snapshot, has
    /// ended or is in use, and if the commit would not be acknowledged.
    pub fn start_transaction(&self) -> StartTransaction<&Self> {
        let options = TransactionOptions::default();
        StartTransaction { session: self, options, timeout: None }
    }

    /// Commits the transaction; another call commits it again, for the majority of the members.
    ///
    /// # Errors
    ///
    /// The action fails if there is no transaction, or it was aborted, and if the commit fails. If
    /// the error has the label
    /// [`UNKNOWN_COMMIT_RESULT`](sdam_core::operation::UNKNOWN_COMMIT_RESULT), the transaction may
    /// have been committed: commit it again. If it has the label
    /// [`TRANSIENT_TRANSACTION`](sdam_core::operation::TRANSIENT_TRANSACTION), it was not, and may
    /// be run again as a whole.
    pub fn commit_transaction(&self) -> EndTransaction<&Self> {
        EndTransaction { session: self, role: TransactionRole::Commit, timeout: None }
    }

    /// Aborts the transaction: nothing of it remains.
    ///
    /// # Errors
    ///
    /// The action fails if there is no transaction in progress. What servers say does not matter:
    /// they abort what they do not hear of.
    pub fn abort_transaction(&self) -> EndTransaction<&Self> {
        EndTransaction { session: self, role: TransactionRole::Abort, timeout: None }
    }

    /// Runs a transaction as a whole with the session's options: see
    /// [`StartTransaction::and_run`], which says what the callback must and must not do.
    ///
    /// # Errors
    ///
    /// Fails as [`StartTransaction::and_run`] does.
    pub async fn with_transaction<T, E, F>(&self, callback: impl FnMut(Self) -> F) -> Result<T, E>
    where
        E: CallbackError,
        F: Future<Output = Result<T, E>>,
    {
        self.start_transaction().and_run(callback).await
    }
}

impl<R: Runtime> SharedSession<R> {
    /// Has a task abort the transaction of a session, if there is something to be aborted, and if
    /// there still are tasks.
    fn abort(&self, guard: SessionGuard<R>) {
        let host = self.host.upgrade().filter(|host| host.shared.process.is_current());
        if let Some((host, tasks)) = host.zip(self.tasks.upgrade()) {
            transaction::abort_in_background(&host, &tasks, guard);
        }
    }

    /// Does what is left to be done of a session that has ended: it goes back to the pool, by the
    /// task that aborts its transaction if there is one, and if there still are tasks. The servers
    /// abort what they do not hear of.
    fn finish(&self, ended: EndedSession<R>) {
        let EndedSession { mut server_session, in_transaction, pin, span } = ended;
        if let Some(mut session) = in_transaction {
            let host = self.host.upgrade().filter(|host| host.shared.process.is_current());
            if let Some((host, tasks)) = host.zip(self.tasks.upgrade()) {
                let guard = ClientSession::ending(&host, session, pin, span);
                return transaction::abort_in_background(&host, &tasks, guard);
            }
            server_session = session.end();
        }
        drop((pin, span));
        self.give_back(server_session);
    }

    /// Gives a session of the servers back to the client's pool.
    fn give_back(&self, session: Option<ServerSession>) {
        // "drivers MUST ensure that sessions already checked out are not returned to the new pool";
        // in a process that was forked off, the pool may be locked for ever.
        if let Some(session) = session
            && let Some(host) = self.host.upgrade().filter(|host| host.shared.process.is_current())
        {
            let (now, timeout) = (host.shared.runtime.now(), session_timeout(&host));
            lock(&host.sessions).give_back(now, timeout, session);
        }
    }
}

impl<R: Runtime> Drop for SharedSession<R> {
    fn drop(&mut self) {
        let key = std::ptr::from_ref(self) as usize;
        let slot = self.slot.get_mut().unwrap_or_else(PoisonError::into_inner);
        let (ended, has_transactions) = (slot.end(), slot.has_transactions);
        let host = self.host.upgrade().filter(|host| host.shared.process.is_current());
        if let Some(host) = host.filter(|_| has_transactions) {
            host.transactions.remove(key);
        }
        self.finish(ended);
    }
}

impl<R: Runtime> HasTransactions for SharedSession<R> {
    fn abort_left(self: Arc<Self>) {
        ClientSession { shared: self }.abort_when_free(true);
    }
}

impl<R: Runtime> SessionGuard<R> {
    pub(crate) fn is_of(&self, host: &Host<R>) -> bool {
        self.home.is_of(host)
    }

    /// Returns the session as applications hold it.
    pub(crate) const fn home(&self) -> &ClientSession<R> {
        &self.home
    }

    /// Begins the span of a transaction; one that is run as a whole has one for all attempts.
    pub(crate) fn begin_span(&self, host: &Host<R>) {
        let has_one = self.home.slot().span.shared().is_some();
        if !has_one {
            let span = OperationSpan::begin(host.shared.spans(), None, SpanStart::of_transaction);
            self.home.slot().span = span;
        }
    }

    /// Ends the span of a transaction that is not run as a whole.
    pub(crate) fn end_span(&self) {
        let mut slot = self.home.slot();
        if slot.whole.is_none() {
            let span = std::mem::replace(&mut slot.span, OperationSpan::NONE);
            drop(slot);
            span.end_with(SpanEnd::default);
        }
    }

    /// Begins a command: returns the place that it goes to if the session is pinned in a
    /// transaction. Outside of one, it is pinned no more (Transactions, "When to unpin").
    pub(crate) fn begin_command(&mut self) -> Option<Pinned<R>> {
        let pin = self.pin.take();
        let session = self.session.as_mut()?;
        match session.transaction().role() {
            Some(_) => {
                session.transaction_mut().command_begins();
                pin
            }
            None => {
                session.transaction_mut().begin_operation();
                None
            }
        }
    }

    /// Has the client know the session, to abort what is left open when that is closed.
    pub(crate) fn is_registered(&self, host: &Host<R>) {
        let shared = &self.home.shared;
        if !std::mem::replace(&mut self.home.slot().has_transactions, true) {
            let session: Weak<dyn HasTransactions> = Arc::downgrade(shared) as _;
            host.transactions.add(Arc::as_ptr(shared) as usize, session);
        }
    }

    /// Takes note that it is a task that uses the session from now on, in place of its application:
    /// whose next operation waits for that.
    pub(crate) fn works_in_background(&self) {
        self.home.slot().is_in_transaction = false;
    }

    /// Attaches the session to a command: takes one of the servers if it has none, and the number
    /// of a retryable write, which is the same for every attempt.
    pub(crate) fn attach(
        &mut self,
        host: &Host<R>,
        sending: Sending,
        number: &mut Option<i64>,
    ) -> Result<(), InvalidCommand> {
        // In a process that was forked off, the pool of sessions may be locked for ever.
        host.shared.process.check()?;
        if let Some(server_session) = self.server_session_or(|| take_session(host)) {
            server_session.used(host.runtime().now());
            if sending.transaction_number {
                number.get_or_insert_with(|| server_session.next_transaction_number());
            }
        }
        Ok(())
    }
}

impl<R: Runtime> SessionGuard<R> {
    /// Takes note of the outcome of a command with the session, `was_sent` or not: what a reply
    /// brings, what it means for the transaction, and that a network error makes the servers'
    /// session dirty.
    pub(crate) fn learn(
        &mut self,
        message: &CommandMessage<'_>,
        outcome: &Result<Reply, Box<ExchangeError>>,
        was_sent: bool,
    ) {
        let command = || format!("{} on {}", message.name(), message.database);
        let failed = match outcome {
            Ok(reply) => return self.replied(reply, command),
            Err(failed) => failed,
        };
        match (&failed.error, &failed.reply) {
            // Of a command that was not sent, the connection is as good as before.
            (OperationError::Invalid(_), _) => return,
            (OperationError::Stream(_), _) if !was_sent => return,
            (OperationError::Stream(_), _) => self.mark_dirty(),
            (_, Some(reply)) => self.advance_from_reply(reply),
            _ => {}
        }
        let labels = failed.error.labels();
        let has = |label| labels.contains(&label);
        let failure = match &failed.reply {
            Some(_) if has(SYSTEM_OVERLOADED) && has(RETRYABLE) => AttemptFailure::Overload,
            Some(_) => AttemptFailure::Answered,
            None => AttemptFailure::Lost,
        };
        let transaction = self.transaction_mut();
        transaction.sent();
        // The transaction may succeed when the command is sent again, or all of it is run again.
        if failure != AttemptFailure::Overload && !has(TRANSIENT_TRANSACTION) {
            transaction.command_failed(command);
        }
        transaction.failed(failure);
    }

    /// Takes note that a command was given up which may be with a server: it may still run, as
    /// after a network error, and no other operation may then have its session (Driver Sessions).
    pub(crate) fn given_up(&mut self) {
        self.mark_dirty();
        self.transaction_mut().sent();
        self.transaction_mut().failed(AttemptFailure::Lost);
    }
}

impl<R: Runtime> Drop for SessionGuard<R> {
    fn drop(&mut self) {
        let Some(mut session) = self.session.take() else { return };
        // An end that was given up is over, too; an abort that has come to no server is made by a
        // task, before anything else uses the session.
        let transaction = session.transaction_mut();
        let was_aborting = transaction.role() == Some(TransactionRole::Abort);
        let is_abort_left = was_aborting && transaction.is_abort_left();
        transaction.ended();
        if was_aborting && !is_abort_left {
            // "The session MUST be unpinned regardless of whether [...]".
            self.pin = None;
        }
        let mut slot = self.home.slot();
        if std::mem::take(&mut slot.is_aborting) || is_abort_left {
            drop(slot);
            let (pin, home) = (self.pin.take(), self.home.clone());
            return self.home.shared.abort(Self { session: Some(session), pin, home });
        }
        (slot.session, slot.pin) = (Some(session), self.pin.take());
        let ended = if slot.is_ending { slot.end() } else { EndedSession::default() };
        // Wake all: the first may not be polled.
        let waiting = std::mem::take(&mut slot.waiting);
        slot.is_owed = !waiting.is_empty();
        drop(slot);
        self.home.shared.finish(ended);
        wake_all(waiting.into_values());
    }
}

impl<R: Runtime> Turn<'_, R> {
    fn poll(&mut self, cx: &Context<'_>) -> Poll<SessionGuard<R>> {
        let (home, waker) = (self.home, cx.waker().clone());
        let mut slot = home.slot();
        if let Some(guard) = home.guard(&mut slot) {
            slot.is_owed = false;
            drop(slot);
            return Poll::Ready(guard);
        }
        let number = *self.number.get_or_insert_with(|| {
            slot.last += 1;
            slot.last
        });
        let earlier = slot.waiting.insert(number, waker);
        drop(slot);
        drop(earlier);
        Poll::Pending
    }
}

impl<R: Runtime> Drop for Turn<'_, R> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let waker = self.home.slot().waiting.remove(&number);
            drop(waker);
        }
    }
}

impl<R: Runtime> Deref for SessionGuard<R> {
    type Target = Session;

    fn deref(&self) -> &Session {
        self.session.as_ref().expect("it is there until it is given back")
    }
}

impl<R: Runtime> DerefMut for SessionGuard<R> {
    fn deref_mut(&mut self) -> &mut Session {
        self.session.as_mut().expect("it is there until it is given back")
    }
}

impl<R: Runtime> std::fmt::Debug for SessionGuard<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionGuard").field("session", &self.session).finish_non_exhaustive()
    }
}

impl<R: Runtime> Clone for ClientSession<R> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

/// Two are equal if they are the same session.
impl<R: Runtime> PartialEq for ClientSession<R> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl<R: Runtime> Eq for ClientSession<R> {}

impl<R: Runtime> std::fmt::Debug for ClientSession<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientSession").field("id", &self.shared.id).finish_non_exhaustive()
    }
}
