//! Faults in what descriptions say besides types and members.

use serde_json::{Value, json};

use super::support::{Log, NODE, PYMONGO, after_step_down, findings, golden};

const TOPOLOGY: &str = "topologyDescriptionChanged";

/// Returns whether this is the first thing that is found, of that line and of others there.
fn is_found(log: &Log, index: usize, rule: &str) -> bool {
    let found = findings(&log.text(), NODE);
    let first = found.first().map(|(line, _)| *line);
    first == Some(index + 1) && found.contains(&(index + 1, rule.to_owned()))
}

/// The change by which a server becomes this, from `from` on, and the server.
fn becomes(log: &Log, from: usize, wanted: &str) -> (usize, String) {
    let of = |line: &Value, which: &str| line[which]["servers"].as_object().cloned();
    let mut found = log.0.iter().enumerate().skip(from).filter_map(|(index, line)| {
        let (old, new) = (of(line, "previousDescription")?, of(line, "newDescription")?);
        let changed = |(address, server): &(&String, &Value)| {
            let before = &old.get(*address).unwrap_or(&Value::Null)["type"];
            server["type"] == wanted && before.is_string() && *before != wanted
        };
        let (address, _) = new.iter().find(changed)?;
        Some((index, address.clone()))
    });
    found.next().expect("such a change")
}

#[test]
fn a_field_that_is_not_what_the_reply_has_said_is_named() {
    let (log, second, [_, new]) = after_step_down();
    for (field, wrong) in [
        ("hosts", json!(["127.0.0.1:1"])),
        ("passives", json!(["127.0.0.1:1"])),
        ("arbiters", json!(["127.0.0.1:1"])),
        ("tags", json!({ "dc": "east" })),
        ("minWireVersion", json!(1)),
        ("maxWireVersion", json!(18)),
        ("setName", json!("other")),
        ("setVersion", json!(2)),
        ("electionId", json!("7fffffff0000000000000003")),
        ("primary", json!("127.0.0.1:1")),
        ("me", json!("127.0.0.1:1")),
        ("logicalSessionTimeoutMinutes", json!(29)),
        ("topologyVersion", json!({ "processId": "6b0195a155e4d71b12a2c86e", "counter": 1 })),
        ("iscryptd", json!(true)),
    ] {
        for wrong in [wrong, Value::Null] {
            let mut log = log.clone();
            let server = &mut log.0[second]["newDescription"]["servers"][&new];
            let empty = [json!([]), json!({}), json!(0), json!(false), Value::Null];
            if wrong.is_null() && empty.contains(&server[field]) {
                continue;
            }
            server[field] = wrong;
            assert!(is_found(&log, second, "wrong-field"), "{field}");
        }
    }
}

#[test]
fn a_field_may_be_that_of_a_reply_which_is_logged_a_moment_later() {
    let (mut log, second, [_, new]) = after_step_down();
    let is_new = |it: &Value| it["connectionId"] == *new;
    let heard = log.0[..second]
        .iter()
        .rposition(|it| it["event"] == "serverHeartbeatSucceeded" && is_new(it))
        .expect("a heartbeat");
    let reply = log.0.remove(heard);
    log.0.insert(second, reply);
    assert_eq!(findings(&log.text(), NODE), []);
}

#[test]
fn a_field_that_is_wrong_in_an_event_about_a_server_is_named() {
    let mut log = Log::golden("node-6.0");
    let is_known = |it: &Value| it["newDescription"]["type"] == "RSSecondary";
    let index = log.find(30, "serverDescriptionChanged", is_known);
    log.0[index]["newDescription"]["setVersion"] = json!(7);
    assert!(is_found(&log, index, "wrong-field"));
}

#[test]
fn an_event_about_a_server_that_has_not_changed_is_named() {
    let mut log = Log::golden("node-6.0");
    let is_known = |it: &Value| it["newDescription"]["type"] == "RSSecondary";
    let index = log.find(30, "serverDescriptionChanged", is_known);
    let mut again = log.0[index].clone();
    again["previousDescription"] = again["newDescription"].clone();
    again["newDescription"]["roundTripTime"] = json!(99);
    log.0.insert(index + 1, again);
    assert!(is_found(&log, index + 1, "nothing-changed"));
}

