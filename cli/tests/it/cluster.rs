//! `sdam cluster` as a process: its flags, its scenario file, its lines, and its end.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use sdam_core::bson::rawdoc;
use sdam_core::wire::{Flags, write_op_msg};
use serde_json::Value;

/// The time that anything may take; a run that hangs ends by itself, and so fails.
const LIMIT: &str = "300s";

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
        let mut command = sdam(&["--json", "--for", LIMIT, "--election-timeout", "1s"]);
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
    let cases: [(&[&str], &str); 12] = [
        (&["--members", "8"], "sdam: --members 8; from 1 to 7 are allowed"),
        (&["--mongos", "0"], "sdam: --mongos 0; from 1 to 26 are allowed"),
        (&["--arbiter", "d"], "sdam: --arbiter d: unknown member; use a to c"),
        (&["--mongos", "2", "--hidden", "a"], "sdam: --hidden is about members of a replica set"),
        (&["--user", "app"], "sdam: --user app has no password; write NAME:PASSWORD"),
        (&["--user", "app:"], "sdam: cannot start the deployment: the password of the user"),
        (&["--hidden", "a", "--priority", "a=1"], "sdam: --priority a=1: a is hidden, and only 0"),
        (&["--tag", "a=x:1", "--tag", "a=x:2"], "sdam: --tag a=x:…: a has two tags \"x\""),
        (
            &["--user", "app", "--password-file", "/dev/zero"],
            "sdam: --password-file /dev/zero: more",
        ),
        (&["--scenario", "/dev/zero"], "sdam: /dev/zero: more than 1048576 bytes; at most"),
        (&["--tls", "/dev/zero"], "sdam: --tls /dev/zero: cannot read the certificate"),
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
fn bytes_that_are_no_text_are_answered_with_their_line() {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bytes.scenario");
    fs::write(&path, b"# begin\n1s list\n2s kill \xff\n").expect("a file");
    let output = run(&["--scenario", path.to_str().expect("text")]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).ends_with(":3: the scenario is not UTF-8\n"));
}

#[test]
fn the_connection_string_leads_to_a_set_of_any_name_and_port_0_means_free_ones() {
    let output = run(&["--for", "0s", "--set", "a&b c/%é", "--port", "0", "--members", "2"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let uri = text(&output.stdout).lines().next().expect("a line");
    assert!(uri.ends_with("/?replicaSet=a%26b%20c/%25%C3%A9"), "{uri}");
    let hosts = uri.trim_start_matches("mongodb://").split('/').next().expect("hosts");
    for host in hosts.split(',') {
        let port: u16 = host.rsplit(':').next().and_then(|it| it.parse().ok()).expect("a port");
        assert!(port > 1023, "{uri}");
    }
    let (first, second) = hosts.split_once(',').expect("two hosts");
    let members = text(&output.stdout).lines().nth(1).expect("another line");
    assert!(members.ends_with(&format!("s  a is {first}, b is {second}")), "{members}");
}

#[test]
fn a_step_that_would_change_nothing_is_refused_with_its_reason() {
    let mut running = Running::start(&[]);
    running.wait_for("elected");
    let steps = [
        ("thaw a", Some("a is not frozen")),
        ("heal a", Some("a is not cut off")),
        ("start a", Some("a is up")),
        ("freeze a", None),
        ("freeze a", Some("a is frozen already")),
        ("kill a", None),
        ("kill a", Some("a is down")),
        ("shutdown a", Some("a is down")),
        ("freeze a", Some("a is down")),
        ("start a", None),
        ("cut a from the rest", None),
        ("cut a from the rest", Some("a is cut off already")),
        ("heal a", None),
    ];
    for (step, reason) in steps {
        running.say(step);
        match reason {
            None => assert_eq!(running.wait_for("done")["step"], step),
            Some(reason) => assert_eq!(running.wait_for("refused")["reason"], reason, "{step}"),
        }
    }
    let mut alone = Running::start(&["--members", "1"]);
    alone.wait_for("elected");
    alone.say("cut a from the rest");
    assert_eq!(alone.wait_for("refused")["reason"], "a is the only one that votes");
}

/// A deployment that has no file left for another connection serves those that it has.
#[cfg(target_os = "linux")]
#[test]
fn connections_that_cannot_be_accepted_do_not_slow_down_the_others() {
    const PINGS: u32 = 400;
    /// After the system has refused to accept another one.
    const PAUSE: Duration = Duration::from_millis(10);
    let sdam = env!("CARGO_BIN_EXE_sdam");
    let script = format!("ulimit -n 64; exec '{sdam}' cluster --json --for {LIMIT}");
    let mut shell = Command::new("sh");
    let shell = shell.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = shell.spawn().expect("a process");
    let out = BufReader::new(process.stdout.take().expect("a pipe"));
    let mut running = Running { process, out };
    let ready = running.next();
    let address = ready["members"]["a"].as_str().expect("an address");
    let mut first = TcpStream::connect(address).expect("a connection");
    let mut ping = Vec::new();
    let command = rawdoc! { "ping": 1, "$db": "admin" };
    write_op_msg(&mut ping, 1, 0, Flags::NONE, &command);
    let mut exchange = || {
        let mut reply = [0; 4];
        first.write_all(&ping).expect("it reads");
        first.read_exact(&mut reply).expect("it answers");
        let rest = usize::try_from(i32::from_le_bytes(reply)).expect("a length") - reply.len();
        first.read_exact(&mut vec![0; rest]).expect("it answers");
    };
    exchange();
    let others: Vec<_> = (0..100).map(|_| TcpStream::connect(address).expect("a queue")).collect();
    // If everything waited out the pause, before every other answer, it would be twice that each
    // time; a machine that is busy is not always as slow as that.
    let most = PAUSE * PINGS / 4;
    let is_quick = || {
        let begun = Instant::now();
        (0..PINGS).for_each(|_| exchange());
        begun.elapsed() < most
    };
    let quick = std::iter::repeat_with(is_quick).take(60).any(|is_quick| is_quick);
    assert!(quick, "{PINGS} answers take longer than {most:?} each time");
    drop(others);
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
fn a_scenario_is_played_and_reported() {
    let path = file("good.scenario", "0ms list\n8s kill primary\n25s quit\n");
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
    assert!(begun.elapsed() < Duration::from_secs(120), "it quits by itself");
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
    assert_eq!(elected["term"], 2);
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
