//! Rules on evidence that is made here, and the command on the embedded deployment.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sdam_core::bson::oid::ObjectId;
use sdam_core::bson::{Bson, DateTime, Document, Timestamp, doc};
use sdam_core::wire::op_code;

use super::evidence::{
    Answer, End, Evidence, Exchange, Form, Kind, Objection, Topic, kind_of, number,
};
use super::judge::Judgement;
use super::report::{self, Linted};
use super::rule::Rule;
use crate::findings::{self, Rule as _, Severity};
use crate::printer::Printer;

const TIMEOUT: Duration = Duration::from_secs(10);

/// A reply to hello of a primary.
fn primary() -> Document {
    doc! {
        "helloOk": true, "ismaster": true, "secondary": false, "setName": "rs", "setVersion": 1,
        "hosts": ["a:1", "b:1"], "me": "a:1", "primary": "a:1",
        "electionId": ObjectId::from_bytes([1; 12]),
        "minWireVersion": 0, "maxWireVersion": 17, "maxBsonObjectSize": 16_777_216,
        "maxMessageSizeBytes": 48_000_000, "maxWriteBatchSize": 100_000,
        "logicalSessionTimeoutMinutes": 30, "connectionId": 5, "readOnly": false,
        "topologyVersion": { "processId": ObjectId::from_bytes([2; 12]), "counter": 6_i64 },
        "lastWrite": {
            "opTime": { "ts": Timestamp { time: 1, increment: 1 } },
            "lastWriteDate": DateTime::from_millis(0),
        },
        "ok": 1.0,
    }
}

/// Answers that come so many milliseconds after the beginning.
fn exchange(request: Document, answers: &[(u64, Document)]) -> Exchange {
    let answers = answers.iter().zip(100..).map(|((came, document), request_id)| Answer {
        came: Duration::from_millis(*came),
        request_id,
        response_to: if request_id == 100 { 7 } else { request_id - 1 },
        op_code: op_code::OP_MSG,
        is_compressed: false,
        flags: 0,
        document: Ok(document.clone()),
    });
    Exchange {
        request,
        request_id: 7,
        form: Form::Message,
        exhaust_allowed: false,
        offers_compression: false,
        sent: Duration::ZERO,
        answers: answers.collect(),
        end: None,
    }
}

/// Evidence of what was said on each topic.
fn evidence(said: impl IntoIterator<Item = (Topic, Exchange)>) -> Evidence {
    let exchanges = said.into_iter().collect::<BTreeMap<_, _>>();
    Evidence { exchanges, timeout: TIMEOUT, ..Evidence::default() }
}

/// Evidence of a reply to hello.
fn with_hello(hello: Document) -> Evidence {
    evidence([(Topic::Legacy, exchange(doc! { "isMaster": 1 }, &[(1, hello)]))])
}

fn named(rule: &str) -> &'static Rule {
    findings::named(rule).expect("a rule")
}

fn judged(rule: &str, evidence: &Evidence) -> &'static str {
    match (named(rule).judge)(evidence) {
        Ok(()) => "kept",
        Err(Objection::Broken { .. }) => "broken",
        Err(Objection::NotTried(_)) => "not tried",
    }
}

#[test]
fn names_are_unique_and_every_rule_says_where_it_is_written() {
    let names: BTreeSet<_> = <&Rule>::all().map(|rule| rule.name).collect();
    assert_eq!(names.len(), <&Rule>::all().count());
    for rule in <&Rule>::all() {
        let (specification, section) = rule.source;
        let texts = [rule.name, rule.text, specification, section, rule.breaks];
        assert!(texts.iter().all(|text| !text.is_empty()), "{rule:?}");
        assert_eq!(named(rule.name).name, rule.name);
    }
    assert!(findings::named::<&Rule>("all").is_err_and(|error| error.contains("no-reply")));
}

#[test]
fn without_evidence_no_rule_is_kept_or_broken() {
    let judgement = Judgement::of(&Evidence::default(), &[]);
    assert!(judgement.findings.is_empty() && judgement.kept.is_empty(), "{judgement:?}");
    assert_eq!(judgement.not_tried.len(), <&Rule>::all().count());
}

