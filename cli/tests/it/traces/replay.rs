//! `sdam record` and `sdam replay` as processes, on golden traces and on a port that nothing
//! listens on.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use sdam_conformance::refusal::RefusingPort;
use sdam_core::trace::{Replay, Trace};
use serde_json::Value;

use super::support::{Scratch, golden, run, text};

/// Takes the checksums off, so that a trace may be changed.
fn unsealed(path: &str) -> String {
    let text = fs::read_to_string(path).expect("a trace");
    let lines = text.lines().map(|line| match line.rsplit_once(" ~") {
        Some((line, _)) => format!("{line}\n"),
        None => line.replace(" sealed", "") + "\n",
    });
    lines.collect()
}

/// The time of the first call below which a line has that in it.
fn time_of(text: &str, wanted: &str) -> f64 {
    let mut time = 0.0;
    for line in text.lines() {
        if let Some(times) = line.strip_prefix('+') {
            let number = times.split([' ', '@']).next().expect("a time");
            time = number.parse().expect("a number");
        }
        if line.contains(wanted) {
            return time;
        }
    }
    panic!("nothing has {wanted} in it");
}

#[test]
fn a_recording_is_written_sealed_without_secrets_and_replays_exactly() {
    let refusing = RefusingPort::new().expect("a free port");
    let port = refusing.address().port();
    let scratch = Scratch::with("record", "");
    let uri = format!("mongodb://planted:sesame@127.0.0.1:{port}/?heartbeatFrequencyMS=500");
    let path = scratch.path();
    let refused = run(&["record", &uri, "-o", path, "--for", "1s"]);
    assert_eq!(refused.status.code(), Some(2), "it overwrites nothing unasked");
    assert!(text(&refused.stderr).ends_with(": it exists; --force replaces it\n"), "{refused:?}");
    let recorded = run(&["record", &uri, "-o", path, "--force", "--for", "1s"]);
    assert_eq!(recorded.status.code(), Some(0), "{recorded:?}");
    let trace = fs::read_to_string(path).expect("a trace");
    assert!(trace.starts_with("sdam-trace 2 sealed\n") && trace.contains("topologyClosed"));
    assert!(!trace.contains("planted") && !trace.contains("sesame"), "{trace}");
    let replayed = run(&["replay", path]);
    assert_eq!(replayed.status.code(), Some(0), "{replayed:?}");
    let lines = trace.lines().count();
    assert_eq!(text(&recorded.stderr), format!("sdam: recorded {lines} lines to {path}\n"));
    let expected = format!("{lines} lines: replayed exactly\n");
    assert!(text(&replayed.stdout).ends_with(&expected), "{replayed:?}");
    let printed = run(&["record", &uri, "-o", "-", "--for", "200ms"]);
    assert!(text(&printed.stdout).starts_with("sdam-trace 2 sealed\n"), "{printed:?}");
}

#[test]
fn the_first_difference_is_shown_with_its_line() {
    let trace = unsealed(&golden("6.0-step-down.trace"));
    let line = trace.lines().position(|line| line.contains("RSPrimary")).expect("a primary") + 1;
    let changed = Scratch::with("changed", &trace.replacen("RSPrimary", "RSArbiter", 1));
    let output = run(&["replay", changed.path()]);
    assert_eq!(output.status.code(), Some(1));
    let complaint = text(&output.stderr);
    assert!(complaint.ends_with(&format!(", line {line}: the replay differs\n")), "{complaint}");
    let shown: Vec<&str> = text(&output.stdout).lines().collect();
    assert_eq!(shown.len(), 2);
    assert!(shown[0].starts_with("recorded: ") && shown[0].contains("RSArbiter"), "{shown:?}");
    assert!(shown[1].starts_with("replayed: ") && !shown[1].contains("RSArbiter"), "{shown:?}");
    let json = run(&["replay", changed.path(), "--json"]);
    let object: Value = serde_json::from_slice(&json.stdout).expect("an object");
    assert_eq!(object["difference"]["line"], line);
}

