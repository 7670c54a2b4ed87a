//! Faults of descriptions: types and members, and what follows from what.

use serde_json::{Value, json};

use super::support::{Log, NODE, PYMONGO, after_step_down, findings, golden, primary_in};

#[test]
fn a_description_that_belongs_elsewhere_is_named() {
    let (mut log, second, _) = after_step_down();
    let first = log.find(0, "topologyDescriptionChanged", |it| primary_in(it).is_some());
    log.0[second]["newDescription"] = log.0[first]["newDescription"].clone();
    assert_eq!(log.first(), (second, "unexplained-change".to_owned()));
}

#[test]
fn a_server_that_becomes_unknown_without_any_error_is_named() {
    let (mut log, second, [old, _]) = after_step_down();
    log.0[second]["newDescription"]["servers"][&old]["type"] = json!("Unknown");
    assert_eq!(log.first(), (second, "unexplained-change".to_owned()));
}

#[test]
fn a_second_primary_is_named() {
    let (mut log, second, [old, _]) = after_step_down();
    log.0[second]["newDescription"]["servers"][&old]["type"] = json!("RSPrimary");
    assert_eq!(log.first(), (second, "two-primaries".to_owned()));
}

/// Makes the old primary claim the role once more, in the second heartbeat that it answers after
/// `second`, and the driver believe that.
fn plant_stale_primary(
    log: &mut Log,
    second: usize,
    [old, new]: &[String; 2],
    election: &str,
) -> usize {
    let is_old = |it: &Value| it["connectionId"] == **old;
    let heard = log.find(second, "serverHeartbeatSucceeded", is_old);
    let heard = log.find(heard + 1, "serverHeartbeatSucceeded", is_old);
    let reply = &mut log.0[heard]["reply"];
    reply["isWritablePrimary"] = json!(true);
    reply["ismaster"] = json!(true);
    reply["secondary"] = json!(false);
    reply["electionId"] = json!(election);
    let counter = reply["topologyVersion"]["counter"].as_u64().expect("a number");
    reply["topologyVersion"]["counter"] = json!(counter + 1);
    let described =
        log.0[..heard].iter().rev().find(|it| it["event"] == "topologyDescriptionChanged");
    let previous = described.expect("a description")["newDescription"].clone();
    let mut believed = previous.clone();
    let latest = believed["maxElectionId"]["$oid"].as_str().expect("an election");
    believed["maxElectionId"] = json!(latest.max(election));
    believed["servers"][old]["type"] = json!("RSPrimary");
    believed["servers"][old]["electionId"] = json!(election);
    believed["servers"][old]["topologyVersion"] = log.0[heard]["reply"]["topologyVersion"].clone();
    believed["servers"][old]["primary"] = log.0[heard]["reply"]["primary"].clone();
    believed["servers"][new] = json!({ "address": new, "type": "Unknown", "error": "a newer one" });
    let change = json!({
        "time": log.0[heard]["time"], "event": "topologyDescriptionChanged", "topologyId": 0,
        "previousDescription": previous, "newDescription": believed,
    });
    log.0.insert(heard + 1, change);
    log.0.truncate(heard + 2);
    heard + 1
}

#[test]
fn a_stale_primary_that_is_believed_is_named() {
    let (mut log, second, primaries) = after_step_down();
    let mut newer = log.clone();
    let stale = "7fffffff0000000000000001";
    let change = plant_stale_primary(&mut log, second, &primaries, stale);
    assert_eq!(log.first(), (change, "stale-primary".to_owned()));
    let election = "7fffffff0000000000000009";
    plant_stale_primary(&mut newer, second, &primaries, election);
    assert_eq!(findings(&newer.text(), NODE), [], "one that was elected later is not stale");
}

#[test]
fn an_election_id_that_goes_back_is_named() {
    let (mut log, second, _) = after_step_down();
    let next = log.find(second + 1, "topologyDescriptionChanged", |_| true);
    log.0[next]["newDescription"]["maxElectionId"] = json!("7fffffff0000000000000001");
    assert_eq!(log.first(), (next, "election-backwards".to_owned()));
}

#[test]
fn a_gap_in_the_chain_of_descriptions_is_named() {
    let (mut log, second, _) = after_step_down();
    log.0[second]["previousDescription"] = log.0[2]["newDescription"].clone();
    assert_eq!(log.first(), (second, "description-chain".to_owned()));
}

#[test]
fn a_server_that_stays_unknown_although_its_heartbeats_succeed_is_named() {
    let mut log = Log::golden("node-6.0");
    let is_closing = |it: &Value| it["newDescription"]["servers"].as_object().is_none();
    let changes =
        log.0.iter().rposition(|it| it["event"] == "topologyDescriptionChanged" && !is_closing(it));
    let change = changes.expect("a description");
    let heard = log.0[..change].iter().rposition(|it| it["event"] == "serverHeartbeatSucceeded");
    log.0.remove(change);
    assert_eq!(log.first(), (heard.expect("a heartbeat"), "ignored-outcome".to_owned()));
}

#[test]
fn faults_are_found_in_what_pymongo_prints_too() {
    let log = golden("pymongo-4.4");
    let mut lines: Vec<String> = log.lines().map(str::to_owned).collect();
    let shows_primary = |line: &String| {
        line.rsplit("newDescription").next().is_some_and(|new| new.contains("WithPrimary"))
    };
    let index = lines.iter().position(shows_primary).expect("a primary");
    let (before, new) = lines[index].rsplit_once("newDescription").expect("a description");
    let changed = new.replacen("RSPrimary", "RSArbiter", 1);
    lines[index] = format!("{before}newDescription{changed}");
    let found = findings(&lines.join("\n"), PYMONGO);
    assert_eq!(found[0], (index + 1, "unexplained-change".to_owned()));
}