#[test]
fn a_primary_as_it_should_be_breaks_nothing() {
    let judgement = Judgement::of(&with_hello(primary()), &[]);
    assert!(judgement.findings.is_empty(), "{:?}", judgement.findings);
    assert!(judgement.kept.len() > 20, "{:?}", judgement.kept);
}

#[test]
fn fields_of_wrong_types_are_named() {
    let wrong: [(&str, &str, Bson); 14] = [
        ("wire-version", "maxWireVersion", 17_i64.into()),
        ("wire-version", "minWireVersion", 18.into()),
        ("wire-version-supported", "minWireVersion", 26.into()),
        ("sizes", "maxBsonObjectSize", 0.into()),
        ("sizes", "maxMessageSizeBytes", 16_777_216.into()),
        ("session-timeout", "logicalSessionTimeoutMinutes", 30.0.into()),
        ("connection-id", "connectionId", (-1).into()),
        ("one-role", "arbiterOnly", true.into()),
        ("booleans", "readOnly", Bson::Null),
        ("tags", "tags", Bson::Array(vec![])),
        ("hosts", "hosts", Bson::Array(vec![1.into()])),
        ("me", "me", "c:1".into()),
        ("primary-address", "primary", "b:1".into()),
        ("topology-version", "topologyVersion", doc! { "counter": 6_i64 }.into()),
    ];
    for (rule, field, value) in wrong {
        assert_eq!(judged(rule, &with_hello(primary())), "kept", "{rule}");
        let mut hello = primary();
        hello.insert(field, value.clone());
        assert_eq!(judged(rule, &with_hello(hello)), "broken", "{rule}: {field}: {value}");
    }
}

/// "If it has a value, sessions are supported" (Driver Sessions, "How to Tell Whether a Connection
/// Supports Sessions").
#[test]
fn a_field_that_is_null_counts_as_absent_where_a_rule_depends_on_it() {
    let refused = doc! { "ok": 0, "code": 9, "errmsg": "unknown field lsid" };
    for (timeout, expected) in [(Bson::Int32(30), "broken"), (Bson::Null, "not tried")] {
        let mut hello = primary();
        hello.insert("logicalSessionTimeoutMinutes", timeout);
        let mut reported = with_hello(hello);
        let found = exchange(doc! {}, &[(5, doc! { "ok": 1 })]);
        reported.exchanges.insert(Topic::FindNothing, found);
        reported.exchanges.insert(Topic::WithSession, exchange(doc! {}, &[(6, refused.clone())]));
        assert_eq!(judged("session-id", &reported), expected);
    }
}

#[test]
fn what_a_server_is_follows_from_hello() {
    let kinds = [
        (doc! { "ok": 1, "ismaster": true }, Kind::Standalone),
        (doc! { "ok": 1, "msg": "isdbgrid", "setName": "rs" }, Kind::Mongos),
        (primary(), Kind::Primary),
        (doc! { "setName": "rs", "secondary": true }, Kind::Secondary),
        (doc! { "setName": "rs", "secondary": true, "hidden": true }, Kind::Other),
        (doc! { "setName": "rs", "arbiterOnly": true }, Kind::Arbiter),
        (doc! { "isreplicaset": true }, Kind::Other),
    ];
    for (hello, kind) in kinds {
        assert_eq!(kind_of(&hello), kind, "{hello}");
    }
}

#[test]
fn a_rule_for_later_versions_is_not_tried_on_earlier_ones() {
    let mut hello = primary();
    hello.remove("topologyVersion");
    assert_eq!(judged("topology-version", &with_hello(hello.clone())), "broken");
    hello.insert("maxWireVersion", 8);
    assert_eq!(judged("topology-version", &with_hello(hello)), "not tried");
}

