//! The commands of a login, in every form in which they make no sense: each has an answer, which is
//! that of real servers but for its words.

use bson::{RawBson, RawDocumentBuf, rawdoc};
use proptest::prelude::*;
use sdam_core::bson;

use super::authentication::{code, find, hello_with, payload, proceed, start, world};
use super::{MemberId, ServerVersion, World};

const MEMBER: MemberId = MemberId(0);

const FIRST: &[u8] = b"n,,n=both,r=abcdef";

/// Sends a command as the first one of a connection, and returns the code of the error.
fn code_of(world: &World, command: &RawDocumentBuf) -> i32 {
    let mut world = world.clone();
    let connection = world.connect(MEMBER);
    let reply = world.ask(connection, command);
    assert_eq!(find(&mut world, connection), 13, "the connection goes on");
    code(&reply)
}

/// A `saslStart` with a field in place of its own, or without one.
fn start_with(field: &str, value: Option<&RawBson>) -> RawDocumentBuf {
    let mut command = RawDocumentBuf::new();
    for (name, own) in start(payload(FIRST)).iter().flatten() {
        match value {
            _ if name != field => command.append(name, own),
            Some(value) => command.append(name, value.clone()),
            None => {}
        }
    }
    command
}

#[test]
fn a_login_that_begins_wrongly_is_refused() {
    let [v4_2, v4_4, v6_0] =
        [ServerVersion::V4_2, ServerVersion::V4_4, ServerVersion::V6_0].map(world);
    for (field, value, expected) in [
        ("mechanism", None, 40414),
        ("mechanism", Some(5.into()), 14),
        ("mechanism", Some("PLAIN".into()), 334),
        ("mechanism", Some("scram-sha-256".into()), 334),
        ("payload", None, 40414),
        ("payload", Some(5.into()), 2),
        ("payload", Some("!!".into()), 10270),
        ("payload", Some(payload(&[b'a'; 16 * 1024 + 1])), 2),
        ("payload", Some(payload(b"")), 18),
        ("$db", Some("shop".into()), 18),
    ] {
        let command = start_with(field, value.as_ref());
        assert_eq!(code_of(&v6_0, &command), expected, "{command:?}");
    }
    let unknown = start_with("mechanism", Some(&"PLAIN".into()));
    assert_eq!(code_of(&v4_4, &unknown), 2);
    for (options, expected, on_4_2) in [
        (RawBson::from(5), 14, 0),
        (rawdoc! { "skipEmptyExchange": "x" }.into(), 2, 0),
        (rawdoc! { "other": 1 }.into(), 0, 0),
    ] {
        let mut command = start(payload(FIRST));
        command.append(bson::raw::cstr!("options"), options);
        assert_eq!(code_of(&v6_0, &command), expected, "{command:?}");
        assert_eq!(code_of(&v4_2, &command), on_4_2, "{command:?}");
    }
}

#[test]
fn a_login_that_goes_on_wrongly_is_refused_and_over_if_it_was_understood() {
    let first = || payload(b"x");
    let without = |field: &str| {
        let mut command = RawDocumentBuf::new();
        for (name, value) in proceed(1, payload(b"x")).iter().flatten().filter(|it| it.0 != field) {
            command.append(name, value);
        }
        command
    };
    let settled = world(ServerVersion::V6_0);
    let elsewhere =
        rawdoc! { "saslContinue": 1, "conversationId": 1, "payload": first(), "$db": "shop" };
    for (command, expected, after) in [
        (proceed(1, first()), 18, 17),
        (proceed(1, payload(b"")), 18, 17),
        (proceed(1, payload(&[0xff])), 18, 17),
        (proceed(2, first()), 17, 17),
        (elsewhere, 18, 17),
        (proceed("a", first()), 14, 18),
        (proceed(1_i64, first()), 14, 18),
        (proceed(1.0, first()), 14, 18),
        (proceed(1, 5.into()), 2, 18),
        (without("conversationId"), 40414, 18),
        (without("payload"), 40414, 18),
    ] {
        let mut world = settled.clone();
        let connection = world.connect(MEMBER);
        assert_eq!(code(&world.ask(connection, &proceed(1, first()))), 17, "none has begun");
        assert_eq!(code(&world.ask(connection, &start(payload(FIRST)))), 0);
        assert_eq!(code(&world.ask(connection, &command)), expected, "{command:?}");
        let again = world.ask(connection, &proceed(1, first()));
        assert_eq!(code(&again), after, "{command:?}");
    }
    // Before 5.0 any number will do.
    let mut world = world(ServerVersion::V4_4);
    let connection = world.connect(MEMBER);
    world.ask(connection, &start(payload(FIRST)));
    assert_eq!(code(&world.ask(connection, &proceed(1_i64, first()))), 18);
}

#[test]
fn a_payload_in_base64_is_answered_in_base64() {
    let mut world = world(ServerVersion::V6_0);
    let connection = world.connect(MEMBER);
    let reply = world.ask(connection, &start("biwsbj1ib3RoLHI9YWJjZGVm".into()));
    // "r=abcdef"
    assert!(reply.get_str("payload").unwrap().starts_with("cj1hYmNkZW"));
    assert_eq!(reply.get_i32("conversationId").unwrap(), 1);
    assert!(!reply.get_bool("done").unwrap());
}

