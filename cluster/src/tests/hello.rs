//! The hello replies of members, at once, awaited and streamed.

use std::time::Duration;

use bson::oid::ObjectId;
use bson::rawdoc;
use sdam_core::bson;
use sdam_core::wire::Flags;

use super::{
    ClusterOptions, Input, SECOND, ServerVersion, World, awaitable, body, counter, options,
};

#[test]
fn a_primary_names_its_set_its_term_and_itself() {
    let mut world = World::settled(ServerVersion::V6_0);
    let primary = world.primary().unwrap();
    let reply = world.hello(primary);
    let me = reply.get_str("me").unwrap();
    assert_eq!(me, ["a:1", "b:2", "c:3"][primary.0]);
    assert_eq!(reply.get_str("primary").unwrap(), me);
    assert!(reply.get_bool("isWritablePrimary").unwrap());
    assert!(!reply.get_bool("secondary").unwrap());
    assert!(reply.get("ismaster").unwrap().is_none());
    let first_term = ObjectId::parse_str("7fffffff0000000000000001").unwrap();
    assert_eq!(reply.get_object_id("electionId").unwrap(), first_term);
    assert_eq!(reply.get_str("setName").unwrap(), "rs");
    let hosts: Vec<_> = reply.get_array("hosts").unwrap().into_iter().collect();
    assert_eq!(hosts.len(), 3);
    assert_eq!(reply.get_i32("maxWireVersion").unwrap(), 17);
}

#[test]
fn a_secondary_names_the_primary_and_no_election() {
    let mut world = World::settled(ServerVersion::V6_0);
    let primary = world.primary().unwrap();
    let secondary = world.secondary();
    let reply = world.hello(secondary);
    assert!(reply.get_bool("secondary").unwrap());
    assert!(!reply.get_bool("isWritablePrimary").unwrap());
    let address = ["a:1", "b:2", "c:3"][primary.0];
    assert_eq!(reply.get_str("primary").unwrap(), address);
    assert!(reply.get("electionId").unwrap().is_none());
}

#[test]
fn a_member_says_its_tags() {
    let mut tagged = options(ServerVersion::V6_0);
    tagged.members[1].tags = vec![("dc".into(), "ny".into())];
    let mut world = World::new(tagged);
    let reply = world.hello(super::MemberId(1));
    let tags = reply.get_document("tags").unwrap();
    assert_eq!(tags.to_owned(), rawdoc! { "dc": "ny" });
    assert!(world.hello(super::MemberId(0)).get("tags").unwrap().is_none());
}

#[test]
fn the_clock_of_the_replies_is_the_epoch_plus_virtual_time() {
    let mut world =
        World::new(ClusterOptions { wall_epoch_millis: 5_000_000, ..options(ServerVersion::V6_0) });
    world.advance(25 * SECOND);
    let primary = world.primary().unwrap();
    let reply = world.hello(primary);
    let local_time = reply.get_datetime("localTime").unwrap();
    assert_eq!(local_time.timestamp_millis(), 5_025_000);
    let last_write = reply.get_document("lastWrite").unwrap();
    let written = last_write.get_datetime("lastWriteDate").unwrap();
    let age = local_time.timestamp_millis() - written.timestamp_millis();
    assert!((0..10_000).contains(&age), "an idle primary writes every 10 s, not {age} ms ago");
    let op_time = last_write.get_document("opTime").unwrap();
    assert_eq!(op_time.get_i64("t").unwrap(), 1);
}

/// Server Monitoring, "Awaitable hello": reply when maxAwaitTimeMS elapses.
#[test]
fn an_awaitable_hello_without_news_is_answered_after_exactly_the_time_it_asked_for() {
    let mut world = World::settled(ServerVersion::V6_0);
    let primary = world.primary().unwrap();
    let seen = world.hello(primary);
    let connection = world.connect(primary);
    let asked = world.now;
    world.request(connection, Flags::NONE, &awaitable(&seen, 7 * SECOND));
    world.advance(60 * SECOND);
    let replies = world.replies(connection);
    assert_eq!(replies.len(), 1);
    assert_eq!(replies[0].0, asked + 7 * SECOND);
    assert_eq!(counter(&body(&replies[0].1)), counter(&seen));
    let flags = replies[0].1.op_msg().unwrap().flags;
    assert_eq!(flags, Flags::NONE, "no moreToCome unless the client allows it");
}

/// Server Monitoring, "Awaitable hello": reply immediately if the process id does not match, and
/// when the counter is greater than the client's.
#[test]
fn an_awaitable_hello_from_another_process_or_of_an_older_state_is_answered_at_once() {
    let mut world = World::settled(ServerVersion::V6_0);
    let primary = world.primary().unwrap();
    let seen = world.hello(primary);
    let process_id = seen.get_document("topologyVersion").unwrap();
    let process_id = process_id.get_object_id("processId").unwrap();
    let connection = world.connect(primary);
    for (process_id, theirs) in [(ObjectId::from_bytes([1; 12]), 99), (process_id, 0)] {
        let version = rawdoc! { "processId": process_id, "counter": theirs as i64 };
        let hello = rawdoc! {
            "hello": 1, "topologyVersion": version, "maxAwaitTimeMS": 10_000, "$db": "admin",
        };
        assert_eq!(counter(&world.ask(connection, &hello)), counter(&seen));
    }
}

