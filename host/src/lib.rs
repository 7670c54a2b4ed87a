//! The glue that every runtime shares: locks, the published view, links, pools and loans.
//!
//! A [`Host`] keeps the machines of one client behind their locks, performs their actions in order,
//! and asks the runtime for the few things that only a runtime can do. It does no I/O, reads no
//! clock and starts nothing itself; what runtimes ask of the operating system is in [`system`].
//!
//! Locks are taken in one order: the topology's, then a pool's, then those of subscribers, of a
//! recording and of the alarm. Nothing is awaited, and no code of the application or of the runtime
//! runs, under any of them, but for clocks and predicates: whoever is woken, handed something or
//! dropped may come back at once. All that is collected under the locks (`Later`) and done when
//! they are free, wakers are cloned before they are taken (`waking`), and what comes up in the
//! meantime leaves news.

mod activity;
mod alarm;
mod attempt;
mod before;
mod check_out;
mod client;
mod cluster_time;
mod connection;
mod connector;
mod dial;
mod driver;
mod exchange;
mod exhaust;
mod idle;
mod later;
mod link;
mod loan;
mod login;
mod mailbox;
mod name_server;
mod process;
mod progress;
mod provider;
mod pump;
mod raw;
mod reauthenticate;
mod recording;
mod request;
mod rescan;
mod resolver;
mod run_command;
mod select;
mod server;
mod slot;
mod socket;
mod streak;
mod subscription;
mod suspension;
mod switch;
mod sync;
#[allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "it is what asks the operating system"
)]
pub mod system;
mod timekeeper;
mod turn;
mod wait;
mod waking;

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, Weak};

use arc_swap::ArcSwap;
use bson::{DateTime, RawDocumentBuf};

pub use client::{Client, ClientError};
pub use connection::Connected;
pub use connector::{Connector, Route};
pub use dial::dial;
use driver::{Driver, News};
pub use exchange::Reply;
pub use exhaust::Exhaust;
pub use link::Link;
pub use loan::CheckedOut;
pub use name_server::{NameServerSocket, ask_name_servers, complete_from_dns, srv_records};
pub use process::Process;
pub use progress::Progress;
pub use provider::{CredentialProvider, ask_provider, credentials_from_environment};
pub use raw::Outcome;
pub use recording::{FLIGHT_RECORDER_LEN, Recording};
pub use rescan::Rescan;
pub use resolver::{LookupFuture, Resolver};
pub use run_command::{RunCommandCause, RunCommandError, Spent};
pub use select::Selected;
pub use server::Server;
pub use slot::Slot;
pub use socket::{Interrupter, Socket};
pub use subscription::{Events, Views};
pub use timekeeper::{Deadlines, Timekeeper};

use activity::Activity;
use alarm::Alarm;
use cluster_time::Clock;
use recording::Tracing;
use sdam_core::auth::{Answer, Question, Remembered};
use sdam_core::config::metadata::DriverInfo;
use sdam_core::config::{Options, ServerAddress};
use sdam_core::description::TopologyDescription;
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::id::TopologyId;
use sdam_core::rng::Rng;
use sdam_core::selection::Snapshot;
use sdam_core::time::Instant;
use sdam_core::topology::{Event, Input, Topology};
use subscription::Subscribers;
use suspension::Step;
use sync::atomic::{AtomicU64, Ordering};
use sync::{Mutex, MutexGuard};
use turn::Turns;

/// How many events a subscriber may fall behind before the oldest are dropped.
pub const EVENT_LIMIT: usize = 4096;

/// What a runtime supplies; every method returns at once. Only [`now`](Self::now) and
/// [`wall_clock`](Self::wall_clock) are called under locks.
pub trait Runtime: Send + Sync + Sized + 'static {
    /// The byte stream under a connection or a link.
    type Socket: Socket;

    /// Reads the monotonic clock, whose origin is the creation of the runtime's host.
    fn now(&self) -> Instant;

    /// Starts to open a stream to `address`, and to move bytes between it and `link`, with
    /// [`Link::run`]; its [`Progress`] is told how far that has come.
    fn open(&self, link: Link<Self>, address: ServerAddress);

    /// Starts to establish an application's connection to `address`, with [`Slot::run`].
    fn establish(&self, slot: Slot<Self>, address: ServerAddress);

    /// Starts to look up what `rescan` asks for.
    fn resolve(&self, rescan: Rescan<Self>);

    /// Arranges for [`Host::ring`] at `deadline`, replacing any earlier request. A ring that comes
    /// too early or twice does no harm: this is called anew after each.
    fn alarm(&self, deadline: Option<Instant>);

    /// Reads the wall clock, by which credentials of AWS expire; a runtime that can provide them
    /// has one, or else those it has provided are not used again.
    fn wall_clock(&self) -> Option<DateTime> {
        None
    }

    /// Does work that keeps a thread busy, for up to a second and more on a slow machine, and that
    /// nothing interrupts; a login derives keys so.
    ///
    /// A runtime whose tasks have threads of their own leaves this as it is: the work is done at
    /// once. Others do it where no task waits. If `work` is dropped, the login fails.
    fn offload(&self, work: Work) -> Offloaded {
        work();
        Box::pin(std::future::ready(()))
    }

    /// Finds what an authentication mechanism asks for: a token, or credentials of AWS.
    ///
    /// It is asked for what the client does not remember, and for one token at a time.
    ///
    /// A runtime that has no such providers leaves this as it is: the login fails, and says why.
    fn answer(&self, question: Question) -> Answering {
        let what = match question {
            Question::Aws => "credentials of AWS",
            Question::Oidc(_) => "tokens of OpenID Connect",
        };
        let detail = format!("this runtime has no provider of {what}");
        let failure = Failure::new(Stage::Authenticate, Cause::Configuration, detail);
        Box::pin(async { Err(failure) })
    }
}

