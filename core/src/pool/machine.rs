//! The pool as a machine: its inputs, and its deadlines.

use std::time::Duration;

use bson::oid::ObjectId;

use super::connections::{ConnectionTable, Identity};
use super::generations::Generations;
use super::pending::PendingSet;
use super::queue::{Queue, Waiter};
use super::{
    Action, CheckOut, CheckOutError, CloseReason, Command, Counts, Input, Obstacle, PoolConfig,
    PoolEvent,
};
use crate::failure::{Failure, Stage};
use crate::id::{ConnectionId, Generation, WaiterId};
use crate::machine::Machine;
use crate::operation::OperationError;
use crate::time::{Instant, Time};

/// The connection pool of one server, generic over what its runtime calls a connection.
///
/// ```
/// use sdam_core::id::WaiterId;
/// use sdam_core::machine::Machine;
/// use sdam_core::config::PoolOptions;
/// use sdam_core::pool::{Action, Command, Established, Input, Pool, PoolConfig};
/// use sdam_core::time::Time;
///
/// let (address, options) = ("h:27017".parse()?, PoolOptions::default());
/// let config = PoolConfig::new(address, options);
/// let mut pool = Pool::new(config);
/// let (now, mut actions) = (Time::ZERO, Vec::new());
/// pool.handle(now, Input::Command(Command::Ready), &mut actions);
/// pool.handle(now, Input::CheckOut { waiter: WaiterId(1), deadline: None }, &mut actions);
/// // A real runtime opens a socket; here, a connection is a text.
/// let Some(Action::Establish { connection, .. }) = actions.pop() else { panic!() };
/// let outcome = Ok(Established::new("a socket", None));
/// pool.handle(now, Input::Established { connection, outcome }, &mut actions);
/// let Some(Action::Deliver { outcome, .. }) = actions.pop() else { panic!() };
/// let (check_out, socket) = outcome?;
/// assert_eq!(pool.try_check_in(now.clock, check_out, socket), Ok(()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// - Operations are served in the order in which they came. A connection that becomes available,
///   returned or new, goes to the first of them, whichever it was created for. If it cannot be
///   established, the operation for which it was created fails, if it still waits.
/// - No more connections are being established than operations wait and minPoolSize asks for. One
///   whose operation has found another, or has stopped waiting, becomes available.
/// - A clear closes available connections at once; those in use when they are returned, after an
///   [`Interrupt`](Action::Interrupt) if the clear asks for one; those being established when they
///   are, unless the clear interrupts: then they are given up.
/// - After a connection could not be established, minPoolSize waits for 500 ms.
/// - connectTimeoutMS limits all that establishing a connection takes. Of one that minPoolSize asks
///   for, timeoutMS limits each command of the login instead, if it is set.
/// - Behind a load balancer, a connection's generation is its service's when it is established.
///   That is a deviation: the specification takes it between hello and authentication.
#[derive(Clone, Debug)]
pub struct Pool<C> {
    pub(super) config: PoolConfig,
    pub(super) state: PoolState,
    /// The latest time that the pool has received.
    pub(super) now: Time,
    pub(super) generations: Generations,
    pub(super) connections: ConnectionTable<C>,
    pub(super) pending: PendingSet,
    pub(super) queue: Queue,
    /// The number of the connection that was created last.
    pub(super) last: u64,
    /// Until when nothing is established for minPoolSize.
    pub(super) populate_at: Instant,
    /// The time that the last connection took to establish, and the stage that took most of it.
    pub(super) took: Option<(Duration, Option<Stage>)>,
}

#[derive(Clone, Debug)]
pub(super) enum PoolState {
    /// No event has reported the pool yet.
    New,
    Paused {
        since: Instant,
        /// The reason why it was cleared, if it was.
        cause: Option<Failure>,
    },
    Ready,
    Closed,
}

impl<C> Pool<C> {
    /// Creates a pool: paused, and in generation 0.
    ///
    /// It reports so to its subscriber on the first [`tick`](Machine::tick), which is due at once.
    pub fn new(config: PoolConfig) -> Self {
        Self {
            connections: ConnectionTable::new(config.options.max_pool_size),
            config,
            state: PoolState::New,
            now: Time::ZERO,
            generations: Generations::default(),
            pending: PendingSet::default(),
            queue: Queue::default(),
            last: 0,
            populate_at: Instant::ZERO,
            took: None,
        }
    }

