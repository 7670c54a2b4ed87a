//! Time series and clustered collections: what 5.0.4 and 6.0.5 say of them, and 7.0 allows.

use bson::{Bson, DateTime, Document, doc};
use sdam_core::bson;

use super::{ask, batch, code, keeping, must};
use crate::ServerVersion;

use ServerVersion::{V4_4, V5_0, V6_0, V7_0, V8_0, V8_2};

fn at(second: i64) -> DateTime {
    DateTime::from_millis(1_700_000_000_000 + second * 1000)
}

/// The code of a command's error, or of its first write error.
fn refusal(reply: &Document) -> i32 {
    let error = reply.get_array("writeErrors").ok().and_then(|it| it[0].as_document());
    code(error.unwrap_or(reply))
}

#[test]
fn a_time_series_has_documents_with_the_same_id_and_a_time() {
    let (mut world, connection) = keeping(V6_0);
    let mut ask = |command: Document| ask(&mut world, connection, command);
    let create = |series: Document| doc! { "create": "x", "timeseries": series };
    for (series, expected) in [
        (doc! {}, 40414),
        (doc! { "timeField": "t", "granularity": "x" }, 2),
        (doc! { "timeField": "t", "metaField": "t" }, 72),
        (doc! { "timeField": "a.b" }, 72),
        (doc! { "timeField": "t", "bucketRoundingSeconds": 9 }, 40415),
        (doc! { "timeField": "t", "metaField": "m" }, 0),
    ] {
        assert_eq!(code(&ask(create(series.clone()))), expected, "{series}");
    }
    let listed = batch(&ask(doc! { "listCollections": 1 })).remove(0);
    let series = doc! { "timeField": "t", "metaField": "m", "granularity": "seconds", "bucketMaxSpanSeconds": 3600 };
    assert_eq!(listed.get_str("type").unwrap(), "timeseries");
    assert_eq!(listed.get_document("options").unwrap(), &doc! { "timeseries": series });
    assert_eq!(listed.get_document("info").unwrap(), &doc! { "readOnly": false });
    let same = || doc! { "_id": 1, "t": at(0), "m": 1 };
    let documents = vec![same(), same(), doc! { "t": at(1), "m": 2 }];
    let reply = ask(doc! { "insert": "x", "documents": documents.clone() });
    assert_eq!((reply.get_i32("n").unwrap(), refusal(&reply)), (3, 0));
    assert_eq!(batch(&ask(doc! { "find": "x", "filter": { "_id": 1 } })).len(), 2);
    assert_eq!(batch(&ask(doc! { "find": "x", "filter": { "m": 2 } })), documents[2..]);
    for document in [doc! { "_id": 2 }, doc! { "_id": 2, "t": 5 }] {
        assert_eq!(refusal(&ask(doc! { "insert": "x", "documents": [document] })), 2);
    }
    let unique = doc! { "key": { "t": 1 }, "name": "t_1", "unique": true };
    for (command, expected) in [
        (doc! { "createIndexes": "x", "indexes": [unique] }, 72),
        (doc! { "findAndModify": "x", "query": {}, "remove": true }, 166),
        (doc! { "find": "x", "showRecordId": true }, 168),
        (doc! { "find": "x", "tailable": true }, 168),
        (doc! { "renameCollection": "test.x", "to": "test.y", "$db": "admin" }, 166),
        (doc! { "drop": "x" }, 0),
    ] {
        assert_eq!(code(&ask(command.clone())), expected, "{command}");
    }
}