/// What [`Runtime::offload`] is given.
pub type Work = Box<dyn FnOnce() + Send>;

/// What [`Runtime::offload`] returns.
pub type Offloaded = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What [`Runtime::answer`] returns.
pub type Answering = Pin<Box<dyn Future<Output = Result<Answer, Failure>> + Send>>;

/// The machines of one client, behind their locks, shared by its threads and tasks.
///
/// Dropping the last reference closes the client: links and pools end, and so do subscriptions,
/// after their last events.
pub struct Host<R: Runtime> {
    me: Weak<Self>,
    shared: Arc<Shared<R>>,
    driver: Mutex<Driver<R>>,
    view: ArcSwap<View<R>>,
    /// The name of the next operation that waits for a server.
    next_waiter: AtomicU64,
    /// What became of links, rescans and connections while the lock was held.
    news: Mutex<Vec<News<R>>>,
}

/// What a client shares with its servers and loans, which may outlive it.
struct Shared<R: Runtime> {
    runtime: R,
    options: Arc<Options>,
    /// The process that may use it.
    process: Process,
    topology: TopologyId,
    events: Arc<Subscribers<Event>>,
    views: Arc<Subscribers<Arc<TopologyDescription>>>,
    tracing: Tracing,
    alarm: Alarm<R>,
    activity: Arc<Activity>,
    clock: Clock,
    /// What connections remember of their logins for the next one.
    remembered: Mutex<Remembered>,
    /// Whose turn it is to ask for a token.
    oidc: Turns,
    /// What new connections say of the client.
    metadata: Mutex<Arc<RawDocumentBuf>>,
    /// Where the next selection's random bits come from.
    random: AtomicU64,
    /// The name of the next pool.
    next_pool: AtomicU64,
}

/// What operations read: what is known, and the servers, index for index.
struct View<R: Runtime> {
    snapshot: Arc<Snapshot>,
    servers: Arc<[Arc<Server<R>>]>,
}

impl<R: Runtime> Host<R> {
    /// Creates the machines; nothing happens before the first [`ring`](Self::ring).
    pub fn new(options: Arc<Options>, seed: u64, runtime: R) -> Arc<Self> {
        let topology = Topology::new(Arc::clone(&options), seed);
        let view = View { snapshot: Arc::clone(topology.snapshot()), servers: Arc::new([]) };
        let process = Process::current();
        let shared = Shared {
            runtime,
            options,
            process,
            topology: topology.id(),
            events: Arc::default(),
            views: Arc::default(),
            tracing: Tracing::default(),
            alarm: Alarm::new(),
            activity: Arc::new(Activity::new(process)),
            clock: Clock::default(),
            remembered: Mutex::default(),
            oidc: Turns::default(),
            metadata: Mutex::new(Arc::new(topology.client_metadata().clone())),
            random: AtomicU64::new(!seed),
            next_pool: AtomicU64::new(0),
        };
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            shared: Arc::new(shared),
            driver: Mutex::new(Driver::new(topology, seed)),
            view: ArcSwap::from_pointee(view),
            next_waiter: AtomicU64::new(0),
            news: Mutex::default(),
        })
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

    /// Lets the machines do what is due; the runtime calls this at the deadline it was told.
    ///
    /// When it is called much later than that, as after the process was stopped, tasks are first
    /// let read what has arrived meanwhile: the runtime is told to ring again. In a process that
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
                alarm.tell(runtime);
                self.sweep(number);
            }
            Step::Judge => self.judge(now),
        }
        // Perhaps there was nothing to judge, and nobody has told it.
        alarm.tell(runtime);
    }

    /// Lets every machine judge the deadlines that have passed by `now`, and no later ones: the
    /// process may be stopped at any point of this, too.
    fn judge(&self, now: Instant) {
        let (topology, servers) = self.shared.alarm.due(now);
        if topology {
            self.with_driver(|driver| self.tick(driver, now));
        }
        servers.iter().for_each(|server| server.tick(now));
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
        self.with_driver(|driver| {
            self.step(driver, Input::AppendMetadata { info });
            let metadata = Arc::new(driver.topology.get().client_metadata().clone());
            *lock(&self.shared.metadata) = metadata;
        });
    }

    /// Ends the client: links and pools are closed, waiting operations are told so, and
    /// subscriptions end after their last events. Connections on loan are closed when they return.
    pub fn close(&self) {
        self.handle(Input::Shutdown);
    }

    /// Waits until no task of a closed client runs any more; in a process that was forked off there
    /// is none.
    pub async fn ended(&self) {
        if self.shared.process.is_current() {
            self.shared.activity.idle().await;
        }
    }
}

impl<R: Runtime> Shared<R> {
    /// Draws from a stream of its own, without a lock.
    fn random_bits(&self) -> u64 {
        Rng::new(self.random.fetch_add(Rng::INCREMENT, Ordering::Relaxed)).next_u64()
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

/// Locks; no code of the application runs under a lock but predicates, whose panics are caught.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
