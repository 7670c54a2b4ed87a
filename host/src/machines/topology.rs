//! The topology behind its lock, and how its actions are performed.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use bson::RawDocumentBuf;
use sdam_core::config::Options;
use sdam_core::diagnosis::{SelectionError, Verdict};
use sdam_core::id::{ConnectionId, LinkId, ServerId, TopologyId, WaiterId};
use sdam_core::machine::Machine;
use sdam_core::operation::OperationFailure;
use sdam_core::pool;
use sdam_core::selection::Snapshot;
use sdam_core::time::{Instant, Time};
use sdam_core::topology::{Action, Event, EventKind, Follower, Input, Topics, Topology};
use sdam_core::trace::{Header, Recorder};

use crate::machines::followers::Followers;
use crate::machines::runtime::Runtime;
use crate::machines::server::Server;
use crate::machines::steps::TopologyStep;
use crate::machines::tasks::Link;
use crate::machines::tasks::Rescan;
use crate::machines::{Host, PostUnlock, View};
use crate::observe::recording::Recording;
use crate::sync::channel::Channel;
use crate::sync::lock;

/// The answer to an operation that waits for a server: it is to look again, or why there is none.
pub(crate) type SelectionAnswer = Result<(), Box<SelectionError>>;

/// The state behind the topology's lock.
pub(crate) struct TopologyState<R: Runtime> {
    pub(crate) root: Root,
    /// The clients that share the monitors, if it is for such that they are there.
    pub(crate) followers: Option<Followers<R>>,
    /// Those who share the topology and have something to do when the locks are free.
    pub(crate) dirty: Vec<Arc<Host<R>>>,
    /// The seed of the topology.
    seed: u64,
    /// The latest time at which the topology received an input.
    last_input: Time,
    /// The bytes to be sent over each link that is not closed.
    pub(crate) links: BTreeMap<LinkId, Arc<Channel<Vec<u8>>>>,
    pub(crate) servers: BTreeMap<ServerId, Arc<Server<R>>>,
    /// Pools that are no server's own, and end with the client nevertheless.
    pub(crate) asides: Vec<Weak<Server<R>>>,
    /// True if a server has joined since the last view was published.
    joined: bool,
    /// True if the last event has been published, so that nothing will follow.
    pub(crate) closed: bool,
    /// Operations that wait for a server, and where their answers go.
    pub(crate) waiters: BTreeMap<WaiterId, Arc<Channel<SelectionAnswer>>>,
    /// The findings from before the first event.
    pub(crate) findings: Vec<Verdict>,
    /// The work that waits for the lock to be free.
    pub(crate) later: PostUnlock<R>,
    /// Kept between calls for its memory.
    pub(crate) actions: Vec<Action>,
}

impl<R: Runtime> TopologyState<R> {
    /// Returns the topology, if it is one of its own.
    pub(crate) const fn topology(&self) -> Option<&Topology> {
        match &self.root {
            Root::Own(topology) => Some(topology.get()),
            Root::Shared(_) => None,
        }
    }

    pub(crate) fn new(root: Root, followers: Option<Followers<R>>, seed: u64) -> Self {
        Self {
            root,
            followers,
            dirty: Vec::new(),
            seed,
            last_input: Time::ZERO,
            links: BTreeMap::new(),
            servers: BTreeMap::new(),
            asides: Vec::new(),
            joined: false,
            closed: false,
            waiters: BTreeMap::new(),
            findings: Vec::new(),
            later: PostUnlock::default(),
            actions: Vec::new(),
        }
    }

    /// Records the topology from now on, unless the recording is another's.
    pub(crate) fn record(&mut self, options: &Options, recording: &Recording) -> bool {
        let Root::Own(topology) = &mut self.root else { return false };
        let mut header = Header::new(options, self.seed);
        header.is_tail = topology.deadline() != Some(Instant::ZERO);
        let is_ours = recording.begin(header);
        if is_ours {
            let (journal, recording) = (recording.journal(), recording.clone());
            // Its readers are woken when the lock is free.
            topology.resume(journal, move |lines| recording.put(lines));
        }
        is_ours
    }

