//! `sdam exporter` as a process: what it serves, while nothing can be reached and through a
//! failover, and its end.

mod prometheus;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use sdam_conformance::refusal::RefusingPort;

use crate::status::{Cluster, sdam};

/// The time that an exporter lives if a test hangs, which then fails.
const LIMIT: &str = "300s";

/// The time limit of steps that depend on the load of the machine.
const GENEROUS: Duration = Duration::from_secs(90);

/// An exporter in a process of its own.
struct Exporter {
    process: Child,
    address: SocketAddr,
}

impl Exporter {
    fn start(uri: &str) -> Self {
        let listen = ["exporter", "--for", LIMIT, "--listen", "127.0.0.1:0", uri];
        let mut process = sdam(&listen).stdout(Stdio::piped()).spawn().expect("a process");
        let mut line = String::new();
        let out = process.stdout.take().expect("a pipe");
        BufReader::new(out).read_line(&mut line).expect("a line");
        let address = line.trim().strip_prefix("serving http://");
        let address = address.and_then(|it| it.strip_suffix("/metrics"));
        let address = address.unwrap_or_else(|| panic!("{line:?}")).parse().expect("an address");
        Self { process, address }
    }

    fn metrics(&self) -> String {
        let (head, body) = get(self.address, "/metrics");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        body
    }

    /// Waits until the metrics have a line that begins so.
    fn expect(&self, beginning: &str) -> String {
        let begun = Instant::now();
        loop {
            let metrics = self.metrics();
            if metrics.lines().any(|line| line.starts_with(beginning)) {
                return metrics;
            }
            assert!(begun.elapsed() < GENEROUS, "no {beginning}:\n{metrics}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        // It may have ended before.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the head and the body of what a server has to a path.
fn get(address: SocketAddr, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(GENEROUS)).expect("a time-out");
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("text");
    let (head, body) = response.split_once("\r\n\r\n").expect("a head");
    (format!("{head}\r\n"), body.to_owned())
}

/// Returns whether a program of Debian's `prometheus` is there; on CI, it must be.
fn is_there(program: &str) -> bool {
    let mut version = Command::new(program);
    version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    let is_there = version.status().is_ok_and(|status| status.success());
    if !is_there {
        let on_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
        assert!(!on_ci, "{program} is missing, of Debian's package prometheus");
        eprintln!("left out: {program} is missing, of Debian's package prometheus");
    }
    is_there
}

/// Has Prometheus' own tool judge the form and the names of metrics.
fn lint(metrics: &str) {
    if !is_there("promtool") {
        return;
    }
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a process");
    let mut stdin = promtool.stdin.take().expect("a pipe");
    stdin.write_all(metrics.as_bytes()).expect("it reads");
    drop(stdin);
    let Output { status, stdout, stderr } = promtool.wait_with_output().expect("it ends");
    let said = [stdout, stderr].concat();
    assert!(status.success(), "{}\n{metrics}", String::from_utf8_lossy(&said));
}

#[test]
fn it_serves_while_no_server_can_be_reached_and_shows_no_secrets() {
    let port = RefusingPort::new().expect("a free port");
    let uri = format!(
        "mongodb://sesame-user:sesame-word@{}/?replicaSet=rs0&authMechanism=PLAIN\
         &authSource=%24external&appName=sesame-app&heartbeatFrequencyMS=500",
        port.address()
    );
    let exporter = Exporter::start(&uri);
    let failed = format!(
        "sdam_heartbeats_failed_total{{server_address=\"127.0.0.1\",server_port=\"{}\",\
         error_type=\"refused\"}} ",
        port.address().port()
    );
    let metrics = exporter.expect(&failed);
    for line in ["sdam_topology_readable 0", "sdam_topology_writable 0", "sdam_elections_total 0"] {
        assert!(metrics.lines().any(|it| it == line), "no {line}:\n{metrics}");
    }
    assert!(!metrics.contains("sesame"), "{metrics}");
    // There is nothing to report of unused pools.
    assert!(!metrics.contains("db_client"), "{metrics}");
    lint(&metrics);
    let (head, index) = get(exporter.address, "/");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && index.contains("/metrics"), "{head}");
    assert!(get(exporter.address, "/other").0.starts_with("HTTP/1.1 404 "));
}

#[test]
fn a_deployment_is_writable_once_its_primary_is_found() {
    let cluster = Cluster::start(&["--members", "3", "--election-timeout", "200ms"]);
    let exporter = Exporter::start(&cluster.uri);
    exporter.expect("sdam_topology_writable 1");
    let metrics = exporter.expect("sdam_topology_type{sdam_type=\"ReplicaSetWithPrimary\"} 1");
    let up = metrics.lines().filter(|line| line.starts_with("sdam_server_up{"));
    assert_eq!(up.count(), 3, "{metrics}");
    lint(&metrics);
}

/// As many connections as it serves at a time, none of which ever says anything, and one more.
#[test]
fn each_client_is_answered_although_others_keep_their_connections() {
    let port = RefusingPort::new().expect("a free port");
    let exporter = Exporter::start(&format!("mongodb://{}", port.address()));
    let kept: Vec<_> =
        (0..64).map(|_| TcpStream::connect(exporter.address).expect("it listens")).collect();
    let (head, _) = get(exporter.address, "/metrics");
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    drop(kept);
}

#[cfg(unix)]
#[test]
fn a_signal_ends_it_and_that_is_no_failure() {
    use rustix::process::{Pid, Signal, kill_process};
    let port = RefusingPort::new().expect("a free port");
    for signal in [Signal::INT, Signal::TERM] {
        let mut exporter = Exporter::start(&format!("mongodb://{}", port.address()));
        let pid = Pid::from_raw(exporter.process.id().try_into().expect("a number"));
        kill_process(pid.expect("a process"), signal).expect("it runs");
        assert_eq!(exporter.process.wait().expect("it ends").code(), Some(0));
    }
}

#[test]
fn a_port_that_is_taken_and_a_missing_deployment_are_said() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("an address").to_string();
    let output = sdam(&["exporter", "--listen", &address, "mongodb://h.example"]).output();
    let Output { status, stderr, .. } = output.expect("a process");
    let said = String::from_utf8(stderr).expect("text");
    assert_eq!(status.code(), Some(1));
    assert!(said.starts_with(&format!("sdam: --listen {address}: ")), "{said}");
    let Output { status, stderr, .. } = sdam(&["exporter"]).output().expect("a process");
    assert_eq!(status.code(), Some(2));
    let said = String::from_utf8(stderr).expect("text");
    assert!(said.contains("no deployment is named"), "{said}");
}
