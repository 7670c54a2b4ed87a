//! The simulated world: a deployment, its clients, the network between them, and time.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use sdam_core::dns::DnsError;
use sdam_core::dns::srv::SrvRecord;
use sdam_core::machine::Machine;
use sdam_core::time::{Instant, Time};

use super::checks::Violation;
use super::client::{Client, OperationId};
use super::deployment::capacity;
use super::network::{Network, Packet, Side, StreamId};
use super::oracle::Oracle;
use super::plan::Plan;
use super::random::Random;
use super::run::Statistics;
use super::runtime::{Clock, End, Step};
use super::trace::{Observed, Trace};
use sdam_cluster::{Action, Cluster, Deployment, Input, MemberId};

/// The interval at which everything is checked to be alive.
pub(super) const AUDIT: Duration = Duration::from_secs(1);

/// The longest that an operation goes on after its client was closed, and more.
pub(super) const LAST_OPERATION: Duration = Duration::from_secs(62);

/// Far longer than any simulation takes, in virtual time and in steps: the deployment comes to rest
/// within minutes of the last fault, and views are right soon afterwards.
const LONGEST: Instant = Instant::from_millis(24 * 3_600_000);
const MOST_STEPS: u64 = 20_000_000;

/// Something that is going to happen.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// A packet arrives.
    Arrival {
        stream: StreamId,
        to: Side,
        packet: Packet,
    },
    /// An application begins an operation.
    Operate {
        client: usize,
    },
    /// An application drops an operation.
    Cancel {
        client: usize,
        operation: OperationId,
    },
    /// A task waits no longer.
    Wake {
        client: usize,
        waker: Waker,
    },
    /// The reader of a stream is to look at the clock.
    Ripen {
        client: usize,
        end: Arc<End>,
    },
    /// A client's question reaches DNS.
    Resolve {
        client: usize,
    },
    Resolved {
        client: usize,
        records: Result<Vec<SrvRecord>, DnsError>,
    },
    /// A fault begins.
    Begin(usize),
    /// A fault ends.
    End(usize),
    /// The configuration is changed back, if that is possible by now.
    Restore(usize),
    /// A member is no longer primary.
    StepDown(MemberId),
    /// A member accepts the connection that has waited longest.
    Accept(MemberId),
    /// A member goes on with the login that has waited longest.
    LogIn(MemberId),
    Audit,
    /// Views are to be right, unless something has happened again.
    Verdict,
    /// All clients are closed.
    Close,
    /// Nothing may be left.
    Over,
}

/// Everything there is.
#[derive(Debug)]
pub(super) struct World {
    /// The clock of all clients.
    pub(super) clock: Arc<Clock>,
    pub(super) network: Network,
    pub(super) cluster: Cluster,
    cluster_deadline: Option<Instant>,
    cluster_actions: Vec<Action>,
    pub(super) clients: Vec<Client>,
    pub(super) oracle: Oracle,
    /// The last election term, and when it began.
    term: i64,
    pub(super) elected: Instant,
    pub(super) plan: Plan,
    /// The members that DNS names.
    pub(super) listed: Vec<bool>,
    /// The time when DNS last began to name another one.
    pub(super) listed_since: Instant,
    pub(super) settled: bool,
    /// True if the applications of single-threaded clients have looked since all is calm.
    pub(super) looked: bool,
    /// The number of changes of the configuration that are still to be undone.
    pub(super) unfinished: usize,
    pub(super) observed: Observed,
    /// The client that last had something to do.
    pub(super) acting: usize,
    pub(super) over: bool,
    pub(super) statistics: Statistics,
}