    /// Checks out an available connection: what [`Input::CheckOut`] does, without events, for when
    /// they have no subscriber.
    ///
    /// `None` if there is none, if others wait, or if the pool is not ready; the input then reports
    /// what there is to wait for, or what is wrong. Nothing is allocated.
    pub fn try_check_out(&mut self, now: Instant) -> Option<(CheckOut, C)> {
        self.now.clock = self.now.clock.max(now);
        match self.state {
            // Connections are available only while no operation waits.
            PoolState::Ready => self.connections.check_out(self.idle_before()),
            PoolState::New | PoolState::Paused { .. } | PoolState::Closed => None,
        }
    }

    /// Checks in a connection: what [`Input::CheckIn`] does, without events, for when they have no
    /// subscriber. Nothing is allocated. The [`deadline`](Machine::deadline) may be another one
    /// afterwards.
    ///
    /// # Errors
    ///
    /// Returns the connection if there is more to do than to keep it: if it is stale, if others
    /// wait, or if the pool is closed. It is then to be checked in by that input.
    pub fn try_check_in(
        &mut self,
        now: Instant,
        check_out: CheckOut,
        connection: C,
    ) -> Result<(), C> {
        self.now.clock = self.now.clock.max(now);
        match self.connections.checked_out(&check_out) {
            Some((identity, false))
                if self.queue.is_empty()
                    && !matches!(self.state, PoolState::Closed)
                    && !self.is_stale(&identity) =>
            {
                self.connections.check_in(&check_out, connection, self.now.clock);
                Ok(())
            }
            _ => Err(connection),
        }
    }

    /// Returns whether the time matters to [`try_check_out`](Self::try_check_out) and
    /// [`try_check_in`](Self::try_check_in): if not, any will do, and no clock need be read.
    pub fn needs_time(&self) -> bool {
        !self.config.options.max_idle_time.is_zero()
    }

    /// Returns the generation that connections established now belong to; behind a load balancer,
    /// those to that service.
    pub fn generation(&self, service: Option<ObjectId>) -> Generation {
        self.generations.current(self.config.load_balanced.then_some(service).flatten())
    }

    /// Returns the connection that was created last; those that follow have greater numbers.
    pub const fn newest(&self) -> ConnectionId {
        ConnectionId(self.last)
    }

    /// Sets a number aside that none of its own connections will have: that of a connection to the
    /// same server which is not in the pool.
    pub const fn reserve(&mut self) -> ConnectionId {
        self.last += 1;
        self.newest()
    }

    /// Gives this number to the next connection.
    #[must_use]
    pub const fn beginning_with(mut self, first: ConnectionId) -> Self {
        self.last = first.0.saturating_sub(1);
        self
    }

    /// Returns how many connections there are, and how many operations wait.
    pub fn counts(&self) -> Counts {
        Counts {
            available: self.connections.available(),
            pending: self.pending.len(),
            in_use: self.connections.in_use(),
            waiting: self.queue.len(),
        }
    }

    fn is_stale(&self, identity: &Identity) -> bool {
        identity.generation < self.generation(identity.service)
    }

    /// Returns which connections have been idle for too long: those not used since then.
    fn idle_before(&self) -> Option<Instant> {
        let limit = self.config.options.max_idle_time;
        // Nothing was idle for longer than there has been time.
        let passed = self.now.clock - Instant::ZERO;
        (!limit.is_zero() && passed >= limit).then(|| Instant::ZERO + (passed - limit))
    }

    fn check_out(&mut self, id: WaiterId, deadline: Option<Instant>, out: &mut Vec<Action<C>>) {
        if self.queue.contains(id) {
            return;
        }
        self.emit(PoolEvent::ConnectionCheckOutStarted, out);
        // waitQueueTimeoutMS is "deprecated in favor of timeoutMS" (Client Side Operations
        // Timeout): it counts only where nothing else limits the operation.
        let patience = self.config.options.wait_queue_timeout.map(|wait| self.now.clock + wait);
        let limit = deadline.or(patience);
        let behind = self.queue.len();
        let waiter = Waiter { id, since: self.now.clock, limit, behind, connection: None };
        let address = self.config.address.clone();
        match &self.state {
            PoolState::Closed => self.refuse(waiter, CheckOutError::PoolClosed { address }, out),
            PoolState::New | PoolState::Paused { cause: None, .. } => {
                self.refuse(waiter, CheckOutError::NotReady { address }, out);
            }
            PoolState::Paused { since, cause: Some(cause) } => {
                let (paused, cause) = (self.now.clock - *since, cause.clone());
                self.refuse(waiter, CheckOutError::PoolCleared { address, paused, cause }, out);
            }
            PoolState::Ready => {
                // However late the ring is, what has been idle for too long is not checked out.
                self.prune(out);
                self.queue.enter(waiter);
                self.serve(out);
                self.expire(out);
                self.establish(out);
            }
        }
    }

