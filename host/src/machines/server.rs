//! A server and its pool, behind the lock of the pool.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use sdam_core::config::{PoolOptions, ServerAddress};
use sdam_core::diagnosis::{ServerEvidence, Verdict};
use sdam_core::failure::Failure;
use sdam_core::handshake::Handshake;
use sdam_core::id::{ConnectionId, ServerId, WaiterId};
use sdam_core::machine::Machine;
use sdam_core::metrics::Traffic;
use sdam_core::operation::{OperationError, OperationFailure};
use sdam_core::pool::{
    Action, CheckOut, CheckOutError, Command, Counts, Input, Pool, PoolConfig, PoolEvent,
};
use sdam_core::time::{Instant, Time};
use sdam_core::topology::{Event, EventKind, Topics};

use crate::error::{Error, Repr};
use crate::machines::runtime::Runtime;
use crate::machines::steps::PoolStep;
use crate::machines::tasks::{Establishing, PendingConnection};
use crate::machines::topology::{Deferred, TopologyState};
use crate::machines::{Host, PostUnlock, Shared};
use crate::net::stream::Connection;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::channel::Channel;
use crate::sync::{CancellationToken, Mutex, lock};

pub(crate) type Boxed<R> = Box<Connection<<R as Runtime>::Socket>>;
pub(crate) type Delivery<R> = Result<(CheckOut, Boxed<R>), Box<CheckOutError>>;

/// A member of the deployment, with its pool of connections.
pub(crate) struct Server<R: Runtime> {
    me: Weak<Self>,
    key: u64,
    id: ServerId,
    address: ServerAddress,
    host: Weak<Host<R>>,
    shared: Arc<Shared<R>>,
    /// True if what its connections find is news for the topology.
    reports: bool,
    /// True if the pool needs to know the time of each check-out and check-in.
    needs_time: bool,
    pub(crate) operations: AtomicU32,
    pub(crate) next_waiter: AtomicU64,
    pub(crate) state: Mutex<PoolState<R>>,
}

pub(crate) struct PoolState<R: Runtime> {
    pub(crate) pool: Pool<Boxed<R>>,
    /// The deadline that was last set at the alarm.
    armed: Option<Instant>,
    pub(crate) waiters: BTreeMap<WaiterId, Arc<Channel<Delivery<R>>>>,
    establishing: BTreeMap<ConnectionId, Establishing>,
    /// The tokens that interrupt users of a connection.
    pub(crate) cancellations: BTreeMap<ConnectionId, Arc<CancellationToken>>,
    /// The check-outs and commands since the metrics were last read, if they are in use.
    traffic: Option<Box<Traffic>>,
    /// Kept between calls for its memory.
    actions: Vec<Action<Boxed<R>>>,
}

impl<R: Runtime> Server<R> {
    /// Creates the pool of a server that has joined, under the topology's lock.
    pub(crate) fn join(
        host: Weak<Host<R>>,
        shared: &Arc<Shared<R>>,
        id: ServerId,
        address: ServerAddress,
        later: &mut PostUnlock<R>,
    ) -> Arc<Self> {
        let mut options = shared.options.pool().clone();
        // CSOT, "Backwards Breaking Considerations": timeoutMS overrides the older time-outs.
        options.wait_queue_timeout.take_if(|_| shared.options.timeout().is_some());
        let server = Self::new(host, shared, (id, address), options, None);
        server.tick_and(shared.runtime.now(), later);
        server
    }

    /// Creates a pool for one connection that has nothing to do with the server's own; it ends with
    /// the client.
    pub(crate) fn aside(&self) -> Arc<Self> {
        let (host, member) = (Weak::clone(&self.host), (self.id, self.address.clone()));
        // A number that distinguishes it in events from those in the pool.
        let number = lock(&self.state).pool.reserve();
        let aside = Self::new(host, &self.shared, member, PoolOptions::default(), Some(number));
        aside.tick(self.shared.runtime.now());
        let open = self.host.upgrade().is_some_and(|host| host.adopt(&aside));
        aside.handle(if open { Input::Command(Command::Ready) } else { Input::Close });
        aside
    }