    /// Forgets a link; returns what ends its task.
    fn forget(&mut self, link: LinkId) -> Option<Arc<Channel<Vec<u8>>>> {
        let outgoing = self.links.remove(&link)?;
        self.later.drop_later(Arc::clone(&outgoing) as Arc<_>);
        Some(outgoing)
    }

    /// Returns what wakes the tasks that read from links.
    pub(crate) fn readers(&self) -> Vec<Arc<Channel<Vec<u8>>>> {
        self.links.values().cloned().collect()
    }

    /// Returns the pools, those included that are no server's own.
    pub(crate) fn pools(&self) -> Vec<Arc<Server<R>>> {
        let asides = self.asides.iter().filter_map(Weak::upgrade);
        self.servers.values().cloned().chain(asides).collect()
    }

    pub(crate) fn step(&mut self, host: &Host<R>, input: Input<'_>) {
        if let Input::Closed { link, .. } = &input {
            self.forget(*link);
        }
        // Clients that share one receive this from its host.
        let Root::Own(topology) = &mut self.root else { return };
        let now = Time::before(topology.deadline(), host.shared.runtime.now());
        self.last_input = now;
        host.shared.runtime.on_topology(TopologyStep::Input { at: now.judged, input: &input });
        topology.handle(now, input, &mut self.actions);
        self.perform(host);
    }

    /// Lets the topology judge its deadlines up to `now`, which may be a little in the past: others
    /// may have passed it inputs since.
    pub(crate) fn tick(&mut self, host: &Host<R>, now: Instant) {
        let Root::Own(topology) = &mut self.root else { return };
        self.last_input = self.last_input.max(now.into());
        let (at, due) = (self.last_input.judged, topology.deadline());
        host.shared.runtime.on_topology(TopologyStep::Tick { at, due });
        topology.tick(self.last_input, &mut self.actions);
        self.perform(host);
    }

    pub(crate) fn apply_deferred(&mut self, host: &Host<R>, deferred: Deferred<R>) {
        match deferred {
            Deferred::Lost(input) => self.step(host, input),
            Deferred::Abandoned(waiter) => match self.follower_of(waiter) {
                Some(follower) => {
                    let mut state = lock(&follower.topology);
                    let answer = state.waiters.remove(&waiter);
                    if let Some(answer) = answer {
                        state.later.drop_later(answer);
                    }
                    drop(state);
                    self.step_for(host, &follower, Input::Abandon { waiter });
                    self.mark_dirty(follower);
                }
                None => {
                    if let Some(answer) = self.waiters.remove(&waiter) {
                        self.later.drop_later(answer);
                        self.step(host, Input::Abandon { waiter });
                    }
                }
            },
            // "ConnectionCheckOutFailed" follows "PoolCleared": the operation learns of its failure
            // when the view shows what came of it, but it is its own failure that it learns of.
            Deferred::NotEstablished { server, connection, failure } => {
                let error = failure.error.clone();
                let failing = pool::Input::Failing { connection };
                let failed = pool::Input::Established { connection, outcome: Err(error) };
                let id = server.reports().then(|| server.id());
                let report = id.map(|server| Input::OperationFailed { server, failure });
                match server.host().filter(|owner| owner.leader.is_some()) {
                    Some(follower) => {
                        server.handle_and(failing, &mut lock(&follower.topology).later);
                        if let Some(report) = report {
                            self.step_for(host, &follower, report);
                        }
                        let mut state = lock(&follower.topology);
                        server.handle_and(failed, &mut state.later);
                        state.later.drop_later(server);
                        drop(state);
                        self.mark_dirty(follower);
                    }
                    None => {
                        server.handle_and(failing, &mut self.later);
                        // What one that has shared this topology would have said went with it.
                        if let Some(report) = report.filter(|_| self.followers.is_none()) {
                            self.step(host, report);
                        }
                        server.handle_and(failed, &mut self.later);
                        self.later.drop_later(server);
                    }
                }
            }
        }
    }

