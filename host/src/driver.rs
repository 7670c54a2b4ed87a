//! The topology behind its lock, and how its actions are performed.

use std::collections::BTreeMap;
use std::sync::{Arc, TryLockError, Weak};

use super::later::Later;
use super::mailbox::Mailbox;
use super::server::Server;
use super::sync::MutexGuard;
use super::{Host, Link, Recording, Rescan, Runtime, View, lock, wait};
use sdam_core::config::Options;
use sdam_core::id::{ConnectionId, LinkId, ServerId, WaiterId};
use sdam_core::machine::Machine;
use sdam_core::operation::OperationFailure;
use sdam_core::pool;
use sdam_core::selection::{Snapshot, Verdict};
use sdam_core::time::{Instant, Time};
use sdam_core::topology::{Action, Event, EventKind, Input, Topology};
use sdam_core::trace::{Header, Recorder};

/// What the topology's lock protects.
pub(super) struct Driver<R: Runtime> {
    pub(super) topology: Recorder<Topology>,
    /// What the topology was seeded with.
    seed: u64,
    /// The latest time at which the topology was told something.
    told: Time,
    /// What is to be sent over each link that is not closed.
    pub(super) links: BTreeMap<LinkId, Arc<Mailbox<Vec<u8>>>>,
    pub(super) servers: BTreeMap<ServerId, Arc<Server<R>>>,
    /// Pools that are no server's own, and end with the client nevertheless.
    pub(super) asides: Vec<Weak<Server<R>>>,
    /// Whether a server has joined since the last view was published.
    joined: bool,
    /// Whether the last event has been told, so that nothing will follow.
    pub(super) closed: bool,
    /// Operations that wait for a server, and where their answers go.
    pub(super) waiters: BTreeMap<WaiterId, Arc<Mailbox<wait::Answer>>>,
    /// What waits for the lock to be free.
    later: Later<R>,
    /// Kept between calls for its memory.
    pub(super) actions: Vec<Action>,
}

impl<R: Runtime> Driver<R> {
    pub(super) fn new(topology: Topology, seed: u64) -> Self {
        Self {
            topology: Recorder::off(topology),
            seed,
            told: Time::ZERO,
            links: BTreeMap::new(),
            servers: BTreeMap::new(),
            asides: Vec::new(),
            joined: false,
            closed: false,
            waiters: BTreeMap::new(),
            later: Later::default(),
            actions: Vec::new(),
        }
    }

    /// Records the topology from now on, unless the recording is another's.
    pub(super) fn record(&mut self, options: &Options, recording: &Recording) -> bool {
        let mut header = Header::new(options, self.seed);
        header.is_tail = self.topology.deadline() != Some(Instant::ZERO);
        let is_ours = recording.begin(header);
        if is_ours {
            let (journal, recording) = (recording.journal(), recording.clone());
            // Its readers are woken when the lock is free.
            self.topology.resume(journal, move |lines| recording.put(lines));
        }
        is_ours
    }

    /// Forgets a link; returns what ends its task.
    fn forget(&mut self, link: LinkId) -> Option<Arc<Mailbox<Vec<u8>>>> {
        let outgoing = self.links.remove(&link)?;
        self.later.let_go(Arc::clone(&outgoing) as Arc<_>);
        Some(outgoing)
    }

    /// Returns what wakes the tasks that read from links.
    pub(super) fn readers(&self) -> Vec<Arc<Mailbox<Vec<u8>>>> {
        self.links.values().cloned().collect()
    }

    /// Returns the pools, those included that are no server's own.
    pub(super) fn pools(&self) -> Vec<Arc<Server<R>>> {
        let asides = self.asides.iter().filter_map(Weak::upgrade);
        self.servers.values().cloned().chain(asides).collect()
    }
}

/// What became of something while a lock was held, by this very thread perhaps.
pub(super) enum News<R: Runtime> {
    /// A link or a rescan was dropped without a word.
    Lost(Input<'static>),
    /// An operation has stopped to wait for a server.
    Abandoned(WaiterId),
    /// A connection could not be established.
    NotEstablished { server: Arc<Server<R>>, connection: ConnectionId, failure: OperationFailure },
}

impl<R: Runtime> Host<R> {
    /// Tells the topology, unless that is another process's, whose locks nobody may ever release.
    pub(super) fn handle(&self, input: Input<'_>) {
        if !self.shared.process.is_current() {
            return;
        }
        self.with_driver(|driver| self.step(driver, input));
    }

