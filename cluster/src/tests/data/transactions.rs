//! Transactions: how they begin and end, what they see, and what becomes of them when their member
//! does not stay primary. What is said of servers was seen on 4.2.6 and 6.0.27.

use bson::spec::BinarySubtype;
use bson::{Binary, Document, doc};
use sdam_core::bson;

use super::{all, another, answer, ask, batch, client, code, insert, keeping, must, send};
use crate::tests::{ClusterOptions, ConnectionId, SECOND, World, options};
use crate::{Deployment, Input, MemberId, ServerVersion};

mod conflicts;
mod endings;
mod laws;
mod mongos;
mod refusals;
mod status;

const TRANSIENT: &str = "TransientTransactionError";

fn session(id: u8) -> Document {
    doc! { "id": Binary { subtype: BinarySubtype::Uuid, bytes: vec![id; 16] } }
}

/// A command of a transaction of the session of this id.
fn within(mut command: Document, id: u8, number: i64) -> Document {
    command.insert("lsid", session(id));
    command.insert("txnNumber", number);
    command.insert("autocommit", false);
    if command.contains_key("commitTransaction") || command.contains_key("abortTransaction") {
        command.insert("$db", "admin");
    }
    command
}

/// The first command of one.
fn first(command: Document, id: u8, number: i64) -> Document {
    let mut command = within(command, id, number);
    command.insert("startTransaction", true);
    command
}

fn commit() -> Document {
    doc! { "commitTransaction": 1 }
}

fn abort() -> Document {
    doc! { "abortTransaction": 1 }
}

fn find() -> Document {
    doc! { "find": "x" }
}

fn put(id: i32) -> Document {
    doc! { "insert": "x", "documents": [{ "_id": id }] }
}

fn set(id: i32, value: i32) -> Document {
    doc! { "update": "x", "updates": [{ "q": { "_id": id }, "u": { "$set": { "a": value } } }] }
}

/// The code of an error, and its labels.
fn error(reply: &Document) -> (i32, Vec<&str>) {
    let labels = reply.get_array("errorLabels").into_iter().flatten();
    (code(reply), labels.filter_map(|it| it.as_str()).collect())
}

/// Asks for an error, and compares it.
fn fails(
    world: &mut World,
    connection: ConnectionId,
    command: Document,
    expected: i32,
    labels: &[&str],
) {
    let said = command.to_string();
    let reply = ask(world, connection, command);
    assert_eq!(error(&reply), (expected, labels.to_vec()), "{said}: {reply}");
}

#[test]
fn what_a_transaction_writes_is_seen_by_itself_alone_until_it_is_committed() {
    let (mut world, connection) = client();
    insert(&mut world, connection, vec![doc! { "_id": 1 }]);
    must(&mut world, connection, first(put(2), 1, 1));
    assert_eq!(batch(&must(&mut world, connection, within(find(), 1, 1))).len(), 2);
    assert_eq!(all(&mut world, connection).len(), 1);
    must(&mut world, connection, within(commit(), 1, 1));
    let secondary = world.secondary();
    for member in [world.primary().unwrap(), secondary] {
        let connection = world.connect(member);
        assert_eq!(all(&mut world, connection), [doc! { "_id": 1 }, doc! { "_id": 2 }]);
    }
}

#[test]
fn a_transaction_sees_the_state_of_its_first_command() {
    let (mut world, connection) = client();
    insert(&mut world, connection, vec![doc! { "_id": 1, "a": 0 }]);
    let mut begin = first(find(), 1, 1);
    begin.insert("readConcern", doc! { "level": "snapshot" });
    must(&mut world, connection, begin);
    must(&mut world, connection, set(1, 1));
    insert(&mut world, connection, vec![doc! { "_id": 2, "a": 2 }]);
    let pipeline = doc! { "aggregate": "x", "pipeline": [{ "$match": {} }], "cursor": {} };
    for command in [find(), pipeline] {
        let found = batch(&must(&mut world, connection, within(command, 1, 1)));
        assert_eq!(found, [doc! { "_id": 1, "a": 0 }]);
    }
    let distinct = within(doc! { "distinct": "x", "key": "a" }, 1, 1);
    assert_eq!(must(&mut world, connection, distinct).get_array("values").unwrap().len(), 1);
    must(&mut world, connection, within(commit(), 1, 1));
    assert_eq!(all(&mut world, connection).len(), 2);
}

