//! A short storm of all faults on the embedded deployment.

use std::time::{Duration, Instant};

use sdam_cluster::{EmbeddedCluster, EmbeddedOptions};
use sdam_conformance::forwarder::Traffic;
use sdam_core::config::ServerAddress;
use sdam_tokio::Topology;

use crate::Outcome;
use crate::storm::{self, Network, primary};
use crate::support::{is_whole, view};

const LENGTH: Duration = Duration::from_secs(5);

/// Puts a client under load while the primary of an embedded set is killed, steps down, freezes
/// and is cut off, again and again.
pub(crate) async fn storm() -> Outcome {
    let election_timeout = Duration::from_millis(300);
    let options = EmbeddedOptions::default().with_election_timeout(election_timeout);
    let cluster = EmbeddedCluster::start(options).await?;
    let addresses = cluster.addresses().iter().map(|address| address.to_string().parse());
    let network = Network::to(&addresses.collect::<Result<Vec<ServerAddress>, _>>()?)?;
    let quick = "heartbeatFrequencyMS=500&connectTimeoutMS=2000&maxPoolSize=20&minPoolSize=2";
    let options = network.options(&format!("{}&{quick}", cluster.uri()))?;
    storm::storm(options, async |client: &Topology| {
        let start = Instant::now();
        while start.elapsed() < LENGTH {
            round(client, &cluster, &network).await?;
        }
        Ok(())
    })
    .await
    .map(drop)
}

/// One fault of each kind.
async fn round(client: &Topology, cluster: &EmbeddedCluster, network: &Network) -> Outcome {
    let address = |member: usize| cluster.addresses()[member].to_string();
    let old = cluster.elected().await?;
    cluster.kill(old).await?;
    primary(client, |me| me != address(old.0)).await?;
    cluster.restart(old).await?;

    // A member that has not caught up would not be elected.
    view(client, is_whole).await;
    let old = cluster.elected().await?;
    cluster.step_down(old).await?;
    primary(client, |me| me != address(old.0)).await?;

    // The others do not notice, so that it is primary still when it thaws.
    let frozen = cluster.elected().await?;
    cluster.freeze(frozen).await?;
    view(client, |view| view.primary().is_none()).await;
    cluster.thaw(frozen).await?;
    primary(client, |_| true).await?;

    network.cut(client, Traffic::Blackhole).await?;
    Ok(())
}
