//! The metrics of a client, counted where things happen: nothing is queued for that.

use std::sync::OnceLock;
use std::time::Duration;

use sdam_core::config::ServerAddress;
use sdam_core::metrics::{ErrorType, Metrics, Traffic};
use sdam_core::time::Instant;
use sdam_core::topology::Event;

use crate::sync::{Mutex, lock};

/// The metrics of a client, from the moment at which they are first used.
///
/// Topology and pools note their events under their own locks; what happens for every operation is
/// counted under the pool's lock, as [`Traffic`], until they are read. Operations without a server
/// are counted here. This lock comes after both, and calls nothing.
#[derive(Debug, Default)]
pub(crate) struct Meter(OnceLock<Mutex<Metrics>>);

impl Meter {
    /// Counts from now on.
    pub(crate) fn start(&self) -> &Mutex<Metrics> {
        self.0.get_or_init(Mutex::default)
    }

    /// Returns whether anything is counted.
    pub(crate) fn is_on(&self) -> bool {
        self.0.get().is_some()
    }

    /// Takes notice of an event, in the order in which they happen.
    pub(crate) fn note(&self, event: &Event) {
        if let Some(metrics) = self.0.get() {
            lock(metrics).note(event);
        }
    }

    /// Counts an operation that has ended, but not over a connection of a pool that is at hand.
    pub(crate) fn operation_ended(
        &self,
        server: Option<&ServerAddress>,
        name: &str,
        time: Duration,
        error: Option<ErrorType>,
    ) {
        if let Some(metrics) = self.0.get() {
            lock(metrics).operation_ended(server, name, time, error);
        }
    }

    /// Takes notice of the time that a change stream has still to read; `None` if it has ended.
    pub(crate) fn change_stream_lags(&self, now: Instant, stream: u64, lag: Option<Duration>) {
        if let Some(metrics) = self.0.get() {
            lock(metrics).change_stream_lags(now, stream, lag);
        }
    }

    /// Takes notice that the server of a change stream may wait so long for a change.
    pub(crate) fn change_stream_waits(&self, now: Instant, stream: u64, await_time: Duration) {
        if let Some(metrics) = self.0.get() {
            lock(metrics).change_stream_waits(now, stream, await_time);
        }
    }

    /// Adds what a pool has counted.
    pub(crate) fn add(&self, address: &ServerAddress, traffic: Option<Box<Traffic>>) {
        if let (Some(metrics), Some(traffic)) = (self.0.get(), traffic) {
            lock(metrics).add(address, *traffic);
        }
    }
}