#[test]
fn all_kinds_of_writes_are_done_in_a_transaction() {
    let (mut world, connection) = client();
    insert(&mut world, connection, (1..5).map(|id| doc! { "_id": id, "a": 0 }).collect());
    must(&mut world, connection, first(set(1, 7), 1, 1));
    let delete = doc! { "delete": "x", "deletes": [{ "q": { "_id": 2 }, "limit": 1 }] };
    let modify =
        doc! { "findAndModify": "x", "query": { "_id": 3 }, "update": { "$set": { "a": 8 } } };
    let bulk = doc! {
        "bulkWrite": 1, "ops": [{ "insert": 0, "document": { "_id": 9 } }],
        "nsInfo": [{ "ns": "test.x" }], "$db": "admin",
    };
    let create = doc! { "create": "y" };
    let index = doc! { "createIndexes": "z", "indexes": [{ "key": { "a": 1 }, "name": "a" }] };
    for command in [delete, modify, put(6), bulk, create, index] {
        must(&mut world, connection, within(command, 1, 1));
    }
    assert_eq!(all(&mut world, connection).len(), 4);
    must(&mut world, connection, within(commit(), 1, 1));
    let expected = [
        doc! { "_id": 1, "a": 7 },
        doc! { "_id": 3, "a": 8 },
        doc! { "_id": 4, "a": 0 },
        doc! { "_id": 6 },
        doc! { "_id": 9 },
    ];
    assert_eq!(all(&mut world, connection), expected);
    let list = doc! { "listCollections": 1, "nameOnly": true };
    assert_eq!(batch(&must(&mut world, connection, list)).len(), 3);
}

/// Others have given the numbers of its new documents to theirs.
#[test]
fn what_others_insert_meanwhile_stands_beside_what_a_transaction_inserts() {
    let (mut world, connection) = client();
    insert(&mut world, connection, vec![doc! { "_id": 1 }]);
    must(&mut world, connection, first(put(2), 1, 1));
    must(&mut world, connection, within(put(3), 1, 1));
    must(&mut world, connection, within(set(3, 1), 1, 1));
    insert(&mut world, connection, vec![doc! { "_id": 4 }]);
    must(&mut world, connection, within(commit(), 1, 1));
    let expected =
        [doc! { "_id": 1 }, doc! { "_id": 4 }, doc! { "_id": 2 }, doc! { "_id": 3, "a": 1 }];
    assert_eq!(all(&mut world, connection), expected);
}

