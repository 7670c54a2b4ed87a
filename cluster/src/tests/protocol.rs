//! Requests of every form: OP_QUERY, checksums, silence, unknown commands, and nonsense.

use bson::{RawDocument, RawDocumentBuf, rawdoc};
use sdam_core::bson;
use sdam_core::wire::{Flags, write_op_msg, write_op_query};

use super::{ClusterOptions, ConnectionId, Input, MemberId, SECOND, ServerVersion, World, options};
use crate::{Cluster, MAX_MEMBERS, OptionsError};

fn query(world: &mut World, connection: ConnectionId, command: &RawDocument) -> RawDocumentBuf {
    let mut bytes = Vec::new();
    write_op_query(&mut bytes, 9, "admin", command);
    world.receive(connection, &bytes);
    let replies = world.replies(connection);
    assert_eq!(replies.len(), 1);
    assert_eq!(replies[0].1.header().response_to, 9);
    replies[0].1.op_reply().unwrap().document.to_owned()
}

/// MongoDB Handshake: a client opens with legacy hello and `helloOk: true`, as OP_QUERY.
#[test]
fn a_legacy_hello_is_answered_in_its_own_words_and_says_whether_hello_is_known() {
    for (version, hello_ok) in [
        (ServerVersion::V4_2, false),
        (ServerVersion::V4_4, false),
        (ServerVersion::V5_0, true),
        (ServerVersion::V6_0, true),
    ] {
        let mut world = World::settled(version);
        let primary = world.primary().unwrap();
        let connection = world.connect(primary);
        for name in ["isMaster", "ismaster"] {
            let mut command = RawDocumentBuf::new();
            command.append(<&bson::raw::CStr>::try_from(name).unwrap(), 1);
            command.append(bson::raw::cstr!("helloOk"), true);
            let reply = query(&mut world, connection, &command);
            assert!(reply.get_bool("ismaster").unwrap());
            assert!(reply.get("isWritablePrimary").unwrap().is_none());
            assert_eq!(reply.get_bool("helloOk").unwrap_or(false), hello_ok, "{version:?}");
            let wire_version = reply.get_i32("maxWireVersion").unwrap();
            assert_eq!(wire_version, version.max_wire_version());
        }
        let unasked = query(&mut world, connection, &rawdoc! { "isMaster": 1 });
        assert!(unasked.get("helloOk").unwrap().is_none());
    }
}

#[test]
fn version_4_2_knows_neither_hello_nor_topology_versions() {
    let mut world = World::settled(ServerVersion::V4_2);
    let primary = world.primary().unwrap();
    let refused = world.hello(primary);
    assert_eq!(refused.get_f64("ok").unwrap(), 0.0);
    assert_eq!(refused.get_i32("code").unwrap(), 59);
    assert_eq!(refused.get_str("codeName").unwrap(), "CommandNotFound");
    let connection = world.connect(primary);
    // It ignores what it does not know, and so answers at once.
    let legacy = rawdoc! { "isMaster": 1, "maxAwaitTimeMS": 10_000, "$db": "admin" };
    let reply = world.ask(connection, &legacy);
    assert!(reply.get_bool("ismaster").unwrap());
    assert!(reply.get("topologyVersion").unwrap().is_none());
    assert_eq!(reply.get_i32("maxWireVersion").unwrap(), 8);
}

#[test]
fn the_commands_of_a_handshake_succeed_and_others_are_not_found() {
    let mut world = World::settled(ServerVersion::V6_0);
    let connection = world.connect(MemberId(0));
    let ping = world.ask(connection, &rawdoc! { "ping": 1, "$db": "admin" });
    assert_eq!(ping.get_f64("ok").unwrap(), 1.0);
    let end = world.ask(connection, &rawdoc! { "endSessions": [], "$db": "admin" });
    assert_eq!(end.get_f64("ok").unwrap(), 1.0);
    let build = world.ask(connection, &rawdoc! { "buildInfo": 1, "$db": "admin" });
    assert_eq!(build.get_str("version").unwrap(), "6.0.0");
    let unknown = world.ask(connection, &rawdoc! { "noSuchCommand": 1, "$db": "test" });
    assert_eq!(unknown.get_i32("code").unwrap(), 59);
    assert_eq!(unknown.get_str("errmsg").unwrap(), "no such command: 'noSuchCommand'");
}

