//! Checking connections out of a pool, and in again.
//!
//! In the single-threaded mode, one that was idle is checked before it is handed out: "Checking an
//! Idle Socket After socketCheckIntervalMS" of Server Selection, up to the point where a server is
//! to be selected once more. Clients that monitor in the background need not do that.

use std::sync::Arc;
use std::time::Duration;

use bson::rawdoc;
use sdam_core::config::ServerAddress;
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::handshake::ConnectionDescription;
use sdam_core::id::{ConnectionId, WaiterId};
use sdam_core::operation::{CommandMessage, OperationError, Timeout};
use sdam_core::pool::{CheckOut, CheckOutError, Input, PoolEvent, Purpose};
use sdam_core::time::Instant;
use sdam_core::topology::Topics;
use sdam_core::wire::Flags;

use crate::machines::Shared;
use crate::machines::runtime::Runtime;
use crate::machines::server::{Boxed, Delivery, Server};
use crate::machines::steps::PoolStep;
use crate::net::stream::Connection;
use crate::observe::spans::{OperationSpan, Span};
use crate::operations::exchange::ExchangeContext;
use crate::operations::selected_server::Selection;
use crate::sync::atomic::Ordering;
use crate::sync::channel::{Answers, Channel, Wait};
use crate::sync::lock;

/// A connection in use, until it is dropped.
///
/// It runs one exchange at a time. Dropped between exchanges, it returns to its pool; dropped in
/// the middle of one, as by dropping the future of an exchange, its connection is closed, as the
/// next reply could belong to either. Nothing waits, blocks or needs a runtime for that.
#[must_use = "a connection that is dropped is checked in at once"]
pub struct CheckedOut<R: Runtime> {
    operation: OperationCount<R>,
    /// The number that events give what it was checked out for; 0 before the first one.
    pub(crate) number: i64,
    /// The span of the operation that it is used for, if a tracer receives spans.
    pub(crate) span: Option<Arc<dyn Span>>,
    /// The selection that chose the server; `None` if the application has named it.
    pub(crate) selection: Option<Selection>,
    pub(crate) check_out: CheckOut,
    /// The time since which it is in use, if that is counted.
    since: Option<Instant>,
    /// Present until dropped.
    connection: Option<Box<Connection<R::Socket>>>,
    pub(crate) state: ExchangeState,
    /// The error of a connection that is of no more use, if there was one.
    pub(crate) broken_by: Option<Box<OperationError>>,
    /// True if the raw message that was sent last may have several replies.
    pub(crate) takes_several: bool,
    /// The limit of exchanges.
    pub(crate) timeout: Timeout,
}

/// The progress of the exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExchangeState {
    /// There is none.
    Idle,
    /// A message is being sent, or its reply awaited.
    Awaiting(i32),
    /// Another reply to the last request comes without one, in answer to this message; no caller
    /// waits for it now.
    Streaming(i32),
    /// The client proves once more who it is.
    Authenticating,
    /// Raw messages were exchanged, and what came of it is still to be reported.
    Unreported,
    /// The connection is of no more use.
    Broken,
}

/// Returns the limit of exchanges that end at a time, if there is one.
const fn timeout_by(deadline: Option<Instant>) -> Timeout {
    match deadline {
        Some(deadline) => Timeout::At(deadline),
        None => Timeout::Unset,
    }
}

impl<R: Runtime> CheckedOut<R> {
    pub(crate) fn new(
        (operation, selection): (OperationCount<R>, Option<Selection>),
        check_out: CheckOut,
        connection: Box<Connection<R::Socket>>,
        deadline: Option<Instant>,
    ) -> Self {
        let (connection, state, takes_several) = (Some(connection), ExchangeState::Idle, false);
        let since = operation.0.is_counted().then(|| operation.0.shared().runtime.now());
        Self {
            operation,
            number: 0,
            span: None,
            selection,
            check_out,
            since,
            connection,
            state,
            broken_by: None,
            takes_several,
            timeout: timeout_by(deadline),
        }
    }

