//! Collections, indexes and databases.

use bson::{Document, doc};
use sdam_core::bson;

use super::{ask, batch, client, code, insert, keeping, must};
use crate::ServerVersion;

fn names(reply: &Document) -> Vec<String> {
    batch(reply).iter().map(|it| it.get_str("name").unwrap().to_owned()).collect()
}

#[test]
fn collections_are_created_listed_renamed_and_dropped() {
    let (mut world, connection) = client();
    must(&mut world, connection, doc! { "create": "a" });
    assert_eq!(code(&ask(&mut world, connection, doc! { "create": "a" })), 48);
    must(&mut world, connection, doc! { "create": "view", "viewOn": "a", "pipeline": [] });
    insert(&mut world, connection, vec![doc! { "_id": 1 }]);
    let list = doc! { "listCollections": 1 };
    let listed = must(&mut world, connection, list.clone());
    assert_eq!(names(&listed), ["a", "view", "x"]);
    assert_eq!(batch(&listed)[1].get_str("type").unwrap(), "view");
    let filtered = doc! { "listCollections": 1, "filter": { "name": "x" }, "nameOnly": true };
    let filtered = must(&mut world, connection, filtered);
    assert_eq!(batch(&filtered), [doc! { "name": "x", "type": "collection" }]);
    let rename = doc! { "renameCollection": "test.x", "to": "test.a", "$db": "admin" };
    assert_eq!(code(&ask(&mut world, connection, rename.clone())), 48);
    let mut dropping = rename;
    dropping.insert("dropTarget", true);
    must(&mut world, connection, dropping);
    assert_eq!(must(&mut world, connection, doc! { "count": "view" }).get_i32("n").unwrap(), 1);
    must(&mut world, connection, doc! { "drop": "view" });
    assert_eq!(names(&must(&mut world, connection, list.clone())), ["a"]);
    must(&mut world, connection, doc! { "dropDatabase": 1 });
    assert!(names(&must(&mut world, connection, list)).is_empty());
}

#[test]
fn a_collection_that_is_not_there_is_dropped_since_7_0() {
    for (version, expected) in [(ServerVersion::V6_0, 26), (ServerVersion::V7_0, 0)] {
        let (mut world, connection) = keeping(version);
        assert_eq!(code(&ask(&mut world, connection, doc! { "drop": "x" })), expected);
    }
}

#[test]
fn indexes_have_names_and_may_be_unique() {
    let (mut world, connection) = client();
    let index = doc! { "key": { "x": 1 }, "name": "x_1", "unique": true };
    let create = doc! { "createIndexes": "x", "indexes": [index] };
    let created = must(&mut world, connection, create.clone());
    let counts = |reply: &Document| {
        ["numIndexesBefore", "numIndexesAfter"].map(|it| reply.get_i32(it).unwrap())
    };
    assert_eq!(counts(&created), [1, 2]);
    assert_eq!(counts(&must(&mut world, connection, create)), [2, 2]);
    insert(&mut world, connection, vec![doc! { "_id": 1, "x": 1 }]);
    let again = doc! { "insert": "x", "documents": [{ "_id": 2, "x": 1 }] };
    let reply = ask(&mut world, connection, again.clone());
    let error = reply.get_array("writeErrors").unwrap()[0].as_document().unwrap();
    assert_eq!(error.get_document("keyPattern").unwrap(), &doc! { "x": 1 });
    let listed = batch(&must(&mut world, connection, doc! { "listIndexes": "x" }));
    let expected = doc! { "v": 2, "key": { "_id": 1 }, "name": "_id_" };
    assert_eq!((listed.len(), &listed[0]), (2, &expected));
    must(&mut world, connection, doc! { "find": "x", "hint": "x_1" });
    assert_eq!(code(&ask(&mut world, connection, doc! { "find": "x", "hint": "y_1" })), 2);
    let drop = doc! { "dropIndexes": "x", "index": "x_1" };
    let dropped = must(&mut world, connection, drop.clone());
    assert_eq!(dropped, doc! { "nIndexesWas": 2, "ok": 1.0 });
    assert_eq!(code(&ask(&mut world, connection, drop)), 27);
    must(&mut world, connection, again);
    assert_eq!(code(&ask(&mut world, connection, doc! { "listIndexes": "y" })), 26);
    let twice = doc! { "createIndexes": "x", "indexes": [{ "key": { "x": 1 }, "name": "z", "unique": true }] };
    assert_eq!(code(&ask(&mut world, connection, twice)), 11000);
}

