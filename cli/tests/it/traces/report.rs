//! `sdam report` as a process: traces, logs and a deployment as pages and as text. What a page
//! looks like, `tests/browser` asks a browser.

use std::fmt::Write as _;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use sdam_conformance::refusal::RefusingPort;
use serde_json::{Value, json};

use super::support::{Scratch, golden, run, text};

/// Makes a page, and returns it with the report in it.
fn page_of(source: &str) -> (String, Value) {
    let made = run(&["report", source, "-o", "-"]);
    assert_eq!(made.status.code(), Some(0), "{source}: {}", text(&made.stderr));
    let page = text(&made.stdout).to_owned();
    let data = page.split_once("id=\"data\">").and_then(|(_, rest)| rest.split_once("</script>"));
    let report = serde_json::from_str(data.expect("a report in the page").0).expect("JSON");
    (page, report)
}

/// A trace without its checksums, so that it may be changed.
fn unsealed(path: &str) -> String {
    let text = fs::read_to_string(path).expect("a trace");
    let lines = text.lines().map(|line| match line.rsplit_once(" ~") {
        Some((line, _)) => format!("{line}\n"),
        None => line.replace(" sealed", "") + "\n",
    });
    lines.collect()
}

fn array<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value[name].as_array().map_or(&[], Vec::as_slice)
}

/// The verdicts on writes, but for what goes without saying: their names, or `works`.
fn verdicts(report: &Value) -> Vec<&str> {
    let printed = array(report, "writes").iter().map(|it| &it["fault"]);
    let printed = printed.filter(|fault| fault["expected"] != true);
    printed.map(|fault| fault["verdict"].as_str().unwrap_or("works")).collect()
}

