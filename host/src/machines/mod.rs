//! The state that the threads and tasks of a client share: the topology and the pools behind their
//! locks, their deadlines, the subscribers to events, and what waits for the locks to be free.

pub(crate) mod alarm;
pub(crate) mod awaiting;
pub(crate) mod client_tasks;
pub(crate) mod cluster_time;
pub(crate) mod commands;
pub(crate) mod followers;
pub(crate) mod log;
pub(crate) mod monitor_stream;
pub(crate) mod runtime;
pub(crate) mod server;
pub(crate) mod sleep;
pub(crate) mod steps;
pub(crate) mod tasks;
pub(crate) mod topology;
pub(crate) mod transactions;

use std::any::Any;
use std::sync::{Arc, OnceLock, TryLockError, Weak};
use std::task::Waker;

use arc_swap::ArcSwap;
use bson::RawDocumentBuf;
use sdam_core::auth::CredentialCache;
use sdam_core::config::metadata::DriverInfo;
use sdam_core::config::{Options, ServerAddress};
use sdam_core::description::TopologyDescription;
use sdam_core::diagnosis::Verdict;
use sdam_core::id::{ConnectionId, TopologyId};
use sdam_core::logging::LogSettings;
use sdam_core::metrics::Family;
use sdam_core::operation::{CursorsToKill, OperationFailure};
use sdam_core::rng::Rng;
use sdam_core::selection::Snapshot;
use sdam_core::session::SessionPool;
use sdam_core::time::Instant;
use sdam_core::topology::{Event, Follower, Input, Topics};

use crate::machines::alarm::{Alarm, Step, Sweep};
use crate::machines::awaiting::Awaiting;
use crate::machines::cluster_time::LatestClusterTime;
use crate::machines::commands::RunningCommands;
use crate::machines::followers::Followers;
use crate::machines::log::Logger;
use crate::machines::runtime::Runtime;
use crate::machines::server::{Boxed, Server};
use crate::machines::tasks::{Link, PendingConnection, Rescan};
use crate::machines::topology::{Deferred, Root, TopologyState};
use crate::net::stream::SpareBuffer;
use crate::observe::meter::Meter;
use crate::observe::recording::{Recording, Tracing};
use crate::observe::spans::Spans;
use crate::observe::subscription::{EVENT_LIMIT, Events, Subscribers, Subscription, Views};
use crate::process::{Own, Process};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::channel::Barrier;
use crate::sync::{
    Activity, AsyncMutex, CancellationToken, FirstPanic, Gate, Mutex, MutexGuard, lock,
};
use crate::system;

/// The reason why a host shares its monitors with no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotShared {
    /// The options differ in what decides how servers are monitored.
    #[error("monitors cannot be shared: the options differ in how servers are reached or checked")]
    Options,
    /// The host is closed, or has monitors for itself alone.
    #[error("monitors cannot be shared: their host is closed, or keeps them for itself")]
    Closed,
}

/// The machines of one client, behind their locks, shared by its threads and tasks.
///
/// Dropping the last reference closes the client: links and pools end, and so do subscriptions,
/// after their last events.
pub struct Host<R: Runtime> {
    pub(crate) me: Weak<Self>,
    pub(crate) shared: Arc<Shared<R>>,
    /// The host whose monitors it shares, if it has none of its own.
    pub(crate) leader: Option<Arc<Self>>,
    pub(crate) topology: Mutex<TopologyState<R>>,
    pub(crate) view: ArcSwap<View<R>>,
    /// The name of the next operation that waits for a server.
    pub(crate) next_waiter: AtomicU64,
    /// The inputs from links, rescans and connections that came while the lock was held.
    pub(crate) deferred: Mutex<Vec<Deferred<R>>>,
    /// The sessions of the servers that are not in use.
    pub(crate) sessions: Mutex<SessionPool>,
    pub(crate) transactions: transactions::OpenTransactions,
    /// The cursors that were dropped while open.
    pub(crate) cursors_to_kill: Gate<CursorsToKill>,
    pub(crate) awaiting: Awaiting,
}

