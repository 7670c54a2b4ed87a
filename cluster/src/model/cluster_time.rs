//! The logical clock that members and mongos gossip: `$clusterTime` and `operationTime`.

use bson::raw::cstr;
use bson::spec::BinarySubtype;
use bson::{Binary, RawDocumentBuf, Timestamp, rawdoc};
use sdam_core::bson;
use sdam_core::time::Instant;

use super::Cluster;
use crate::options::Deployment;

/// The length of a signature; it consists of zeros, as on servers without keys.
const HASH_LEN: usize = 20;

/// The time of the last operation: it grows with each second and with each write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClusterClock {
    seconds: u32,
    increment: u32,
}

impl ClusterClock {
    pub(crate) const fn timestamp(self) -> Timestamp {
        Timestamp { time: self.seconds, increment: self.increment }
    }
}

impl Cluster {
    /// Returns the wall-clock time in milliseconds since the Unix epoch.
    pub(crate) fn wall_millis(&self, at: Instant) -> i64 {
        let millis = i64::try_from(at.since_origin().as_millis()).unwrap_or(i64::MAX);
        self.options.wall_epoch_millis.saturating_add(millis)
    }

    /// Returns the logical time of what happened then.
    pub(crate) fn timestamp(&self, at: Instant) -> Timestamp {
        let seconds = self.wall_millis(at).div_euclid(1000).max(0);
        Timestamp { time: u32::try_from(seconds).unwrap_or(u32::MAX), increment: 1 }
    }

    /// Returns the time of the last of so many writes, which no others have.
    pub(crate) fn next_timestamp(&mut self, now: Instant, writes: usize) -> Timestamp {
        self.reach_present(now);
        (0..writes).for_each(|_| self.count_write());
        self.clock.timestamp()
    }

    /// Has the clock grow to at least the present second.
    fn reach_present(&mut self, now: Instant) {
        let seconds = self.wall_millis(now).div_euclid(1000).max(0);
        let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
        if self.clock.seconds < seconds {
            self.clock = ClusterClock { seconds, increment: 1 };
        }
    }

    /// Counts a write.
    pub(crate) const fn count_write(&mut self) {
        self.clock.increment = self.clock.increment.saturating_add(1);
    }

    /// Adds the times to a reply, which makes it grow to at least the present second. A server of
    /// its own has none.
    pub(super) fn append_times(&mut self, now: Instant, reply: &mut RawDocumentBuf) {
        if self.options.deployment == Deployment::Standalone {
            return;
        }
        self.reach_present(now);
        let timestamp = self.clock.timestamp();
        let hash = Binary { subtype: BinarySubtype::Generic, bytes: vec![0; HASH_LEN] };
        let signature = rawdoc! { "hash": hash, "keyId": 0_i64 };
        let cluster_time = rawdoc! { "clusterTime": timestamp, "signature": signature };
        reply.append(cstr!("$clusterTime"), cluster_time);
        reply.append(cstr!("operationTime"), timestamp);
    }
}
