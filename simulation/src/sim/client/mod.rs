//! A client: a topology, a pool for each server, and operations, driven as the host drives them,
//! but in virtual time and on one thread.

mod alarm;
mod attendance;
mod cursors;
mod establishing;
mod exchanges;
mod idle;
mod links;
mod lookups;
mod meant;
mod operations;
mod outcomes;
mod pools;
mod reports;
mod retries;
mod selecting;
#[cfg(test)]
mod tests;
mod words;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use sdam_core::auth::Remembered;
use sdam_core::config::{Options, ServerAddress};
use sdam_core::id::{LinkId, ServerId, WaiterId};
use sdam_core::machine::{Lawful, Machine};
use sdam_core::operation::StateChange;
use sdam_core::pool;
use sdam_core::selection::Snapshot;
use sdam_core::time::{Instant, Time};
use sdam_core::topology::{Action, Input, Topology};
use sdam_core::trace::Recorder;

use alarm::Alarm;
use establishing::Attempt;
pub(super) use operations::{Operation, OperationId, Timer};
pub(super) use outcomes::GaveUp;
use outcomes::Look;
use pools::{Connection, Server, Task};
use words::{brief, names_mechanism};

use super::checks::Checks;
use super::dns::WAY;
use super::network::{Network, Packet, StreamId};
use super::plan::ClientPlan;
use super::random::Random;
use super::trace::Trace;
use super::world::Event;

/// What a stream is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Link(LinkId),
    Attempt(ServerId, sdam_core::id::ConnectionId),
    Pooled(ServerId),
}

/// A client: its machines, and what their actions have brought about.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) index: usize,
    pub(super) plan: ClientPlan,
    pub(super) options: Arc<Options>,
    addresses: Arc<[ServerAddress]>,
    topology: Recorder<Lawful<Topology>>,
    pub(super) now: Instant,
    view: Arc<Snapshot>,
    links: BTreeMap<LinkId, StreamId>,
    uses: BTreeMap<StreamId, Use>,
    servers: BTreeMap<ServerId, Server>,
    attempts: BTreeMap<StreamId, Attempt>,
    /// What connections that were established know, for those to come.
    remembered: Remembered,
    connections: BTreeMap<StreamId, Connection>,
    operations: BTreeMap<OperationId, Operation>,
    /// Who waits for a server.
    selecting: BTreeMap<WaiterId, OperationId>,
    waiters: u64,
    /// What is done when no machine runs.
    tasks: VecDeque<Task>,
    actions: Vec<Action>,
    /// How many actions of the topology there were.
    actions_done: u64,
    pool_actions: Vec<pool::Action<StreamId>>,
    /// How many actions of pools there were.
    pool_actions_done: u64,
    /// What came while the process was frozen, `None` if it runs.
    frozen: Option<Vec<Event>>,
    frozen_at: Instant,
    /// What came while nobody looked, in the single-threaded mode.
    unread: Vec<Event>,
    /// When its process began.
    pub(super) born: Instant,
    /// When it was last frozen, restarted, or begun.
    pub(super) running_since: Instant,
    pub(super) closed: bool,
    /// When its view was last found to be right.
    pub(super) was_right: Option<Instant>,
    /// Whether its process is to fork, and with which options it has.
    pub(super) forks: Option<u64>,
    pub(super) forked: Option<(Arc<Options>, u64)>,
    /// When its alarm rings next.
    pub(super) deadline: Option<Instant>,
    alarm: Alarm,
    pub(super) checks: Checks,
    /// When an operation last told the topology of an error that was not stale.
    pub(super) reported: Instant,
    /// A selection that has given up.
    gave_up: Option<GaveUp>,
    look: Look,
    /// How many operations have begun, and how many have succeeded.
    pub(super) begun: u64,
    pub(super) succeeded: u64,
    pub(super) trace: Trace,
    /// Decides what the application does, and when: whatever happens to its operations takes
    /// nothing from it.
    workload: Random,
    random: Random,
}