impl World {
    pub(super) fn new(plan: Plan, mut random: Random, observed: Observed) -> Self {
        let members = capacity(&plan.cluster);
        let mut network = Network::new(plan.clients.len(), members, plan.distances, random.fork());
        let faults = plan.faults.iter().enumerate();
        for (index, fault) in faults.filter(|(index, _)| plan.reduction.has_fault(*index)) {
            network.events.plan(fault.begins, Event::Begin(index));
            network.events.plan(fault.ends, Event::End(index));
        }
        network.plan(AUDIT, Event::Audit);
        network.events.plan(plan.calm, Event::Verdict);
        if let Some(closes) = plan.reduction.closes(&plan) {
            network.events.plan(closes, Event::Close);
        }
        let clock = Arc::new(Clock::new(plan.cluster.wall_epoch_millis));
        let clients: Vec<Client> = plan
            .clients
            .iter()
            .enumerate()
            .map(|(index, client)| {
                let (begins, random) = (random.millis(0, 3_000), random.fork());
                let trace = Trace::of(index, observed);
                let places = (Arc::clone(&client.addresses), network.latencies(index));
                let kept = (trace, Arc::clone(&clock));
                let created = Client::new(index, client.clone(), places, random, kept);
                if !plan.reduction.has_client(index) {
                    return created.left_out();
                }
                network.plan(begins, Event::Operate { client: index });
                created
            })
            .collect();
        let has_mongos = plan.cluster.deployment != Deployment::ReplicaSet;
        let cluster = Cluster::new(plan.cluster.clone()).expect("a deployment that makes sense");
        Self {
            clock,
            network,
            oracle: Oracle::new(&cluster, has_mongos),
            term: cluster.term(),
            elected: Instant::ZERO,
            cluster,
            cluster_deadline: Some(Instant::ZERO),
            cluster_actions: Vec::new(),
            clients,
            listed: vec![true; members],
            listed_since: Instant::ZERO,
            settled: false,
            looked: false,
            unfinished: 0,
            observed,
            acting: 0,
            over: false,
            statistics: Statistics::default(),
            plan,
        }
    }

    /// Lets everything happen, until something happens later than that; returns who broke which
    /// rule, if somebody did.
    pub(super) fn run(&mut self, latest: Instant) -> Result<(), (usize, Violation)> {
        while !self.over && self.network.now <= latest {
            self.step()?;
        }
        Ok(())
    }

    /// Lets the next thing happen.
    pub(super) fn step(&mut self) -> Result<(), (usize, Violation)> {
        let events = self.network.events.next_at();
        let client = self.clients.iter().filter_map(|it| it.deadline).min();
        let timer = client.into_iter().chain(self.cluster_deadline).min();
        let event_first = match (events, timer) {
            (Some(event), Some(timer)) if event == timer => !self.plan.timers_first,
            (Some(event), Some(timer)) => event < timer,
            (event, _) => event.is_some(),
        };
        let Some(at) = (if event_first { events } else { timer }) else {
            self.over = true;
            return Ok(());
        };
        assert!(at >= self.network.now, "time went back from {:?} to {at:?}", self.network.now);
        self.network.now = at;
        self.clock.set(at);
        self.statistics.steps += 1;
        if at > LONGEST || self.statistics.steps > MOST_STEPS {
            let detail = format!("at {at:?}, after {} steps", self.statistics.steps);
            return Err((self.acting, Violation::new("simulations end", detail)));
        }
        if event_first {
            self.clock.step(Step::Event);
            if let Some(event) = self.network.events.pop() {
                self.happen(event)?;
            }
        } else if self.cluster_deadline.is_some_and(|due| due <= at) {
            self.clock.step(Step::Deployment);
            self.run_cluster(Machine::tick);
        } else {
            self.clock.step(Step::Alarm);
            for index in 0..self.clients.len() {
                if self.clients[index].deadline.is_some_and(|due| due <= at) {
                    self.acting = index;
                    self.clients[index].tick(&mut self.network);
                    self.judge(index)?;
                }
            }
        }
        Ok(())
    }

    /// Looks at what the checks of a client have found.
    pub(super) fn judge(&mut self, index: usize) -> Result<(), (usize, Violation)> {
        let (violation, gave_up, forked) = self.clients[index].ledger().take_findings();
        if let Some(violation) = violation {
            return Err((index, violation));
        }
        if let Some(gave_up) = gave_up {
            self.check_gave_up(index, &gave_up).map_err(|violation| (index, violation))?;
        }
        if self.plan.cluster.keeps_data {
            let missed = self.clients[index].ledger().documents.take_missed();
            let finding = missed.iter().try_for_each(|it| self.check_missed(it));
            finding.map_err(|violation| (index, violation))?;
        }
        if let Some((options, bits)) = forked {
            self.fork(index, options, bits);
        }
        let client = &mut self.clients[index];
        if self.settled && !client.closed && client.is_to_be_right() {
            self.compare(index).map_err(|violation| (index, violation))?;
        }
        Ok(())
    }

