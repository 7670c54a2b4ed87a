//! Prose tests of the specifications in virtual time: real clients, members that keep data, and a
//! clock that says how long an operation has waited.

mod backpressure;
mod bulks;
mod change_stream_times;
mod change_streams;
mod cursors;
mod gridfs;
mod idle_connections;
mod retryable_reads;
mod retryable_writes;
mod sessions;
mod timeouts;
mod transactions;

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bson::{Document, RawDocumentBuf, doc};
use sdam::generic::{Client, Collection};
use sdam_cluster::{ClusterOptions, Deployment, MemberId, ServerVersion};
use sdam_core::command::CommandEvent;
use sdam_core::config::{Options, ServerAddress};
use sdam_core::description::ServerType;
use sdam_core::pool::PoolEvent;
use sdam_core::topology::{EventKind, Topics};
use sdam_host::Events;
use sdam_simulation::virtual_time::{Runtime, Simulation};

/// The longest time that is waited for an operation, in virtual time.
const LIMIT: Duration = Duration::from_secs(120);

/// A deployment that keeps data, a client of it, and all that the client reports.
struct Fixture {
    simulation: Simulation,
    client: Client<Runtime>,
    events: Events,
    /// Events of the client, with their times.
    heard: Vec<(Duration, EventKind)>,
}

/// A command that has ended: when, where it was sent, and whether it has succeeded.
#[derive(Clone, Debug, PartialEq)]
struct Ended {
    at: Duration,
    address: ServerAddress,
    succeeded: bool,
}

impl Fixture {
    /// A replica set of three members of MongoDB 8.0, and a client with these options.
    fn new(options: &str) -> Self {
        Self::seeded(options, 7)
    }

    fn seeded(options: &str, seed: u64) -> Self {
        Self::of(ClusterOptions::new("rs", (0..3).map(address)), options, seed)
    }

    /// So many mongos, and a client of them.
    fn sharded(mongos: usize, options: &str, seed: u64) -> Self {
        let cluster = ClusterOptions::new("rs", (0..mongos).map(address));
        Self::of(cluster.with_deployment(Deployment::Sharded), options, seed)
    }

    fn of(cluster: ClusterOptions, options: &str, seed: u64) -> Self {
        let cluster = cluster.with_keeps_data(true).with_version(ServerVersion::V8_0);
        let mut simulation = Simulation::of(cluster, seed).unwrap();
        let separator = if simulation.uri().contains('?') { '&' } else { '?' };
        let uri = format!("{}{separator}appName=prose&{options}", simulation.uri());
        let options = Options::parse(uri.trim_end_matches('&')).unwrap();
        let client = simulation.topology(options).unwrap();
        let events = client.subscribe_to(Topics::COMMANDS.with(Topics::POOLS));
        simulation.run_for(Duration::from_secs(30));
        let mut fixture =
            Self { simulation, client: Client::from(client), events, heard: Vec::new() };
        fixture.hear(&mut |_, _| {});
        fixture.heard.clear();
        fixture
    }

    fn things(&self) -> Collection<Runtime> {
        self.client.database("app").collection("things")
    }

    /// The member that is primary, or the first mongos.
    fn primary(&self) -> MemberId {
        let truth = self.simulation.cluster_state();
        let primary = truth.members.iter().find(|(_, it)| it.server_type == ServerType::RsPrimary);
        primary.map_or(MemberId(0), |(member, _)| *member)
    }

    /// Has commands fail at a member from now on.
    fn fail(&mut self, member: MemberId, mode: impl Into<bson::Bson>, data: Document) {
        let point = doc! { "configureFailPoint": "failCommand", "mode": mode.into(), "data": data };
        let point = RawDocumentBuf::try_from(&point).unwrap();
        let reply = self.simulation.command(member, "admin", &point).unwrap();
        assert_eq!(reply.get_f64("ok").ok(), Some(1.0), "{reply:?}");
    }

