//! Nonsense from a peer is a fact about that peer: a clear error on that server, and nothing else.

use std::collections::BTreeSet;

use bson::oid::ObjectId;
use bson::{Bson, Document, RawDocumentBuf, doc, rawdoc};
use proptest::prelude::*;
use sdam_core::failure::{Cause, MAX_DETAIL_LEN};
use sdam_core::hello::REPLY_FIELDS;
use sdam_core::machine::Machine;
use sdam_core::topology::Input;
use sdam_core::wire::{Flags, ReplyFlags, write_op_msg, write_op_reply};

use super::fixture::{Fixture, fresh, primary, standalone};

const URI: &str = "mongodb://a,b/?replicaSet=rs";

/// Two servers, of which `b` is a good primary; then `a` sends these bytes in answer to its first
/// hello, and this is the error it gets.
fn error_after(bytes: impl FnOnce(&mut Fixture) -> Vec<u8>) -> String {
    let mut fixture = Fixture::new(URI);
    fixture.greet("b.0", &fresh(primary("b", &["a", "b"], 1), 1)).opened("a.0");
    let bytes = bytes(&mut fixture);
    fixture.quiet().bytes("a.0", &bytes);
    assert_eq!(fixture.summary(), "ReplicaSetWithPrimary a=Unknown b=RSPrimary");
    assert!(!fixture.has_link("a.0"), "the connection is dropped");
    let failure = fixture.server("a").error.clone().expect("an error");
    assert_eq!(failure.cause, Cause::Malformed);
    fixture.at(10_000);
    assert!(fixture.has_link("a.1"), "and tried again a heartbeat later");
    failure.to_string()
}

/// The same for a well-formed message with this reply.
fn error_of(reply: &RawDocumentBuf) -> String {
    error_after(|fixture| fixture.answer("a.0", reply, Flags::NONE))
}

#[test]
fn wire_lengths_opcodes_and_response_to_are_checked() {
    let reply = standalone();
    let too_long = error_after(|_| 1_048_577_i32.to_le_bytes().to_vec());
    assert_eq!(
        too_long,
        "malformed reply: a message of 1048577 bytes; lengths from 16 to 1048576 are allowed"
    );
    let wrong_id = error_after(|_| {
        let mut bytes = Vec::new();
        write_op_msg(&mut bytes, 9, 77, Flags::NONE, &reply);
        bytes
    });
    assert_eq!(wrong_id, "malformed reply: a reply to request 77, not to request 1");
    let wrong_op_code = error_after(|_| {
        let mut bytes = Vec::new();
        write_op_reply(&mut bytes, 9, 1, ReplyFlags::NONE, &reply);
        bytes
    });
    assert_eq!(wrong_op_code, "malformed reply: the message has opcode 1, not 2013");
    let truncated = error_after(|fixture| {
        let mut bytes = fixture.answer("a.0", &reply, Flags::NONE);
        bytes.truncate(60);
        bytes[0] = 60;
        bytes
    });
    assert_eq!(truncated, "malformed reply: a message that ends inside its document");
}

#[test]
fn a_message_that_nothing_asked_for_ends_the_connection_and_hastens_the_next_check() {
    let mut fixture = Fixture::new("mongodb://a/?directConnection=true&serverMonitoringMode=poll");
    fixture.greet("a.0", &standalone());
    let unasked = fixture.answer("a.0", &standalone(), Flags::NONE);
    fixture.at(100).quiet().bytes("a.0", &unasked);
    assert_eq!(fixture.log(), ["close a.0"]);
    fixture.at(500);
    assert_eq!(fixture.log(), ["started a", "open a.1"]);
}

/// OP_MSG, "exhaustAllowed": the server must not set moreToCome in a reply to a request without it.
#[test]
fn a_reply_that_announces_another_one_is_refused_unless_that_was_allowed() {
    let detail = "malformed reply: a reply that announces another one, which nothing asked for";
    let greeting = error_after(|fixture| fixture.answer("a.0", &standalone(), Flags::MORE_TO_COME));
    assert_eq!(greeting, detail);
    let mut fixture = Fixture::new("mongodb://a/?directConnection=true&serverMonitoringMode=poll");
    fixture.greet("a.0", &fresh(standalone(), 1)).at(10_000);
    fixture.stream("a.0", &fresh(standalone(), 2));
    assert_eq!(fixture.server("a").error.as_ref().unwrap().to_string(), detail);
    let mut fixture = super::monitoring::streaming();
    fixture.opened("a.1").stream("a.1", &standalone());
    assert_eq!(fixture.links(), ["a.0"], "nor does who is only measured make its client listen");
    assert_eq!(fixture.summary(), "Single a=Standalone");
}