/// A hello that waits for 1 s, with this counter, and replies to it.
fn awaited(topic: Topic, answers: &[(u64, i64)]) -> Evidence {
    let version = |counter: i64| {
        doc! { "processId": ObjectId::from_bytes([2; 12]), "counter": counter }
    };
    let request = doc! { "isMaster": 1, "maxAwaitTimeMS": 1000_i64, "topologyVersion": version(6) };
    let reply = |counter| {
        let mut hello = primary();
        hello.insert("topologyVersion", version(counter));
        hello
    };
    let answers: Vec<_> = answers.iter().map(|(came, it)| (*came, reply(*it))).collect();
    let mut reported = with_hello(primary());
    reported.exchanges.insert(topic, exchange(request, &answers));
    reported
}

#[test]
fn a_reply_may_come_early_if_it_has_news() {
    let judged = |answers: &[_]| judged("await-waits", &awaited(Topic::AwaitUnchanged, answers));
    assert_eq!(judged(&[(1000, 6)]), "kept");
    assert_eq!(judged(&[(960, 6)]), "kept", "clocks may differ");
    assert_eq!(judged(&[(10, 7)]), "kept");
    assert_eq!(judged(&[(900, 6)]), "broken");
}

#[test]
fn a_stream_has_to_wait_after_each_reply() {
    let judged = |answers: &[_]| judged("stream-waits", &awaited(Topic::Stream, answers));
    assert_eq!(judged(&[(1000, 6), (2000, 6), (3000, 6)]), "kept");
    assert_eq!(judged(&[(1000, 6), (1500, 6)]), "broken");
    assert_eq!(judged(&[(1000, 6), (1500, 7)]), "kept");
    assert_eq!(judged(&[(1700, 6), (2000, 6)]), "kept", "the first was read late");
}

/// A hello that waits for 2 s and ends then, and one beside it that was sent and answered at these
/// times, in microseconds.
fn beside(sent: u64, came: u64) -> Evidence {
    let mut reported = awaited(Topic::AwaitUnchanged, &[(2000, 6)]);
    let waiting = reported.exchanges.get_mut(&Topic::AwaitUnchanged).expect("it was asked");
    waiting.request.insert("maxAwaitTimeMS", 2000_i64);
    let mut beside = exchange(doc! { "isMaster": 1 }, &[(0, primary())]);
    beside.sent = Duration::from_micros(sent);
    beside.answers[0].came = Duration::from_micros(came);
    reported.exchanges.insert(Topic::Beside, beside);
    reported
}

#[test]
fn whether_a_hello_blocks_is_known_of_a_question_well_before_its_end_only() {
    let looks = [
        ("answered meanwhile", (250_000, 251_000), (false, true)),
        ("answered just then, and read first", (250_000, 1_999_999), (true, false)),
        ("answered just then, and read later", (250_000, 2_000_001), (true, false)),
        ("sent late", (1_200_000, 2_000_001), (false, false)),
        ("sent after the end", (2_000_100, 2_000_200), (false, false)),
        ("sent after the end, and answered late", (2_000_100, 3_900_000), (false, false)),
        ("sent before it waits", (0, 1_900_000), (false, false)),
    ];
    for (what, (sent, came), expected) in looks {
        let reported = beside(sent, came);
        assert_eq!((reported.is_blocked(), reported.is_unblocked()), expected, "{what}");
        let rule = if expected.0 { "broken" } else { "kept" };
        assert_eq!(judged("await-blocks", &reported), rule, "{what}");
    }
}

#[test]
fn silence_is_named_with_its_reason() {
    let mut reported = awaited(Topic::AwaitUnchanged, &[]);
    let waiting = reported.exchanges.get_mut(&Topic::AwaitUnchanged).expect("it was asked");
    waiting.end = Some(End::Silent(Duration::from_secs(11)));
    assert_eq!(judged("await-ends", &reported), "broken");
    assert_eq!(judged("await-waits", &reported), "not tried");
    assert_eq!(judged("no-reply", &reported), "kept", "another rule is about that");
    let mut silent = exchange(doc! { "ping": 1 }, &[]);
    silent.end = Some(End::Closed("it was reset".to_owned()));
    let judgement = Judgement::of(&evidence([(Topic::Ping, silent)]), &[]);
    let names: Vec<_> = judgement.findings.iter().map(|finding| finding.rule.name).collect();
    assert_eq!(names, ["no-reply"]);
    assert_eq!(judgement.findings[0].found, "the connection has ended: it was reset");
}