    /// Returns the address of the server that the connection leads to, the one that it advertises.
    pub fn server(&self) -> &ServerAddress {
        self.pool().address()
    }

    /// Returns the connection's number in its pool.
    pub const fn connection_id(&self) -> ConnectionId {
        self.check_out.connection
    }

    /// Returns what client and server agreed on when the connection was established.
    ///
    /// # Panics
    ///
    /// Never.
    pub fn connection_description(&self) -> &ConnectionDescription {
        &self
            .connection
            .as_ref()
            .expect("it has its connection until it is dropped")
            .connection_description
    }

    /// Returns when an exchange is to end at the latest; without one, socketTimeoutMS counts.
    pub const fn deadline(&self) -> Option<Instant> {
        self.timeout.deadline()
    }

    /// Sets when exchanges are to end at the latest; at first it is the deadline of the check-out.
    pub const fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.timeout = timeout_by(deadline);
    }

    /// Says that the check-out is needed for more than one operation, which the error of a time-out
    /// behind a load balancer reports (Load Balancer Support, "Connection Pinning").
    pub fn pin(&self, purpose: Purpose) {
        self.pool().handle(Input::Pin { check_out: self.check_out, purpose });
    }

    /// Puts the spans of the commands that follow within that of an operation; without this, they
    /// are within the current span of the calling thread.
    pub fn set_operation_span(&mut self, operation: &OperationSpan) {
        self.span = operation.shared();
    }

    /// Returns whether no exchange is underway, or has failed.
    pub(crate) fn is_idle(&self) -> bool {
        self.state == ExchangeState::Idle
    }

    pub(crate) fn connection(&mut self) -> &mut Connection<R::Socket> {
        self.connection.as_mut().expect("it has its connection until it is dropped")
    }

    /// Returns the server with its pool.
    pub(crate) const fn pool(&self) -> &Arc<Server<R>> {
        &self.operation.0
    }

    pub(crate) fn shared(&self) -> &Arc<Shared<R>> {
        self.operation.0.shared()
    }
}

impl<R: Runtime> Drop for CheckedOut<R> {
    fn drop(&mut self) {
        let connection = self.connection.take();
        if !self.shared().process.is_current() {
            // Closing it would take it from those that the parent waits for.
            return std::mem::forget(connection);
        }
        let outcome = match connection.filter(|_| self.state == ExchangeState::Idle) {
            Some(connection) => Ok(connection),
            None => Err(self.why_broken()),
        };
        self.pool().check_in(self.check_out, outcome, self.since);
    }
}

impl<R: Runtime> CheckedOut<R> {
    /// Returns why the connection is of no more use.
    fn why_broken(&mut self) -> Box<OperationError> {
        let given_up = || {
            let detail = match self.state {
                ExchangeState::Unreported => {
                    "the outcome of an exchange of messages was not reported"
                }
                ExchangeState::Broken => "the connection was not to be used again",
                _ => "an exchange was given up before its end",
            };
            Box::new(OperationError::Stream(Failure::new(Stage::Operate, Cause::Canceled, detail)))
        };
        self.broken_by.take().unwrap_or_else(given_up)
    }
}

