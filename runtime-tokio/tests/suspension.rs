//! A runtime whose only thread is held up for longer than any time-out: the replies that arrived
//! meanwhile count.

use std::time::Duration;

use sdam_conformance::cluster::{EmbeddedCluster, EmbeddedOptions};
use sdam_core::bson::rawdoc;
use sdam_core::description::ServerType;
use sdam_core::event::EventKind;
use sdam_core::options::Options;
use sdam_tokio::Client;
use tokio::runtime::Builder;
use tokio::time::{sleep, timeout};

#[tokio::test]
async fn replies_that_arrived_while_the_thread_was_held_up_are_no_time_outs() {
    let elsewhere = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let starting = elsewhere.spawn(EmbeddedCluster::start(EmbeddedOptions::default()));
    let cluster = starting.await.unwrap().unwrap();
    let uri = format!("{}&connectTimeoutMS=500&heartbeatFrequencyMS=500", cluster.uri());
    let client = Client::new(Options::parse(&uri).unwrap()).unwrap();
    let (mut views, mut events) = (client.watch_topology(), client.subscribe());
    let known = timeout(Duration::from_secs(30), async {
        loop {
            let view = views.next().await.expect("the client is open");
            if view.servers().iter().all(|server| server.server_type != ServerType::Unknown) {
                return;
            }
        }
    });
    known.await.expect("the set is found");
    let begun = client.now();
    // Until every monitor is waiting for a stream of replies.
    let streaming = async {
        for _ in 0..3 {
            while !matches!(
                events.next().await.expect("the client is open").kind,
                EventKind::ServerHeartbeatSucceeded { awaited: true, .. }
            ) {}
        }
    };
    timeout(Duration::from_secs(30), streaming).await.expect("servers stream");
    // An awaited reply may take one second; three arrive meanwhile.
    std::thread::sleep(Duration::from_millis(1600));
    let ping = rawdoc! { "ping": 1 };
    let reply = timeout(Duration::from_secs(30), client.run_command("admin", &ping)).await;
    reply.unwrap().unwrap();
    sleep(Duration::from_millis(700)).await;
    let failed = |kind: &EventKind| matches!(kind, EventKind::ServerHeartbeatFailed { .. });
    let failures: Vec<_> = std::iter::from_fn(|| events.try_next())
        .filter(|event| event.at > begun && failed(&event.kind))
        .collect();
    assert!(failures.is_empty(), "{failures:?}");
    elsewhere.shutdown_background();
}
