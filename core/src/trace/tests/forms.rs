//! Everything that is written is read as what it was.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::world::{Event, URI, World, criteria, failure, reply};
use crate::config::metadata::DriverInfo;
use crate::config::{OpeningHello, Options, ServerApi, ServerApiVersion};
use crate::dns::srv::SrvRecord;
use crate::dns::{DnsCause, DnsError, Question};
use crate::failure::{Cause, Failure, ProxyRefusal, Stage};
use crate::id::{LinkId, ServerId, WaiterId};
use crate::time::Instant;
use crate::topology::Input;
use crate::trace::criteria::Answers;
use crate::trace::input::{self, Call};
use crate::trace::{Header, Replay, Trace, TraceError, message, time};
use crate::wire::{
    Flags, ReplyFlags, write_op_msg, write_op_msg_with_sequences, write_op_query, write_op_reply,
};

/// Writes an input, reads it, and compares the two.
fn round_trip(input: &Input<'static>) {
    let text = input::written(input, &[]);
    let Call::Other(again) = input::read(&text, &Answers::default()).unwrap() else {
        panic!("{text} is another input");
    };
    assert_eq!(format!("{again:?}"), format!("{input:?}"), "{text}");
    assert_eq!(input::written(&again, &[]), text);
    assert!(!text.contains('\n'), "{text}");
}

#[test]
fn every_input_is_read_as_what_it_was() {
    let link = LinkId { server: ServerId(3), number: 14 };
    round_trip(&Input::Opened { link });
    for stage in [Stage::Resolve, Stage::Connect, Stage::Proxy, Stage::Tls] {
        round_trip(&Input::Reached { link, stage });
    }
    round_trip(&Input::Abandon { waiter: WaiterId(u64::MAX) });
    round_trip(&Input::RequestCheck);
    round_trip(&Input::Shutdown);
    let info = |version, platform| DriverInfo::new("ödm \"x\"", version, platform).unwrap();
    round_trip(&Input::AppendMetadata { info: info(None, None) });
    round_trip(&Input::AppendMetadata { info: info(Some("1"), Some("p\n")) });
    for kind in 0..=255 {
        let waiter = WaiterId(u64::from(kind));
        let (criteria, until) = (Arc::new(criteria(kind)), Instant::from_nanos(u64::MAX));
        for deadline in [None, Some(until)] {
            let criteria = Arc::clone(&criteria);
            round_trip(&Input::Wait { waiter, criteria, deadline });
        }
        let server = ServerId(u64::from(kind));
        round_trip(&Input::OperationFailed { server, failure: failure(kind) });
    }
    let records = |count: u16| {
        let ttl = Duration::from_secs(30);
        let refused = |port| (port == 2).then(|| "not ours".into());
        let record =
            |port| SrvRecord { refused: refused(port), ..SrvRecord::new("a.example", port, ttl) };
        (0..count).map(record).collect::<Vec<_>>()
    };
    round_trip(&Input::Resolved { records: Ok(records(0)) });
    round_trip(&Input::Resolved { records: Ok(records(3)) });
    let error = DnsError::new(Question::txt("x.example"), DnsCause::Resolver("no\nway".into()));
    round_trip(&Input::Resolved { records: Err(error) });
}

#[test]
fn an_error_of_dns_keeps_its_words() {
    let error = DnsError::new(Question::srv("mongodb", "x.example"), DnsCause::NoNameServer);
    let text = input::written(&Input::Resolved { records: Err(error.clone()) }, &[]);
    let Call::Other(Input::Resolved { records: Err(again) }) =
        input::read(&text, &Answers::default()).unwrap()
    else {
        panic!("{text}");
    };
    assert_eq!(again.to_string(), error.to_string());
}

#[test]
fn every_failure_is_read_as_what_it_was() {
    let refusal = ProxyRefusal::Unassigned(77);
    let causes = [
        Cause::NotResolved,
        Cause::LookupFailed,
        Cause::Command { code: -3, name: "Näme".into() },
        Cause::ProxyRefused { refusal },
        Cause::ProxyRefused { refusal: ProxyRefusal::TtlExpired },
        Cause::Malformed,
        Cause::CertificateName,
    ];
    for (cause, stage) in causes.into_iter().zip([Stage::Resolve, Stage::Tls].iter().cycle()) {
        let link = LinkId { server: ServerId(0), number: 0 };
        let failure = Failure::new(*stage, cause, "a \"detail\"\u{1b}\r\n ~0000");
        round_trip(&Input::Closed { link, failure });
    }
}

proptest! {
    #[test]
    fn times_are_read_as_what_they_were(nanos: u64) {
        let at = Instant::from_nanos(nanos);
        prop_assert_eq!(time::read(&time::written(at)), Ok(at));
    }

    #[test]
    fn any_bytes_are_read_as_what_they_were(bytes: Vec<u8>) {
        prop_assert_eq!(message::from_json(&message::to_json(&bytes)).unwrap(), bytes);
    }
}