#[test]
fn an_aborted_transaction_leaves_nothing() {
    let (mut world, connection) = client();
    insert(&mut world, connection, vec![doc! { "_id": 1 }]);
    must(&mut world, connection, first(put(2), 1, 1));
    must(&mut world, connection, within(abort(), 1, 1));
    assert_eq!(all(&mut world, connection), [doc! { "_id": 1 }]);
    let log = world.model.get().log(world.primary().unwrap());
    assert_eq!(log.iter().map(|it| it.documents).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn a_newer_number_aborts_the_transaction_that_is_open() {
    let (mut world, connection) = client();
    insert(&mut world, connection, vec![doc! { "_id": 1 }]);
    must(&mut world, connection, first(put(2), 1, 1));
    must(&mut world, connection, first(find(), 1, 2));
    fails(&mut world, connection, within(find(), 1, 1), 225, &[]);
    must(&mut world, connection, within(commit(), 1, 2));
    assert_eq!(all(&mut world, connection).len(), 1);
    must(&mut world, connection, first(put(3), 1, 3));
    let mut write = put(4);
    write.extend(doc! { "lsid": session(1), "txnNumber": 4_i64 });
    must(&mut world, connection, write.clone());
    assert_eq!(all(&mut world, connection).len(), 2);
    fails(&mut world, connection, within(commit(), 1, 3), 225, &[]);
    fails(&mut world, connection, within(commit(), 1, 4), 251, &[TRANSIENT]);
    must(&mut world, connection, first(find(), 1, 5));
    write.insert("txnNumber", 5_i64);
    fails(&mut world, connection, write, 217, &[]);
}

#[test]
fn sessions_have_transactions_of_their_own() {
    let (mut world, connection) = client();
    insert(&mut world, connection, vec![doc! { "_id": 1 }]);
    let other = world.connect(world.primary().unwrap());
    must(&mut world, connection, first(put(2), 1, 1));
    must(&mut world, other, first(put(3), 2, 1));
    must(&mut world, other, within(commit(), 1, 1));
    assert_eq!(all(&mut world, other).len(), 2);
    must(&mut world, connection, within(commit(), 2, 1));
    assert_eq!(all(&mut world, other).len(), 3);
}

#[test]
fn a_cursor_stays_in_its_transaction() {
    let (mut world, connection) = client();
    insert(&mut world, connection, (1..9).map(|id| doc! { "_id": id }).collect());
    let mut begin = first(find(), 1, 1);
    begin.insert("batchSize", 2);
    let inner = super::cursor_id(&must(&mut world, connection, begin));
    let mut find = find();
    find.extend(doc! { "batchSize": 2, "lsid": session(1) });
    let outer = super::cursor_id(&must(&mut world, connection, find));
    let more = |id: i64| doc! { "getMore": id, "collection": "x", "batchSize": 1 };
    insert(&mut world, connection, vec![doc! { "_id": 9 }]);
    assert_eq!(batch(&must(&mut world, connection, within(more(inner), 1, 1)))[0], doc! {"_id": 3});
    fails(&mut world, connection, more(inner), 50737, &[]);
    let mut outside = more(inner);
    outside.insert("lsid", session(2));
    fails(&mut world, connection, outside.clone(), 50738, &[]);
    outside.insert("lsid", session(1));
    fails(&mut world, connection, outside, 50740, &[]);
    fails(&mut world, connection, within(more(outer), 1, 1), 50739, &[]);
    fails(&mut world, connection, within(more(inner), 1, 1), 251, &[TRANSIENT]);
}

/// 6.0.27 counts so, and shows the open ones beside idle sessions.
#[test]
fn open_transactions_are_counted_and_shown() {
    let (mut world, connection) = client();
    insert(&mut world, connection, vec![doc! { "_id": 1 }]);
    for (id, end) in [(1, Some(commit())), (2, Some(abort())), (3, None)] {
        must(&mut world, connection, first(put(i32::from(id) + 1), id, 1));
        if let Some(end) = end {
            must(&mut world, connection, within(end, id, 1));
        }
    }
    let status = must(&mut world, connection, doc! { "serverStatus": 1, "$db": "admin" });
    let counts = status.get_document("transactions").unwrap();
    let names = ["currentOpen", "totalStarted", "totalCommitted", "totalAborted"];
    assert_eq!(names.map(|name| counts.get_i64(name).unwrap()), [1, 3, 1, 1]);
    let pipeline = vec![doc! { "$currentOp": { "idleSessions": true } }];
    let ask = doc! { "aggregate": 1, "pipeline": pipeline, "cursor": {}, "$db": "admin" };
    let shown = batch(&must(&mut world, connection, ask));
    let numbers = shown.iter().filter_map(|it| it.get_document("transaction").ok());
    let numbers = numbers.map(|it| it.get_document("parameters").unwrap().get_i64("txnNumber"));
    assert_eq!(numbers.map(Result::unwrap).collect::<Vec<_>>(), [1]);
}
