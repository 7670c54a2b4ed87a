//! The material of a client, in this process and in those that are forked off.

use std::fmt;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime};

use arc_swap::{ArcSwap, Guard};
use sdam_core::description::TopologyDescription;
use sdam_core::topology::Topics;
use sdam_host as host;

use crate::dialer::Dialer;
use crate::engine::{Driver, Engine};
use crate::helper::Helper;
use crate::process::Own;
use crate::runtime::{Blocking, BlockingReactor};

/// The material of a client.
pub(crate) struct Blueprint {
    pub(crate) shared: host::Blueprint,
    /// The time when the client's clock began, and the wall clock's time then.
    pub(crate) epoch: Instant,
    pub(crate) origin: SystemTime,
    pub(crate) dialer: Option<Arc<dyn Dialer>>,
}

impl Blueprint {
    /// Returns whose threads run the tasks.
    pub(crate) fn driver(&self) -> Driver {
        match self.shared.options().is_single_threaded() {
            true => Driver::Callers,
            false => Driver::Thread,
        }
    }

    /// Returns the sockets, timers and tasks of a client, which `engine` runs once it is driven.
    pub(crate) fn reactor(&self, engine: &Arc<Engine>) -> BlockingReactor {
        BlockingReactor {
            engine: Arc::clone(engine),
            helper: match self.driver() {
                Driver::Thread => Helper::Threads(Arc::default()),
                Driver::Callers => Helper::Inline,
            },
            epoch: self.epoch,
            dialer: self.dialer.clone(),
        }
    }

    /// Makes the client of a process that was forked off, which begins with what its parent knew.
    fn heir(&self, known: &TopologyDescription) -> host::Client<Blocking> {
        let engine = Engine::new(self.driver()).unwrap_or_else(|_| Engine::exhausted());
        let shared = self.shared.heir(known, process::id());
        let (client, _) = shared.client(self.reactor(&engine), Topics::NONE);
        // If the system gives no thread, all tasks were given up, and with them the client.
        let _ = engine.start();
        client
    }
}

/// A client in whichever process it is used, shared by its clones.
pub(crate) struct Everywhere {
    pub(crate) blueprint: Blueprint,
    /// The client of the process that used it last.
    current: ArcSwap<Own<host::Client<Blocking>>>,
    closed: AtomicBool,
}

impl Everywhere {
    pub(crate) fn new(blueprint: Blueprint, client: host::Client<Blocking>) -> Self {
        let current = ArcSwap::from_pointee(own(client));
        Self { blueprint, current, closed: AtomicBool::new(false) }
    }

    /// Returns the client of this process, which may be a new one.
    pub(crate) fn here(&self) -> host::Client<Blocking> {
        let current = self.current.load();
        match current.ours() {
            Some((client, _)) => client.clone(),
            None => self.succeed(&current),
        }
    }

    /// Closes the client in this process, and in those that will be forked off.
    pub(crate) fn close(&self) -> host::Client<Blocking> {
        self.closed.store(true, Ordering::Release);
        let client = self.here();
        client.host().close();
        client
    }

    /// Replaces the client of the process that this one was forked from, without a lock, which
    /// some thread could have held that does not exist here.
    fn succeed(&self, current: &Guard<Arc<Own<host::Client<Blocking>>>>) -> host::Client<Blocking> {
        let heir = self.blueprint.heir(&current.anyones().view());
        if self.closed.load(Ordering::Acquire) {
            heir.host().close();
        }
        // If another thread was faster, it is that one's which counts.
        self.current.compare_and_swap(current, Arc::new(own(heir)));
        self.current.load().anyones().clone()
    }
}

fn own(client: host::Client<Blocking>) -> Own<host::Client<Blocking>> {
    let engine = Arc::clone(&client.host().runtime().reactor().engine);
    Own::new(client, &engine)
}

/// Ends the client, if callers run its tasks: none of them will do so after this.
impl Drop for Everywhere {
    fn drop(&mut self) {
        if let (Driver::Callers, Some((client, engine))) =
            (self.blueprint.driver(), self.current.load().ours())
        {
            client.host().close();
            engine.give_up();
        }
    }
}

impl fmt::Debug for Everywhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Everywhere").field("current", &self.current.load()).finish_non_exhaustive()
    }
}
