//! `sdam shrink` and `sdam export` as processes, on golden traces.

use std::fs;

use sdam_core::trace::Trace;
use serde_json::Value;

use super::support::{Scratch, golden, run, text};

/// Reads the trace that was written.
fn read(scratch: &Scratch) -> Trace {
    Trace::parse(fs::read(scratch.path()).expect("a file")).expect("a trace")
}

fn calls(path: &str) -> usize {
    Trace::parse(fs::read(path).expect("a file")).expect("a trace").steps().len()
}

/// The time of the last call before the client was closed.
fn before_the_end(path: &str) -> String {
    let trace = Trace::parse(fs::read(path).expect("a file")).expect("a trace");
    let open = trace.steps().take_while(|step| {
        step.lines().next().is_some_and(|(_, line)| !line.ends_with(" shutdown"))
    });
    format!("{:.9}", open.last().expect("a call").at().since_origin().as_secs_f64())
}

/// Returns the last lines of `replay --explain`, one for each server.
fn explained(path: &str, criteria: &str, at: Option<&str>) -> Value {
    let mut arguments = vec!["replay", path, "--explain", criteria, "--json"];
    arguments.extend(at.into_iter().flat_map(|at| ["--at", at]));
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("an object")
}

#[test]
fn a_failing_selection_is_made_small_and_replays_exactly() {
    let path = golden("6.0-kill.trace");
    let small = Scratch::new("fails.trace");
    // The client was closed: that is why it fails, and it takes two calls.
    let output = run(&["shrink", &path, "-o", small.path(), "--fails", "write"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stderr).contains("the same in both: a write fails: closed"), "{output:?}");
    assert!(calls(small.path()) <= 2, "{output:?}");
    let trace = read(&small);
    assert!(trace.is_sealed() && trace.header().options == whole(&path).header().options);
    let replayed = run(&["replay", small.path()]);
    assert_eq!(replayed.status.code(), Some(0), "{replayed:?}");
    assert!(text(&replayed.stdout).ends_with(": replayed exactly\n"), "{replayed:?}");
}

fn whole(path: &str) -> Trace {
    Trace::parse(fs::read(path).expect("a file")).expect("a trace")
}