#[test]
fn a_changed_byte_of_a_sealed_trace_is_reported_with_its_line() {
    let trace = fs::read_to_string(golden("4.2-kill.trace")).expect("a trace");
    let lines: Vec<&str> = trace.lines().collect();
    let changed = lines[40].replacen('e', "E", 1);
    let mut changed_lines = lines.clone();
    changed_lines[40] = &changed;
    let scratch = Scratch::with("byte", &(changed_lines.join("\n") + "\n"));
    let output = run(&["replay", scratch.path()]);
    assert_eq!(output.status.code(), Some(2));
    let complaint = text(&output.stderr);
    assert!(complaint.contains(", line 41: the line was changed"), "{complaint}");
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
}

#[test]
fn what_is_no_trace_is_answered_by_one_line_and_exit_code_2() {
    let scratch = Scratch::with("none", "hello\u{1b}[2J\n");
    for path in [scratch.path(), "/nonexistent/sdam.trace", "/"] {
        let output = run(&["replay", path]);
        assert_eq!(output.status.code(), Some(2), "{path}");
        let complaint = text(&output.stderr);
        assert!(complaint.starts_with("sdam: ") && complaint.lines().count() == 1, "{complaint}");
    }
}

#[test]
fn the_view_at_a_time_is_that_of_the_moment_and_selections_are_explained() {
    let path = golden("6.0-kill.trace");
    let text_of_trace = unsealed(&path);
    let lost = r#""old":"ReplicaSetWithPrimary","new":"ReplicaSetNoPrimary""#;
    let lost = time_of(&text_of_trace, lost);
    let (lost, before) = (format!("{lost:.9}"), format!("{:.9}", lost - 0.000_001));
    let view = |at: &str, explain: &str| {
        let output = run(&["replay", &path, "--at", at, "--explain", explain]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        text(&output.stdout).to_owned()
    };
    let known = view(&before, "write");
    assert!(
        known.contains("\nReplicaSetWithPrimary ") && known.contains(", suitable\n"),
        "{known}"
    );
    let gone = view(&lost, "write");
    assert!(gone.contains("\nReplicaSetNoPrimary "), "{gone}");
    assert!(gone.contains("no server was found for a write"), "{gone}");
    let tags = view(&lost, "secondary&readPreferenceTags=dc:east");
    assert!(tags.contains("without the tags asked for"), "{tags}");
    let json = |explain: &str| -> Value {
        let output = run(&["replay", &path, "--at", &lost, "--explain", explain, "--json"]);
        serde_json::from_slice(&output.stdout).expect("an object")
    };
    let nearest = json("nearest");
    assert_eq!(nearest["view"]["type"], "ReplicaSetNoPrimary");
    assert_eq!(nearest["explanation"]["servers"].as_array().map(Vec::len), Some(3));
    assert_eq!(nearest["explanation"]["error"], Value::Null);
    let error = &json("write")["explanation"]["error"];
    assert_eq!(error["verdict"], "noPrimary", "{error}");
    assert!(error["troubles"].is_array(), "{error}");
    let said = error["text"].as_str().expect("text");
    assert!(said.starts_with("no server was found for a write"), "{error}");
}

#[test]
fn a_selection_without_a_time_is_explained_at_the_end_of_the_trace() {
    let trace = r#"sdam-trace 1
sdam 0
machine topology
options mongodb://127.0.0.1:1
seed 1
+0.000000000 tick
+0.001000000 closed s0.0 {"stage":"connect","cause":"refused","detail":"refused"}
+6.000000000 shutdown
"#;
    let trace = Trace::parse(trace).expect("a trace");
    let whole = Replay::new(&trace).expect("a beginning").rewrite();
    let scratch = Scratch::with("six-seconds", &whole);
    let output = run(&["replay", scratch.path(), "--explain", "write"]);
    let said = text(&output.stdout);
    assert!(said.starts_with("at 6.000 s"), "{said}");
    assert!(said.contains("(1 check failed, for 6.0 s, the next one in 4.0 s)"), "{said}");
}

#[test]
fn a_time_behind_the_end_is_refused_and_the_end_is_named() {
    let path = golden("6.0-kill.trace");
    let output = run(&["replay", &path, "--at", "100000"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = text(&output.stderr);
    let (_, end) = said.split_once(" ends at ").expect("the end");
    let (end, _) = end.split_once(" s, before that time").expect("seconds");
    let shown = run(&["replay", &path, "--at", end]);
    assert_eq!(shown.status.code(), Some(0), "{shown:?}");
}

#[test]
fn a_trace_that_is_cut_off_at_the_end_of_a_line_is_not_said_to_differ() {
    let trace = fs::read_to_string(golden("6.0-discovery.trace")).expect("a trace");
    let calls = trace.lines().enumerate().filter(|(_, line)| line.starts_with('+'));
    let is_followed = |index: usize| trace.lines().nth(index + 1).expect("").starts_with("  >");
    let (call, _) = calls.filter(|(index, _)| is_followed(*index)).nth(3).expect("a call");
    let kept: Vec<&str> = trace.lines().take(call + 1).collect();
    let cut = Scratch::with("cut-line", &(kept.join("\n") + "\n"));
    let output = run(&["replay", cut.path()]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let behind = format!("is cut off behind line {}: ", kept.len());
    assert!(text(&output.stderr).contains(&behind), "{output:?}");
    assert!(text(&output.stdout).contains("replayed exactly until it is cut off"), "{output:?}");
    let shown = run(&["replay", cut.path(), "--explain", "write"]);
    assert_eq!(shown.status.code(), Some(0), "{shown:?}");
    assert!(text(&shown.stderr).contains(&behind), "{shown:?}");
    assert!(text(&shown.stdout).contains("for a write:"), "{shown:?}");
    let stepped = run(&["replay", cut.path(), "--step"]);
    assert!(text(&stepped.stderr).contains(&behind), "{stepped:?}");
}

#[test]
fn bad_times_and_criteria_are_refused_with_what_is_allowed() {
    let path = golden("6.0-kill.trace");
    let cases = [
        ("--at", "soon", "write seconds"),
        ("--at", "-1", "0 or more"),
        ("--explain", "somewhere", "\"somewhere\" is neither write nor primary, "),
        ("--explain", "secondary&readPreferenceTags=dc", "readPreferenceTags must be a list"),
        ("--explain", "nearest&maxStaleness=3", "there is no option \"maxStaleness\""),
    ];
    for (option, value, expected) in cases {
        let output = run(&["replay", &path, option, value]);
        assert_eq!(output.status.code(), Some(2));
        let said = text(&output.stderr);
        assert!(said.contains(expected) && !said.contains("ignored"), "{output:?}");
    }
}

#[test]
fn steps_are_shown_one_for_each_line_of_input() {
    let path = golden("4.4-discovery.trace");
    let step = |input: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sdam"));
        command.args(["replay", &path, "--step"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a process");
        let mut stdin = child.stdin.take().expect("a pipe");
        stdin.write_all(input.as_bytes()).expect("a line");
        drop(stdin);
        text(&child.wait_with_output().expect("the end").stdout).to_owned()
    };
    let two = step("\nq\n");
    let calls = |shown: &str| shown.lines().filter(|line| line.contains("  +")).count();
    assert_eq!(calls(&two), 2, "{two}");
    let all = step("");
    assert!(all.ends_with("the trace ends here, replayed exactly\n"), "{all}");
    assert!(calls(&all) > 9, "{all}");
}

#[test]
fn two_traces_are_compared_by_what_happened_and_not_by_when() {
    let path = golden("5.0-step-down.trace");
    let trace = unsealed(&path);
    let again = Scratch::with("again", &trace);
    let same = run(&["replay", &path, "--diff", again.path()]);
    assert_eq!(same.status.code(), Some(0), "{same:?}");
    assert!(text(&same.stdout).ends_with(" are the same\n"), "{same:?}");
    let other = Scratch::with("other", &trace.replacen("\"RSPrimary\"", "\"RSOther\"", 1));
    let output = run(&["replay", &path, "--diff", other.path()]);
    assert_eq!(output.status.code(), Some(1));
    let shown = text(&output.stdout);
    assert!(shown.matches(", line ").count() == 2 && shown.contains("\"RSOther\""), "{shown}");
}

#[test]
fn a_trace_that_begins_in_the_middle_can_be_stepped_through_only() {
    let trace = unsealed(&golden("6.0-discovery.trace")).replacen("trace 1", "trace 1 tail", 1);
    let scratch = Scratch::with("tail", &trace);
    let output = run(&["replay", scratch.path()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("begins in the middle"), "{output:?}");
    let shown = run(&["replay", scratch.path(), "--step"]);
    assert_eq!(shown.status.code(), Some(0), "{shown:?}");
    assert!(text(&shown.stdout).ends_with("it was not replayed\n"), "{shown:?}");
}

#[test]
fn a_deployment_that_is_not_found_leaves_no_file_and_changes_none() {
    let (free, taken) = (Scratch::with("free", ""), Scratch::with("taken", "a trace"));
    fs::remove_file(free.path()).expect("a file");
    let uri = "mongodb+srv://nowhere.example.invalid";
    for path in [free.path(), taken.path()] {
        let output = run(&["record", uri, "-o", path, "--force"]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
    }
    assert!(!fs::exists(free.path()).expect("an answer"));
    assert_eq!(fs::read_to_string(taken.path()).expect("a file"), "a trace");
}

#[cfg(unix)]
#[test]
fn a_reader_who_has_enough_of_a_recording_ends_it_without_a_complaint() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sdam"));
    command.args(["record", "mongodb://127.0.0.1:1/?heartbeatFrequencyMS=500", "-o", "-"]);
    command.args(["--for", "60s"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("a process");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("a process that ends");
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
}

#[test]
fn a_trace_on_standard_input_is_read_and_without_a_time_the_end_is_before_the_client_closes() {
    let trace = fs::File::open(golden("6.0-discovery.trace")).expect("a trace");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sdam"));
    let output = command.args(["replay", "-", "--explain", "write"]).stdin(trace).output();
    let output = output.expect("a process");
    let shown = text(&output.stdout);
    assert!(shown.contains("ReplicaSetWithPrimary rs") && shown.contains(", suitable"), "{shown}");
}

#[test]
fn operations_that_waited_in_vain_for_different_times_are_the_same_news() {
    let waited = |name, millis: u32| {
        let text = format!(
            r#"sdam-trace 1
sdam 0
machine topology
options mongodb://127.0.0.1:1
seed 1
+0.000000000 tick
+0.000{millis}000 closed s0.0 {{"stage":"connect","cause":"refused","detail":"refused"}}
+0.010000000 wait w1 {{"until":"+0.{millis}000000"}}
+0.{millis}000000 tick
"#
        );
        let trace = Trace::parse(text).expect("a trace");
        Scratch::with(name, &Replay::new(&trace).expect("a beginning").rewrite())
    };
    let (short, long) = (waited("short", 120), waited("long", 250));
    let texts = [&short, &long].map(|trace| fs::read_to_string(trace.path()).expect("a trace"));
    assert!(texts.iter().all(|text| text.contains("\"sinceMS\"")), "{texts:?}");
    let output = run(&["replay", short.path(), "--diff", long.path()]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let changed = Scratch::with("changed-step", &texts[1].replace("a write", "a wrote"));
    let output = run(&["replay", short.path(), "--diff", changed.path()]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn nothing_in_a_trace_is_obeyed_by_a_terminal() {
    let trace = unsealed(&golden("6.0-discovery.trace"));
    let hostile = Scratch::with("hostile", &trace.replacen("> join s0", "> \u{1b}[2Jjoin s0", 1));
    for arguments in [&["replay", hostile.path()][..], &["replay", hostile.path(), "--step"]] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(1));
        assert!(!output.stdout.contains(&0x1b) && !output.stderr.contains(&0x1b), "{output:?}");
    }
}

#[test]
fn a_recording_whose_end_is_missing_is_said_to_end_early() {
    let whole = golden("6.0-discovery.trace");
    let trace = fs::read_to_string(&whole).expect("a trace");
    let (before, _) = trace.split_once(" shutdown ~").expect("a client that is closed");
    let end = before.rfind('\n').expect("more than a line") + 1;
    let cut = Scratch::with("cut", &trace[..end]);
    let output = run(&["replay", cut.path()]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = text(&output.stdout);
    assert!(said.ends_with("replayed exactly; it ends before the client was closed\n"), "{said}");
    for (path, closed) in [(cut.path(), false), (&*whole, true)] {
        let output = run(&["replay", path, "--json"]);
        let object: Value = serde_json::from_slice(&output.stdout).expect("an object");
        assert_eq!(object["closed"], closed);
    }
}