/// A reply with every field that is read.
fn complete() -> Document {
    doc! {
        "helloOk": true, "ismaster": false, "isWritablePrimary": false, "secondary": true,
        "arbiterOnly": false, "hidden": false, "isreplicaset": false, "msg": "hello",
        "setName": "rs", "setVersion": 1, "electionId": ObjectId::from_bytes([1; 12]),
        "hosts": ["a:27017", "b:27017"], "passives": [], "arbiters": [], "primary": "b:27017",
        "me": "a:27017", "tags": { "dc": "east" },
        "lastWrite": { "lastWriteDate": bson::DateTime::from_millis(1) },
        "logicalSessionTimeoutMinutes": 30, "minWireVersion": 0, "maxWireVersion": 17,
        "topologyVersion": { "processId": ObjectId::from_bytes([7; 12]), "counter": 1_i64 },
        "iscryptd": false, "errmsg": "", "code": 0, "codeName": "", "ok": 1,
    }
}

#[test]
fn every_field_of_a_wrong_type_is_an_error_that_names_the_field() {
    let raw = |document: &Document| RawDocumentBuf::try_from(document).unwrap();
    let named: BTreeSet<String> = complete().into_iter().map(|(name, _)| name).collect();
    let read = REPLY_FIELDS.into_iter().chain(["lastWrite"]);
    assert_eq!(named, read.map(str::to_owned).collect());
    for name in named {
        let mut reply = complete();
        // No field of hello is a decimal.
        reply.insert(name.clone(), Bson::Decimal128(bson::Decimal128::from_bytes([0; 16])));
        let error = error_of(&raw(&reply));
        assert!(error.contains(&format!("{name} is Decimal128, not a")), "{name}: {error}");
    }
    for (field, inner) in [
        ("tags", doc! { "dc": 1 }),
        ("lastWrite", doc! { "lastWriteDate": 1 }),
        ("topologyVersion", doc! { "processId": 1, "counter": 1_i64 }),
        ("topologyVersion", doc! { "counter": 1_i64 }),
        ("topologyVersion", doc! { "processId": ObjectId::from_bytes([7; 12]), "counter": -1_i64 }),
    ] {
        let mut reply = complete();
        reply.insert(field, inner);
        assert!(error_of(&raw(&reply)).contains(field));
    }
}

#[test]
fn every_field_may_be_missing_or_null_except_ok() {
    let raw = |document: &Document| RawDocumentBuf::try_from(document).unwrap();
    for name in complete().keys().filter(|name| *name != "ok") {
        for value in [None, Some(Bson::Null)] {
            let mut reply = complete();
            reply.remove(name);
            if let Some(value) = value {
                reply.insert(name.clone(), value);
            }
            let mut fixture = Fixture::new("mongodb://a/?directConnection=true");
            fixture.greet("a.0", &raw(&reply));
            assert_eq!(fixture.server("a").error, None, "{name}");
        }
    }
    let mut reply = complete();
    reply.remove("ok");
    assert_eq!(error_of(&raw(&reply)), "malformed reply: a reply to hello in which ok is missing");
}

#[test]
fn excessive_replies_are_refused() {
    let with = |name: &str, value: Bson| {
        let mut reply = complete();
        reply.insert(name, value);
        error_of(&RawDocumentBuf::try_from(&reply).unwrap())
    };
    let hosts: Vec<Bson> = (0..10_000).map(|n| Bson::String(format!("h{n}:1"))).collect();
    assert!(with("hosts", Bson::Array(hosts)).ends_with("hosts has more than 1000 elements"));
    let long = "x".repeat(1 << 19);
    assert!(
        with("me", Bson::String(long.clone())).contains("me has a member that is not an address")
    );
    assert!(with("hosts", vec![long.clone()].into()).contains("524288 bytes long"));
    assert!(with("setName", Bson::String(long)).contains("setName is 524288 bytes long"));
    assert!(
        with("setVersion", Bson::Int32(-1)).ends_with("setVersion is -1, which is out of range")
    );
    assert!(with("maxWireVersion", Bson::Int64(1 << 40)).ends_with("is out of range"));
    assert!(with("hosts", vec!["a:99999".to_owned()].into()).contains("port \"99999\""));
}

#[test]
fn a_server_that_names_ever_new_members_cannot_add_servers_without_end() {
    let mut fixture = Fixture::new("mongodb://a/?replicaSet=rs&connectTimeoutMS=0");
    fixture.greet("a.0", &fresh(super::fixture::secondary("a", &["a"]), 0));
    for round in 1..6 {
        let hosts: Vec<String> = (0..900).map(|host| format!("h{round}x{host}")).collect();
        let mut hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
        hosts.push("a");
        let reply = fresh(super::fixture::secondary("a", &hosts), round);
        fixture.stream("a.0", &reply).forget();
    }
    let view = fixture.view();
    assert_eq!(view.servers().len(), sdam_core::description::MAX_SERVERS);
    assert_eq!(fixture.server("a").error, None);
}

