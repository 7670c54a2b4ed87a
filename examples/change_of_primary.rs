//! Shows what an application sees of failovers: it writes and reads without a pause while a primary
//! steps down and the next one is killed.
//!
//! ```sh
//! cargo run --example change_of_primary
//! ```
//!
//! The replica set is inside this process. Writes wait for the next primary, and each is done once;
//! reads that a secondary may answer wait for nothing. With `w: majority`, no write is lost.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sdam::options::WriteConcern;
use sdam::{Client, Collection, DateTime, Document, ReadPreference, Topology, doc};
use sdam_cluster::{EmbeddedCluster, EmbeddedOptions};
use tokio::sync::watch;
use tokio::time::sleep;

/// The time between two operations of a task.
const PAUSE: Duration = Duration::from_millis(5);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let options = EmbeddedOptions::default().with_keeps_data(true);
    let cluster = EmbeddedCluster::start(options).await?;
    let first = cluster.elected().await?;
    let client = Client::connect(cluster.uri()).await?;
    let orders: Collection<Document> = client.database("shop").collection("orders");

    let (is_over, (counting, mut counted)) = (Arc::new(AtomicBool::new(false)), watch::channel(0));
    let watching = tokio::spawn(show_primaries(client.topology().clone()));
    let writing = tokio::spawn(write(orders.clone(), counting, Arc::clone(&is_over)));
    let reading = tokio::spawn(read(orders.clone(), Arc::clone(&is_over)));

    further_writes(&mut counted).await;
    println!("the primary steps down");
    cluster.step_down(first).await?;
    let second = cluster.elected().await?;
    further_writes(&mut counted).await;
    println!("the next one is killed");
    cluster.kill(second).await?;
    cluster.elected().await?;
    further_writes(&mut counted).await;
    is_over.store(true, Ordering::Relaxed);

    let (written, slowest_write) = writing.await??;
    let (read, slowest_read) = reading.await??;
    println!("{written} writes, the slowest in {} ms", slowest_write.as_millis());
    println!("{read} reads, the slowest in {} ms", slowest_read.as_millis());
    let found = orders.count_documents(doc! {}).await?;
    println!("{found} orders are in, {} are lost", written - found);
    client.close().await;
    watching.await?;
    Ok(())
}

/// Waits for two more writes, or until there are no more. The first may have begun before.
async fn further_writes(counted: &mut watch::Receiver<u64>) {
    let so_far = *counted.borrow_and_update();
    let _ = counted.wait_for(|count| *count >= so_far + 2).await;
}

/// Writes an order after the other; returns how many, and how long the slowest took.
async fn write(
    orders: Collection<Document>,
    counting: watch::Sender<u64>,
    is_over: Arc<AtomicBool>,
) -> sdam::Result<(u64, Duration)> {
    let orders = orders.with_write_concern(WriteConcern::majority());
    let (mut count, mut slowest) = (0, Duration::ZERO);
    while !is_over.load(Ordering::Relaxed) {
        let begun = Instant::now();
        // A retry of the client's own carries the same number: what was done is not done again.
        orders.insert_one(doc! { "at": DateTime::now() }).await?;
        (count, slowest) = (count + 1, slowest.max(begun.elapsed()));
        counting.send_replace(count);
        sleep(PAUSE).await;
    }
    Ok((count, slowest))
}

/// Reads an order after the other from a secondary, as long as there is one.
async fn read(
    orders: Collection<Document>,
    is_over: Arc<AtomicBool>,
) -> sdam::Result<(u64, Duration)> {
    let orders = orders.with_read_preference(ReadPreference::secondary_preferred());
    let (mut count, mut slowest) = (0, Duration::ZERO);
    while !is_over.load(Ordering::Relaxed) {
        let begun = Instant::now();
        orders.find_one(doc! {}).await?;
        (count, slowest) = (count + 1, slowest.max(begun.elapsed()));
        sleep(PAUSE).await;
    }
    Ok((count, slowest))
}

/// Prints who is primary, whenever that changes, until the client is closed.
async fn show_primaries(topology: Topology) {
    let (mut views, mut known) = (topology.watch_topology(), None);
    drop(topology);
    while let Some(view) = views.next().await {
        let primary = view.primary().map(|server| server.address.to_string());
        if primary != known {
            println!("primary: {}", primary.as_deref().unwrap_or("none"));
            known = primary;
        }
    }
}