#[test]
fn databases_are_listed_with_those_of_the_server() {
    let (mut world, connection) = client();
    insert(&mut world, connection, vec![doc! {}]);
    let list = doc! { "listDatabases": 1, "nameOnly": true, "$db": "admin" };
    let listed = must(&mut world, connection, list);
    let expected = ["admin", "config", "local", "test"].map(|name| doc! { "name": name });
    assert_eq!(listed, doc! { "databases": expected.to_vec(), "ok": 1.0 });
    let filter = doc! { "listDatabases": 1, "filter": { "name": "test" }, "$db": "admin" };
    let listed = must(&mut world, connection, filter);
    assert_eq!(listed.get_array("databases").unwrap().len(), 1);
    assert_eq!(code(&ask(&mut world, connection, doc! { "listDatabases": 1 })), 13);
}

#[test]
fn options_of_a_collection_are_changed() {
    let (mut world, connection) = client();
    must(&mut world, connection, doc! { "create": "x" });
    let validator = doc! { "x": { "$type": "string" } };
    must(&mut world, connection, doc! { "collMod": "x", "validator": validator.clone() });
    let listed = batch(&must(&mut world, connection, doc! { "listCollections": 1 }));
    let expected = doc! {
        "validator": validator, "validationLevel": "strict", "validationAction": "error",
    };
    assert_eq!(listed[0].get_document("options").unwrap(), &expected);
    assert_eq!(code(&ask(&mut world, connection, doc! { "collMod": "y" })), 26);
}

/// Collections, "collMod": an index becomes unique once no two documents have the same key.
#[test]
fn an_index_becomes_unique_in_two_steps() {
    let (mut world, connection) = client();
    insert(&mut world, connection, vec![doc! { "_id": 1, "x": 1 }, doc! { "_id": 2, "x": 1 }]);
    let index = doc! { "key": { "x": 1 }, "name": "x_1" };
    must(&mut world, connection, doc! { "createIndexes": "x", "indexes": [index] });
    let modify = |option: &str| {
        doc! { "collMod": "x", "index": { "keyPattern": { "x": 1 }, option: true } }
    };
    assert_eq!(code(&ask(&mut world, connection, modify("unique"))), 72);
    let reply = must(&mut world, connection, modify("prepareUnique"));
    assert_eq!(reply, doc! { "prepareUnique_old": false, "prepareUnique_new": true, "ok": 1.0 });
    let write = doc! { "insert": "x", "documents": [{ "_id": 3, "x": 1 }] };
    let refused = ask(&mut world, connection, write);
    let error = refused.get_array("writeErrors").unwrap()[0].as_document().unwrap();
    assert_eq!(code(error), 11000);
    let refused = ask(&mut world, connection, modify("unique"));
    assert_eq!(code(&refused), 359);
    let ids = doc! { "ids": [1, 2] };
    assert_eq!(refused.get_array("violations").unwrap(), &[ids.into()]);
    let delete = doc! { "delete": "x", "deletes": [{ "q": { "_id": 2 }, "limit": 1 }] };
    must(&mut world, connection, delete);
    let reply = must(&mut world, connection, modify("unique"));
    assert_eq!(reply, doc! { "unique_new": true, "ok": 1.0 });
    let listed = batch(&must(&mut world, connection, doc! { "listIndexes": "x" }));
    assert!(listed[1].get_bool("unique").unwrap() && !listed[1].contains_key("prepareUnique"));
    assert_eq!(code(&ask(&mut world, connection, modify("nonsense"))), 40415);
    let none = doc! { "collMod": "x", "index": { "name": "none", "hidden": true } };
    assert_eq!(code(&ask(&mut world, connection, none)), 27);
}

/// A level of "moderate" leaves documents as they are that were wrong before.
#[test]
fn a_validator_has_levels() {
    let (mut world, connection) = client();
    insert(&mut world, connection, vec![doc! { "_id": 1 }, doc! { "_id": 2, "n": 1 }]);
    let validator = doc! { "n": { "$exists": true } };
    let mut modify = doc! { "collMod": "x", "validator": validator, "validationLevel": "moderate" };
    must(&mut world, connection, modify.clone());
    let update = |id: i32, change: Document| {
        doc! { "update": "x", "updates": [{ "q": { "_id": id }, "u": change }] }
    };
    must(&mut world, connection, update(1, doc! { "$set": { "w": 1 } }));
    let unset = doc! { "$unset": { "n": 1 } };
    let reply = ask(&mut world, connection, update(2, unset.clone()));
    assert!(reply.contains_key("writeErrors"), "{reply}");
    modify.insert("validationLevel", "strict");
    must(&mut world, connection, modify.clone());
    let other = doc! { "$set": { "w": 2 } };
    assert!(ask(&mut world, connection, update(1, other)).contains_key("writeErrors"));
    modify.insert("validationLevel", "off");
    must(&mut world, connection, modify.clone());
    must(&mut world, connection, update(2, unset));
    modify.insert("validationLevel", "nonsense");
    assert_eq!(code(&ask(&mut world, connection, modify)), 2);
}
