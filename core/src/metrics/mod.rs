//! Metrics: counts, times and states, from the events of a client.
//!
//! [`Metrics`] is a value that takes notice of [events](crate::topology::Event), and lists at any
//! time what they have come to: families of samples, as plain data, which [`Exposition`] writes as
//! Prometheus reads them.
//!
//! The names under `db.client` are those of OpenTelemetry's semantic conventions; those under
//! `sdam` are our own, and describe the topology, of which the conventions know nothing.
//! [`DEFINITIONS`] lists all of them, with both spellings.
//!
//! How many samples there can be is limited: those of a server that has left are kept for
//! [`RETENTION`], of [`MAX_DEPARTED`] servers at most; [`MAX_OPERATIONS`] names of commands are
//! distinguished, and [`MAX_ERRORS`] errors of each on one server, and all others count as
//! [`OTHER`].
//!
//! Clients of `sdam-host` keep such a value themselves. What happens for every operation they count
//! in place, as [`Traffic`]; so they alone know how long operations took, which events do not
//! contain: `db.client.operation.duration` is from the call to its outcome, retries and waiting
//! included.

mod definition;
mod exposition;
mod family;
mod histogram;
mod operations;
mod pool;
mod server;
#[cfg(test)]
mod tests;
mod topology;
mod traffic;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub use self::definition::{DEFINITIONS, Definition, MetricKind};
pub use self::exposition::{Exposition, MEDIA_TYPE};
use self::family::Families;
pub use self::family::{Family, Labels, Sample, SampleValue};
pub use self::histogram::Distribution;
pub use self::operations::ErrorType;
use self::operations::{Names, Operations};
use self::server::ServerMetrics;
use self::topology::TopologyMetrics;
pub use self::traffic::Traffic;
use crate::config::ServerAddress;
use crate::description::TopologyDescription;
use crate::pool::{Counts, PoolEvent};
use crate::time::Instant;
use crate::topology::{Event, EventKind};

/// The time for which the counts of a server that has left are kept, for collectors that come from
/// time to time.
pub const RETENTION: Duration = Duration::from_secs(600);

/// The maximum number of servers that have left and whose counts are kept; more than that, and the
/// first that left are forgotten.
pub const MAX_DEPARTED: usize = 100;

/// The maximum number of names of commands that are distinguished.
pub const MAX_OPERATIONS: usize = 64;

/// The maximum number of errors that are distinguished for one command on one server.
pub const MAX_ERRORS: usize = 16;

/// The value of a label for all that is not distinguished.
pub const OTHER: &str = "_OTHER";