#[test]
fn a_time_series_changes_in_its_metadata() {
    let update = |filter: Document, change: Bson, multi: bool| {
        doc! { "update": "x", "updates": [{ "q": filter, "u": change, "multi": multi }] }
    };
    let set = |name: &str| Bson::Document(doc! { "$set": { name: 3 } });
    let delete = |filter: Document, limit: i32| {
        doc! { "delete": "x", "deletes": [{ "q": filter, "limit": limit }] }
    };
    let upsert = doc! { "q": {}, "u": set("m"), "multi": true, "upsert": true };
    let cases = [
        (V5_0, update(doc! { "m": 1 }, set("m"), true), 72),
        (V5_0, delete(doc! {}, 0), 72),
        (V6_0, update(doc! { "m": 1 }, set("m"), true), 0),
        (V6_0, update(doc! { "$or": [{ "m.a": 1 }] }, set("m.b"), true), 0),
        (V6_0, update(doc! { "m": 1 }, set("m"), false), 72),
        (V6_0, update(doc! { "a": 1 }, set("m"), true), 72),
        (V6_0, update(doc! { "m": 1 }, set("a"), true), 72),
        (V6_0, update(doc! { "m": 1 }, set("ma"), true), 72),
        (V6_0, update(doc! {}, vec![doc! { "$set": { "m": 2 } }].into(), true), 72),
        (V6_0, update(doc! {}, doc! { "m": 2 }.into(), false), 72),
        (V6_0, doc! { "update": "x", "updates": [upsert] }, 72),
        (V6_0, delete(doc! { "a": 1 }, 0), 72),
        (V6_0, delete(doc! { "m": 1 }, 1), 20),
        (V6_0, delete(doc! { "m": 1 }, 0), 0),
        (V7_0, delete(doc! { "a": 1 }, 1), 0),
        (V7_0, update(doc! { "a": 1 }, set("m"), true), 72),
    ];
    for (version, command, expected) in cases {
        let (mut world, connection) = keeping(version);
        let series = doc! { "timeField": "t", "metaField": "m" };
        must(&mut world, connection, doc! { "create": "x", "timeseries": series });
        let documents = vec![doc! { "t": at(0), "m": 1 }, doc! { "t": at(0), "m": 2 }];
        must(&mut world, connection, doc! { "insert": "x", "documents": documents });
        let reply = ask(&mut world, connection, command.clone());
        assert_eq!(refusal(&reply), expected, "{version:?} {command}: {reply}");
    }
    let (mut world, connection) = keeping(V4_4);
    let create = doc! { "create": "x", "timeseries": { "timeField": "t" } };
    assert_eq!(code(&ask(&mut world, connection, create)), 40415);
}

/// Manual, "rawData": it is of no effect on what is no time series.
#[test]
fn documents_are_read_as_they_are_stored_since_8_2() {
    for (version, [plain, series]) in [(V8_0, [40415, 40415]), (V8_2, [0, 238])] {
        let (mut world, connection) = keeping(version);
        must(&mut world, connection, doc! { "create": "x", "timeseries": { "timeField": "t" } });
        for (collection, expected) in [("y", plain), ("x", series)] {
            let find = doc! { "find": collection, "rawData": true };
            assert_eq!(code(&ask(&mut world, connection, find)), expected, "{version:?}");
        }
        let create = doc! { "create": "y", "rawData": true };
        must(&mut world, connection, create);
        let list = doc! { "listCollections": 1, "filter": { "name": "y" } };
        let listed = batch(&must(&mut world, connection, list)).remove(0);
        assert_eq!(listed.get_document("options").unwrap(), &doc! {});
    }
}

#[test]
fn a_clustered_collection_is_in_the_order_of_its_ids() {
    let (mut world, connection) = keeping(V6_0);
    let mut ask = |command: Document| ask(&mut world, connection, command);
    let create = |index: Bson| doc! { "create": "x", "clusteredIndex": index };
    for (index, expected) in [
        (Bson::Boolean(true), 5_979_703),
        (doc! { "key": { "a": 1 }, "unique": true }.into(), 197),
        (doc! { "key": { "_id": 1 }, "unique": false }.into(), 5_979_700),
        (doc! { "key": { "_id": 1 } }.into(), 40414),
        (doc! { "key": { "_id": 1 }, "unique": true, "v": 3 }.into(), 5_979_704),
        (doc! { "key": { "_id": 1 }, "unique": true, "name": "named" }.into(), 0),
    ] {
        assert_eq!(code(&ask(create(index.clone()))), expected, "{index}");
    }
    let listed = batch(&ask(doc! { "listCollections": 1 })).remove(0);
    let mut index = doc! { "v": 2, "key": { "_id": 1 }, "name": "named", "unique": true };
    let options = listed.get_document("options").unwrap();
    assert_eq!(options, &doc! { "clusteredIndex": index.clone() });
    assert!(!listed.contains_key("idIndex"));
    index.insert("clustered", true);
    assert_eq!(batch(&ask(doc! { "listIndexes": "x" })), [index]);
    let ids = |ids: &[i32]| ids.iter().map(|id| doc! { "_id": *id }).collect::<Vec<_>>();
    ask(doc! { "insert": "x", "documents": ids(&[3, 1, 2]) });
    assert_eq!(batch(&ask(doc! { "find": "x" })), ids(&[1, 2, 3]));
    assert_eq!(batch(&ask(doc! { "find": "x", "hint": "named" })), ids(&[1, 2, 3]));
    assert_eq!(refusal(&ask(doc! { "insert": "x", "documents": ids(&[2]) })), 11000);
    let again = doc! { "key": { "_id": 1 }, "name": "other" };
    let reply = ask(doc! { "createIndexes": "x", "indexes": [again] });
    assert_eq!(reply.get_i32("numIndexesAfter").unwrap(), 0);
    for (name, expected) in [("named", 5_979_800), ("*", 0)] {
        assert_eq!(code(&ask(doc! { "dropIndexes": "x", "index": name })), expected);
    }
    assert_eq!(code(&ask(doc! { "create": "y", "expireAfterSeconds": 9 })), 72);
}