    /// A check-out whose start was reported also reports its end, although no operation waits for
    /// it any more.
    fn abandon(&mut self, waiter: WaiterId, out: &mut Vec<Action<C>>) {
        let waiter = self.queue.abandon(waiter).or_else(|| self.pending.forget(waiter));
        let Some(waiter) = waiter else { return };
        let (address, duration) = (self.config.address.clone(), self.now.clock - waiter.since);
        let error = Box::new(CheckOutError::Abandoned { address, waited: duration });
        self.emit(PoolEvent::ConnectionCheckOutFailed { error, duration }, out);
    }

    /// Hands available connections to those who wait.
    pub(super) fn serve(&mut self, out: &mut Vec<Action<C>>) {
        while !self.queue.is_empty() {
            let Some(checked_out) = self.connections.check_out(None) else { return };
            if let Some(waiter) = self.queue.pop() {
                self.deliver(waiter, checked_out, out);
            }
        }
    }

    /// Refuses the operations that have waited long enough.
    fn expire(&mut self, out: &mut Vec<Action<C>>) {
        while let Some(waiter) = self.queue.pop_due(self.now.judged) {
            let own = waiter.connection.and_then(|connection| self.pending.find(connection));
            let obstacle = match own {
                Some(pending) => Obstacle::Establishing { stages: pending.stages(self.now.clock) },
                None => Obstacle::Queued {
                    behind: waiter.behind,
                    in_use: self.connections.in_use().try_into().unwrap_or(u32::MAX),
                    pending: self.pending.len().try_into().unwrap_or(u32::MAX),
                },
            };
            let error = CheckOutError::Timeout {
                address: self.config.address.clone(),
                waited: self.now.clock - waiter.since,
                obstacle,
                in_use: self.config.load_balanced.then(|| self.connections.connections_in_use()),
                verdict: self.slow_establishment().map(Box::new),
            };
            self.refuse(waiter, error, out);
        }
    }

    fn check_in(
        &mut self,
        check_out: &CheckOut,
        outcome: Result<C, Box<OperationError>>,
        out: &mut Vec<Action<C>>,
    ) {
        let Some((identity, interrupted)) = self.connections.checked_out(check_out) else {
            let id = check_out.connection;
            out.extend(outcome.ok().map(|connection| Action::Dispose { id, connection }));
            return;
        };
        let (connection, error) = match outcome {
            Ok(connection) => (Some(connection), None),
            Err(error) => (None, Some(error)),
        };
        self.checked_in(identity.id, out);
        let closed = matches!(self.state, PoolState::Closed);
        let reason = match &connection {
            _ if interrupted => Some(CloseReason::Stale),
            None => Some(CloseReason::Error),
            Some(_) if closed => Some(CloseReason::PoolClosed),
            Some(_) => self.is_stale(&identity).then_some(CloseReason::Stale),
        };
        match (connection, reason) {
            (Some(connection), None) => {
                self.connections.check_in(check_out, connection, self.now.clock);
                self.serve(out);
            }
            (connection, reason) => {
                self.connections.remove(check_out);
                let reason = reason.unwrap_or(CloseReason::Error);
                let error = error.filter(|_| reason == CloseReason::Error);
                self.closed(identity.id, reason, error, out);
                let id = identity.id;
                out.extend(connection.map(|connection| Action::Dispose { id, connection }));
                self.establish(out);
            }
        }
    }

    fn command(&mut self, command: Command, out: &mut Vec<Action<C>>) {
        match command {
            Command::Ready => {
                if let PoolState::Paused { .. } = self.state {
                    self.state = PoolState::Ready;
                    self.populate_at = self.now.clock;
                    self.emit(PoolEvent::PoolReady, out);
                    self.establish(out);
                }
            }
            Command::Clear { to, interrupt, cause } => self.clear(to, interrupt, &cause, out),
            Command::ClearService { service, to, cause } => {
                self.clear_service(service, to, cause, out);
            }
        }
    }

