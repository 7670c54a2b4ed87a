//! Inserts, updates, deletes, and what servers say of them.

use bson::{Bson, Document, doc};
use sdam_core::bson;

use super::{all, ask, batch, client, code, insert, keeping, must};
use crate::ServerVersion;

/// A document after an update.
fn updated(before: Document, update: impl Into<Bson>, filters: Vec<Document>) -> Document {
    let (mut world, connection) = client();
    insert(&mut world, connection, vec![before]);
    let statement = doc! { "q": {}, "u": update.into(), "arrayFilters": filters };
    must(&mut world, connection, doc! { "update": "x", "updates": [statement] });
    all(&mut world, connection).remove(0)
}

#[test]
fn what_is_inserted_is_found_and_has_an_id() {
    let (mut world, connection) = client();
    let inserted = must(
        &mut world,
        connection,
        doc! { "insert": "x", "documents": [{ "_id": 1, "a": 1 }, { "a": 2 }, { "b": 1, "_id": 3 }] },
    );
    assert_eq!(inserted, doc! { "n": 3, "ok": 1.0 });
    let found = all(&mut world, connection);
    assert_eq!(found.len(), 3);
    assert!(found[1].get_object_id("_id").is_ok());
    assert_eq!(found[2].keys().next().unwrap(), "_id");
}

/// CRUD, "Error handling": the forms of the error are those of 6.0.5.
#[test]
fn a_key_that_is_there_is_refused() {
    let (mut world, connection) = client();
    insert(&mut world, connection, vec![doc! { "_id": 1 }]);
    for (ordered, count, written) in [(true, 1, 0), (false, 2, 1)] {
        let documents = [doc! { "_id": 1 }, doc! { "_id": 1.0 }, doc! { "_id": 2 }];
        let command = doc! { "insert": "x", "documents": documents.to_vec(), "ordered": ordered };
        let reply = ask(&mut world, connection, command);
        assert_eq!(reply.get_i32("n").unwrap(), written);
        let errors = reply.get_array("writeErrors").unwrap();
        assert_eq!(errors.len(), count);
        let expected = doc! {
            "index": 0,
            "code": 11000,
            "keyPattern": { "_id": 1 },
            "keyValue": { "_id": 1 },
            "errmsg": "E11000 duplicate key error collection: test.x index: _id_ dup key: { _id: 1 }",
        };
        assert_eq!(errors[0].as_document().unwrap(), &expected);
    }
}

#[test]
fn operators_change_what_they_name() {
    let cases = [
        (doc! { "a": 1 }, doc! { "$set": { "a": 2, "b.c": 3 } }, doc! { "a": 2, "b": { "c": 3 } }),
        (doc! { "a": 1, "b": 1 }, doc! { "$unset": { "b": "" } }, doc! { "a": 1 }),
        (doc! { "a": 1 }, doc! { "$inc": { "a": 2, "b": 1.5 } }, doc! { "a": 3, "b": 1.5 }),
        (doc! { "a": 2 }, doc! { "$mul": { "a": 3_i64, "b": 2 } }, doc! { "a": 6_i64, "b": 0 }),
        (doc! { "a": 2 }, doc! { "$min": { "a": 1 }, "$max": { "b": 3 } }, doc! { "a": 1, "b": 3 }),
        (doc! { "a": 2 }, doc! { "$rename": { "a": "b" } }, doc! { "b": 2 }),
        (doc! { "a": 2 }, doc! { "$setOnInsert": { "b": 2 } }, doc! { "a": 2 }),
        (doc! { "a": [1] }, doc! { "$push": { "a": 1 } }, doc! { "a": [1, 1] }),
        (doc! {}, doc! { "$push": { "a": { "$each": [1, 2] } } }, doc! { "a": [1, 2] }),
        (doc! { "a": [1] }, doc! { "$addToSet": { "a": 1.0 } }, doc! { "a": [1] }),
        (doc! { "a": [1, 2, 3] }, doc! { "$pull": { "a": { "$gte": 2 } } }, doc! { "a": [1] }),
        (doc! { "a": [1, 2, 1] }, doc! { "$pullAll": { "a": [1] } }, doc! { "a": [2] }),
        (doc! { "a": [1, 2] }, doc! { "$pop": { "a": -1 } }, doc! { "a": [2] }),
        (doc! { "a": [1, 2] }, doc! { "$set": { "a.1": 5 } }, doc! { "a": [1, 5] }),
    ];
    for (mut before, update, mut after) in cases {
        before.insert("_id", 1);
        let said = update.to_string();
        let mut found = updated(before, update, Vec::new());
        found.remove("_id");
        after.remove("_id");
        assert_eq!(found, after, "{said}");
    }
}

