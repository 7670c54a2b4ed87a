//! The limits of unanswered input of a client, and of input that is not even begun.

use bson::rawdoc;
use sdam_core::bson;
use sdam_core::wire::{Flags, write_op_msg};

use super::{MemberId, SECOND, ServerVersion, World, awaitable};
use crate::server::options::connections_each;
use crate::{ConnectionId, MAX_UNREAD_IN_ALL, MAX_UNREAD_LEN, UNREAD_SHARE};

const MEMBER: MemberId = MemberId(0);

/// The beginning of an OP_MSG that is never finished, of so many bytes.
fn unfinished(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    bytes[..4].copy_from_slice(&i32::try_from(MAX_UNREAD_LEN).unwrap().to_le_bytes());
    bytes[12..16].copy_from_slice(&2013_i32.to_le_bytes());
    bytes
}

/// A connection on which so many bytes are not answered.
fn keep(world: &mut World, length: usize) -> ConnectionId {
    let connection = world.connect(MEMBER);
    world.receive(connection, &unfinished(length));
    connection
}

#[test]
fn a_client_may_send_a_message_as_large_as_hello_says() {
    let mut world = World::settled(ServerVersion::V6_0);
    let primary = world.primary().unwrap();
    let most = world.hello(primary).get_i32("maxMessageSizeBytes").unwrap();
    let connection = world.connect(primary);
    let insert = |text: &str| {
        let mut bytes = Vec::new();
        let command = rawdoc! { "insert": "x", "documents": [{ "x": text }, {}], "$db": "test" };
        write_op_msg(&mut bytes, 1, 0, Flags::NONE, &command);
        bytes
    };
    let text = "y".repeat(usize::try_from(most).unwrap() - insert("").len());
    for chunk in insert(&text).chunks(1 << 20) {
        world.receive(connection, chunk);
    }
    let (_, reply) = world.replies(connection).pop().expect("an answer");
    assert_eq!(super::body(&reply).get_i32("n").unwrap(), 2);
}

#[test]
fn a_client_that_sends_more_than_the_limit_is_disconnected() {
    let mut world = World::settled(ServerVersion::V6_0);
    let primary = world.primary().unwrap();
    let seen = world.hello(primary);
    let hasty = world.connect(primary);
    world.request(hasty, Flags::NONE, &awaitable(&seen, SECOND));
    world.receive(hasty, &vec![1; MAX_UNREAD_LEN]);
    assert!(!world.is_closed(hasty));
    world.receive(hasty, &[1]);
    assert!(world.is_closed(hasty));
}

#[test]
fn all_clients_together_have_a_limit_that_leaves_each_its_share() {
    let mut world = World::settled(ServerVersion::V6_0);
    let large = MAX_UNREAD_LEN - 1;
    let kept: Vec<_> = (0..MAX_UNREAD_IN_ALL / large).map(|_| keep(&mut world, large)).collect();
    let greedy = keep(&mut world, large);
    assert!(world.is_closed(greedy));
    let rest = MAX_UNREAD_IN_ALL - kept.len() * large;
    let last = keep(&mut world, rest);
    let modest = keep(&mut world, UNREAD_SHARE);
    assert!(kept.iter().chain([&last, &modest]).all(|it| !world.is_closed(*it)));
    world.receive(modest, &[0]);
    assert!(world.is_closed(modest));
}

#[test]
fn a_client_that_speaks_tls_to_a_member_that_does_not_is_disconnected_at_once() {
    let mut world = World::settled(ServerVersion::V6_0);
    let connection = world.connect(MEMBER);
    let mut hello = vec![0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];
    hello.resize(517, 7);
    world.receive(connection, &hello);
    assert!(world.is_closed(connection));
}

#[test]
fn nothing_too_large_that_a_client_says_is_repeated_or_kept() {
    let mut world = World::settled(ServerVersion::V6_0);
    let primary = world.primary().unwrap();
    let connection = world.connect(primary);
    let long = "x".repeat(2 << 20);
    let code = |reply: &bson::RawDocument| reply.get_i32("code").unwrap_or_default();
    let find = rawdoc! { "find": "x", "$db": long.as_str() };
    assert_eq!(code(&world.ask(connection, &find)), 73);
    let data = rawdoc! { "failCommands": ["ping"], "errorLabels": [long.as_str()] };
    let fail_point = rawdoc! {
        "configureFailPoint": "failCommand", "mode": "alwaysOn", "data": data, "$db": "admin",
    };
    assert_eq!(code(&world.ask(connection, &fail_point)), 2);
    let concern = rawdoc! { "w": 9, "comment": "x".repeat(17 << 20) };
    let insert = rawdoc! { "insert": "x", "documents": [{}], "writeConcern": concern, "$db": "x" };
    assert_eq!(code(&world.ask(connection, &insert)), 10334);
}

#[test]
fn the_members_share_the_files_that_may_be_open() {
    let cases = [(3, Some(1024), 128), (7, Some(20_000), 2500), (100, Some(1024), 16)];
    for (members, files, expected) in cases {
        assert_eq!(connections_each(members, files), expected);
    }
    for files in [Some(1 << 20), Some(u64::MAX), None] {
        assert_eq!(connections_each(3, files), 4096);
    }
}
