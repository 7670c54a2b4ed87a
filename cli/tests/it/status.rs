//! `sdam status` as a process: its exit codes, beside a deployment that tests own.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use sdam_cluster::{EmbeddedCluster, EmbeddedOptions};
use sdam_conformance::refusal::RefusingPort;
use sdam_core::bson::rawdoc;
use serde_json::Value;

/// The time that `sdam cluster` lives if a test hangs, which then fails.
const LIMIT: &str = "300s";

/// The time limit of steps that depend on the load of the machine.
const GENEROUS: Duration = Duration::from_secs(90);

/// Returns the tool with these arguments.
pub(crate) fn sdam(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sdam"));
    command.args(arguments).stdin(Stdio::null()).env_remove("SDAM_URI");
    command
}

/// Returns the exit code, and what was printed.
fn status(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = sdam(&["status"]).args(arguments).output().expect("a process");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// A deployment of `sdam cluster`, which takes steps as lines.
pub(crate) struct Cluster {
    process: Child,
    pub(crate) uri: String,
    out: BufReader<std::process::ChildStdout>,
}

impl Cluster {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut process = sdam(&["cluster", "--json", "--for", LIMIT])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let out = BufReader::new(process.stdout.take().expect("a pipe"));
        let mut cluster = Self { process, uri: String::new(), out };
        let uri = cluster.wait_for("ready")["uri"].as_str().expect("text").to_owned();
        cluster.uri = uri;
        cluster
    }

    pub(crate) fn wait_for(&mut self, event: &str) -> Value {
        loop {
            let mut line = String::new();
            self.out.read_line(&mut line).expect("a line");
            assert!(!line.is_empty(), "it has ended before {event}");
            let object: Value = serde_json::from_str(&line).expect("an object");
            if object["event"] == event {
                return object;
            }
        }
    }

    fn take(&mut self, step: &str) {
        writeln!(self.process.stdin.as_mut().expect("a pipe"), "{step}").expect("it reads");
        while self.wait_for("done")["step"] != step {}
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // It may have ended before.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn the_exit_code_follows_the_primary_and_then_the_last_server() {
    // One of two is no majority, so that none is elected in the place of the one that dies.
    let mut cluster = Cluster::start(&["--members", "2", "--election-timeout", "200ms"]);
    let uri = cluster.uri.clone();
    let begun = Instant::now();
    let (mut code, mut out, mut err) = status(&["--for", "60s", &uri]);
    // The first election may still be going on.
    while code != Some(0) && begun.elapsed() < GENEROUS {
        (code, out, err) = status(&["--for", "60s", &uri]);
    }
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert!(out.starts_with("ReplicaSetWithPrimary, set demo, 2 servers\n"), "{out}");
    assert!(out.ends_with("writes  yes\nreads   yes\n"), "{out}");
    cluster.take("kill primary");
    let (code, out, _) = status(&["--timeout", "60s", &uri]);
    assert_eq!(code, Some(1), "{out}");
    assert!(out.contains("writes  no, the replica set has had no primary for"), "{out}");
    let (code, out, _) = status(&["--for", "60s", "--json", &uri]);
    let object: Value = serde_json::from_str(&out).expect("an object");
    assert_eq!(code, Some(1), "{out}");
    assert_eq!((&object["writable"], &object["readable"]), (&false.into(), &true.into()), "{out}");
    for name in ["a", "b"] {
        // One of them is dead already, and that step is refused.
        let stdin = cluster.process.stdin.as_mut().expect("a pipe");
        writeln!(stdin, "kill {name}").expect("it reads");
    }
    cluster.take("start a");
    cluster.take("kill a");
    let (code, out, _) = status(&["--for", "60s", &uri]);
    assert_eq!(code, Some(2), "{out}");
    let end = "reads   no, every server refused the connection\n\
               advice  check the ports, and that the servers run\n";
    assert!(out.ends_with(end), "{out}");
    assert!(!out.contains(": Connection refused"), "the address is there twice:\n{out}");
}

#[test]
fn a_call_that_makes_no_sense_is_3_and_says_nothing_of_a_deployment() {
    let cases: [(&[&str], &str); 5] = [
        (&[], "sdam: no deployment is named: write its connection string as an argument"),
        (&["localhost"], "sdam: the connection string must begin with mongodb://"),
        (&["--uri-file", "/nowhere"], "sdam: cannot read the connection string from /nowhere"),
        (&["--nonsense"], "error: unexpected argument '--nonsense'"),
        (&["--for", "5", "mongodb://a"], "error: invalid value '5' for '--for <DURATION>'"),
    ];
    for (arguments, expected) in cases {
        let (code, out, err) = status(arguments);
        assert_eq!((code, out.as_str()), (Some(3), ""), "{arguments:?}");
        assert!(err.starts_with(expected), "{err}");
    }
    let help = sdam(&["--color", "never", "status", "--help"]).status().expect("a process");
    assert_eq!(help.code(), Some(0));
    let wrong = sdam(&["--color", "never", "status", "--nonsense"]).output().expect("a process");
    assert_eq!(wrong.status.code(), Some(3));
}

#[test]
fn hosts_that_cannot_be_looked_up_are_2() {
    let (code, out, err) = status(&["--for", "1ms", "mongodb+srv://nowhere.example.invalid"]);
    assert_eq!((code, out.as_str()), (Some(2), ""), "{err}");
    assert!(err.contains("SRV records of") && err.lines().count() == 1, "{err}");
}

#[test]
fn a_load_balancer_without_monitors_is_asked() {
    let port = RefusingPort::new().expect("a free port");
    let uri = format!("mongodb://{}/?loadBalanced=true", port.address());
    let (code, out, _) = status(&["--for", "60s", &uri]);
    assert_eq!(code, Some(2), "{out}");
    assert!(out.starts_with("LoadBalanced, 1 server\n"), "{out}");
    assert!(out.contains("Connection refused"), "{out}");
}

/// Writes a resume token of a time, in seconds since 1970.
fn token(seconds: u64) -> String {
    format!(r#"{{"_data": "82{seconds:08X}000000012B0229296E04"}}"#)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_members_are_asked_for_how_long_a_token_is_of_use() {
    let options = EmbeddedOptions::default().with_keeps_data(true);
    let cluster = EmbeddedCluster::start(options).await.expect("it runs");
    let primary = cluster.elected().await.expect("an election");
    // Until something is written, there is no entry.
    let insert = rawdoc! { "insert": "things", "documents": [{}], "$db": "app" };
    cluster.run_command(primary, insert).await.expect("it is written");
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is later");
    for (seconds, code, end) in [
        (now.as_secs(), 0, " and is not full: the token is not about to be lost\n"),
        (10, 2, ", which is not as far as the token\nadvice  "),
    ] {
        let token = token(seconds);
        let (given, out, err) = status(&["--for", "60s", "--token", &token, &cluster.uri()]);
        assert_eq!((given, err.as_str()), (Some(code), ""), "{out}");
        assert!(out.contains("\ntoken   ") && out.contains(end), "{out}");
    }
    let (code, _, err) = status(&["--token", "82", &cluster.uri()]);
    assert_eq!(code, Some(3), "{err}");
    assert!(err.contains("invalid value '82' for '--token <TOKEN>'"), "{err}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn nothing_is_known_of_a_token_without_an_oplog() {
    let mongos = EmbeddedCluster::start(EmbeddedOptions::load_balanced(1)).await.expect("it runs");
    let uri = format!("mongodb://{}/?loadBalanced=true", mongos.addresses()[0]);
    let (code, out, _) = status(&["--for", "60s", "--token", &token(10), &uri]);
    assert_eq!(code, Some(3), "{out}");
    assert!(out.ends_with("token   unknown, no member of a replica set has answered\n"), "{out}");
}

#[cfg(unix)]
#[test]
fn a_look_that_is_interrupted_says_so_with_the_code_of_shells() {
    // It accepts the connection and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let uri = format!("mongodb://{}/", silent.local_addr().expect("an address"));
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let look = sdam(&["status", "--for", LIMIT, &uri])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a process");
        // It connects when signals are arranged for.
        let (_stream, _) = silent.accept().expect("a connection");
        let pid = look.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().expect("kill").success());
        let ended = look.wait_with_output().expect("the end");
        assert_eq!(ended.status.code(), Some(code), "{ended:?}");
        assert!(ended.stdout.is_empty(), "{ended:?}");
        assert!(String::from_utf8_lossy(&ended.stderr).contains("interrupted"), "{ended:?}");
    }
}
