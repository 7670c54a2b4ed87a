//! What a client is made from, in this process and in those that are forked off.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::Poll;
use std::time::{Instant, SystemTime};

use arc_swap::{ArcSwap, Guard};
use sdam_core::config::Options;
use sdam_core::description::TopologyDescription;
use sdam_core::topology::inherited_options;
use sdam_host::{self as host, Connector, CredentialProvider, Deadlines, Host};

use crate::dialer::Dialer;
use crate::dns::Source;
use crate::engine::{Driver, Engine};
use crate::helper::Helper;
use crate::process::Own;
use crate::runtime::{Blocking, Streams};

/// What a client is made from.
pub(crate) struct Blueprint {
    pub(crate) options: Arc<Options>,
    pub(crate) seed: u64,
    /// When the client's clock began, and the wall clock's time then.
    pub(crate) epoch: Instant,
    pub(crate) origin: SystemTime,
    pub(crate) connector: Connector,
    pub(crate) records: Source,
    pub(crate) dialer: Option<Arc<dyn Dialer>>,
    pub(crate) provider: Arc<dyn CredentialProvider>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<sdam_host::system::Certificates>,
}

impl Blueprint {
    /// Returns whose threads run the tasks.
    pub(crate) fn driver(&self) -> Driver {
        match self.options.is_single_threaded() {
            true => Driver::Callers,
            false => Driver::Thread,
        }
    }

    /// Makes a client whose tasks `engine` runs once it is driven.
    pub(crate) fn client(
        &self,
        options: &Arc<Options>,
        engine: &Arc<Engine>,
    ) -> host::Client<Blocking> {
        let (deadlines, timekeeper) = Deadlines::new();
        let streams = Streams {
            engine: Arc::clone(engine),
            helper: match self.driver() {
                Driver::Thread => Helper::Threads(Arc::default()),
                Driver::Callers => Helper::Inline,
            },
            epoch: self.epoch,
            connector: self.connector.clone(),
            dialer: self.dialer.clone(),
            #[cfg(feature = "tls")]
            tls: self.tls.as_ref().map(sdam_host::system::Certificates::anew),
        };
        let runtime = Blocking {
            epoch: self.epoch,
            deadlines: Mutex::new(Some(deadlines)),
            streams: Arc::new(streams),
            records: self.records.clone(),
            provider: Arc::clone(&self.provider),
        };
        let seed = self.seed ^ u64::from(process::id());
        let host = Host::new(Arc::clone(options), seed, runtime);
        let (epoch, driven) = (self.epoch, Arc::clone(engine));
        // Nothing has happened yet: the first deadline opens the topology.
        let keep_time = timekeeper.run(Arc::downgrade(&host), move |at| {
            driven.sleep_until(epoch.checked_add(at.since_origin()))
        });
        engine.spawn(Box::pin(while_alive(Arc::downgrade(&host), keep_time)));
        host::Client::new(host)
    }

    /// Makes the client of a process that was forked off, which begins with what its parent knew.
    fn heir(&self, known: &TopologyDescription) -> host::Client<Blocking> {
        let options = inherited_options(&self.options, known);
        let engine = Engine::new(self.driver()).unwrap_or_else(|_| Engine::exhausted());
        let client = self.client(&options, &engine);
        // If the system gives no thread, all tasks were given up, and with them the client.
        let _ = engine.start();
        client
    }
}

/// Keeps time until the client is dropped; loans may live longer, but need no time.
async fn while_alive(host: Weak<Host<Blocking>>, keep_time: impl Future<Output = ()>) {
    let mut keep_time = pin!(keep_time);
    std::future::poll_fn(|cx| match host.strong_count() {
        // Whoever drops the last one wakes this, as the client that ends has no deadline any more.
        0 => Poll::Ready(()),
        _ => keep_time.as_mut().poll(cx),
    })
    .await;
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
        client.host().runtime().end_time();
        client
    }

    /// Replaces the client of the process that this one was forked from, without a lock, which
    /// some thread could have held that does not exist here.
    fn succeed(&self, current: &Guard<Arc<Own<host::Client<Blocking>>>>) -> host::Client<Blocking> {
        let heir = self.blueprint.heir(&current.anyones().view());
        if self.closed.load(Ordering::Acquire) {
            heir.host().close();
            heir.host().runtime().end_time();
        }
        // If another thread was faster, it is that one's which counts.
        self.current.compare_and_swap(current, Arc::new(own(heir)));
        self.current.load().anyones().clone()
    }
}

fn own(client: host::Client<Blocking>) -> Own<host::Client<Blocking>> {
    let engine = Arc::clone(client.host().runtime().engine());
    Own::new(client, &engine)
}

/// Where the callers are who runs the tasks, nobody would after this.
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