    /// Closes what has been idle for too long.
    fn prune(&mut self, out: &mut Vec<Action<C>>) {
        let Some(limit) = self.idle_before() else { return };
        while self.connections.idle_since().is_some_and(|since| since <= limit) {
            if let Some(idle) = self.connections.take_oldest() {
                self.close(idle, CloseReason::Idle, out);
            }
        }
    }

    // Letting go of connections: when the pool is cleared, and when it is closed.

    /// "Clearing a non-load balanced pool"
    pub(super) fn clear(
        &mut self,
        to: Generation,
        interrupt: bool,
        cause: &Failure,
        out: &mut Vec<Action<C>>,
    ) {
        if self.config.load_balanced
            || matches!(self.state, PoolState::Closed)
            || !self.generations.begin(to)
        {
            return;
        }
        self.pending.grow_stale();
        let since = match self.state {
            PoolState::Paused { since, .. } => since,
            PoolState::New | PoolState::Ready | PoolState::Closed => {
                self.cleared(None, interrupt, cause.clone(), out);
                self.now.clock
            }
        };
        self.state = PoolState::Paused { since, cause: Some(cause.clone()) };
        self.close_available(CloseReason::Stale, out);
        if interrupt {
            self.abort_pending(CloseReason::Stale, out);
            for connection in self.connections.interrupt(to) {
                out.push(Action::Interrupt { connection });
            }
        }
        while let Some(waiter) = self.queue.pop() {
            let address = self.config.address.clone();
            let (paused, cause) = (self.now.clock - since, cause.clone());
            self.refuse(waiter, CheckOutError::PoolCleared { address, paused, cause }, out);
        }
    }

    /// "Clearing a load balanced pool": it is not paused, and no operation stops waiting.
    pub(super) fn clear_service(
        &mut self,
        service: ObjectId,
        to: Generation,
        cause: Failure,
        out: &mut Vec<Action<C>>,
    ) {
        if !self.config.load_balanced
            || matches!(self.state, PoolState::Closed)
            || !self.generations.begin_service(service, to)
        {
            return;
        }
        self.cleared(Some(service), false, cause, out);
        for stale in self.connections.take_stale(service, to) {
            self.close(stale, CloseReason::Stale, out);
        }
        self.establish(out);
    }

    /// "Closing a Connection Pool"
    pub(super) fn shut(&mut self, out: &mut Vec<Action<C>>) {
        if let PoolState::Closed = self.state {
            return;
        }
        self.state = PoolState::Closed;
        self.close_available(CloseReason::PoolClosed, out);
        self.abort_pending(CloseReason::PoolClosed, out);
        while let Some(waiter) = self.queue.pop() {
            let address = self.config.address.clone();
            self.refuse(waiter, CheckOutError::PoolClosed { address }, out);
        }
        self.emit(PoolEvent::PoolClosed, out);
    }

    fn cleared(
        &self,
        service: Option<ObjectId>,
        interrupt_in_use_connections: bool,
        cause: Failure,
        out: &mut Vec<Action<C>>,
    ) {
        let kind = PoolEvent::PoolCleared { service, interrupt_in_use_connections, cause };
        self.emit(kind, out);
    }

    fn close_available(&mut self, reason: CloseReason, out: &mut Vec<Action<C>>) {
        while let Some(available) = self.connections.take_oldest() {
            self.close(available, reason, out);
        }
    }

    fn abort_pending(&mut self, reason: CloseReason, out: &mut Vec<Action<C>>) {
        for (connection, pending) in self.pending.take_all() {
            out.push(Action::Abort { connection });
            self.closed(connection, reason, None, out);
            // Its own failure will not be reported any more.
            pending.failing.into_iter().for_each(|waiter| self.queue.enter(waiter));
        }
    }

    // "Connection Pool Monitoring": what happens to the pool and its connections.

    pub(super) fn emit(&self, event: PoolEvent, out: &mut Vec<Action<C>>) {
        out.push(Action::Emit { at: self.now.clock, event });
    }

    pub(super) fn created(&self, connection: ConnectionId, out: &mut Vec<Action<C>>) {
        self.emit(PoolEvent::ConnectionCreated { connection }, out);
    }

