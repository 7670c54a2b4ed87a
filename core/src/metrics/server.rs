//! Metrics of one server.

use std::collections::BTreeMap;
use std::time::Duration;

use super::definition::{self, ADDRESS, ERROR, PORT, TYPE};
use super::family::{Families, Labels};
use super::operations::Operations;
use super::pool::{PoolMetrics, named};
use crate::config::ServerAddress;
use crate::description::{ServerDescription, ServerType};
use crate::failure::Failure;
use crate::time::Instant;

/// Metrics of one server, and its type.
#[derive(Clone, Debug)]
pub(super) struct ServerMetrics {
    /// The time when it left; `None` if it is a member.
    pub(super) left: Option<Instant>,
    pub(super) pool: PoolMetrics,
    pub(super) operations: Operations,
    pub(super) commands: Operations,
    server_type: ServerType,
    /// True if the last check was answered; `None` if none has ended, as of the events.
    answered: Option<bool>,
    round_trip_time: Option<Duration>,
    /// The time when the certificate expires, in seconds since 1970.
    certificate_expiry: Option<u64>,
    succeeded: u64,
    failed: BTreeMap<&'static str, u64>,
    clears: BTreeMap<&'static str, u64>,
}

impl ServerMetrics {
    /// Begins with a server of which nothing is known.
    pub(super) fn new() -> Self {
        Self {
            left: None,
            pool: PoolMetrics::new(),
            operations: Operations::default(),
            commands: Operations::default(),
            server_type: ServerType::Unknown,
            answered: None,
            round_trip_time: None,
            certificate_expiry: None,
            succeeded: 0,
            failed: BTreeMap::new(),
            clears: BTreeMap::new(),
        }
    }

    /// Begins a membership: of what was before, only the counts are kept. Returns when the last one
    /// has ended, if there was one.
    pub(super) fn join(&mut self) -> Option<Instant> {
        let left = self.left.take()?;
        (self.server_type, self.answered) = (ServerType::Unknown, None);
        (self.round_trip_time, self.certificate_expiry) = (None, None);
        Some(left)
    }

    /// Takes notice of what the server is now.
    pub(super) fn see(&mut self, server: &ServerDescription) {
        self.server_type = server.server_type;
        self.round_trip_time = server.round_trip_time;
    }

    /// Takes notice of when the certificate that it has shown expires.
    pub(super) const fn see_certificate(&mut self, expiry: u64) {
        self.certificate_expiry = Some(expiry);
    }

    /// Counts a check that the server has answered.
    pub(super) fn heartbeat_succeeded(&mut self) {
        self.answered = Some(true);
        self.succeeded += 1;
    }

    /// Counts a check that has failed.
    pub(super) fn heartbeat_failed(&mut self, failure: &Failure) {
        self.answered = Some(false);
        *self.failed.entry(failure.cause.name()).or_default() += 1;
    }

    /// Counts a clear of the server's pool.
    pub(super) fn pool_cleared(&mut self, cause: &Failure) {
        *self.clears.entry(cause.cause.name()).or_default() += 1;
    }

    /// Adds the metrics: of a server that has left, only what was counted.
    pub(super) fn collect(&self, address: &ServerAddress, out: &mut Families) {
        let mut labels = vec![(ADDRESS, address.host().to_owned())];
        labels.extend(address.port().map(|port| (PORT, port.to_string())));
        if self.left.is_none() {
            self.collect_now(&labels, out);
        }
        out.count(&definition::HEARTBEATS_SUCCEEDED, &labels, self.succeeded);
        out.counts(&definition::HEARTBEATS_FAILED, &labels, ERROR, named(&self.failed));
        out.counts(&definition::POOL_CLEARS, &labels, ERROR, named(&self.clears));
        self.pool.collect(address, self.left.is_none(), out);
        self.operations.collect(&definition::OPERATION_DURATION, &labels, out);
        self.commands.collect(&definition::COMMAND_DURATION, &labels, out);
    }

    /// Adds what is so now.
    fn collect_now(&self, labels: &Labels, out: &mut Families) {
        out.counts(&definition::SERVER_TYPE, labels, TYPE, [(self.server_type.name(), 1)]);
        // What has a type has answered once, or is behind a load balancer, which is not checked.
        let is_up = self.answered.unwrap_or(self.server_type != ServerType::Unknown);
        out.count(&definition::SERVER_UP, labels, is_up.into());
        if let Some(time) = self.round_trip_time {
            out.number(&definition::ROUND_TRIP_TIME, labels, time.as_secs_f64());
        }
        if let Some(expiry) = self.certificate_expiry {
            out.count(&definition::CERTIFICATE_EXPIRY, labels, expiry);
        }
    }
}
