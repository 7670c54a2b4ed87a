//! Commands of applications: writes, cursors, step-downs, and the logical clock.

use bson::spec::BinarySubtype;
use bson::{RawArrayBuf, RawDocument, RawDocumentBuf, rawdoc};
use sdam_core::bson;
use sdam_core::wire::Flags;

use super::{ServerVersion, World, body, counter};

fn code(reply: &RawDocument) -> i32 {
    reply.get_i32("code").unwrap_or_default()
}

fn insert() -> RawDocumentBuf {
    rawdoc! { "insert": "things", "documents": [{ "_id": 1 }], "$db": "test" }
}

/// SDAM, "not writable primary" and topologyVersion.
#[test]
fn writes_succeed_on_the_primary_and_report_the_topology_elsewhere() {
    for version in [ServerVersion::V4_2, ServerVersion::V6_0] {
        let mut world = World::settled(version);
        let (primary, secondary) = (world.primary().unwrap(), world.secondary());
        let to_primary = world.connect(primary);
        let reply = world.ask(to_primary, &insert());
        assert_eq!((reply.get_f64("ok").unwrap(), reply.get_i32("n").unwrap()), (1.0, 1));
        let to_secondary = world.connect(secondary);
        for name in ["insert", "update", "delete", "findAndModify", "replSetStepDown"] {
            let mut command = RawDocumentBuf::new();
            command.append(<&bson::raw::CStr>::try_from(name).unwrap(), "things");
            command.append(bson::raw::cstr!("$db"), "test");
            let reply = world.ask(to_secondary, &command);
            assert_eq!(code(&reply), 10107, "{name}");
            let is_old = version == ServerVersion::V4_2;
            let expected = if is_old { "NotMaster" } else { "NotWritablePrimary" };
            assert_eq!(reply.get_str("codeName").unwrap(), expected);
            let says = reply.get_document("topologyVersion").is_ok();
            assert_eq!(says, version != ServerVersion::V4_2);
        }
    }
}

#[test]
fn what_makes_no_sense_is_refused_although_nothing_would_come_of_it() {
    let mut world = World::settled(ServerVersion::V6_0);
    let primary = world.primary().unwrap();
    let connection = world.connect(primary);
    let find = rawdoc! { "find": "things", "filter": "all", "$db": "test" };
    assert_eq!(code(&world.ask(connection, &find)), 14);
    for (count, expected) in [(100_000, 0), (100_001, 16)] {
        let deletes: RawArrayBuf = (0..count).map(|_| rawdoc! {}).collect();
        let delete = rawdoc! { "delete": "things", "deletes": deletes, "$db": "test" };
        assert_eq!(code(&world.ask(connection, &delete)), expected, "{count}");
    }
}

#[test]
fn each_session_has_an_id_of_its_own() {
    let mut world = World::settled(ServerVersion::V6_0);
    let primary = world.primary().unwrap();
    let connection = world.connect(primary);
    let start = rawdoc! { "startSession": 1, "$db": "admin" };
    let ids = [0, 1].map(|_| {
        let reply = world.ask(connection, &start);
        let id = reply.get_document("id").unwrap().get_binary("id").unwrap();
        assert_eq!((id.subtype, id.bytes.len()), (BinarySubtype::Uuid, 16));
        id.bytes.to_vec()
    });
    assert_ne!(ids[0], ids[1]);
}

#[test]
fn a_primary_steps_down_when_asked_and_its_next_error_is_newer() {
    let mut world = World::settled(ServerVersion::V6_0);
    let primary = world.primary().unwrap();
    let before = counter(&world.hello(primary));
    let connection = world.connect(primary);
    let reply = world.ask(connection, &rawdoc! { "replSetStepDown": 30, "$db": "admin" });
    assert_eq!(reply.get_f64("ok").unwrap(), 1.0);
    assert_eq!(world.primary(), None);
    let refused = world.ask(connection, &insert());
    assert_eq!(code(&refused), 10107);
    assert!(counter(&refused) > before);
}

#[test]
fn a_secondary_reads_for_those_who_mean_it() {
    let mut world = World::settled(ServerVersion::V6_0);
    let secondary = world.secondary();
    let connection = world.connect(secondary);
    let mut find = rawdoc! { "find": "things", "$db": "test" };
    assert_eq!(code(&world.ask(connection, &find)), 13435);
    find.append(bson::raw::cstr!("$readPreference"), rawdoc! { "mode": "secondary" });
    assert_eq!(ids(&world.ask(connection, &find), "firstBatch"), [0, 1, 2, 3, 4, 5, 6, 7]);
}

fn ids(reply: &RawDocument, batch: &str) -> Vec<i64> {
    let batch = reply.get_document("cursor").unwrap().get_array(batch).unwrap();
    let id = |it: bson::RawBsonRef<'_>| it.as_document().unwrap().get_i64("_id").unwrap();
    batch.into_iter().map(|it| id(it.unwrap())).collect()
}

fn cursor_id(reply: &RawDocument) -> i64 {
    reply.get_document("cursor").unwrap().get_i64("id").unwrap()
}

fn get_more(id: i64, size: i32) -> RawDocumentBuf {
    rawdoc! { "getMore": id, "collection": "things", "batchSize": size, "$db": "test" }
}