    /// Performs the actions in order, under the lock, so that their order is the machine's.
    pub(crate) fn perform(&mut self, host: &Host<R>) {
        let mut actions = std::mem::take(&mut self.actions);
        for action in actions.drain(..) {
            if let Root::Own(_) = &self.root {
                host.shared.runtime.on_topology(TopologyStep::Action(&action));
            }
            if self.forward(&action) {
                self.perform_one(host, action);
            }
        }
        self.actions = actions;
        let deadline = match &self.root {
            Root::Own(topology) => {
                host.shared.runtime.on_topology(TopologyStep::Done(topology.get()));
                topology.deadline()
            }
            Root::Shared(_) => None,
        };
        host.shared.alarm.set_topology(deadline);
        self.later.alarm = true;
    }

    fn perform_one(&mut self, host: &Host<R>, action: Action) {
        match action {
            Action::Open { link, address } => {
                let outgoing = Arc::new(Channel::new(usize::MAX));
                self.links.insert(link, Arc::clone(&outgoing));
                let running = host.shared.activity.begin();
                let link = Link::new(Weak::clone(&host.me), link, outgoing, running);
                self.later.links.push((link, address));
            }
            Action::Send { link, bytes } => {
                if let Some(outgoing) = self.links.get(&link) {
                    self.later.wakers.extend(outgoing.put(bytes));
                }
            }
            Action::Close { link } => {
                let ended = self.forget(link).and_then(|outgoing| outgoing.end());
                self.later.wakers.extend(ended);
            }
            Action::Resolve { question } => {
                let running = host.shared.activity.begin();
                let rescan = Rescan::new(Weak::clone(&host.me), question, running);
                self.later.rescans.push(rescan);
            }
            Action::Join { server, address } => {
                let (me, later) = (Weak::clone(&host.me), &mut self.later);
                let joined = Server::join(me, &host.shared, server, address, later);
                self.servers.insert(server, joined);
                self.joined = true;
            }
            Action::Leave { server } => {
                if let Some(server) = self.servers.remove(&server) {
                    server.handle_and(pool::Input::Close, &mut self.later);
                    self.later.drop_later(server);
                }
            }
            Action::Pool { server, command } => {
                let clears = !matches!(command, pool::Command::Ready);
                if let Some(server) = self.servers.get(&server) {
                    server.handle_and(pool::Input::Command(command), &mut self.later);
                }
                if clears {
                    self.dump(host, || format!("the pool of {server} was cleared"));
                }
            }
            Action::Publish { snapshot } => self.publish(host, snapshot),
            Action::Wake { waiter, outcome } => {
                if outcome.as_ref().is_err_and(|error| error.verdict != Verdict::Closed) {
                    self.dump(host, || format!("a selection has failed, w{}", waiter.0));
                }
                if let Some(answer) = self.waiters.remove(&waiter) {
                    self.later.wakers.extend(answer.put(outcome));
                    self.later.drop_later(answer);
                }
            }
            Action::Emit { event } if matches!(event.kind, EventKind::TopologyClosed) => {
                self.end(host, &event);
            }
            Action::Emit { event } => self.emit(host, &event),
        }
    }

    /// Publishes an event, and after the first one what was found out before.
    fn emit(&mut self, host: &Host<R>, event: &Event) {
        host.shared.meter.note(event);
        let topic = event.kind.topic();
        if host.shared.events.wants(topic) {
            host.shared.events.put(topic, event.clone());
            self.later.published = self.later.published | topic;
        }
        match &event.kind {
            EventKind::TopologyOpening => {
                for verdict in std::mem::take(&mut self.findings) {
                    let kind = EventKind::Diagnosed { verdict };
                    self.emit(host, &Event::new(event.topology, event.at, kind));
                }
            }
            EventKind::Diagnosed { verdict } => self.later.findings.push(verdict.clone()),
            _ => {}
        }
    }

