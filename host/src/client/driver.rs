//! The part of a topology that drivers are built on: the limits of operations, tasks of its own,
//! and what servers keep for it. Applications do without.

use std::sync::Arc;
use std::time::Duration;

use bson::DateTime;
use sdam_core::operation::{KillCursors, OpenCursor, Timeout};
use sdam_core::session::{CommitOutcome, CommitToken, SessionError, SessionOptions};
use sdam_core::time::Instant;

use crate::client::kill_cursors::{self, KillLimits};
use crate::client::{Held, Topology, farewell};
use crate::error::Error;
use crate::machines::Host;
use crate::machines::runtime::Runtime;
use crate::machines::sleep::sleep_until;
use crate::operations::outcome::recover_commit;
use crate::operations::request::Target;
use crate::operations::session::{self, ClientSession, SessionGuard};
use crate::system::wall_clock;

/// The time for sending the servers which sessions are of no more use.
const END_SESSIONS_TIMEOUT: Duration = Duration::from_secs(1);

/// The methods of a [`Topology`] that drivers call, and applications do without: those who build
/// typed operations above it import this trait.
///
/// Operations themselves are [performed](Host::execute) by its [`host`](Self::host).
pub trait DriverTopology<R: Runtime>: sealed::Topology + Sized {
    /// Makes a topology of the host that a runtime has created; applications
    /// [connect](Topology::connect).
    fn from_host(host: Arc<Host<R>>) -> Self;

    /// Returns what all clones share.
    fn host(&self) -> &Arc<Host<R>>;

    /// Waits until a time of [`now`](Topology::now), or until the topology is closed; in a process
    /// that was forked off, not at all.
    fn sleep_until(&self, until: Instant) -> impl Future<Output = ()> + Send;

    /// Returns 64 random bits, for pauses that are not the same for all.
    fn random_bits(&self) -> u64;

    /// Reads the wall clock, for what is stored with its date.
    fn wall_clock(&self) -> DateTime;

    /// Takes notice, for metrics, of the time that a change stream with this number has still to
    /// read; `None` if it has ended.
    fn change_stream_lags(&self, stream: u64, lag: Option<Duration>);

    /// Takes notice, for metrics, that a change stream with this number asks its server, which may
    /// wait so long for a change.
    fn change_stream_waits(&self, stream: u64, await_time: Duration);

    /// Starts a session, see [`ClientSession`].
    ///
    /// # Errors
    ///
    /// Fails if the options exclude each other.
    fn start_session(&self, options: SessionOptions) -> Result<ClientSession<R>, SessionError>;

    /// Asks what became of a transaction whose commit has come to no known end, by committing it
    /// once more, for the majority of the members: a transaction that is still in progress at its
    /// servers is committed by that. `timeout` is as for [`timeout`](Self::timeout).
    ///
    /// # Errors
    ///
    /// Fails with errors that say nothing of the transaction, as if the user may not commit.
    fn recover_commit(
        &self,
        token: &CommitToken,
        timeout: Option<Duration>,
    ) -> impl Future<Output = Result<CommitOutcome, Error>> + Send;

    /// Returns the limit of an operation that begins now: its own `timeoutMS`, where zero lifts it,
    /// or else that of [`with_deadline`](Topology::with_deadline), or else that of the options.
    fn timeout(&self, of_operation: Option<Duration>) -> Timeout;

    /// Returns whether an operation has a limit, or has it lifted: see [`timeout`](Self::timeout).
    fn has_timeout(&self, of_operation: Option<Duration>) -> bool;

    /// Has a task of the runtime's do something with the topology that no caller waits for, such as
    /// to close a cursor at its server.
    ///
    /// The topology that `task` is given keeps none alive: the task is dropped, wherever it waits,
    /// when the topology is closed, also by dropping the last of the others. The thread that closes
    /// or drops it does that, and waits for no executor, unless servers still
    /// [hear](Topology::close) of the end: then it is done after that. In a process that was forked
    /// off, nothing is done.
    fn spawn<F>(&self, task: impl FnOnce(Self) -> F)
    where
        F: Future<Output = ()> + Send + 'static;

    /// Kills cursors at the server that they are open at, and waits for its reply, which says
    /// nothing of use. A session whose name is in the command is not given besides.
    fn kill_cursors(
        &self,
        command: &KillCursors,
        target: Target<'_, R>,
        session: Option<&mut SessionGuard<R>>,
        limits: KillLimits,
    ) -> impl Future<Output = ()> + Send;

