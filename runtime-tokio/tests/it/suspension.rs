//! A runtime whose only thread is held up for longer than any time-out: the replies that arrived
//! meanwhile count.

use std::collections::BTreeMap;
use std::time::Duration;

use sdam_cluster::{EmbeddedCluster, EmbeddedOptions};
use sdam_core::bson::rawdoc;
use sdam_core::config::{Options, ServerAddress};
use sdam_core::failure::Failure;
use sdam_core::topology::EventKind;
use sdam_host::Events;
use sdam_tokio::Topology;
use tokio::runtime::Builder;
use tokio::time::timeout;

/// An awaited reply comes every 500 ms, and may take so long on a machine with other things to do.
const QUICK: &str = "heartbeatFrequencyMS=500&connectTimeoutMS=4000";

/// For how long the thread is held up: twelve replies of each server come meanwhile.
const SUSPENSION: Duration = Duration::from_millis(6000);

/// The time limit of steps that depend on the load of the machine.
const GENEROUS: Duration = Duration::from_secs(90);

#[tokio::test]
async fn replies_that_arrived_while_the_thread_was_held_up_are_no_time_outs() {
    let elsewhere = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let starting = elsewhere.spawn(EmbeddedCluster::start(EmbeddedOptions::default()));
    let cluster = starting.await.unwrap().unwrap();
    let uri = format!("{}&{QUICK}", cluster.uri());
    let client = Topology::new(Options::parse(&uri).unwrap()).unwrap();
    let mut events = client.subscribe();
    // Until every monitor is waiting for a stream of replies.
    streamed(&mut events, 1).await;
    std::thread::sleep(SUSPENSION);
    let ping = rawdoc! { "ping": 1 };
    let reply = timeout(GENEROUS, client.run_command("admin", &ping)).await;
    reply.unwrap().unwrap();
    // Those that came meanwhile, and some more.
    let failures = streamed(&mut events, 16).await;
    assert!(failures.is_empty(), "{failures:?}");
    elsewhere.shutdown_background();
}

/// Waits until each of the three servers has answered so many awaited checks, and returns the
/// failures of checks meanwhile.
async fn streamed(events: &mut Events, replies: u32) -> Vec<Failure> {
    let (mut counts, mut failures) = (BTreeMap::<ServerAddress, u32>::new(), Vec::new());
    while counts.len() < 3 || counts.values().any(|count| *count < replies) {
        let event = timeout(GENEROUS, events.next()).await.expect("servers stream");
        match event.expect("the client is open").kind {
            EventKind::ServerHeartbeatSucceeded { address, awaited: true, .. } => {
                *counts.entry(address).or_default() += 1;
            }
            EventKind::ServerHeartbeatFailed { failure, .. } => failures.push(failure),
            _ => {}
        }
    }
    failures
}
