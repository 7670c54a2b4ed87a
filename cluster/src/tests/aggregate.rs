//! Counting the documents, and the stages of a pipeline that are known.

use bson::{RawArrayBuf, RawDocument, RawDocumentBuf, rawdoc};
use sdam_core::bson;

use super::{ConnectionId, Input, MemberId, ServerVersion, World};

fn code(reply: &RawDocument) -> i32 {
    reply.get_i32("code").unwrap_or_default()
}

fn client() -> (World, ConnectionId) {
    let mut world = World::settled(ServerVersion::V6_0);
    let connection = world.connect(world.primary().unwrap());
    (world, connection)
}

fn pipeline(stages: impl IntoIterator<Item = RawDocumentBuf>) -> RawDocumentBuf {
    let stages: RawArrayBuf = stages.into_iter().collect();
    rawdoc! { "aggregate": "x", "pipeline": stages, "cursor": {}, "$db": "test" }
}

fn first_batch(reply: &RawDocument) -> Vec<RawDocumentBuf> {
    let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    batch.into_iter().map(|it| it.unwrap().as_document().unwrap().to_owned()).collect()
}

#[test]
fn a_pipeline_begins_with_what_find_gives_and_goes_on_by_get_more() {
    let (mut world, connection) = client();
    let reply = world.ask(connection, &pipeline([]));
    assert_eq!(first_batch(&reply).len(), 8);
    let ns = |reply: &RawDocument| {
        reply.get_document("cursor").unwrap().get_str("ns").unwrap().to_owned()
    };
    assert_eq!(ns(&reply), "test.x");
    let skip = rawdoc! { "$skip": 2 };
    let mut command = rawdoc! { "aggregate": "x", "pipeline": [skip, { "$limit": 5 }] };
    command.append(bson::raw::cstr!("cursor"), rawdoc! { "batchSize": 3 });
    command.append(bson::raw::cstr!("$db"), "test");
    let reply = world.ask(connection, &command);
    let id = reply.get_document("cursor").unwrap().get_i64("id").unwrap();
    let more = rawdoc! { "getMore": id, "collection": "x", "$db": "test" };
    let rest = world.ask(connection, &more);
    let rest = rest.get_document("cursor").unwrap().get_array("nextBatch").unwrap();
    assert_eq!((first_batch(&reply).len(), rest.into_iter().count()), (3, 2));
}

/// CRUD, "Count API Details": how drivers count, with and without a filter.
#[test]
fn drivers_count_the_documents_that_find_gives() {
    let (mut world, connection) = client();
    let group = rawdoc! { "$group": { "_id": 1, "n": { "$sum": 1 } } };
    let counted = [rawdoc! { "$match": { "a": 1 } }, rawdoc! { "$skip": 3 }, group.clone()];
    let reply = world.ask(connection, &pipeline(counted));
    assert_eq!(first_batch(&reply), [rawdoc! { "_id": 1, "n": 5 }]);
    let none = [rawdoc! { "$skip": 9 }, group];
    assert!(first_batch(&world.ask(connection, &pipeline(none))).is_empty());
    let reply = world.ask(connection, &pipeline([rawdoc! { "$count": "all" }]));
    assert_eq!(first_batch(&reply), [rawdoc! { "all": 8 }]);
    let stats = world.ask(connection, &pipeline([rawdoc! { "$collStats": { "count": {} } }]));
    assert_eq!(first_batch(&stats)[0].get_i32("count").unwrap(), 8);
    for (limit, expected) in [(0, 6), (4, 4), (-4, 4), (100, 6)] {
        let count = rawdoc! { "count": "x", "query": {}, "skip": 2, "limit": limit, "$db": "test" };
        assert_eq!(world.ask(connection, &count).get_i32("n").unwrap(), expected);
    }
    for (key, expected) in [("_id", 8), ("a", 0)] {
        let distinct = rawdoc! { "distinct": "x", "key": key, "$db": "test" };
        let values = world.ask(connection, &distinct);
        assert_eq!(values.get_array("values").unwrap().into_iter().count(), expected);
    }
    let list = rawdoc! { "listCollections": 1, "$db": "test" };
    assert!(first_batch(&world.ask(connection, &list)).is_empty());
}

