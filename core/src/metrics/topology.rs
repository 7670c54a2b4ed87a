//! Metrics of the topology: its type, its changes, its primaries.

use std::time::Duration;

use bson::oid::ObjectId;

use super::definition::{self, TYPE};
use super::family::{Families, Labels};
use super::histogram::Histogram;
use crate::config::ServerAddress;
use crate::description::{ServerType, TopologyDescription, TopologyType};
use crate::time::Instant;

/// Metrics of the topology, and its type.
#[derive(Clone, Debug)]
pub(super) struct TopologyMetrics {
    topology_type: TopologyType,
    is_readable: bool,
    is_writable: bool,
    changes: u64,
    primaries: Primaries,
}

/// The primaries of a replica set, as far as they were seen.
#[derive(Clone, Debug)]
struct Primaries {
    /// The last primary, with its election if it names that.
    last: Option<(ServerAddress, Option<ObjectId>)>,
    /// Since when there is none; `None` if there is one, or the topology is no replica set.
    absent_since: Option<Instant>,
    absence: Duration,
    /// True once an event has reported primaries: then only events are counted.
    is_told: bool,
    /// The time of the last view or event.
    seen: Instant,
    /// The time up to which the absence that goes on is counted, where the view shows a primary
    /// already, and the event that says since when is still to come.
    counted_until: Option<Instant>,
    elections: u64,
    failovers: Histogram,
}

impl TopologyMetrics {
    /// Begins with a topology of which nothing is known.
    pub(super) fn new() -> Self {
        let primaries = Primaries {
            last: None,
            absent_since: None,
            absence: Duration::ZERO,
            is_told: false,
            seen: Instant::ZERO,
            counted_until: None,
            elections: 0,
            failovers: Histogram::new(&definition::FAILOVER_DURATION),
        };
        Self {
            topology_type: TopologyType::Unknown,
            is_readable: false,
            is_writable: false,
            changes: 0,
            primaries,
        }
    }

    /// Counts a change of the description.
    pub(super) fn changed(
        &mut self,
        at: Instant,
        previous: &TopologyDescription,
        new: &TopologyDescription,
    ) {
        self.changes += 1;
        self.describe(new);
        self.primaries.changed(at, previous, new);
    }

    /// Takes notice of what the topology is.
    pub(super) fn see(&mut self, now: Instant, view: &TopologyDescription) {
        self.describe(view);
        self.primaries.see(now, view);
    }

    fn describe(&mut self, view: &TopologyDescription) {
        use ServerType::{LoadBalancer, Mongos, RsPrimary, Standalone};
        self.topology_type = view.topology_type;
        self.is_readable = view.servers().has_data_bearing();
        self.is_writable = view.servers().has_any(&[RsPrimary, Standalone, Mongos, LoadBalancer]);
    }

    /// Adds the metrics.
    pub(super) fn collect(&self, now: Instant, out: &mut Families) {
        let none = Labels::new();
        out.counts(&definition::TOPOLOGY_TYPE, &none, TYPE, [(self.topology_type.name(), 1)]);
        out.count(&definition::TOPOLOGY_READABLE, &none, self.is_readable.into());
        out.count(&definition::TOPOLOGY_WRITABLE, &none, self.is_writable.into());
        out.count(&definition::TOPOLOGY_CHANGES, &none, self.changes);
        let primaries = &self.primaries;
        let until = primaries.counted_until.unwrap_or(now);
        let absent = primaries.absent_since.map_or(Duration::ZERO, |since| until - since);
        let absence = primaries.absence.saturating_add(absent).as_secs_f64();
        out.count(&definition::ELECTIONS, &none, primaries.elections);
        out.number(&definition::PRIMARY_ABSENCE, &none, absence);
        out.distribution(&definition::FAILOVER_DURATION, &none, primaries.failovers.distribution());
    }
}

impl Primaries {
    /// Takes notice of the view: before the first event, of the primary that there is; later, of
    /// whether events that report one are still to come.
    fn see(&mut self, now: Instant, view: &TopologyDescription) {
        let is_absent = is_set(view) && view.primary().is_none();
        if !self.is_told {
            self.last = primary(view).or(self.last.take());
            match is_absent {
                true => _ = self.absent_since.get_or_insert(now),
                false => self.end_absence(now),
            }
        } else if self.absent_since.is_some() && !is_absent {
            self.counted_until.get_or_insert(self.seen);
        } else {
            self.seen = self.seen.max(now);
        }
    }

    /// Adds the time without a primary up to now, if there was none.
    fn end_absence(&mut self, now: Instant) {
        let absent = self.absent_since.take().map_or(Duration::ZERO, |since| now - since);
        self.absence = self.absence.saturating_add(absent);
    }

    /// Counts what has become of the primary.
    fn changed(&mut self, at: Instant, previous: &TopologyDescription, new: &TopologyDescription) {
        if !std::mem::replace(&mut self.is_told, true) {
            self.last = primary(previous).or(self.last.take());
            if primary(previous).is_some() {
                self.absent_since = None;
            }
        }
        (self.seen, self.counted_until) = (self.seen.max(at), None);
        let primary = primary(new);
        if is_set(new) && primary.is_none() {
            self.absent_since.get_or_insert(at);
            return;
        }
        let was_absent = self.absent_since.map(|since| at - since);
        self.end_absence(at);
        let Some((address, election)) = primary else { return };
        if let Some((last_address, last_election)) = &self.last {
            if let Some(time) = was_absent {
                self.failovers.observe(time);
            }
            // A primary that was out of sight for a while is not elected by coming back.
            let is_elected = match (last_election, &election) {
                (Some(last), Some(new)) => last != new,
                _ => *last_address != address,
            };
            self.elections += u64::from(is_elected);
        }
        self.last = Some((address, election));
    }
}

/// Returns whether it is a replica set.
const fn is_set(view: &TopologyDescription) -> bool {
    use TopologyType::{ReplicaSetNoPrimary, ReplicaSetWithPrimary};
    matches!(view.topology_type, ReplicaSetNoPrimary | ReplicaSetWithPrimary)
}

/// Returns the primary of a replica set, with its election if it names that.
fn primary(view: &TopologyDescription) -> Option<(ServerAddress, Option<ObjectId>)> {
    let primary = view.primary().filter(|_| is_set(view))?;
    Some((primary.address.clone(), primary.election_id))
}
