//! The costs of one client at the servers that it monitors, counted in virtual time: the client's
//! own machine, against the model of a deployment.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use sdam_cluster::{Action as ServerAction, Cluster, ClusterOptions, ConnectionId, Deployment};
use sdam_cluster::{Input as ServerInput, MemberId};
use sdam_core::config::{MonitoringMode, Options, ServerAddress};
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::id::LinkId;
use sdam_core::machine::Machine;
use sdam_core::time::{Instant, Time};
use sdam_core::topology::{Action, Input, Topology};
use serde::Serialize;

/// The time that a deployment has before a client comes: it has elected a primary by then.
const ELECTED: Duration = Duration::from_secs(60);

/// The number of heartbeats that are counted.
const HEARTBEATS: u32 = 20;

/// A deployment, and how a client monitors it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    pub(crate) members: usize,
    pub(crate) is_sharded: bool,
    pub(crate) heartbeat: Duration,
    pub(crate) mode: MonitoringMode,
}

/// The cost of one client for all servers together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    /// The connections that are open.
    pub(crate) sockets: u64,
    /// The traffic of the beginning.
    pub(crate) start: Traffic,
    /// The traffic of each second from then on.
    pub(crate) steady: Rates,
}

/// Messages and their bytes, without what TCP and TLS add.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traffic {
    /// The requests that servers read.
    pub(crate) requests: u64,
    /// The replies to hello that servers make, with those that a stream has without a request.
    pub(crate) hellos: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
}

/// The same for a second.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Rates {
    pub(crate) requests_per_second: f64,
    pub(crate) hellos_per_second: f64,
    pub(crate) bytes_in_per_second: f64,
    pub(crate) bytes_out_per_second: f64,
}

impl Traffic {
    fn since(self, before: Self) -> Self {
        Self {
            requests: self.requests - before.requests,
            hellos: self.hellos - before.hellos,
            bytes_in: self.bytes_in - before.bytes_in,
            bytes_out: self.bytes_out - before.bytes_out,
        }
    }

    /// Returns a second's share of what has happened in so much time.
    #[expect(clippy::cast_precision_loss, reason = "counts of minutes are small")]
    fn over(self, time: Duration) -> Rates {
        let a_second = |count: u64| count as f64 / time.as_secs_f64();
        Rates {
            requests_per_second: a_second(self.requests),
            hellos_per_second: a_second(self.hellos),
            bytes_in_per_second: a_second(self.bytes_in),
            bytes_out_per_second: a_second(self.bytes_out),
        }
    }
}

impl Rates {
    pub(crate) fn times(self, factor: f64) -> Self {
        Self {
            requests_per_second: self.requests_per_second * factor,
            hellos_per_second: self.hellos_per_second * factor,
            bytes_in_per_second: self.bytes_in_per_second * factor,
            bytes_out_per_second: self.bytes_out_per_second * factor,
        }
    }
}

/// Counts what a client costs.
///
/// # Panics
///
/// Panics if the numbers are not those that the arguments allow.
pub(crate) fn cost(question: Question) -> Cost {
    let addresses: Vec<ServerAddress> =
        (0..question.members).map(|number| address(&format!("db{number}.example:27017"))).collect();
    let kind = if question.is_sharded { Deployment::Sharded } else { Deployment::ReplicaSet };
    let deployment = ClusterOptions::new("rs0", addresses.clone()).with_deployment(kind);
    let options = Options::builder()
        .seeds(addresses.iter().cloned())
        .heartbeat_frequency(question.heartbeat)
        .monitoring_mode(question.mode);
    let options = match question.is_sharded {
        true => options.build(),
        false => options.replica_set("rs0").build(),
    };
    let mut world = World {
        topology: Topology::new(Arc::new(options.expect("options that make sense")), 1),
        cluster: Cluster::new(deployment).expect("a deployment that makes sense"),
        addresses,
        now: Instant::ZERO,
        has_client: false,
        links: BTreeMap::new(),
        connections: BTreeMap::new(),
        opened: 0,
        messages: VecDeque::new(),
        traffic: Traffic::default(),
    };
    world.run_for(ELECTED);
    world.has_client = true;
    world.run_for(question.heartbeat / 2);
    let start = world.traffic;
    let time = question.heartbeat * HEARTBEATS;
    world.run_for(time);
    let steady = world.traffic.since(start).over(time);
    Cost { sockets: world.links.len() as u64, start, steady }
}

fn address(text: &str) -> ServerAddress {
    text.parse().expect("an address")
}

/// A message between the two, which arrives at once.
enum Message {
    Open { link: LinkId, address: ServerAddress },
    ToServer { link: LinkId, bytes: Vec<u8> },
    ToClient { connection: ConnectionId, bytes: Vec<u8> },
    ClosedByClient { link: LinkId },
    ClosedByServer { connection: ConnectionId },
}

/// A client, a deployment, and no network between them.
struct World {
    topology: Topology,
    cluster: Cluster,
    addresses: Vec<ServerAddress>,
    now: Instant,
    /// True once the client is there.
    has_client: bool,
    links: BTreeMap<LinkId, ConnectionId>,
    connections: BTreeMap<ConnectionId, LinkId>,
    opened: u64,
    messages: VecDeque<Message>,
    traffic: Traffic,
}

