//! `sdam check-log` on logs of real drivers, as they are and with faults planted in them.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::{fs, thread};

use serde_json::{Value, json};

/// What is known of the drivers, see `CHECK_LOG.md`.
const PYMONGO: &[&str] = &["after-closed", "heartbeat-not-started"];
const NODE: &[&str] = &["heartbeat-not-ended"];
const NODE_CANCELED: &[&str] = &["heartbeat-not-ended", "heartbeat-not-started", "two-heartbeats"];

const GOLDEN: [(&str, &[&str]); 7] = [
    ("pymongo-4.4", PYMONGO),
    ("pymongo-6.0", PYMONGO),
    ("node-4.4", NODE),
    ("node-6.0", NODE),
    ("node-6.0-canceled", NODE_CANCELED),
    ("node-messages-6.0", &[]),
    ("sdam-6.0", &[]),
];

fn golden(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/logs");
    fs::read_to_string(folder.join(format!("{name}.jsonl"))).expect("a log")
}

/// Checks a log that comes by standard input.
fn check(log: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sdam"));
    command.args(["check-log", "-"]).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().expect("a process");
    let (mut stdin, log) = (process.stdin.take().expect("a pipe"), log.to_owned());
    // It may end before it has read everything.
    let feed = thread::spawn(move || stdin.write_all(log.as_bytes()).unwrap_or_default());
    let output = process.wait_with_output().expect("the end");
    feed.join().expect("no panic");
    output
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

/// All that is found in a log, but for what is allowed: rules by line.
fn findings(log: &str, allowed: &[&str]) -> Vec<(usize, String)> {
    let mut arguments = vec!["--json", "--all"];
    arguments.extend(allowed.iter().flat_map(|rule| ["--allow", rule]));
    let output = check(log, &arguments);
    let lines = text(&output.stdout).lines();
    let lines = lines.map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let findings = lines.filter_map(|line| Some(line.get("finding")?.clone())).map(|finding| {
        assert!(finding["text"].is_string() && finding["section"].is_string(), "{finding}");
        let line = finding["line"].as_u64().expect("a number");
        (usize::try_from(line).expect("a line"), finding["rule"].as_str().expect("a rule").into())
    });
    let findings: Vec<_> = findings.collect();
    let code = i32::from(!findings.is_empty());
    assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
    findings
}

/// A log in which faults are planted.
#[derive(Clone)]
struct Log(Vec<Value>);

impl Log {
    fn golden(name: &str) -> Self {
        let lines = golden(name);
        Self(lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect())
    }

    /// The index of the line after `from` that is of this event and has that in it.
    fn find(&self, from: usize, event: &str, wanted: impl Fn(&Value) -> bool) -> usize {
        let lines = self.0.iter().enumerate().skip(from);
        let mut found = lines.filter(|(_, line)| line["event"] == event && wanted(line));
        found.next().expect("such a line").0
    }

    fn text(&self) -> String {
        self.0.iter().map(|line| format!("{line}\n")).collect()
    }

    /// The first thing found, as the line's index and the rule.
    fn first(&self) -> (usize, String) {
        let (line, rule) = findings(&self.text(), NODE).remove(0);
        (line - 1, rule)
    }
}

fn primary_in(line: &Value) -> Option<String> {
    let servers = line["newDescription"]["servers"].as_object()?;
    let mut servers = servers.iter();
    let primary = servers.find(|(_, server)| server["type"] == "RSPrimary");
    primary.map(|(address, _)| address.clone())
}

/// The log of the Node.js driver, the change that shows the second primary, and both primaries.
fn after_step_down() -> (Log, usize, [String; 2]) {
    let log = Log::golden("node-6.0");
    let first = log.find(0, "topologyDescriptionChanged", |it| primary_in(it).is_some());
    let old = primary_in(&log.0[first]);
    let is_other = |it: &Value| primary_in(it).is_some() && primary_in(it) != old;
    let second = log.find(first, "topologyDescriptionChanged", is_other);
    let new = primary_in(&log.0[second]);
    (log, second, [old, new].map(|primary| primary.expect("a primary")))
}

#[test]
fn real_logs_are_clean_but_for_what_is_known_of_their_drivers() {
    for (name, known) in GOLDEN {
        let log = golden(name);
        assert_eq!(findings(&log, known), [], "{name}");
        let mut rules: Vec<String> = findings(&log, &[]).into_iter().map(|it| it.1).collect();
        rules.sort();
        rules.dedup();
        assert_eq!(rules, known, "{name}");
    }
}

#[test]
fn the_logs_tell_of_failovers() {
    for (name, known) in GOLDEN {
        let mut arguments = vec!["--json"];
        arguments.extend(known.iter().flat_map(|rule| ["--allow", rule]));
        let output = check(&golden(name), &arguments);
        let counts: Value = serde_json::from_slice(&output.stdout).expect("one object");
        let counts = &counts["counts"];
        let count = |name: &str| counts[name].as_u64().expect("a number");
        assert!(count("heartbeats") > 50 && count("failedHeartbeats") > 5, "{name}: {counts}");
        assert!(count("descriptionChanges") > 15, "{name}: {counts}");
        assert_eq!(count("notCompared"), 0, "{name}: {counts}");
        assert_eq!(count("unreadable"), 0, "{name}: {counts}");
        assert_eq!(counts["timed"], true, "{name}");
        assert_eq!(count("topologies"), if name.starts_with("py") { 2 } else { 1 }, "{name}");
    }
}

#[test]
fn what_is_known_of_pymongo_is_told_with_its_line_and_rule() {
    let log = golden("pymongo-6.0");
    let refused = |line: &str| line.contains("heartbeat failed") && line.contains("refused");
    let line = log.lines().position(refused).expect("a refused connection") + 1;
    let output = check(&log, &[]);
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output.stdout);
    assert!(told.starts_with(&format!("line {line}, 8.")), "{told}");
    assert!(told.contains("(SDAM Logging and Monitoring, \"Heartbeats\")\n"), "{told}");
    assert!(told.contains("\n  expected: \"Server heartbeat started\" of 127.0.0.1:"), "{told}");
    assert!(told.contains("\n  found:    its heartbeat fails: \"AutoReconnect("), "{told}");
    let complaint = text(&output.stderr);
    assert_eq!(complaint, format!("sdam: -, line {line}: heartbeat-not-started\n"));
}

