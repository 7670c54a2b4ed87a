//! `sdam watch` as a process: its exit codes, and what comes out of its pipes.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;

use sdam_cluster::{EmbeddedCluster, EmbeddedOptions};
use sdam_conformance::refusal::RefusingPort;
use serde_json::Value;

/// An address at which nothing listens as long as this process runs.
fn nowhere() -> SocketAddr {
    static PORT: LazyLock<RefusingPort> =
        LazyLock::new(|| RefusingPort::new().expect("a free port"));
    PORT.address()
}

/// Returns the connection string of a server that refuses all connections.
fn nowhere_uri() -> String {
    format!("mongodb://{}/", nowhere())
}

fn sdam(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sdam"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    sdam(arguments).output().expect("a process")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

#[cfg(unix)]
fn terminate(process: &Child) {
    kill(process, "-TERM");
}

#[cfg(unix)]
fn kill(process: &Child, signal: &str) {
    let killed = Command::new("kill").args([signal, &process.id().to_string()]).status();
    assert!(killed.expect("kill").success());
}

/// Watches until as many lines were printed as are `wanted`, and returns all of them.
#[cfg(unix)]
fn watch_until(arguments: &[&str], wanted: impl Fn(&[String]) -> bool) -> Vec<String> {
    let mut watch =
        sdam(&["watch"]).args(arguments).stdout(Stdio::piped()).spawn().expect("a process");
    let out = BufReader::new(watch.stdout.take().expect("a pipe"));
    let (mut lines, mut shown) = (out.lines().map(|line| line.expect("text")), Vec::new());
    while !wanted(&shown) {
        shown.push(lines.next().expect("another line"));
    }
    terminate(&watch);
    shown.extend(lines);
    assert_eq!(watch.wait().expect("the end").code(), Some(0), "{shown:#?}");
    shown
}

#[test]
fn a_bad_connection_string_is_answered_by_one_line_and_exit_code_2() {
    for uri in ["localhost", "mongodb://a,b/?directConnection=true"] {
        let output = run(&["watch", uri]);
        assert_eq!(output.status.code(), Some(2), "{uri}");
        let complaint = text(&output.stderr);
        assert_eq!(complaint.lines().count(), 1, "{complaint}");
        assert!(complaint.starts_with("sdam: "), "{complaint}");
        assert!(output.stdout.is_empty(), "{uri}");
    }
}

#[test]
fn no_password_is_ever_printed() {
    let right = format!("mongodb://me:sesame@{}/?nonsense=1", nowhere());
    let wrong = format!("mongodb://me:sesame@x@{}/", nowhere());
    let cases: [&[&str]; 5] = [
        &["watch", "--for", "50ms", &right],
        &["watch", &wrong],
        &[&right],
        &["watch", "mongodb://a", &right],
        &["watch", "--for", &right],
    ];
    for arguments in cases {
        let output = run(arguments);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(!err.is_empty(), "{arguments:?}");
        assert!(!out.contains("sesame") && !err.contains("sesame"), "{out}{err}");
    }
}

#[test]
fn a_bad_duration_is_refused_with_what_is_allowed() {
    let output = run(&["watch", "--for", "5x", "mongodb://a"]);
    assert_eq!(output.status.code(), Some(2));
    let complaint = text(&output.stderr);
    assert!(complaint.contains("(ms, s, m or h)"), "{complaint}");
}

#[test]
fn a_bad_map_is_answered_by_one_sentence_and_exit_code_2() {
    let cases = [
        ("db1", "sdam: --map: \"db1\" has no =; write FROM=TO, as in "),
        ("db1=a:b", "sdam: --map: \"a:b\" cannot be dialled: the port \"b\" is not a number"),
        ("db1=*", "sdam: --map: the * in \"*\" stands for nothing"),
    ];
    for (rule, expected) in cases {
        let output = run(&["watch", "--map", "fine=a", "--map", rule, "mongodb://a"]);
        assert_eq!(output.status.code(), Some(2), "{rule}");
        let complaint = text(&output.stderr);
        assert_eq!(complaint.lines().count(), 1, "{complaint}");
        assert!(complaint.starts_with(expected), "{complaint}");
        assert!(output.stdout.is_empty(), "{rule}");
    }
}

#[cfg(unix)]
#[test]
fn a_mapped_server_is_shown_by_what_it_advertises_and_its_failures_by_both() {
    let dialled = nowhere();
    let map = format!("*.invalid={dialled}");
    let failure = |line: &String| line.contains("heartbeat failed after");
    let arguments = ["--map", &map, "mongodb://db1.invalid"];
    let shown = watch_until(&arguments, |shown| shown.iter().any(failure)).join("\n");
    assert!(shown.starts_with("watching db1.invalid:27017 since"), "{shown}");
    let failed = format!("dialled as {dialled}: Connection refused");
    assert!(shown.contains(&failed), "{shown}");
}

#[test]
fn after_its_time_the_watch_prints_the_closing_events_and_fails_if_there_was_no_server() {
    let output = run(&["watch", "--for", "6s", &nowhere_uri()]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let cause = "sdam: no server was found in 6.00 s: every server refused the connection; check the ports, and that the servers run\n";
    assert_eq!(text(&output.stderr), cause);
    let lines: Vec<&str> = text(&output.stdout).lines().collect();
    assert!(lines[0].starts_with("watching 127.0.0.1:"), "{lines:#?}");
    assert!(lines[1].ends_with("topology              opening"), "{lines:#?}");
    let failed = |line: &&str| line.contains("heartbeat failed after");
    assert!(lines.iter().any(failed), "{lines:#?}");
    assert!(!lines.iter().any(|line| line.contains("canceled")), "{lines:#?}");
    assert!(lines[lines.len() - 1].ends_with("topology              closed"));
}

#[test]
fn a_load_balancer_without_monitors_is_asked() {
    let uri = nowhere_uri() + "?loadBalanced=true";
    let output = run(&["watch", "--for", "6s", &uri]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = text(&output.stderr);
    assert!(said.starts_with("sdam: no server was found in 6.00 s: the load balancer "), "{said}");
    assert!(said.contains("Connection refused") && said.lines().count() == 1, "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_load_balancer_that_answers_is_a_server() {
    let mongos = EmbeddedCluster::start(EmbeddedOptions::load_balanced(1)).await.expect("it runs");
    let uri = format!("mongodb://{}/?loadBalanced=true", mongos.addresses()[0]);
    let output = run(&["watch", "--for", "6s", &uri]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn a_watch_that_has_found_a_server_ends_with_0_after_its_time() {
    let output = run(&["watch", "--for", "10s"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn hosts_that_were_not_found_in_time_are_an_error_and_not_silence() {
    for command in [&["watch"][..], &["record", "-o", "-"]] {
        let uri = "mongodb+srv://nowhere.example.invalid";
        let output = run(&[command, &["--for", "1ms", uri]].concat());
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = text(&output.stderr);
        assert!(said.contains("SRV records of") && said.contains("nowhere.example"), "{said}");
    }
}

#[cfg(unix)]
#[test]
fn json_lines_have_both_times_and_span_opening_to_closing() {
    // The second heartbeat is far away when the first has failed and all of that is printed.
    let uri = nowhere_uri() + "?heartbeatFrequencyMS=600000";
    let lines = watch_until(&["--json", &uri], |shown| shown.len() == 7);
    let events: Vec<Value> =
        lines.iter().map(|line| serde_json::from_str(line).expect("an object")).collect();
    let mut last = 0.0;
    for event in &events {
        let elapsed = event["elapsedMs"].as_f64().expect("a number");
        assert!(elapsed >= last, "time went back: {event}");
        last = elapsed;
        let time: Result<jiff::Timestamp, _> = event["time"].as_str().expect("text").parse();
        assert!(time.is_ok(), "{event}");
    }
    let kinds: Vec<&str> = events.iter().filter_map(|event| event["event"].as_str()).collect();
    let expected = [
        "topologyOpening",
        "topologyDescriptionChanged",
        "serverOpening",
        "serverHeartbeatStarted",
        "serverHeartbeatFailed",
        "serverDescriptionChanged",
        "topologyDescriptionChanged",
        "serverClosed",
        "topologyDescriptionChanged",
        "topologyClosed",
    ];
    assert_eq!(kinds, expected);
}

#[test]
fn a_reader_that_goes_away_ends_the_watch_quietly() {
    let uri = nowhere_uri() + "?heartbeatFrequencyMS=500";
    let mut watch = sdam(&["watch", "--json", &uri])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a process");
    let mut first = String::new();
    let out = watch.stdout.take().expect("a pipe");
    BufReader::with_capacity(1, out).read_line(&mut first).expect("a line");
    assert!(first.contains("topologyOpening"), "{first}");
    // The output is not read any more: a line of the next heartbeat ends it.
    let status = watch.wait().expect("the end");
    assert_eq!(status.code(), Some(0));
    let mut complaint = String::new();
    let mut stderr = watch.stderr.take().expect("a pipe");
    stderr.read_to_string(&mut complaint).expect("text");
    assert_eq!(complaint, "");
}

#[cfg(unix)]
#[test]
fn sigterm_ends_the_watch_like_its_time() {
    let mut watch =
        sdam(&["watch", &nowhere_uri()]).stdout(Stdio::piped()).spawn().expect("a process");
    let mut out = BufReader::new(watch.stdout.take().expect("a pipe"));
    let mut first = String::new();
    out.read_line(&mut first).expect("a line");
    terminate(&watch);
    let mut rest = String::new();
    out.read_to_string(&mut rest).expect("text");
    assert_eq!(watch.wait().expect("the end").code(), Some(0));
    assert!(rest.ends_with("topology              closed\n"), "{rest}");
}

/// Starts a watch that says more than a pipe holds, and reads no more than its first byte.
#[cfg(unix)]
fn unread() -> Child {
    let port = nowhere().port();
    let seeds: Vec<String> = (1..=250).map(|host| format!("127.0.0.{host}:{port}")).collect();
    let uri = format!("mongodb://{}/?heartbeatFrequencyMS=500", seeds.join(","));
    let mut watch = sdam(&["watch", "--json", &uri])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a process");
    let mut byte = [0];
    let out = watch.stdout.as_mut().expect("a pipe");
    out.read_exact(&mut byte).expect("the first byte");
    watch
}

#[cfg(unix)]
#[test]
fn a_second_signal_ends_at_once_what_the_first_has_not() {
    let mut watch = unread();
    // Two of one kind may arrive as one.
    terminate(&watch);
    kill(&watch, "-INT");
    let code = watch.wait().expect("the end").code();
    assert!(matches!(code, Some(130 | 143)), "{code:?}");
    let mut complaint = String::new();
    let mut stderr = watch.stderr.take().expect("a pipe");
    stderr.read_to_string(&mut complaint).expect("text");
    assert_eq!(complaint, "");
}

#[cfg(unix)]
#[test]
fn a_recording_that_is_interrupted_is_whole() {
    let path = format!("{}/interrupted.trace", env!("CARGO_TARGET_TMPDIR"));
    let mut record = sdam(&["record", "-o", "-", &nowhere_uri()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let mut out = BufReader::new(record.stdout.take().expect("a pipe"));
    let mut trace = String::new();
    // What is emitted of the first failure is in the same call as the failure.
    while !trace.contains("HeartbeatFailed") {
        assert_ne!(out.read_line(&mut trace).expect("a line"), 0, "{trace}");
    }
    kill(&record, "-INT");
    out.read_to_string(&mut trace).expect("text");
    assert_eq!(record.wait().expect("the end").code(), Some(0));
    std::fs::write(&path, trace).expect("a file");
    let replayed = run(&["replay", &path]);
    assert_eq!(replayed.status.code(), Some(0), "{replayed:?}");
    let said = text(&replayed.stdout);
    assert!(said.ends_with("replayed exactly\n"), "it was not closed: {said}");
}

#[cfg(unix)]
#[test]
fn sigterm_ends_even_a_watch_that_is_not_read() {
    let mut watch = unread();
    terminate(&watch);
    assert_eq!(watch.wait().expect("the end").code(), Some(1));
    let mut complaint = String::new();
    let mut stderr = watch.stderr.take().expect("a pipe");
    stderr.read_to_string(&mut complaint).expect("text");
    assert!(complaint.contains("because it is not read"), "{complaint}");
}