/// With the codes of 6.0.5.
#[test]
fn what_cannot_be_evaluated_is_an_error() {
    let (mut world, connection) = client();
    let group = rawdoc! { "_id": "$a" };
    let cases = [
        (rawdoc! { "$nonsense": 1 }, 40324),
        (rawdoc! { "$out": "y" }, 40324),
        (rawdoc! { "a": 1, "b": 2 }, 40323),
        (rawdoc! {}, 40323),
        (rawdoc! { "$match": 1 }, 15959),
        (rawdoc! { "$limit": 0 }, 15958),
        (rawdoc! { "$limit": -1 }, 5_107_201),
        (rawdoc! { "$skip": -1 }, 5_107_200),
        (rawdoc! { "$count": "" }, 40157),
        (rawdoc! { "$currentOp": {} }, 73),
        (rawdoc! { "$group": group }, 238),
        (rawdoc! { "$collStats": { "latencyStats": {} } }, 238),
    ];
    for (stage, expected) in cases {
        assert_eq!(code(&world.ask(connection, &pipeline([stage.clone()]))), expected, "{stage:?}");
    }
    let late = [rawdoc! { "$skip": 1 }, rawdoc! { "$collStats": {} }];
    assert_eq!(code(&world.ask(connection, &pipeline(late))), 40602);
    let commands = [
        (rawdoc! { "aggregate": "x", "cursor": {}, "$db": "x" }, 40414),
        (rawdoc! { "aggregate": "x", "pipeline": 1, "cursor": {}, "$db": "x" }, 14),
        (rawdoc! { "aggregate": "x", "pipeline": [1], "cursor": {}, "$db": "x" }, 14),
        (rawdoc! { "aggregate": "x", "pipeline": [], "$db": "x" }, 9),
        (rawdoc! { "aggregate": 5, "pipeline": [], "cursor": {}, "$db": "x" }, 9),
        (rawdoc! { "aggregate": 1, "pipeline": [], "cursor": {}, "$db": "x" }, 73),
        (rawdoc! { "count": 1, "$db": "x" }, 73),
        (rawdoc! { "count": "x", "skip": -1, "$db": "x" }, 51024),
    ];
    for (command, expected) in commands {
        assert_eq!(code(&world.ask(connection, &command)), expected, "{command:?}");
    }
}

/// Server Selection, "Passing Read Preference".
#[test]
fn a_secondary_counts_for_those_who_mean_it_and_an_arbiter_for_none() {
    let members = [super::member("a:1"), super::member("b:2"), super::arbiter("c:3")];
    let mut world = World::of(ServerVersion::V6_0, &members);
    let secondary = MemberId(1 - world.primary().unwrap().0);
    let commands = [
        pipeline([]),
        rawdoc! { "count": "x", "$db": "test" },
        rawdoc! { "listDatabases": 1, "$db": "admin" },
    ];
    for mut command in commands {
        let to_secondary = world.connect(secondary);
        assert_eq!(code(&world.ask(to_secondary, &command)), 13435);
        let preference = rawdoc! { "mode": "secondaryPreferred" };
        command.append(bson::raw::cstr!("$readPreference"), preference);
        assert_eq!(code(&world.ask(to_secondary, &command)), 0);
        let to_arbiter = world.connect(MemberId(2));
        assert_eq!(code(&world.ask(to_arbiter, &command)), 13436);
    }
}

#[test]
fn operations_in_progress_are_those_that_wait_for_a_reply() {
    let (mut world, connection) = client();
    let address = "127.0.0.1:50000".parse().unwrap();
    world.handle(Input::Peer { connection, address });
    world.connect(world.primary().unwrap());
    let ask = |world: &mut World, options: RawDocumentBuf| {
        let stage = rawdoc! { "$currentOp": options };
        let command = rawdoc! { "aggregate": 1, "pipeline": [stage], "cursor": {}, "$db": "admin" };
        first_batch(&world.ask(connection, &command))
    };
    let active = ask(&mut world, rawdoc! {});
    assert_eq!((active.len(), active[0].get_str("client").unwrap()), (1, "127.0.0.1:50000"));
    assert_eq!(ask(&mut world, rawdoc! { "idleConnections": true }).len(), 2);
}
