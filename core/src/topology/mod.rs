//! The root machine: what is known of a deployment, and the monitors that keep it fresh.
//!
//! Implements the Server Discovery And Monitoring specification, for multi-threaded and
//! asynchronous clients and, as a mode, for single-threaded ones.

mod action;
mod event;
mod evidence;
mod follower;
mod fork;
mod history;
mod member;
mod monitor;
mod notices;
mod operation;
mod publish;
mod reseed;
mod scan;
mod srv;
mod state;
mod topics;
pub mod transitions;
mod update;
mod wait;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bson::RawDocumentBuf;

use crate::config::metadata::{ClientMetadata, DriverInfo};
use crate::config::{Options, ServerAddress};
use crate::description::{TopologyDescription, TopologyType};
use crate::dns::DnsError;
use crate::dns::srv::SrvRecord;
use crate::failure::{Failure, Stage};
use crate::id::{LinkId, ServerId, TopologyId, WaiterId};
use crate::machine::Machine;
use crate::operation::OperationFailure;
use crate::rng::Rng;
use crate::selection::{Criteria, Snapshot};
use crate::time::{Instant, Time};
pub use action::Action;
pub use event::{Event, EventKind, MonitoringConnection};
pub use evidence::Evidence;
pub use follower::Follower;
pub use fork::inherited_options;
use history::History;
use member::Member;
use monitor::{CROWD, Circumstances, Context, Monitor};
use reseed::Reseed;
use scan::Scan;
use srv::Rescan;
pub use topics::Topics;
use update::{Update, initial_description};
use wait::Waiter;

/// An input of a topology.
///
/// The enum is exhaustive on purpose: code that drives, records or replays the machine must know
/// all inputs, so that a new one is a breaking change.
#[derive(Clone, Debug)]
pub enum Input<'a> {
    /// The stream for `link` is up.
    Opened {
        /// The stream.
        link: LinkId,
    },
    /// A stream that is being opened has come that far, which errors report; without this input it
    /// is connecting.
    Reached {
        /// The stream.
        link: LinkId,
        /// The stage that begins.
        stage: Stage,
    },
    /// Bytes arrived, split anywhere.
    Received {
        /// The stream.
        link: LinkId,
        /// The bytes that have arrived.
        bytes: &'a [u8],
    },
    /// The stream failed or ended; its id is dead.
    Closed {
        /// The stream.
        link: LinkId,
        /// The cause.
        failure: Failure,
    },
    /// A lookup of the deployment's hosts has ended (Polling SRV Records for mongos Discovery).
    Resolved {
        /// The records, or the error.
        records: Result<Vec<SrvRecord>, DnsError>,
    },
    /// An operation found no suitable server in the view it read; in the single-threaded mode, an
    /// operation is about to read the view, which may need a scan of the servers first.
    Wait {
        /// The operation.
        waiter: WaiterId,
        /// The criteria.
        criteria: Arc<Criteria>,
        /// The time when it fails if there is none; `None` if it can wait for ever.
        deadline: Option<Instant>,
    },
    /// The operation has stopped waiting.
    Abandon {
        /// The operation.
        waiter: WaiterId,
    },
    /// Somebody needs a fresh view: every server is to be checked as soon as possible, though not
    /// within 500 ms of its last check ("Requesting an immediate check"); in the single-threaded
    /// mode, when the next operation selects a server.
    RequestCheck,
    /// An operation failed, or establishing a connection for one; a failure that is stale by its
    /// generation or topologyVersion is ignored ("Application errors").
    OperationFailed {
        /// The server.
        server: ServerId,
        /// The error.
        failure: OperationFailure,
    },
    /// A library that wraps this one adds its name to the metadata of connections made from now on.
    AppendMetadata {
        /// The addition.
        info: DriverInfo,
    },
    /// The application is done; every link is to be closed.
    Shutdown,
}

/// The root machine: what is known of a deployment, and the monitors that keep it fresh.
///
/// ```
/// use std::sync::Arc;
/// use sdam_core::machine::Machine;
/// use sdam_core::config::Options;
/// use sdam_core::time::Time;
/// use sdam_core::topology::{Action, Topology};
///
/// let options = Options::parse("mongodb://a.example,b.example/?replicaSet=rs0")?;
/// let mut topology = Topology::new(Arc::new(options), 42);
/// let mut actions = Vec::new();
/// topology.tick(Time::ZERO, &mut actions);
/// let opened = actions.iter().filter(|action| matches!(action, Action::Open { .. }));
/// assert_eq!(opened.count(), 2);
/// # Ok::<(), sdam_core::config::OptionsError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Topology {
    options: Arc<Options>,
    id: TopologyId,
    metadata: ClientMetadata,
    /// The `client` document made of `metadata`.
    client: RawDocumentBuf,
    state: Lifecycle,
    description: Arc<TopologyDescription>,
    snapshot: Arc<Snapshot>,
    history: History,
    members: BTreeMap<ServerId, Member>,
    /// The time when servers were last checked that have left within the last 500 ms or, in the
    /// single-threaded mode, since the scan began.
    departed: BTreeMap<ServerAddress, Instant>,
    /// The time when each monitor is due.
    timers: BTreeSet<(Instant, ServerId)>,
    waiters: BTreeMap<WaiterId, Waiter>,
    /// The time when each waiter has waited long enough.
    waiter_timers: BTreeSet<(Instant, WaiterId)>,
    /// The time when the hosts are looked up in DNS again.
    rescan: Rescan,
    /// The time when the topology begins again that has lost its last server.
    reseed: Reseed,
    /// The state of scans in the single-threaded mode.
    scan: Option<Scan>,
    rng: Rng,
    /// The latest time that the topology has received.
    now: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