#[test]
fn nothing_is_kept_that_was_not_seen() {
    let mut silent = exchange(doc! { "isMaster": 1 }, &[]);
    silent.end = Some(End::Silent(TIMEOUT));
    let judgement = Judgement::of(&evidence([(Topic::Query, silent)]), &[]);
    assert!(judgement.kept.is_empty(), "{:?}", judgement.kept);
    let mut by_query = exchange(doc! { "isMaster": 1 }, &[(1, primary())]);
    by_query.form = Form::Query;
    by_query.answers[0].op_code = op_code::OP_REPLY;
    let reported = evidence([(Topic::Query, by_query)]);
    for rule in ["no-reply", "unknown-flags", "unasked-checksum", "unasked-more-to-come"] {
        assert_eq!(judged(rule, &reported), "not tried", "{rule}");
    }
    assert_eq!(judged("reply-form", &reported), "kept");
}

#[test]
fn a_restart_meanwhile_is_no_breach() {
    let reported = |ids: &[u8]| {
        let topics = [Topic::Legacy, Topic::Hello, Topic::LowerCase].into_iter().zip(1..);
        let said = topics.zip(ids).map(|((topic, at), id)| {
            let version = doc! { "processId": ObjectId::from_bytes([*id; 12]), "counter": 6_i64 };
            let mut hello = primary();
            hello.insert("topologyVersion", version);
            let mut said = exchange(doc! { "isMaster": 1 }, &[(at, hello)]);
            said.sent = Duration::from_millis(at);
            (topic, said)
        });
        let reported = evidence(said);
        (judged("process-id", &reported), judged("counter", &reported))
    };
    assert_eq!(reported(&[1, 1, 1]), ("kept", "kept"));
    assert_eq!(reported(&[1, 2, 2]), ("not tried", "not tried"));
    assert_eq!(reported(&[1, 2, 1]), ("broken", "not tried"));
}

#[test]
fn long_values_of_the_server_are_cut() {
    let mut hello = primary();
    hello.insert("connectionId", "5".repeat(10_000));
    let judgement = Judgement::of(&with_hello(hello), &[]);
    let [finding] = &judgement.findings[..] else { panic!("{:?}", judgement.findings) };
    assert!(finding.found.chars().count() <= 500 && finding.found.ends_with('…'), "{finding:?}");
}

#[test]
fn an_election_between_two_hellos_is_no_disagreement() {
    let mut secondary = primary();
    secondary.insert("ismaster", false);
    secondary.insert("secondary", true);
    let reported = |one: &Document, other: &Document| {
        let legacy = exchange(doc! { "isMaster": 1 }, &[(1, one.clone())]);
        let hello = exchange(doc! { "isMaster": 1 }, &[(2, other.clone())]);
        judged("hello-forms-agree", &evidence([(Topic::Legacy, legacy), (Topic::Hello, hello)]))
    };
    assert_eq!(reported(&primary(), &primary()), "kept");
    assert_eq!(reported(&primary(), &secondary), "broken", "with the same topologyVersion");
    let mut newer = secondary.clone();
    newer.insert("topologyVersion", doc! { "counter": 7_i64 });
    assert_eq!(reported(&primary(), &newer), "kept");
    let without = |mut hello: Document| {
        hello.remove("topologyVersion");
        hello
    };
    assert_eq!(reported(&without(primary()), &without(secondary)), "kept");
}

