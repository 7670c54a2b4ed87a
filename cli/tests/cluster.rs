//! `sdam cluster` as a process: its flags, its scenario file, its lines, and its end.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// How long anything may take; a run that hangs ends by itself, and so fails.
const LIMIT: &str = "60s";

fn sdam(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sdam"));
    command.arg("cluster").args(arguments).stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    sdam(arguments).output().expect("a process")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

/// A file of this process among the build's own.
fn file(name: &str, content: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, content).expect("a file");
    path
}

/// A deployment that prints JSON.
struct Running {
    process: Child,
    out: BufReader<ChildStdout>,
}

impl Running {
    fn start(arguments: &[&str]) -> Self {
        let mut command = sdam(&["--json", "--for", LIMIT, "--election-timeout", "200ms"]);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("a process");
        let out = BufReader::new(process.stdout.take().expect("a pipe"));
        Self { process, out }
    }

    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("a line");
        assert!(!line.is_empty(), "it has ended");
        serde_json::from_str(&line).expect("an object")
    }

    /// Reads on until there is such an event.
    fn wait_for(&mut self, event: &str) -> Value {
        loop {
            let next = self.next();
            if next["event"] == event {
                return next;
            }
        }
    }

    fn say(&mut self, line: &str) {
        writeln!(self.process.stdin.as_mut().expect("a pipe"), "{line}").expect("it reads");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended before.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn flags_that_make_no_deployment_are_answered_by_one_line_and_exit_code_2() {
    let cases: [(&[&str], &str); 8] = [
        (&["--members", "8"], "sdam: --members 8; from 1 to 7 are allowed"),
        (&["--mongos", "0"], "sdam: --mongos 0; from 1 to 26 are allowed"),
        (&["--arbiter", "d"], "sdam: --arbiter d: there are the members a to c"),
        (&["--mongos", "2", "--hidden", "a"], "sdam: --hidden is about members of a replica set"),
        (&["--user", "app"], "sdam: --user app has no password; write NAME:PASSWORD"),
        (&["--user", "app:"], "sdam: cannot start the deployment: the password of the user"),
        (&["--hidden", "a", "--priority", "a=1"], "sdam: cannot start the deployment: 127.0.0.1:"),
        (&["--tls", "/nowhere.pem"], "sdam: --tls /nowhere.pem: cannot read the certificate"),
    ];
    for (arguments, expected) in cases {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let complaint = text(&output.stderr);
        assert_eq!(complaint.lines().count(), 1, "{complaint}");
        assert!(complaint.starts_with(expected), "{complaint}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn a_bad_scenario_is_answered_with_its_file_its_line_and_what_is_allowed() {
    let path = file("bad.scenario", "# begin\n5s kill z\n");
    let path = path.to_str().expect("text");
    let output = run(&["--scenario", path]);
    assert_eq!(output.status.code(), Some(2));
    let expected = format!("sdam: {path}:2: there is no member z; there are a to c then\n");
    assert_eq!(text(&output.stderr), expected);
}

#[test]
fn the_first_line_is_the_connection_string() {
    let output = run(&["--for", "100ms", "--set", "play", "--members", "2"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let first = text(&output.stdout).lines().next().expect("a line");
    assert!(first.starts_with("mongodb://127.0.0.1:"), "{first}");
    assert!(first.ends_with("/?replicaSet=play"), "{first}");
    assert_eq!(first.matches(',').count(), 1, "{first}");
}

#[test]
fn a_scenario_is_played_and_told() {
    let path = file("good.scenario", "0ms list\n1s kill primary\n4s quit\n");
    let mut running = Running::start(&["--scenario", path.to_str().expect("text")]);
    assert_eq!(running.next()["event"], "ready");
    let first = running.wait_for("elected");
    assert_eq!(first["term"], 1);
    let killed = running.wait_for("ended");
    assert_eq!(killed["member"], first["member"]);
    let second = running.wait_for("elected");
    assert_eq!(second["term"], 2);
    assert_ne!(second["member"], first["member"]);
    let begun = Instant::now();
    assert_eq!(running.process.wait().expect("the end").code(), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(30), "it quits by itself");
}

#[test]
fn lines_on_standard_input_are_steps() {
    let mut running = Running::start(&[]);
    running.wait_for("elected");
    running.say("kill z");
    let refused = running.wait_for("refused");
    let reason = refused["reason"].as_str().expect("text");
    assert!(reason.contains("there is no member z; there are a to c then"), "{reason}");
    running.say("add d");
    assert_eq!(running.wait_for("done")["step"], "add d");
    running.say("cut primary from the rest");
    assert_eq!(running.wait_for("done")["step"], "cut primary from the rest");
    let elected = running.wait_for("elected");
    running.say("list");
    let members = running.wait_for("members");
    let name = elected["member"].as_str().expect("a name");
    let what = members["members"][name].as_str().expect("what it is");
    assert!(what.starts_with("primary at 127.0.0.1:"), "{members}");
    running.say("quit");
    assert_eq!(running.process.wait().expect("the end").code(), Some(0));
}

#[test]
fn flags_describe_the_members() {
    let flags = ["--priority", "b=2", "--arbiter", "c", "--members", "4", "--hidden", "d"];
    let mut running = Running::start(&flags);
    while running.wait_for("elected")["member"] != "b" {}
    running.say("list");
    let members = running.wait_for("members")["members"].clone();
    let expected = [("a", "secondary"), ("b", "primary"), ("c", "arbiter"), ("d", "hidden")];
    for (name, what) in expected {
        let said = members[name].as_str().expect("what it is");
        assert!(said.starts_with(what), "{members}");
    }
}

#[test]
fn users_certificates_and_watchers_go_together() {
    let ca_file = file("ca.pem", "");
    let ca_file = ca_file.to_str().expect("text");
    let mut running = Running::start(&["--user", "app:sesame", "--tls-self-signed", ca_file]);
    let ready = running.next();
    let uri = ready["uri"].as_str().expect("text");
    assert!(uri.contains("tls=true&tlsCAFile=/"), "{uri}");
    assert!(!ready.to_string().contains("sesame"), "{ready}");
    let mut watch = Command::new(env!("CARGO_BIN_EXE_sdam"));
    watch.args(["watch", "--json", "--for", LIMIT, uri]).stdout(Stdio::piped());
    let mut watch = watch.spawn().expect("a process");
    let out = BufReader::new(watch.stdout.take().expect("a pipe"));
    let mut lines = out.lines().map(|line| line.expect("text"));
    assert!(lines.any(|line| line.contains("RSPrimary")), "through TLS it sees the primary");
    drop(lines);
    watch.kill().expect("it runs");
    watch.wait().expect("the end");
    let greeted = running.wait_for("greeted");
    assert!(greeted["driver"].as_str().is_some_and(|it| it.contains("sdam")), "{greeted}");
}

#[cfg(unix)]
#[test]
fn sigterm_ends_it_with_exit_code_0() {
    let mut running = Running::start(&[]);
    running.next();
    let id = running.process.id().to_string();
    let killed = Command::new("kill").args(["-TERM", &id]).status();
    assert!(killed.expect("kill").success());
    assert_eq!(running.process.wait().expect("the end").code(), Some(0));
}
