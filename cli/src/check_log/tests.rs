//! Small logs, and every part of the real ones.

use std::fmt::Write as _;
use std::fs;
use std::num::NonZeroU64;
use std::path::Path;
use std::time::Duration;

use sdam_core::bson::DateTime;
use sdam_core::logging::{Component, LogMessage};
use serde_json::{Value, json};

use super::clock::Limits;
use super::finding::{Counts, Finding};
use super::judge::judge;
use super::read::Log;
use super::rule::Rule;

const LIMITS: Limits =
    Limits { heartbeat_frequency: Duration::from_secs(1), connect_timeout: Duration::from_secs(2) };

fn judged(text: &str) -> (Vec<Finding>, Counts) {
    judge(&Log::read(text).expect("no ambiguity"), &LIMITS)
}

/// Returns the findings, as lines and rules.
fn found(text: &str) -> Vec<(usize, Rule)> {
    judged(text).0.into_iter().map(|finding| (finding.line, finding.broken.rule)).collect()
}

/// A log that is written line by line, a tenth of a second apart.
#[derive(Default)]
struct Story {
    text: String,
    millis: u64,
}

impl Story {
    fn line(&mut self, mut line: Value) -> &mut Self {
        self.millis += 100;
        line["elapsedMs"] = json!(self.millis);
        line["topologyId"] = json!("t");
        writeln!(self.text, "{line}").expect("a text");
        self
    }

    fn open(topology_type: &str, servers: &[(&str, &str)]) -> Self {
        let mut story = Self::default();
        story.line(json!({ "event": "topologyOpening" })).describe(topology_type, servers);
        story
    }

    fn describe(&mut self, topology_type: &str, servers: &[(&str, &str)]) -> &mut Self {
        let servers = servers.iter().map(|(address, server_type)| {
            let (server_type, error) = match server_type.strip_suffix('!') {
                Some(server_type) => (server_type, json!("an error")),
                None => (*server_type, Value::Null),
            };
            json!({ "address": address, "type": server_type, "error": error })
        });
        let servers: Vec<Value> = servers.collect();
        self.line(json!({
            "event": "topologyDescriptionChanged",
            "newDescription": { "type": topology_type, "servers": servers },
        }))
    }

    /// A heartbeat starts, when the last one has ended 500 ms ago.
    fn start(&mut self, address: &str) -> &mut Self {
        self.pause(400).line(json!({ "message": "Server heartbeat started", "address": address }))
    }

    fn reply(&mut self, address: &str, mut reply: Value) -> &mut Self {
        reply["ok"] = json!(1.0);
        reply["maxWireVersion"] = json!(17);
        let message = "Server heartbeat succeeded";
        self.line(json!({ "message": message, "address": address, "reply": reply.to_string() }))
    }

    fn fail(&mut self, address: &str) -> &mut Self {
        let failure = json!({ "detail": "connection refused" });
        self.line(
            json!({ "event": "serverHeartbeatFailed", "address": address, "failure": failure }),
        )
    }

    fn pause(&mut self, millis: u64) -> &mut Self {
        self.millis += millis;
        self
    }
}

fn primary(election: u32) -> Value {
    let election = json!({ "$oid": format!("{election:024x}") });
    json!({
        "isWritablePrimary": true, "setName": "rs", "hosts": ["a:1", "b:1"], "setVersion": 1,
        "electionId": election, "topologyVersion": {
            "processId": { "$oid": "6b01933fadb63cef612172f0" },
            "counter": { "$numberLong": "4" },
        },
    })
}

fn secondary() -> Value {
    json!({ "secondary": true, "setName": "rs", "hosts": ["a:1", "b:1"], "setVersion": 1 })
}

/// A replica set of two, whose primary is known.
fn known_set() -> Story {
    let mut story = Story::open("Unknown", &[("a:1", "Unknown")]);
    story.start("a:1").reply("a:1", primary(1));
    story.describe("ReplicaSetWithPrimary", &[("a:1", "RSPrimary"), ("b:1", "Unknown")]);
    story.start("b:1").reply("b:1", secondary());
    story.describe("ReplicaSetWithPrimary", &[("a:1", "RSPrimary"), ("b:1", "RSSecondary")]);
    story
}

