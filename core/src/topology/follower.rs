//! The topology of a client that has no monitors of its own, but shares those of another one.
//!
//! It does what the topology with the monitors, the leader, does: the same servers, the same view,
//! and the same events, under its own name. What its operations find out, it hands on to the
//! leader, which judges it for all. Its pools are its own, and begin in generation 0 whenever it
//! joins, so that generations are translated both ways.

use std::collections::BTreeMap;
use std::sync::Arc;

use bson::RawDocumentBuf;

use super::update::initial_description;
use super::{Action, Event, EventKind, Input, Lifecycle, Topology};
use crate::config::Options;
use crate::config::metadata::{ClientMetadata, DriverInfo};
use crate::description::TopologyDescription;
use crate::diagnosis::Verdict;
use crate::failure::Stage;
use crate::id::{Generation, ServerId, TopologyId, WaiterId};
use crate::operation::{OperationError, OperationFailure};
use crate::pool::Command;
use crate::rng::Rng;
use crate::selection::{Criteria, Snapshot};
use crate::time::Instant;

/// The topology of a client that shares the monitors of another one, its leader's.
///
/// To drive it, [open](Self::open) it once, pass it every action that the leader does from then on,
/// in order ([`follow`](Self::follow)), and pass the leader what its own inputs become
/// ([`translate`](Self::translate)). No other client may use the ids of its waiters.
#[derive(Clone, Debug)]
pub struct Follower {
    id: TopologyId,
    metadata: ClientMetadata,
    /// The `client` document made of `metadata`.
    client: RawDocumentBuf,
    state: Lifecycle,
    snapshot: Arc<Snapshot>,
    /// The servers that have joined, each with the generation of the leader's in which its pool
    /// began.
    servers: BTreeMap<ServerId, Generation>,
    waiters: BTreeMap<WaiterId, Waiter>,
}

/// An operation that waits.
#[derive(Clone, Debug)]
struct Waiter {
    criteria: Arc<Criteria>,
    since: Instant,
}

impl Follower {
    /// Starts from validated options; `seed` gives it a name.
    ///
    /// The options must be such that it [can share](Options::can_share_monitors) the leader's
    /// monitors.
    pub fn new(options: &Options, seed: u64) -> Self {
        let metadata = options.metadata().clone();
        let description = Arc::new(initial_description(options));
        Self {
            id: TopologyId(Rng::new(seed).next_u64()),
            client: metadata.document(),
            metadata,
            state: Lifecycle::New,
            snapshot: Arc::new(Snapshot::new(description, options)),
            servers: BTreeMap::new(),
            waiters: BTreeMap::new(),
        }
    }

    /// Returns the topology's name in events.
    pub const fn id(&self) -> TopologyId {
        self.id
    }

    /// Returns whether it is still to be [opened](Self::open).
    pub fn is_new(&self) -> bool {
        self.state == Lifecycle::New
    }

    /// Returns the view that was last published; before it is opened, that of the seeds.
    pub const fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// Returns what new connections say of the client: the document `client` of the handshake.
    pub const fn client_metadata(&self) -> &RawDocumentBuf {
        &self.client
    }

    /// Adds the name of a library that wraps this one to what new connections say.
    pub fn append_metadata(&mut self, info: &DriverInfo) {
        self.metadata.append(info);
        self.client = self.metadata.document();
    }

    /// Begins with what the leader knows: its servers join, and those that it uses are ready. If
    /// the leader has not begun yet, its own beginning brings the rest; if it has ended, so does
    /// this. Another call does nothing.
    pub fn open(&mut self, leader: &Topology, now: Instant, out: &mut Vec<Action>) {
        if self.state != Lifecycle::New {
            return;
        }
        self.state = Lifecycle::Open;
        self.emit(now, EventKind::TopologyOpening, out);
        if leader.state == Lifecycle::New {
            return;
        }
        for (id, member) in &leader.members {
            self.servers.insert(*id, member.generation(None));
            out.push(Action::Join { server: *id, address: member.address.clone() });
            if member.is_ready() {
                out.push(Action::Pool { server: *id, command: Command::Ready });
            }
        }
        self.snapshot = Arc::clone(leader.snapshot());
        out.push(Action::Publish { snapshot: Arc::clone(&self.snapshot) });
        let new = Arc::clone(leader.description());
        let (previous, servers) = (Arc::default(), Arc::clone(&new));
        self.emit(now, EventKind::TopologyDescriptionChanged { previous, new }, out);
        for server in servers.servers().iter() {
            let (id, address) = (server.id, server.address.clone());
            self.emit(now, EventKind::ServerOpening { server: id, address }, out);
        }
        if leader.state == Lifecycle::Closed {
            self.shut_down(leader, now, out);
        }
    }

