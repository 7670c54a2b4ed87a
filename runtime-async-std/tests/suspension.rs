//! An executor whose only thread is held up for longer than any time-out: the replies that arrived
//! meanwhile count.
#![cfg(feature = "smol")]

use std::time::Duration;

use async_io::Timer;
use sdam_async_std::{Client, Smol};
use sdam_conformance::cluster::{EmbeddedCluster, EmbeddedOptions};
use sdam_core::bson::rawdoc;
use sdam_core::event::EventKind;
use sdam_core::options::Options;
use tokio::runtime::Builder;

#[test]
fn replies_that_arrived_while_the_executor_was_held_up_are_no_time_outs() {
    let elsewhere = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let cluster = elsewhere.block_on(EmbeddedCluster::start(EmbeddedOptions::default())).unwrap();
    let uri = format!("{}&connectTimeoutMS=500&heartbeatFrequencyMS=500", cluster.uri());
    let client = Client::new(Options::parse(&uri).unwrap(), Smol).unwrap();
    let mut events = client.subscribe();
    smol::block_on(async {
        let ping = rawdoc! { "ping": 1 };
        client.run_command("admin", &ping).await.unwrap();
        // Until every monitor is waiting for a stream of replies.
        for _ in 0..6 {
            while !matches!(
                events.next().await.expect("the client is open").kind,
                EventKind::ServerHeartbeatSucceeded { awaited: true, .. }
            ) {}
        }
        // An awaited reply may take one second; three arrive meanwhile.
        smol::spawn(async { std::thread::sleep(Duration::from_millis(1600)) }).await;
        client.run_command("admin", &ping).await.unwrap();
        Timer::after(Duration::from_millis(700)).await;
    });
    let failed = |kind: &EventKind| matches!(kind, EventKind::ServerHeartbeatFailed { .. });
    let failures: Vec<_> =
        std::iter::from_fn(|| events.try_next()).filter(|event| failed(&event.kind)).collect();
    assert!(failures.is_empty(), "{failures:?}");
}