    /// Does something under the lock, and afterwards what had to wait and what came up meanwhile.
    pub(super) fn with_driver<T>(&self, act: impl FnOnce(&mut Driver<R>) -> T) -> T {
        let mut driver = lock(&self.driver);
        let result = act(&mut driver);
        self.let_go(driver);
        self.catch_up();
        result
    }

    /// Lets go of the lock, and does what had to wait for that.
    fn let_go(&self, mut driver: MutexGuard<'_, Driver<R>>) {
        let mut later = std::mem::take(&mut driver.later);
        drop(driver);
        if let Some(recording) = self.shared.tracing.recording() {
            later.wakers.extend(recording.take_wakers());
        }
        later.settle(&self.shared);
    }

    pub(super) fn step(&self, driver: &mut Driver<R>, input: Input<'_>) {
        if let Input::Closed { link, .. } = &input {
            driver.forget(*link);
        }
        let now = Time::before(driver.topology.deadline(), self.shared.runtime.now());
        driver.told = now;
        driver.topology.handle(now, input, &mut driver.actions);
        self.perform(driver);
    }

    /// Lets the topology judge its deadlines up to `now`, which may be a little in the past: others
    /// may have told it something since.
    pub(super) fn tick(&self, driver: &mut Driver<R>, now: Instant) {
        driver.told = driver.told.max(now.into());
        driver.topology.tick(driver.told, &mut driver.actions);
        self.perform(driver);
    }

    /// Takes note of news that may come under any lock: whoever holds the topology's, this very
    /// thread perhaps, or else this call, tells the machine.
    pub(super) fn note(&self, news: News<R>) {
        lock(&self.news).push(news);
    }

    /// Tells the machine what was noted, unless the holder of its lock will do so.
    pub(super) fn catch_up(&self) {
        while !lock(&self.news).is_empty() {
            let mut driver = match self.driver.try_lock() {
                Ok(driver) => driver,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                // Its holder comes by here after it has let go.
                Err(TryLockError::WouldBlock) => return,
            };
            let news = std::mem::take(&mut *lock(&self.news));
            for news in news {
                self.learn(&mut driver, news);
            }
            self.let_go(driver);
        }
    }

    fn learn(&self, driver: &mut Driver<R>, news: News<R>) {
        match news {
            News::Lost(input) => self.step(driver, input),
            News::Abandoned(waiter) => {
                if let Some(answer) = driver.waiters.remove(&waiter) {
                    driver.later.let_go(answer);
                    self.step(driver, Input::Abandon { waiter });
                }
            }
            // "ConnectionCheckOutFailed" follows "PoolCleared": the operation learns of its failure
            // when the view shows what came of it, but it is its own failure that it learns of.
            News::NotEstablished { server, connection, failure } => {
                let error = failure.error.clone();
                server.handle_and(pool::Input::Failing { connection }, &mut driver.later);
                if server.reports() {
                    let server = server.id();
                    self.step(driver, Input::OperationFailed { server, failure });
                }
                let failed = pool::Input::Established { connection, outcome: Err(error) };
                server.handle_and(failed, &mut driver.later);
                driver.later.let_go(server);
            }
        }
    }

    /// Lets a pool that is no server's own end with the client; returns whether that is still open.
    pub(super) fn adopt(&self, aside: &Server<R>) -> bool {
        self.with_driver(|driver| {
            driver.asides.retain(|aside| aside.strong_count() > 0);
            driver.asides.push(aside.weak());
            !driver.closed
        })
    }

    /// Performs the actions in order, under the lock, so that their order is the machine's.
    pub(super) fn perform(&self, driver: &mut Driver<R>) {
        let mut actions = std::mem::take(&mut driver.actions);
        for action in actions.drain(..) {
            self.perform_one(driver, action);
        }
        driver.actions = actions;
        self.shared.alarm.set_topology(driver.topology.deadline());
        driver.later.alarm = true;
    }

