//! Traces of flight recorders that have left something out.

use std::fs;

use serde_json::Value;

use super::support::{Scratch, golden, run, text};

/// The text of a golden trace, without its seals.
fn unsealed() -> Vec<String> {
    let text = fs::read_to_string(golden("6.0-discovery.trace")).expect("a trace");
    let bare = |line: &str| line.rsplit_once(" ~").map_or(line, |(line, _)| line).to_owned();
    text.replacen(" sealed", "", 1).lines().map(bare).collect()
}

/// The same without the second reply that a server has sent; the number of its line, and its time.
fn with_gap(name: &str) -> (Scratch, usize, f64) {
    let mut lines = unsealed();
    let replies = lines.iter().enumerate().filter(|(_, line)| line.contains(" received s"));
    let (index, reply) = replies.map(|(index, line)| (index, line.clone())).nth(1).expect("two");
    let words: Vec<&str> = reply.split(' ').collect();
    lines[index] = format!("{} omitted 5000000 received {}", words[0], words[2]);
    let time = words[0].split('@').next().expect("a time").parse().expect("seconds");
    (Scratch::with(name, &(lines.join("\n") + "\n")), index + 1, time)
}

#[test]
fn a_trace_with_a_gap_is_replayed_until_there_and_says_so() {
    let (trace, line, time) = with_gap("gap");
    let output = run(&["replay", trace.path()]);
    assert_eq!(output.status.code(), Some(2), "not all of it was replayed");
    let printed = text(&output.stdout);
    let until = format!(" lines: replayed exactly until line {line}, at {time:.3} s");
    assert!(printed.contains(&until), "{printed}");
    let complaint = text(&output.stderr);
    assert!(complaint.contains(&format!(", line {line}: an input was left out")), "{complaint}");
    let output = run(&["replay", trace.path(), "--json"]);
    let summary: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&summary["gap"]["line"], &summary["difference"]), (&line.into(), &Value::Null));
    // What differs before it is found.
    let changed = fs::read_to_string(trace.path()).expect("a file").replacen("join s0", "join", 1);
    let changed = Scratch::with("gap-changed", &changed);
    assert_eq!(run(&["replay", changed.path()]).status.code(), Some(1));
}

#[test]
fn what_was_known_is_shown_for_times_before_a_gap_only() {
    let (trace, line, time) = with_gap("gap-at");
    let before = run(&["replay", trace.path(), "--at", &format!("{:.9}", time - 1e-6)]);
    assert_eq!(before.status.code(), Some(0), "{before:?}");
    assert!(text(&before.stdout).contains("ReplicaSet"), "{before:?}");
    for arguments in [&["--at", "1000"][..], &["--explain", "write"]] {
        let after = run(&[&["replay", trace.path()], arguments].concat());
        assert_eq!(after.status.code(), Some(2), "{after:?}");
        assert!(text(&after.stderr).contains(&format!(", line {line}: ")), "{after:?}");
        assert!(after.stdout.is_empty(), "{after:?}");
    }
    let steps = run(&["replay", trace.path(), "--step"]);
    assert_eq!(steps.status.code(), Some(0), "{steps:?}");
    let shown = text(&steps.stdout);
    assert!(shown.contains(" shutdown\n"), "all of it is shown: {shown}");
    assert!(shown.ends_with(&format!("replayed exactly until line {line} only\n")), "{shown}");
}

#[test]
fn a_trace_with_a_gap_is_made_small_before_that_only_and_not_exported() {
    let (trace, line, time) = with_gap("gap-shrink");
    let small = Scratch::new("gap-small");
    let (path, out) = (trace.path(), small.path());
    let export = run(&["export", path, "-o", out]);
    let shrink = run(&["shrink", path, "-o", out, "--view"]);
    for output in [export, shrink] {
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(text(&output.stderr).contains(&format!("line {line}: ")), "{output:?}");
    }
    let at = format!("{:.9}", time - 1e-6);
    let shrink = run(&["shrink", path, "-o", out, "--view", "--at", &at]);
    assert_eq!(shrink.status.code(), Some(0), "{shrink:?}");
    assert_eq!(run(&["replay", out]).status.code(), Some(0));
}

#[test]
fn a_call_whose_actions_are_missing_is_replayed_and_counted_and_not_exported() {
    let mut lines = unsealed();
    let action = lines.iter().position(|line| line.starts_with("  > publish")).expect("an action");
    let end = lines[action..].iter().position(|line| line.starts_with('+')).expect("a call");
    lines.splice(action..action + end, ["  > omitted 70000".to_owned()]);
    let trace = Scratch::with("omitted-actions", &(lines.join("\n") + "\n"));
    let output = run(&["replay", trace.path()]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let printed = text(&output.stdout);
    assert!(printed.ends_with("; actions of 1 calls were left out, as too long\n"), "{printed}");
    let output = run(&["replay", trace.path(), "--json"]);
    let summary: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&summary["callsWithOmittedActions"], &summary["gap"]), (&1.into(), &Value::Null));
    let export = run(&["export", trace.path(), "-o", "-"]);
    assert_eq!(export.status.code(), Some(2), "{export:?}");
    assert!(text(&export.stderr).contains("a part of this call is missing"), "{export:?}");
}