    /// Publishes the last event, and before it that the commands that still run are given up:
    /// nothing will follow.
    fn end(&mut self, host: &Host<R>, last: &Event) {
        self.closed = true;
        let sleepers = host.shared.alarm.close();
        self.later.wakers.extend(sleepers);
        let later = &mut self.later;
        later.ended = true;
        let events = &host.shared.events;
        host.shared.commands.give_up(events, last.topology, last.at);
        events.close(last.kind.topic(), Some(last), &mut later.wakers);
        host.shared.views.close(Topics::TOPOLOGY, None, &mut later.wakers);
        for aside in std::mem::take(&mut self.asides).iter().filter_map(Weak::upgrade) {
            aside.handle_and(pool::Input::Close, later);
            later.drop_later(aside);
        }
    }

    /// Has a flight recorder hand out what it has kept.
    fn dump(&self, host: &Host<R>, reason: impl FnOnce() -> String) {
        if let Some(recording) = host.shared.tracing.recording() {
            let Root::Own(topology) = &self.root else { return };
            let (now, view) = (self.last_input.judged, topology.get().description());
            recording.dump(now, view, reason);
        }
    }

    fn publish(&mut self, host: &Host<R>, snapshot: Arc<Snapshot>) {
        let description = Arc::clone(snapshot.description());
        let (known, is_news) = {
            let view = host.view.load();
            let is_news = !view.snapshot.description().same_as(&description);
            (Arc::clone(&view.servers), is_news)
        };
        // Servers join before the view that names them is published, so that the list is the same
        // unless one has joined or the length differs.
        let same = !std::mem::take(&mut self.joined) && known.len() == description.servers().len();
        let servers = match same {
            true => known,
            false => description
                .servers()
                .iter()
                .filter_map(|server| self.servers.get(&server.id).cloned())
                .collect(),
        };
        // First, so that no subscriber reads an older view than the one it received.
        let earlier = host.view.swap(Arc::new(View { snapshot, servers }));
        self.later.drop_later(earlier);
        if is_news {
            host.shared.views.put(Topics::TOPOLOGY, description);
            self.later.viewed = true;
        }
    }
}

/// The source of what is known of a deployment.
pub(crate) enum Root {
    /// A topology of its own.
    Own(Box<Recorder<Topology>>),
    /// One that does what that of another host does, to be driven under the lock of that, too.
    Shared(Box<Follower>),
}

impl Root {
    /// Starts a topology that is not recorded.
    pub(crate) fn own(options: &Arc<Options>, seed: u64) -> Self {
        Self::Own(Box::new(Recorder::off(Topology::new(Arc::clone(options), seed))))
    }

    /// Returns the name of the topology, the view that was last published, and what new
    /// connections say of the client.
    pub(crate) fn beginning(&self) -> (TopologyId, Arc<Snapshot>, RawDocumentBuf) {
        match self {
            Self::Own(topology) => {
                let topology = topology.get();
                let metadata = topology.client_metadata().clone();
                (topology.id(), Arc::clone(topology.snapshot()), metadata)
            }
            Self::Shared(follower) => {
                let metadata = follower.client_metadata().clone();
                (follower.id(), Arc::clone(follower.snapshot()), metadata)
            }
        }
    }
}

/// An input that came while a lock was held, by this very thread perhaps.
pub(crate) enum Deferred<R: Runtime> {
    /// A link or a rescan was dropped without a word.
    Lost(Input<'static>),
    /// An operation has stopped to wait for a server.
    Abandoned(WaiterId),
    /// A connection could not be established.
    NotEstablished { server: Arc<Server<R>>, connection: ConnectionId, failure: OperationFailure },
}
