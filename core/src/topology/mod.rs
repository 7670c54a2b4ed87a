//! The root machine: what is known of a deployment, and the monitors that keep it fresh.
//!
//! Implements the Server Discovery And Monitoring specification for multi-threaded and asynchronous
//! clients.

mod member;
mod operation;
mod publish;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bson::RawDocumentBuf;

pub use crate::action::Action;
use crate::description::{TopologyDescription, TopologyType, Update};
use crate::event::EventKind;
use crate::failure::Failure;
use crate::id::{LinkId, ServerId, TopologyId};
use crate::machine::Machine;
use crate::metadata::{ClientMetadata, DriverInfo};
use crate::monitor::{Context, Monitor};
use crate::operation::OperationFailure;
use crate::options::Options;
use crate::rng::Rng;
use crate::time::Instant;
use member::Member;

/// What the world tells a topology.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Input<'a> {
    /// The stream for `link` is up.
    Opened {
        /// The stream.
        link: LinkId,
    },
    /// Bytes arrived, split anywhere.
    Received {
        /// The stream.
        link: LinkId,
        /// What came.
        bytes: &'a [u8],
    },
    /// The stream failed or ended; its id is dead.
    Closed {
        /// The stream.
        link: LinkId,
        /// Why.
        failure: Failure,
    },
    /// Somebody needs a fresh view: every server is to be checked as soon as possible, though not
    /// within 500 ms of its last check ("Requesting an immediate check").
    RequestCheck,
    /// An operation failed, or establishing a connection for one; a failure that is stale by its
    /// generation or topologyVersion is ignored ("Application errors").
    OperationFailed {
        /// The server.
        server: ServerId,
        /// What went wrong.
        failure: OperationFailure,
    },
    /// A library that wraps this one adds its name to the metadata of connections made from now on.
    AppendMetadata {
        /// What it adds.
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
/// use sdam_core::options::Options;
/// use sdam_core::time::Instant;
/// use sdam_core::topology::{Action, Topology};
///
/// let options = Options::parse("mongodb://a.example,b.example/?replicaSet=rs0")?;
/// let mut topology = Topology::new(Arc::new(options), 42);
/// let mut actions = Vec::new();
/// topology.tick(Instant::ZERO, &mut actions);
/// let opened = actions.iter().filter(|action| matches!(action, Action::Open { .. }));
/// assert_eq!(opened.count(), 2);
/// # Ok::<(), sdam_core::options::OptionsError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Topology {
    options: Arc<Options>,
    id: TopologyId,
    metadata: ClientMetadata,
    /// The `client` document made of `metadata`.
    client: RawDocumentBuf,
    state: State,
    description: Arc<TopologyDescription>,
    members: BTreeMap<ServerId, Member>,
    /// When each monitor is due.
    timers: BTreeSet<(Instant, ServerId)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
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
        Self {
            id: TopologyId(Rng::new(seed).next_u64()),
            client: metadata.document(),
            metadata,
            state: State::New,
            description: Arc::new(TopologyDescription::initial(&options)),
            members: BTreeMap::new(),
            timers: BTreeSet::new(),
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

    /// Opens the topology: its first events, and a monitor for every seed.
    fn open(&mut self, now: Instant, out: &mut Vec<Action>) {
        self.state = State::Open;
        self.context(now, out).emit(EventKind::TopologyOpening);
        let (previous, new) = (Arc::default(), Arc::clone(&self.description));
        for server in new.servers() {
            self.join(server, now, out);
        }
        let mut ctx = self.context(now, out);
        ctx.out.push(Action::Publish { description: Arc::clone(&new) });
        ctx.emit(EventKind::TopologyDescriptionChanged { previous, new: Arc::clone(&new) });
        for server in new.servers() {
            let (id, address) = (server.id, server.address.clone());
            ctx.emit(EventKind::ServerOpening { server: id, address });
        }
        if new.topology_type == TopologyType::LoadBalanced {
            self.assume_load_balancer(now, out);
        }
    }

    /// A load balancer is never checked; it is what the options say it is (Load Balancers, "Server
    /// Discovery Logging and Monitoring").
    fn assume_load_balancer(&mut self, now: Instant, out: &mut Vec<Action>) {
        let options = Arc::clone(&self.options);
        for seed in Arc::clone(&self.description).servers() {
            let load_balancer = seed.as_load_balancer();
            if let Some(update) = Update::new(&self.description, &options, now, load_balancer) {
                self.publish(update, now, out);
            }
        }
    }

    fn context<'a>(&'a self, now: Instant, out: &'a mut Vec<Action>) -> Context<'a> {
        Context { options: &self.options, client: &self.client, topology: self.id, now, out }
    }

    /// "Client closing": every server is removed before the last event.
    fn shut_down(&mut self, now: Instant, out: &mut Vec<Action>) {
        self.state = State::Closed;
        let previous = std::mem::take(&mut self.description);
        for server in previous.servers() {
            self.leave(server, "the client was closed", now, out);
        }
        let new = Arc::clone(&self.description);
        let mut ctx = self.context(now, out);
        ctx.out.push(Action::Publish { description: Arc::clone(&new) });
        ctx.emit(EventKind::TopologyDescriptionChanged { previous, new });
        ctx.emit(EventKind::TopologyClosed);
    }

    /// Applies an input to a topology that is open.
    fn apply(&mut self, now: Instant, input: Input<'_>, out: &mut Vec<Action>) {
        match input {
            Input::Opened { link } => {
                self.with_monitor(link.server, now, out, |monitor, ctx| {
                    monitor.opened(link, ctx);
                });
            }
            Input::Received { link, bytes } => {
                self.with_monitor(link.server, now, out, |monitor, ctx| {
                    monitor.received(link, bytes, ctx);
                });
                self.digest(link.server, None, now, out);
            }
            Input::Closed { link, failure } => {
                let outcome = self.with_monitor(link.server, now, out, |monitor, ctx| {
                    monitor.closed(link, failure, ctx)
                });
                self.digest(link.server, outcome.flatten(), now, out);
            }
            Input::RequestCheck => {
                let ids: Vec<ServerId> = self.members.keys().copied().collect();
                for id in ids {
                    self.with_monitor(id, now, out, |monitor, ctx| monitor.request_check(ctx.now));
                }
            }
            Input::OperationFailed { server, failure } => {
                self.operation_failed(server, &failure, now, out);
            }
            Input::AppendMetadata { info } => {
                self.metadata.append(&info);
                self.client = self.metadata.document();
            }
            Input::Shutdown => self.shut_down(now, out),
        }
    }

    /// Fires every monitor that is due.
    fn fire(&mut self, now: Instant, out: &mut Vec<Action>) {
        while let Some(&(due, id)) = self.timers.first()
            && due <= now
        {
            let outcome = self.with_monitor(id, now, out, Monitor::fire).flatten();
            self.digest(id, outcome, now, out);
        }
    }
}

impl Machine for Topology {
    type Input<'a> = Input<'a>;
    type Action = Action;

    fn handle(&mut self, now: Instant, input: Input<'_>, out: &mut Vec<Action>) {
        self.tick(now, out);
        if self.state == State::Open {
            self.apply(now, input, out);
            // What the input has made due, a server's first check for one, is done at once.
            self.fire(now, out);
        }
    }

    fn tick(&mut self, now: Instant, out: &mut Vec<Action>) {
        if self.state == State::New {
            self.open(now, out);
        }
        self.fire(now, out);
    }

    fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::New => Some(Instant::ZERO),
            State::Open | State::Closed => self.timers.first().map(|(due, _)| *due),
        }
    }
}
