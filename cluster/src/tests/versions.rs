//! The differences between the versions, and what all have in common.

use bson::oid::ObjectId;
use bson::{RawDocument, RawDocumentBuf, rawdoc};
use sdam_core::bson;
use sdam_core::wire::{ReplyFlags, write_op_query};

use super::{AWAITABLE, Input, SECOND, ServerVersion, World};
use crate::{Change, ConnectionId, MemberId};

/// The wire versions that servers report.
#[test]
fn every_version_reports_its_own() {
    let old = [(9, (4, 4)), (13, (5, 0)), (17, (6, 0)), (21, (7, 0))];
    let new = [(25, (8, 0)), (27, (8, 2)), (29, (9, 0))];
    let wire = old.into_iter().chain(new);
    for (version, (wire_version, number)) in AWAITABLE.into_iter().zip(wire) {
        assert_eq!(version.number(), number);
        let mut world = World::settled(version);
        let primary = world.primary().unwrap();
        let reply = world.hello(primary);
        assert_eq!(reply.get_i32("maxWireVersion").unwrap(), wire_version);
        assert_eq!(reply.get_i32("minWireVersion").unwrap(), 0);
    }
}

/// Legacy hello is not gone, and says what hello says.
#[test]
fn legacy_hello_is_answered_by_all() {
    for version in AWAITABLE {
        let mut world = World::settled(version);
        let primary = world.primary().unwrap();
        for name in ["isMaster", "ismaster"] {
            let mut command = bson::RawDocumentBuf::new();
            command.append(<&bson::raw::CStr>::try_from(name).unwrap(), 1);
            command.append(bson::raw::cstr!("helloOk"), true);
            command.append(bson::raw::cstr!("$db"), "admin");
            let connection = world.connect(primary);
            let reply = world.ask(connection, &command);
            assert!(reply.get_bool("ismaster").unwrap());
            assert!(reply.get("isWritablePrimary").unwrap().is_none());
            let hello_ok = reply.get_bool("helloOk").unwrap_or(false);
            assert_eq!(hello_ok, version != ServerVersion::V4_4);
        }
    }
}

/// All versions report them alike; in which order they are compared is the client's business
/// (SDAM, "updateRSFromPrimary").
#[test]
fn the_election_id_is_the_term_and_the_set_version_that_of_the_configuration() {
    for version in [ServerVersion::V4_2].into_iter().chain(AWAITABLE) {
        let mut world = World::settled(version);
        let ids = |world: &mut World| {
            let primary = world.primary().unwrap();
            let connection = world.connect(primary);
            let reply = world.ask(connection, &rawdoc! { "isMaster": 1, "$db": "admin" });
            (reply.get_object_id("electionId").unwrap(), reply.get_i32("setVersion").unwrap())
        };
        let term = |hex: &str| ObjectId::parse_str(format!("7fffffff{hex:0>16}")).unwrap();
        assert_eq!(ids(&mut world), (term("1"), 1));
        let changes: [Change; 0] = [];
        world.reconfig(&changes);
        assert_eq!(ids(&mut world), (term("1"), 2));
        let primary = world.primary().unwrap();
        world.handle(Input::StepDown { member: primary });
        world.advance(SECOND);
        assert_eq!(ids(&mut world), (term("2"), 2), "an election leaves the version alone");
    }
}

/// A reply to OP_QUERY: its flags, and the document.
fn queried(
    world: &mut World,
    connection: ConnectionId,
    namespace: &str,
    command: &RawDocument,
) -> (ReplyFlags, RawDocumentBuf) {
    let (database, collection) = namespace.split_once('.').unwrap();
    let mut bytes = Vec::new();
    write_op_query(&mut bytes, 1, database, command);
    if collection != "$cmd" {
        let end = bytes.windows(5).position(|it| it == b"$cmd\0").unwrap();
        assert_eq!(collection.len(), 4, "the message stays as long as it is");
        bytes[end..end + 4].copy_from_slice(collection.as_bytes());
    }
    world.receive(connection, &bytes);
    let replies = world.replies(connection);
    let reply = replies[0].1.op_reply().unwrap();
    (reply.flags, reply.document.to_owned())
}

/// As servers 4.2.6, 4.4.2, 5.0.4 and 6.0.5 do.
#[test]
fn after_5_0_only_what_opens_a_connection_may_come_by_op_query() {
    for version in AWAITABLE {
        let mut world = World::settled(version);
        let primary = world.primary().unwrap();
        let connection = world.connect(primary);
        for (command, opens) in [
            (rawdoc! { "isMaster": 1 }, true),
            (rawdoc! { "buildInfo": 1 }, true),
            (rawdoc! { "_isSelf": 1 }, true),
            (rawdoc! { "$query": { "buildinfo": 1 } }, true),
            (rawdoc! { "ping": 1 }, false),
        ] {
            let (flags, reply) = queried(&mut world, connection, "admin.$cmd", &command);
            assert!(flags.await_capable() && !flags.query_failed());
            match opens || version <= ServerVersion::V5_0 {
                true => assert_eq!(reply.get_f64("ok").unwrap(), 1.0, "{command:?}"),
                false => assert_eq!(reply.get_i32("code").unwrap(), 352),
            }
        }
    }
}

/// As servers 4.2.6, 4.4.2 and 5.0.4 do: the flag says that a secondary may answer.
#[test]
fn a_secondary_answers_a_read_that_comes_by_op_query_with_the_flag_for_that() {
    let mut world = World::settled(ServerVersion::V5_0);
    let primary = world.primary().unwrap();
    let secondary = (0..3).map(MemberId).find(|it| *it != primary).unwrap();
    let connection = world.connect(secondary);
    let (_, reply) = queried(&mut world, connection, "test.$cmd", &rawdoc! { "count": "x" });
    assert_eq!(reply.get_f64("ok").unwrap(), 1.0);
    let preference = rawdoc! { "mode": "primary" };
    let command = rawdoc! { "$query": { "count": "x" }, "$readPreference": preference };
    let (_, reply) = queried(&mut world, connection, "test.$cmd", &command);
    assert_eq!(reply.get_i32("code").unwrap(), 13435);
}

#[test]
fn a_query_for_documents_is_refused_in_its_own_form() {
    for version in AWAITABLE {
        let mut world = World::settled(version);
        let connection = world.connect(MemberId(0));
        let (flags, reply) = queried(&mut world, connection, "test.docs", &rawdoc! {});
        assert!(flags.query_failed());
        let code = if version > ServerVersion::V5_0 { 5_739_101 } else { 238 };
        assert_eq!(reply.get_i32("code").unwrap(), code);
        assert!(reply.get_str("$err").is_ok() && reply.get_f64("ok").unwrap() == 0.0);
    }
}