#[test]
fn an_unknown_server_that_keeps_what_it_has_said_is_named() {
    let log = Log::golden("node-6.0");
    let (index, address) = becomes(&log, 30, "Unknown");
    for (field, wrong, rule) in [
        ("hosts", json!(["127.0.0.1:1"]), "wrong-field"),
        ("setVersion", json!(1), "wrong-field"),
        ("maxWireVersion", json!(17), "wrong-field"),
        ("roundTripTime", json!(3.5), "wrong-round-trip"),
        ("error", Value::Null, "no-error"),
    ] {
        let mut log = log.clone();
        log.0[index]["newDescription"]["servers"][&address][field] = wrong;
        let found = findings(&log.text(), NODE);
        let is_first = found.first().is_some_and(|(line, _)| *line == index + 1);
        // Without any error it may also be that nothing explains the change.
        let rules = [rule, if rule == "no-error" { "unexplained-change" } else { rule }];
        assert!(is_first && rules.contains(&&*found[0].1), "{field}: {found:?}");
    }
}

#[test]
fn a_known_server_with_an_error_is_named() {
    let (mut log, second, [_, new]) = after_step_down();
    log.0[second]["newDescription"]["servers"][&new]["error"] = json!("it is well");
    assert!(is_found(&log, second, "wrong-field"));
}

#[test]
fn a_known_server_without_a_round_trip_time_is_named() {
    let (log, second, [_, new]) = after_step_down();
    for wrong in [json!(-1), Value::Null] {
        let mut log = log.clone();
        log.0[second]["newDescription"]["servers"][&new]["roundTripTime"] = wrong;
        assert!(is_found(&log, second, "wrong-round-trip"));
    }
}

#[test]
fn round_trip_times_that_pymongo_prints_are_looked_at_too() {
    let log = golden("pymongo-6.0");
    for (server, wrong) in [("RSPrimary", "None"), ("Unknown", "0.001")] {
        let mut lines: Vec<String> = log.lines().map(str::to_owned).collect();
        let described = format!("server_type: {server}, rtt: ");
        let planted = lines.iter().enumerate().find_map(|(index, line)| {
            let (old, new) = line.split_once("newDescription")?;
            // The first description of a topology is not judged.
            new.contains("ReplicaSetWithPrimary").then_some(())?;
            let (before, after) = new.split_once(&described)?;
            let rest = &after[after.find(['>', ','])?..];
            Some((index, format!("{old}newDescription{before}{described}{wrong}{rest}")))
        });
        let (index, line) = planted.expect("such a server");
        lines[index] = line;
        let found = findings(&lines.join("\n"), PYMONGO);
        assert_eq!(found[0], (index + 1, "wrong-round-trip".to_owned()));
    }
}

#[test]
fn the_largest_election_is_that_of_the_primary_or_else_stays() {
    let (log, second, _) = after_step_down();
    for (field, wrong) in
        [("maxElectionId", json!("7fffffff0000000000000009")), ("maxSetVersion", json!(9))]
    {
        let mut with_primary = log.clone();
        with_primary.0[second]["newDescription"][field] = wrong.clone();
        assert!(is_found(&with_primary, second, "wrong-election"), "{field}");
        let mut without = log.clone();
        let is_without = |it: &Value| it["newDescription"]["type"] == "ReplicaSetNoPrimary";
        let index = log.find(second, TOPOLOGY, is_without);
        without.0[index]["newDescription"][field] = wrong;
        assert!(is_found(&without, index, "wrong-election"), "{field}");
    }
}

#[test]
fn the_session_timeout_of_the_topology_is_the_smallest() {
    let (log, second, _) = after_step_down();
    for wrong in [json!(31), json!(1), Value::Null] {
        let mut log = log.clone();
        log.0[second]["newDescription"]["logicalSessionTimeoutMinutes"] = wrong;
        assert!(is_found(&log, second, "wrong-session-timeout"));
    }
}

#[test]
fn what_replies_say_and_no_description_ever_does_is_named_where_it_was_heard() {
    let mut log = Log::golden("node-6.0");
    let is_secondary = |it: &Value| it["reply"]["secondary"] == true;
    let heard = log.find(140, "serverHeartbeatSucceeded", is_secondary);
    let address = log.0[heard]["connectionId"].clone();
    for line in &mut log.0[heard..] {
        if line["connectionId"] == address && line["reply"].is_object() {
            line["reply"]["tags"] = json!({ "dc": "west" });
        }
    }
    assert_eq!(log.first(), (heard, "ignored-outcome".to_owned()));
}
