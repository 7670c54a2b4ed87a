//! Logs in the forms of many drivers, also of those that leave much out: what cannot be read is
//! reported, and what is missing is not judged.

use serde_json::{Map, Value, json};

use super::support::{GO, Log, NODE, RUST, check, findings, golden, text};

/// Allows these rules, and returns the exit code, what is printed, and what is complained about.
fn judged(log: &str, allowed: &[&str]) -> (Option<i32>, String, String) {
    let arguments: Vec<&str> = allowed.iter().flat_map(|rule| ["--allow", rule]).collect();
    let output = check(log, &arguments);
    (output.status.code(), text(&output.stdout).into(), text(&output.stderr).into())
}

/// Changes the descriptions of servers, wherever they stand.
fn for_each_server(log: &mut Log, change: impl Fn(&mut Map<String, Value>)) {
    for line in &mut log.0 {
        for name in ["previousDescription", "newDescription"] {
            let Some(description) = line.get_mut(name).and_then(Value::as_object_mut) else {
                continue;
            };
            match description.get_mut("servers").and_then(Value::as_object_mut) {
                Some(servers) => {
                    servers.values_mut().filter_map(Value::as_object_mut).for_each(&change);
                }
                None => change(description),
            }
        }
    }
}

#[test]
fn a_log_whose_lines_cannot_be_read_is_not_found_to_be_without_fault() {
    let mut log = Log::golden("node-6.0");
    let has_server = |line: &Value| line["connectionId"].is_string() || line["address"].is_string();
    let unread = log.0.iter().filter(|line| has_server(line)).count();
    let first = log.0.iter().position(has_server).expect("such a line") + 1;
    for line in log.0.iter_mut().filter(|line| has_server(line)) {
        for name in ["connectionId", "address"] {
            line[name] = json!({ "Pipe": 5 });
        }
    }
    let of = log.0.len() - 1;
    for arguments in [&[][..], &["--json"], &["--all"]] {
        let output = check(&log.text(), arguments);
        assert_eq!(output.status.code(), Some(2));
        assert!(output.stdout.is_empty());
        let expected = format!(
            "sdam: -: {unread} of {of} lines about topologies cannot be read, so that nothing was \
             judged; line {first}: it names no server: "
        );
        assert!(text(&output.stderr).starts_with(&expected), "{}", text(&output.stderr));
    }
}

#[test]
fn a_log_of_which_next_to_nothing_is_missing_is_judged() {
    let log = golden("sdam-6.0");
    let mut lines: Vec<&str> = log.lines().collect();
    let is_reply = |line: &&str| line.contains("serverHeartbeatSucceeded");
    let index = lines.iter().position(is_reply).expect("a reply");
    let cut = &lines[index][..lines[index].len() - 10];
    lines[index] = cut;
    let (_, shown, complaints) =
        judged(&lines.join("\n"), &["two-heartbeats", "heartbeat-not-started"]);
    assert!(shown.contains("\n1 lines cannot be read\n"), "{shown}");
    let expected = "is passed over: it speaks of a topology, and is no JSON object";
    assert!(complaints.contains(&format!("line {} {expected}", index + 1)), "{complaints}");
}

#[test]
fn events_without_their_names_are_missing_not_something_else() {
    let mut log = Log::golden("rust-6.0");
    for line in &mut log.0 {
        line.as_object_mut().expect("an object").remove("event");
    }
    let (code, shown, complaint) = judged(&log.text(), &[]);
    assert_eq!((code, shown.as_str()), (Some(2), ""));
    let expected = "line has no `message` or `event` field\n";
    assert!(complaint.contains("cannot be read") && complaint.ends_with(expected), "{complaint}");
}

#[test]
fn descriptions_that_cannot_be_compared_are_not_found_to_be_without_fault() {
    let mut log = Log::golden("node-6.0");
    for line in log.0.iter_mut().filter(|line| line["event"] == "topologyDescriptionChanged") {
        for name in ["previousDescription", "newDescription"] {
            line[name] = json!("{type=REPLICA_SET, servers=[{address=a:1, state=CONNECTED}]}");
        }
    }
    let (code, shown, complaint) = judged(&log.text(), NODE);
    assert_eq!(code, Some(2));
    assert!(!shown.contains("nothing illegal"), "{shown}");
    assert!(shown.contains("descriptions cannot be compared, first in line "), "{shown}");
    assert!(complaint.contains("so that little was judged; line "), "{complaint}");
}

