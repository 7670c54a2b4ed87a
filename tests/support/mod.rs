//! The common parts of tests of the client: waiting for what must come, with a generous deadline.

use std::future::Future;
use std::time::Duration;

use sdam_core::description::{ServerType, TopologyDescription};
use sdam_tokio::Topology;

/// The time limit of steps that depend on the load of the machine.
pub(crate) const GENEROUS: Duration = Duration::from_secs(90);

pub(crate) async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(GENEROUS, work).await.expect("done in time")
}

/// Waits for a view that is as it should be.
pub(crate) async fn view(client: &Topology, wanted: impl Fn(&TopologyDescription) -> bool) {
    let mut views = client.watch_topology();
    soon(async {
        while let Some(view) = views.next().await {
            if wanted(&view) {
                return;
            }
        }
        panic!("the client was closed");
    })
    .await;
}

/// Returns whether all three members of the embedded deployment are up.
pub(crate) fn is_whole(view: &TopologyDescription) -> bool {
    let members =
        |wanted| view.servers().iter().filter(|server| server.server_type == wanted).count();
    members(ServerType::RsPrimary) == 1 && members(ServerType::RsSecondary) == 2
}
