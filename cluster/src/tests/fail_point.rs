//! `failCommand`: all that it can do to a command, and to whom.

use std::time::Duration;

use bson::{RawDocument, RawDocumentBuf, rawdoc};
use sdam_core::bson;
use sdam_core::wire::Flags;

use super::{ConnectionId, MemberId, SECOND, ServerVersion, World, awaitable, body};

const MEMBER: MemberId = MemberId(0);

/// A deployment of which the first member has this fail point, and a connection to it.
fn world(mode: impl Into<bson::RawBson>, data: RawDocumentBuf) -> (World, ConnectionId) {
    let mut world = World::settled(ServerVersion::V6_0);
    let connection = world.connect(MEMBER);
    assert_eq!(configure(&mut world, mode, data), 0);
    (world, connection)
}

/// Sets the fail point, and returns the code of the error.
fn configure(world: &mut World, mode: impl Into<bson::RawBson>, data: RawDocumentBuf) -> i32 {
    let connection = world.connect(MEMBER);
    let command = rawdoc! {
        "configureFailPoint": "failCommand", "mode": mode.into(), "data": data, "$db": "admin",
    };
    code(&world.ask(connection, &command))
}

fn code(reply: &RawDocument) -> i32 {
    reply.get_i32("code").unwrap_or_default()
}

fn ping() -> RawDocumentBuf {
    rawdoc! { "ping": 1, "$db": "admin" }
}

#[test]
fn it_strikes_as_often_as_its_mode_says_and_only_the_commands_that_it_names() {
    let data = || rawdoc! { "failCommands": ["ping"], "errorCode": 91, "errorLabels": ["A", "B"] };
    let (mut world, connection) = world(rawdoc! { "times": 2 }, data());
    let build = rawdoc! { "buildInfo": 1, "$db": "admin" };
    assert_eq!(code(&world.ask(connection, &build)), 0);
    let failed = world.ask(connection, &ping());
    assert_eq!(code(&failed), 91);
    assert_eq!(failed.get_str("codeName").unwrap(), "ShutdownInProgress");
    let labels: Vec<_> = failed.get_array("errorLabels").unwrap().into_iter().collect();
    assert_eq!(labels.len(), 2);
    assert!(failed.get("topologyVersion").unwrap().is_none());
    let mut codes =
        |count| -> Vec<i32> { (0..count).map(|_| code(&world.ask(connection, &ping()))).collect() };
    assert_eq!(codes(2), [91, 0]);
    for (mode, expected) in [
        (rawdoc! { "skip": 1 }.into(), [0, 91, 91]),
        (bson::RawBson::from("alwaysOn"), [91, 91, 91]),
        (bson::RawBson::from("off"), [0, 0, 0]),
    ] {
        assert_eq!(configure(&mut world, mode, data()), 0);
        let codes = [(); 3].map(|()| code(&world.ask(connection, &ping())));
        assert_eq!(codes, expected);
    }
}

#[test]
fn a_not_primary_error_carries_the_topology_version_of_the_moment() {
    let data = rawdoc! { "failCommands": ["ping"], "errorCode": 10107 };
    let (mut world, connection) = world("alwaysOn", data);
    let now = super::counter(&world.hello(MEMBER));
    assert_eq!(super::counter(&world.ask(connection, &ping())), now);
}

#[test]
fn whoever_replaces_it_is_told_how_often_it_has_struck() {
    let data = rawdoc! { "failCommands": ["ping"], "errorCode": 6 };
    let (mut world, connection) = world("alwaysOn", data);
    for _ in 0..3 {
        world.ask(connection, &ping());
    }
    let off = rawdoc! { "configureFailPoint": "failCommand", "mode": "off", "$db": "admin" };
    let counts = [(); 2].map(|()| world.ask(connection, &off).get_i32("count").unwrap());
    assert_eq!(counts, [3, 0]);
}

#[test]
fn it_closes_connections_without_a_reply() {
    let data = rawdoc! { "failCommands": ["ping"], "closeConnection": true };
    let (mut world, connection) = world("alwaysOn", data);
    world.request(connection, Flags::NONE, &ping());
    assert!(world.is_closed(connection) && world.replies(connection).is_empty());
}

#[test]
fn a_blocked_command_and_those_behind_it_are_answered_later() {
    let data = rawdoc! {
        "failCommands": ["ping"], "blockConnection": true, "blockTimeMS": 500, "errorCode": 6,
    };
    let (mut world, connection) = world(rawdoc! { "times": 1 }, data);
    let begin = world.now;
    world.request(connection, Flags::NONE, &ping());
    world.request(connection, Flags::NONE, &ping());
    world.advance(SECOND);
    let replies = world.replies(connection);
    let codes: Vec<i32> = replies.iter().map(|(_, reply)| code(&body(reply))).collect();
    assert_eq!(codes, [6, 0]);
    assert!(replies.iter().all(|(at, _)| *at == begin + Duration::from_millis(500)));
}