#[test]
fn a_primary_brings_its_hosts() {
    assert_eq!(found(&known_set().text), []);
    let mut story = Story::open("Unknown", &[("a:1", "Unknown")]);
    story.start("a:1").reply("a:1", primary(1));
    story.describe("ReplicaSetWithPrimary", &[("a:1", "RSPrimary")]);
    let (findings, _) = judged(&story.text);
    assert_eq!((findings[0].line, findings[0].broken.rule), (5, Rule::UnexplainedChange));
    assert_eq!(findings[0].broken.expected, "ReplicaSetWithPrimary: a:1 RSPrimary, b:1 Unknown");
    assert_eq!(findings[0].broken.found, "ReplicaSetWithPrimary: a:1 RSPrimary");
}

/// A thread that is held up writes its lines later than others, which say when they were.
#[test]
fn times_are_compared_within_one_topology_only() {
    for mut other in [
        json!({ "message": "Server selection started" }),
        json!({ "message": "Starting topology monitoring", "topologyId": "u" }),
    ] {
        other["elapsedMs"] = json!(90_000);
        let mut story = known_set();
        writeln!(story.text, "{other}").expect("a text");
        story.start("b:1").reply("b:1", secondary()).start("b:1").reply("b:1", secondary());
        assert_eq!(found(&story.text), [], "{other}");
    }
}

#[test]
fn an_operations_error_makes_one_server_unknown_and_says_why() {
    let lost = [("a:1", "Unknown!"), ("b:1", "RSSecondary")];
    let mut story = known_set();
    story.describe("ReplicaSetNoPrimary", &lost);
    let (findings, counts) = judged(&story.text);
    assert!(findings.is_empty() && counts.operation_errors == 1, "{findings:?}");
    let mut story = known_set();
    story.describe("ReplicaSetWithPrimary", &lost);
    assert_eq!(found(&story.text), [(9, Rule::UnexplainedChange)], "the type is wrong");
    let mut story = known_set();
    story.describe("ReplicaSetNoPrimary", &[("a:1", "Unknown!"), ("b:1", "Unknown!")]);
    story.start("a:1");
    assert_eq!(found(&story.text), [(9, Rule::UnexplainedChange)], "two at once");
}

#[test]
fn after_an_operations_error_older_replies_may_be_ignored() {
    let mut story = known_set();
    story.describe("ReplicaSetNoPrimary", &[("a:1", "Unknown!"), ("b:1", "RSSecondary")]);
    story.start("a:1").reply("a:1", primary(1));
    for _ in 0..4 {
        story.start("b:1").reply("b:1", secondary());
    }
    assert_eq!(found(&story.text), []);
    // That is not so after a failure of a heartbeat, which nothing can be newer than.
    let mut story = known_set();
    story.start("a:1").fail("a:1");
    story.describe("ReplicaSetNoPrimary", &[("a:1", "Unknown!"), ("b:1", "RSSecondary")]);
    story.start("a:1").reply("a:1", primary(1));
    for _ in 0..4 {
        story.start("b:1").reply("b:1", secondary());
    }
    assert_eq!(found(&story.text), [(13, Rule::IgnoredOutcome)]);
}

#[test]
fn a_change_may_be_logged_before_the_heartbeat_that_explains_it() {
    let mut story = known_set();
    story.start("b:1").start("a:1");
    story.describe("ReplicaSetNoPrimary", &[("a:1", "Unknown!"), ("b:1", "RSSecondary")]);
    story.describe("ReplicaSetWithPrimary", &[("a:1", "Unknown"), ("b:1", "RSPrimary")]);
    story.fail("a:1").reply("b:1", primary(2));
    assert_eq!(found(&story.text), []);
    let mut late = known_set();
    late.start("b:1");
    late.describe("ReplicaSetWithPrimary", &[("a:1", "Unknown"), ("b:1", "RSPrimary")]);
    late.pause(2000).reply("b:1", primary(2));
    assert_eq!(found(&late.text)[0], (10, Rule::UnexplainedChange), "two seconds are too late");
}

#[test]
fn a_stale_primary_stays_unknown() {
    let mut story = known_set();
    story.start("b:1").reply("b:1", primary(2));
    story.describe("ReplicaSetWithPrimary", &[("a:1", "Unknown!"), ("b:1", "RSPrimary")]);
    let mut believed = Story { text: story.text.clone(), ..story };
    story.start("a:1").reply("a:1", primary(1));
    story.describe("ReplicaSetWithPrimary", &[("a:1", "Unknown!"), ("b:1", "RSPrimary")]);
    assert_eq!(found(&story.text), []);
    believed.start("a:1").reply("a:1", primary(1));
    believed.describe("ReplicaSetWithPrimary", &[("a:1", "RSPrimary"), ("b:1", "Unknown!")]);
    assert_eq!(found(&believed.text), [(14, Rule::StalePrimary)]);
}

