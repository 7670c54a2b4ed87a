//! Metrics of the pools that lead to one server.

use std::collections::BTreeMap;

use super::definition::{self, ERROR, POOL, REASON, STATE};
use super::family::Families;
use super::histogram::Histogram;
use super::traffic::Traffic;
use crate::config::{PoolOptions, ServerAddress};
use crate::id::{ConnectionId, ServerId};
use crate::pool::{CheckOutError, Counts, PoolEvent};
use crate::time::Instant;

/// Metrics of the pools of one server, one after the other.
#[derive(Clone, Debug)]
pub(super) struct PoolMetrics {
    /// The state of each connection; pools are distinguished by the membership of their server.
    connections: BTreeMap<(ServerId, ConnectionId), ConnectionState>,
    /// The connections, as the pool has counted them itself; they are preferred.
    counts: Option<Counts>,
    options: Option<PoolOptions>,
    closed: BTreeMap<&'static str, u64>,
    failed: BTreeMap<&'static str, u64>,
    timeouts: u64,
    create_time: Histogram,
    wait_time: Histogram,
    use_time: Histogram,
}

/// The state of a connection.
#[derive(Clone, Copy, Debug)]
enum ConnectionState {
    /// It is being established.
    Pending,
    /// It can be checked out.
    Idle,
    /// It was checked out at that time.
    Used(Instant),
}

impl PoolMetrics {
    /// Begins without a pool.
    pub(super) fn new() -> Self {
        Self {
            connections: BTreeMap::new(),
            counts: None,
            options: None,
            closed: BTreeMap::new(),
            failed: BTreeMap::new(),
            timeouts: 0,
            create_time: Histogram::new(&definition::CREATE_TIME),
            wait_time: Histogram::new(&definition::WAIT_TIME),
            use_time: Histogram::new(&definition::USE_TIME),
        }
    }

    /// Takes notice of what has happened to a pool.
    pub(super) fn note(&mut self, at: Instant, server: ServerId, event: &PoolEvent) {
        let connections = &mut self.connections;
        match event {
            PoolEvent::PoolCreated { options } => self.options = Some(options.clone()),
            PoolEvent::PoolReady
            | PoolEvent::PoolCleared { .. }
            | PoolEvent::PoolClosed
            // No event reports operations that have stopped to wait.
            | PoolEvent::ConnectionCheckOutStarted => {}
            PoolEvent::ConnectionCreated { connection } => {
                connections.insert((server, *connection), ConnectionState::Pending);
            }
            PoolEvent::ConnectionReady { connection, duration, .. } => {
                connections.insert((server, *connection), ConnectionState::Idle);
                self.create_time.observe(*duration);
            }
            PoolEvent::ConnectionClosed { connection, reason, .. } => {
                *self.closed.entry(reason.name()).or_default() += 1;
                let removed = connections.remove(&(server, *connection));
                if let Some(ConnectionState::Used(since)) = removed {
                    self.use_time.observe(at - since);
                }
            }
            PoolEvent::ConnectionCheckOutFailed { error, .. } => {
                *self.failed.entry(error.name()).or_default() += 1;
                self.timeouts += u64::from(matches!(**error, CheckOutError::Timeout { .. }));
            }
            PoolEvent::ConnectionCheckedOut { connection, duration } => {
                connections.insert((server, *connection), ConnectionState::Used(at));
                self.wait_time.observe(*duration);
            }
            PoolEvent::ConnectionCheckedIn { connection } => {
                let was = connections.insert((server, *connection), ConnectionState::Idle);
                if let Some(ConnectionState::Used(since)) = was {
                    self.use_time.observe(at - since);
                }
            }
        }
    }

    /// Takes notice of what the pool itself has counted.
    pub(super) const fn see(&mut self, counts: Counts) {
        self.counts = Some(counts);
    }

    /// Adds what was counted in place.
    pub(super) fn add(&mut self, traffic: &Traffic) {
        self.wait_time.add(&traffic.wait_time);
        self.use_time.add(&traffic.use_time);
    }

    /// Returns how many connections are kept.
    #[cfg(test)]
    pub(super) fn tracked(&self) -> usize {
        self.connections.len()
    }

    /// Forgets what is connected, as events about it are missing.
    pub(super) fn lose_track(&mut self) {
        self.connections.clear();
    }

    /// Adds the metrics; nothing if no event of a pool has come.
    pub(super) fn collect(&self, address: &ServerAddress, is_member: bool, out: &mut Families) {
        let has_begun = self.options.is_some()
            || self.counts.is_some()
            || !self.connections.is_empty()
            || self.wait_time.count() > 0;
        if !has_begun {
            return;
        }
        let labels = vec![(POOL, address.to_string())];
        if is_member {
            self.collect_now(&labels, out);
        }
        out.count(&definition::TIMEOUTS, &labels, self.timeouts);
        for (definition, times) in [
            (&definition::CREATE_TIME, &self.create_time),
            (&definition::WAIT_TIME, &self.wait_time),
            (&definition::USE_TIME, &self.use_time),
        ] {
            out.distribution(definition, &labels, times.distribution());
        }
        out.counts(&definition::CONNECTIONS_CLOSED, &labels, REASON, named(&self.closed));
        out.counts(&definition::CHECK_OUTS_FAILED, &labels, ERROR, named(&self.failed));
    }

    /// Adds what is so now.
    fn collect_now(&self, labels: &super::Labels, out: &mut Families) {
        let counts = self.counts.unwrap_or_else(|| self.reported_counts());
        let states =
            [("pending", counts.pending), ("idle", counts.available), ("used", counts.in_use)];
        let states = states.map(|(state, count)| (state, count as u64));
        out.counts(&definition::CONNECTION_COUNT, labels, STATE, states);
        if let Some(counts) = self.counts {
            out.count(&definition::PENDING_REQUESTS, labels, counts.waiting as u64);
        }
        let Some(options) = &self.options else { return };
        out.count(&definition::CONNECTION_IDLE_MIN, labels, options.min_pool_size.into());
        // Zero means no limit.
        if options.max_pool_size > 0 {
            let most = options.max_pool_size.into();
            out.count(&definition::CONNECTION_IDLE_MAX, labels, most);
            out.count(&definition::CONNECTION_MAX, labels, most);
        }
    }
}

impl PoolMetrics {
    /// Returns the connections by state, as of the events.
    fn reported_counts(&self) -> Counts {
        let mut counts = Counts::default();
        for state in self.connections.values() {
            *match state {
                ConnectionState::Pending => &mut counts.pending,
                ConnectionState::Idle => &mut counts.available,
                ConnectionState::Used(_) => &mut counts.in_use,
            } += 1;
        }
        counts
    }
}

/// Returns the names of counters with their counts.
pub(super) fn named<'a>(
    counts: &'a BTreeMap<&'static str, u64>,
) -> impl Iterator<Item = (&'a str, u64)> {
    counts.iter().map(|(name, count)| (*name, *count))
}