impl Client {
    pub(super) fn new(
        index: usize,
        plan: ClientPlan,
        (addresses, latencies): (Arc<[ServerAddress]>, Vec<Duration>),
        mut random: Random,
        trace: Trace,
    ) -> Self {
        let options = Arc::clone(&plan.options);
        let (seed, workload) = (random.bits(), random.fork());
        let topology = Topology::new(Arc::clone(&options), seed);
        let view = Arc::clone(topology.snapshot());
        let mut topology = Recorder::off(Lawful::new(topology));
        if let Some(sink) = trace.sink() {
            topology.record(&options, seed, sink);
        }
        let places = Arc::clone(&addresses);
        let mut checks = Checks::new(index, &options, places, latencies, plan.steady);
        checks.trust_servers();
        if !plan.shortcuts {
            checks.lends_aloud();
        }
        Self {
            index,
            checks,
            begun: 0,
            succeeded: 0,
            options,
            addresses,
            topology,
            now: Instant::ZERO,
            view,
            links: BTreeMap::new(),
            uses: BTreeMap::new(),
            servers: BTreeMap::new(),
            attempts: BTreeMap::new(),
            remembered: Remembered::default(),
            connections: BTreeMap::new(),
            operations: BTreeMap::new(),
            selecting: BTreeMap::new(),
            waiters: 0,
            tasks: VecDeque::new(),
            actions: Vec::new(),
            actions_done: 0,
            pool_actions: Vec::new(),
            pool_actions_done: 0,
            frozen: None,
            frozen_at: Instant::ZERO,
            unread: Vec::new(),
            born: Instant::ZERO,
            running_since: Instant::ZERO,
            closed: false,
            was_right: None,
            forks: None,
            forked: None,
            reported: Instant::ZERO,
            gave_up: None,
            look: Look::None,
            deadline: Some(Instant::ZERO),
            alarm: Alarm::at(Some(Instant::ZERO)),
            trace,
            workload,
            random,
            plan,
        }
    }

    /// Has it begin at that time, not at the origin.
    pub(super) fn born(self, at: Instant) -> Self {
        let (deadline, alarm) = (Some(at), Alarm::at(Some(at)));
        Self { born: at, running_since: at, deadline, alarm, ..self }
    }

    /// Has it do nothing, as if it were closed and would never begin.
    pub(super) fn left_out(self) -> Self {
        let born = Instant::from_nanos(u64::MAX);
        Self { born, closed: true, deadline: None, ..self }
    }

    /// Takes the trace of its topology, if one was written, with the call in which that panicked.
    pub(super) fn take_recording(&mut self) -> Option<String> {
        self.topology.write_broken_call();
        self.trace.take_recording()
    }

    pub(super) const fn view(&self) -> &Arc<Snapshot> {
        &self.view
    }

    pub(super) fn operations(&self) -> impl Iterator<Item = (&OperationId, &Operation)> {
        self.operations.iter()
    }

    /// Returns whether its process was forked off another one's.
    pub(super) fn was_forked(&self) -> bool {
        self.born > Instant::ZERO
    }

    /// Returns whether operations wait for a server.
    pub(super) fn has_waiters(&self) -> bool {
        !self.selecting.is_empty()
    }

    /// Returns since when the view has named the server at this address, if it does.
    pub(super) fn member_since(&self, address: &ServerAddress) -> Option<Instant> {
        let known = self.view.description().server(address)?;
        self.servers.get(&known.id).map(|server| server.joined)
    }

    /// Returns when an operation was last told by this server what it is not, or does, and that.
    pub(super) fn refused_by(&self, address: &ServerAddress) -> Option<(Instant, StateChange)> {
        let known = self.view.description().server(address)?;
        self.servers.get(&known.id).and_then(|server| server.refused)
    }

    /// Rings at a deadline.
    pub(super) fn tick(&mut self, network: &mut Network) {
        self.alarm_rang(network.now);
        if !self.may_tick(network.now) {
            self.deadline = None;
            return;
        }
        self.now = network.now;
        self.trace.step(self.now, || "tick".to_owned());
        if self.topology.deadline().is_some_and(|due| due <= self.now) {
            self.checks.woken(self.now);
            self.run(network, Machine::tick);
        }
        let due = |server: &Server| server.pool.deadline().is_some_and(|due| due <= self.now);
        let servers: Vec<ServerId> =
            self.servers.iter().filter(|(_, it)| due(it)).map(|(id, _)| *id).collect();
        servers.into_iter().for_each(|server| self.ring_pool(network, server));
        self.settle(network);
    }

    /// Hands the topology an input.
    fn tell(&mut self, network: &mut Network, input: Input<'_>) {
        let now = self.not_yet_due(self.topology.deadline());
        self.run(network, |topology, _, out| topology.handle(now, input, out));
    }

    /// Returns the time at which a machine is told something: just before a deadline that has
    /// passed, as only the alarm lets deadlines pass; or the time it is, as machines must bear too.
    fn not_yet_due(&self, deadline: Option<Instant>) -> Time {
        Time::before(deadline.filter(|_| self.plan.inputs_first), self.now)
    }