#[test]
fn a_reply_with_an_older_topology_version_is_not_described() {
    let described = |counter: u32| {
        let process = json!({ "$oid": "6b01933fadb63cef612172f0" });
        let version = |counter: u32| json!({ "processId": process, "counter": counter });
        let mut older = primary(1);
        older["topologyVersion"] = version(3);
        let mut story = known_set();
        story.start("a:1").reply("a:1", older);
        story.line(json!({
            "event": "topologyDescriptionChanged",
            "newDescription": { "type": "ReplicaSetWithPrimary", "servers": [
                { "address": "a:1", "type": "RSPrimary", "topologyVersion": version(counter) },
                { "address": "b:1", "type": "RSSecondary" },
            ] },
        }));
        for _ in 0..4 {
            story.start("b:1").reply("b:1", secondary());
        }
        found(&story.text)
    };
    assert_eq!(described(4), []);
    assert_eq!(described(3), [(11, Rule::WrongField)]);
}

#[test]
fn mongos_may_come_and_go_with_dns_and_members_may_not() {
    let mut story = Story::open("Unknown", &[("a:1", "Unknown"), ("b:1", "Unknown")]);
    story.start("a:1").reply("a:1", json!({ "msg": "isdbgrid", "isWritablePrimary": true }));
    story.describe("Sharded", &[("a:1", "Mongos"), ("b:1", "Unknown")]);
    story.describe("Sharded", &[("a:1", "Mongos"), ("c:1", "Unknown")]);
    assert_eq!(found(&story.text), []);
    let mut story = known_set();
    story.describe("ReplicaSetWithPrimary", &[("a:1", "RSPrimary")]);
    assert_eq!(found(&story.text), [(9, Rule::UnexplainedChange)]);
}

#[test]
fn a_direct_connection_takes_its_server_as_it_is() {
    let mut story = Story::open("Single", &[("a:1", "Unknown")]);
    story.start("a:1").reply("a:1", secondary()).describe("Single", &[("a:1", "RSSecondary")]);
    story.start("a:1").fail("a:1").describe("Single", &[("a:1", "Unknown!")]);
    assert_eq!(found(&story.text), []);
}

#[test]
fn a_set_without_a_name_in_the_log_is_compared_too() {
    let mut story = Story::open("ReplicaSetNoPrimary", &[("a:1", "Unknown"), ("b:1", "Unknown")]);
    story.start("a:1").fail("a:1");
    story.describe("ReplicaSetNoPrimary", &[("a:1", "Unknown!"), ("b:1", "Unknown")]);
    let (findings, counts) = judged(&story.text);
    assert!(findings.is_empty() && counts.not_compared == 0, "{findings:?}");
    story.describe("ReplicaSetNoPrimary", &[("a:1", "RSSecondary"), ("b:1", "Unknown")]);
    assert_eq!(found(&story.text), [(6, Rule::UnexplainedChange)]);
}

#[test]
fn a_reply_that_is_not_logged_is_taken_from_the_description() {
    let mut story = Story::open("Unknown", &[("a:1", "Unknown")]);
    let message = "Server heartbeat succeeded";
    story.start("a:1").line(json!({ "message": message, "address": "a:1", "reply": "{\"ok\"..." }));
    story.describe("ReplicaSetWithPrimary", &[("a:1", "RSPrimary"), ("b:1", "Unknown")]);
    assert_eq!(found(&story.text), []);
    let mut story = Story::open("Unknown", &[("a:1", "Unknown")]);
    for _ in 0..4 {
        story.start("a:1").line(json!({ "message": message, "address": "a:1" }));
    }
    assert_eq!(found(&story.text)[0], (4, Rule::IgnoredOutcome));
}

