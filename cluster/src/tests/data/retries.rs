//! A write that comes twice is done once (Retryable Writes).

use bson::spec::BinarySubtype;
use bson::{Binary, Document, doc};
use sdam_core::bson;

use super::{all, ask, client, code, insert, must};
use crate::Input;
use crate::tests::SECOND;

fn numbered(mut command: Document, number: i64) -> Document {
    let id = Binary { subtype: BinarySubtype::Uuid, bytes: vec![1; 16] };
    command.insert("lsid", doc! { "id": id });
    command.insert("txnNumber", number);
    command
}

fn increment() -> Document {
    doc! { "update": "x", "updates": [{ "q": { "_id": 1 }, "u": { "$inc": { "a": 1 } } }] }
}

#[test]
fn a_write_of_the_same_number_is_done_once_and_answered_again() {
    let (mut world, connection) = client();
    insert(&mut world, connection, vec![doc! { "_id": 1, "a": 0 }]);
    let first = must(&mut world, connection, numbered(increment(), 1));
    assert_eq!(first, doc! { "n": 1, "nModified": 1, "ok": 1.0 });
    let again = must(&mut world, connection, numbered(increment(), 1));
    let expected = doc! { "n": 1, "nModified": 1, "retriedStmtIds": [0], "ok": 1.0 };
    assert_eq!(again, expected);
    assert_eq!(all(&mut world, connection), [doc! { "_id": 1, "a": 1 }]);
    let log = world.model.get().log(world.primary().unwrap());
    let sessions = log.iter().filter_map(|it| it.session.clone());
    assert_eq!(sessions.collect::<Vec<_>>(), [(vec![1; 16], 1)], "it is logged once");
    must(&mut world, connection, numbered(increment(), 2));
    assert_eq!(all(&mut world, connection), [doc! { "_id": 1, "a": 2 }]);
    assert_eq!(code(&ask(&mut world, connection, numbered(increment(), 1))), 225);
}

#[test]
fn what_had_failed_is_tried_again_and_the_rest_is_not() {
    let (mut world, connection) = client();
    insert(&mut world, connection, vec![doc! { "_id": 2 }]);
    let documents = [doc! { "_id": 1 }, doc! { "_id": 2 }, doc! { "_id": 3 }];
    let command = doc! { "insert": "x", "documents": documents.to_vec() };
    let reply = ask(&mut world, connection, numbered(command.clone(), 1));
    assert_eq!(reply.get_i32("n").unwrap(), 1);
    must(
        &mut world,
        connection,
        doc! { "delete": "x", "deletes": [{ "q": { "_id": 2 }, "limit": 1 }] },
    );
    let again = must(&mut world, connection, numbered(command, 1));
    assert_eq!(again, doc! { "n": 3, "retriedStmtIds": [0], "ok": 1.0 });
    assert_eq!(all(&mut world, connection).len(), 3);
}

/// Another primary knows what the former has done.
#[test]
fn another_primary_answers_again_too() {
    let (mut world, connection) = client();
    insert(&mut world, connection, vec![doc! { "_id": 1, "a": 0 }]);
    let modify =
        doc! { "findAndModify": "x", "query": { "_id": 1 }, "update": { "$inc": { "a": 1 } } };
    let first = must(&mut world, connection, numbered(modify.clone(), 1));
    let old = world.primary().unwrap();
    world.handle(Input::Kill { member: old });
    world.advance(4 * SECOND);
    let connection = world.connect(world.primary().unwrap());
    let again = must(&mut world, connection, numbered(modify, 1));
    assert_eq!(again.get_document("value").unwrap(), first.get_document("value").unwrap());
    assert_eq!(all(&mut world, connection), [doc! { "_id": 1, "a": 1 }]);
}

/// Retryable Writes, "Test Commands": the reply is lost after the write, or the write before it.
#[test]
fn a_fail_point_loses_the_reply_of_a_write_that_is_done() {
    for (data, done) in [(doc! {}, 1), (doc! { "failBeforeCommitExceptionCode": 1 }, 0)] {
        let (mut world, connection) = client();
        insert(&mut world, connection, vec![doc! { "_id": 1, "a": 0 }]);
        let point = doc! {
            "configureFailPoint": "onPrimaryTransactionalWrite", "mode": { "times": 1 },
            "data": data, "$db": "admin",
        };
        must(&mut world, connection, point);
        let writer = world.connect(world.primary().unwrap());
        super::send(&mut world, writer, &numbered(increment(), 1));
        assert!(world.is_closed(writer));
        assert_eq!(all(&mut world, connection), [doc! { "_id": 1, "a": done }]);
        must(&mut world, connection, numbered(increment(), 1));
        assert_eq!(all(&mut world, connection), [doc! { "_id": 1, "a": 1 }]);
    }
}

/// As with real servers, the fail point strikes where a write is done, and not where it is answered
/// again: each of several writes fails once.
#[test]
fn a_fail_point_does_not_strike_a_write_that_comes_again() {
    let (mut world, connection) = client();
    insert(&mut world, connection, vec![doc! { "_id": 1, "a": 0 }]);
    let point = doc! {
        "configureFailPoint": "onPrimaryTransactionalWrite", "mode": { "times": 2 },
        "$db": "admin",
    };
    must(&mut world, connection, point);
    for number in [1, 2] {
        let writer = world.connect(world.primary().unwrap());
        super::send(&mut world, writer, &numbered(increment(), number));
        assert!(world.is_closed(writer), "{number}");
        let again = must(&mut world, connection, numbered(increment(), number));
        assert!(again.contains_key("retriedStmtIds"), "{again}");
    }
    must(&mut world, connection, numbered(increment(), 3));
    assert_eq!(all(&mut world, connection), [doc! { "_id": 1, "a": 3 }]);
}

#[test]
fn a_write_to_many_has_no_number() {
    let (mut world, connection) = client();
    let delete = doc! { "delete": "x", "deletes": [{ "q": {}, "limit": 0 }] };
    let reply = ask(&mut world, connection, numbered(delete, 1));
    let error = &reply.get_array("writeErrors").unwrap()[0];
    assert_eq!(code(error.as_document().unwrap()), 72);
    let mut lost = increment();
    lost.insert("txnNumber", 1_i64);
    assert_eq!(code(&ask(&mut world, connection, lost)), 72, "there is no session");
}
