//! Clients that are given a seed choose the same servers again, under every runtime.

use std::time::Duration;

use sdam::core::config::{Options, ReadMode, ReadPreference, ServerAddress};
use sdam::core::description::{ServerType, TopologyDescription};
use sdam::core::selection::Criteria;
use sdam::host::Runtime;
use sdam_cluster::{EmbeddedCluster, EmbeddedOptions};

/// The number of servers that are selected, one of three each time.
const SELECTIONS: usize = 64;

fn nearest() -> Criteria {
    Criteria::read(ReadPreference::new(ReadMode::Nearest))
}

/// Returns whether any of three members can be selected.
fn knows_all(view: &TopologyDescription) -> bool {
    let data_bearing =
        |it: &ServerType| matches!(it, ServerType::RsPrimary | ServerType::RsSecondary);
    view.servers().iter().filter(|it| data_bearing(&it.server_type)).count() == 3
}

/// Returns which servers a client chooses that knows all of them.
async fn chosen<R: Runtime>(client: &sdam::host::Topology<R>) -> Vec<ServerAddress> {
    let mut views = client.watch_topology();
    while !knows_all(&views.next().await.expect("the client is open")) {}
    let mut addresses = Vec::new();
    for _ in 0..SELECTIONS {
        let selected = client.select(nearest()).await.unwrap();
        addresses.push(selected.address().clone());
    }
    addresses
}

/// As [`chosen`], of a client that blocks.
fn chosen_by_thread(options: Options, seed: u64) -> Vec<ServerAddress> {
    let client = sdam::blocking::Topology::builder(options).seed(seed).build().unwrap();
    let mut views = client.watch_topology();
    while !knows_all(&views.next().expect("the client is open")) {}
    let select = |_| client.select(nearest()).unwrap().address().clone();
    let addresses = (0..SELECTIONS).map(select).collect();
    client.close(Duration::from_secs(60));
    addresses
}

/// Returns which servers clients of a seed choose: under tokio, smol, and no runtime.
async fn choices(options: &Options, seed: u64) -> [Vec<ServerAddress>; 3] {
    let of_tokio = sdam::tokio::Topology::builder(options.clone()).seed(seed).build().unwrap();
    let of_smol = sdam::smol::Topology::builder(options.clone()).seed(seed).build();
    let of_smol = of_smol.unwrap();
    let options = options.clone();
    let of_thread = tokio::task::spawn_blocking(move || chosen_by_thread(options, seed));
    [chosen(&of_tokio).await, chosen(&of_smol).await, of_thread.await.unwrap()]
}

#[tokio::test]
async fn a_client_of_the_same_seed_chooses_the_same_servers_under_each_runtime() {
    let cluster = EmbeddedCluster::start(EmbeddedOptions::default()).await.unwrap();
    // However long round trips happen to take, all three are near.
    let options = Options::parse(&format!("{}&localThresholdMS=60000", cluster.uri())).unwrap();
    let [first, smol, thread] = choices(&options, 7).await;
    assert_eq!(first, smol);
    assert_eq!(first, thread);
    assert_eq!(first, choices(&options, 7).await[0]);
    assert_ne!(first, choices(&options, 8).await[0]);
}
