//! Faults of checks: too many, too few, too soon, or of no member.

use serde_json::{Value, json};

use super::support::{Log, NODE, findings};

#[test]
fn a_heartbeat_whose_end_is_missing_is_named_where_the_next_one_starts() {
    let mut log = Log::golden("node-6.0");
    // One that has found nothing new.
    let mut end = log.find(60, "serverHeartbeatSucceeded", |_| true);
    while log.0[end + 1]["newDescription"].is_object() {
        end = log.find(end + 1, "serverHeartbeatSucceeded", |_| true);
    }
    let address = log.0.remove(end)["connectionId"].clone();
    let next = log.find(end, "serverHeartbeatStarted", |it| it["connectionId"] == address);
    assert_eq!(log.first(), (next, "two-heartbeats".to_owned()));
}

#[test]
fn a_heartbeat_whose_beginning_is_missing_is_named() {
    let mut log = Log::golden("node-6.0");
    let start = log.find(60, "serverHeartbeatStarted", |_| true);
    let address = log.0.remove(start)["connectionId"].clone();
    let end = log.find(start, "serverHeartbeatSucceeded", |it| it["connectionId"] == address);
    assert_eq!(log.first(), (end, "heartbeat-not-started".to_owned()));
}

#[test]
fn a_server_that_is_no_longer_checked_is_named_where_it_was_last() {
    let mut log = Log::golden("node-6.0");
    let last = log.find(80, "serverHeartbeatSucceeded", |_| true);
    let address = log.0[last]["connectionId"].clone();
    let mut index = 0;
    log.0.retain(|line| {
        index += 1;
        index <= last + 1 || line["connectionId"] != address
    });
    assert_eq!(log.first(), (last, "not-checked".to_owned()));
    // With a check in progress it is that which never ends.
    let start = log.0[last].clone();
    log.0.insert(last + 1, start);
    log.0[last + 1]["event"] = json!("serverHeartbeatStarted");
    assert_eq!(log.first(), (last + 1, "heartbeat-stuck".to_owned()));
}

#[test]
fn a_check_that_begins_too_soon_is_named() {
    let mut log = Log::golden("node-6.0");
    // The first failure is tried again at once, as the server was known; the second is not.
    let failed = log.find(0, "serverHeartbeatFailed", |_| true);
    let failed = log.find(failed + 1, "serverHeartbeatFailed", |_| true);
    let address = log.0[failed]["connectionId"].clone();
    let start = log.find(failed, "serverHeartbeatStarted", |it| it["connectionId"] == address);
    assert!(findings(&log.text(), NODE).is_empty());
    let time = log.0[failed]["time"].as_u64().expect("milliseconds") + 200;
    for line in &mut log.0[failed + 1..=start] {
        line["time"] = json!(time);
    }
    assert_eq!(log.first(), (start, "heartbeat-too-soon".to_owned()));
}

#[test]
fn what_precedes_the_opening_or_follows_the_closing_is_named() {
    let mut log = Log::golden("node-6.0");
    let opening = log.find(0, "topologyOpening", |_| true);
    log.0.swap(opening, opening + 1);
    assert_eq!(log.first(), (opening + 1, "before-opening".to_owned()));
    let mut log = Log::golden("node-6.0");
    let late = log.find(60, "serverHeartbeatStarted", |_| true);
    let mut late = log.0[late].clone();
    late["time"] = log.0.last().expect("a line")["time"].clone();
    log.0.push(late);
    assert_eq!(log.first(), (log.0.len() - 1, "after-closed".to_owned()));
}

#[test]
fn a_check_of_a_stranger_is_named() {
    let mut log = Log::golden("node-6.0");
    let start = log.find(60, "serverHeartbeatStarted", |_| true);
    log.0[start]["connectionId"] = json!("stranger.example:1");
    assert!(findings(&log.text(), NODE).contains(&(start + 1, "not-a-member".to_owned())));
}

#[test]
fn a_heartbeat_that_ends_otherwise_awaited_than_it_starts_is_named() {
    let mut log = Log::golden("sdam-6.0");
    let end = log.find(60, "serverHeartbeatSucceeded", |_| true);
    let awaited = log.0[end]["awaited"].as_bool().expect("it is logged");
    log.0[end]["awaited"] = json!(!awaited);
    assert_eq!(findings(&log.text(), &[])[0], (end + 1, "wrong-awaited".to_owned()));
}

#[test]
fn an_awaited_check_right_after_a_failure_is_named() {
    let mut log = Log::golden("node-6.0");
    let failed = log.find(60, "serverHeartbeatFailed", |_| true);
    let address = log.0[failed]["connectionId"].clone();
    let is_same = |it: &Value| it["connectionId"] == address;
    let start = log.find(failed, "serverHeartbeatStarted", is_same);
    assert_eq!(log.0[start]["awaited"], false);
    log.0[start]["awaited"] = json!(true);
    let found = findings(&log.text(), &["heartbeat-not-ended"]);
    assert!(found.contains(&(start + 1, "wrong-awaited".to_owned())), "{found:?}");
}
