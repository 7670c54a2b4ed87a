//! sdam's own log of failovers and of simulated incidents, by the Logging specification: every step
//! of it is legal.

use std::fs;
use std::process::Command;
use std::time::Duration;

use sdam_cluster::{EmbeddedCluster, EmbeddedOptions};
use sdam_core::config::Options;
use sdam_core::description::{ServerType, TopologyDescription};
use sdam_core::logging::LogSettings;
use sdam_simulation::sim::{Case, SCENARIOS};
use sdam_tokio::Topology;
use tokio::time::timeout;

use super::support::findings;

const GENEROUS: Duration = Duration::from_secs(60);

/// Waits for a view that is as it should be.
async fn view(client: &Topology, wanted: impl Fn(&TopologyDescription) -> bool) {
    let mut views = client.watch_topology();
    let found = timeout(GENEROUS, async {
        while let Some(view) = views.next().await {
            if wanted(&view) {
                return;
            }
        }
    });
    assert!(found.await.is_ok(), "{:?}", client.view());
}

/// Returns whether the whole set is up.
fn is_whole(view: &TopologyDescription) -> bool {
    let secondaries = view.servers().iter();
    let secondaries = secondaries.filter(|server| server.server_type == ServerType::RsSecondary);
    view.primary().is_some() && secondaries.count() == 2
}

#[tokio::test]
async fn the_own_log_of_a_kill_and_a_step_down_is_legal() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("log");
    let (settings, _) = LogSettings::from_variables(|name| match name {
        "MONGODB_LOG_TOPOLOGY" => Some("debug".into()),
        "MONGODB_LOG_MAX_DOCUMENT_LENGTH" => Some("100000".into()),
        "MONGODB_LOG_PATH" => file.to_str().map(str::to_owned),
        _ => None,
    });
    let cluster = EmbeddedCluster::start(EmbeddedOptions::default()).await.unwrap();
    let options = Options::parse(&format!("{}&heartbeatFrequencyMS=500", cluster.uri())).unwrap();
    let client = Topology::builder(options).log(settings).build().unwrap();
    view(&client, is_whole).await;
    let old = client.view().primary().map(|primary| primary.address.clone());
    let killed = cluster.primary().unwrap();
    cluster.kill(killed).await.unwrap();
    let is_another = |view: &TopologyDescription| {
        let primary = view.primary();
        primary.is_some_and(|primary| Some(&primary.address) != old.as_ref())
    };
    view(&client, is_another).await;
    cluster.restart(killed).await.unwrap();
    view(&client, is_whole).await;
    let election = client.view().max_election_id;
    cluster.step_down(cluster.elected().await.unwrap()).await.unwrap();
    view(&client, |view| view.max_election_id > election && is_whole(view)).await;
    client.close().await;

    let log = std::fs::read_to_string(&file).unwrap();
    assert!(log.lines().count() > 20, "{log}");
    assert_eq!(findings(&log, &[]), [], "{log}");
}

/// Returns the log of a trace.
fn log_of(trace: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace");
    fs::write(&file, trace).unwrap();
    let mut replay = Command::new(env!("CARGO_BIN_EXE_sdam"));
    let output = replay.args(["replay", "--log"]).arg(&file).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_own_log_of_every_simulated_incident_is_legal() {
    for scenario in SCENARIOS {
        let case = Case::default().with_scenario(Some(scenario)).with_seed(7);
        let log = log_of(&case.record(0).expect("a client that is recorded"));
        // Behind a balancer nothing happens but the beginning and the end.
        assert!(log.lines().count() > 5, "{}: {log}", scenario.name);
        assert_eq!(findings(&log, &[]), [], "{}", scenario.name);
    }
}