#[test]
fn a_cursor_gives_its_batches_on_the_server_that_opened_it_and_on_no_other() {
    let mut world = World::settled(ServerVersion::V6_0);
    let (primary, secondary) = (world.primary().unwrap(), world.secondary());
    let connection = world.connect(primary);
    let find = rawdoc! { "find": "things", "batchSize": 3, "$db": "test" };
    let first = world.ask(connection, &find);
    assert_eq!(ids(&first, "firstBatch"), [0, 1, 2]);
    assert_eq!(first.get_document("cursor").unwrap().get_str("ns").unwrap(), "test.things");
    let second = world.ask(connection, &get_more(cursor_id(&first), 4));
    assert_eq!(ids(&second, "nextBatch"), [3, 4, 5, 6]);
    let last = world.ask(connection, &get_more(cursor_id(&second), 0));
    assert_eq!((ids(&last, "nextBatch"), cursor_id(&last)), (vec![7], 0));
    assert_eq!(code(&world.ask(connection, &get_more(0, 1))), 43);
    let elsewhere = world.connect(secondary);
    assert_eq!(code(&world.ask(elsewhere, &get_more(cursor_id(&first), 1))), 43);
}

#[test]
fn a_cursor_ends_at_its_limit_and_begins_behind_what_is_skipped() {
    let mut world = World::settled(ServerVersion::V6_0);
    let primary = world.primary().unwrap();
    let connection = world.connect(primary);
    let find = rawdoc! { "find": "things", "skip": 2, "limit": 5, "batchSize": 3, "$db": "test" };
    let first = world.ask(connection, &find);
    assert_eq!(ids(&first, "firstBatch"), [2, 3, 4]);
    let last = world.ask(connection, &get_more(cursor_id(&first), 3));
    assert_eq!((ids(&last, "nextBatch"), cursor_id(&last)), (vec![5, 6], 0));
    let single = rawdoc! { "find": "things", "batchSize": 3, "singleBatch": true, "$db": "test" };
    assert_eq!(cursor_id(&world.ask(connection, &single)), 0);
    let beyond = rawdoc! { "find": "things", "skip": i64::MAX, "limit": 1, "$db": "test" };
    let beyond = world.ask(connection, &beyond);
    assert_eq!((ids(&beyond, "firstBatch"), cursor_id(&beyond)), (vec![], 0));
}

#[test]
fn a_cursor_is_killed_where_it_was_opened() {
    let mut world = World::settled(ServerVersion::V6_0);
    let primary = world.primary().unwrap();
    let connection = world.connect(primary);
    let find = rawdoc! { "find": "things", "batchSize": 3, "$db": "test" };
    let own = cursor_id(&world.ask(connection, &find));
    let kill = rawdoc! { "killCursors": "things", "cursors": [own, 7_i64], "$db": "test" };
    let reply = world.ask(connection, &kill);
    for (list, expected) in [("cursorsKilled", own), ("cursorsNotFound", 7)] {
        let ids: Vec<_> = reply.get_array(list).unwrap().into_iter().flatten().collect();
        assert_eq!(ids, [bson::RawBsonRef::Int64(expected)]);
    }
}

/// A cursor that never ended would be one that an exhaust stream follows for ever.
#[test]
fn a_batch_of_less_than_nothing_is_refused() {
    let mut world = World::settled(ServerVersion::V6_0);
    let primary = world.primary().unwrap();
    let connection = world.connect(primary);
    for field in ["skip", "limit", "batchSize"] {
        let mut find = rawdoc! { "find": "things", "$db": "test" };
        find.append(<&bson::raw::CStr>::try_from(field).unwrap(), -1);
        assert_eq!(code(&world.ask(connection, &find)), 51024, "{field}");
    }
    let find = rawdoc! { "find": "things", "batchSize": 0, "$db": "test" };
    let first = world.ask(connection, &find);
    world.request(connection, Flags::EXHAUST_ALLOWED, &get_more(cursor_id(&first), -1));
    let replies = world.replies(connection);
    assert_eq!((replies.len(), code(&body(&replies[0].1))), (1, 51024));
}

/// OP_MSG, "exhaustAllowed" and "moreToCome On Responses".
#[test]
fn a_get_more_that_allows_it_is_answered_by_all_batches_that_are_left() {
    let mut world = World::settled(ServerVersion::V6_0);
    let primary = world.primary().unwrap();
    let connection = world.connect(primary);
    let find = rawdoc! { "find": "things", "batchSize": 2, "$db": "test" };
    let first = world.ask(connection, &find);
    let mut previous =
        world.request(connection, Flags::EXHAUST_ALLOWED, &get_more(cursor_id(&first), 2));
    let replies = world.replies(connection);
    assert_eq!(replies.len(), 3);
    for (index, (_, reply)) in replies.iter().enumerate() {
        assert_eq!(reply.header().response_to, previous);
        previous = reply.header().request_id;
        let more = reply.op_msg().unwrap().flags.contains(Flags::MORE_TO_COME);
        assert_eq!((more, cursor_id(&body(reply)) == 0), (index < 2, index == 2));
    }
}

/// Driver Sessions, "Gossipping the cluster time".
#[test]
fn every_reply_has_a_time_that_grows_with_writes_and_with_the_clock() {
    let mut world = World::settled(ServerVersion::V6_0);
    let primary = world.primary().unwrap();
    let connection = world.connect(primary);
    let ping = rawdoc! { "ping": 1, "$db": "admin" };
    let time = |reply: &RawDocument| {
        let gossip = reply.get_document("$clusterTime").unwrap();
        let time = gossip.get_timestamp("clusterTime").unwrap();
        assert_eq!(reply.get_timestamp("operationTime").unwrap(), time);
        assert!(gossip.get_document("signature").unwrap().get_i64("keyId").is_ok());
        time
    };
    let first = time(&world.ask(connection, &ping));
    let written = time(&world.ask(connection, &insert()));
    assert!(written > first);
    world.request(connection, Flags::MORE_TO_COME, &insert());
    assert!(world.replies(connection).is_empty(), "it is not acknowledged");
    let silent = time(&world.ask(connection, &ping));
    assert!(silent > written);
    world.advance(super::SECOND);
    assert!(time(&world.hello(primary)) > silent);
}
