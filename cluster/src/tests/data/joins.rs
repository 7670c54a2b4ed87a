//! Stages over other collections.

use bson::{Bson, Document, doc};
use sdam_core::bson;

use super::{ask, batch, code, insert, keeping, must};
use crate::ServerVersion;

/// The outcome of a pipeline over the collection `x`.
fn made(version: ServerVersion, pipeline: Vec<Document>) -> Result<Vec<Document>, i32> {
    let (mut world, connection) = keeping(version);
    let documents = vec![
        doc! { "_id": 1, "i": "a", "q": 2 },
        doc! { "_id": 2, "i": ["a", "b"], "q": 11 },
        doc! { "_id": 3 },
    ];
    insert(&mut world, connection, documents);
    let others = vec![
        doc! { "_id": 1, "k": "a", "n": 10 },
        doc! { "_id": 2, "k": ["b", "c"], "n": 20 },
        doc! { "_id": 3, "n": 5 },
    ];
    must(&mut world, connection, doc! { "insert": "s", "documents": others });
    let command = doc! { "aggregate": "x", "pipeline": pipeline, "cursor": {} };
    let reply = ask(&mut world, connection, command);
    if code(&reply) == 0 { Ok(batch(&reply)) } else { Err(code(&reply)) }
}

/// The ids of what has been looked up for each document.
fn ids(found: &[Document]) -> Vec<Vec<i32>> {
    let id = |it: &Bson| it.as_document().unwrap().get_i32("_id").unwrap();
    found.iter().map(|it| it.get_array("o").unwrap().iter().map(id).collect()).collect()
}

const V6_0: ServerVersion = ServerVersion::V6_0;

/// As 4.2.6 and 6.0.5 do.
#[test]
fn documents_of_another_collection_are_looked_up() {
    let fields = doc! { "from": "s", "localField": "i", "foreignField": "k", "as": "o" };
    let found = made(V6_0, vec![doc! { "$lookup": fields.clone() }]).unwrap();
    assert_eq!(ids(&found), [vec![1], vec![1, 2], vec![3]]);
    let larger = vec![doc! { "$match": { "$expr": { "$gt": ["$n", "$$q"] } } }];
    let lookup = doc! { "from": "s", "let": { "q": "$q" }, "pipeline": larger, "as": "o" };
    let found = made(V6_0, vec![doc! { "$lookup": lookup }]).unwrap();
    assert_eq!(ids(&found), [vec![1, 2, 3], vec![2], vec![1, 2, 3]]);
    let mut both = fields.clone();
    both.insert("pipeline", vec![doc! { "$match": { "n": { "$gt": 10 } } }]);
    let found = made(V6_0, vec![doc! { "$lookup": both.clone() }]).unwrap();
    assert_eq!(ids(&found), [vec![], vec![2], vec![]]);
    assert_eq!(made(ServerVersion::V4_2, vec![doc! { "$lookup": both }]), Err(9));
    let none = doc! { "from": "none", "localField": "i", "foreignField": "k", "as": "o" };
    let found = made(V6_0, vec![doc! { "$lookup": none }]).unwrap();
    assert_eq!(ids(&found), [[0; 0], [0; 0], [0; 0]]);
}

/// With the codes of 6.0.5.
#[test]
fn a_lookup_that_says_too_little_or_too_much_is_refused() {
    let whole = doc! { "from": "s", "localField": "i", "foreignField": "k", "as": "o" };
    let cases = [
        ("from", None, 9),
        ("as", None, 9),
        ("localField", None, 9),
        ("nonsense", Some(Bson::from("x")), 9),
        ("nonsense", Some(Bson::from(1)), 9),
        ("localField", Some("$i".into()), 16410),
        ("pipeline", Some(Bson::Array(vec![doc! { "$out": "y" }.into()])), 51047),
        ("pipeline", Some(Bson::Array(vec![doc! { "$nonsense": 1 }.into()])), 40324),
    ];
    for (field, value, expected) in cases {
        let mut lookup = whole.clone();
        match value {
            Some(value) => drop(lookup.insert(field, value)),
            None => drop(lookup.remove(field)),
        }
        let said = lookup.to_string();
        assert_eq!(made(V6_0, vec![doc! { "$lookup": lookup }]), Err(expected), "{said}");
    }
}

#[test]
fn collections_are_united_and_facets_are_made() {
    let united = doc! { "$unionWith": { "coll": "s", "pipeline": [{ "$match": { "n": 5 } }] } };
    let found = made(V6_0, vec![united, doc! { "$count": "n" }]).unwrap();
    assert_eq!(found, [doc! { "n": 4 }]);
    let facets = doc! { "n": [{ "$count": "n" }], "first": [{ "$match": { "_id": 3 } }] };
    let found = made(V6_0, vec![doc! { "$facet": facets }]).unwrap();
    assert_eq!(found, [doc! { "n": [{ "n": 3 }], "first": [{ "_id": 3 }] }]);
}

#[test]
fn an_unwound_array_may_keep_what_has_none_and_count() {
    let unwind = doc! {
        "path": "$i", "preserveNullAndEmptyArrays": true, "includeArrayIndex": "at",
    };
    let found = made(V6_0, vec![doc! { "$unwind": unwind }, doc! { "$unset": "q" }]).unwrap();
    let expected = [
        doc! { "_id": 1, "i": "a", "at": null },
        doc! { "_id": 2, "i": "a", "at": 0_i64 },
        doc! { "_id": 2, "i": "b", "at": 1_i64 },
        doc! { "_id": 3, "at": null },
    ];
    assert_eq!(found, expected);
    let wrong = [
        (doc! { "path": "$i", "nonsense": 1 }, 28811),
        (doc! { "path": "i" }, 28818),
        (doc! { "path": "$i", "includeArrayIndex": "$x" }, 28822),
    ];
    for (unwind, expected) in wrong {
        assert_eq!(made(V6_0, vec![doc! { "$unwind": unwind }]), Err(expected));
    }
}
