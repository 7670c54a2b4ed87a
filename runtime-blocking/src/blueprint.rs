//! The material of a topology, in this process and in those that are forked off.

use std::fmt;
use std::ops::Deref;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime};

use arc_swap::ArcSwapOption;
use sdam_core::description::TopologyDescription;
use sdam_core::topology::Topics;
use sdam_host as host;
use sdam_host::driver::DriverTopology;

use crate::dialer::Dialer;
use crate::engine::{Engine, EngineMode, Joining};
use crate::helper::Helper;
use crate::process::Own;
use crate::runtime::{Blocking, BlockingReactor};

/// The material of a topology.
pub(crate) struct Blueprint {
    pub(crate) shared: host::Blueprint,
    /// The time when its clock began, and the wall clock's time then.
    pub(crate) epoch: Instant,
    pub(crate) origin: SystemTime,
    pub(crate) dialer: Option<Arc<dyn Dialer>>,
}

impl Blueprint {
    /// Returns whose threads run the tasks.
    pub(crate) fn engine_mode(&self) -> EngineMode {
        match self.shared.options().is_single_threaded() {
            true => EngineMode::Callers,
            false => EngineMode::Thread,
        }
    }

    /// Returns the sockets, timers and tasks of a topology, which `engine` runs once it is driven.
    pub(crate) fn reactor(&self, engine: &Arc<Engine>) -> BlockingReactor {
        BlockingReactor {
            engine: Arc::clone(engine),
            helper: match self.engine_mode() {
                EngineMode::Thread => Helper::Threads(Arc::default()),
                EngineMode::Callers => Helper::Inline,
            },
            epoch: self.epoch,
            dialer: self.dialer.clone(),
        }
    }

    /// Makes the topology of a process that was forked off, which begins with what its parent knew.
    fn heir(&self, known: &TopologyDescription) -> host::Topology<Blocking> {
        let joining = Joining::new(self.engine_mode());
        // If the system gives no thread, all tasks are given up, and with them the topology.
        let engine = joining.as_ref().map_or_else(|_| Engine::exhausted(), |it| Arc::clone(it));
        let shared = self.shared.heir(known, process::id());
        let (topology, _) = shared.topology(self.reactor(&engine), Topics::NONE, None);
        topology
    }
}

/// A topology in whichever process it is used, shared by its clones.
pub(crate) struct Everywhere {
    pub(crate) blueprint: Blueprint,
    /// The topology of the process that made it.
    first: Own<host::Topology<Blocking>>,
    /// The topology of the process that used it last, of those that were forked off.
    heir: ArcSwapOption<Own<host::Topology<Blocking>>>,
    closed: AtomicBool,
}

/// The topology of this process.
pub(crate) enum Here<'a> {
    First(&'a host::Topology<Blocking>),
    Heir(Arc<Own<host::Topology<Blocking>>>),
    /// One with a deadline.
    Limited(host::Topology<Blocking>),
}

impl Deref for Here<'_> {
    type Target = host::Topology<Blocking>;

    fn deref(&self) -> &host::Topology<Blocking> {
        match self {
            Self::First(topology) => topology,
            Self::Heir(topology) => topology.anyones(),
            Self::Limited(topology) => topology,
        }
    }
}

impl Here<'_> {
    /// Returns what waits for its futures.
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.host().runtime().reactor().engine
    }
}

impl Everywhere {
    pub(crate) fn new(blueprint: Blueprint, topology: host::Topology<Blocking>) -> Self {
        let (first, heir) = (own(topology), ArcSwapOption::empty());
        Self { blueprint, first, heir, closed: AtomicBool::new(false) }
    }

    /// Returns the topology of this process, which may be a new one.
    pub(crate) fn here(&self) -> Here<'_> {
        match self.first.ours() {
            Some((topology, _)) => Here::First(topology),
            None => Here::Heir(self.heir()),
        }
    }

    /// Returns the topology of the process that made it, which may be another one.
    pub(crate) const fn first(&self) -> &Own<host::Topology<Blocking>> {
        &self.first
    }

    /// Closes the topology in this process, and in those that will be forked off.
    pub(crate) fn close(&self) -> Here<'_> {
        self.closed.store(true, Ordering::Release);
        let topology = self.here();
        topology.close_now();
        topology
    }

    /// Returns the topology of a process that was forked off. A new one takes the place of that of
    /// the parent without a lock, which some thread could have held that does not exist here.
    fn heir(&self) -> Arc<Own<host::Topology<Blocking>>> {
        loop {
            let last = self.heir.load_full();
            if let Some(heir) = last.as_ref().filter(|heir| heir.is_ours()) {
                return Arc::clone(heir);
            }
            let parents = last.as_ref().map_or(&self.first, |heir| heir);
            let heir = self.blueprint.heir(&parents.anyones().view());
            if self.closed.load(Ordering::Acquire) {
                heir.close_now();
            }
            // If another thread was faster, it is that one's which counts.
            self.heir.compare_and_swap(&last, Some(Arc::new(own(heir))));
        }
    }
}

fn own(topology: host::Topology<Blocking>) -> Own<host::Topology<Blocking>> {
    let engine = Arc::clone(&topology.host().runtime().reactor().engine);
    Own::new(topology, &engine)
}

/// Ends the topology, if callers run its tasks: none of them will do so after this.
impl Drop for Everywhere {
    fn drop(&mut self) {
        let heir = self.heir.load();
        let ours = self.first.ours().or_else(|| heir.as_ref()?.ours());
        if let (EngineMode::Callers, Some((topology, engine))) =
            (self.blueprint.engine_mode(), ours)
        {
            topology.close_now();
            engine.give_up();
        }
    }
}

impl fmt::Debug for Everywhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Everywhere")
            .field("first", &self.first)
            .field("heir", &self.heir.load())
            .finish_non_exhaustive()
    }
}
