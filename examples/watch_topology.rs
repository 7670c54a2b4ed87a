//! Prints what is known of a deployment, again whenever that changes.
//!
//! ```sh
//! cargo run --example watch_topology -- 'mongodb://localhost/?replicaSet=rs0'
//! ```
//!
//! Without a connection string it watches a replica set inside this process.

use std::error::Error;

use sdam::{Topology, TopologyDescription};
use sdam_cluster::{EmbeddedCluster, EmbeddedOptions};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let embedded = EmbeddedCluster::start(EmbeddedOptions::default()).await?;
    let uri = std::env::args().nth(1).unwrap_or_else(|| embedded.uri());
    let topology = Topology::connect(uri).await?;
    let mut views = topology.watch_topology();
    while let Some(view) = views.next().await {
        print(&view);
    }
    Ok(())
}

fn print(view: &TopologyDescription) {
    println!("{}", view.topology_type);
    for server in view.servers().iter() {
        print!("  {} {}", server.address, server.server_type);
        if let Some(time) = server.round_trip_time {
            print!(", {:.1} ms away", time.as_secs_f64() * 1000.0);
        }
        match &server.error {
            Some(error) => println!(": {error}"),
            None => println!(),
        }
    }
}