#[test]
fn servers_alone_that_cannot_be_compared_are_not_found_to_be_without_fault() {
    let mut log = Log::golden("node-6.0");
    log.0.retain(|line| line["event"] != "topologyDescriptionChanged");
    let (_, shown, complaint) = judged(&log.text(), NODE);
    assert!(!complaint.contains("cannot be compared"), "{shown}{complaint}");
    log.0.retain(|line| line["event"] == "serverDescriptionChanged");
    let count = log.0.len();
    for line in &mut log.0 {
        for name in ["previousDescription", "newDescription"] {
            line[name] = json!({ "kind": "REPLICA_SET_PRIMARY" });
        }
    }
    let (code, shown, complaint) = judged(&log.text(), NODE);
    assert_eq!(code, Some(2), "{shown}");
    assert!(!shown.contains("nothing illegal"), "{shown}");
    let expected = format!("{count} of {count} descriptions cannot be compared, ");
    assert!(count > 5 && complaint.contains(&expected), "{complaint}");
}

#[test]
fn a_description_that_leaves_out_what_has_changed_is_not_taken_for_the_same() {
    let mut log = Log::golden("node-6.0");
    for_each_server(&mut log, |server| {
        server.remove("topologyVersion");
    });
    assert_eq!(findings(&log.text(), NODE), []);
}

/// As the log of libmongoc has it: a prefix before each line, no times, and no errors.
#[test]
fn a_log_without_errors_is_not_judged_by_them() {
    let mut log = Log::golden("node-6.0");
    for_each_server(&mut log, |server| {
        server.remove("error");
    });
    for line in &mut log.0 {
        line.as_object_mut().expect("an object").remove("time");
    }
    let prefixed: String =
        log.0.iter().map(|line| format!("MONGODB_LOG Debug topology {line}\n")).collect();
    let (code, shown, complaint) = judged(&prefixed, NODE);
    assert_eq!(code, Some(0), "{shown}{complaint}");
    assert!(shown.contains("\nno description has an error: nothing was judged by that\n"));
    assert!(shown.ends_with("\nno line has a time: nothing was judged by that\n"), "{shown}");
    let shown = judged(&golden("node-6.0"), NODE).1;
    assert!(!shown.contains("no description has an error"), "{shown}");
}

/// `update_rs_with_primary_from_member` of mongodb 3.9.1 looks for a primary only where a member
/// leaves: SDAM has checkIfHasPrimary at its end.
#[test]
fn what_is_known_of_the_rust_driver_is_found_in_its_events_and_in_its_log() {
    for name in ["rust-6.0", "rust-messages-6.0"] {
        let (code, shown, _) = judged(&golden(name), &[]);
        assert_eq!(code, Some(1), "{name}");
        assert!(shown.contains("\n  expected: ReplicaSetNoPrimary: "), "{shown}");
        assert!(shown.contains("\n  found:    ReplicaSetWithPrimary: "), "{shown}");
        assert!(!shown.contains("cannot be read"), "{shown}");
        assert_eq!(findings(&golden(name), RUST), [], "{name}");
    }
}

/// A connection that is opened says hello with no heartbeat's events.
#[test]
fn what_is_known_of_the_go_driver_is_found_where_its_first_reply_has_its_effect() {
    let log = Log::golden("go-6.0");
    let is_first = |it: &Value| it["newDescription"]["type"] == "ReplicaSetWithPrimary";
    let first = log.find(0, "topologyDescriptionChanged", is_first);
    let before = &log.0[..first];
    assert!(before.iter().all(|line| line["event"] != "serverHeartbeatSucceeded"));
    let found = findings(&log.text(), &[]);
    assert_eq!(found[0], (first + 1, "unexplained-change".to_owned()));
    assert_eq!(findings(&log.text(), GO), []);
}
