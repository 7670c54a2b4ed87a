//! Two that change the same: the first one wins, and a write outside of transactions waits.

use std::time::Duration;

use super::*;

#[test]
fn a_document_that_has_changed_since_the_snapshot_is_a_conflict() {
    let (mut world, connection) = client();
    insert(&mut world, connection, (1..4).map(|id| doc! { "_id": id }).collect());
    let delete = doc! { "delete": "x", "deletes": [{ "q": { "_id": 3 }, "limit": 1 }] };
    let modify =
        doc! { "findAndModify": "x", "query": { "_id": 1 }, "update": { "$set": { "a": 8 } } };
    for (number, (outside, inside)) in
        (1..).zip([(set(1, 1), set(1, 2)), (set(1, 3), modify), (delete, set(3, 1))])
    {
        must(&mut world, connection, first(find(), 1, number));
        must(&mut world, connection, outside);
        fails(&mut world, connection, within(inside, 1, number), 112, &[TRANSIENT]);
        fails(&mut world, connection, within(commit(), 1, number), 251, &[TRANSIENT]);
    }
}

#[test]
fn a_write_that_changes_nothing_is_no_conflict() {
    let (mut world, connection) = client();
    insert(&mut world, connection, vec![doc! { "_id": 1, "a": 1 }]);
    must(&mut world, connection, first(find(), 1, 1));
    must(&mut world, connection, set(1, 1));
    must(&mut world, connection, within(set(1, 1), 1, 1));
    must(&mut world, connection, first(set(1, 2), 2, 1));
    must(&mut world, connection, within(set(1, 1), 1, 1));
    must(&mut world, connection, within(commit(), 2, 1));
}

#[test]
fn a_document_that_another_transaction_has_changed_is_a_conflict() {
    let (mut world, connection) = client();
    insert(&mut world, connection, vec![doc! { "_id": 1 }, doc! { "_id": 2 }]);
    must(&mut world, connection, first(set(1, 1), 1, 1));
    fails(&mut world, connection, first(set(1, 2), 2, 1), 112, &[TRANSIENT]);
    fails(&mut world, connection, within(find(), 2, 1), 251, &[TRANSIENT]);
    must(&mut world, connection, first(set(2, 2), 2, 2));
    for id in [1, 2] {
        let number = id.into();
        must(&mut world, connection, within(commit(), id, number));
    }
    let expected = [doc! { "_id": 1, "a": 1 }, doc! { "_id": 2, "a": 2 }];
    assert_eq!(all(&mut world, connection), expected);
}

#[test]
fn the_same_unique_key_is_a_conflict() {
    let (mut world, connection) = client();
    insert(&mut world, connection, vec![doc! { "_id": 1 }]);
    let index = doc! { "key": { "u": 1 }, "name": "u", "unique": true, "sparse": true };
    must(&mut world, connection, doc! { "createIndexes": "x", "indexes": [index] });
    let unique = |id: i32| doc! { "insert": "x", "documents": [{ "_id": id, "u": 1 }] };
    must(&mut world, connection, first(put(2), 1, 1));
    fails(&mut world, connection, first(put(2), 2, 1), 112, &[TRANSIENT]);
    must(&mut world, connection, within(unique(3), 1, 1));
    fails(&mut world, connection, first(unique(4), 2, 2), 112, &[TRANSIENT]);
    must(&mut world, connection, first(find(), 2, 3));
    must(&mut world, connection, within(commit(), 1, 1));
    fails(&mut world, connection, within(put(2), 2, 3), 112, &[TRANSIENT]);
    must(&mut world, connection, first(find(), 2, 4));
    must(&mut world, connection, doc! { "delete": "x", "deletes": [{ "q": {}, "limit": 0 }] });
    let reply = ask(&mut world, connection, within(put(2), 2, 4));
    let failed = reply.get_array("writeErrors").unwrap()[0].as_document().unwrap();
    assert_eq!(code(failed), 11000, "its snapshot has one");
}

/// Its key stays in the index of a real server, too, until the transaction ends.
#[test]
fn a_key_is_held_though_its_document_is_deleted_again() {
    let (mut world, connection) = client();
    insert(&mut world, connection, vec![doc! { "_id": 1 }]);
    must(&mut world, connection, first(put(2), 1, 1));
    let delete = doc! { "delete": "x", "deletes": [{ "q": { "_id": 2 }, "limit": 1 }] };
    must(&mut world, connection, within(delete, 1, 1));
    fails(&mut world, connection, first(put(2), 2, 1), 112, &[TRANSIENT]);
    let writer = world.connect(world.primary().unwrap());
    send(&mut world, writer, &put(2));
    must(&mut world, connection, within(commit(), 1, 1));
    assert_eq!(answer(&mut world, writer).get_i32("n").unwrap(), 1);
    must(&mut world, connection, set(2, 1));
    assert_eq!(all(&mut world, connection)[1], doc! { "_id": 2, "a": 1 });
}

