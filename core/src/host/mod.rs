//! The glue that every runtime shares: locks, the published view, links and subscriptions.
//!
//! A [`Host`] keeps the machine of one client behind its lock, performs its actions in order, and
//! asks the runtime for the few things that only a runtime can do. It does no I/O, reads no clock
//! and starts nothing itself.

mod link;
mod mailbox;
mod rescan;
mod wait;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::task::{Context, Poll};

use arc_swap::ArcSwap;

pub use link::Link;
use mailbox::Mailbox;
pub use rescan::Rescan;
use wait::Wait;

use crate::action::Action;
use crate::address::ServerAddress;
use crate::description::{ServerDescription, TopologyDescription};
use crate::event::{Event, EventKind};
use crate::id::{LinkId, WaiterId};
use crate::machine::Machine;
use crate::metadata::DriverInfo;
use crate::options::Options;
use crate::rng::Rng;
use crate::selection::{Criteria, SelectionError, Snapshot};
use crate::time::Instant;
use crate::topology::{Input, Topology};

/// How many events a subscriber may fall behind before the oldest are dropped.
pub const EVENT_LIMIT: usize = 4096;

/// What a runtime supplies; every method returns at once and never calls back.
pub trait Runtime: Send + Sync + Sized + 'static {
    /// Reads the monotonic clock, whose origin is the creation of the runtime's host.
    fn now(&self) -> Instant;

    /// Starts to open a stream to `address`, and to move bytes between it and `link`.
    fn open(&self, link: Link<Self>, address: ServerAddress);

    /// Starts to look up what `rescan` asks for.
    fn resolve(&self, rescan: Rescan<Self>);

    /// Arranges for [`Host::ring`] at `deadline`, replacing any earlier request.
    fn alarm(&self, deadline: Option<Instant>);
}

/// The machine of one client, behind its lock, shared by its threads and tasks.
///
/// Dropping the last reference closes the client: links end, and so do subscriptions, after their
/// last events.
pub struct Host<R: Runtime> {
    me: Weak<Self>,
    runtime: R,
    driver: Mutex<Driver>,
    view: ArcSwap<Snapshot>,
    /// Where the next selection's random bits come from.
    random: AtomicU64,
    /// The name of the next operation that waits.
    next_waiter: AtomicU64,
    /// News of links and rescans that were dropped without a word, perhaps while the lock was
    /// held.
    lost: Mutex<Vec<Input<'static>>>,
}

/// What the lock protects.
struct Driver {
    topology: Topology,
    /// The deadline that the runtime was last told.
    armed: Option<Instant>,
    /// What is to be sent over each link that is not closed.
    links: BTreeMap<LinkId, Arc<Mailbox<Vec<u8>>>>,
    /// Whether the last event has been told, so that nothing will follow.
    closed: bool,
    events: Vec<Weak<Mailbox<Event>>>,
    views: Vec<Weak<Mailbox<Arc<TopologyDescription>>>>,
    /// Operations that wait for a server, and where their answers go.
    waiters: BTreeMap<WaiterId, Arc<Mailbox<wait::Answer>>>,
    /// Kept between calls for its memory.
    actions: Vec<Action>,
}