    fn happen(&mut self, event: Event) -> Result<(), (usize, Violation)> {
        let client = match &event {
            Event::Arrival { stream, to: Side::Client, .. } => {
                match self.network.reached_client(*stream) {
                    Some(client) => client,
                    None => return Ok(()),
                }
            }
            Event::Cancel { client, operation } => {
                if !self.clients[*client].has_operation(*operation) {
                    return Ok(());
                }
                *client
            }
            Event::Operate { client }
            | Event::Resolved { client, .. }
            | Event::Wake { client, .. }
            | Event::Ripen { client, .. } => *client,
            _ => return self.happen_elsewhere(event),
        };
        self.acting = client;
        self.clients[client].receive(&mut self.network, event);
        self.judge(client)
    }

    fn happen_elsewhere(&mut self, event: Event) -> Result<(), (usize, Violation)> {
        match event {
            Event::Arrival { stream, packet, .. } => self.arrive(stream, packet),
            Event::Resolve { client } => self.look_up(client),
            Event::Begin(index) => return self.begin(index),
            Event::End(index) => return self.end(index),
            Event::Restore(index) => {
                self.unfinished -= 1;
                self.end_reconfig(index);
            }
            Event::StepDown(member) => self.input(Input::StepDown { member }),
            Event::Audit => {
                self.network.plan(AUDIT, Event::Audit);
                return self.audit();
            }
            Event::Verdict => return self.decide(),
            Event::Close => {
                self.settled = false;
                self.network.plan(LAST_OPERATION, Event::Over);
                for index in 0..self.clients.len() {
                    self.close(index)?;
                }
            }
            Event::Over => {
                self.over = true;
                self.look_for_leaks()?;
                return self.check_documents();
            }
            _ => {}
        }
        Ok(())
    }

    /// A packet arrives at a member.
    fn arrive(&mut self, stream: StreamId, packet: Packet) {
        let Some((host, accepted)) = self.network.reached_member(stream, &packet) else { return };
        let member = MemberId(host);
        match packet {
            Packet::Syn => {
                if self.network.refuses(stream) || !self.cluster.is_running(member) {
                    return self.network.send(stream, Side::Client, Packet::Refused);
                }
                if self.network.accept(stream) {
                    self.input(Input::Accepted { connection: stream, member });
                    self.say_name(stream);
                    self.network.send(stream, Side::Client, Packet::SynAck);
                }
            }
            Packet::Bytes(bytes) if accepted => {
                self.input(Input::Received { connection: stream, bytes: &bytes });
            }
            Packet::Fin => {
                self.network.hung_up(stream);
                if accepted {
                    self.input(Input::Disconnected { connection: stream });
                }
            }
            _ => {}
        }
    }

    /// A client outside says, as in the opening of TLS, by which name it knows the member.
    fn say_name(&mut self, connection: StreamId) {
        let Some((client, member)) = self.network.dialled(connection) else { return };
        if self.plan.clients[client].outside {
            let addresses = Arc::clone(&self.plan.clients[client].addresses);
            self.input(Input::ServerName { connection, name: addresses[member].host() });
        }
    }

    /// Hands the deployment an input.
    pub(super) fn input(&mut self, input: Input<'_>) {
        self.run_cluster(|cluster, now, out| cluster.handle(now, input, out));
    }

    fn run_cluster(&mut self, act: impl FnOnce(&mut Cluster, Time, &mut Vec<Action>)) {
        let mut actions = std::mem::take(&mut self.cluster_actions);
        act(&mut self.cluster, self.network.now.into(), &mut actions);
        self.cluster_deadline = self.cluster.deadline();
        self.oracle.refresh(&self.cluster, self.network.now);
        if self.term != self.cluster.term() {
            (self.term, self.elected) = (self.cluster.term(), self.network.now);
        }
        for action in actions.drain(..) {
            match action {
                Action::Send { connection, bytes } => {
                    self.network.send(connection, Side::Client, Packet::Bytes(bytes));
                }
                Action::Close { connection } => self.network.close_server(connection),
                _ => {}
            }
        }
        self.cluster_actions = actions;
    }

    pub(super) fn close(&mut self, index: usize) -> Result<(), (usize, Violation)> {
        self.acting = index;
        let client = &mut self.clients[index];
        if !client.closed && !client.is_frozen() {
            client.shut_down(&mut self.network);
        }
        self.judge(index)
    }
}