/// The state that a client shares with its servers and check-outs, which may outlive it.
pub(crate) struct Shared<R: Runtime> {
    pub(crate) runtime: R,
    pub(crate) options: Arc<Options>,
    /// The process that may use it.
    pub(crate) process: Process,
    pub(crate) topology: TopologyId,
    pub(crate) events: Arc<Subscribers<Event>>,
    pub(crate) commands: RunningCommands,
    pub(crate) views: Arc<Subscribers<Arc<TopologyDescription>>>,
    pub(crate) tracing: Tracing,
    /// The writer of the log, if there is a log.
    pub(crate) logger: OnceLock<Logger>,
    /// The spans, if a tracer receives them.
    pub(crate) spans: OnceLock<Spans>,
    /// The metrics, if they are in use.
    pub(crate) meter: Meter,
    pub(crate) alarm: Alarm<R>,
    pub(crate) activity: Arc<Activity>,
    pub(crate) clock: LatestClusterTime,
    /// The credential cache of all connections.
    pub(crate) credential_cache: Mutex<CredentialCache>,
    /// The turn to ask for a token.
    pub(crate) oidc: Arc<AsyncMutex>,
    /// The metadata that new connections send.
    pub(crate) metadata: Mutex<Arc<RawDocumentBuf>>,
    /// The source of the next selection's random bits.
    pub(crate) random: AtomicU64,
    /// The name of the next pool.
    pub(crate) next_pool: AtomicU64,
    /// The buffer of large messages.
    pub(crate) spare: SpareBuffer,
}

/// The view that operations read: descriptions, and the servers, index for index.
pub(crate) struct View<R: Runtime> {
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) servers: Arc<[Arc<Server<R>>]>,
}

impl<R: Runtime> Host<R> {
    /// Creates the machines; nothing happens before the first [`ring`](Self::ring).
    pub fn new(options: Arc<Options>, seed: u64, runtime: R) -> Arc<Self> {
        let root = Root::own(&options, seed);
        Self::with(options, seed, runtime, TopologyState::new(root, None, seed), None)
    }

    /// Creates a host that monitors a deployment for others, which [share](Self::sharing) it, and
    /// has neither pools nor operations. It is closed when the last of them is.
    pub fn for_sharing(options: Arc<Options>, seed: u64, runtime: R) -> Arc<Self> {
        let root = Root::own(&options, seed);
        let state = TopologyState::new(root, Some(Followers::default()), seed);
        Self::with(options, seed, runtime, state, None)
    }

    /// Creates the machines of a client that shares the monitors of `leader`; nothing happens
    /// before the first [`ring`](Self::ring). Pools and credentials are its own, its clock must be
    /// that of the leader, and it keeps the leader.
    ///
    /// # Errors
    ///
    /// Fails if the leader is closed, is not [for sharing](Self::for_sharing), or has options with
    /// which it [cannot share](Options::can_share_monitors) its monitors with this client.
    pub fn sharing(
        leader: Arc<Self>,
        options: Arc<Options>,
        seed: u64,
        runtime: R,
    ) -> Result<Arc<Self>, NotShared> {
        if !leader.options().can_share_monitors(&options) {
            return Err(NotShared::Options);
        }
        let root = Root::Shared(Box::new(Follower::new(&options, seed)));
        let (state, leads) = (TopologyState::new(root, None, seed), Arc::clone(&leader));
        let follower = Self::with(options, seed, runtime, state, Some(leader));
        match leads.with_topology(|state| state.admit(&follower.me)) {
            true => Ok(follower),
            false => Err(NotShared::Closed),
        }
    }