#[test]
fn a_heartbeat_whose_end_is_missing_is_named_where_the_next_one_starts() {
    let mut log = Log::golden("node-6.0");
    let end = log.find(60, "serverHeartbeatSucceeded", |_| true);
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

/// Has the old primary claim once more to be it, in the second heartbeat that it answers after
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
    believed["servers"][old]["type"] = json!("RSPrimary");
    believed["servers"][new]["type"] = json!("Unknown");
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
fn a_server_that_is_no_longer_checked_is_named_where_it_was_last() {
    let mut log = Log::golden("node-6.0");
    let last = log.find(80, "serverHeartbeatSucceeded", |_| true);
    let address = log.0[last]["connectionId"].clone();
    let mut index = 0;
    log.0.retain(|line| {
        index += 1;
        index <= last + 1 || line["connectionId"] != address
    });
    let found = findings(&log.text(), NODE);
    assert_eq!(found, [(last + 1, "not-checked".to_owned())]);
    // With a check in progress it is that which never ends.
    let start = log.0[last].clone();
    log.0.insert(last + 1, start);
    log.0[last + 1]["event"] = json!("serverHeartbeatStarted");
    let found = findings(&log.text(), NODE);
    assert_eq!(found, [(last + 2, "heartbeat-stuck".to_owned())]);
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

#[test]
fn without_times_all_but_the_rules_about_time_are_checked() {
    let (mut log, second, [old, _]) = after_step_down();
    for line in &mut log.0 {
        line.as_object_mut().expect("an object").remove("time");
    }
    assert_eq!(findings(&log.text(), NODE), []);
    let output = check(&log.text(), &["--allow", "heartbeat-not-ended"]);
    assert!(text(&output.stdout).ends_with("no line tells its time: nothing was judged by that\n"));
    log.0[second]["newDescription"]["servers"][&old]["type"] = json!("RSPrimary");
    assert_eq!(log.first(), (second, "two-primaries".to_owned()));
}

#[test]
fn several_clients_in_a_file_are_told_apart() {
    let log = Log::golden("node-6.0");
    let of = |client: &str| {
        log.0.iter().skip(1).cloned().map({
            let client = client.to_owned();
            move |mut line| {
                line["clientId"] = json!(client);
                line
            }
        })
    };
    let both: Vec<Value> = of("a").zip(of("b")).flat_map(|(a, b)| [a, b]).collect();
    let mut both = Log([vec![log.0[0].clone()], both].concat());
    assert_eq!(findings(&both.text(), NODE), []);
    for line in &mut both.0 {
        line.as_object_mut().expect("an object").remove("clientId");
    }
    // Without it the topologies are one, whose every step is taken twice.
    assert!(!findings(&both.text(), NODE).is_empty());
    for (index, line) in both.0.iter_mut().enumerate().filter(|(_, it)| it["topologyId"] == 0) {
        line["topologyId"] = json!(index % 2);
    }
    let output = check(&both.text(), &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("give every line of a client its own clientId"));
}

#[test]
fn lines_that_cannot_be_read_are_told_by_number_and_passed_over() {
    let log = golden("sdam-6.0");
    let (first, rest) = log.split_once('\n').expect("lines");
    let mixed = format!(
        "{first}\nTraceback \u{1b}[2J\n{{\"message\": \"Command started\"}}\n\n\
         {{\"message\": \"Server heartbeat started\"}}\n{rest}"
    );
    let output = check(&mixed, &[]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let complaints: Vec<&str> = text(&output.stderr).lines().collect();
    assert_eq!(complaints.len(), 2, "{complaints:?}");
    assert!(complaints[0].starts_with("sdam: line 2 is passed over: it is no JSON object"));
    assert!(complaints[1].starts_with("sdam: line 5 is passed over: it names no server"));
    let told = text(&output.stdout);
    assert!(told.contains("2 lines are about something else\n2 lines cannot be read\n"), "{told}");
}

#[test]
fn what_is_no_log_of_topologies_is_answered_by_exit_code_2() {
    let cases = [
        ("", "no line says anything of a topology\n"),
        ("hello\n", "no line says anything of a topology; line 1: it is no JSON object\n"),
        ("{\"message\": \"Command started\"}\n", "no line says anything of a topology\n"),
    ];
    for (log, complaint) in cases {
        let output = check(log, &[]);
        assert_eq!(output.status.code(), Some(2), "{log}");
        assert_eq!(text(&output.stderr), format!("sdam: -: {complaint}"));
        assert!(output.stdout.is_empty());
    }
    let output = check("", &["--allow", "everything"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("there are: after-closed, "), "{output:?}");
}

#[test]
fn the_events_of_a_watch_come_out_clean() {
    let watch = Command::new(env!("CARGO_BIN_EXE_sdam"))
        .args(["watch", "--json", "--for", "4s"])
        .stdin(Stdio::null())
        .output()
        .expect("a process");
    let log = text(&watch.stdout);
    assert!(log.contains("topologyClosed"), "{log}");
    assert_eq!(findings(log, &[]), []);
}

#[test]
fn every_rule_is_counted_when_it_is_allowed() {
    let (rules, log) = (PYMONGO, golden("pymongo-6.0"));
    let mut arguments = vec!["--json"];
    arguments.extend(rules.iter().flat_map(|rule| ["--allow", rule]));
    let counts: Value = serde_json::from_slice(&check(&log, &arguments).stdout).expect("JSON");
    let mut expected = BTreeMap::new();
    for (_, rule) in findings(&log, &[]) {
        *expected.entry(rule).or_insert(0) += 1;
    }
    assert_eq!(counts["counts"]["allowed"], json!(expected));
}
