//! The logs, faults that are planted in them, and `sdam check-log` as a process.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::{fs, thread};

use serde_json::Value;

/// The known findings in logs of drivers, see `CHECK_LOG.md`.
pub(crate) const PYMONGO: &[&str] = &["after-closed", "heartbeat-not-started"];

pub(crate) const NODE: &[&str] = &["heartbeat-not-ended", "wrong-awaited"];

pub(crate) const NODE_CANCELED: &[&str] =
    &["heartbeat-not-ended", "heartbeat-not-started", "two-heartbeats", "wrong-awaited"];

pub(crate) const RUST: &[&str] = &["unexplained-change"];

pub(crate) const GO: &[&str] = &["not-checked", "unexplained-change", "wrong-awaited"];

pub(crate) const GOLDEN: [(&str, &[&str]); 11] = [
    ("pymongo-4.4", PYMONGO),
    ("pymongo-6.0", PYMONGO),
    ("node-4.4", NODE),
    ("node-6.0", NODE),
    ("node-6.0-canceled", NODE_CANCELED),
    ("node-messages-6.0", &["wrong-awaited"]),
    ("rust-6.0", RUST),
    ("rust-messages-6.0", RUST),
    ("go-6.0", GO),
    ("sdam-6.0", &[]),
    ("sdam-messages-6.0", &[]),
];

pub(crate) fn golden(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/logs");
    fs::read_to_string(folder.join(format!("{name}.jsonl"))).expect("a log")
}

/// Checks a log that comes by standard input.
pub(crate) fn check(log: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sdam"));
    command.args(["check-log", "-"]).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().expect("a process");
    let (mut stdin, log) = (process.stdin.take().expect("a pipe"), log.to_owned());
    // It may end before it has read everything.
    let feed = thread::spawn(move || stdin.write_all(log.as_bytes()).unwrap_or_default());
    let output = process.wait_with_output().expect("the end");
    feed.join().expect("no panic");
    output
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

/// All that is found in a log, but for what is allowed: rules by line.
pub(crate) fn findings(log: &str, allowed: &[&str]) -> Vec<(usize, String)> {
    let mut arguments = vec!["--json", "--all"];
    arguments.extend(allowed.iter().flat_map(|rule| ["--allow", rule]));
    let output = check(log, &arguments);
    let lines = text(&output.stdout).lines();
    let lines = lines.map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let findings = lines.filter_map(|line| Some(line.get("finding")?.clone())).map(|finding| {
        assert!(finding["text"].is_string() && finding["section"].is_string(), "{finding}");
        let line = finding["line"].as_u64().expect("a number");
        (usize::try_from(line).expect("a line"), finding["rule"].as_str().expect("a rule").into())
    });
    let findings: Vec<_> = findings.collect();
    let code = i32::from(!findings.is_empty());
    assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
    findings
}

/// A log in which faults are planted.
#[derive(Clone)]
pub(crate) struct Log(pub(crate) Vec<Value>);

impl Log {
    pub(crate) fn golden(name: &str) -> Self {
        let lines = golden(name);
        Self(lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect())
    }

    /// The index of the line after `from` that is of this event and has that in it.
    pub(crate) fn find(&self, from: usize, event: &str, wanted: impl Fn(&Value) -> bool) -> usize {
        let lines = self.0.iter().enumerate().skip(from);
        let mut found = lines.filter(|(_, line)| line["event"] == event && wanted(line));
        found.next().expect("such a line").0
    }

    pub(crate) fn text(&self) -> String {
        self.0.iter().map(|line| format!("{line}\n")).collect()
    }

    /// The first thing found, as the line's index and the rule.
    pub(crate) fn first(&self) -> (usize, String) {
        let (line, rule) = findings(&self.text(), NODE).remove(0);
        (line - 1, rule)
    }
}

pub(crate) fn primary_in(line: &Value) -> Option<String> {
    let servers = line["newDescription"]["servers"].as_object()?;
    let mut servers = servers.iter();
    let primary = servers.find(|(_, server)| server["type"] == "RSPrimary");
    primary.map(|(address, _)| address.clone())
}

/// The log of the Node.js driver, the change that shows the second primary, and both primaries.
pub(crate) fn after_step_down() -> (Log, usize, [String; 2]) {
    let log = Log::golden("node-6.0");
    let first = log.find(0, "topologyDescriptionChanged", |it| primary_in(it).is_some());
    let old = primary_in(&log.0[first]);
    let is_other = |it: &Value| primary_in(it).is_some() && primary_in(it) != old;
    let second = log.find(first, "topologyDescriptionChanged", is_other);
    let new = primary_in(&log.0[second]);
    (log, second, [old, new].map(|primary| primary.expect("a primary")))
}