impl<R: Runtime> std::fmt::Debug for CheckedOut<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CheckedOut")
            .field("server", self.server())
            .field("check_out", &self.check_out)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl<R: Runtime> Server<R> {
    /// Checks out a connection for what the server was selected for, if it was; see
    /// [`SelectedServer::check_out`](crate::SelectedServer::check_out).
    pub(crate) async fn check_out(
        self: &Arc<Self>,
        selection: Option<Selection>,
        deadline: Option<Instant>,
    ) -> Result<CheckedOut<R>, Box<CheckOutError>> {
        self.unless_forked()?;
        let operation = OperationCount::new(self);
        let mut newest = None;
        loop {
            let (check_out, mut connection) = match self.try_check_out() {
                Some(idle) => idle,
                None => self.wait(deadline).await?,
            };
            // One that was made since the first was found dead is handed out as it is: whether a
            // server hangs up on every new connection, too, is for the topology to know.
            let is_new = newest.is_some_and(|newest| check_out.connection > newest);
            if is_new || connection.is_quiet() {
                let mut checked_out =
                    CheckedOut::new((operation, selection), check_out, connection, deadline);
                // Not before it is sure to be checked in, whatever becomes of those who are woken.
                if self.is_heard() {
                    self.shared().events.wake(Topics::POOLS);
                }
                if let Some(since) = checked_out.connection().idle_since {
                    checked_out.check_after_idling(since).await?;
                }
                return Ok(checked_out);
            }
            // The peer has closed it or sent unexpected data: discard the connection.
            newest.get_or_insert_with(|| lock(&self.state).pool.newest());
            let detail =
                "the server hung up, or sent something, while the connection was not in use";
            let failure = Failure::new(Stage::Operate, Cause::Closed, detail);
            let error = Box::new(OperationError::Stream(failure));
            self.check_in(check_out, Err(error), None);
        }
    }

    /// Refuses a process that was forked off: the pool is its parent's, and perhaps locked for
    /// ever.
    pub(crate) fn unless_forked(&self) -> Result<(), Box<CheckOutError>> {
        self.shared().process.check().map_err(|forked| {
            Box::new(CheckOutError::Forked { address: self.address().clone(), forked })
        })
    }

    /// Waits for a connection; dropping this cancels the wait.
    fn wait(&self, deadline: Option<Instant>) -> Wait<'_, Self> {
        let waiter = WaiterId(self.next_waiter.fetch_add(1, Ordering::Relaxed));
        let wait = Wait::new(self, waiter);
        lock(&self.state).waiters.insert(waiter, Arc::clone(wait.answer()));
        self.handle(Input::CheckOut { waiter, deadline });
        wait
    }

    /// The hot path: it allocates nothing, and takes no lock but the pool's, even with subscribers;
    /// wake those afterwards.
    fn try_check_out(&self) -> Option<(CheckOut, Boxed<R>)> {
        let is_heard = self.is_heard();
        let mut state = lock(&self.state);
        let now = self.time_if(is_heard);
        let lent = state.pool.try_check_out(now);
        if let Some((check_out, _)) = &lent {
            self.show(PoolStep::CheckedOut(check_out, &state.pool));
            if self.is_counted() {
                state.traffic().checked_out(Duration::ZERO);
            }
            if is_heard {
                self.publish(now, PoolEvent::of_check_out(check_out));
            }
        }
        lent
    }

    /// Returns the time if there are subscribers, or it matters to the pool.
    fn time_if(&self, is_heard: bool) -> Instant {
        match is_heard {
            true => self.shared().runtime.now(),
            false => self.time(),
        }
    }

    /// Takes a connection back, or the error for which it is of no more use; it has been in use
    /// since then, if that is counted.
    pub(crate) fn check_in(
        &self,
        check_out: CheckOut,
        outcome: Result<Boxed<R>, Box<OperationError>>,
        since: Option<Instant>,
    ) {
        let used = since.map(|since| self.shared().runtime.now() - since);
        let outcome = match outcome {
            Ok(returned) => match self.try_check_in(check_out, returned, used) {
                Ok(()) => return,
                Err(returned) => Ok(returned),
            },
            Err(error) => {
                // It may still know whom to wake, and is dropped when the lock is free.
                let cancellation = lock(&self.state).cancellations.remove(&check_out.connection);
                drop(cancellation);
                Err(error)
            }
        };
        if let Some(used) = used {
            lock(&self.state).traffic().checked_in(used);
        }
        self.handle(Input::CheckIn { check_out, outcome });
    }
}