#[test]
fn who_lacks_a_right_breaks_nothing() {
    let refused =
        doc! { "ok": 0.0, "code": 13, "codeName": "Unauthorized", "errmsg": "log in first" };
    let mut reported = with_hello(primary());
    for topic in [Topic::FindNothing, Topic::UnknownCursor, Topic::KillUnknown] {
        let said = exchange(doc! {}, &[(5, refused.clone())]);
        reported.exchanges.insert(topic, said);
    }
    reported.exchanges.insert(Topic::WithSession, exchange(doc! {}, &[(6, refused)]));
    for rule in ["missing-collection", "unknown-cursor", "kill-cursors", "session-id"] {
        assert_eq!(judged(rule, &reported), "not tried", "{rule}");
    }
}

#[test]
fn a_set_that_has_had_no_primary_yet_need_not_have_the_time() {
    let ping = || exchange(doc! { "ping": 1 }, &[(5, doc! { "ok": 1.0 })]);
    let mut hello = primary();
    hello.insert("ismaster", false);
    hello.insert("secondary", true);
    for (has_primary, expected) in [(true, "broken"), (false, "not tried")] {
        if !has_primary {
            hello.remove("primary");
        }
        let mut reported = with_hello(hello.clone());
        reported.exchanges.insert(Topic::Ping, ping());
        for rule in ["cluster-time", "operation-time"] {
            assert_eq!(judged(rule, &reported), expected, "{rule}");
        }
    }
}

#[test]
fn counters_of_concurrent_replies_may_come_in_any_order() {
    let at = |sent: u64, came: u64, counter: i64| {
        let mut hello = primary();
        let version = hello.get_document_mut("topologyVersion").expect("a document");
        version.insert("counter", counter);
        let mut said = exchange(doc! { "isMaster": 1 }, &[(came, hello)]);
        said.sent = Duration::from_millis(sent);
        said
    };
    let judged =
        |one, other| judged("counter", &evidence([(Topic::Legacy, one), (Topic::Hello, other)]));
    assert_eq!(judged(at(0, 10, 6), at(5, 20, 5)), "kept");
    assert_eq!(judged(at(0, 10, 6), at(15, 20, 5)), "broken");
}

#[test]
fn what_is_allowed_is_counted_and_the_rest_is_printed_in_one_form() {
    let mut hello = primary();
    hello.insert("connectionId", "5");
    hello.insert("maxWriteBatchSize", 1.5);
    let allowed = [named("connection-id")];
    let judgement = Judgement::of(&with_hello(hello), &allowed);
    assert_eq!(judgement.allowed, [("connection-id", 1)].into());
    assert_eq!(judgement.count(Severity::Error), 1);
    let server = "a:1".parse().expect("an address");
    let kind = Some((Kind::Primary, Some(17)));
    let linted = [Linted { server, kind, error: None, judgement }];
    let (mut text, mut json) = (Vec::new(), Vec::new());
    report::text(&linted, &mut Printer::new(&mut text, false)).expect("it is printed");
    report::json(&linted, &mut Printer::new(&mut json, false)).expect("it is printed");
    let text = String::from_utf8(text).expect("text");
    assert!(text.starts_with("a:1, primary, wire version 17: "), "{text}");
    let finding = "error: sizes\n  rule:     maxBsonObjectSize, maxMessageSizeBytes and \
                   maxWriteBatchSize are int32 above 0, and a message has room for a document\n            \
                   (Write Commands, \"Request Size Limits\")\n  expected: an int32 above 0 as \
                   maxWriteBatchSize in the reply to legacy hello by OP_MSG\n  found:    \
                   maxWriteBatchSize is a double, 1.5\n  breaks:   ";
    assert!(text.contains(finding), "{text}");
    assert!(text.ends_with("1 times connection-id, which is allowed\n"), "{text}");
    let json = String::from_utf8(json).expect("text");
    let lines: Vec<serde_json::Value> =
        json.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines[0]["server"]["type"], "primary");
    assert_eq!(lines[1]["finding"]["rule"], "sizes");
    assert_eq!(lines[1]["finding"]["severity"], "error");
    let counts = &lines.last().expect("a line")["counts"];
    assert_eq!((&counts["errors"], &counts["allowed"]["connection-id"]), (&1.into(), &1.into()));
    assert_eq!(number(&Bson::Double(1.0)), Some(1));
}