#[test]
fn a_write_concern_error_does_not_keep_the_command_from_succeeding() {
    let data = rawdoc! {
        "failCommands": ["ping", "noSuchCommand"], "errorLabels": ["RetryableWriteError"],
        "writeConcernError": { "code": 91, "errmsg": "Replication is being shut down" },
    };
    let (mut world, connection) = world("alwaysOn", data);
    let reply = world.ask(connection, &ping());
    assert_eq!(reply.get_f64("ok").unwrap(), 1.0);
    let error = reply.get_document("writeConcernError").unwrap();
    assert_eq!(error.get_i32("code").unwrap(), 91);
    assert!(reply.get_array("errorLabels").is_ok());
    let unknown = world.ask(connection, &rawdoc! { "noSuchCommand": 1, "$db": "admin" });
    assert_eq!(code(&unknown), 59);
    assert!(unknown.get("writeConcernError").unwrap().is_none());
    assert!(unknown.get("errorLabels").unwrap().is_none());
}

#[test]
fn an_application_name_spares_the_connections_of_others_and_meets_the_first_hello() {
    let data = rawdoc! { "failCommands": ["hello", "ping"], "errorCode": 1234, "appName": "x" };
    let (mut world, nameless) = world("alwaysOn", data);
    assert_eq!(code(&world.ask(nameless, &ping())), 0);
    for (name, expected) in [("x", 1234), ("y", 0)] {
        let connection = world.connect(MEMBER);
        let hello =
            rawdoc! { "hello": 1, "client": { "application": { "name": name } }, "$db": "admin" };
        assert_eq!(code(&world.ask(connection, &hello)), expected);
        assert_eq!(code(&world.ask(connection, &ping())), expected);
    }
}

/// As real servers do: each hello of a stream is a command of its own.
#[test]
fn a_stream_ends_with_the_error_of_the_hello_that_began_after_it_was_set() {
    let mut world = World::settled(ServerVersion::V6_0);
    let seen = world.hello(MEMBER);
    let stream = world.connect(MEMBER);
    world.request(stream, Flags::EXHAUST_ALLOWED, &awaitable(&seen, SECOND));
    let data = rawdoc! {
        "failCommands": ["hello"], "errorCode": 1234, "blockConnection": true, "blockTimeMS": 100,
    };
    let begin = world.now;
    configure(&mut world, rawdoc! { "times": 1 }, data);
    world.advance(5 * SECOND);
    let replies = world.replies(stream);
    let codes: Vec<i32> = replies.iter().map(|(_, reply)| code(&body(reply))).collect();
    assert_eq!(codes, [0, 1234]);
    assert_eq!(replies[1].0, begin + SECOND + Duration::from_millis(100));
    assert_eq!(replies[1].1.op_msg().unwrap().flags, Flags::NONE);
    assert_eq!(code(&world.ask(stream, &rawdoc! { "hello": 1, "$db": "admin" })), 0);
}

/// As 6.0.27 does.
#[test]
fn a_command_is_named_by_any_of_its_names() {
    for (name, command) in [
        ("ismaster", rawdoc! { "isMaster": 1, "$db": "admin" }),
        ("isMaster", rawdoc! { "ismaster": 1, "$db": "admin" }),
        ("buildinfo", rawdoc! { "buildInfo": 1, "$db": "admin" }),
    ] {
        let data = rawdoc! { "failCommands": [name], "errorCode": 91 };
        let (mut world, connection) = world("alwaysOn", data);
        assert_eq!(code(&world.ask(connection, &command)), 91, "{name}");
        let ping = world.ask(connection, &ping());
        assert_eq!(code(&ping), 0, "{name}");
    }
}

#[test]
fn what_it_does_not_know_is_refused() {
    let mut world = World::settled(ServerVersion::V6_0);
    let good = || rawdoc! { "failCommands": ["ping"] };
    assert_eq!(configure(&mut world, "sometimes", good()), 2);
    assert_eq!(configure(&mut world, rawdoc! { "times": "often" }, good()), 2);
    assert_eq!(configure(&mut world, rawdoc! { "times": -1 }, good()), 2);
    for data in [
        rawdoc! { "failCommands": "ping" },
        rawdoc! { "failCommands": [1] },
        rawdoc! { "errorCode": "91" },
        rawdoc! { "blockTimeMS": -1 },
        rawdoc! { "failInternalCommands": true },
    ] {
        assert_eq!(configure(&mut world, "alwaysOn", data), 2);
    }
    let other = rawdoc! { "configureFailPoint": "other", "mode": "off", "$db": "admin" };
    let connection = world.connect(MEMBER);
    assert_eq!(code(&world.ask(connection, &other)), 266);
}
