//! The deployments that simulations draw: members of every kind, their versions, and by which
//! addresses clients reach them.

use std::sync::Arc;
use std::time::Duration;

use sdam_core::config::ServerAddress;

use super::logins::user;
use super::random::Random;
use sdam_cluster::{ClusterOptions, Deployment, MemberId, MemberOptions, ServerVersion};

/// The name of the replica set.
pub(super) const SET_NAME: &str = "rs";

/// The horizon that clients outside belong to.
const OUTSIDE: &str = "outside";

/// The number of servers that may join a replica set in the course of a simulation.
const SPARES: usize = 2;

/// Draws a deployment.
pub(super) fn draw(random: &mut Random) -> ClusterOptions {
    let deployment = match random.below(100) {
        0..70 => Deployment::ReplicaSet,
        70..90 => Deployment::Sharded,
        _ => Deployment::LoadBalanced,
    };
    let count = random.pick(&[1, 2, 3, 3, 3, 3, 4, 5]);
    let horizons = deployment == Deployment::ReplicaSet && random.percent(25);
    let alike = deployment != Deployment::ReplicaSet || random.percent(40);
    let members = (0..count).map(|index| match alike || index == 0 {
        true => member(index, horizons),
        false => draw_member(index, horizons, random),
    });
    let members = members.collect();
    let mut version = random.pick(&ServerVersion::ALL);
    if deployment == Deployment::LoadBalanced {
        // The first version that knows what a load balancer is.
        version = version.max(ServerVersion::V5_0);
    }
    let versions = match random.percent(30) {
        true => draw_versions(version, count, random),
        false => Default::default(),
    };
    ClusterOptions::new(SET_NAME, [])
        .with_deployment(deployment)
        .with_members(members)
        .with_version(version)
        .with_versions(versions)
        .with_users(if random.percent(15) { vec![user("secret")] } else { Vec::new() })
        .with_seed(random.bits())
        .with_election_timeout(random.pick(&[500, 2_000, 10_000].map(Duration::from_millis)))
}

/// The percentage of deployments whose members keep data.
const DOCUMENTS_PERCENT: u64 = 25;

/// Draws whether members keep data, and how late secondaries have it.
pub(super) fn with_documents(cluster: ClusterOptions, random: &mut Random) -> ClusterOptions {
    let lag = random.pick(&[0, 0, 50, 1_000].map(Duration::from_millis));
    match random.percent(DOCUMENTS_PERCENT) {
        true => cluster.with_keeps_data(true).with_replication_lag(lag),
        false => cluster,
    }
}

/// Draws who has the version after the others', as in the middle of an upgrade.
fn draw_versions(
    version: ServerVersion,
    count: usize,
    random: &mut Random,
) -> std::collections::BTreeMap<MemberId, ServerVersion> {
    let upgraded = (0..count).filter(|_| random.percent(50));
    upgraded.map(|member| (MemberId(member), version.neighbour(true))).collect()
}

/// Draws a member that may be special; the first one never is, so that somebody can be primary.
fn draw_member(index: usize, horizons: bool, random: &mut Random) -> MemberOptions {
    let plain = member(index, horizons);
    match random.below(100) {
        0..45 => plain,
        45..65 => plain.with_priority(random.pick(&[2, 3, 10])),
        65..77 => plain.with_priority(0),
        77..88 => plain.with_priority(0).with_hidden(true),
        _ => plain.with_arbiter(true),
    }
}

/// Returns what a member is like that is not special.
pub(super) fn member(index: usize, horizons: bool) -> MemberOptions {
    let outside = horizons.then(|| (OUTSIDE.to_owned(), outside_address(index)));
    MemberOptions::new(address(index)).with_horizons(outside.into_iter().collect())
}

/// The address of a member.
pub(super) fn address(member: usize) -> ServerAddress {
    ServerAddress::Tcp { host: format!("m{member}.sim.example").into(), port: 27017 }
}

/// The address of a load balancer.
pub(super) fn load_balancer() -> ServerAddress {
    ServerAddress::Tcp { host: "balancer.sim.example".into(), port: 27017 }
}

/// The address of a member for clients outside.
fn outside_address(member: usize) -> ServerAddress {
    ServerAddress::Tcp { host: format!("m{member}.outside.example").into(), port: 27017 }
}

/// Returns whether members have other addresses for clients outside.
pub(super) fn has_horizons(cluster: &ClusterOptions) -> bool {
    !cluster.members[0].horizons.is_empty()
}

/// Returns how many servers there may ever be.
pub(super) fn capacity(cluster: &ClusterOptions) -> usize {
    match cluster.deployment {
        Deployment::ReplicaSet => cluster.members.len() + SPARES,
        _ => cluster.members.len(),
    }
}

/// Returns the addresses of all servers that there may ever be, as clients there know them.
pub(super) fn addresses(cluster: &ClusterOptions, outside: bool) -> Arc<[ServerAddress]> {
    (0..capacity(cluster)).map(if outside { outside_address } else { address }).collect()
}
