//! The rules that say whether a server is suitable ("Rules for server selection").

use std::time::Duration;

use super::criteria::Criteria;
use super::snapshot::Snapshot;
use crate::config::{ReadMode, TagSet};
use crate::description::{ServerDescription, ServerType, TopologyType};

/// The interval of no-ops of an idle primary (Max Staleness, "idleWritePeriodMS").
pub(super) const IDLE_WRITE_PERIOD: Duration = Duration::from_secs(10);

/// The smallest maxStalenessSeconds that makes sense with any deployment.
pub(super) const SMALLEST_MAX_STALENESS: Duration = Duration::from_secs(90);

/// The types of servers that are candidates in one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Any server that is available: a direct connection, mongos, or a load balancer.
    Any,
    Primary,
    Secondaries,
    PrimaryAndSecondaries,
}

impl Class {
    pub(super) const fn has(self, server_type: ServerType) -> bool {
        match (self, server_type) {
            (_, ServerType::Unknown) => false,
            (Self::Any, _)
            | (Self::Primary | Self::PrimaryAndSecondaries, ServerType::RsPrimary)
            | (Self::Secondaries | Self::PrimaryAndSecondaries, ServerType::RsSecondary) => true,
            (Self::Primary | Self::Secondaries | Self::PrimaryAndSecondaries, _) => false,
        }
    }

    /// Returns the classes to try, in order, for a mode with a type of topology.
    pub(super) const fn in_order(topology: TopologyType, mode: ReadMode) -> &'static [Self] {
        match (topology, mode) {
            (TopologyType::Unknown, _) => &[],
            (TopologyType::Single | TopologyType::Sharded | TopologyType::LoadBalanced, _) => {
                &[Self::Any]
            }
            (_, ReadMode::Primary) => &[Self::Primary],
            (_, ReadMode::Secondary) => &[Self::Secondaries],
            (_, ReadMode::PrimaryPreferred) => &[Self::Primary, Self::Secondaries],
            (_, ReadMode::SecondaryPreferred) => &[Self::Secondaries, Self::Primary],
            (_, ReadMode::Nearest) => &[Self::PrimaryAndSecondaries],
        }
    }
}

/// One attempt to find suitable servers: those of a class, with certain tags, perhaps without the
/// deprioritized ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt<'a> {
    pub(super) class: Class,
    pub(super) tags: Option<&'a TagSet>,
    pub(super) avoid_deprioritized: bool,
}

impl<'a> Attempt<'a> {
    /// Returns the first attempt that finds a server; the application's own condition is not asked,
    /// for it is applied to suitable servers ("serverSelector").
    pub(super) fn first_successful(snapshot: &Snapshot, criteria: &'a Criteria) -> Option<Self> {
        let known = snapshot.description();
        let topology = known.topology_type;
        let classes = Class::in_order(topology, criteria.mode_in(known));
        let avoidable = topology != TopologyType::Single && !criteria.deprioritized().is_empty();
        let rounds: &[bool] = if avoidable { &[true, false] } else { &[false] };
        for &avoid_deprioritized in rounds {
            for &class in classes {
                let attempt = Self { class, tags: None, avoid_deprioritized };
                if let Some(found) = attempt.with_tags(snapshot, criteria) {
                    return Some(found);
                }
            }
        }
        None
    }

    /// Tries the tag sets in order, where the class heeds them; the primary by itself does not.
    fn with_tags(self, snapshot: &Snapshot, criteria: &'a Criteria) -> Option<Self> {
        let preference = criteria.preference_in(snapshot.description());
        let tag_sets = preference.map_or(&[][..], |read| read.tag_sets());
        if tag_sets.is_empty() || !self.class.heeds_tags() {
            return self.finds_any(snapshot, criteria).then_some(self);
        }
        let with = |tags: &'a TagSet| Self { tags: Some(tags), ..self };
        tag_sets.iter().map(with).find(|attempt| attempt.finds_any(snapshot, criteria))
    }

    fn finds_any(&self, snapshot: &Snapshot, criteria: &Criteria) -> bool {
        let servers = snapshot.description().servers();
        servers.iter().any(|server| self.admits(snapshot, criteria, server))
    }

    /// Returns whether a server is suitable in this attempt.
    pub(super) fn admits(
        &self,
        snapshot: &Snapshot,
        criteria: &Criteria,
        server: &ServerDescription,
    ) -> bool {
        self.class.has(server.server_type)
            && !(self.avoid_deprioritized && criteria.deprioritized().contains(&server.address))
            && excess_staleness(snapshot, criteria, server).is_none()
            && self.tags.is_none_or(|tags| has_tags(server, tags))
    }
}

impl Class {
    pub(super) const fn heeds_tags(self) -> bool {
        match self {
            Self::Secondaries | Self::PrimaryAndSecondaries => true,
            Self::Any | Self::Primary => false,
        }
    }
}

/// Returns whether a server has all of these tags.
pub(super) fn has_tags(server: &ServerDescription, tags: &TagSet) -> bool {
    tags.iter().all(|(key, value)| server.tags.get(key) == Some(value))
}

/// Returns by how much a secondary is staler than allowed; `None` if it is not, or if there is no
/// maximum.
pub(super) fn excess_staleness(
    snapshot: &Snapshot,
    criteria: &Criteria,
    server: &ServerDescription,
) -> Option<Duration> {
    let most = criteria.preference_in(snapshot.description())?.max_staleness()?;
    if !is_replica_set(snapshot.description().topology_type) {
        return None;
    }
    let staleness = staleness(snapshot, server)?;
    let excess = staleness - i128::try_from(most.as_millis()).unwrap_or(i128::MAX);
    let excess = u64::try_from(excess).ok().filter(|excess| *excess > 0)?;
    Some(Duration::from_millis(excess))
}

/// Estimates how far a secondary is behind, in milliseconds ("Max Staleness"); `None` for other
/// servers, and while the dates that it needs are missing.
fn staleness(snapshot: &Snapshot, server: &ServerDescription) -> Option<i128> {
    if server.server_type != ServerType::RsSecondary {
        return None;
    }
    let written = i128::from(server.last_write_date?.timestamp_millis());
    let updated = |server: &ServerDescription| {
        i128::try_from(server.last_update_time?.since_origin().as_millis()).ok()
    };
    let heartbeat = i128::try_from(snapshot.heartbeat_frequency().as_millis()).ok()?;
    match snapshot.description().primary() {
        Some(primary) => {
            let primary_written = i128::from(primary.last_write_date?.timestamp_millis());
            let own = updated(server)? - written;
            Some(own - (updated(primary)? - primary_written) + heartbeat)
        }
        None => {
            let servers = snapshot.description().servers().iter();
            let newest = servers
                .filter(|server| server.server_type == ServerType::RsSecondary)
                .filter_map(|server| server.last_write_date)
                .max()?;
            Some(i128::from(newest.timestamp_millis()) - written + heartbeat)
        }
    }
}

pub(crate) const fn is_replica_set(topology: TopologyType) -> bool {
    matches!(topology, TopologyType::ReplicaSetNoPrimary | TopologyType::ReplicaSetWithPrimary)
}