impl<R: Runtime> Host<R> {
    /// Creates the machine; nothing happens before the first [`ring`](Self::ring).
    pub fn new(options: Arc<Options>, seed: u64, runtime: R) -> Arc<Self> {
        let topology = Topology::new(options, seed);
        let view = ArcSwap::new(Arc::clone(topology.snapshot()));
        let (random, next_waiter) = (AtomicU64::new(!seed), AtomicU64::new(0));
        let driver = Driver {
            topology,
            armed: None,
            links: BTreeMap::new(),
            closed: false,
            events: Vec::new(),
            views: Vec::new(),
            waiters: BTreeMap::new(),
            actions: Vec::new(),
        };
        let (driver, lost) = (Mutex::new(driver), Mutex::default());
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            runtime,
            driver,
            view,
            random,
            next_waiter,
            lost,
        })
    }

    /// Returns what is known now; it takes no lock.
    pub fn view(&self) -> Arc<TopologyDescription> {
        Arc::clone(self.view.load().description())
    }

    /// Returns what is known now, to select from; it takes no lock.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.view.load_full()
    }

    /// Selects a server, waiting only if there is none in the view of now, and until `deadline` at
    /// most.
    ///
    /// Cancelling the wait leaves nothing behind.
    ///
    /// # Errors
    ///
    /// Fails when the deadline has passed, at once if waiting cannot help, and when the client is
    /// closed; the error says why there was no server.
    pub async fn select(
        &self,
        criteria: &Arc<Criteria>,
        deadline: Instant,
    ) -> Result<Arc<ServerDescription>, Box<SelectionError>> {
        loop {
            let snapshot = self.view.load();
            // The machine has the better error, so that a refusal is left to it too.
            if let Ok(Some(chosen)) = snapshot.select(criteria, |_| 0, self.random_bits()) {
                return Ok(Arc::clone(&snapshot.description().servers()[chosen]));
            }
            drop(snapshot);
            Wait::new(self, Arc::clone(criteria), deadline).await?;
        }
    }

    /// Draws from a stream of its own, without a lock.
    fn random_bits(&self) -> u64 {
        Rng::new(self.random.fetch_add(Rng::INCREMENT, Ordering::Relaxed)).next_u64()
    }

    /// Returns the runtime.
    pub const fn runtime(&self) -> &R {
        &self.runtime
    }

    /// Lets the machine do what is due; the runtime calls this at the deadline it was told.
    pub fn ring(&self) {
        self.with_driver(|driver| {
            driver.topology.tick(self.runtime.now(), &mut driver.actions);
            self.perform(driver);
        });
    }

    /// Asks for a check of every server as soon as possible.
    pub fn request_check(&self) {
        self.handle(Input::RequestCheck);
    }

    /// Adds the name of a wrapping library to the metadata of connections made from now on; adding
    /// the same twice changes nothing.
    pub fn append_metadata(&self, info: DriverInfo) {
        self.handle(Input::AppendMetadata { info });
    }

    /// Ends the client: links are closed, and subscriptions end after their last events.
    pub fn close(&self) {
        self.handle(Input::Shutdown);
    }

    /// Subscribes to the events from now on.
    pub fn subscribe(&self) -> Events {
        let mailbox = Arc::new(Mailbox::new(EVENT_LIMIT));
        self.with_driver(|driver| match driver.closed {
            true => mailbox.close(),
            false => driver.events.push(Arc::downgrade(&mailbox)),
        });
        Events(mailbox)
    }

    /// Subscribes to the view: the one of now first, and then each that replaces it, the latest
    /// only if there are several.
    pub fn watch(&self) -> Views {
        let mailbox = Arc::new(Mailbox::new(1));
        self.with_driver(|driver| {
            mailbox.push(self.view());
            match driver.closed {
                true => mailbox.close(),
                false => driver.views.push(Arc::downgrade(&mailbox)),
            }
        });
        Views(mailbox)
    }

    fn handle(&self, input: Input<'_>) {
        self.with_driver(|driver| self.step(driver, input));
    }

    /// Does something under the lock, and afterwards tells the machine of links lost meanwhile.
    fn with_driver<T>(&self, act: impl FnOnce(&mut Driver) -> T) -> T {
        let result = act(&mut lock(&self.driver));
        self.collect_lost();
        result
    }

    fn step(&self, driver: &mut Driver, input: Input<'_>) {
        if let Input::Closed { link, .. } = &input {
            driver.links.remove(link);
        }
        driver.topology.handle(self.runtime.now(), input, &mut driver.actions);
        self.perform(driver);
    }

    /// Notes that a link or a rescan was dropped; whoever holds the lock, this very thread perhaps,
    /// or else this call, tells the machine.
    fn lose(&self, news: Input<'static>) {
        lock(&self.lost).push(news);
        self.collect_lost();
    }

    fn collect_lost(&self) {
        while !lock(&self.lost).is_empty() {
            let mut driver = match self.driver.try_lock() {
                Ok(driver) => driver,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                // Its holder comes by here after it has let go.
                Err(TryLockError::WouldBlock) => return,
            };
            let lost = std::mem::take(&mut *lock(&self.lost));
            for news in lost {
                self.step(&mut driver, news);
            }
        }
    }

    /// Performs the actions in order, under the lock, so that their order is the machine's.
    fn perform(&self, driver: &mut Driver) {
        let mut actions = std::mem::take(&mut driver.actions);
        for action in actions.drain(..) {
            self.perform_one(driver, action);
        }
        driver.actions = actions;
        let deadline = driver.topology.deadline();
        if deadline != driver.armed {
            driver.armed = deadline;
            self.runtime.alarm(deadline);
        }
    }

    fn perform_one(&self, driver: &mut Driver, action: Action) {
        match action {
            Action::Open { link, address } => {
                let outgoing = Arc::new(Mailbox::new(usize::MAX));
                driver.links.insert(link, Arc::clone(&outgoing));
                self.runtime.open(Link::new(Weak::clone(&self.me), link, outgoing), address);
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
                self.runtime.resolve(Rescan::new(Weak::clone(&self.me), question));
            }
            // There are no pools yet that could be told.
            Action::Join { .. } | Action::Leave { .. } | Action::Pool { .. } => {}
            Action::Publish { snapshot } => {
                let description = Arc::clone(snapshot.description());
                // First, so that whoever is told of a view reads no older one.
                self.view.store(snapshot);
                deliver(&mut driver.views, &description);
            }
            Action::Wake { waiter, outcome } => {
                if let Some(answer) = driver.waiters.remove(&waiter) {
                    answer.push(outcome);
                }
            }
            Action::Emit { event } => {
                let last = matches!(event.kind, EventKind::TopologyClosed);
                deliver(&mut driver.events, &event);
                if last {
                    driver.closed = true;
                    close_all(&mut driver.events);
                    close_all(&mut driver.views);
                }
            }
        }
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

/// Events in the order in which they happened; ends after the last one.
#[derive(Debug)]
pub struct Events(Arc<Mailbox<Event>>);

impl Events {
    /// Waits for the next event; `None` once the client is closed and all were read.
    ///
    /// Cancelling the wait loses nothing.
    pub async fn next(&mut self) -> Option<Event> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Returns the next event, or arranges for a wake-up when there is one.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        self.0.poll_next(cx)
    }

    /// Returns the next event if there is one already.
    pub fn try_next(&mut self) -> Option<Event> {
        self.0.try_next()
    }

    /// Returns how many events were dropped because more than [`EVENT_LIMIT`] were unread.
    pub fn dropped(&self) -> u64 {
        self.0.dropped()
    }
}

/// Views of a topology, the latest one first; ends when the client is closed.
#[derive(Debug)]
pub struct Views(Arc<Mailbox<Arc<TopologyDescription>>>);

impl Views {
    /// Waits for a view that was not seen yet; `None` once the client is closed.
    ///
    /// Cancelling the wait loses nothing.
    pub async fn next(&mut self) -> Option<Arc<TopologyDescription>> {
        std::future::poll_fn(|cx| self.0.poll_next(cx)).await
    }
}

fn deliver<T: Clone>(subscribers: &mut Vec<Weak<Mailbox<T>>>, item: &T) {
    subscribers.retain(|subscriber| match subscriber.upgrade() {
        Some(mailbox) => {
            mailbox.push(item.clone());
            true
        }
        None => false,
    });
}

fn close_all<T>(subscribers: &mut Vec<Weak<Mailbox<T>>>) {
    for mailbox in subscribers.drain(..).filter_map(|subscriber| subscriber.upgrade()) {
        mailbox.close();
    }
}

/// Locks; no code of the application runs under a lock but predicates, whose panics are caught.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
