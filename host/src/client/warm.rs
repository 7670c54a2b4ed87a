//! Pools that are filled before they are needed: the wait until each has `minPoolSize` connections.
//!
//! The pools establish them by themselves, as soon as their servers are known (Connection
//! Monitoring and Pooling, "Populating the Pool with a Connection").

use sdam_core::description::ServerType;
use sdam_core::time::Instant;
use sdam_core::topology::Topics;

use crate::client::Topology;
use crate::client::driver::DriverTopology;
use crate::machines::runtime::Runtime;
use crate::operations::selected_server::SelectedServer;
use crate::sync::before;

/// Waits until the pools are filled, until a time at most.
pub(crate) async fn filled<R: Runtime>(topology: &Topology<R>, until: Instant) {
    let least = topology.options().pool().min_pool_size as usize;
    if least == 0 || topology.options().is_single_threaded() {
        return;
    }
    let topics = Topics::TOPOLOGY.with(Topics::SERVERS).with(Topics::POOLS);
    let mut events = topology.subscribe_to(topics);
    // There are no members before the topology has begun.
    let is_filled = || {
        let members = topology.members();
        !members.is_empty() && members.iter().all(|member| is_filled(member, least))
    };
    let filled = async { while !is_filled() && events.next().await.is_some() {} };
    before(topology.sleep_until(until), filled).await;
}

/// Returns whether a pool has so many connections, or has no reason to: a server that was not
/// checked yet is waited for, and one that fails is not.
fn is_filled<R: Runtime>(member: &SelectedServer<R>, least: usize) -> bool {
    let server = member.description();
    if !server.server_type.is_data_bearing() {
        return server.server_type != ServerType::Unknown || server.error.is_some();
    }
    let counts = member.counts();
    counts.available + counts.in_use >= least
}