/// OP_MSG, "Global Command Arguments": `$db` must be provided.
#[test]
fn an_op_msg_without_a_database_is_refused() {
    let mut world = World::settled(ServerVersion::V6_0);
    let connection = world.connect(MemberId(0));
    let reply = world.ask(connection, &rawdoc! { "ping": 1 });
    assert_eq!(reply.get_i32("code").unwrap(), 40571);
}

#[test]
fn a_request_with_a_checksum_gets_one_back() {
    let mut world = World::settled(ServerVersion::V6_0);
    let connection = world.connect(MemberId(0));
    let ping = rawdoc! { "ping": 1, "$db": "admin" };
    world.request(connection, Flags::CHECKSUM_PRESENT, &ping);
    let replies = world.replies(connection);
    // Reading it verifies the checksum.
    let flags = replies[0].1.op_msg().unwrap().flags;
    assert_eq!(flags, Flags::CHECKSUM_PRESENT);
}

/// OP_MSG, "moreToCome On Requests": there is no response.
#[test]
fn a_request_with_more_to_come_is_not_answered() {
    let mut world = World::settled(ServerVersion::V6_0);
    let connection = world.connect(MemberId(0));
    let ping = rawdoc! { "ping": 1, "$db": "admin" };
    world.request(connection, Flags::MORE_TO_COME, &ping);
    assert!(world.replies(connection).is_empty());
    assert_eq!(world.ask(connection, &ping).get_f64("ok").unwrap(), 1.0);
}

#[test]
fn nonsense_closes_its_connection_and_no_other() {
    let mut corrupt = Vec::new();
    let ping = rawdoc! { "ping": 1, "$db": "admin" };
    write_op_msg(&mut corrupt, 1, 0, Flags::CHECKSUM_PRESENT, &ping);
    *corrupt.last_mut().unwrap() ^= 1;
    let mut other_opcode = corrupt.clone();
    other_opcode[12..16].copy_from_slice(&2012_i32.to_le_bytes());
    let mut world = World::settled(ServerVersion::V6_0);
    let bystander = world.connect(MemberId(0));
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &corrupt, &other_opcode] {
        let connection = world.connect(MemberId(0));
        world.receive(connection, bytes);
        assert!(world.is_closed(connection), "{bytes:?}");
        world.receive(connection, bytes);
        assert!(world.replies(connection).is_empty());
    }
    assert_eq!(world.ask(bystander, &ping).get_f64("ok").unwrap(), 1.0);
}

#[test]
fn unknown_members_and_connections_are_ignored() {
    let mut world = World::settled(ServerVersion::V6_0);
    let (before, unknown) = (world.log.len(), MemberId(7));
    let connection = ConnectionId(99);
    world.handle(Input::Received { connection, bytes: b"x" });
    world.handle(Input::Disconnected { connection });
    for input in [
        Input::Kill { member: unknown },
        Input::Start { member: unknown },
        Input::StepDown { member: unknown },
    ] {
        world.handle(input);
    }
    assert_eq!(world.log.len(), before);
    let to_unknown = world.connect(unknown);
    assert!(world.is_closed(to_unknown), "no member could answer");
}

#[test]
fn options_out_of_range_are_refused() {
    let good = || options(ServerVersion::V6_0);
    let refused = |options: ClusterOptions| Cluster::new(options).unwrap_err();
    let none = ClusterOptions { members: Vec::new(), ..good() };
    assert_eq!(refused(none), OptionsError::MemberCount { count: 0, most: MAX_MEMBERS });
    let nameless = ClusterOptions { set_name: String::new(), ..good() };
    assert_eq!(refused(nameless), OptionsError::SetName);
    let mut twice = good();
    twice.members[1] = twice.members[0].clone();
    assert_eq!(refused(twice), OptionsError::SameAddress("a:1".parse().unwrap()));
    let mut tagged = good();
    tagged.members[0].tags.push(("a\0b".into(), String::new()));
    assert_eq!(refused(tagged), OptionsError::Tag("a\0b".into()));
    let hasty = ClusterOptions { election_timeout: SECOND / 100, ..good() };
    assert_eq!(refused(hasty), OptionsError::ElectionTimeout(SECOND / 100));
}