    fn perform_one(&self, driver: &mut Driver<R>, action: Action) {
        match action {
            Action::Open { link, address } => {
                let outgoing = Arc::new(Mailbox::new(usize::MAX));
                driver.links.insert(link, Arc::clone(&outgoing));
                let running = self.shared.activity.begin();
                let link = Link::new(Weak::clone(&self.me), link, outgoing, running);
                driver.later.links.push((link, address));
            }
            Action::Send { link, bytes } => {
                if let Some(outgoing) = driver.links.get(&link) {
                    driver.later.wakers.extend(outgoing.put(bytes));
                }
            }
            Action::Close { link } => {
                let ended = driver.forget(link).and_then(|outgoing| outgoing.end());
                driver.later.wakers.extend(ended);
            }
            Action::Resolve { question } => {
                let running = self.shared.activity.begin();
                let rescan = Rescan::new(Weak::clone(&self.me), question, running);
                driver.later.rescans.push(rescan);
            }
            Action::Join { server, address } => {
                let (host, later) = (Weak::clone(&self.me), &mut driver.later);
                let joined = Server::join(host, &self.shared, server, address, later);
                driver.servers.insert(server, joined);
                driver.joined = true;
            }
            Action::Leave { server } => {
                if let Some(server) = driver.servers.remove(&server) {
                    server.handle_and(pool::Input::Close, &mut driver.later);
                    driver.later.let_go(server);
                }
            }
            Action::Pool { server, command } => {
                let clears = !matches!(command, pool::Command::Ready);
                if let Some(server) = driver.servers.get(&server) {
                    server.handle_and(pool::Input::Command(command), &mut driver.later);
                }
                if clears {
                    self.dump(driver, || format!("the pool of {server} was cleared"));
                }
            }
            Action::Publish { snapshot } => self.publish(driver, snapshot),
            Action::Wake { waiter, outcome } => {
                if outcome.as_ref().is_err_and(|error| error.verdict != Verdict::Closed) {
                    self.dump(driver, || format!("a selection has failed, w{}", waiter.0));
                }
                if let Some(answer) = driver.waiters.remove(&waiter) {
                    driver.later.wakers.extend(answer.put(outcome));
                    driver.later.let_go(answer);
                }
            }
            Action::Emit { event } if matches!(event.kind, EventKind::TopologyClosed) => {
                self.end(driver, &event);
            }
            Action::Emit { event } => self.shared.events.put(&event, &mut driver.later.wakers),
        }
    }

    /// Tells the last event: nothing will follow.
    fn end(&self, driver: &mut Driver<R>, last: &Event) {
        driver.closed = true;
        self.shared.alarm.close();
        let later = &mut driver.later;
        self.shared.events.close(Some(last), &mut later.wakers);
        self.shared.views.close(None, &mut later.wakers);
        for aside in std::mem::take(&mut driver.asides).iter().filter_map(Weak::upgrade) {
            aside.handle_and(pool::Input::Close, later);
            later.let_go(aside);
        }
    }

    /// Has a flight recorder hand out what it has kept.
    fn dump(&self, driver: &Driver<R>, reason: impl FnOnce() -> String) {
        if let Some(recording) = self.shared.tracing.recording() {
            let (now, view) = (driver.told.judged, driver.topology.get().description());
            recording.dump(now, view, reason);
        }
    }

    fn publish(&self, driver: &mut Driver<R>, snapshot: Arc<Snapshot>) {
        let description = Arc::clone(snapshot.description());
        let (known, is_news) = {
            let view = self.view.load();
            let is_news = !view.snapshot.description().same_as(&description);
            (Arc::clone(&view.servers), is_news)
        };
        // Servers join before the view that names them is published, so that the list is the same
        // unless one has joined or the length differs.
        let same =
            !std::mem::take(&mut driver.joined) && known.len() == description.servers().len();
        let servers = match same {
            true => known,
            false => description
                .servers()
                .iter()
                .filter_map(|server| driver.servers.get(&server.id).cloned())
                .collect(),
        };
        // First, so that whoever is told of a view reads no older one.
        let earlier = self.view.swap(Arc::new(View { snapshot, servers }));
        driver.later.let_go(earlier);
        if is_news {
            self.shared.views.put(&description, &mut driver.later.wakers);
        }
    }
}