#[test]
fn members_that_come_and_go_between_two_replies_are_the_same_whole_or_torn() {
    let run = |torn: bool| {
        let mut fixture = Fixture::new(URI);
        fixture.greet("a.0", &fresh(primary("a", &["a"], 1), 0));
        let first = fresh(primary("a", &["a", "x"], 1), 1);
        let mut one = fixture.answer("a.0", &first, Flags::MORE_TO_COME);
        let second = fresh(primary("a", &["a", "b"], 1), 2);
        let two = fixture.answer("a.0", &second, Flags::NONE);
        if torn {
            fixture.bytes("a.0", &one).bytes("a.0", &two);
        } else {
            one.extend(&two);
            fixture.bytes("a.0", &one);
        }
        fixture.log()
    };
    assert_eq!(run(false), run(true));
    assert!(run(true).contains(&"open x.0".into()));
}

#[test]
fn text_that_is_not_utf_8_is_an_error() {
    let error = error_after(|fixture| {
        let mut bytes = fixture.answer("a.0", &rawdoc! { "ok": 1, "setName": "Z" }, Flags::NONE);
        let z = bytes.iter().rposition(|byte| *byte == b'Z').unwrap();
        bytes[z] = 0xff;
        bytes
    });
    assert!(error.contains("malformed BSON"), "{error}");
}

#[test]
fn an_endless_error_message_is_cut() {
    let refusal = rawdoc! { "ok": 0, "errmsg": "ä".repeat(1 << 18) };
    let mut fixture = Fixture::new(URI);
    fixture.greet("a.0", &refusal);
    assert_eq!(fixture.server("a").error.as_ref().unwrap().detail.len(), 1024);
}

#[test]
fn an_error_that_quotes_what_the_server_sent_is_cut() {
    let reply = rawdoc! { "ok": 1, "xxxxxxxxxx": "Z" };
    let error = error_after(|fixture| {
        let mut reply = reply.as_bytes().to_vec();
        let type_and_name = reply.iter().position(|byte| *byte == b'x').unwrap() - 1;
        reply[type_and_name] = 0x78;
        reply.splice(type_and_name + 1..=type_and_name + 1, std::iter::repeat_n(b'x', 1 << 19));
        let length = u32::try_from(reply.len()).unwrap().to_le_bytes();
        reply[..4].copy_from_slice(&length);
        let reply = RawDocumentBuf::from_bytes(reply).unwrap();
        fixture.answer("a.0", &reply, Flags::NONE)
    });
    assert!(error.contains("malformed BSON") && error.ends_with("xx …"), "{error}");
    assert!(error.len() <= MAX_DETAIL_LEN);
}

proptest! {
    /// Laws 5 and 6: any bytes are legal, and how they are split changes nothing.
    #[test]
    fn any_bytes_whole_or_torn_lead_to_the_same_actions(
        damage in prop::collection::vec((0_usize..400, any::<u8>()), 0..4),
        cuts in prop::collection::vec(1_usize..60, 0..12),
    ) {
        let run = |cuts: &[usize]| {
            let mut fixture = Fixture::new(URI);
            fixture.greet("a.0", &fresh(primary("a", &["a"], 1), 0));
            let reply = fresh(primary("a", &["a", "b"], 1), 1);
            let mut bytes = fixture.answer("a.0", &reply, Flags::MORE_TO_COME);
            bytes.extend(fixture.answer("a.0", &fresh(primary("a", &["a", "b"], 1), 2), Flags::NONE));
            for (at, byte) in &damage {
                let at = at % bytes.len();
                bytes[at] = *byte;
            }
            let (link, mut rest) = (fixture.link("a.0"), &bytes[..]);
            for cut in cuts {
                let (head, tail) = rest.split_at((*cut).min(rest.len()));
                rest = tail;
                fixture.input(Input::Received { link, bytes: head });
            }
            fixture.input(Input::Received { link, bytes: rest }).at(60_000);
            (fixture.log(), fixture.summary())
        };
        prop_assert_eq!(run(&[]), run(&cuts));
    }

    /// Law 5: an input for a link that never was, or is dead, is ignored.
    #[test]
    fn inputs_for_dead_links_are_ignored(which in 0_usize..3) {
        let mut fixture = Fixture::new(URI);
        fixture.opened("a.0");
        let link = fixture.link("a.0");
        fixture.closed("a.0").quiet();
        let deadline = fixture.topology.machine.deadline();
        match which {
            0 => fixture.input(Input::Opened { link }),
            1 => fixture.input(Input::Received { link, bytes: &[1, 2, 3] }),
            _ => {
                let failure = fixture.server("a").error.clone().unwrap();
                fixture.input(Input::Closed { link, failure })
            }
        };
        prop_assert_eq!(fixture.log(), Vec::<String>::new());
        prop_assert_eq!(fixture.topology.machine.deadline(), deadline);
    }
}