#[test]
fn filters_choose_elements_of_arrays() {
    let before = doc! { "_id": 1, "y": [{ "b": 3 }, { "b": 1, "c": [{ "d": 2 }] }] };
    let after =
        updated(before.clone(), doc! { "$set": { "y.$[i].b": 2 } }, vec![doc! { "i.b": 3 }]);
    assert_eq!(after.get_array("y").unwrap()[0], doc! { "b": 2 }.into());
    let set = doc! { "$set": { "y.$[i].c.$[j].d": 0 } };
    let after = updated(before.clone(), set, vec![doc! { "i.b": 1 }, doc! { "j.d": 2 }]);
    assert_eq!(after.get_array("y").unwrap()[1], doc! { "b": 1, "c": [{ "d": 0 }] }.into());
    let after = updated(before, doc! { "$inc": { "y.$[].b": 1 } }, Vec::new());
    assert_eq!(after.get_array("y").unwrap()[0], doc! { "b": 4 }.into());
}

#[test]
fn stages_make_another_document() {
    let stages = vec![doc! { "$project": { "x": 1 } }, doc! { "$addFields": { "foo": 1 } }];
    let after = updated(doc! { "_id": 1, "x": 1, "y": 1 }, stages, Vec::new());
    assert_eq!(after, doc! { "_id": 1, "x": 1, "foo": 1 });
    let set = doc! { "field": { "$literal": "$a" }, "value": 1, "input": "$$ROOT" };
    let stages = vec![doc! { "$replaceWith": { "$setField": set } }];
    let after = updated(doc! { "_id": 1 }, stages, Vec::new());
    assert_eq!(after, doc! { "_id": 1, "$a": 1 });
}

#[test]
fn a_replacement_keeps_the_id_and_an_upsert_makes_one() {
    let (mut world, connection) = client();
    insert(&mut world, connection, vec![doc! { "_id": 1, "a": 1 }]);
    let mut update = |statement: Document| {
        must(&mut world, connection, doc! { "update": "x", "updates": [statement] })
    };
    let reply = update(doc! { "q": { "_id": 1 }, "u": { "b": 2 } });
    assert_eq!(reply, doc! { "n": 1, "nModified": 1, "ok": 1.0 });
    let reply = update(doc! { "q": { "_id": 1 }, "u": { "_id": 1, "b": 2 } });
    assert_eq!(reply, doc! { "n": 1, "nModified": 0, "ok": 1.0 });
    let reply =
        update(doc! { "q": { "_id": 4, "c": { "$gt": 1 } }, "u": { "b": 2 }, "upsert": true });
    let upserted = vec![doc! { "index": 0, "_id": 4 }];
    assert_eq!(reply, doc! { "n": 1, "nModified": 0, "upserted": upserted, "ok": 1.0 });
    update(doc! { "q": { "_id": 5, "a": 7 }, "u": { "$setOnInsert": { "b": 2 } }, "upsert": true });
    let expected =
        [doc! { "_id": 1, "b": 2 }, doc! { "_id": 4, "b": 2 }, doc! { "_id": 5, "a": 7, "b": 2 }];
    assert_eq!(all(&mut world, connection), expected);
}