/// Server Monitoring, "Awaitable hello": one argument without the other is an error.
#[test]
fn a_hello_that_cannot_be_awaited_is_refused_with_the_code_of_real_servers() {
    let mut world = World::settled(ServerVersion::V4_4);
    let primary = world.primary().unwrap();
    let seen = world.hello(primary);
    let version = seen.get_document("topologyVersion").unwrap().to_owned();
    let process_id = version.get_object_id("processId").unwrap();
    let ahead = rawdoc! { "processId": process_id, "counter": counter(&seen) + 1 };
    let negative = rawdoc! { "processId": process_id, "counter": -1_i64 };
    let cases = [
        (31368, rawdoc! { "hello": 1, "topologyVersion": version.clone(), "$db": "admin" }),
        (31368, rawdoc! { "hello": 1, "maxAwaitTimeMS": 1, "$db": "admin" }),
        (31372, awaitable(&rawdoc! { "topologyVersion": negative }, SECOND)),
        (
            31373,
            rawdoc! {
                "hello": 1, "topologyVersion": version, "maxAwaitTimeMS": -1, "$db": "admin",
            },
        ),
        (31382, awaitable(&rawdoc! { "topologyVersion": ahead }, SECOND)),
        (14, awaitable(&rawdoc! { "topologyVersion": {} }, SECOND)),
    ];
    let connection = world.connect(primary);
    for (code, command) in cases {
        let reply = world.ask(connection, &command);
        assert_eq!(reply.get_f64("ok").unwrap(), 0.0);
        assert_eq!(reply.get_i32("code").unwrap(), code, "{command:?}");
    }
}

/// OP_MSG, "moreToCome On Responses": each reply answers the previous one; Server Monitoring,
/// "Awaitable hello": between replies the server waits for a change or maxAwaitTimeMS.
#[test]
fn an_exhaust_hello_streams_replies_that_answer_each_other() {
    let mut world = World::settled(ServerVersion::V6_0);
    let primary = world.primary().unwrap();
    let seen = world.hello(primary);
    let connection = world.connect(primary);
    let asked = world.now;
    let hello = awaitable(&seen, 4 * SECOND);
    let mut previous = world.request(connection, Flags::EXHAUST_ALLOWED, &hello);
    world.advance(10 * SECOND);
    world.handle(Input::StepDown { member: primary });
    let replies = world.replies(connection);
    let times: Vec<Duration> = replies.iter().map(|(at, _)| *at - asked).collect();
    assert_eq!(times, [4 * SECOND, 8 * SECOND, 10 * SECOND]);
    for (_, reply) in &replies {
        assert_eq!(reply.header().response_to, previous);
        assert_eq!(reply.op_msg().unwrap().flags, Flags::MORE_TO_COME);
        previous = reply.header().request_id;
    }
    let last = body(&replies[2].1);
    assert!(!last.get_bool("isWritablePrimary").unwrap());
    assert_eq!(counter(&last), counter(&seen) + 1);
}

#[test]
fn a_stream_that_waits_for_no_time_does_not_flood() {
    let mut world = World::settled(ServerVersion::V6_0);
    let primary = world.primary().unwrap();
    let seen = world.hello(primary);
    let connection = world.connect(primary);
    world.request(connection, Flags::EXHAUST_ALLOWED, &awaitable(&seen, Duration::ZERO));
    world.advance(Duration::from_millis(100));
    assert_eq!(world.replies(connection).len(), 101);
}

#[test]
fn a_hello_without_a_topology_version_is_never_streamed() {
    let mut world = World::settled(ServerVersion::V6_0);
    let primary = world.primary().unwrap();
    let connection = world.connect(primary);
    let hello = rawdoc! { "hello": 1, "$db": "admin" };
    world.request(connection, Flags::EXHAUST_ALLOWED, &hello);
    world.advance(60 * SECOND);
    let replies = world.replies(connection);
    assert_eq!(replies.len(), 1);
    assert_eq!(replies[0].1.op_msg().unwrap().flags, Flags::NONE);
}

#[test]
fn requests_behind_an_awaitable_hello_are_answered_after_it_and_in_order() {
    let mut world = World::settled(ServerVersion::V6_0);
    let primary = world.primary().unwrap();
    let seen = world.hello(primary);
    let connection = world.connect(primary);
    let first = world.request(connection, Flags::NONE, &awaitable(&seen, SECOND));
    let second = world.request(connection, Flags::NONE, &rawdoc! { "ping": 1, "$db": "admin" });
    assert!(world.replies(connection).is_empty());
    world.advance(SECOND);
    let replies = world.replies(connection);
    let answered: Vec<i32> = replies.iter().map(|(_, it)| it.header().response_to).collect();
    assert_eq!(answered, [first, second]);
}