impl<R: Runtime> Server<R> {
    /// The hot path, as [`try_check_out`](Self::try_check_out) is; returns the connection if there
    /// is more to do.
    fn try_check_in(
        &self,
        check_out: CheckOut,
        mut connection: Boxed<R>,
        used: Option<Duration>,
    ) -> Result<(), Boxed<R>> {
        connection.idle_since = self.idle_since();
        let is_heard = self.is_heard();
        let mut state = lock(&self.state);
        let now = self.time_if(is_heard);
        state.pool.try_check_in(now, check_out, connection)?;
        if let Some(used) = used {
            state.traffic().checked_in(used);
        }
        self.show(PoolStep::CheckedIn(&check_out, &state.pool));
        if is_heard {
            let connection = check_out.connection;
            self.publish(now, [PoolEvent::ConnectionCheckedIn { connection }]);
        }
        let is_sooner = self.rearm_if_sooner(&mut state);
        drop(state);
        if is_sooner {
            self.shared().alarm.arm(&self.shared().runtime);
        }
        if is_heard {
            self.shared().events.wake(Topics::POOLS);
        }
        Ok(())
    }
}

/// An operation that waits for a connection or has one, for `operationCount`.
pub(crate) struct OperationCount<R: Runtime>(pub(crate) Arc<Server<R>>);

impl<R: Runtime> OperationCount<R> {
    fn new(server: &Arc<Server<R>>) -> Self {
        server.operations.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(server))
    }
}

impl<R: Runtime> Drop for OperationCount<R> {
    fn drop(&mut self) {
        self.0.operations.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<R: Runtime> Answers for Server<R> {
    type Answer = Delivery<R>;

    fn give_up(&self, waiter: WaiterId, delivery: &Channel<Delivery<R>>) {
        if !self.shared().process.is_current() {
            return;
        }
        if lock(&self.state).waiters.contains_key(&waiter) {
            self.handle(Input::Abandon { waiter });
            lock(&self.state).waiters.remove(&waiter);
        }
        // It was delivered, and was not taken.
        if let Some(Ok((check_out, connection))) = delivery.try_next() {
            self.check_in(check_out, Ok(connection), None);
        }
    }
}

/// After how long without use a connection is checked: socketCheckIntervalMS.
const SOCKET_CHECK_INTERVAL: Duration = Duration::from_secs(5);

impl<R: Runtime> Server<R> {
    /// Returns the time if connections are to be checked after idling; else the clock is not read.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        let shared = self.shared();
        shared.options.is_single_threaded().then(|| shared.runtime.now())
    }
}

impl<R: Runtime> CheckedOut<R> {
    /// Checks with `ping` whether a connection that was idle for 5 s still works; if not, that has
    /// been reported to the topology.
    async fn check_after_idling(&mut self, since: Instant) -> Result<(), Box<CheckOutError>> {
        let now = self.shared().runtime.now();
        if now - since < SOCKET_CHECK_INTERVAL {
            return Ok(());
        }
        let (deadline, limit) = (self.deadline(), self.shared().options.connect_timeout());
        let limit = limit.map(|limit| now + limit);
        let timeout = timeout_by(deadline.into_iter().chain(limit).min());
        let ping = rawdoc! { "ping": 1 };
        let message = CommandMessage::new("admin", &ping);
        let context = ExchangeContext { timeout, ..self.context() };
        match self.exchange(&message, &context, Flags::NONE).await {
            Err(failed) if self.state != ExchangeState::Idle => {
                let error = failed.error;
                // Unless the operation itself had no more time.
                if deadline.is_none_or(|deadline| self.shared().runtime.now() < deadline) {
                    self.blame_for_silence(&error);
                }
                let address = self.server().clone();
                Err(Box::new(CheckOutError::IdleConnection { address, error }))
            }
            // Even with an error, the server has answered.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// A time-out says nothing of the server if the operation may be slow; `ping` is not.
    fn blame_for_silence(&self, error: &OperationError) {
        if let OperationError::Stream(Failure { cause: Cause::Timeout, .. }) = error {
            let failure = Failure::new(Stage::Operate, Cause::Io, "no reply to ping in time");
            self.report_failure(OperationError::Stream(failure));
        }
    }
}