impl World {
    fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            let client = self.topology.deadline().filter(|_| self.has_client);
            let next = client.into_iter().chain(self.cluster.deadline()).min();
            let Some(at) = next.filter(|at| *at < until) else { break };
            self.now = self.now.max(at);
            match client == Some(at) {
                true => self.client(Topology::tick),
                false => self.server(Cluster::tick),
            }
            self.deliver();
        }
        self.now = until;
    }

    fn deliver(&mut self) {
        while let Some(message) = self.messages.pop_front() {
            match message {
                Message::Open { link, address } => self.open(link, &address),
                Message::ToServer { link, bytes } => {
                    let Some(connection) = self.links.get(&link).copied() else { continue };
                    self.traffic.requests += 1;
                    self.traffic.bytes_in += bytes.len() as u64;
                    let input = ServerInput::Received { connection, bytes: &bytes };
                    self.server(|cluster, now, out| cluster.handle(now, input, out));
                }
                Message::ToClient { connection, bytes } => {
                    let Some(link) = self.connections.get(&connection).copied() else { continue };
                    self.traffic.hellos += 1;
                    self.traffic.bytes_out += bytes.len() as u64;
                    let input = Input::Received { link, bytes: &bytes };
                    self.client(|topology, now, out| topology.handle(now, input, out));
                }
                Message::ClosedByClient { link } => {
                    let Some(connection) = self.links.remove(&link) else { continue };
                    self.connections.remove(&connection);
                    let input = ServerInput::Disconnected { connection };
                    self.server(|cluster, now, out| cluster.handle(now, input, out));
                }
                Message::ClosedByServer { connection } => {
                    let Some(link) = self.connections.remove(&connection) else { continue };
                    self.links.remove(&link);
                    let failure = Failure::new(Stage::Hello, Cause::Closed, "it was closed");
                    let input = Input::Closed { link, failure };
                    self.client(|topology, now, out| topology.handle(now, input, out));
                }
            }
        }
    }

    fn open(&mut self, link: LinkId, address: &ServerAddress) {
        let member = self.addresses.iter().position(|known| known == address);
        let member = MemberId(member.expect("the deployment has no other members"));
        let connection = ConnectionId(self.opened);
        self.opened += 1;
        self.links.insert(link, connection);
        self.connections.insert(connection, link);
        let input = ServerInput::Accepted { connection, member };
        self.server(|cluster, now, out| cluster.handle(now, input, out));
        let input = Input::Opened { link };
        self.client(|topology, now, out| topology.handle(now, input, out));
    }

    fn client(&mut self, act: impl FnOnce(&mut Topology, Time, &mut Vec<Action>)) {
        let mut actions = Vec::new();
        act(&mut self.topology, self.now.into(), &mut actions);
        self.messages.extend(actions.into_iter().filter_map(|action| match action {
            Action::Open { link, address } => Some(Message::Open { link, address }),
            Action::Send { link, bytes } => Some(Message::ToServer { link, bytes }),
            Action::Close { link } => Some(Message::ClosedByClient { link }),
            _ => None,
        }));
    }

    fn server(&mut self, act: impl FnOnce(&mut Cluster, Time, &mut Vec<ServerAction>)) {
        let mut actions = Vec::new();
        act(&mut self.cluster, self.now.into(), &mut actions);
        self.messages.extend(actions.into_iter().filter_map(|action| match action {
            ServerAction::Send { connection, bytes } => {
                Some(Message::ToClient { connection, bytes })
            }
            ServerAction::Close { connection } => Some(Message::ClosedByServer { connection }),
            _ => None,
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(mode: MonitoringMode) -> Question {
        Question { members: 3, is_sharded: false, heartbeat: Duration::from_secs(10), mode }
    }

    fn is_near(found: f64, expected: f64) -> bool {
        (found - expected).abs() <= expected * 0.02
    }

    /// Server Monitoring: a streaming monitor has a second connection for round trip times, which
    /// asks once a heartbeat; the stream brings a reply a heartbeat, and is not asked again.
    #[test]
    fn a_streaming_client_has_two_connections_a_member_and_two_hellos_a_heartbeat() {
        let Cost { sockets, steady, .. } = cost(question(MonitoringMode::Stream));
        assert_eq!(sockets, 6);
        assert!(is_near(steady.hellos_per_second, 0.6), "{steady:?}");
        assert!(is_near(steady.requests_per_second, 0.3), "{steady:?}");
    }

    #[test]
    fn a_polling_client_has_one_connection_a_member_and_one_hello_a_heartbeat() {
        let Cost { sockets, start, steady } = cost(question(MonitoringMode::Poll));
        assert_eq!((sockets, start.requests, start.hellos), (3, 3, 3));
        assert!(is_near(steady.hellos_per_second, 0.3), "{steady:?}");
        assert!(is_near(steady.requests_per_second, 0.3), "{steady:?}");
    }

    #[test]
    fn a_heartbeat_twice_as_often_costs_twice_as_much() {
        for mode in [MonitoringMode::Stream, MonitoringMode::Poll] {
            let slow = cost(question(mode)).steady;
            let often = Question { heartbeat: Duration::from_secs(5), ..question(mode) };
            let fast = cost(often).steady;
            assert!(
                is_near(fast.bytes_out_per_second, slow.bytes_out_per_second * 2.0),
                "{fast:?}"
            );
        }
    }

    #[test]
    fn every_deployment_that_can_be_asked_for_is_counted() {
        for (members, is_sharded) in [(1, false), (7, false), (1, true), (20, true)] {
            let asked = Question { members, is_sharded, ..question(MonitoringMode::Stream) };
            assert_eq!(cost(asked).sockets, 2 * members as u64, "{asked:?}");
        }
    }
}
