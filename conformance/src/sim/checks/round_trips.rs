//! Round trip times: known of every server that is known, never shorter than the network lets them
//! be, and told apart by those who read from the nearest.

use std::sync::Arc;
use std::time::Duration;

use sdam_core::address::ServerAddress;
use sdam_core::description::ServerType;
use sdam_core::selection::Snapshot;

use super::{Finding, ensure};

/// What averages of whole nanoseconds lose.
const ROUNDING: Duration = Duration::from_micros(1);

/// How far away the members are, and what that makes of round trip times.
#[derive(Debug)]
pub(super) struct RoundTrips {
    addresses: Arc<[ServerAddress]>,
    /// The shortest time one way to each of them.
    latencies: Vec<Duration>,
    threshold: Duration,
    /// Whether nothing is ever wrong with a path, so that a round trip takes twice as long as the
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
