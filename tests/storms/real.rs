//! Storms on a real replica set: 30 s each, with a fault every six, or when the set has recovered
//! from the one before.

use std::time::{Duration, Instant};

use sdam_conformance::forwarder::Traffic;
use sdam_conformance::mongod::ReplicaSet;
use sdam_core::config::Options;
use sdam_tokio::Topology;
use tokio::runtime::Runtime;

use crate::Outcome;
use crate::storm::{Network, primary, storm};

/// The time limit of steps that depend on the load of the machine.
pub(crate) const GENEROUS: Duration = Duration::from_secs(60);

const LENGTH: Duration = Duration::from_secs(30);
const INTERVAL: Duration = Duration::from_secs(6);

/// A storm on a set of three that has settled.
pub(crate) type Storm = fn(&Runtime, &mut ReplicaSet) -> Outcome;

pub(crate) const STORMS: [(&str, Storm); 4] = [
    ("primaries_are_killed_under_load", kill),
    ("primaries_step_down_under_load", step_down),
    ("primaries_freeze_under_load", freeze),
    ("the_network_swallows_bytes_under_load", cut),
];

/// Few connections, so that operations queue; and quick checks, as faults come quickly.
pub(crate) fn uri(set: &ReplicaSet) -> String {
    let seeds: Vec<String> = set.seed_list().iter().map(ToString::to_string).collect();
    let quick = "heartbeatFrequencyMS=1000&connectTimeoutMS=2000";
    format!(
        "mongodb://{}/?replicaSet={}&{quick}&maxPoolSize=20&minPoolSize=2",
        seeds.join(","),
        set.set_name()
    )
}

/// Lets faults happen for as long as a storm takes; each returns how long the client took to find
/// a primary.
async fn faults(
    mut fault: impl AsyncFnMut(usize) -> Result<Duration, Box<dyn std::error::Error>>,
) -> Outcome {
    let (start, mut recoveries) = (Instant::now(), Vec::new());
    for number in 0..(LENGTH.as_secs() / INTERVAL.as_secs()) as usize {
        recoveries.push(fault(number).await?);
        let next = start + INTERVAL * (number as u32 + 1);
        tokio::time::sleep_until(next.into()).await;
    }
    eprintln!("a primary again after {recoveries:.2?}");
    Ok(())
}

/// The address of the primary, to which something is about to happen.
///
/// The set is whole before that: a member that still rolls back what only it had, as it was primary
/// before, needs the primary to end that, and there may be no majority without it.
pub(crate) fn old(set: &ReplicaSet) -> Result<(usize, String), Box<dyn std::error::Error>> {
    set.wait_until_settled(GENEROUS)?;
    let primary = set.wait_for_primary(GENEROUS)?;
    Ok((primary, set.members()[primary].advertised().to_string()))
}

/// Nothing but the client has sockets in this process.
fn no_sockets(left: usize) -> Outcome {
    match left {
        0 => Ok(()),
        _ => Err(format!("{left} sockets were open when the client had been closed").into()),
    }
}

// What the harness does blocks this thread, which is none of those on which tasks run.

fn kill(runtime: &Runtime, set: &mut ReplicaSet) -> Outcome {
    let options = Options::parse(&uri(set))?;
    let left = runtime.block_on(storm(options, async |client: &Topology| {
        faults(async |_| {
            let (index, old) = old(set)?;
            set.kill(index)?;
            let recovery = primary(client, |me| me != old).await?;
            set.restart(index)?;
            Ok(recovery)
        })
        .await
    }))?;
    no_sockets(left)
}

fn step_down(runtime: &Runtime, set: &mut ReplicaSet) -> Outcome {
    let options = Options::parse(&uri(set))?;
    let left = runtime.block_on(storm(options, async |client: &Topology| {
        faults(async |_| {
            let (_, old) = old(set)?;
            set.step_down()?;
            primary(client, |me| me != old).await
        })
        .await
    }))?;
    no_sockets(left)
}

fn freeze(runtime: &Runtime, set: &mut ReplicaSet) -> Outcome {
    let options = Options::parse(&uri(set))?;
    let left = runtime.block_on(storm(options, async |client: &Topology| {
        faults(async |_| {
            let (index, old) = old(set)?;
            set.freeze(index)?;
            let recovery = primary(client, |me| me != old).await?;
            set.thaw(index)?;
            Ok(recovery)
        })
        .await
    }))?;
    no_sockets(left)
}

fn cut(runtime: &Runtime, set: &mut ReplicaSet) -> Outcome {
    const KINDS: [Traffic; 3] = [Traffic::Blackhole, Traffic::DropToClient, Traffic::DropToServer];
    runtime.block_on(async {
        let network = Network::to(&set.seed_list())?;
        storm(network.options(&uri(set))?, async |client: &Topology| {
            faults(async |number| {
                primary(client, |_| true).await?;
                network.cut(client, KINDS[number % KINDS.len()]).await
            })
            .await
        })
        .await
        .map(drop)
    })
}