    fn with(
        options: Arc<Options>,
        seed: u64,
        runtime: R,
        state: TopologyState<R>,
        leader: Option<Arc<Self>>,
    ) -> Arc<Self> {
        let (topology, snapshot, metadata) = state.root.beginning();
        let view = View { snapshot, servers: Arc::new([]) };
        let process = Process::current();
        let seeds = runtime.session_seeds().unwrap_or([seed, !seed]);
        let sessions = SessionPool::new(seeds);
        let shared = Shared {
            runtime,
            options,
            process,
            topology,
            events: Arc::default(),
            commands: RunningCommands::default(),
            views: Arc::default(),
            tracing: Tracing::default(),
            logger: OnceLock::new(),
            spans: OnceLock::new(),
            meter: Meter::default(),
            alarm: Alarm::new(),
            activity: Arc::new(Activity::new(process)),
            clock: LatestClusterTime::default(),
            credential_cache: Mutex::default(),
            oidc: Arc::default(),
            metadata: Mutex::new(Arc::new(metadata)),
            random: AtomicU64::new(!seed),
            next_pool: AtomicU64::new(0),
            spare: SpareBuffer::default(),
        };
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            shared: Arc::new(shared),
            leader,
            topology: Mutex::new(state),
            view: ArcSwap::from_pointee(view),
            next_waiter: AtomicU64::new(0),
            deferred: Mutex::default(),
            sessions: Mutex::new(sessions),
            transactions: transactions::OpenTransactions::new(process),
            cursors_to_kill: Gate::default(),
            awaiting: Awaiting::default(),
        })
    }

    /// Returns the host that has the topology: this one, or the one whose monitors it shares.
    pub(crate) fn root(&self) -> &Self {
        self.leader.as_deref().unwrap_or(self)
    }

    /// Returns what is known now; it takes no lock.
    pub fn view(&self) -> Arc<TopologyDescription> {
        Arc::clone(self.view.load().snapshot.description())
    }

    /// Returns what is known now, to select from; it takes no lock.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.view.load().snapshot)
    }

    /// Returns the runtime.
    pub fn runtime(&self) -> &R {
        &self.shared.runtime
    }

    /// Returns what the client was configured with.
    pub fn options(&self) -> &Arc<Options> {
        &self.shared.options
    }

    /// Lets the machines do what is due; the runtime calls this at the deadline that was set.
    ///
    /// When it is called much later than that, as after the process was stopped, tasks are first
    /// let read what has arrived meanwhile: the runtime is asked to ring again. In a process that
    /// was forked off nothing is due: the parent's connections are not to be written to.
    pub fn ring(&self) {
        if !self.shared.process.is_current() {
            return;
        }
        let (runtime, alarm) = (&self.shared.runtime, &self.shared.alarm);
        let now = runtime.now();
        match alarm.step(now) {
            Step::Wait => {}
            Step::Sweep(number) => {
                alarm.arm(runtime);
                self.sweep(number);
            }
            Step::Judge => self.judge(now),
        }
        // Re-arm even if no deadline was judged.
        alarm.arm(runtime);
        if alarm.take_log(now) {
            Logger::read_for(&self.shared);
            alarm.arm(runtime);
        }
    }

    /// Lets every machine judge the deadlines that have passed by `now`, and no later ones: the
    /// process may be stopped at any point of this, too.
    fn judge(&self, now: Instant) {
        let (topology, servers, sleepers) = self.shared.alarm.due(now);
        let mut panic = FirstPanic::default();
        panic.call(|| match &self.leader {
            _ if !topology => {}
            None => self.with_topology(|state| state.tick(self, now)),
            Some(leader) => {
                leader.with_topology(|state| state.open(self));
                self.with_topology(|_| ());
            }
        });
        servers.iter().for_each(|server| panic.call(|| server.tick(now)));
        panic.wake_all(sleepers);
    }

    /// Subscribes to the events from now on, but for commands; in a process that was forked off
    /// there are none.
    pub fn subscribe(&self) -> Events {
        self.subscribe_to(Topics::WITHOUT_COMMANDS)
    }

    /// Subscribes to the events of these topics from now on; in a process that was forked off there
    /// are none.
    pub fn subscribe_to(&self, topics: Topics) -> Events {
        let process = self.shared.process;
        Events(Own::new(
            match process.is_current() && topics != Topics::NONE {
                true => self.shared.events.subscribe(topics, EVENT_LIMIT, None),
                false => Subscription::none(),
            },
            process,
        ))
    }

    /// Subscribes to the view: the one of now first, and then each that differs from the one before
    /// in what events report, the latest only if there are several. In a process that was forked
    /// off there is none.
    pub fn watch(&self) -> Views {
        let process = self.shared.process;
        // Under the lock, so that no view is published in between.
        let subscribe = |_: &mut TopologyState<R>| {
            let now = Some(self.view());
            self.shared.views.subscribe(Topics::TOPOLOGY, 1, now)
        };
        Views(Own::new(
            match process.is_current() {
                true => self.with_topology(subscribe),
                false => Subscription::none(),
            },
            process,
        ))
    }

    /// Records the inputs and actions of the topology: once for each client, and one client for
    /// each recording; another call changes nothing. The recording can be replayed if this is
    /// called before the first [`ring`](Self::ring).
    pub fn record(&self, recording: &Recording) {
        let tracing = &self.shared.tracing;
        self.with_topology(|state| {
            if tracing.recording().is_none() && state.record(&self.shared.options, recording) {
                tracing.set(recording.clone());
            }
        });
    }

    /// Writes what happens from now on to the log, if there is one; once for each client.
    pub(crate) fn log(&self, settings: LogSettings) {
        let shared = &self.shared;
        if let Some(sink) = system::log::LogSink::new(settings) {
            let running = shared.activity.begin();
            let now = shared.runtime.now();
            let new = || Logger::new(&shared.events, sink, shared.process, running, now);
            shared.logger.get_or_init(new);
            // Arranges for the first wake-up.
            Logger::read_for(shared);
        }
    }

    /// Reports spans from now on, in this process; once for each client.
    pub(crate) fn trace(&self, spans: Spans) {
        let shared = Arc::downgrade(&self.shared);
        let clock = move || Some(shared.upgrade()?.runtime.now());
        self.shared.spans.get_or_init(|| spans.with_clock(clock));
    }

    /// Returns the metrics: what was counted since the first call of this, or since
    /// [`count`](Self::count); in a process that was forked off there are none.
    pub fn metrics(&self) -> Vec<Family> {
        let shared = &self.shared;
        if !shared.process.is_current() {
            return Vec::new();
        }
        let metrics = shared.meter.start();
        let pools = self.with_topology(|state| state.pools());
        let counted: Vec<_> = pools.iter().map(|pool| (pool, pool.take_traffic())).collect();
        let (now, view) = (shared.runtime.now(), self.view());
        let mut metrics = lock(metrics);
        for (pool, (counts, traffic)) in counted {
            if let Some(traffic) = traffic {
                metrics.add(pool.address(), *traffic);
            }
            if pool.reports() {
                metrics.see_pool(pool.address(), counts);
            }
        }
        metrics.see(now, &view);
        for server in view.servers() {
            if let Some(expiry) = shared.runtime.certificate_expiry(&server.address) {
                metrics.see_certificate(&server.address, expiry);
            }
        }
        metrics.snapshot(now)
    }

    /// Counts metrics from now on.
    pub fn count(&self) {
        if self.shared.process.is_current() {
            self.shared.meter.start();
        }
    }

    /// Puts what was found out before among the first events; call this before the first
    /// [`ring`](Self::ring).
    pub(crate) fn announce(&self, findings: impl IntoIterator<Item = Verdict>) {
        self.with_topology(|state| state.findings.extend(findings));
    }

    /// Asks every task that reads for the machines to read what has arrived.
    pub(crate) fn sweep(&self, number: u64) {
        let barrier: Barrier = Arc::new(Sweep { shared: Arc::downgrade(&self.shared), number });
        let (links, pools) = self.with_topology(|state| (state.readers(), state.pools()));
        links.iter().for_each(|link| link.barrier(Arc::clone(&barrier)));
        let pending = pools.iter().flat_map(|pool: &Arc<Server<R>>| pool.readers());
        pending.for_each(|pending| pending.barrier(Arc::clone(&barrier)));
    }

    /// Asks for a check of every server as soon as possible.
    pub fn request_check(&self) {
        self.handle(Input::RequestCheck);
    }

    /// Adds the name of a wrapping library to the metadata of connections made from now on; adding
    /// the same twice changes nothing.
    pub fn append_metadata(&self, info: DriverInfo) {
        if !self.shared.process.is_current() {
            return;
        }
        self.handle(Input::AppendMetadata { info });
        self.with_topology(|state| {
            let (_, _, metadata) = state.root.beginning();
            *lock(&self.shared.metadata) = Arc::new(metadata);
        });
    }

    /// Ends the client: links and pools are closed, waiting operations fail, and subscriptions end
    /// after their last events. Connections in use are closed when they return; those over which a
    /// server waits for something to happen are interrupted.
    pub fn close(&self) {
        // A task that panics when it is woken keeps no call waiting.
        let _calls = self.shared.process.is_current().then(|| self.awaiting.ending());
        self.handle(Input::Shutdown);
    }

    /// Waits until no task of a closed client runs any more and its log is written; in a process
    /// that was forked off there is none.
    pub async fn ended(&self) {
        if self.shared.process.is_current() {
            self.shared.activity.idle().await;
            // That of the last one who has shared it ends with that.
            if let Some(leader) = self.leader.as_ref().filter(|leader| leader.is_closed()) {
                leader.shared.activity.idle().await;
            }
        }
    }

    /// Returns whether the last event was published.
    pub(crate) fn is_closed(&self) -> bool {
        self.with_topology(|state| state.closed)
    }

    /// Passes an input to the topology, unless that is another process's, whose locks may never be
    /// released.
    pub(crate) fn handle(&self, input: Input<'_>) {
        if !self.shared.process.is_current() {
            return;
        }
        match &self.leader {
            None => self.with_topology(|state| state.step(self, input)),
            Some(leader) => {
                leader.with_topology(|state| state.step_for(leader, self, input));
                self.with_topology(|_| ());
            }
        }
    }

    /// Does something under the lock, and afterwards what had to wait and what came up meanwhile.
    pub(crate) fn with_topology<T>(&self, act: impl FnOnce(&mut TopologyState<R>) -> T) -> T {
        let mut state = lock(&self.topology);
        let result = act(&mut state);
        self.unlock(state);
        self.drain();
        result
    }

    /// Lets go of the lock, and does what had to wait for that.
    fn unlock(&self, mut state: MutexGuard<'_, TopologyState<R>>) {
        let mut later = std::mem::take(&mut state.later);
        let mut dirty = state.take_dirty();
        drop(state);
        if let Some(recording) = self.shared.tracing.recording() {
            later.wakers.extend(recording.take_wakers());
        }
        later.run(&self.shared);
        dirty.run();
    }

    /// Takes note of news that may come under any lock: the holder of the topology's, perhaps this
    /// very thread, or else this call, passes it to the machine.
    pub(crate) fn defer(&self, deferred: Deferred<R>) {
        lock(&self.root().deferred).push(deferred);
    }

    /// Reports in place of a task that the runtime gave up; it may be dropped under any lock.
    pub(crate) fn lost(&self, input: Input<'static>) {
        self.defer(Deferred::Lost(input));
        self.drain();
    }

    /// Passes what was noted to the machine, unless the holder of its lock will do so.
    pub(crate) fn drain(&self) {
        if let Some(leader) = &self.leader {
            return leader.drain();
        }
        while !lock(&self.deferred).is_empty() {
            let mut state = match self.topology.try_lock() {
                Ok(state) => state,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                // Its holder comes by here after it has let go.
                Err(TryLockError::WouldBlock) => return,
            };
            let deferred = std::mem::take(&mut *lock(&self.deferred));
            for deferred in deferred {
                state.apply_deferred(self, deferred);
            }
            self.unlock(state);
        }
    }

    /// Lets a pool that is no server's own end with the client; returns whether that is still open.
    pub(crate) fn adopt(&self, aside: &Server<R>) -> bool {
        self.with_topology(|state| {
            state.asides.retain(|aside| aside.strong_count() > 0);
            state.asides.push(aside.weak());
            !state.closed
        })
    }
}

