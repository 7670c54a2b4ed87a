//! Fields of commands and statements, and read concerns, that a version does not know.

use bson::{Document, doc};
use sdam_core::bson;

use super::{all, ask, batch, code, insert, keeping, must};
use crate::ServerVersion;

const V4_2: ServerVersion = ServerVersion::V4_2;
const V6_0: ServerVersion = ServerVersion::V6_0;
const V8_0: ServerVersion = ServerVersion::V8_0;

fn code_of(version: ServerVersion, command: Document) -> i32 {
    let (mut world, connection) = keeping(version);
    insert(&mut world, connection, vec![doc! { "_id": 1 }]);
    code(&ask(&mut world, connection, command))
}

/// With the codes of 4.2.6 and 6.0.5.
#[test]
fn a_field_that_a_version_does_not_know_is_refused() {
    let update = |field: &str| {
        let mut statement = doc! { "q": {}, "u": { "$set": { "a": 1 } } };
        statement.insert(field, doc! { "_id": 1 });
        doc! { "update": "x", "updates": [statement] }
    };
    let hinted = doc! { "q": {}, "limit": 1, "hint": "_id_" };
    let hinted = doc! { "delete": "x", "deletes": [hinted] };
    let cases = [
        (V6_0, update("sort"), 40415),
        (V8_0, update("sort"), 0),
        (V8_0, update("nonsense"), 40415),
        (V4_2, hinted.clone(), 40415),
        (V6_0, hinted, 0),
        (V6_0, doc! { "find": "x", "nonsense": 1 }, 40415),
        (V4_2, doc! { "find": "x", "nonsense": 1 }, 9),
        (V4_2, doc! { "find": "x", "let": {} }, 9),
        (V6_0, doc! { "find": "x", "let": {} }, 0),
        (V6_0, doc! { "delete": "x", "deletes": [{ "q": {} }] }, 40414),
        (V6_0, doc! { "delete": "x", "deletes": [{ "q": {}, "limit": 2 }] }, 9),
        (V6_0, doc! { "update": "x", "updates": [{ "q": {} }] }, 40414),
        (V6_0, doc! { "update": "x", "updates": [{ "q": {}, "u": 5 }] }, 9),
        (V4_2, doc! { "findAndModify": "x", "query": {}, "remove": true, "hint": "_id_" }, 51177),
    ];
    for (version, command, expected) in cases {
        assert_eq!(code_of(version, command.clone()), expected, "{version:?} {command}");
    }
}

/// An update whose pipeline cannot be read fails whole, after the statements before it.
#[test]
fn an_update_with_a_stage_that_there_is_not_is_no_error_of_its_statement() {
    let (mut world, connection) = keeping(V6_0);
    insert(&mut world, connection, vec![doc! { "_id": 1 }]);
    let statements = vec![
        doc! { "q": {}, "u": { "$set": { "a": 1 } } },
        doc! { "q": {}, "u": [{ "$invalidOperator": true }] },
    ];
    let reply = ask(&mut world, connection, doc! { "update": "x", "updates": statements });
    assert_eq!((code(&reply), reply.get_f64("ok").unwrap()), (40324, 0.0));
    assert_eq!(all(&mut world, connection), [doc! { "_id": 1, "a": 1 }]);
}

#[test]
fn the_first_of_a_sort_is_updated_since_8_0() {
    let (mut world, connection) = keeping(V8_0);
    insert(&mut world, connection, (0..3).map(|id| doc! { "_id": id }).collect());
    let mut statement = doc! { "q": {}, "u": { "$set": { "a": 1 } }, "sort": { "_id": -1 } };
    must(&mut world, connection, doc! { "update": "x", "updates": [statement.clone()] });
    assert_eq!(all(&mut world, connection)[2], doc! { "_id": 2, "a": 1 });
    statement.insert("multi", true);
    let reply = ask(&mut world, connection, doc! { "update": "x", "updates": [statement] });
    assert_eq!(code(&reply), 9);
}

/// Sessions, "snapshot": the server refuses commands that cannot read a snapshot. With the codes of
/// 4.2.6 and 6.0.5.
#[test]
fn a_command_takes_the_read_concerns_that_it_can_have() {
    let find = doc! { "find": "x" };
    let write = doc! { "insert": "x", "documents": [{}] };
    let out = doc! { "aggregate": "x", "pipeline": [{ "$out": "y" }], "cursor": {} };
    let cases = [
        (V6_0, find.clone(), "snapshot", 0),
        (V4_2, find.clone(), "snapshot", 72),
        (V6_0, write.clone(), "snapshot", 72),
        (V6_0, write.clone(), "majority", 72),
        (V6_0, write, "local", 0),
        (V6_0, doc! { "count": "x" }, "snapshot", 72),
        (V6_0, doc! { "count": "x" }, "linearizable", 0),
        (V6_0, doc! { "distinct": "x", "key": "a" }, "snapshot", 0),
        (V6_0, doc! { "listCollections": 1 }, "snapshot", 72),
        (V6_0, doc! { "listIndexes": "x" }, "snapshot", 72),
        (V6_0, doc! { "ping": 1 }, "snapshot", 72),
        (V6_0, out.clone(), "linearizable", 72),
        (V6_0, out, "majority", 0),
        (V6_0, find, "nonsense", 9),
    ];
    for (version, mut command, level, expected) in cases {
        command.insert("readConcern", doc! { "level": level });
        assert_eq!(code_of(version, command.clone()), expected, "{version:?} {command}");
    }
    for (concern, expected) in [(doc! { "level": 1 }, 14), (doc! { "nonsense": 1 }, 72)] {
        let command = doc! { "find": "x", "readConcern": concern };
        assert_eq!(code_of(V6_0, command.clone()), expected, "{command}");
    }
}

/// Manual, "rawData": it is of no effect on what is no time series.
#[test]
fn raw_data_are_asked_for_since_8_2() {
    for (version, expected) in [(ServerVersion::V8_0, 40415), (ServerVersion::V8_2, 0)] {
        let (mut world, connection) = keeping(version);
        let find = doc! { "find": "x", "rawData": true };
        assert_eq!(code(&ask(&mut world, connection, find)), expected, "{version:?}");
        must(&mut world, connection, doc! { "create": "x", "rawData": true });
        let listed = batch(&must(&mut world, connection, doc! { "listCollections": 1 })).remove(0);
        assert_eq!(listed.get_document("options").unwrap(), &doc! {});
    }
}
