//! Clients within a runtime of tokio: the tasks of a client, and the end of either.

use sdam_cluster::{EmbeddedCluster, EmbeddedOptions};
use sdam_core::bson::rawdoc;
use sdam_core::config::Options;
use sdam_core::description::TopologyDescription;
use sdam_core::selection::Criteria;
use sdam_core::topology::EventKind;
use sdam_host::{ClientError, ErrorKind};
use sdam_tokio::{Registry, Topology};
use tokio::runtime::{Builder, Handle, Runtime};

use crate::support::{is_whole, soon, view};

fn client(uri: &str) -> Topology {
    Topology::new(Options::parse(uri).unwrap()).unwrap()
}

#[tokio::test]
async fn dropping_the_client_ends_every_task_and_the_events() {
    let before = Handle::current().metrics().num_alive_tasks();
    let cluster = EmbeddedCluster::start(EmbeddedOptions::default()).await.unwrap();
    let client = client(&cluster.uri());
    let (mut events, mut views) = (client.subscribe(), client.watch_topology());
    view(&client, is_whole).await;
    drop((client, cluster));
    soon(async { while views.next().await.is_some() {} }).await;
    let mut last = None;
    while let Some(event) = soon(events.next()).await {
        last = Some(event.kind);
    }
    assert!(matches!(last, Some(EventKind::TopologyClosed)));
    soon(async {
        while Handle::current().metrics().num_alive_tasks() > before {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[test]
fn a_client_may_outlive_its_runtime_and_be_dropped_anywhere() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (cluster, client) = runtime.block_on(async {
        let cluster = EmbeddedCluster::start(EmbeddedOptions::default()).await.unwrap();
        let client = client(&cluster.uri());
        view(&client, is_whole).await;
        (cluster, client)
    });
    drop(runtime);
    // Nothing can be done without a runtime, and the client says so, on another one too.
    assert!(client.view().servers().is_empty());
    client.request_check();
    let other = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let refused = other.block_on(async { soon(client.select(Criteria::write())).await });
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Closed);
    other.block_on(client.close());
    drop((client, cluster));
}

#[test]
fn a_client_outside_a_runtime_is_refused() {
    let refused = Topology::new(Options::parse("mongodb://localhost").unwrap());
    let error = refused.unwrap_err();
    assert!(matches!(error.as_client(), Some(ClientError::NoRuntime(_))), "{error:?}");
    assert_eq!(error.kind(), ErrorKind::Runtime);
}

#[tokio::test]
async fn a_client_connects_by_a_connection_string_or_by_options() {
    let cluster = EmbeddedCluster::start(EmbeddedOptions::default()).await.unwrap();
    for client in [
        Topology::connect(cluster.uri()).await.unwrap(),
        Topology::connect(&*cluster.uri()).await.unwrap(),
        Topology::connect(Options::parse(&cluster.uri()).unwrap()).await.unwrap(),
    ] {
        soon(client.run_command("admin", &rawdoc! { "ping": 1 })).await.unwrap();
    }
    let refused = Topology::connect("mongodb://a,b/?directConnection=true").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Configuration);
    assert!(matches!(refused.as_client(), Some(ClientError::Options(_))), "{refused:?}");
    assert!(refused.to_string().contains("directConnection"), "{refused}");
}

/// Monitors that clients share go on in the runtime of another client when that of the first has
/// ended: a failover is seen after that, too.
#[test]
fn a_client_that_shares_monitors_outlives_the_runtime_that_they_began_in() {
    let several = || Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let one = || Builder::new_current_thread().enable_all().build().unwrap();
    let world = several();
    for second in [several(), one()] {
        let (first, registry) = (several(), Registry::new());
        let cluster = world.block_on(EmbeddedCluster::start(EmbeddedOptions::default())).unwrap();
        let client = |runtime: &Runtime| {
            let _entered = runtime.enter();
            let options = Options::parse(&cluster.uri()).unwrap();
            Topology::builder(options).registry(&registry).build().unwrap()
        };
        let (early, late) = (client(&first), client(&second));
        first.block_on(view(&early, is_whole));
        second.block_on(view(&late, is_whole));
        let ping = rawdoc! { "ping": 1 };
        second.block_on(late.run_command("admin", &ping)).unwrap();
        drop(first);
        let error = second.block_on(early.run_command("admin", &ping)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
        assert_eq!(registry.monitored(), 1);
        second.block_on(late.run_command("admin", &ping)).unwrap();
        second.block_on(view(&late, is_whole));
        // The same member may be elected again.
        let old = late.view().primary().unwrap().election_id;
        world.block_on(cluster.step_down(cluster.primary().unwrap())).unwrap();
        let is_new = |view: &TopologyDescription| {
            view.primary().is_some_and(|primary| primary.election_id > old)
        };
        second.block_on(view(&late, is_new));
        second.block_on(late.run_command("admin", &ping)).unwrap();
        second.block_on(late.close());
        assert_eq!(registry.monitored(), 0);
    }
}