    /// Begins an operation, whose result is there when the next one is run to its end.
    fn begin<T: Send + 'static>(
        &mut self,
        operation: impl Future<Output = T> + Send + 'static,
    ) -> Arc<Mutex<Option<T>>> {
        let result = Arc::new(Mutex::new(None));
        let kept = Arc::clone(&result);
        self.simulation.spawn(async move {
            let output = operation.await;
            *kept.lock().unwrap() = Some(output);
        });
        result
    }

    /// As [`begin`](Self::begin); the result has how long the operation took.
    fn begin_timed<T: Send + 'static>(
        &mut self,
        operation: impl Future<Output = T> + Send + 'static,
    ) -> Arc<Mutex<Option<(T, Duration)>>> {
        let time = self.simulation.time();
        let begun = time.elapsed();
        self.begin(async move { (operation.await, time.elapsed() - begun) })
    }

    /// Runs an operation to its end; returns its result, and how long it took.
    fn run<T: Send + 'static>(
        &mut self,
        operation: impl Future<Output = T> + Send + 'static,
    ) -> (T, Duration) {
        self.run_with(operation, |_, _| {})
    }

    /// Runs an operation to its end, and has the fixture react to each event of the client before
    /// anything else happens.
    fn run_with<T: Send + 'static>(
        &mut self,
        operation: impl Future<Output = T> + Send + 'static,
        mut react: impl FnMut(&mut Self, &EventKind),
    ) -> (T, Duration) {
        let begun = self.simulation.time().elapsed();
        let result = self.begin_timed(operation);
        // Steps that are shorter than any way through the network.
        while !self.simulation.run(Duration::ZERO) {
            self.simulation.run_for(Duration::from_micros(10));
            self.hear(&mut react);
            assert!(self.simulation.time().elapsed() - begun < LIMIT, "it comes to no end");
        }
        self.hear(&mut react);
        result.lock().unwrap().take().expect("the operation has ended")
    }

    fn hear(&mut self, react: &mut impl FnMut(&mut Self, &EventKind)) {
        while let Some(event) = self.events.try_next() {
            react(self, &event.kind);
            self.heard.push((self.simulation.time().elapsed(), event.kind));
        }
    }

    /// The times when commands of that name were started.
    fn started(&self, name: &str) -> Vec<Duration> {
        let started = |(at, kind): &(Duration, EventKind)| match kind {
            EventKind::Command { command, event: CommandEvent::CommandStarted { .. }, .. } => {
                (command.command_name == name).then_some(*at)
            }
            _ => None,
        };
        self.heard.iter().filter_map(started).collect()
    }

    /// The `maxTimeMS` of the commands of that name that were started.
    fn limits(&self, name: &str) -> Vec<Option<i64>> {
        let limit = |(_, kind): &(Duration, EventKind)| match kind {
            EventKind::Command { event: CommandEvent::CommandStarted { command }, .. } => {
                command.get(name).unwrap().map(|_| command.get_i64("maxTimeMS").ok())
            }
            _ => None,
        };
        self.heard.iter().filter_map(limit).collect()
    }

    /// The commands of that name that have ended.
    fn ended(&self, name: &str) -> Vec<Ended> {
        let ended = |(at, kind): &(Duration, EventKind)| {
            let EventKind::Command { address, command, event, .. } = kind else { return None };
            let succeeded = match event {
                CommandEvent::CommandSucceeded { .. } => true,
                CommandEvent::CommandFailed { .. } => false,
                _ => return None,
            };
            let ended = Ended { at: *at, address: address.clone(), succeeded };
            (command.command_name == name).then_some(ended)
        };
        self.heard.iter().filter_map(ended).collect()
    }

    /// The names of the events of pools that say how check-outs end and pools are cleared.
    fn check_outs(&self) -> Vec<&'static str> {
        let told = |(_, kind): &(Duration, EventKind)| match kind {
            EventKind::Pool { event, .. } => match event {
                PoolEvent::ConnectionCheckedOut { .. } | PoolEvent::PoolCleared { .. } => {
                    Some(event.name())
                }
                PoolEvent::ConnectionCheckOutFailed { error, .. } => {
                    assert_eq!(error.reason(), "connectionError");
                    Some(event.name())
                }
                _ => None,
            },
            _ => None,
        };
        self.heard.iter().filter_map(told).collect()
    }
}

fn address(index: usize) -> ServerAddress {
    ServerAddress::Tcp { host: format!("m{index}.example").into(), port: 27017 }
}

/// Returns whether a command of that name has failed.
fn has_failed(kind: &EventKind, name: &str) -> bool {
    matches!(kind, EventKind::Command { command, event: CommandEvent::CommandFailed { .. }, .. }
        if command.command_name == name)
}