/// With the codes of 6.0.5.
#[test]
fn what_cannot_be_written_is_an_error_of_its_statement() {
    let statements = [
        (doc! { "q": {}, "u": { "$foo": { "a": 1 } } }, 9),
        (doc! { "q": {}, "u": { "$set": { "_id": 2 } } }, 66),
        (doc! { "q": {}, "u": { "_id": 2 } }, 66),
        (doc! { "q": {}, "u": { "$inc": { "s": 1 } } }, 14),
        (doc! { "q": {}, "u": { "$push": { "s": 1 } } }, 2),
        (doc! { "q": {}, "u": { "$set": { "a": 1 }, "$inc": { "a.b": 1 } } }, 40),
        (doc! { "q": {}, "u": { "$set": { "a.$[i]": 1 } } }, 2),
        (doc! { "q": {}, "u": { "a": 1 }, "multi": true }, 9),
        (doc! { "q": { "$foo": 1 }, "u": { "a": 1 } }, 2),
        (doc! { "q": { "$expr": { "$eq": ["$_id", "$$id"] } }, "u": { "a": 1 } }, 17276),
        (doc! { "q": {}, "u": { "$set": { "a": 1 } }, "hint": "none" }, 2),
    ];
    let (mut world, connection) = client();
    insert(&mut world, connection, vec![doc! { "_id": 1, "s": "text" }]);
    for (statement, expected) in statements {
        let command = doc! { "update": "x", "updates": [statement.clone()] };
        let reply = ask(&mut world, connection, command);
        let errors = reply.get_array("writeErrors").unwrap();
        assert_eq!(code(errors[0].as_document().unwrap()), expected, "{statement}");
    }
    let documents = [(doc! { "_id": [1] }, 53), (doc! { "_id": { "$a": 1 } }, 52)];
    for (document, expected) in documents {
        let command = doc! { "insert": "x", "documents": [document.clone()] };
        let reply = ask(&mut world, connection, command);
        let errors = reply.get_array("writeErrors").unwrap();
        assert_eq!(code(errors[0].as_document().unwrap()), expected, "{document}");
    }
    assert_eq!(all(&mut world, connection), [doc! { "_id": 1, "s": "text" }]);
}

#[test]
fn names_with_dollars_are_stored_since_5_0() {
    for (version, count) in [(ServerVersion::V4_4, 0), (ServerVersion::V5_0, 1)] {
        let (mut world, connection) = keeping(version);
        let command = doc! { "insert": "x", "documents": [{ "_id": 1, "$a": 1 }] };
        assert_eq!(ask(&mut world, connection, command).get_i32("n").unwrap(), count);
    }
}

#[test]
fn one_is_deleted_or_all() {
    let (mut world, connection) = client();
    insert(&mut world, connection, (0..4).map(|id| doc! { "_id": id, "x": id / 2 }).collect());
    let delete = |limit| doc! { "delete": "x", "deletes": [{ "q": { "x": 1 }, "limit": limit }] };
    assert_eq!(must(&mut world, connection, delete(1)), doc! { "n": 1, "ok": 1.0 });
    assert_eq!(all(&mut world, connection).len(), 3);
    let everything = doc! { "delete": "x", "deletes": [{ "q": {}, "limit": 0 }] };
    assert_eq!(must(&mut world, connection, everything), doc! { "n": 3, "ok": 1.0 });
    assert!(all(&mut world, connection).is_empty());
}

#[test]
fn find_and_modify_gives_the_document_before_or_after() {
    let (mut world, connection) = client();
    insert(&mut world, connection, (1..4).map(|id| doc! { "_id": id, "x": id * 11 }).collect());
    let mut ask = |command: Document| must(&mut world, connection, command);
    let before = ask(doc! {
        "findAndModify": "x", "query": { "_id": { "$gt": 1 } }, "sort": { "x": -1 },
        "update": { "$inc": { "x": 1 } }, "fields": { "x": 1, "_id": 0 },
    });
    let outcome = doc! { "n": 1, "updatedExisting": true };
    let expected = doc! { "lastErrorObject": outcome.clone(), "value": { "x": 33 }, "ok": 1.0 };
    assert_eq!(before, expected);
    let after = ask(doc! {
        "findAndModify": "x", "query": { "_id": 3 }, "update": { "y": 1 }, "new": true,
    });
    assert_eq!(after.get_document("value").unwrap(), &doc! { "_id": 3, "y": 1 });
    let removed = ask(doc! { "findAndModify": "x", "query": { "_id": 3 }, "remove": true });
    let expected = doc! { "lastErrorObject": { "n": 1 }, "value": { "_id": 3, "y": 1 }, "ok": 1.0 };
    assert_eq!(removed, expected);
    let none = ask(doc! { "findAndModify": "x", "query": { "_id": 3 }, "remove": true });
    let expected = doc! { "lastErrorObject": { "n": 0 }, "value": null, "ok": 1.0 };
    assert_eq!(none, expected);
    let made = ask(doc! {
        "findAndModify": "x", "query": { "_id": 9 }, "update": { "$set": { "x": 1 } },
        "upsert": true, "new": true,
    });
    let outcome = doc! { "n": 1, "updatedExisting": false, "upserted": 9 };
    assert_eq!(made.get_document("lastErrorObject").unwrap(), &outcome);
    assert_eq!(made.get_document("value").unwrap(), &doc! { "_id": 9, "x": 1 });
}

