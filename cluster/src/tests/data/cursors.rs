//! Batches, cursors that wait, and their end.

use bson::{Document, doc};
use sdam_core::bson;

use super::{answer, ask, batch, client, code, cursor_id, insert, must, send};
use crate::tests::SECOND;

fn more(id: i64) -> Document {
    doc! { "getMore": id, "collection": "x" }
}

#[test]
fn batches_are_as_large_as_they_are_asked_to_be() {
    let (mut world, connection) = client();
    insert(&mut world, connection, (0..250).map(|id| doc! { "_id": id }).collect());
    let first = must(&mut world, connection, doc! { "find": "x" });
    assert_eq!(batch(&first).len(), 101);
    let rest = must(&mut world, connection, more(cursor_id(&first)));
    assert_eq!((batch(&rest).len(), cursor_id(&rest)), (149, 0));
    assert_eq!(code(&ask(&mut world, connection, more(cursor_id(&first)))), 43);
    let first = must(&mut world, connection, doc! { "find": "x", "batchSize": 0, "limit": 3 });
    assert!(batch(&first).is_empty());
    let mut next = more(cursor_id(&first));
    next.insert("batchSize", 2);
    assert_eq!(batch(&must(&mut world, connection, next.clone())).len(), 2);
    let last = must(&mut world, connection, next);
    assert_eq!((batch(&last).len(), cursor_id(&last)), (1, 0));
    let single = doc! { "find": "x", "singleBatch": true, "batchSize": 2 };
    assert_eq!(cursor_id(&must(&mut world, connection, single)), 0);
}

#[test]
fn a_cursor_that_is_killed_is_not_found() {
    let (mut world, connection) = client();
    insert(&mut world, connection, (0..4).map(|id| doc! { "_id": id }).collect());
    let first = must(&mut world, connection, doc! { "find": "x", "batchSize": 1 });
    let id = cursor_id(&first);
    let other = doc! { "getMore": id, "collection": "y" };
    assert_eq!(code(&ask(&mut world, connection, other)), 13, "it is of another collection");
    let kill = doc! { "killCursors": "x", "cursors": [id, 5_i64] };
    let reply = must(&mut world, connection, kill);
    let expected = doc! {
        "cursorsKilled": [id], "cursorsNotFound": [5_i64], "cursorsAlive": [],
        "cursorsUnknown": [], "ok": 1.0,
    };
    assert_eq!(reply, expected);
    assert_eq!(code(&ask(&mut world, connection, more(id))), 43);
}

/// Find, getMore and killCursors Commands, "awaitData": virtual time passes, nothing sleeps.
#[test]
fn a_tailable_cursor_waits_for_what_is_inserted() {
    let (mut world, connection) = client();
    must(&mut world, connection, doc! { "create": "x", "capped": true, "size": 4096, "max": 2 });
    insert(&mut world, connection, vec![doc! { "_id": 1 }]);
    let find = doc! { "find": "x", "tailable": true, "awaitData": true };
    let first = must(&mut world, connection, find);
    let mut next = more(cursor_id(&first));
    next.insert("maxTimeMS", 500);
    send(&mut world, connection, &next);
    let writer = world.connect(world.primary().unwrap());
    insert(&mut world, writer, vec![doc! { "_id": 2 }]);
    assert_eq!(batch(&answer(&mut world, connection)), [doc! { "_id": 2 }]);
    send(&mut world, connection, &next);
    world.advance(SECOND);
    let none = answer(&mut world, connection);
    assert!(batch(&none).is_empty() && cursor_id(&none) != 0);
    insert(&mut world, writer, vec![doc! { "_id": 3 }]);
    let all = batch(&must(&mut world, connection, doc! { "find": "x" }));
    assert_eq!(all, [doc! { "_id": 2 }, doc! { "_id": 3 }], "the collection is capped");
    must(&mut world, writer, doc! { "create": "y" });
    let find = doc! { "find": "y", "tailable": true };
    assert_eq!(code(&ask(&mut world, connection, find)), 2);
}

#[test]
fn a_fail_point_strikes_the_next_batch_beside_another() {
    let (mut world, connection) = client();
    insert(&mut world, connection, (0..4).map(|id| doc! { "_id": id }).collect());
    let first = must(&mut world, connection, doc! { "find": "x", "batchSize": 1 });
    let points = [
        ("failGetMoreAfterCursorCheckout", doc! { "errorCode": 91, "closeConnection": false }),
        ("failCommand", doc! { "failCommands": ["ping"], "errorCode": 2 }),
    ];
    for (name, data) in points {
        let mode = doc! { "times": 1 };
        let point = doc! { "configureFailPoint": name, "mode": mode, "data": data, "$db": "admin" };
        must(&mut world, connection, point);
    }
    assert_eq!(code(&ask(&mut world, connection, more(cursor_id(&first)))), 91);
    assert_eq!(code(&ask(&mut world, connection, doc! { "ping": 1 })), 2);
    assert_eq!(code(&ask(&mut world, connection, doc! { "ping": 1 })), 0);
}

/// Driver Sessions: the cursors of a session end with it.
#[test]
fn cursors_end_with_their_session() {
    let (mut world, connection) = client();
    insert(&mut world, connection, (0..4).map(|id| doc! { "_id": id }).collect());
    let id = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![7; 16] };
    let lsid = doc! { "id": id };
    let find = doc! { "find": "x", "batchSize": 1, "lsid": lsid.clone() };
    let first = must(&mut world, connection, find);
    must(&mut world, connection, doc! { "endSessions": [lsid] });
    assert_eq!(code(&ask(&mut world, connection, more(cursor_id(&first)))), 43);
}
