//! Forms in which documents are found: keys, numbers, parts of arrays; and bounds of indexes.

use bson::{Document, doc};
use sdam_core::bson;

use super::{ask, batch, client, code, insert, must};
use crate::ConnectionId;
use crate::tests::World;

fn filled() -> (World, ConnectionId) {
    let (mut world, connection) = client();
    let documents = (0..6).map(|id| doc! { "_id": id, "x": id % 3, "y": -id }).collect();
    insert(&mut world, connection, documents);
    let index = doc! { "key": { "x": 1, "y": -1 }, "name": "xy" };
    must(&mut world, connection, doc! { "createIndexes": "x", "indexes": [index] });
    must(&mut world, connection, doc! { "create": "v", "viewOn": "x", "pipeline": [] });
    (world, connection)
}

fn find(fields: Document) -> Document {
    let mut command = doc! { "find": "x" };
    command.extend(fields);
    command
}

/// As 4.2.6 and 6.0.5 do.
#[test]
fn keys_and_numbers_are_given_where_they_are_asked_for() {
    let (mut world, connection) = filled();
    let keys = [doc! { "x": 1, "y": -1 }, doc! { "x": 1, "y": -4 }];
    let numbered = [
        doc! { "_id": 1, "x": 1, "y": -1, "$recordId": 2_i64 },
        doc! { "_id": 4, "x": 1, "y": -4, "$recordId": 5_i64 },
    ];
    let cases = [
        (doc! { "filter": { "x": 1 }, "returnKey": true }, &keys),
        (doc! { "filter": { "x": 1 }, "returnKey": true, "showRecordId": true }, &keys),
        (doc! { "filter": { "x": 1 }, "returnKey": true, "projection": { "x": 1 } }, &keys),
        (doc! { "filter": { "x": 1 }, "showRecordId": true }, &numbered),
        (doc! { "filter": { "y": { "$in": [-1, -4] } }, "returnKey": true }, &[doc! {}, doc! {}]),
    ];
    for (fields, expected) in cases {
        let found = batch(&must(&mut world, connection, find(fields.clone())));
        assert_eq!(&found, expected, "{fields}");
    }
    let sorted = find(doc! { "sort": { "_id": 1 }, "returnKey": true, "limit": 1 });
    assert_eq!(batch(&must(&mut world, connection, sorted)), [doc! { "_id": 0 }]);
    let of_view = doc! { "find": "v", "showRecordId": true };
    assert_eq!(code(&ask(&mut world, connection, of_view)), 168);
    assert_eq!(code(&ask(&mut world, connection, find(doc! { "returnKey": 1 }))), 14);
}

#[test]
fn an_index_that_is_named_has_an_order_and_bounds() {
    let (mut world, connection) = filled();
    let cases: [(Document, &[i32]); 8] = [
        (doc! { "hint": "xy" }, &[0, 3, 1, 4, 2, 5]),
        (doc! { "hint": { "$natural": -1 } }, &[5, 4, 3, 2, 1, 0]),
        (doc! { "sort": { "$natural": -1 }, "limit": 2 }, &[5, 4]),
        (doc! { "min": { "_id": 2 }, "max": { "_id": 4 }, "hint": "_id_" }, &[2, 3]),
        (doc! { "min": { "_id": 4 }, "hint": { "_id": 1 } }, &[4, 5]),
        (doc! { "min": { "x": 1, "y": -1 }, "hint": "xy" }, &[1, 4, 2, 5]),
        (doc! { "max": { "x": 1, "y": -1 }, "hint": "xy" }, &[0, 3]),
        (doc! { "min": {}, "filter": { "_id": 1 } }, &[1]),
    ];
    for (fields, expected) in cases {
        let found = batch(&must(&mut world, connection, find(fields.clone())));
        let ids: Vec<i32> = found.iter().map(|it| it.get_i32("_id").unwrap()).collect();
        assert_eq!(ids, expected, "{fields}");
    }
    let wrong = [
        (doc! { "min": { "_id": 2 } }, 51173),
        (doc! { "min": { "q": 2 }, "hint": "_id_" }, 51174),
        (doc! { "min": { "_id": 4 }, "max": { "_id": 2 }, "hint": "_id_" }, 51175),
        (doc! { "min": { "_id": 4 }, "hint": { "$natural": 1 } }, 291),
    ];
    for (fields, expected) in wrong {
        assert_eq!(code(&ask(&mut world, connection, find(fields.clone()))), expected, "{fields}");
    }
}