#[test]
fn a_report_says_what_the_lines_of_its_trace_do() {
    let path = golden("6.0-kill.trace");
    let (_, report) = page_of(&path);
    let trace = unsealed(&path);
    let count = |part: &str| trace.lines().filter(|line| line.contains(part)).count();
    let of_lanes = |name: &str| -> Vec<Value> {
        array(&report, "lanes").iter().flat_map(|lane| array(lane, name).to_vec()).collect()
    };
    let checks = of_lanes("checks");
    let failed = checks.iter().filter(|check| !check["failure"].is_null()).count();
    assert_eq!(checks.len() - failed, count(r#""event":"serverHeartbeatSucceeded""#));
    let canceled = count(r#""cause":"canceled""#);
    assert_eq!(failed, count(r#""event":"serverHeartbeatFailed""#) - canceled);
    assert_eq!(of_lanes("clears").len(), count("  > pool s1 clear"));
    for check in &checks {
        let line = usize::try_from(check["line"].as_u64().expect("a number")).expect("a line");
        let printed = trace.lines().nth(line - 1).expect("the line");
        assert!(printed.contains("serverHeartbeat"), "{check}: {printed}");
    }
    let primaries: Vec<Option<&str>> =
        array(&report, "primaries").iter().map(|it| it["primary"].as_str()).collect();
    assert_eq!(primaries, [None, Some("127.0.0.1:28357"), None, Some("127.0.0.1:27378")]);
    assert_eq!(verdicts(&report), ["works", "noPrimary", "works"]);
}

#[test]
fn every_kept_incident_is_reported_without_a_gap() {
    for kind in ["discovery", "freeze", "kill", "reconfig", "step-down"] {
        let (page, report) = page_of(&golden(&format!("6.0-{kind}.trace")));
        for judged in ["writes", "reads"] {
            let judged = array(&report, judged);
            assert!(judged.windows(2).all(|pair| pair[0]["toMS"] == pair[1]["fromMS"]), "{kind}");
            assert_eq!(judged.last().expect("some")["toMS"], report["endMS"], "{kind}");
        }
        let has_gap = matches!(kind, "freeze" | "kill" | "step-down");
        let outages = page.matches("<h3>Writes failed for ").count();
        assert_eq!(outages, usize::from(has_gap), "{kind}");
    }
}

#[test]
fn a_page_loads_nothing_and_has_no_secrets() {
    let refusing = RefusingPort::new().expect("a free port");
    let port = refusing.address().port();
    let scratch = Scratch::new("report.html");
    let uri = format!("mongodb://planted:sesame@127.0.0.1:{port}/?heartbeatFrequencyMS=500");
    let made = run(&["report", &uri, "--for", "5s", "-o", scratch.path()]);
    assert_eq!(made.status.code(), Some(0), "{}", text(&made.stderr));
    let page = fs::read_to_string(scratch.path()).expect("a page");
    assert!(!page.contains("planted") && !page.contains("sesame"), "{page}");
    assert!(page.contains("default-src &#39;none&#39;") || page.contains("default-src 'none'"));
    for asking in ["src=", "url(", "@import", "http://", "https://", "fetch(", "<link"] {
        assert!(!page.contains(asking), "{asking} is in the page");
    }
    assert!(page.contains("No write would have found a server in all "), "{page}");
    assert!(page.contains("every server refused the connection"), "{page}");
}

#[test]
fn nothing_is_overwritten_unasked_and_text_goes_to_standard_output() {
    let scratch = Scratch::with("report-exists.html", "precious");
    let trace = golden("6.0-kill.trace");
    let refused = run(&["report", &trace, "-o", scratch.path()]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).ends_with(": it exists; --force replaces it\n"), "{refused:?}");
    assert_eq!(fs::read_to_string(scratch.path()).expect("the file"), "precious");
    let forced = run(&["report", &trace, "-o", scratch.path(), "--force"]);
    assert_eq!(forced.status.code(), Some(0), "{forced:?}");
    assert!(fs::read_to_string(scratch.path()).expect("a page").starts_with("<!doctype html>"));
    let shown = run(&["report", &trace, "--text"]);
    assert_eq!(shown.status.code(), Some(0), "{shown:?}");
    let shown = text(&shown.stdout);
    assert!(shown.contains("27.0.0.1:28357 was primary until +0.058 s"), "{shown}");
    let lane = |name: &str| shown.lines().rfind(|line| line.starts_with(name)).expect("a lane");
    let writes = lane("writes").trim_start_matches("writes").trim();
    let failing = writes.trim_matches('+');
    assert!(failing.len() > 20 && failing.bytes().all(|it| it == b'x'), "{writes}");
    assert!(lane("127.0.0.1:28357").contains("x╌╌╌") && lane("primary").contains("none╌╌"));
    assert!(shown.lines().all(|line| !line.contains('\u{1b}')), "{shown}");
    let colored = run(&["--color", "always", "report", &trace, "--text"]);
    assert!(text(&colored.stdout).contains("\u{1b}[31m"), "{colored:?}");
}

#[test]
fn what_makes_no_sense_is_refused_by_name() {
    let trace = golden("6.0-kill.trace");
    let empty = Scratch::with("report-empty", "");
    let changed = Scratch::with("report-changed", "sdam-trace 2\nsdam 0.1.0\nmachine toaster\n");
    let timeless = Scratch::with(
        "report-timeless",
        "{\"event\":\"topologyOpening\"}\n{\"event\":\"serverOpening\",\"address\":\"a:1\"}\n",
    );
    for (arguments, said) in [
        (vec![&*trace], "required arguments were not provided"),
        (vec!["/nowhere/at.all", "-o", "-"], "cannot read /nowhere/at.all: No such file"),
        (vec![empty.path(), "-o", "-"], "no line is about a topology; and it is no trace"),
        (vec![changed.path(), "-o", "-"], "line 3"),
        (vec![timeless.path(), "-o", "-"], "no line has a time"),
        (vec![&*trace, "--for", "1s", "-o", "-"], "--for is for a deployment, which "),
        (vec![&*trace, "--map", "a=b", "-o", "-"], "--map is for a deployment, which "),
        (vec![&*trace, "--topology", "x", "-o", "-"], "--topology is for a log, which "),
        (vec!["mongodb://[", "-o", "-"], "sdam: "),
    ] {
        let output = run(&[&["report"], &arguments[..]].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        assert!(text(&output.stderr).contains(said), "{arguments:?}: {}", text(&output.stderr));
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn logs_of_drivers_are_reports_too() {
    let folder = format!("{}/../conformance/logs", env!("CARGO_MANIFEST_DIR"));
    for name in ["pymongo-6.0", "node-6.0", "rust-6.0", "go-6.0", "sdam-6.0"] {
        let (page, report) = page_of(&format!("{folder}/{name}.jsonl"));
        let primaries = array(&report, "primaries");
        let named: Vec<&str> = primaries.iter().filter_map(|it| it["primary"].as_str()).collect();
        assert_eq!(named.len(), 3, "{name}: {named:?}");
        assert_eq!(primaries.last().expect("one")["toMS"], report["endMS"], "{name}");
        let wanted = ["works", "noPrimary", "works", "noPrimary", "works"];
        assert_eq!(verdicts(&report), wanted, "{name}");
        assert!(page.contains("A log does not say") || page.contains("a log does not say"));
    }
    let path = format!("{folder}/node-6.0.jsonl");
    let wrong = run(&["report", &path, "--topology", "another", "-o", "-"]);
    assert_eq!(wrong.status.code(), Some(2));
    let said = text(&wrong.stderr);
    assert!(said.contains("there is no topology \"another\"; there are \"0\""), "{said}");
}

#[test]
fn a_log_comes_by_standard_input_too() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sdam"));
    command.args(["report", "-", "--text"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = command.spawn().expect("a process");
    let trace = fs::read(golden("4.4-kill.trace")).expect("a trace");
    process.stdin.take().expect("a pipe").write_all(&trace).expect("it is read");
    let output = process.wait_with_output().expect("the end");
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).contains("standard input: 189 lines"), "{output:?}");
}

#[test]
fn what_cannot_be_replayed_is_shown_with_a_note() {
    let whole = unsealed(&golden("6.0-kill.trace"));
    let tail = whole.replacen("sdam-trace 1", "sdam-trace 1 tail", 1);
    let otherwise = whole.replacen("publish ReplicaSetWithPrimary", "publish Sharded", 1);
    let (cut, _) = whole.rsplit_once("  > pool").expect("a last one");
    let input = whole.lines().rfind(|line| line.contains(" received s0.0 ")).expect("an input");
    let (time, _) = input.split_once(' ').expect("a time");
    let gap = whole.replacen(input, &format!("{time} omitted 48000000 received s0.0"), 1);
    let (before, _) = whole.split_once("\n+").expect("a first call");
    let scratch = Scratch::with("report-short", before);
    let (page, report) = page_of(scratch.path());
    assert!(page.contains("No server had answered when it ended."), "{page}");
    assert!(array(&report, "lanes").is_empty(), "{report}");
    for (content, note) in [
        (&*tail, "the trace begins in the middle"),
        (&*otherwise, "this version does otherwise than line "),
        (cut, "the trace is cut off: "),
        (&*gap, "where an input was too long to be kept"),
    ] {
        let scratch = Scratch::with("report-noted", content);
        let (page, report) = page_of(scratch.path());
        assert!(page.contains(note), "{note} is not in the page");
        assert!(verdicts(&report).contains(&"noPrimary"), "{:?}", verdicts(&report));
        let spans = &array(&report, "lanes")[2]["spans"];
        assert!(spans.to_string().contains("\"failing\""), "{spans}");
    }
}

#[test]
fn secrets_in_a_log_are_neither_in_its_page_nor_in_its_text() {
    let mut log = String::new();
    let mut line = |millis: u64, object: Value| {
        let _ = writeln!(log, "{{\"elapsedMs\":{millis},{}", &object.to_string()[1..]);
    };
    let of_db1 = |event: &str, more: Value| {
        let mut object = json!({ "event": event, "serverHost": "db1", "serverPort": 27017 });
        let fields = more.as_object().cloned().unwrap_or_default();
        object.as_object_mut().expect("an object").extend(fields);
        object
    };
    line(0, json!({ "event": "topologyOpening" }));
    line(0, of_db1("serverOpening", json!({})));
    for (at, failure) in [
        (10, "cannot log in to mongodb://me:sesame@db1.example:27017/?tls=true"),
        (20, "refused: {\"user\": \"me\", \"password\": \"sesame\"}"),
        (30, "refused: pwd='open sesame' authToken=sesame"),
    ] {
        let secrets = json!({ "password": "sesame", "options": { "clientSecret": ["sesame"] } });
        let mut failed = of_db1("serverHeartbeatFailed", secrets);
        failed["failure"] = failure.into();
        failed["awaited"] = false.into();
        line(at, failed);
    }
    let address = "mongodb://me:sesame@db2.example/";
    line(40, json!({ "event": "serverOpening", "address": address }));
    let escaped = log.replacen("mongodb://", "mongodb:\\/\\/", 1);
    let scratch = Scratch::with("report-secrets", &escaped);
    let (page, report) = page_of(scratch.path());
    assert_eq!(array(&array(&report, "lanes")[0], "checks").len(), 3, "{report}");
    assert!(page.contains("cannot log in to mongodb://…@db1.example:27017/?tls=true"), "{page}");
    assert!(page.contains("mongodb:\\/\\/…@db1.example"), "no line as it is");
    let shown = run(&["report", scratch.path(), "--text"]);
    assert_eq!(shown.status.code(), Some(0), "{shown:?}");
    for printed in [&*page, text(&shown.stdout), text(&shown.stderr)] {
        assert!(printed.lines().all(|line| !line.contains("sesame")), "{printed}");
    }
    assert!(text(&shown.stdout).contains("refused: pwd='…' authToken=…"), "{shown:?}");
}

#[test]
fn a_long_log_makes_a_page_of_moderate_size_that_says_what_is_left_out() {
    let mut log = String::new();
    let mut line = |millis: u64, event: &str, more: Value| {
        let mut object = json!({ "elapsedMs": millis, "event": event, "address": "a:1" });
        object
            .as_object_mut()
            .expect("an object")
            .extend(more.as_object().cloned().unwrap_or_default());
        let _ = writeln!(log, "{object}");
    };
    line(0, "topologyOpening", json!({}));
    line(0, "serverOpening", json!({}));
    for round in 0..5000 {
        let kind = |round: u64| if round.is_multiple_of(2) { "Standalone" } else { "Unknown" };
        line(round * 10, "serverHeartbeatStarted", json!({ "awaited": false }));
        line(round * 10 + 1, "serverHeartbeatSucceeded", json!({ "awaited": false }));
        let changed = json!({ "previousDescription": { "address": "a:1", "type": kind(round + 1) },
            "newDescription": { "address": "a:1", "type": kind(round) } });
        line(round * 10 + 1, "serverDescriptionChanged", changed);
    }
    let scratch = Scratch::with("report-long", &log);
    let (page, report) = page_of(scratch.path());
    assert!(page.len() < 2_500_000, "{} bytes", page.len());
    let lane = &array(&report, "lanes")[0];
    assert!(array(lane, "spans").len() <= 1000 && array(lane, "checks").len() <= 1000);
    assert!(page.contains(" of 5000 checks of a:1 are shown"), "no word of it");
    assert!(page.contains(" events are shown"), "no word of it");
}