#[test]
fn a_process_that_was_stopped_is_not_late() {
    let mut story = known_set();
    story.start("a:1").start("b:1").pause(3_600_000);
    story.reply("a:1", primary(1)).reply("b:1", secondary());
    assert_eq!(found(&story.text), []);
    let mut story = known_set();
    story.start("a:1").start("b:1");
    for _ in 0..20 {
        story.pause(400).line(json!({ "message": "Command started" }));
        story.line(json!({ "event": "serverOpening", "address": "b:1" }));
    }
    let stuck = [(9, Rule::HeartbeatStuck), (10, Rule::HeartbeatStuck)];
    assert_eq!(found(&story.text), stuck, "others go on");
}

#[test]
fn a_message_may_stand_in_another_loggers_own() {
    let wrapped = |line: &str| {
        let line = json!({ "level": "DEBUG", "message": line });
        format!("{line}\n")
    };
    let mut story = known_set();
    story.describe("ReplicaSetWithPrimary", &[("a:1", "RSPrimary")]);
    let text: String = story.text.lines().map(wrapped).collect();
    assert_eq!(found(&text), [(9, Rule::UnexplainedChange)]);
}

#[test]
fn changes_may_lag_behind_many_replies() {
    let addresses: Vec<String> = (0..500).map(|index| format!("m{index}:1")).collect();
    let known = |count: usize| {
        let types = (0..).map(|index| if index < count { "Mongos" } else { "Unknown" });
        addresses.iter().map(String::as_str).zip(types).collect::<Vec<_>>()
    };
    let mut story = Story::open("Unknown", &known(0));
    addresses.iter().for_each(|it| story.millis = story.start(it).millis - 499);
    let mongos = json!({ "msg": "isdbgrid", "isWritablePrimary": true });
    // Changes lag behind by a number of servers, all within a second.
    for (index, address) in addresses.iter().enumerate().take(200) {
        story.reply(address, mongos.clone());
        if let Some(count) = index.checked_sub(30) {
            story.describe("Sharded", &known(count + 1));
        }
        story.millis -= if index < 30 { 99 } else { 199 };
    }
    assert_eq!(found(&story.text), []);
}

/// The known findings in logs of drivers, see `CHECK_LOG.md`.
const KNOWN: [Rule; 4] =
    [Rule::AfterClosed, Rule::HeartbeatNotStarted, Rule::HeartbeatNotEnded, Rule::WrongAwaited];

/// The logs in which nothing else is found.
const CLEAN: [&str; 6] = [
    "node-6.0",
    "pymongo-4.4",
    "pymongo-6.0",
    "node-messages-6.0",
    "sdam-6.0",
    "sdam-messages-6.0",
];

#[test]
fn every_part_of_a_real_log_is_as_clean_as_the_whole() {
    for name in CLEAN {
        let lines = golden(name);
        let parts = (0..lines.len()).step_by(11).flat_map(|cut| [&lines[cut..], &lines[..cut]]);
        for part in parts {
            let (mut findings, _) = judged(&part.join("\n"));
            findings.retain(|finding| !KNOWN.contains(&finding.broken.rule));
            assert!(findings.is_empty(), "{name}, {} lines: {findings:?}", part.len());
        }
    }
}

/// Returns a real log, in lines.
fn golden(name: &str) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/logs");
    let text = fs::read_to_string(folder.join(format!("{name}.jsonl"))).expect("a log");
    text.lines().map(str::to_owned).collect()
}

/// Returns what is found in a log and not known of its driver.
fn unknown(log: &Log) -> Vec<Finding> {
    let (mut findings, _) = judge(log, &LIMITS);
    findings.retain(|finding| !KNOWN.contains(&finding.broken.rule));
    findings
}

/// A driver may log a change before the end of the check that has caused it, and end in between.
#[test]
fn a_log_may_end_after_any_line() {
    for name in CLEAN {
        let mut log = Log::read(&golden(name).join("\n")).expect("no ambiguity");
        while log.records.pop().is_some() {
            let findings = unknown(&log);
            assert!(findings.is_empty(), "{name}, {} records: {findings:?}", log.records.len());
        }
    }
}

