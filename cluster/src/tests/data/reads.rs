//! Filters, sorts, projections, and aggregations.

use bson::{Document, doc};
use sdam_core::bson;

use super::{ask, batch, client, code, insert, must};
use crate::ConnectionId;
use crate::tests::World;

fn filled() -> (World, ConnectionId) {
    let (mut world, connection) = client();
    let documents = vec![
        doc! { "_id": 1, "x": 11, "s": "ping", "list": [1, 2] },
        doc! { "_id": 2, "x": 22, "s": "PING", "inner": { "a": 1 } },
        doc! { "_id": 3, "x": 33.0, "s": "pong", "inner": [{ "a": 1 }, { "a": 2 }] },
        doc! { "_id": 4, "x": null },
    ];
    insert(&mut world, connection, documents);
    (world, connection)
}

fn ids(reply: &Document) -> Vec<i32> {
    batch(reply).iter().map(|it| it.get_i32("_id").unwrap()).collect()
}

#[test]
fn a_filter_finds_what_it_describes() {
    let cases: [(Document, &[i32]); 27] = [
        (doc! {}, &[1, 2, 3, 4]),
        (doc! { "_id": 2 }, &[2]),
        (doc! { "_id": { "$eq": 2.0 } }, &[2]),
        (doc! { "x": { "$gt": 11, "$lte": 33 } }, &[2, 3]),
        (doc! { "x": { "$ne": 11 } }, &[2, 3, 4]),
        (doc! { "x": null }, &[4]),
        (doc! { "y": null }, &[1, 2, 3, 4]),
        (doc! { "x": { "$in": [11, 33] } }, &[1, 3]),
        (doc! { "x": { "$nin": [11, 33] } }, &[2, 4]),
        (doc! { "list": 2 }, &[1]),
        (doc! { "list": [1, 2] }, &[1]),
        (doc! { "list": { "$size": 2 } }, &[1]),
        (doc! { "list": { "$all": [1, 2] } }, &[1]),
        (doc! { "list.0": 1 }, &[1]),
        (doc! { "inner.a": 1 }, &[2, 3]),
        (doc! { "inner": { "$elemMatch": { "a": 2 } } }, &[3]),
        (doc! { "list": { "$elemMatch": { "$gt": 1, "$lt": 3 } } }, &[1]),
        (doc! { "inner.a": { "$exists": true } }, &[2, 3]),
        (doc! { "s": { "$exists": false } }, &[4]),
        (doc! { "x": { "$type": "null" } }, &[4]),
        (doc! { "x": { "$type": "number" } }, &[1, 2, 3]),
        (doc! { "x": { "$mod": [11, 0] } }, &[1, 2, 3]),
        (doc! { "$or": [{ "_id": 1 }, { "s": "pong" }] }, &[1, 3]),
        (doc! { "$nor": [{ "_id": 1 }, { "s": "pong" }] }, &[2, 4]),
        (doc! { "x": { "$not": { "$gt": 11 } } }, &[1, 4]),
        (doc! { "$and": [{ "_id": { "$gte": 2 } }, { "_id": { "$lt": 4 } }] }, &[2, 3]),
        (doc! { "$expr": { "$gt": ["$x", 20] } }, &[2, 3]),
    ];
    let (mut world, connection) = filled();
    for (filter, expected) in cases {
        let found = must(&mut world, connection, doc! { "find": "x", "filter": filter.clone() });
        assert_eq!(ids(&found), expected, "{filter}");
    }
    let count = doc! { "count": "x", "query": { "x": { "$gt": 1 } }, "skip": 1, "limit": 5 };
    assert_eq!(must(&mut world, connection, count).get_i32("n").unwrap(), 2);
}

#[test]
fn documents_are_sorted_skipped_limited_and_shortened() {
    let (mut world, connection) = filled();
    let find = doc! { "find": "x", "sort": { "x": -1 }, "skip": 1, "limit": 2 };
    assert_eq!(ids(&must(&mut world, connection, find)), [2, 1]);
    let ignoring_case = doc! { "locale": "en_US", "strength": 2 };
    let find = doc! { "find": "x", "filter": { "s": "ping" }, "collation": ignoring_case };
    assert_eq!(ids(&must(&mut world, connection, find)), [1, 2]);
    let find = |projection: Document| {
        doc! { "find": "x", "filter": { "_id": 3 }, "projection": projection }
    };
    let cases = [
        (doc! { "x": 1 }, doc! { "_id": 3, "x": 33.0 }),
        (doc! { "x": 1, "_id": 0 }, doc! { "x": 33.0 }),
        (doc! { "inner.a": 0, "s": 0 }, doc! { "_id": 3, "x": 33.0, "inner": [{}, {}] }),
        (doc! { "_id": 1 }, doc! { "_id": 3 }),
        (doc! { "y": { "$add": ["$x", 1] } }, doc! { "_id": 3, "y": 34.0 }),
    ];
    for (projection, expected) in cases {
        let found = must(&mut world, connection, find(projection.clone()));
        assert_eq!(batch(&found), [expected], "{projection}");
    }
    let wrong = ask(&mut world, connection, find(doc! { "x": 1, "s": 0 }));
    assert_eq!(code(&wrong), 31254);
}