enum Lifecycle {
    New,
    Open,
    Closed,
}

impl Topology {
    /// Starts from validated options; `seed` is the only source of randomness.
    ///
    /// Nothing happens before the first [`tick`](Machine::tick), which is due at once.
    pub fn new(options: Arc<Options>, seed: u64) -> Self {
        let metadata = options.metadata().clone();
        let description = Arc::new(initial_description(&options));
        let mut rng = Rng::new(seed);
        Self {
            id: TopologyId(rng.next_u64()),
            client: metadata.document(),
            metadata,
            state: Lifecycle::New,
            snapshot: Arc::new(Snapshot::new(Arc::clone(&description), &options)),
            description,
            history: History::default(),
            members: BTreeMap::new(),
            departed: BTreeMap::new(),
            timers: BTreeSet::new(),
            waiters: BTreeMap::new(),
            waiter_timers: BTreeSet::new(),
            rescan: Rescan::Never,
            reseed: Reseed::default(),
            scan: Scan::first(&options),
            rng,
            now: Time::ZERO,
            options,
        }
    }

    /// Returns the topology's name in events.
    pub const fn id(&self) -> TopologyId {
        self.id
    }

    /// Returns what is known now; before the first tick, the seeds.
    pub const fn description(&self) -> &Arc<TopologyDescription> {
        &self.description
    }

    /// Returns the view that was last published; before the first tick, that of the seeds.
    pub const fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// Returns what new connections say of the client: the document `client` of the handshake.
    pub const fn client_metadata(&self) -> &RawDocumentBuf {
        &self.client
    }

    /// Returns the view of a topology that is closed.
    fn empty_snapshot(&self) -> Arc<Snapshot> {
        Arc::new(Snapshot::new(Arc::default(), &self.options))
    }

    /// Opens the topology: its first events, and a monitor for every seed.
    fn open(&mut self, out: &mut Vec<Action>) {
        self.state = Lifecycle::Open;
        self.history.primary_seen = self.now.judged;
        self.rescan = Rescan::first(&self.options, self.now.judged);
        self.stop_rescans_unless_sharded();
        self.context(out).emit(EventKind::TopologyOpening);
        let (previous, new) = (Arc::default(), Arc::clone(&self.description));
        for server in new.servers().iter() {
            self.join(server, out);
        }
        out.push(Action::Publish { snapshot: Arc::clone(&self.snapshot) });
        let mut ctx = self.context(out);
        ctx.emit(EventKind::TopologyDescriptionChanged { previous, new: Arc::clone(&new) });
        for server in new.servers().iter() {
            let (id, address) = (server.id, server.address.clone());
            ctx.emit(EventKind::ServerOpening { server: id, address });
        }
        if new.topology_type == TopologyType::LoadBalanced {
            self.assume_load_balancer(out);
        }
    }

    /// A load balancer is never checked; it is what the options say it is (Load Balancers, "Server
    /// Discovery Logging and Monitoring").
    fn assume_load_balancer(&mut self, out: &mut Vec<Action>) {
        let options = Arc::clone(&self.options);
        for seed in Arc::clone(&self.description).servers().iter() {
            let load_balancer = Arc::new(seed.as_load_balancer());
            if let Some(update) =
                Update::new(&self.description, &options, self.now.judged, load_balancer)
            {
                self.publish(update, out);
            }
        }
    }

    fn context<'a>(&'a self, out: &'a mut Vec<Action>) -> Context<'a> {
        self.circumstances().context((&self.options, &self.client), out)
    }

    fn circumstances(&self) -> Circumstances {
        let (now, attended) = (self.now, self.is_attended());
        Circumstances { topology: self.id, now, attended, crowded: self.members.len() > CROWD }
    }

    /// "Client closing": every server is removed before the last event.
    fn shut_down(&mut self, out: &mut Vec<Action>) {
        self.state = Lifecycle::Closed;
        (self.rescan, self.reseed, self.scan) = (Rescan::Never, Reseed::default(), None);
        let previous = std::mem::take(&mut self.description);
        let new = Arc::clone(&self.description);
        self.snapshot = self.empty_snapshot();
        out.push(Action::Publish { snapshot: Arc::clone(&self.snapshot) });
        self.wake_waiters(out);
        for server in previous.servers().iter() {
            self.leave(server, "the client was closed", out);
        }
        let mut ctx = self.context(out);
        ctx.emit(EventKind::TopologyDescriptionChanged { previous, new });
        ctx.emit(EventKind::TopologyClosed);
    }

