//! The rules of Server Selection and of Max Staleness, one after the other and with nothing worked
//! out beforehand.

use std::collections::BTreeSet;
use std::time::Duration;

use sdam_core::config::{ReadMode, TagSet};
use sdam_core::description::{ServerDescription, ServerType, TopologyDescription, TopologyType};

use super::deployment::HEARTBEAT;

/// The criteria of an operation.
#[derive(Debug, Default)]
pub(super) struct Needs {
    /// `None` for a write.
    pub(super) mode: Option<ReadMode>,
    pub(super) tag_sets: Vec<TagSet>,
    pub(super) max_staleness: Option<Duration>,
    /// The hosts that are deprioritized.
    pub(super) avoided: BTreeSet<String>,
    /// The hosts that the application's predicate refuses.
    pub(super) refused: BTreeSet<String>,
}

/// The expected result of a selection.
#[derive(Debug)]
pub(super) enum Expected {
    Incompatible,
    TooFresh,
    Servers { suitable: Vec<usize>, window: Vec<usize> },
}

/// localThresholdMS, unless options say otherwise.
const LOCAL_THRESHOLD: Duration = Duration::from_millis(15);

type Indexed<'a> = (usize, &'a ServerDescription);

/// Applies the rules.
pub(super) fn judge(description: &TopologyDescription, needs: &Needs) -> Expected {
    if description.incompatibility.is_some() {
        return Expected::Incompatible;
    }
    let least = Duration::from_secs(90).max(HEARTBEAT + Duration::from_secs(10));
    if is_replica_set(description) && needs.max_staleness.is_some_and(|most| most < least) {
        return Expected::TooFresh;
    }
    let servers = description.servers().iter().map(|server| &**server).enumerate();
    let known: Vec<Indexed<'_>> =
        servers.filter(|(_, server)| server.server_type != ServerType::Unknown).collect();
    // Servers to be avoided are left out at first, and count again if nothing else is suitable.
    let preferred = known.iter().copied();
    let preferred: Vec<_> =
        preferred.filter(|(_, server)| !needs.avoided.contains(server.address.host())).collect();
    let suitable = match description.topology_type {
        TopologyType::Unknown => Vec::new(),
        TopologyType::Single => known,
        _ => {
            let first = eligible(description, &preferred, needs);
            if first.is_empty() { eligible(description, &known, needs) } else { first }
        }
    };
    // The application's condition is applied to what is suitable.
    let approved = suitable.into_iter();
    let approved: Vec<_> =
        approved.filter(|(_, server)| !needs.refused.contains(server.address.host())).collect();
    let nearest = approved.iter().filter_map(|(_, server)| server.round_trip_time).min();
    let in_window = |server: &ServerDescription| match (server.round_trip_time, nearest) {
        (Some(time), Some(nearest)) => time <= nearest + LOCAL_THRESHOLD,
        _ => true,
    };
    Expected::Servers {
        suitable: approved.iter().map(|(index, _)| *index).collect(),
        window: approved.iter().filter(|(_, it)| in_window(it)).map(|(index, _)| *index).collect(),
    }
}

/// Those of the given servers that suit by type, staleness and tags.
fn eligible<'a>(
    description: &TopologyDescription,
    servers: &[Indexed<'a>],
    needs: &Needs,
) -> Vec<Indexed<'a>> {
    if !is_replica_set(description) {
        return servers.to_vec();
    }
    let of_type = |server_type: ServerType| -> Vec<Indexed<'a>> {
        servers.iter().copied().filter(|(_, it)| it.server_type == server_type).collect()
    };
    let primary = of_type(ServerType::RsPrimary);
    let secondaries = || tagged(fresh(description, of_type(ServerType::RsSecondary), needs), needs);
    match needs.mode {
        None | Some(ReadMode::Primary) => primary,
        Some(ReadMode::PrimaryPreferred) if !primary.is_empty() => primary,
        Some(ReadMode::PrimaryPreferred | ReadMode::Secondary) => secondaries(),
        Some(ReadMode::SecondaryPreferred) => {
            let secondaries = secondaries();
            if secondaries.is_empty() { primary } else { secondaries }
        }
        Some(ReadMode::Nearest) => {
            let mut both = fresh(description, of_type(ServerType::RsSecondary), needs);
            both.extend(primary);
            both.sort_by_key(|(index, _)| *index);
            tagged(both, needs)
        }
    }
}

/// The first tag set that matches any server decides.
fn tagged<'a>(servers: Vec<Indexed<'a>>, needs: &Needs) -> Vec<Indexed<'a>> {
    if needs.tag_sets.is_empty() {
        return servers;
    }
    for tags in &needs.tag_sets {
        let has_all = |server: &ServerDescription| {
            tags.iter().all(|(name, value)| server.tags.get(name) == Some(value))
        };
        let matching = servers.iter().copied().filter(|(_, server)| has_all(server));
        let matching: Vec<_> = matching.collect();
        if !matching.is_empty() {
            return matching;
        }
    }
    Vec::new()
}

/// Max Staleness, "Estimating staleness" with and without a primary; a secondary of which the dates
/// are not known counts as fresh.
fn fresh<'a>(
    description: &TopologyDescription,
    secondaries: Vec<Indexed<'a>>,
    needs: &Needs,
) -> Vec<Indexed<'a>> {
    let Some(most) = needs.max_staleness else { return secondaries };
    let most = most.as_millis() as i64;
    let all = || description.servers().iter().map(|server| &**server);
    let primary = all().find(|server| server.server_type == ServerType::RsPrimary);
    let of_type = all().filter(|server| server.server_type == ServerType::RsSecondary);
    let newest = of_type.filter_map(written).max();
    let staleness = |server: &ServerDescription| {
        let heartbeat = HEARTBEAT.as_millis() as i64;
        match primary {
            Some(primary) => {
                let lag =
                    (updated(server)? - written(server)?) - (updated(primary)? - written(primary)?);
                Some(lag + heartbeat)
            }
            None => Some(newest? - written(server)? + heartbeat),
        }
    };
    let is_fresh = |server| staleness(server).is_none_or(|staleness| staleness <= most);
    secondaries.into_iter().filter(|(_, server)| is_fresh(server)).collect()
}

fn written(server: &ServerDescription) -> Option<i64> {
    server.last_write_date.map(bson::DateTime::timestamp_millis)
}

fn updated(server: &ServerDescription) -> Option<i64> {
    server.last_update_time.map(|at| at.since_origin().as_millis() as i64)
}

fn is_replica_set(description: &TopologyDescription) -> bool {
    let sets = [TopologyType::ReplicaSetNoPrimary, TopologyType::ReplicaSetWithPrimary];
    sets.contains(&description.topology_type)
}