impl<R: Runtime> Shared<R> {
    /// Draws from a stream of its own, without a lock.
    pub(crate) fn random_bits(&self) -> u64 {
        Rng::new(self.random.fetch_add(Rng::INCREMENT, Ordering::Relaxed)).next_u64()
    }

    /// Returns the spans that operations begin; `None` in a process that was forked off, as a lock
    /// of the tracer's may be held by a thread that is not there.
    pub(crate) fn spans(&self) -> Option<&Spans> {
        self.spans.get().filter(|_| self.process.is_current())
    }
}

impl<R: Runtime> Drop for Host<R> {
    fn drop(&mut self) {
        self.handle(Input::Shutdown);
    }
}

impl<R: Runtime> std::fmt::Debug for Host<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("view", &self.view()).finish_non_exhaustive()
    }
}

/// Work that waits for the locks to be free: runtimes, wakers and what is dropped may come back at
/// once, to the very pool or topology, or end the client.
///
/// It is collected under the locks, and settled by the caller that has released the outermost.
#[must_use]
pub(crate) struct PostUnlock<R: Runtime> {
    /// True if the runtime's alarm must be set.
    pub(crate) alarm: bool,
    pub(crate) links: Vec<(Link<R>, ServerAddress)>,
    pub(crate) rescans: Vec<Rescan<R>>,
    pub(crate) pending: Vec<(PendingConnection<R>, ServerAddress)>,
    pub(crate) failed: Vec<(Arc<Server<R>>, ConnectionId, OperationFailure)>,
    /// The tokens that interrupt users of a connection, which may take a call of the runtime's.
    pub(crate) canceled: Vec<Arc<CancellationToken>>,
    pub(crate) wakers: Vec<Waker>,
    /// The topics of the events that were published.
    pub(crate) published: Topics,
    /// True if a view was published.
    pub(crate) viewed: bool,
    /// True if the last event was published, which the log gets whatever the wakers do.
    pub(crate) ended: bool,
    pub(crate) disposed: Vec<Boxed<R>>,
    /// The findings that are to be logged.
    pub(crate) findings: Vec<Verdict>,
    dropped: Vec<Arc<dyn Any + Send + Sync>>,
}