#[test]
fn hello_tells_the_mechanisms_of_a_user() {
    let names = |world: &World, value: RawBson| -> (i32, Vec<String>) {
        let mut world = world.clone();
        let connection = world.connect(MEMBER);
        let reply = hello_with(&mut world, connection, "saslSupportedMechs", value);
        (code(&reply), super::addresses(&reply, "saslSupportedMechs"))
    };
    let [v4_2, v4_4, v6_0] =
        [ServerVersion::V4_2, ServerVersion::V4_4, ServerVersion::V6_0].map(world);
    let (sha_1, sha_256) = ("SCRAM-SHA-1".to_owned(), "SCRAM-SHA-256".to_owned());
    let of_both = vec![sha_1.clone(), sha_256.clone()];
    let as_document = || rawdoc! { "user": "both", "db": "admin" };
    for (value, code, expected) in [
        (RawBson::from("admin.both"), 0, of_both.clone()),
        ("admin.one".into(), 0, vec![sha_1.clone()]),
        ("admin.two".into(), 0, vec![sha_256.clone()]),
        ("shop.a,b=c".into(), 0, of_both.clone()),
        ("admin.nobody".into(), 0, vec![]),
        ("shop.both".into(), 0, vec![]),
        (".both".into(), 0, vec![]),
        ("both".into(), 2, vec![]),
        (as_document().into(), 0, of_both),
        (rawdoc! { "user": "both" }.into(), 2, vec![]),
        (5.into(), 14, vec![]),
    ] {
        assert_eq!(names(&v6_0, value.clone()), (code, expected), "{value:?}");
    }
    assert_eq!(names(&v4_2, "admin.both".into()), (0, vec![sha_1, sha_256]));
    assert_eq!(names(&v4_4, as_document().into()), (0, vec![]));
    assert_eq!(names(&v4_4, 5.into()), (0, vec![]));
}

#[test]
fn a_first_step_that_comes_with_hello_is_answered_there_or_not_at_all() {
    // Handshake, "Speculative Authentication": a failure leaves the field out.
    let first = |mechanism: &str, name: &str| {
        let first = payload(format!("n,,n={name},r=abcdef").as_bytes());
        rawdoc! { "saslStart": 1, "mechanism": mechanism, "payload": first, "db": "admin" }
    };
    let settled = world(ServerVersion::V6_0);
    let without_database =
        rawdoc! { "saslStart": 1, "mechanism": "SCRAM-SHA-1", "payload": payload(FIRST) };
    for (value, code_of_hello, is_answered) in [
        (RawBson::from(first("SCRAM-SHA-256", "both")), 0, true),
        (first("SCRAM-SHA-1", "both").into(), 0, true),
        (first("SCRAM-SHA-256", "one").into(), 0, false),
        (first("SCRAM-SHA-256", "nobody").into(), 0, false),
        (first("PLAIN", "both").into(), 0, false),
        (without_database.into(), 0, false),
        (rawdoc! { "saslStart": 1, "db": "admin" }.into(), 0, false),
        (rawdoc! { "authenticate": 1, "mechanism": "MONGODB-X509" }.into(), 0, false),
        (rawdoc! { "saslContinue": 1 }.into(), 51769, false),
        (rawdoc! {}.into(), 2, false),
        (5.into(), 14, false),
    ] {
        let mut world = settled.clone();
        let connection = world.connect(MEMBER);
        let reply = hello_with(&mut world, connection, "speculativeAuthenticate", value.clone());
        assert_eq!(code(&reply), code_of_hello, "{value:?}");
        let answer = reply.get("speculativeAuthenticate").unwrap();
        assert_eq!(answer.is_some(), is_answered, "{value:?}");
        if let Some(answer) = answer.and_then(bson::RawBsonRef::as_document) {
            assert!(answer.get("ok").unwrap().is_none());
            assert!(!answer.get_bool("done").unwrap());
        }
        let begun = world.ask(connection, &proceed(1, payload(b"x")));
        let expected = if is_answered { 18 } else { 17 };
        assert_eq!(code(&begun), expected, "{value:?}");
    }
    let mut world = world(ServerVersion::V4_2);
    let connection = world.connect(MEMBER);
    let reply = hello_with(&mut world, connection, "speculativeAuthenticate", 5);
    assert_eq!(code(&reply), 0, "it is not known yet");
}

#[test]
fn no_payload_whatsoever_logs_anybody_in() {
    let settled = world(ServerVersion::V6_0);
    let firsts = prop_oneof![
        any::<Vec<u8>>(),
        "[ny=,]{0,4}n=both(=2C|=3D|=|,){0,3}r=[a-z,=]{0,8}".prop_map(String::into_bytes),
    ];
    proptest!(|(first in firsts, last in any::<Vec<u8>>(), id in 0..3)| {
        let mut world = settled.clone();
        let connection = world.connect(MEMBER);
        for command in [start(payload(&first)), proceed(id, payload(&last))] {
            let reply = world.ask(connection, &command);
            prop_assert!([0, 17, 18, 10270].contains(&code(&reply)), "{:?}", reply);
        }
        prop_assert_eq!(find(&mut world, connection), 13);
    });
}
