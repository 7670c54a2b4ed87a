//! The embedded deployment, on threads of its own, and what to wait for.

use std::time::Duration;

use sdam_blocking::Topology;
use sdam_cluster::{EmbeddedCluster, EmbeddedOptions};
use sdam_core::config::Options;
use sdam_core::description::{ServerType, TopologyDescription};

/// The time to wait for what must come.
pub(crate) const SOON: Duration = Duration::from_secs(90);

/// The embedded deployment, on threads of its own.
pub(crate) struct Deployment {
    pub(crate) cluster: EmbeddedCluster,
    pub(crate) runtime: tokio::runtime::Runtime,
}

impl Deployment {
    pub(crate) fn start(options: EmbeddedOptions) -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        let cluster = runtime.block_on(EmbeddedCluster::start(options));
        Self { cluster: cluster.unwrap(), runtime }
    }

    /// Returns a client whose connection string ends with `options`.
    pub(crate) fn client(&self, options: &str) -> Topology {
        Topology::new(Options::parse(&format!("{}{options}", self.cluster.uri())).unwrap()).unwrap()
    }

    /// Stops the primary from answering.
    pub(crate) fn freeze_primary(&self) {
        let primary = self.cluster.primary().unwrap();
        self.runtime.block_on(self.cluster.freeze(primary)).unwrap();
    }
}

/// Waits for a view.
pub(crate) fn view(client: &Topology, wanted: impl Fn(&TopologyDescription) -> bool) {
    let (mut views, end) = (client.watch_topology(), client.now() + SOON);
    while !wanted(&views.next_until(end).expect("it comes in time")) {}
}

/// Returns whether there are a primary and two secondaries.
pub(crate) fn is_whole(view: &TopologyDescription) -> bool {
    let count = |of| view.servers().iter().filter(|server| server.server_type == of).count();
    (count(ServerType::RsPrimary), count(ServerType::RsSecondary)) == (1, 2)
}