    pub(super) fn closed(
        &self,
        connection: ConnectionId,
        reason: CloseReason,
        error: Option<Box<OperationError>>,
        out: &mut Vec<Action<C>>,
    ) {
        self.emit(PoolEvent::ConnectionClosed { connection, reason, error }, out);
    }

    /// Closes a connection that belongs to the pool.
    pub(super) fn close(
        &self,
        (id, connection): (ConnectionId, C),
        reason: CloseReason,
        out: &mut Vec<Action<C>>,
    ) {
        self.closed(id, reason, None, out);
        out.push(Action::Dispose { id, connection });
    }

    pub(super) fn checked_in(&self, connection: ConnectionId, out: &mut Vec<Action<C>>) {
        self.emit(PoolEvent::ConnectionCheckedIn { connection }, out);
    }

    /// Ends a waiter's wait with what it has waited for.
    pub(super) fn deliver(
        &self,
        waiter: Waiter,
        checked_out: (CheckOut, C),
        out: &mut Vec<Action<C>>,
    ) {
        let (connection, duration) = (checked_out.0.connection, self.now.clock - waiter.since);
        let kind = PoolEvent::ConnectionCheckedOut { connection, duration };
        self.emit(kind, out);
        out.push(Action::Deliver { waiter: waiter.id, outcome: Ok(checked_out) });
    }

    /// Ends a waiter's wait without a connection.
    pub(super) fn refuse(&self, waiter: Waiter, error: CheckOutError, out: &mut Vec<Action<C>>) {
        let (error, duration) = (Box::new(error), self.now.clock - waiter.since);
        let outcome = Err(error.clone());
        let kind = PoolEvent::ConnectionCheckOutFailed { error, duration };
        self.emit(kind, out);
        out.push(Action::Deliver { waiter: waiter.id, outcome });
    }
}

impl<C> Machine for Pool<C> {
    type Input<'a> = Input<C>;
    type Action = Action<C>;

    fn handle(&mut self, now: Time, input: Input<C>, out: &mut Vec<Action<C>>) {
        self.tick(now, out);
        match input {
            Input::Command(command) => self.command(command, out),
            Input::CheckOut { waiter, deadline } => self.check_out(waiter, deadline, out),
            Input::Abandon { waiter } => self.abandon(waiter, out),
            Input::Reached { connection, stage } => self.reached(connection, stage),
            Input::Asked { connection } => self.asked(connection),
            Input::Answered { connection } => self.answered(connection),
            Input::PersonAsked { connection } => self.pending.suspend(connection),
            Input::PersonAnswered { connection } => self.person_answered(connection),
            Input::Failing { connection } => self.failing(connection),
            Input::Established { connection, outcome: Ok(established) } => {
                self.established(connection, established, out);
            }
            Input::Established { connection, outcome: Err(error) } => {
                self.not_established(connection, error, out);
            }
            Input::CheckIn { check_out, outcome } => self.check_in(&check_out, outcome, out),
            Input::Pin { check_out, purpose } => self.connections.pin(&check_out, purpose),
            Input::Close => self.shut(out),
        }
    }

    fn tick(&mut self, now: Time, out: &mut Vec<Action<C>>) {
        self.now = self.now.max(now);
        if self.deadline().is_none_or(|deadline| deadline > self.now.judged) {
            return;
        }
        if let PoolState::New = self.state {
            self.state = PoolState::Paused { since: self.now.clock, cause: None };
            let options = self.config.options.clone();
            self.emit(PoolEvent::PoolCreated { options }, out);
        }
        self.expire(out);
        while let Some((connection, stage, option)) = self.pending.pop_due(self.now.judged) {
            out.push(Action::TimedOut { connection, stage, option });
        }
        self.prune(out);
        self.establish(out);
    }

    fn deadline(&self) -> Option<Instant> {
        if let PoolState::New = self.state {
            return Some(Instant::ZERO);
        }
        let idle = self.connections.idle_since().filter(|_| self.needs_time());
        [
            self.queue.deadline(),
            self.pending.deadline(),
            idle.map(|since| since + self.config.options.max_idle_time),
            (self.has_room() && self.is_below_minimum()).then_some(self.populate_at),
        ]
        .into_iter()
        .flatten()
        .min()
    }
}
