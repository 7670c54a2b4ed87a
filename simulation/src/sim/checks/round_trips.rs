//! Round trip times: known of every server that is known, never shorter than the network lets them
//! be, and distinguished by clients that read from the nearest.

use std::sync::Arc;
use std::time::Duration;

use sdam_core::config::ServerAddress;
use sdam_core::description::ServerType;
use sdam_core::selection::Snapshot;

use super::{Finding, ensure};

/// The rounding error of averages of whole nanoseconds.
const ROUNDING: Duration = Duration::from_micros(1);

/// The distances of the members, and the round trip times that follow.
#[derive(Debug)]
pub(super) struct RoundTrips {
    addresses: Arc<[ServerAddress]>,
    /// The shortest time one way to each of them.
    latencies: Vec<Duration>,
    threshold: Duration,
    /// True if nothing is ever wrong with a path, so that a round trip takes twice as long as the
    /// shortest one at most.
    steady: bool,
}

impl RoundTrips {
    pub(super) const fn new(
        addresses: Arc<[ServerAddress]>,
        latencies: Vec<Duration>,
        threshold: Duration,
        steady: bool,
    ) -> Self {
        Self { addresses, latencies, threshold, steady }
    }

    fn shortest(&self, address: &ServerAddress) -> Option<Duration> {
        let member = self.addresses.iter().position(|known| known == address)?;
        Some(self.latencies[member] * 2)
    }

    /// Round trips may seem to take no time from now on.
    pub(super) fn disbelieve(&mut self) {
        self.latencies.fill(Duration::ZERO);
    }

    pub(super) fn published(&self, snapshot: &Snapshot) -> Finding {
        let servers = snapshot.description().servers().iter();
        for server in servers.filter(|server| server.server_type != ServerType::Unknown) {
            let time = server.round_trip_time;
            let Some(shortest) = self.shortest(&server.address) else {
                continue;
            };
            let holds = time.is_some_and(|time| time + ROUNDING >= shortest);
            ensure(holds, "round trips take as long as the network does", || {
                format!("{time:?} to {}, which is {shortest:?} away", server.address)
            })?;
        }
        Ok(())
    }

    /// Returns whether there is a server to choose from that is not among the nearest.
    pub(super) fn tells_apart(&self, snapshot: &Snapshot) -> bool {
        let servers = snapshot.description().servers().iter();
        let known = servers.filter(|server| server.server_type.is_data_bearing());
        let distances = known.filter_map(|server| self.shortest(&server.address));
        let (near, far) = distances
            .fold((Duration::MAX, Duration::ZERO), |(near, far), it| (near.min(it), far.max(it)));
        self.steady && far > near.saturating_mul(2).saturating_add(self.threshold)
    }

    /// The server at `index` is about to be read from, as one of the nearest.
    pub(super) fn chosen(&self, snapshot: &Snapshot, index: usize) -> Finding {
        let servers = snapshot.description().servers();
        let known = servers.iter().filter(|server| server.server_type.is_data_bearing());
        let nearest = known.filter_map(|server| self.shortest(&server.address)).min();
        let (Some(nearest), Some(chosen)) = (nearest, self.shortest(&servers[index].address))
        else {
            return Ok(());
        };
        let near = !self.steady || chosen <= nearest * 2 + self.threshold;
        ensure(near, "the nearest is near", || {
            format!("{} is {chosen:?} away, and another one {nearest:?}", servers[index].address)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Arc, Duration, RoundTrips, Snapshot};
    use crate::sim::quiet::{PLAIN, quiet_world};

    /// Returns what is checked of a view of three members, which are so far away.
    fn judged(millis: [u64; 3]) -> (RoundTrips, Arc<Snapshot>) {
        let world = quiet_world(PLAIN);
        let client = &world.clients[0];
        let latencies = millis.map(Duration::from_millis).to_vec();
        let addresses = client.plan.addresses[..3].into();
        let threshold = Duration::from_millis(15);
        (RoundTrips::new(addresses, latencies, threshold, true), client.snapshot())
    }

    #[test]
    fn no_reply_is_faster_than_the_network() {
        let (round_trips, view) = judged([0, 0, 0]);
        assert!(round_trips.published(&view).is_ok());
        let (round_trips, view) = judged([0, 500, 0]);
        assert!(round_trips.published(&view).is_err(), "the one at half a second was faster");
    }

    /// Server Selection, "Latency window": who is farther away than the nearest by more than
    /// localThresholdMS, as it may be taken for.
    #[test]
    fn whoever_wants_one_of_the_nearest_gets_none_that_is_far_away() {
        let (round_trips, view) = judged([10, 15, 50]);
        let choose = |member: usize| {
            let address = &round_trips.addresses[member];
            let index = view.description().servers().position(address).unwrap();
            round_trips.chosen(&view, index).is_ok()
        };
        assert_eq!([0, 1, 2].map(choose), [true, true, false]);
        assert!(round_trips.tells_apart(&view));
    }
}