#[test]
fn a_validator_refuses_documents_unless_it_is_bypassed() {
    let (mut world, connection) = client();
    let validator = doc! { "x": { "$type": "string" } };
    must(&mut world, connection, doc! { "create": "x", "validator": validator });
    let documents = vec![doc! { "_id": 1, "x": 1 }];
    let command = doc! { "insert": "x", "documents": documents };
    let reply = ask(&mut world, connection, command.clone());
    let error = reply.get_array("writeErrors").unwrap()[0].as_document().unwrap();
    assert_eq!(code(error), 121);
    assert_eq!(error.get_document("errInfo").unwrap().get_i32("failingDocumentId").unwrap(), 1);
    let mut bypassing = command;
    bypassing.insert("bypassDocumentValidation", true);
    must(&mut world, connection, bypassing);
    let modify = doc! { "findAndModify": "x", "query": {}, "update": { "$set": { "x": 2 } } };
    let reply = ask(&mut world, connection, modify);
    assert_eq!(code(&reply), 121);
    assert!(reply.contains_key("errInfo"));
}

/// CRUD, "Client Bulk Write": since 8.0.
#[test]
fn a_bulk_write_goes_to_several_collections() {
    let (mut world, connection) = client();
    let ops = vec![
        doc! { "insert": 0, "document": { "_id": 1 } },
        doc! { "insert": 0, "document": { "_id": 1 } },
        doc! { "update": 1, "filter": { "_id": 7 }, "updateMods": { "$set": { "a": 1 } }, "upsert": true },
        doc! { "delete": 0, "filter": {}, "multi": true },
    ];
    let spaces = vec![doc! { "ns": "test.x" }, doc! { "ns": "test.y" }];
    let mut command = doc! {
        "bulkWrite": 1, "ops": ops, "nsInfo": spaces, "ordered": false, "$db": "admin",
    };
    let reply = ask(&mut world, connection, command.clone());
    let results = batch(&reply);
    assert_eq!(results[0], doc! { "ok": 1.0, "idx": 0, "n": 1 });
    assert_eq!((code(&results[1]), results[1].get_i32("idx").unwrap()), (11000, 1));
    assert_eq!(results[2].get_document("upserted").unwrap(), &doc! { "_id": 7 });
    for (name, count) in
        [("nErrors", 1), ("nInserted", 1), ("nUpserted", 1), ("nDeleted", 1), ("nMatched", 0)]
    {
        assert_eq!(reply.get_i32(name).unwrap(), count, "{name}");
    }
    command.insert("errorsOnly", true);
    assert_eq!(batch(&ask(&mut world, connection, command.clone())).len(), 1);
    let (mut world, connection) = keeping(ServerVersion::V7_0);
    assert_eq!(code(&ask(&mut world, connection, command)), 59);
}

#[test]
fn dates_are_set() {
    let (mut world, connection) = client();
    insert(&mut world, connection, vec![doc! { "_id": 1 }]);
    let dates = doc! { "$currentDate": { "d": true, "t": { "$type": "timestamp" } } };
    let statement = doc! { "q": {}, "u": dates };
    must(&mut world, connection, doc! { "update": "x", "updates": [statement] });
    let after = all(&mut world, connection).remove(0);
    assert!(after.get_datetime("d").is_ok() && after.get_timestamp("t").is_ok(), "{after}");
}
