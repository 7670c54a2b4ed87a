//! `sdam lint` as a process: the embedded deployment, which has no data, and calls that fail.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use sdam_conformance::refusal::RefusingPort;
use serde_json::Value;

use crate::status::{Cluster, sdam};

/// The rules that a server breaks which keeps no data, see `LINT.md`.
const WITHOUT_DATA: [&str; 2] = ["missing-collection", "transient-label"];

/// The rules about writes that such a server breaks.
const WITHOUT_WRITES: [&str; 4] =
    ["aborted-transaction", "kill-cursor", "retried-write", "write-errors"];

/// The number of times that the deployment is asked of which not just the expected is said.
const TRIES: usize = 3;

/// Runs `sdam lint`; returns the exit code and what was printed.
fn lint(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = sdam(&["lint"]).args(arguments).output().expect("a process");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Returns the names of the rules in lines of this kind.
fn rules(out: &str, kind: &str) -> BTreeSet<String> {
    let lines = out.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let rules = lines.filter_map(|line| Some(line.get(kind)?["rule"].as_str()?.to_owned()));
    rules.collect()
}

#[test]
fn the_embedded_deployment_breaks_the_rules_that_need_data_and_no_others() {
    let expected: BTreeSet<String> =
        WITHOUT_DATA.iter().chain(&WITHOUT_WRITES).map(ToString::to_string).collect();
    let look = || {
        let mut cluster = Cluster::start(&["--election-timeout", "200ms"]);
        cluster.wait_for("elected");
        lint(&["--json", "--write", "--step-down", "--for", "5m", &cluster.uri])
    };
    let (mut code, mut out, mut err) = look();
    // A machine that is busy may hide what depends on time, or look like what is wrong.
    for _ in 1..TRIES {
        if rules(&out, "finding") == expected {
            break;
        }
        (code, out, err) = look();
    }
    assert_eq!(rules(&out, "finding"), expected, "{out}");
    assert_eq!(code, Some(1), "{err}");
    assert!(err.ends_with("rules of severity error broken\n"), "{err}");
    let counts = out.lines().last().expect("a line");
    let counts: Value = serde_json::from_str(counts).expect("JSON");
    assert_eq!(counts["counts"]["servers"], 3, "{counts}");
    // Nothing that was broken is kept, and what was not tried is neither.
    let not_tried = rules(&out, "notTried");
    for rule in ["idle-connection", "sasl-mechanisms"] {
        assert!(not_tried.contains(rule), "{not_tried:?}");
    }
}

#[test]
fn a_login_over_tls_is_that_of_the_connection_string() {
    let file = std::env::temp_dir().join(format!("sdam-lint-{}-ca.pem", std::process::id()));
    let authority = file.to_str().expect("text");
    let mut cluster = Cluster::start(&[
        "--members=1",
        "--election-timeout=200ms",
        "--version=8.0",
        "--user=lint:secret",
        "--tls-self-signed",
        authority,
    ]);
    cluster.wait_for("elected");
    let (_, rest) = cluster.uri.split_once("://").expect("a scheme");
    let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    let allowed = WITHOUT_DATA.map(|rule| ["--allow", rule]);
    let arguments = [&["--json", "--for", "5m"][..], allowed.as_flattened()].concat();
    let uri = format!("mongodb://lint:secret@{rest}");
    let (code, out, err) = lint(&[&arguments[..], &[&uri]].concat());
    assert_eq!(code, Some(0), "{out}{err}");
    for rule in ["\"sasl-mechanisms\"", "\"speculative-login\"", "\"unknown-cursor\""] {
        assert!(out.lines().next().is_some_and(|server| server.contains(rule)), "{out}");
    }
    let counts: Value = serde_json::from_str(out.lines().last().expect("a line")).expect("JSON");
    assert_eq!(counts["counts"]["allowed"].as_object().map(serde_json::Map::len), Some(2));
    // The server is the one that --map says, whatever its name.
    let address = rest.split('/').next().expect("an address");
    let port = address.rsplit_once(':').expect("a port").1;
    let uri = format!("mongodb://lint:secret@{}", rest.replacen(address, "localhost:7", 1));
    let map = format!("localhost:7=127.0.0.1:{port}");
    let uri = format!("{uri}&directConnection=true");
    let (code, out, err) = lint(&[&arguments[..], &["--map", &map, &uri]].concat());
    assert_eq!(code, Some(0), "{out}{err}");
    let server: Value = serde_json::from_str(out.lines().next().expect("a line")).expect("JSON");
    assert_eq!(server["server"]["address"], "localhost:7");
    // A wrong password says nothing of the server, and is not passed over.
    let uri = format!("mongodb://lint:mistaken@{rest}");
    let (code, out, err) = lint(&[&arguments[..], &[&uri]].concat());
    assert_eq!(code, Some(1), "{out}");
    assert!(err.contains("1 of 1 servers could not be asked everything"), "{err}");
    assert!(out.contains("Authentication failed") && !out.contains("mistaken"), "{out}");
    std::fs::remove_file(file).expect("it is there");
}

#[test]
fn a_server_that_is_not_there_is_1_and_what_makes_no_sense_is_2() {
    let port = RefusingPort::new().expect("a free port");
    let (code, out, err) = lint(&[&format!("mongodb://{}", port.address())]);
    assert_eq!(code, Some(1), "{out}");
    assert!(out.contains("connection refused") || out.contains("Connection refused"), "{out}");
    assert!(err.contains("1 of 1 servers could not be asked everything"), "{err}");
    let cases: [(&[&str], &str); 6] = [
        (&[], "sdam: no deployment is named"),
        (&["mongodb://a/?loadBalanced=true"], "sdam: a load balancer leads each connection to"),
        (&["--idle", "1m", "mongodb://a"], "sdam: --idle has to be less than the time of --for"),
        (&["--allow", "all", "mongodb://a"], "error: invalid value 'all' for '--allow <RULE>'"),
        (&["--for", "5", "mongodb://a"], "error: invalid value '5' for '--for <DURATION>'"),
        (&["localhost"], "sdam: the connection string must begin with mongodb://"),
    ];
    for (arguments, expected) in cases {
        let (code, out, err) = lint(arguments);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{arguments:?}: {err}");
        assert!(err.starts_with(expected), "{err}");
    }
    let (code, out, _) = lint(&["--list"]);
    assert_eq!(code, Some(0));
    assert!(out.contains("next-election (error, needs --step-down)\n  rule:     "), "{out}");
}

#[test]
fn what_there_was_no_time_for_is_not_tried() {
    // It accepts connections and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let uri = format!("mongodb://{}/", silent.local_addr().expect("an address"));
    let (code, out, err) = lint(&["--for", "600ms", "--json", &uri]);
    assert_eq!(code, Some(1), "{out}{err}");
    assert!(rules(&out, "finding").is_empty(), "{out}");
    assert!(rules(&out, "notTried").contains("hello-by-query"), "{out}");
    // Nor does silence keep anything.
    let silence = format!("{uri}?connectTimeoutMS=500");
    let (code, out, err) = lint(&["--for", "1200ms", "--json", &silence]);
    assert_eq!(code, Some(1), "{out}{err}");
    let server: Value = serde_json::from_str(out.lines().next().expect("a line")).expect("JSON");
    assert_eq!(server["server"]["kept"], Value::Array(Vec::new()), "{out}");
}

#[cfg(unix)]
#[test]
fn a_signal_ends_it_with_the_code_of_shells() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let uri = format!("mongodb://{}/", silent.local_addr().expect("an address"));
    let lint = sdam(&["lint", "--for", "300s", &uri])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a process");
    // It connects when signals are arranged for.
    let (_stream, _) = silent.accept().expect("a connection");
    let pid = lint.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill").success());
    let ended = lint.wait_with_output().expect("the end");
    assert_eq!(ended.status.code(), Some(143), "{ended:?}");
    assert!(ended.stdout.is_empty(), "{ended:?}");
}