#[test]
fn distinct_values_are_those_of_arrays_too() {
    let (mut world, connection) = filled();
    let distinct = must(&mut world, connection, doc! { "distinct": "x", "key": "inner.a" });
    assert_eq!(distinct, doc! { "values": [1, 2], "ok": 1.0 });
}

#[test]
fn stages_are_taken_one_by_one() {
    let (mut world, connection) = filled();
    let cases = [
        (
            vec![doc! { "$match": { "x": { "$gt": 11 } } }, doc! { "$count": "n" }],
            vec![doc! { "n": 2 }],
        ),
        (
            vec![doc! { "$group": { "_id": null, "sum": { "$sum": "$x" }, "n": { "$sum": 1 } } }],
            vec![doc! { "_id": null, "sum": 66.0, "n": 4 }],
        ),
        (
            vec![
                doc! { "$sort": { "_id": -1 } },
                doc! { "$limit": 1 },
                doc! { "$project": { "_id": 1 } },
            ],
            vec![doc! { "_id": 4 }],
        ),
        (
            vec![
                doc! { "$match": { "list": { "$exists": true } } },
                doc! { "$replaceRoot": { "newRoot": { "l": "$list" } } },
            ],
            vec![doc! { "l": [1, 2] }],
        ),
        (vec![doc! { "$collStats": { "count": {} } }], vec![doc! { "ns": "test.x", "count": 4 }]),
    ];
    for (pipeline, expected) in cases {
        let command = doc! { "aggregate": "x", "pipeline": pipeline.clone(), "cursor": {} };
        assert_eq!(batch(&must(&mut world, connection, command)), expected, "{pipeline:?}");
    }
    let command = doc! {
        "aggregate": "x", "cursor": {}, "let": { "id": 1, "rand": { "$rand": {} } },
        "pipeline": [
            { "$match": { "$expr": { "$eq": ["$_id", "$$id"] } } },
            { "$project": { "_id": 0, "rand": "$$rand" } },
        ],
    };
    let found = batch(&must(&mut world, connection, command));
    assert!((0.0..=1.0).contains(&found[0].get_f64("rand").unwrap()));
}

#[test]
fn a_pipeline_may_end_in_another_collection() {
    let (mut world, connection) = filled();
    let out = |stage: Document| {
        doc! { "aggregate": "x", "cursor": {}, "pipeline": [{ "$project": { "x": 1 } }, stage] }
    };
    assert!(batch(&must(&mut world, connection, out(doc! { "$out": "y" }))).is_empty());
    let count = doc! { "count": "y" };
    assert_eq!(must(&mut world, connection, count.clone()).get_i32("n").unwrap(), 4);
    must(&mut world, connection, out(doc! { "$merge": { "into": "y" } }));
    assert_eq!(must(&mut world, connection, count).get_i32("n").unwrap(), 4);
    let fails = out(doc! { "$merge": { "into": "y", "whenMatched": "fail" } });
    let reply = ask(&mut world, connection, fails);
    assert_eq!(code(&reply), 11000);
    assert_eq!(reply.get_document("keyValue").unwrap(), &doc! { "_id": 1 });
    let early =
        doc! { "aggregate": "x", "cursor": {}, "pipeline": [{ "$out": "y" }, { "$limit": 1 }] };
    assert_eq!(code(&ask(&mut world, connection, early)), 40601);
    for (stage, expected) in [("$nonsense", 40324), ("$graphLookup", 238)] {
        let unknown = doc! { "aggregate": "x", "cursor": {}, "pipeline": [{ stage: {} }] };
        let reply = ask(&mut world, connection, unknown);
        assert_eq!(code(&reply), expected);
        assert!(reply.get_str("errmsg").unwrap().contains(stage), "{reply}");
    }
}