    /// A new machine is due at once: it reports that it was created. A pool aside has the number of
    /// its connection.
    fn new(
        host: Weak<Host<R>>,
        shared: &Arc<Shared<R>>,
        (id, address): (ServerId, ServerAddress),
        options: PoolOptions,
        aside: Option<ConnectionId>,
    ) -> Arc<Self> {
        let config = PoolConfig::new(address.clone(), options)
            .with_connect_timeout(shared.options.connect_timeout())
            .with_handshake_timeout(shared.options.timeout())
            .with_load_balanced(shared.options.load_balanced());
        let pool = match aside {
            None => Pool::new(config),
            Some(number) => Pool::new(config).beginning_with(number),
        };
        let needs_time = pool.needs_time();
        let state = PoolState {
            pool,
            armed: None,
            waiters: BTreeMap::new(),
            establishing: BTreeMap::new(),
            cancellations: BTreeMap::new(),
            traffic: None,
            actions: Vec::new(),
        };
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            key: shared.next_pool.fetch_add(1, Ordering::Relaxed),
            id,
            address,
            host,
            shared: Arc::clone(shared),
            reports: aside.is_none(),
            needs_time,
            operations: AtomicU32::new(0),
            next_waiter: AtomicU64::new(0),
            state: Mutex::new(state),
        })
    }

    /// Returns the server's membership.
    pub(crate) const fn id(&self) -> ServerId {
        self.id
    }

    /// Returns the address that the server advertises.
    pub(crate) const fn address(&self) -> &ServerAddress {
        &self.address
    }

    /// Returns how many operations wait for a connection of the pool or have one: what selection
    /// compares as `operationCount`.
    pub(crate) fn operation_count(&self) -> u32 {
        self.operations.load(Ordering::Relaxed)
    }

    /// Returns how many connections the pool has, and how many operations wait for one; in a
    /// process that was forked off, none.
    pub(crate) fn counts(&self) -> Counts {
        if !self.shared.process.is_current() {
            return Counts::default();
        }
        lock(&self.state).pool.counts()
    }

    /// Finds the likely cause of an operation's error at this server, as far as there is more to
    /// say than the error does.
    pub(crate) fn judge(&self, error: &OperationError) -> Option<Verdict> {
        let is_plain = matches!(error, OperationError::Reply { error, .. }
            if error.state_change().is_none());
        let evidence = match self.host.upgrade().filter(|_| !is_plain) {
            Some(host) if self.shared.process.is_current() => {
                let (now, id) = (self.shared.runtime.now(), self.id);
                let known = |state: &mut TopologyState<R>| {
                    state.topology().map(|topology| topology.server_evidence(id, now))
                };
                let mut evidence = host.root().with_topology(known).unwrap_or_default();
                let counts = self.counts();
                evidence.open += counts.available + counts.in_use;
                evidence
            }
            _ => ServerEvidence::default(),
        };
        evidence.judge(&self.address, self.shared.options.credential(), error)
    }

    /// Makes an error of what a check-out has failed with.
    pub(crate) fn check_out_error(&self, error: CheckOutError) -> Error {
        let verdict = match &error {
            CheckOutError::Establishing { error, .. }
            | CheckOutError::IdleConnection { error, .. } => self.judge(error),
            _ => None,
        };
        Error::new(Repr::CheckOut(error), None, None).judged(verdict)
    }

    /// Returns the time where it matters to a check-out or check-in.
    pub(crate) fn time(&self) -> Instant {
        match self.needs_time {
            true => self.shared.runtime.now(),
            false => Instant::ZERO,
        }
    }

    /// Lets the pool judge its deadlines up to `now`.
    pub(crate) fn tick(&self, now: Instant) {
        self.with_post_unlock(|later| self.tick_and(now, later));
    }

    /// As [`tick`](Self::tick), under the topology's lock.
    pub(crate) fn tick_and(&self, now: Instant, later: &mut PostUnlock<R>) {
        self.run(later, |pool, _, actions| {
            self.show(PoolStep::Tick { at: now, due: pool.deadline() });
            pool.tick(now.into(), actions);
        });
    }

    /// Passes an input to the pool, unless that is another process's, whose lock may never be
    /// released.
    pub(crate) fn handle(&self, input: Input<Boxed<R>>) {
        if !self.shared.process.is_current() {
            return;
        }
        self.with_post_unlock(|later| self.handle_and(input, later));
    }

    /// As [`handle`](Self::handle), under the topology's lock.
    pub(crate) fn handle_and(&self, input: Input<Boxed<R>>, later: &mut PostUnlock<R>) {
        self.run(later, |pool, clock, actions| {
            self.show(PoolStep::Input(&input));
            pool.handle(Time::before(pool.deadline(), clock), input, actions);
        });
    }

    /// Does something under the pool's lock, and afterwards what had to wait.
    fn with_post_unlock(&self, act: impl FnOnce(&mut PostUnlock<R>)) {
        let mut later = PostUnlock::default();
        act(&mut later);
        later.run(&self.shared);
        if let Some(host) = self.host.upgrade() {
            host.drain();
        }
    }

    /// Returns what wakes the tasks that establish connections.
    pub(crate) fn readers(&self) -> Vec<Arc<Channel<()>>> {
        let state = lock(&self.state);
        state.establishing.values().map(|attempt| Arc::clone(attempt.reader())).collect()
    }

    /// Runs the pool, and performs its actions in order under its lock.
    fn run(
        &self,
        later: &mut PostUnlock<R>,
        act: impl FnOnce(&mut Pool<Boxed<R>>, Instant, &mut Vec<Action<Boxed<R>>>),
    ) {
        let mut state = lock(&self.state);
        let mut actions = std::mem::take(&mut state.actions);
        act(&mut state.pool, self.shared.runtime.now(), &mut actions);
        for action in actions.drain(..) {
            self.show(PoolStep::Action(&action));
            self.perform(&mut state, action, later);
        }
        state.actions = actions;
        self.show(PoolStep::Done(&state.pool));
        later.alarm |= self.rearm(&mut state);
    }

    /// Shows a step to the checker of servers' pools, under the pool's lock.
    pub(crate) fn show(&self, step: PoolStep<'_, Boxed<R>>) {
        if self.reports {
            self.shared.runtime.on_pool(self.id, step);
        }
    }

    /// As `rearm`, for the hot path: an alarm that rings too early does no harm, as the next one is
    /// set then.
    pub(crate) fn rearm_if_sooner(&self, state: &mut PoolState<R>) -> bool {
        let deadline = state.pool.deadline();
        let is_sooner = deadline.is_some_and(|due| state.armed.is_none_or(|armed| due < armed));
        is_sooner && self.rearm(state)
    }

    /// Sets the alarm; returns whether the runtime's alarm must be set, too.
    fn rearm(&self, state: &mut PoolState<R>) -> bool {
        let deadline = state.pool.deadline();
        let differs = deadline != state.armed;
        if differs {
            state.armed = deadline;
            self.shared.alarm.set_pool(self, deadline);
        }
        differs
    }

    fn perform(
        &self,
        state: &mut PoolState<R>,
        action: Action<Boxed<R>>,
        later: &mut PostUnlock<R>,
    ) {
        match action {
            Action::Establish { connection, generation } => {
                let aborted = Arc::new(Channel::new(0));
                let attempt = Establishing::new(generation, Arc::clone(&aborted));
                state.establishing.insert(connection, attempt);
                let running = self.shared.activity.begin();
                let pending = PendingConnection::new(self.weak(), connection, aborted, running);
                later.pending.push((pending, self.address.clone()));
            }
            Action::Abort { connection } => {
                abort(state, connection, later);
            }
            Action::TimedOut { connection, stage, option } => {
                let Some(attempt) = abort(state, connection, later) else { return };
                let error = OperationError::Stream(Failure::not_established(stage, option));
                let failed = |server| (server, connection, attempt.failure(error));
                later.failed.extend(self.me.upgrade().map(failed));
            }
            Action::Deliver { waiter, outcome } => {
                if let Some(channel) = state.waiters.remove(&waiter) {
                    later.wakers.extend(channel.put(outcome));
                }
            }
            Action::Interrupt { connection } => {
                if let Some(cancellation) = state.cancellations.get(&connection) {
                    later.canceled.push(Arc::clone(cancellation));
                }
            }
            Action::Dispose { id, connection } => {
                state.cancellations.remove(&id);
                later.disposed.push(connection);
            }
            Action::Emit { at, event } => {
                if let PoolEvent::ConnectionCheckedOut { duration, .. } = &event
                    && self.is_counted()
                {
                    state.traffic().checked_out(*duration);
                }
                let is_of_check_out = event.is_of_check_out();
                let event = self.event(at, event);
                if self.reports && !is_of_check_out {
                    self.shared.meter.note(&event);
                }
                if self.reports {
                    self.shared.tracing.note(&event, &mut later.wakers);
                }
                if self.is_heard() {
                    self.shared.events.put(Topics::POOLS, event);
                    later.published = later.published | Topics::POOLS;
                }
            }
        }
    }

    fn event(&self, at: Instant, event: PoolEvent) -> Event {
        let (server, address) = (self.id, self.address.clone());
        Event::new(self.shared.topology, at, EventKind::Pool { server, address, event })
    }

    /// Returns whether there may be subscribers to events of this pool.
    pub(crate) fn is_heard(&self) -> bool {
        self.reports && self.shared.events.wants(Topics::POOLS)
    }

    /// Returns whether check-outs are counted, for metrics.
    pub(crate) fn is_counted(&self) -> bool {
        self.reports && self.shared.meter.is_on()
    }

    /// Returns what the pool has counted, and how many connections it has.
    pub(crate) fn take_traffic(&self) -> (Counts, Option<Box<Traffic>>) {
        let mut state = lock(&self.state);
        (state.pool.counts(), state.traffic.take())
    }

    /// Publishes events of the hot path, under the pool's lock; wake the subscribers afterwards.
    pub(crate) fn publish(&self, at: Instant, events: impl IntoIterator<Item = PoolEvent>) {
        for event in events {
            self.show(PoolStep::Published(at, &event));
            self.shared.events.put(Topics::POOLS, self.event(at, event));
        }
    }

    /// A connection is established: the caller that waits for it gets it.
    pub(crate) fn established(
        &self,
        connection: ConnectionId,
        mut established: sdam_core::pool::Established<Boxed<R>>,
    ) {
        established.connection.idle_since = self.idle_since();
        let cancellation = Arc::clone(&established.connection.stream.cancellation);
        let mut state = lock(&self.state);
        // Given up meanwhile: the caller that waited for it gets its answer another way.
        let wanted = state.establishing.remove(&connection).is_some();
        if wanted {
            state.cancellations.insert(connection, cancellation);
        }
        drop(state);
        if !wanted {
            return;
        }
        self.handle(Input::Established { connection, outcome: Ok(established) });
    }

    /// A command of a login is sent.
    pub(crate) fn asked(&self, connection: ConnectionId) {
        // Only timeoutMS makes a difference there.
        if self.shared.options.timeout().is_some() {
            self.handle(Input::Asked { connection });
        }
    }

    /// A command of a login is answered, and the client works out the next one.
    pub(crate) fn answered(&self, connection: ConnectionId) {
        if self.shared.options.timeout().is_some() {
            self.handle(Input::Answered { connection });
        }
    }

    /// A person is asked for what a login needs, or has answered.
    pub(crate) fn person(&self, connection: ConnectionId, is_asked: bool) {
        self.handle(match is_asked {
            true => Input::PersonAsked { connection },
            false => Input::PersonAnswered { connection },
        });
    }

    /// Hello was answered on a connection that is still to be authenticated.
    pub(crate) fn hello_answered(&self, connection: ConnectionId, handshake: &Handshake) {
        let mut state = lock(&self.state);
        let service = handshake.service();
        let generation = state.pool.generation(service);
        if let Some(attempt) = state.establishing.get_mut(&connection) {
            attempt.max_wire_version = handshake.max_wire_version();
            if service.is_some() {
                (attempt.service, attempt.generation) = (service, generation);
            }
        }
    }

    /// A connection could not be established: reports that to the topology, and then to the pool.
    pub(crate) fn not_established(&self, connection: ConnectionId, error: OperationError) {
        if !self.shared.process.is_current() {
            return;
        }
        let attempt = lock(&self.state).establishing.remove(&connection);
        // Otherwise it was given up meanwhile.
        let Some(attempt) = attempt else { return };
        self.note_not_established(connection, attempt.failure(error));
        match self.host.upgrade() {
            Some(host) => host.drain(),
            // No subscriber is left, but the counts must be right.
            None => self.handle(Input::Close),
        }
    }

    pub(crate) fn note_not_established(&self, connection: ConnectionId, failure: OperationFailure) {
        if let (Some(host), Some(server)) = (self.host.upgrade(), self.me.upgrade()) {
            host.defer(Deferred::NotEstablished { server, connection, failure });
        }
    }

    /// Reports to the topology what went wrong with an operation.
    pub(crate) fn operation_failed(&self, failure: OperationFailure) {
        if self.reports
            && let Some(host) = self.host.upgrade()
        {
            let server = self.id;
            host.handle(sdam_core::topology::Input::OperationFailed { server, failure });
        }
    }

    pub(crate) const fn reports(&self) -> bool {
        self.reports
    }

    pub(crate) const fn key(&self) -> u64 {
        self.key
    }

    /// Returns the client that it is of, unless that was dropped.
    pub(crate) fn host(&self) -> Option<Arc<Host<R>>> {
        self.host.upgrade()
    }

    pub(crate) fn weak(&self) -> Weak<Self> {
        Weak::clone(&self.me)
    }

    pub(crate) const fn shared(&self) -> &Arc<Shared<R>> {
        &self.shared
    }
}

impl<R: Runtime> PoolState<R> {
    /// Returns where check-outs and commands are counted.
    pub(crate) fn traffic(&mut self) -> &mut Traffic {
        self.traffic.get_or_insert_default()
    }
}

/// Ends the task that establishes a connection.
fn abort<R: Runtime>(
    state: &mut PoolState<R>,
    connection: ConnectionId,
    later: &mut PostUnlock<R>,
) -> Option<Establishing> {
    let attempt = state.establishing.remove(&connection)?;
    later.wakers.extend(attempt.abort());
    Some(attempt)
}

impl<R: Runtime> Drop for Server<R> {
    fn drop(&mut self) {
        if !self.shared.process.is_current() {
            return;
        }
        // Establishing ends with the pool, even if it was not closed.
        self.handle(Input::Close);
        let traffic = lock(&self.state).traffic.take();
        self.shared.meter.add(&self.address, traffic);
        self.shared.alarm.set_pool(self, None);
        self.shared.alarm.arm(&self.shared.runtime);
    }
}

impl<R: Runtime> std::fmt::Debug for Server<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("id", &self.id)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}
