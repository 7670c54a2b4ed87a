//! The topology behind its lock, and how its actions are performed.

use std::collections::BTreeMap;
use std::sync::{Arc, TryLockError, Weak};
use std::task::Waker;

use super::mailbox::Mailbox;
use super::server::Server;
use super::subscription::{close_all, deliver};
use super::suspension::not_yet_due;
use super::{Host, Link, Recording, Rescan, Runtime, View, lock, wait};
use crate::action::Action;
use crate::description::TopologyDescription;
use crate::event::EventKind;
use crate::id::{ConnectionId, LinkId, ServerId, WaiterId};
use crate::machine::Machine;
use crate::operation::OperationFailure;
use crate::options::Options;
use crate::pool;
use crate::selection::{Snapshot, Verdict};
use crate::time::Instant;
use crate::topology::{Input, Topology};
use crate::trace::{Header, Recorder};

/// What the topology's lock protects.
pub(super) struct Driver<R: Runtime> {
    pub(super) topology: Recorder<Topology>,
    /// What the topology was seeded with.
    seed: u64,
    /// The latest time at which the topology was told something.
    told: Instant,
    /// What is to be sent over each link that is not closed.
    pub(super) links: BTreeMap<LinkId, Arc<Mailbox<Vec<u8>>>>,
    pub(super) servers: BTreeMap<ServerId, Arc<Server<R>>>,
    /// Pools that are no server's own, and end with the client nevertheless.
    asides: Vec<Weak<Server<R>>>,
    /// Whether a server has joined since the last view was published.
    joined: bool,
    /// Whether the last event has been told, so that nothing will follow.
    pub(super) closed: bool,
    pub(super) views: Vec<Weak<Mailbox<Arc<TopologyDescription>>>>,
    /// Operations that wait for a server, and where their answers go.
    pub(super) waiters: BTreeMap<WaiterId, Arc<Mailbox<wait::Answer>>>,
    /// Kept between calls for its memory.
    pub(super) actions: Vec<Action>,
}

impl<R: Runtime> Driver<R> {
    pub(super) const fn new(topology: Topology, seed: u64) -> Self {
        Self {
            topology: Recorder::off(topology),
            seed,
            told: Instant::ZERO,
            links: BTreeMap::new(),
            servers: BTreeMap::new(),
            asides: Vec::new(),
            joined: false,
            closed: false,
            views: Vec::new(),
            waiters: BTreeMap::new(),
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
            self.topology.resume(journal, move |lines| {
                recording.put(lines).into_iter().for_each(Waker::wake);
            });
        }
        is_ours
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

    /// Does something under the lock, and afterwards what came up meanwhile.
    pub(super) fn with_driver<T>(&self, act: impl FnOnce(&mut Driver<R>) -> T) -> T {
        let result = act(&mut lock(&self.driver));
        self.catch_up();
        result
    }

    pub(super) fn step(&self, driver: &mut Driver<R>, input: Input<'_>) {
        if let Input::Closed { link, .. } = &input {
            driver.links.remove(link);
        }
        let clock = self.shared.runtime.now();
        let now = not_yet_due(clock, driver.topology.deadline());
        driver.told = now;
        driver.topology.set_clock(clock);
        driver.topology.handle(now, input, &mut driver.actions);
        self.perform(driver);
    }

    /// Lets the topology judge its deadlines up to `now`, which may be a little in the past: others
    /// may have told it something since.
    pub(super) fn tick(&self, driver: &mut Driver<R>, now: Instant) {
        driver.told = now.max(driver.told);
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
        }
    }

    fn learn(&self, driver: &mut Driver<R>, news: News<R>) {
        match news {
            News::Lost(input) => self.step(driver, input),
            News::Abandoned(waiter) => {
                if driver.waiters.remove(&waiter).is_some() {
                    self.step(driver, Input::Abandon { waiter });
                }
            }
            // "ConnectionCheckOutFailed" follows "PoolCleared": the operation learns of its failure
            // when the view shows what came of it, but it is its own failure that it learns of.
            News::NotEstablished { server, connection, failure } => {
                let error = failure.error.clone();
                server.handle(pool::Input::Failing { connection });
                if server.reports() {
                    let server = server.id();
                    self.step(driver, Input::OperationFailed { server, failure });
                }
                server.handle(pool::Input::Established { connection, outcome: Err(error) });
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
        self.shared.alarm.set_topology(&self.shared.runtime, driver.topology.deadline());
    }

    fn perform_one(&self, driver: &mut Driver<R>, action: Action) {
        match action {
            Action::Open { link, address } => {
                let outgoing = Arc::new(Mailbox::new(usize::MAX));
                driver.links.insert(link, Arc::clone(&outgoing));
                let running = self.shared.activity.begin();
                let link = Link::new(Weak::clone(&self.me), link, outgoing, running);
                self.shared.runtime.open(link, address);
            }
            Action::Send { link, bytes } => {
                if let Some(outgoing) = driver.links.get(&link) {
                    outgoing.push(bytes);
                }
            }
            Action::Close { link } => {
                if let Some(outgoing) = driver.links.remove(&link) {
                    outgoing.close();
                }
            }
            Action::Resolve { question } => {
                let running = self.shared.activity.begin();
                let rescan = Rescan::new(Weak::clone(&self.me), question, running);
                self.shared.runtime.resolve(rescan);
            }
            Action::Join { server, address } => {
                let joined = Server::join(Weak::clone(&self.me), &self.shared, server, address);
                driver.servers.insert(server, joined);
                driver.joined = true;
            }
            Action::Leave { server } => {
                if let Some(server) = driver.servers.remove(&server) {
                    server.handle(pool::Input::Close);
                }
            }
            Action::Pool { server, command } => {
                let clears = !matches!(command, pool::Command::Ready);
                if let Some(server) = driver.servers.get(&server) {
                    server.handle(pool::Input::Command(command));
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
                    answer.push(outcome);
                }
            }
            Action::Emit { event } => {
                self.shared.subscribers.tell(&event);
                if matches!(event.kind, EventKind::TopologyClosed) {
                    driver.closed = true;
                    let mut wakers = Vec::new();
                    close_all(&mut driver.views, &mut wakers);
                    wakers.into_iter().for_each(Waker::wake);
                    let asides = std::mem::take(&mut driver.asides);
                    for aside in asides.iter().filter_map(Weak::upgrade) {
                        aside.handle(pool::Input::Close);
                    }
                }
            }
        }
    }

    /// Has a flight recorder hand out what it has kept.
    fn dump(&self, driver: &Driver<R>, reason: impl FnOnce() -> String) {
        if let Some(recording) = self.shared.tracing.recording() {
            let (now, view) = (driver.told, driver.topology.get().description());
            recording.dump(now, view, reason).into_iter().for_each(Waker::wake);
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
        self.view.store(Arc::new(View { snapshot, servers }));
        if is_news {
            let mut wakers = Vec::new();
            deliver(&mut driver.views, &description, &mut wakers);
            wakers.into_iter().for_each(Waker::wake);
        }
    }
}