    /// Has a task of the runtime's kill a cursor at its server; nothing waits for that.
    ///
    /// There is one such task for each server, which kills cursors of the same collection, session
    /// and time-out with one command. It waits for a server of which nothing is known as other
    /// operations do, for the [time of killing](KillLimits::in_background) at most. Those that come
    /// when [too many](sdam_core::operation::MAX_CURSORS_TO_KILL) wait already are left to their
    /// servers; so are those of a process that was forked off.
    fn kill_in_background(&self, cursor: OpenCursor);

    /// Waits until the cursors are killed that are to be [killed in the
    /// background](Self::kill_in_background), for a second at most, and not for servers of which
    /// nothing is known. [`close`](Topology::close) does that.
    fn close_cursors(&self) -> impl Future<Output = ()> + Send;

    /// Asks the servers to forget the sessions in the pool, as [`close`](Topology::close) does.
    ///
    /// Errors are ignored (Driver Sessions, "endSessions").
    fn end_sessions(&self) -> impl Future<Output = ()> + Send;
}

mod sealed {
    /// Only this crate has a topology.
    pub trait Topology {}

    impl<R: crate::Runtime> Topology for crate::Topology<R> {}
}

impl<R: Runtime> DriverTopology<R> for Topology<R> {
    fn from_host(host: Arc<Host<R>>) -> Self {
        Self::holding(Held { host, tasks: Arc::default(), says_farewell: true })
    }

    fn host(&self) -> &Arc<Host<R>> {
        &self.host.host
    }

    async fn sleep_until(&self, until: Instant) {
        let shared = &self.host.shared;
        if shared.process.is_current() {
            sleep_until(shared, until).await;
        }
    }

    fn random_bits(&self) -> u64 {
        self.host.shared.random_bits()
    }

    fn wall_clock(&self) -> DateTime {
        self.host.runtime().wall_clock().unwrap_or_else(wall_clock)
    }

    fn change_stream_lags(&self, stream: u64, lag: Option<Duration>) {
        let shared = &self.host.shared;
        if shared.process.is_current() && shared.meter.is_on() {
            shared.meter.change_stream_lags(shared.runtime.now(), stream, lag);
        }
    }

    fn change_stream_waits(&self, stream: u64, await_time: Duration) {
        let shared = &self.host.shared;
        if shared.process.is_current() && shared.meter.is_on() {
            shared.meter.change_stream_waits(shared.runtime.now(), stream, await_time);
        }
    }

    fn start_session(&self, options: SessionOptions) -> Result<ClientSession<R>, SessionError> {
        ClientSession::start(&self.host, &self.host.tasks, options)
    }

    async fn recover_commit(
        &self,
        token: &CommitToken,
        timeout: Option<Duration>,
    ) -> Result<CommitOutcome, Error> {
        recover_commit(&self.host, token, self.timeout(timeout)).await
    }

    fn timeout(&self, of_operation: Option<Duration>) -> Timeout {
        match (of_operation, self.deadline) {
            (None, Some(deadline)) => Timeout::At(deadline),
            (timeout, _) => Timeout::new(self.now(), timeout.or(self.options().timeout())),
        }
    }

    fn has_timeout(&self, of_operation: Option<Duration>) -> bool {
        of_operation.is_some() || self.deadline.is_some() || self.options().timeout().is_some()
    }

    fn spawn<F>(&self, task: impl FnOnce(Self) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let shared = &self.host.shared;
        if !shared.process.is_current() {
            return;
        }
        let work = Box::pin(task(Self::of_task(Arc::clone(self.host()), Arc::default())));
        let task = self.host.tasks.begin(work, shared.activity.begin());
        self.host.runtime().spawn(Box::pin(task));
    }

    async fn kill_cursors(
        &self,
        command: &KillCursors,
        target: Target<'_, R>,
        session: Option<&mut SessionGuard<R>>,
        limits: KillLimits,
    ) {
        kill_cursors::kill(self, command, target, session, limits).await;
    }

    fn kill_in_background(&self, cursor: OpenCursor) {
        kill_cursors::kill_in_background(self, cursor);
    }

    async fn close_cursors(&self) {
        kill_cursors::killed(self).await;
    }

    async fn end_sessions(&self) {
        let timeout = Timeout::At(self.now() + END_SESSIONS_TIMEOUT);
        let criteria = Arc::new(farewell::criteria());
        for command in session::end_sessions(&self.host) {
            if self.host.diagnose(&criteria).is_some() {
                return;
            }
            let criteria = Arc::clone(&criteria);
            let command = ("admin", &*command);
            let ended = self.host.run_command_as("endSessions", command, criteria, timeout);
            let _ = ended.await;
        }
    }
}