#[test]
fn who_is_chosen_stays_the_same_and_who_does_not_matter_leaves() {
    let path = golden("5.0-step-down.trace");
    let (small, at) = (Scratch::new("chooses.trace"), before_the_end(&path));
    let output = run(&["shrink", &path, "-o", small.path(), "--chooses", "write", "--at", &at]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let before = explained(&path, "write", Some(&at));
    let after = explained(small.path(), "write", None);
    let chosen = |explained: &Value| {
        let servers = explained["explanation"]["servers"].as_array().expect("servers").clone();
        let chosen = servers.into_iter().filter(|it| it["reason"] == "inWindow");
        chosen.map(|it| it["address"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(chosen(&before), chosen(&after));
    assert_eq!(chosen(&after).len(), 1);
    // A stream is opened, the server says that it can stream, and then that it is the new primary.
    assert!(calls(small.path()) <= 3, "{}", fs::read_to_string(small.path()).expect("a file"));
    assert_eq!(run(&["replay", small.path()]).status.code(), Some(0));
}

#[test]
fn what_is_known_in_the_end_stays_the_same_and_becomes_a_test() {
    let path = golden("4.4-reconfig.trace");
    let (small, test, at) =
        (Scratch::new("view.trace"), Scratch::new("view.json"), before_the_end(&path));
    let output = run(&["shrink", &path, "-o", small.path(), "--view", "--at", &at]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(calls(small.path()) * 2 < calls(&path), "{output:?}");
    let known = |path: &str, at| explained(path, "write", at)["view"]["servers"].clone();
    let types = |servers: &Value| {
        let servers = servers.as_array().expect("servers").iter();
        let mut types: Vec<_> =
            servers.map(|it| format!("{} {}", it["address"], it["type"])).collect();
        types.sort();
        types
    };
    assert_eq!(types(&known(&path, Some(&at))), types(&known(small.path(), None)));
    let exported = run(&["export", small.path(), "-o", test.path()]);
    assert_eq!(exported.status.code(), Some(0), "{exported:?}");
    let case: Value =
        serde_json::from_slice(&fs::read(test.path()).expect("a file")).expect("JSON");
    assert!(case["phases"].as_array().is_some_and(|phases| phases.len() >= 3), "{case}");
    let again = run(&["export", small.path(), "-o", test.path()]);
    assert_eq!(again.status.code(), Some(2), "it overwrites nothing unasked");
}

#[test]
fn of_a_long_stream_in_which_each_reply_names_the_one_before_only_the_one_that_matters_is_left() {
    let (path, small) = (Scratch::new("stream.trace"), Scratch::new("of-stream.trace"));
    let reply = |id: u32, more: &str, says: &str| {
        let to = id - 1;
        let process = r#""processId":{"$oid":"6b016b138377d68048c53161"}"#;
        let version = format!(r#"{{{process},"counter":{{"$numberLong":"{id}"}}}}"#);
        let set = r#""setName":"rs","me":"db:27017","hosts":["db:27017"]"#;
        let known = format!(r#""maxWireVersion":21,{set},"topologyVersion":{version}"#);
        let message = format!(r#"{{"id":{id},"to":{to},{more}"msg":{{"ok":1.0,{known},{says}}}}}"#);
        format!("+0.{id:03}000000 received s0.0 [{message}]\n")
    };
    let (stream, secondary) = (r#""moreToCome":true,"#, r#""secondary":true"#);
    let options = "options mongodb://db/?replicaSet=rs&serverMonitoringMode=stream";
    let mut trace = format!("sdam-trace 1\nsdam 0.1.0\nmachine topology\n{options}\nseed 7\n");
    trace += "+0.000000000 tick\n+0.001000000 opened s0.0\n";
    // The server numbers its replies from 2, so that the first two answer both requests.
    trace += &reply(2, "", secondary);
    trace.extend((3..400).map(|id| reply(id, stream, secondary)));
    trace += &reply(400, stream, r#""isWritablePrimary":true"#);
    fs::write(path.path(), &trace).expect("a file");
    let output = run(&["shrink", path.path(), "-o", small.path(), "--view"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stderr).contains("db:27017 RSPrimary"), "{output:?}");
    let left = fs::read_to_string(small.path()).expect("a file");
    // A reply that announces another one must be asked for, which the first reply leads to.
    assert_eq!(calls(small.path()), 3, "{left}");
    assert!(left.contains(r#"[{"id":400,"to":2,"#), "{left}");
    assert_eq!(run(&["replay", small.path()]).status.code(), Some(0));
}

#[test]
fn what_is_not_so_in_the_whole_trace_is_said_and_nothing_is_written() {
    let (path, small) = (golden("6.0-discovery.trace"), Scratch::new("none.trace"));
    let at = before_the_end(&path);
    let cases: [(&[&str], &str); 4] = [
        (&["--fails", "write", "--at", &at], "a selection for a write does not fail at "),
        (&["--chooses", "write"], "a selection for a write chooses no server at the end; --at "),
        (&["--breaks"], "the replay does not panic, and breaks no law of machines at the end"),
        (&[], "--breaks"),
    ];
    for (property, expected) in cases {
        let output = run(&[&["shrink", &path, "-o", small.path()], property].concat());
        assert_eq!(output.status.code(), Some(2), "{property:?}");
        assert!(text(&output.stderr).contains(expected), "{output:?}");
        assert!(!fs::exists(small.path()).expect("an answer"), "{property:?}");
    }
}

#[test]
fn a_trace_that_begins_in_the_middle_is_neither_made_small_nor_exported() {
    let (tail, small) = (Scratch::new("tail.trace"), Scratch::new("never"));
    let lines = fs::read_to_string(golden("6.0-discovery.trace")).expect("a trace");
    let unsealed: String = lines
        .lines()
        .map(|line| line.rsplit_once(" ~").map_or(line, |(line, _)| line).to_owned() + "\n")
        .collect();
    fs::write(tail.path(), unsealed.replacen("trace 1 sealed", "trace 1 tail", 1)).expect("a file");
    let shrink = run(&["shrink", tail.path(), "-o", small.path(), "--view"]);
    let export = run(&["export", tail.path(), "-o", small.path()]);
    for output in [shrink, export] {
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(text(&output.stderr).contains("begins in the middle"), "{output:?}");
        assert_eq!(text(&output.stderr).lines().count(), 1, "{output:?}");
    }
    assert!(!fs::exists(small.path()).expect("an answer"));
}

#[test]
fn what_no_test_can_say_is_printed_with_its_line() {
    let (path, trace, test) =
        (golden("6.0-step-down.trace"), Scratch::new("dns.trace"), Scratch::new("dns.json"));
    let (at, lines) = (before_the_end(&path), fs::read_to_string(&path).expect("a trace"));
    let inputs = lines.lines().map(|line| line.rsplit_once(" ~").map_or(line, |(line, _)| line));
    let inputs: Vec<&str> = inputs.take_while(|line| !line.ends_with(" shutdown")).collect();
    // At the same time, so that no deadline passes before it.
    let resolved = format!("\n+{at} resolved {{\"records\":[]}}\n");
    let all = inputs.join("\n").replacen(" sealed", "", 1) + &resolved;
    fs::write(trace.path(), &all).expect("a file");
    let output = run(&["export", trace.path(), "-o", test.path()]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = format!(", line {}: records come from DNS\n", all.lines().count());
    assert!(text(&output.stderr).contains(&said), "{output:?}");
    assert!(!fs::exists(test.path()).expect("an answer"));
}