/// The metrics of one client.
///
/// ```
/// use std::sync::Arc;
/// use sdam_core::config::Options;
/// use sdam_core::machine::Machine;
/// use sdam_core::metrics::{Exposition, Metrics};
/// use sdam_core::time::Time;
/// use sdam_core::topology::{Action, Topology};
///
/// let options = Options::parse("mongodb://a.example/?replicaSet=rs0")?;
/// let mut topology = Topology::new(Arc::new(options), 42);
/// let mut actions = Vec::new();
/// topology.tick(Time::ZERO, &mut actions);
/// let mut metrics = Metrics::new();
/// for action in actions {
///     if let Action::Emit { event } = action {
///         metrics.note(&event);
///     }
/// }
/// let text = Exposition::new(&metrics.snapshot(Time::ZERO.clock)).to_string();
/// assert!(text.contains("\nsdam_topology_writable 0\n"));
/// # Ok::<(), sdam_core::config::OptionsError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Metrics {
    topology: TopologyMetrics,
    servers: BTreeMap<ServerAddress, ServerMetrics>,
    /// The servers that have left, the first of them first.
    departed: BTreeSet<(Instant, ServerAddress)>,
    /// The operations that found no server.
    without_server: Operations,
    names: Names,
    /// The change streams that are open: what each had still to read, and when.
    change_streams: BTreeMap<u64, (Duration, Instant)>,
    dropped: u64,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Begins with nothing.
    pub fn new() -> Self {
        Self {
            topology: TopologyMetrics::new(),
            servers: BTreeMap::new(),
            departed: BTreeSet::new(),
            without_server: Operations::default(),
            names: Names::default(),
            change_streams: BTreeMap::new(),
            dropped: 0,
        }
    }

    /// Takes notice of an event, the next one of its client.
    pub fn note(&mut self, event: &Event) {
        let at = event.at;
        self.forget(at);
        match &event.kind {
            EventKind::TopologyDescriptionChanged { previous, new } => {
                self.topology.changed(at, previous, new);
                self.keep_members(at, new);
            }
            EventKind::ServerOpening { address, .. } => self.join(address),
            EventKind::ServerDescriptionChanged { new, .. } => {
                if let Some(server) = self.member(&new.address) {
                    server.see(new);
                }
            }
            EventKind::ServerClosed { address, .. } => self.leave(at, address),
            EventKind::ServerHeartbeatSucceeded { address, .. } => {
                self.server(address).heartbeat_succeeded();
            }
            EventKind::ServerHeartbeatFailed { address, failure, .. } => {
                self.server(address).heartbeat_failed(failure);
            }
            EventKind::Pool { server: id, address, event } => {
                let server = self.server(address);
                if let PoolEvent::PoolCleared { cause, .. } = event {
                    server.pool_cleared(cause);
                }
                server.pool.note(at, *id, event);
            }
            EventKind::Command { address, command, event, .. } => {
                let name = self.names.label(&command.command_name);
                self.server(address).commands.note(&name, event);
            }
            EventKind::TopologyOpening
            | EventKind::TopologyClosed
            | EventKind::ServerHeartbeatStarted { .. }
            | EventKind::SrvHostRefused { .. }
            | EventKind::SrvRescanFailed { .. }
            | EventKind::Diagnosed { .. } => {}
        }
    }
}

impl Metrics {
    /// Takes notice of the view: what changes without an event, as round trip times do, and what
    /// was so before the first event.
    ///
    /// The view may be newer than events that are still to be noted: what it shows is counted when
    /// they report it.
    pub fn see(&mut self, now: Instant, view: &TopologyDescription) {
        self.topology.see(now, view);
        self.keep_members(now, view);
        for described in view.servers() {
            if let Some(server) = self.member(&described.address) {
                server.see(described);
            }
        }
    }

    /// Takes notice of when the certificate that a member has shown last expires, in seconds since
    /// 1970.
    pub fn see_certificate(&mut self, address: &ServerAddress, expiry: u64) {
        if let Some(server) = self.member(address) {
            server.see_certificate(expiry);
        }
    }

    /// Takes notice of how many connections the pool of a server has, if it says so itself: then
    /// events about that do not count.
    pub fn see_pool(&mut self, address: &ServerAddress, counts: Counts) {
        self.server(address).pool.see(counts);
    }

    /// Adds what was counted where it happened, neither reported as events nor counted before.
    pub fn add(&mut self, address: &ServerAddress, traffic: Traffic) {
        if !self.servers.contains_key(address) {
            self.servers.insert(address.clone(), ServerMetrics::new());
        }
        let server = self.servers.get_mut(address).expect("it is there now");
        server.pool.add(&traffic);
        server.operations.add(traffic.operations, &mut self.names);
        server.commands.add(traffic.commands, &mut self.names);
    }

    /// Counts an operation that has ended after that time, by the server that it went to last, if
    /// it found one.
    pub fn operation_ended(
        &mut self,
        server: Option<&ServerAddress>,
        name: &str,
        time: Duration,
        error: Option<ErrorType>,
    ) {
        let name = self.names.label(name);
        let operations = match server {
            Some(address) => &mut self.server(address).operations,
            None => &mut self.without_server,
        };
        operations.observe(&name, time, error);
    }