impl<R: Runtime> Default for PostUnlock<R> {
    fn default() -> Self {
        Self {
            alarm: false,
            links: Vec::new(),
            rescans: Vec::new(),
            pending: Vec::new(),
            failed: Vec::new(),
            canceled: Vec::new(),
            wakers: Vec::new(),
            published: Topics::NONE,
            viewed: false,
            ended: false,
            disposed: Vec::new(),
            findings: Vec::new(),
            dropped: Vec::new(),
        }
    }
}

impl<R: Runtime> PostUnlock<R> {
    /// Lets go of something that wakers may be in, or what ends with a runtime's call.
    pub(crate) fn drop_later(&mut self, dropped: Arc<dyn Any + Send + Sync>) {
        self.dropped.push(dropped);
    }

    /// Does it all, without a lock; those who are woken come last, as they may take their time.
    pub(crate) fn run(self, shared: &Arc<Shared<R>>) {
        let (runtime, mut panic) = (&shared.runtime, FirstPanic::default());
        if self.alarm {
            shared.alarm.arm(runtime);
        }
        panic.wake_all(self.canceled.iter().filter_map(|cancellation| cancellation.cancel()));
        drop(self.disposed);
        for (link, address) in self.links {
            runtime.open(link, address);
        }
        for rescan in self.rescans {
            runtime.resolve(rescan);
        }
        for (pending, address) in self.pending {
            runtime.establish(pending, address);
        }
        for (server, connection, failure) in self.failed {
            server.note_not_established(connection, failure);
        }
        self.findings.iter().for_each(system::log_finding);
        panic.wake_all(self.wakers);
        if self.viewed {
            panic.call(|| shared.views.wake(Topics::TOPOLOGY));
        }
        if self.published != Topics::NONE {
            panic.call(|| shared.events.wake(self.published));
        }
        if self.ended {
            panic.call(|| Logger::read_for(shared));
        }
        drop(self.dropped);
    }
}