    fn run(
        &mut self,
        network: &mut Network,
        act: impl FnOnce(&mut Recorder<Lawful<Topology>>, Time, &mut Vec<Action>),
    ) {
        let mut actions = std::mem::take(&mut self.actions);
        act(&mut self.topology, self.now.into(), &mut actions);
        self.actions_done += actions.len() as u64;
        for action in actions.drain(..) {
            self.perform(network, action);
        }
        self.actions = actions;
    }

    /// Does what was put off, and looks at what is due next.
    fn settle(&mut self, network: &mut Network) {
        while let Some(task) = self.tasks.pop_front() {
            self.work(network, task);
        }
        self.set_alarm();
        let (topology, wanted) = (self.topology.deadline(), !self.selecting.is_empty());
        self.checks.after_step(self.now, topology, self.closed, &self.view, wanted);
        self.servers.retain(|_, server| !(server.left && server.is_over()));
    }

    fn next_deadline(&self) -> Option<Instant> {
        if !self.is_attended() {
            return None;
        }
        let pools = self.servers.values().filter_map(|server| server.pool.deadline());
        self.topology.deadline().into_iter().chain(pools).min()
    }

    fn perform(&mut self, network: &mut Network, action: Action) {
        self.trace.step(self.now, || format!("   {}", brief(&action)));
        self.checks
            .action(self.now, &action, |server| self.servers.get(&server).map(Server::is_ready));
        self.fork_in_the_middle();
        match action {
            Action::Open { link, address } => {
                let Some(member) = self.member_at(&address) else { return };
                let stream = network.open(self.index, member);
                network.monitors(stream);
                self.links.insert(link, stream);
                self.note_measuring(link);
                self.uses.insert(stream, Use::Link(link));
            }
            Action::Send { link, bytes } => {
                if self.options.credential().is_some() && names_mechanism(&bytes) {
                    self.checks.fail("monitors never log in", || format!("{link} begins to"));
                }
                if let Some(stream) = self.links.get(&link) {
                    self.send(network, *stream, bytes);
                    self.note_measuring(link);
                }
            }
            Action::Close { link } => {
                if let Some(stream) = self.links.remove(&link) {
                    self.hang_up(network, stream);
                }
            }
            Action::Resolve { .. } => {
                network.plan(WAY, Event::Resolve { client: self.index });
            }
            Action::Join { server, address } => self.join(network, server, address),
            Action::Leave { server } => self.leave(network, server),
            Action::Pool { server, command } => {
                self.tell_pool(network, server, pool::Input::Command(command));
            }
            Action::Publish { snapshot } => self.view = snapshot,
            Action::Wake { waiter, outcome } => {
                if let Some(operation) = self.selecting.remove(&waiter) {
                    self.tasks.push_back(Task::Woken(operation, outcome));
                }
            }
            Action::Emit { .. } => {}
        }
    }

    fn member_at(&mut self, address: &ServerAddress) -> Option<usize> {
        if self.options.load_balanced() {
            // The balancer passes each connection on to whichever mongos it likes.
            return Some(self.random.index(self.addresses.len()));
        }
        let member = self.addresses.iter().position(|known| known == address);
        if member.is_none() {
            self.checks.fail("known addresses", || format!("{address} is dialled"));
        }
        member
    }

    fn send(&mut self, network: &mut Network, stream: StreamId, bytes: Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        network.send(stream, super::network::Side::Server, Packet::Bytes(bytes));
    }

    fn hang_up(&mut self, network: &mut Network, stream: StreamId) {
        self.uses.remove(&stream);
        self.attempts.remove(&stream);
        self.connections.remove(&stream);
        network.close(stream);
    }

    fn arrived(&mut self, network: &mut Network, stream: StreamId, packet: Packet) {
        match self.uses.get(&stream).copied() {
            Some(Use::Link(link)) => self.arrived_at_link(network, stream, link, packet),
            Some(Use::Attempt(server, connection)) => {
                self.arrived_at_attempt(network, stream, (server, connection), packet);
            }
            Some(Use::Pooled(server)) => {
                self.arrived_at_connection(network, stream, server, packet);
            }
            None => {}
        }
    }

    /// Numbers somebody who waits.
    const fn next_waiter(&mut self) -> WaiterId {
        self.waiters += 1;
        WaiterId(self.waiters)
    }
}
