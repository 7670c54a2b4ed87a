//! A shop that takes orders while the primary of its replica set steps down, in virtual time.
//!
//! Run it with a seed: `cargo run -p sdam-simulation --example failover -- 7`.

use std::error::Error;
use std::time::Duration;

use sdam_core::bson::rawdoc;
use sdam_core::config::Options;
use sdam_simulation::virtual_time::{Simulation, Topology, VirtualTime};

/// The interval of orders.
const INTERVAL: Duration = Duration::from_millis(250);

/// The number of orders.
const ORDERS: i32 = 120;

/// The application: it writes down each order, again and again until the deployment has it.
async fn take_orders(client: Topology, time: VirtualTime) {
    for number in 0..ORDERS {
        let order = rawdoc! { "insert": "orders", "documents": [{ "_id": number }] };
        let begun = time.elapsed();
        while let Err(error) = client.run_command("shop", &order).await {
            time.log(format_args!("order {number} has to wait: {error}"));
            time.sleep(Duration::from_millis(100)).await;
        }
        let taken = time.elapsed() - begun;
        if taken > Duration::from_secs(1) {
            time.log(format_args!("order {number} has taken {taken:?}"));
        }
        time.sleep(INTERVAL).await;
    }
    time.log("all orders are in");
    client.close().await;
}

/// Returns what happens with this seed.
///
/// # Errors
///
/// Fails if the client cannot be created.
pub(crate) fn failover(seed: u64) -> Result<Vec<String>, Box<dyn Error>> {
    let mut simulation = Simulation::new(seed);
    let client = simulation.topology(Options::parse(simulation.uri())?)?;
    let time = simulation.time();
    simulation.spawn(take_orders(client, time));
    simulation.run_for(Duration::from_secs(10));
    simulation.step_down().ok_or("there is no primary after ten seconds")?;
    match simulation.run(Duration::from_secs(300)) {
        true => Ok(simulation.log()),
        false => Err("the orders are not in after five minutes".into()),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let seed = match std::env::args().nth(1).as_deref().map(str::parse) {
        Some(seed) => seed?,
        None => 7,
    };
    for line in failover(seed)? {
        println!("{line}");
    }
    Ok(())
}