    /// Does what the leader has done, as far as that concerns this client: streams and lookups are
    /// the leader's own.
    pub fn follow(&mut self, action: &Action, out: &mut Vec<Action>) {
        if self.state != Lifecycle::Open {
            return;
        }
        match action {
            Action::Open { .. }
            | Action::Send { .. }
            | Action::Close { .. }
            | Action::Resolve { .. } => {}
            Action::Join { server, .. } => {
                self.servers.insert(*server, Generation::default());
                out.push(action.clone());
            }
            Action::Leave { server } => {
                if self.servers.remove(server).is_some() {
                    out.push(action.clone());
                }
            }
            Action::Pool { server, command } => {
                if let Some(began) = self.servers.get(server) {
                    let command = since(command, *began);
                    out.push(Action::Pool { server: *server, command });
                }
            }
            Action::Publish { snapshot } => {
                self.snapshot = Arc::clone(snapshot);
                out.push(action.clone());
            }
            Action::Wake { waiter, .. } => {
                if self.waiters.remove(waiter).is_some() {
                    out.push(action.clone());
                }
            }
            // It has emitted its own.
            Action::Emit { event } if matches!(event.kind, EventKind::TopologyOpening) => {}
            Action::Emit { event } => {
                if matches!(event.kind, EventKind::TopologyClosed) {
                    self.state = Lifecycle::Closed;
                }
                self.emit(event.at, event.kind.clone(), out);
            }
        }
    }

    /// Takes an input, and returns the one for the leader; if there is nothing that the leader
    /// needs to know, it is done with.
    ///
    /// That a login has failed, because the server refuses it, a provider has no token, or this
    /// client's own time-out was short, says nothing of the server to clients with other
    /// credentials: it fails the operation that needed the connection, and no other. The monitors
    /// find out whether the server is there.
    pub fn translate<'a>(
        &mut self,
        leader: &Topology,
        now: Instant,
        input: Input<'a>,
        out: &mut Vec<Action>,
    ) -> Option<Input<'a>> {
        match input {
            Input::Wait { waiter, criteria, .. } if self.state == Lifecycle::Closed => {
                out.push(closed(leader, waiter, &Waiter { criteria, since: now }, now));
                None
            }
            Input::Wait { waiter, ref criteria, .. } => {
                let criteria = Arc::clone(criteria);
                self.waiters.insert(waiter, Waiter { criteria, since: now });
                Some(input)
            }
            Input::Abandon { waiter } => self.waiters.remove(&waiter).map(|_| input),
            Input::OperationFailed { server, failure } => {
                let began = self.servers.get(&server)?;
                (!is_of_login(&failure)).then(|| {
                    let generation = failure.generation.plus(*began);
                    let failure = OperationFailure { generation, ..failure };
                    Input::OperationFailed { server, failure }
                })
            }
            Input::AppendMetadata { info } => {
                self.append_metadata(&info);
                None
            }
            Input::RequestCheck => (self.state == Lifecycle::Open).then_some(input),
            // The leader's, which go on, and its own streams'.
            Input::Shutdown
            | Input::Opened { .. }
            | Input::Reached { .. }
            | Input::Received { .. }
            | Input::Closed { .. }
            | Input::Resolved { .. } => None,
        }
    }

    /// Ends it, while the leader goes on: its servers leave, and operations that wait fail. Pass
    /// [`Input::Abandon`] to the leader for each that is returned: they wait no more.
    pub fn shut_down(
        &mut self,
        leader: &Topology,
        now: Instant,
        out: &mut Vec<Action>,
    ) -> Vec<WaiterId> {
        if self.state != Lifecycle::Open {
            // Without a beginning there is no end to report, and no server joins any more.
            self.state = Lifecycle::Closed;
            return Vec::new();
        }
        self.state = Lifecycle::Closed;
        let previous = Arc::clone(self.snapshot.description());
        let new = Arc::<TopologyDescription>::default();
        self.snapshot = leader.empty_snapshot();
        out.push(Action::Publish { snapshot: Arc::clone(&self.snapshot) });
        let waiters = std::mem::take(&mut self.waiters);
        let woken = waiters.iter().map(|(id, waiter)| closed(leader, *id, waiter, now));
        out.extend(woken);
        for id in std::mem::take(&mut self.servers).into_keys() {
            out.push(Action::Leave { server: id });
            if let Some(server) = previous.servers().iter().find(|server| server.id == id) {
                let address = server.address.clone();
                self.emit(now, EventKind::ServerClosed { server: id, address }, out);
            }
        }
        self.emit(now, EventKind::TopologyDescriptionChanged { previous, new }, out);
        self.emit(now, EventKind::TopologyClosed, out);
        waiters.into_keys().collect()
    }

    fn emit(&self, at: Instant, kind: EventKind, out: &mut Vec<Action>) {
        out.push(Action::Emit { event: Event::new(self.id, at, kind) });
    }
}

/// Fails an operation, as its client is closed.
fn closed(leader: &Topology, id: WaiterId, waiter: &Waiter, now: Instant) -> Action {
    let waited = now - waiter.since;
    let error =
        leader.evidence_of_closed().explain(&waiter.criteria, Some(Verdict::Closed), waited);
    Action::Wake { waiter: id, outcome: Err(Box::new(error)) }
}

/// Returns whether a login has failed, on whichever side and for whatever reason, unless the server
/// has said more of itself than that it refuses it.
fn is_of_login(failure: &OperationFailure) -> bool {
    let says_more = matches!(&failure.error, OperationError::Reply { error, .. }
        if error.state_change().is_some());
    matches!(failure.error.stage(), Stage::Credentials | Stage::Authenticate) && !says_more
}

/// Translates a command to a pool that began in this generation of the leader's.
fn since(command: &Command, began: Generation) -> Command {
    let mut command = command.clone();
    match &mut command {
        Command::Ready => {}
        // Behind a load balancer nothing is shared.
        Command::Clear { to, .. } | Command::ClearService { to, .. } => *to = to.minus(began),
    }
    command
}