    /// Applies an input to a topology that is open; returns the server whose bytes to continue
    /// reading: they have ended a check, and there may be more.
    fn apply(&mut self, input: Input<'_>, out: &mut Vec<Action>) -> Option<ServerId> {
        match input {
            Input::Opened { link } => {
                self.with_monitor(link.server, out, |monitor, ctx| {
                    monitor.opened(link, ctx);
                });
            }
            Input::Reached { link, stage } => {
                let took = self.with_monitor(link.server, out, |monitor, ctx| {
                    monitor.reached(link, stage, ctx.now.clock)
                });
                if let Some(took) = took.flatten() {
                    self.find_by_lookup(link.server, took, out);
                }
            }
            Input::Received { link, bytes } => {
                let outcome = self.with_monitor(link.server, out, |monitor, ctx| {
                    monitor.received(link, bytes, ctx)
                });
                self.check_ended(link.server, outcome.flatten()?, out);
                return Some(link.server);
            }
            Input::Closed { link, failure } => {
                let outcome = self.with_monitor(link.server, out, |monitor, ctx| {
                    monitor.closed(link, failure, ctx)
                });
                self.check_ended(link.server, outcome.flatten()?, out);
            }
            Input::Resolved { records } => self.resolved(records, out),
            Input::RequestCheck => match &mut self.scan {
                Some(scan) => scan.request(self.now.clock),
                None => self.request_checks(out),
            },
            Input::Wait { waiter, criteria, deadline } => {
                self.wait(waiter, criteria, deadline, out);
            }
            Input::Abandon { waiter } => self.abandon(waiter),
            Input::OperationFailed { server, failure } => {
                self.operation_failed(server, &failure, out);
            }
            Input::AppendMetadata { info } => {
                self.metadata.append(&info);
                self.client = self.metadata.document();
            }
            Input::Shutdown => self.shut_down(out),
        }
        None
    }

    /// Does what an input has made due, a server's first check for one, and reads on where more
    /// bytes may have come: each reply meets what it would if it had come in a read of its own.
    fn go_on(&mut self, mut unread: Option<ServerId>, out: &mut Vec<Action>) {
        loop {
            self.fire(out);
            let Some(id) = unread else { return };
            match self.with_monitor(id, out, Monitor::next_outcome).flatten() {
                Some(outcome) => self.check_ended(id, outcome, out),
                None => unread = None,
            }
        }
    }

    /// Begins again whenever the topology has lost its last server, and fires every monitor that is
    /// due.
    fn fire(&mut self, out: &mut Vec<Action>) {
        self.fire_reseed(out);
        while let Some(&(due, id)) = self.timers.first()
            && due <= self.now.judged
        {
            // A check that is given up has hung up, so that no bytes are left behind its outcome.
            if let Some(outcome) = self.with_monitor(id, out, Monitor::fire).flatten() {
                self.check_ended(id, outcome, out);
                self.fire_reseed(out);
            }
        }
        self.time_out_waiters(out);
        match self.scans() {
            true => self.fire_scan(out),
            false => self.fire_rescan(out),
        }
    }
}

impl Machine for Topology {
    type Input<'a> = Input<'a>;
    type Action = Action;

    fn handle(&mut self, now: Time, input: Input<'_>, out: &mut Vec<Action>) {
        self.tick(now, out);
        if let (Lifecycle::Closed, Input::Wait { waiter, criteria, deadline }) =
            (self.state, &input)
        {
            // Too late, but no operation is left waiting.
            self.wait(*waiter, Arc::clone(criteria), *deadline, out);
        } else if self.state == Lifecycle::Open {
            let unread = self.apply(input, out);
            self.go_on(unread, out);
        }
    }

    fn tick(&mut self, now: Time, out: &mut Vec<Action>) {
        self.note_stall(now.clock);
        self.now = self.now.max(now);
        if self.state == Lifecycle::New {
            self.open(out);
        }
        self.fire(out);
    }

    fn deadline(&self) -> Option<Instant> {
        match self.state {
            Lifecycle::New => Some(Instant::ZERO),
            Lifecycle::Open | Lifecycle::Closed => {
                let monitor = self.timers.first().map(|(due, _)| *due);
                let waiter = self.waiter_timers.first().map(|(due, _)| *due);
                let other = match self.scans() {
                    true => self.scan_deadline(),
                    false => self.rescan.deadline(),
                };
                let reseed = self.reseed.deadline();
                monitor.into_iter().chain(waiter).chain(other).chain(reseed).min()
            }
        }
    }
}