    /// Takes notice of the time that a change stream with this number has still to read, from the
    /// change that it has come to up to the last that its server has reported; `None` if it has
    /// ended. Until there is news, it has more to read with each second.
    pub fn change_stream_lags(&mut self, now: Instant, stream: u64, lag: Option<Duration>) {
        match lag {
            Some(lag) => drop(self.change_streams.insert(stream, (lag, now))),
            None => drop(self.change_streams.remove(&stream)),
        }
    }

    /// Takes notice that a change stream asks its server, which may wait so long for a change: what
    /// is left to read is not more meanwhile.
    pub fn change_stream_waits(&mut self, now: Instant, stream: u64, await_time: Duration) {
        if let Some((lag, at)) = self.change_streams.get_mut(&stream) {
            *lag += now - *at;
            *at = now + await_time;
        }
    }

    /// Takes notice of how many events were dropped so far, before they could be
    /// [noted](Self::note).
    ///
    /// If there are more than before, it is not known any more which connections there are: they
    /// count again when they are used or created next.
    pub fn note_dropped(&mut self, dropped: u64) {
        if dropped > self.dropped {
            self.dropped = dropped;
            self.servers.values_mut().for_each(|server| server.pool.lose_track());
        }
    }

    /// Lists all families that have samples, in the order of [`DEFINITIONS`]; `now` is the time of
    /// the client's clock.
    pub fn snapshot(&self, now: Instant) -> Vec<Family> {
        let mut families = Families::new();
        self.topology.collect(now, &mut families);
        let none = Labels::new();
        self.without_server.collect(&definition::OPERATION_DURATION, &none, &mut families);
        for (address, server) in &self.servers {
            if server.left.is_none_or(|left| now - left <= RETENTION) {
                server.collect(address, &mut families);
            }
        }
        let lags = self.change_streams.values().map(|(lag, at)| *lag + (now - *at));
        if let Some(lag) = lags.max() {
            families.number(&definition::CHANGE_STREAM_LAG, &Labels::new(), lag.as_secs_f64());
        }
        families.count(&definition::EVENTS_DROPPED, &Labels::new(), self.dropped);
        families.into_vec()
    }

    /// Returns a server by the address in an event.
    fn server(&mut self, address: &ServerAddress) -> &mut ServerMetrics {
        if !self.servers.contains_key(address) {
            self.servers.insert(address.clone(), ServerMetrics::new());
        }
        self.servers.get_mut(address).expect("it is there now")
    }

    /// Returns a server that has not left.
    fn member(&mut self, address: &ServerAddress) -> Option<&mut ServerMetrics> {
        self.servers.get_mut(address).filter(|server| server.left.is_none())
    }

    fn join(&mut self, address: &ServerAddress) {
        if let Some(left) = self.server(address).join() {
            self.departed.remove(&(left, address.clone()));
        }
    }

    fn leave(&mut self, at: Instant, address: &ServerAddress) {
        if let Some(server) = self.member(address) {
            server.left = Some(at);
            self.departed.insert((at, address.clone()));
            self.forget(at);
        }
    }

    /// Adds the servers that have joined, and removes those that have left, without an event.
    fn keep_members(&mut self, at: Instant, view: &TopologyDescription) {
        let gone = |(address, server): &(&ServerAddress, &ServerMetrics)| {
            server.left.is_none() && view.server(address).is_none()
        };
        let gone: Vec<_> =
            self.servers.iter().filter(gone).map(|(address, _)| address.clone()).collect();
        gone.iter().for_each(|address| self.leave(at, address));
        view.servers().iter().for_each(|server| self.join(&server.address));
    }

    /// Forgets who has left long ago, or with too many others.
    fn forget(&mut self, now: Instant) {
        while let Some((left, _)) = self.departed.first()
            && (now - *left > RETENTION || self.departed.len() > MAX_DEPARTED)
        {
            let (_, address) = self.departed.pop_first().expect("there is one");
            self.servers.remove(&address);
        }
    }
}
