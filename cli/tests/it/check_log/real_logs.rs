//! Logs of real drivers, which break no rule but for those that are known.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::support::{GOLDEN, PYMONGO, check, findings, golden, text};

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
fn the_logs_have_failovers() {
    for (name, known) in GOLDEN {
        let mut arguments = vec!["--json"];
        arguments.extend(known.iter().flat_map(|rule| ["--allow", rule]));
        let output = check(&golden(name), &arguments);
        let counts: Value = serde_json::from_slice(&output.stdout).expect("one object");
        let counts = &counts["counts"];
        let count = |name: &str| counts[name].as_u64().expect("a number");
        assert!(count("heartbeats") > 50 && count("failedHeartbeats") > 3, "{name}: {counts}");
        assert!(count("descriptionChanges") > 15, "{name}: {counts}");
        // Of a state that nothing leads to, nothing can be expected until there is another.
        let most = if name.starts_with("rust") { 8 } else { 0 };
        assert!(count("notCompared") <= most, "{name}: {counts}");
        assert_eq!(count("unreadable"), 0, "{name}: {counts}");
        assert_eq!(counts["timed"], true, "{name}");
        assert_eq!(count("topologies"), if name.starts_with("py") { 2 } else { 1 }, "{name}");
    }
}

#[test]
fn what_is_known_of_pymongo_is_reported_with_its_line_and_rule() {
    let log = golden("pymongo-6.0");
    let refused = |line: &str| line.contains("heartbeat failed") && line.contains("refused");
    let line = log.lines().position(refused).expect("a refused connection") + 1;
    let output = check(&log, &[]);
    assert_eq!(output.status.code(), Some(1));
    let printed = text(&output.stdout);
    assert!(printed.starts_with(&format!("line {line}, 8.")), "{printed}");
    assert!(printed.contains("(SDAM Logging and Monitoring, \"Heartbeats\")\n"), "{printed}");
    assert!(
        printed.contains("\n  expected: \"Server heartbeat started\" of 127.0.0.1:"),
        "{printed}"
    );
    assert!(printed.contains("\n  found:    its heartbeat fails: \"AutoReconnect("), "{printed}");
    let complaint = text(&output.stderr);
    assert_eq!(complaint, format!("sdam: -, line {line}: heartbeat-not-started\n"));
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