/// Any statement that fails aborts the transaction, but only what may succeed another time has the
/// label for that.
#[test]
fn a_statement_that_fails_aborts_the_transaction() {
    let (mut world, connection) = client();
    insert(&mut world, connection, vec![doc! { "_id": 1 }]);
    must(&mut world, connection, first(put(2), 1, 1));
    let twice = doc! {
        "insert": "x", "documents": [{ "_id": 1 }, { "_id": 3 }, { "_id": 2 }], "ordered": false,
    };
    let reply = ask(&mut world, connection, within(twice, 1, 1));
    assert_eq!(reply.get_array("writeErrors").unwrap().len(), 1, "the first one ends it");
    assert!(!reply.contains_key("errorLabels"));
    fails(&mut world, connection, within(find(), 1, 1), 251, &[TRANSIENT]);
    must(&mut world, connection, first(put(2), 1, 2));
    let wrong = doc! { "find": "x", "filter": { "$nonsense": 1 } };
    fails(&mut world, connection, within(wrong, 1, 2), 2, &[]);
    fails(&mut world, connection, within(commit(), 1, 2), 251, &[TRANSIENT]);
    let bulk = doc! {
        "bulkWrite": 1, "ops": [{ "insert": 0, "document": { "_id": 1 } }],
        "nsInfo": [{ "ns": "test.x" }], "$db": "admin",
    };
    assert_eq!(ask(&mut world, connection, first(bulk, 1, 3)).get_i32("nErrors").unwrap(), 1);
    fails(&mut world, connection, within(commit(), 1, 3), 251, &[TRANSIENT]);
}

#[test]
fn a_write_outside_waits_for_the_end_of_the_transaction() {
    for end in [commit(), abort()] {
        let (mut world, connection) = client();
        insert(&mut world, connection, vec![doc! { "_id": 1, "a": 0 }]);
        must(&mut world, connection, first(set(1, 1), 1, 1));
        let writer = world.connect(world.primary().unwrap());
        let increment = doc! { "q": { "_id": 1 }, "u": { "$inc": { "a": 10 } } };
        let mut update = doc! { "update": "x", "updates": [increment] };
        send(&mut world, writer, &update);
        insert(&mut world, connection, vec![doc! { "_id": 2 }]);
        must(&mut world, connection, within(end.clone(), 1, 1));
        assert_eq!(answer(&mut world, writer).get_i32("nModified").unwrap(), 1);
        let expected = if end == commit() { 11 } else { 10 };
        assert_eq!(all(&mut world, connection)[0], doc! { "_id": 1, "a": expected });
        must(&mut world, connection, first(set(1, 1), 1, 2));
        update.insert("maxTimeMS", 100);
        send(&mut world, writer, &update);
        world.advance(Duration::from_millis(50));
        insert(&mut world, connection, vec![doc! { "_id": 3 }]);
        assert!(world.replies(writer).is_empty());
        world.advance(Duration::from_millis(50));
        assert_eq!(code(&answer(&mut world, writer)), 50);
    }
}

#[test]
fn a_document_that_a_transaction_inserts_is_waited_for_and_then_there() {
    let (mut world, connection) = client();
    insert(&mut world, connection, vec![doc! { "_id": 1 }]);
    must(&mut world, connection, first(put(2), 1, 1));
    let writer = world.connect(world.primary().unwrap());
    send(&mut world, writer, &put(2));
    must(&mut world, connection, within(commit(), 1, 1));
    let reply = answer(&mut world, writer);
    let failed = reply.get_array("writeErrors").unwrap()[0].as_document().unwrap();
    assert_eq!(code(failed), 11000);
}

#[test]
fn a_collection_that_a_transaction_uses_is_not_dropped_before_its_end() {
    let (mut world, connection) = client();
    insert(&mut world, connection, vec![doc! { "_id": 1 }]);
    must(&mut world, connection, doc! { "create": "y" });
    must(&mut world, connection, first(find(), 1, 1));
    must(&mut world, connection, doc! { "drop": "y" });
    let writer = world.connect(world.primary().unwrap());
    send(&mut world, writer, &doc! { "drop": "x" });
    must(&mut world, connection, within(put(2), 1, 1));
    must(&mut world, connection, within(commit(), 1, 1));
    assert_eq!(answer(&mut world, writer).get_i32("nIndexesWas").unwrap(), 1);
    assert!(all(&mut world, connection).is_empty());
}

#[test]
fn a_collection_that_came_up_after_the_snapshot_cannot_be_read() {
    let (mut world, connection) = keeping(ServerVersion::V6_0);
    insert(&mut world, connection, vec![doc! { "_id": 1 }]);
    for (number, command) in [(1, doc! { "find": "y1" }), (2, doc! { "find": "y2" })] {
        must(&mut world, connection, first(find(), 1, number));
        must(&mut world, connection, doc! { "create": format!("y{number}") });
        fails(&mut world, connection, within(command, 1, number), 246, &[TRANSIENT]);
    }
}

#[test]
fn two_transactions_that_create_a_collection_conflict_when_they_are_committed() {
    let (mut world, connection) = client();
    for id in [1, 2] {
        must(&mut world, connection, first(doc! { "create": "y" }, id, 1));
    }
    must(&mut world, connection, within(commit(), 1, 1));
    fails(&mut world, connection, within(commit(), 2, 1), 112, &[TRANSIENT]);
    fails(&mut world, connection, within(commit(), 2, 1), 251, &[TRANSIENT]);
}
