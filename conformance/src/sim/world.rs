//! The simulated world: a deployment, its clients, the network between them, and time.

use std::sync::Arc;
use std::time::Duration;

use sdam_core::dns::DnsError;
use sdam_core::machine::Machine;
use sdam_core::srv::SrvRecord;
use sdam_core::time::Instant;

use super::bounds::Bounds;
use super::checks::Violation;
use super::client::{Client, OperationId, Timer};
use super::network::{Network, Packet, Side, StreamId};
use super::plan::Plan;
use super::random::Random;
use super::run::Statistics;
use super::trace::Trace;
use super::truth::Truth;
use crate::cluster::{Action, Cluster, Deployment, Input, MemberId};

/// How often it is looked at whether everything is still alive.
const AUDIT: Duration = Duration::from_secs(1);

/// The longest that an operation goes on after its client was closed, and more.
const LAST_OPERATION: Duration = Duration::from_secs(62);

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
    OperationTimer {
        client: usize,
        operation: OperationId,
        timer: Timer,
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
    /// A member is no longer primary.
    StepDown(MemberId),
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
    pub(super) network: Network,
    cluster: Cluster,
    cluster_deadline: Option<Instant>,
    cluster_actions: Vec<Action>,
    pub(super) clients: Vec<Client>,
    truth: Truth,
    pub(super) plan: Plan,
    /// The members that DNS names.
    pub(super) listed: Vec<bool>,
    settled: bool,
    over: bool,
    pub(super) statistics: Statistics,
}

impl World {
    pub(super) fn new(plan: Plan, mut random: Random, traced: Option<usize>) -> Self {
        let members = plan.addresses.len();
        let mut network = Network::new(plan.clients.len(), members, random.fork());
        for (index, fault) in plan.faults.iter().enumerate() {
            network.events.plan(fault.begins, Event::Begin(index));
            network.events.plan(fault.ends, Event::End(index));
        }
        network.plan(AUDIT, Event::Audit);
        network.events.plan(plan.calm, Event::Verdict);
        let clients: Vec<Client> = plan
            .clients
            .iter()
            .enumerate()
            .map(|(index, client)| {
                network.plan(random.millis(0, 3_000), Event::Operate { client: index });
                let trace = Trace::new(traced == Some(index));
                let addresses = Arc::clone(&plan.addresses);
                Client::new(index, client.clone(), addresses, random.fork(), trace)
            })
            .collect();
        let has_mongos = plan.cluster.deployment == Deployment::Sharded;
        let cluster = Cluster::new(plan.cluster.clone()).expect("a deployment that makes sense");
        Self {
            network,
            cluster,
            cluster_deadline: Some(Instant::ZERO),
            cluster_actions: Vec::new(),
            clients,
            truth: Truth::new(members, has_mongos, plan.cluster.election_timeout),
            listed: vec![true; members],
            settled: false,
            over: false,
            statistics: Statistics::default(),
            plan,
        }
    }