#[test]
fn messages_are_readable_and_read_as_what_they_were() {
    let body = bson::rawdoc! {
        "a": 1, "long": 1_i64, "double": 1.0, "x": { "y": [true, bson::RawBson::Null, "z"] },
        "odd": { "$numberInt": "5" },
    };
    let mut readable = Vec::new();
    write_op_msg(&mut readable, 1, 2, Flags::MORE_TO_COME, &body);
    let shown = message::to_json(&readable).to_string();
    assert!(shown.starts_with('"'), "it cannot be distinguished from a number: {shown}");

    let body = bson::rawdoc! { "a": 1, "long": 1_i64, "double": 1.0, "x": { "y": [true, "z"] } };
    let mut messages = [const { Vec::new() }; 4];
    write_op_msg(&mut messages[0], 1, 2, Flags::MORE_TO_COME, &body);
    write_op_reply(&mut messages[1], 3, 4, ReplyFlags::QUERY_FAILURE, &body);
    write_op_query(&mut messages[2], 5, "admin", &body);
    write_op_reply(&mut messages[3], 6, 7, ReplyFlags::AWAIT_CAPABLE, &body);
    let shown = messages.each_ref().map(|bytes| message::to_json(bytes));
    let body = r#"{"a":1,"long":{"$numberLong":"1"},"double":1.0,"x":{"y":[true,"z"]}}"#;
    let expected = [
        format!(r#"{{"id":1,"to":2,"moreToCome":true,"msg":{body}}}"#),
        format!(r#"{{"id":3,"to":4,"queryFailure":true,"reply":{body}}}"#),
        format!(r#"{{"id":5,"to":0,"query":{body}}}"#),
        format!(r#"{{"id":6,"to":7,"awaitCapable":true,"reply":{body}}}"#),
    ];
    assert_eq!(shown.each_ref().map(ToString::to_string), expected);
    for (bytes, shown) in messages.iter().zip(&shown) {
        assert_eq!(&message::from_json(shown).unwrap(), bytes);
    }
}

#[test]
fn what_json_cannot_show_is_base64() {
    let deep = (0..60).fold(bson::rawdoc! {}, |inner, _| bson::rawdoc! { "d": inner });
    let long = bson::rawdoc! { "text": "x".repeat(100_000) };
    let mut messages = [const { Vec::new() }; 4];
    write_op_msg(&mut messages[0], 1, 2, Flags::NONE, &deep);
    write_op_msg(&mut messages[1], 1, 2, Flags::NONE, &long);
    write_op_msg(&mut messages[2], 1, 2, Flags::CHECKSUM_PRESENT, &reply(1));
    let documents: [&bson::RawDocument; 1] = [&reply(1)];
    let sequences = [("documents", &documents[..])];
    let body = bson::rawdoc! { "insert": "x" };
    write_op_msg_with_sequences(&mut messages[3], 1, 2, Flags::NONE, &body, &sequences);
    for bytes in &messages[..2] {
        let shown = message::to_json(bytes);
        assert!(shown.is_string(), "{shown}");
        assert_eq!(&message::from_json(&shown).unwrap(), bytes);
    }
    for bytes in &messages[2..] {
        assert!(message::to_json(bytes).is_string());
    }
}

#[test]
fn options_are_read_as_far_as_a_topology_looks_at_them() {
    let api = ServerApi { strict: Some(true), ..ServerApi::from(ServerApiVersion::V1) };
    let plain = |uri: &str| Options::builder().uri(uri).unwrap();
    let srv = plain("mongodb+srv://x.example.com/?srvMaxHosts=2").build().unwrap();
    let seeds = vec!["a.example.com".parse().unwrap(), "b.example.com:5".parse().unwrap()];
    let cases = [
        plain("mongodb://a,b:5,%2Ftmp%2Fx.sock/?replicaSet=r%C3%A4&heartbeatFrequencyMS=700"),
        plain("mongodb://a/?tls=true&serverMonitoringMode=poll&connectTimeoutMS=0").server_api(api),
        plain("mongodb://[::1]/?directConnection=true").single_threaded(true),
        plain("mongodb://a/?loadBalanced=true"),
        plain("mongodb://a,b/?replicaSet=rs").eager_checks(true),
        plain("mongodb://a").opening_hello(OpeningHello::OpQuery),
        plain("mongodb://a").heartbeat_frequency(Duration::from_micros(700_001)),
    ];
    let built = cases.map(|case| {
        let rules = ["a=b", "*.x=/tmp/y.sock"].map(|rule| rule.parse().unwrap());
        case.address_map(crate::config::address_map::AddressMap::new(rules).unwrap())
            .build()
            .unwrap()
    });
    let resolved = srv.resolved(seeds, "authSource=x&loadBalanced=false").unwrap();
    let resolved = resolved.with_rescan_interval(Duration::from_secs(99));
    let judged = resolved.clone().with_judged_hosts().unwrap();
    for options in built.into_iter().chain([resolved, judged]) {
        let header = Header::new(&options, u64::MAX);
        let (first, rest) = header.lines(false);
        let trace = Trace::parse(format!("{first}{rest}")).unwrap();
        assert_eq!(trace.header().options.traced(), *header.options, "{rest}");
        assert_eq!(trace.header().seed, u64::MAX);
    }
}

#[test]
fn an_error_names_the_line_and_what_is_allowed() {
    let header = "sdam-trace 1\n# why\nsdam 0.1.0\nmachine topology\noptions mongodb://a\nseed 1\n";
    let long = format!("[{}0]", "0,".repeat(1 << 20));
    let cases = [
        ("\u{feff}sdam-trace 1\n", "line 1: the file was converted: a trace has no byte order"),
        ("sdam-trace 1 sealed\r\n", "line 1: the file was converted: a trace has no byte order"),
        (
            &format!("{header}+1.000000000 received s0.0 [1,{long}]\n"),
            "line 7: a message is malformed: it has 2097155 bytes; at most 1048576 are read",
        ),
        (
            &format!("{header}+1.000000000 resolved {{\"records\":[{}]}}\n", " ".repeat(1 << 24)),
            "line 7: what was resolved is malformed: it has 16777230 bytes; at most 16777216",
        ),
        ("x", "line 1: this is not a trace; the first line must be `sdam-trace 2`"),
        ("sdam-trace 0\n", "line 1: format 0 is not known; this is sdam 0.1.0, which reads"),
        ("sdam-trace 3\n", "line 1: format 3 is not known; this is sdam 0.1.0, which reads"),
        ("sdam-trace 1\nseed 1\n", "line 2: `sdam …` is due here"),
        ("sdam-trace 1\nsdam x\nmachine pool\n", "line 3: machine \"pool\" is not known"),
        ("sdam-trace 1\nsdam x\nmachine topology\noptions a\n", "line 5: `seed …` is due here"),
        (&format!("{header}  > open\n"), "line 7: a line must begin with `+`"),
        (&format!("{header}+1.0 tick\n"), "line 7: the time is malformed: \"+1.0\"; write"),
        (&format!("{header}+1.000000000 tock\n"), "line 7: there is no input \"tock\""),
        (
            &format!("{header}+1.000000000 closed s0.0 {{\"stage\":\"connect\"}}\n"),
            "line 7: a failure is malformed: missing field",
        ),
        (
            &format!("{header}+2.000000000 tick\n+1.000000000 tick\n"),
            "line 8: time goes back to +1.000000000",
        ),
        (&format!("{header}+1.000000000 received s0.0 [{{}}]\n"), "line 7: a message is malformed"),
    ];
    for (text, expected) in cases {
        let error: TraceError = Trace::parse(text).unwrap_err();
        assert!(error.to_string().starts_with(expected), "{error}\n{expected}");
    }
}

/// A reader of format 1 does not know `reached`; the first line has the format.
#[test]
fn a_trace_is_of_the_newest_format_and_one_of_an_older_is_read_as_well() {
    let mut world = World::new(URI);
    let link = LinkId { server: ServerId(0), number: 0 };
    world.input(Input::Reached { link, stage: Stage::Hello });
    let text = world.text();
    assert!(text.starts_with("sdam-trace 2\n") && text.contains(" reached s0.0 "), "{text}");
    let older = text.replacen("sdam-trace 2", "sdam-trace 1", 1);
    for text in [text, older] {
        let trace = Trace::parse(&text).unwrap();
        let mut replay = Replay::new(&trace).unwrap();
        let steps = std::iter::from_fn(|| replay.step()).inspect(|step| assert!(step.is_ok()));
        assert_eq!(steps.count(), trace.steps().len());
    }
}

#[test]
fn a_trace_that_begins_in_the_middle_is_read_but_not_replayed() {
    let text = "sdam-trace 1 tail\nsdam 0\nmachine topology\noptions mongodb://a\nseed 1\n\
                +9.000000000 tick\n  > whatever\n";
    let trace = Trace::parse(text).unwrap();
    assert_eq!(trace.steps().len(), 1);
    assert!(Replay::new(&trace).is_none());
}

#[test]
fn what_is_received_at_once_is_shown_message_by_message() {
    let (mut world, mut bytes) = (World::new(URI), Vec::new());
    world.happen(Event::Opened(0));
    for number in 0..3 {
        write_op_msg(&mut bytes, number, 1, Flags::NONE, &bson::rawdoc! { "ok": 0 });
    }
    let link = LinkId { server: ServerId(0), number: 0 };
    let (first, rest) = bytes.split_at(bytes.len() / 2);
    world.input(Input::Received { link, bytes: first });
    world.input(Input::Received { link, bytes: rest });
    let text = world.text();
    let shown = r#"received s0.0 [{"id":0,"to":1,"msg":{"ok":0}},"#;
    assert!(text.contains(&format!("{shown}{}]\n", first.len() - bytes.len() / 3)), "{text}");
}