#[test]
fn a_change_at_the_end_may_still_be_explained_by_a_check_that_goes_on() {
    let election = json!({ "$oid": format!("{:024x}", 2) });
    let change = json!({
        "event": "topologyDescriptionChanged",
        "newDescription": { "type": "ReplicaSetWithPrimary", "servers": [
            { "address": "a:1", "type": "Unknown", "error": "an error" },
            { "address": "b:1", "type": "RSPrimary", "electionId": election, "setVersion": 1 },
        ] },
    });
    let mut story = known_set();
    story.start("b:1").line(change.clone());
    assert_eq!(found(&story.text), [], "b may have replied");
    story.start("a:1");
    assert_eq!(found(&story.text), [], "it may still");
    story.start("a:1").pause(500).start("a:1");
    assert_eq!(found(&story.text)[0], (10, Rule::UnexplainedChange), "that is too late");
    let mut story = known_set();
    story.start("a:1").line(change.clone());
    assert_eq!(found(&story.text), [(10, Rule::UnexplainedChange)], "a does not say that of b");
    let mut story = known_set();
    story.start("b:1").line(change).reply("b:1", secondary());
    assert_eq!(found(&story.text)[0], (10, Rule::UnexplainedChange), "b has said something else");
}

/// Returns what sdam writes into its log where messages are missing.
fn loss(count: u64) -> String {
    let count = NonZeroU64::new(count).expect("some");
    // Of the time of its neighbours, which take all forms, nothing is known here.
    let line = LogMessage::lost(Component::Topology, count).line(DateTime::MIN);
    let mut line: Value = serde_json::from_str(&line).expect("an object");
    line.as_object_mut().expect("an object").remove("time");
    line.to_string()
}

#[test]
fn messages_that_a_log_says_are_lost_are_not_missed() {
    for name in CLEAN {
        let lines = golden(name);
        for (from, count) in (0..lines.len()).step_by(29).zip([1, 3, 17, 80].into_iter().cycle()) {
            let rest = lines.get(from + count..).unwrap_or_default();
            // A message may come between those that are missing and the one about them.
            for before in [0, 1.min(rest.len())] {
                let parts = [&lines[..from], &rest[..before], &[loss(3)], &rest[before..]];
                let log = Log::read(&parts.concat().join("\n")).expect("no ambiguity");
                let findings = unknown(&log);
                assert!(findings.is_empty(), "{name}, {count} after {from}: {findings:?}");
            }
        }
    }
}

#[test]
fn a_log_that_has_lost_messages_is_judged_from_there_on() {
    let backwards = |story: &mut Story| {
        story.describe("ReplicaSetWithPrimary", &[("a:1", "RSPrimary"), ("b:1", "RSSecondary")]);
        story.describe("ReplicaSetWithPrimary", &[("a:1", "RSPrimary"), ("b:1", "RSPrimary")]);
        found(&story.text)
    };
    for line in ["Log messages were lost", "none"] {
        let mut story = known_set();
        story.line(json!({ "message": line, "event": "eventsDropped" }));
        assert_eq!(backwards(&mut story)[0], (11, Rule::TwoPrimaries), "{line}");
    }
    let mut story = known_set();
    story.start("a:1").start("b:1").line(json!({ "message": "Log messages were lost" }));
    story.start("a:1").reply("a:1", primary(1));
    assert_eq!(found(&story.text), []);
    story.start("a:1").start("a:1");
    assert_eq!(found(&story.text), [(15, Rule::TwoHeartbeats)]);
}

#[test]
fn messages_of_one_client_may_be_lost_and_another_is_judged_on() {
    let line = |client: &str, event: Value| {
        let mut line = event;
        line["clientId"] = json!(client);
        format!("{line}\n")
    };
    let mut text = String::new();
    for client in ["one", "two"] {
        text += &line(client, json!({ "event": "topologyOpening" }));
        for _ in 0..2 {
            let start = json!({ "event": "serverHeartbeatStarted", "address": "a:1" });
            text += &line(client, start);
            if client == "one" {
                text += &line(client, json!({ "message": "Log messages were lost", "lost": 1 }));
            }
        }
    }
    assert_eq!(found(&text), [(8, Rule::TwoHeartbeats)]);
}

#[test]
fn whatever_is_lost_or_doubled_nothing_panics() {
    let lines = golden("node-4.4");
    for step in 2..9 {
        let kept = lines.iter().enumerate().filter(|(index, _)| index % step != 0);
        let kept: Vec<&str> = kept.map(|(_, line)| line.as_str()).collect();
        assert!(!judged(&kept.join("\n")).0.is_empty(), "every {step}th line is missing");
        let cut = lines.iter().map(|line| &line[..line.floor_char_boundary(line.len() - step)]);
        assert!(Log::read(&cut.collect::<Vec<_>>().join("\n")).is_ok_and(|log| log.unreadable > 9));
    }
}