    /// Lets everything happen; returns who broke which rule, if somebody did.
    pub(super) fn run(&mut self) -> Result<(), (usize, Violation)> {
        while !self.over {
            let events = self.network.events.next_at();
            let client = self.clients.iter().filter_map(|it| it.deadline).min();
            let timer = client.into_iter().chain(self.cluster_deadline).min();
            let event_first = match (events, timer) {
                (Some(event), Some(timer)) if event == timer => !self.plan.timers_first,
                (Some(event), Some(timer)) => event < timer,
                (event, _) => event.is_some(),
            };
            let Some(at) = (if event_first { events } else { timer }) else { break };
            self.network.now = at;
            self.statistics.steps += 1;
            if event_first {
                if let Some(event) = self.network.events.pop() {
                    self.happen(event)?;
                }
            } else if self.cluster_deadline.is_some_and(|due| due <= at) {
                self.run_cluster(|cluster, now, out| cluster.tick(now, out));
            } else {
                for index in 0..self.clients.len() {
                    if self.clients[index].deadline.is_some_and(|due| due <= at) {
                        self.clients[index].tick(&mut self.network);
                        self.judge(index)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Looks at what the checks of a client have found.
    pub(super) fn judge(&mut self, index: usize) -> Result<(), (usize, Violation)> {
        let client = &mut self.clients[index];
        if let Some(violation) = client.checks.take_violation() {
            return Err((index, violation));
        }
        if self.settled && !client.closed {
            let view = client.view().description();
            let compared = self.truth.compare(view, &client.plan, &self.plan.addresses);
            compared.map_err(|violation| (index, violation))?;
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
            Event::OperationTimer { client, operation, .. } => {
                if !self.clients[*client].has_operation(*operation) {
                    return Ok(());
                }
                *client
            }
            Event::Operate { client } | Event::Resolved { client, .. } => *client,
            _ => return self.happen_elsewhere(event),
        };
        self.clients[client].receive(&mut self.network, event);
        self.judge(client)
    }

    fn happen_elsewhere(&mut self, event: Event) -> Result<(), (usize, Violation)> {
        match event {
            Event::Arrival { stream, packet, .. } => self.arrive(stream, packet),
            Event::Resolve { client } => {
                let records = self.records();
                let delay = Duration::from_millis(5);
                self.network.plan(delay, Event::Resolved { client, records: Ok(records) });
            }
            Event::Begin(index) => return self.begin(index),
            Event::End(index) => return self.end(index),
            Event::StepDown(member) => self.tell(Input::StepDown { member }),
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
                return self.look_for_leaks();
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
                    self.tell(Input::Accepted { connection: stream, member });
                    self.network.send(stream, Side::Client, Packet::SynAck);
                }
            }
            Packet::Bytes(bytes) if accepted => {
                self.tell(Input::Received { connection: stream, bytes: &bytes });
            }
            Packet::Fin => {
                self.network.hung_up(stream);
                if accepted {
                    self.tell(Input::Disconnected { connection: stream });
                }
            }
            _ => {}
        }
    }

    /// Hands the deployment an input.
    pub(super) fn tell(&mut self, input: Input<'_>) {
        let now = self.network.now;
        match input {
            Input::Freeze { member } => self.truth.froze(member),
            Input::Thaw { member } => self.truth.thawed(member, now),
            _ => {}
        }
        self.run_cluster(|cluster, now, out| cluster.handle(now, input, out));
    }

    fn run_cluster(&mut self, act: impl FnOnce(&mut Cluster, Instant, &mut Vec<Action>)) {
        let mut actions = std::mem::take(&mut self.cluster_actions);
        act(&mut self.cluster, self.network.now, &mut actions);
        self.cluster_deadline = self.cluster.deadline();
        for action in actions.drain(..) {
            self.truth.learn(&action, self.network.now);
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

    pub(super) fn primary(&self) -> Option<MemberId> {
        self.cluster.primary()
    }

    fn records(&self) -> Vec<SrvRecord> {
        let listed = self.plan.addresses.iter().zip(&self.listed).filter(|(_, listed)| **listed);
        listed
            .map(|(address, _)| SrvRecord {
                host: address.host().into(),
                port: address.port().unwrap_or(27017),
                ttl: Duration::ZERO,
            })
            .collect()
    }

    pub(super) fn close(&mut self, index: usize) -> Result<(), (usize, Violation)> {
        let client = &mut self.clients[index];
        if !client.closed && !client.is_frozen() {
            client.shut_down(&mut self.network);
        }
        self.judge(index)
    }

    /// Everybody is to be alive, and who waits in vain is to be helped.
    fn audit(&mut self) -> Result<(), (usize, Violation)> {
        let now = self.network.now;
        for index in 0..self.clients.len() {
            let client = &mut self.clients[index];
            if client.closed || client.is_frozen() {
                continue;
            }
            client.checks.audit(now);
            self.judge(index)?;
            self.check_waits(index).map_err(|violation| (index, violation))?;
        }
        Ok(())
    }

    /// No selection may wait for longer than B while a suitable server has been reachable for T.
    fn check_waits(&self, index: usize) -> Result<(), Violation> {
        let (client, now) = (&self.clients[index], self.network.now);
        let bounds = Bounds::of(&client.options);
        for (id, operation) in client.operations() {
            let Some(waits_since) = operation.selecting_since() else { continue };
            if now - waits_since <= bounds.selection {
                continue;
            }
            for (member, address) in self.plan.addresses.iter().enumerate() {
                let direct = client.plan.direct.is_some();
                let (Some(suitable), Some(calm), Some(known)) = (
                    self.truth.suitable_since(member, &operation.criteria, direct),
                    self.network.path(index, member).calm_since(),
                    client.member_since(address),
                ) else {
                    continue;
                };
                let reachable = suitable.max(calm).max(known).max(client.running_since);
                let limit = (reachable + bounds.reachable).max(waits_since) + bounds.selection;
                if now > limit {
                    let detail = format!(
                        "{id:?} has been waiting since {waits_since:?} for {}, and {address} has \
                         been reachable since {reachable:?}",
                        operation.criteria
                    );
                    return Err(Violation::new(
                        "selections end while a server is reachable",
                        detail,
                    ));
                }
            }
        }
        Ok(())
    }

    /// Returns when the view of a client is to be right, `None` while something is wrong.
    fn right_by(&self, client: &Client) -> Option<Instant> {
        let bounds = Bounds::of(&client.options);
        if self.truth.awaits_election() {
            return None;
        }
        let calm = self.network.calm_since()?.max(self.truth.changed).max(client.running_since);
        // What vanished from DNS is found again by the next lookup.
        let lookup = match client.options.srv() {
            Some(_) => client.options.rescan_interval() + Duration::from_millis(10),
            None => Duration::ZERO,
        };
        Some(calm.max(self.plan.calm) + lookup + bounds.reachable + bounds.view)
    }

    fn decide(&mut self) -> Result<(), (usize, Violation)> {
        let now = self.network.now;
        let open = self.clients.iter().filter(|client| !client.closed);
        let by = open
            .map(|client| self.right_by(client))
            .try_fold(now, |latest, by| Some(latest.max(by?)));
        match by {
            None => self.network.plan(Duration::from_secs(1), Event::Verdict),
            Some(by) if by > now => self.network.events.plan(by, Event::Verdict),
            Some(_) => {
                self.settled = true;
                for index in 0..self.clients.len() {
                    self.judge(index)?;
                }
                self.network.plan(Duration::from_secs(20), Event::Close);
            }
        }
        Ok(())
    }

    /// Everything that was begun has ended.
    fn look_for_leaks(&self) -> Result<(), (usize, Violation)> {
        for (index, client) in self.clients.iter().enumerate() {
            if client.has_remains() {
                let violation = Violation::new("everything that began has ended", client.remains());
                return Err((index, violation));
            }
        }
        match self.network.len() {
            0 => Ok(()),
            streams => {
                let detail = format!("{streams} streams are open");
                Err((0, Violation::new("everything that began has ended", detail)))
            }
        }
    }
}
