//! `$jsonSchema`, in filters and in validators.

use bson::{Document, doc};
use sdam_core::bson;

use super::{ask, batch, client, code, insert, keeping, must};
use crate::ServerVersion;

fn found(schema: Document) -> Result<Vec<i32>, i32> {
    let (mut world, connection) = client();
    let documents = vec![
        doc! { "_id": 1, "n": 5, "s": "abc", "a": [1, 2], "o": { "x": 1 } },
        doc! { "_id": 2, "n": 5.5, "s": "x", "a": [1, 1], "o": { "x": "t", "y": 2 } },
        doc! { "_id": 3 },
        doc! { "_id": 4, "n": 7_i64, "b": true, "z": null },
    ];
    insert(&mut world, connection, documents);
    let reply =
        ask(&mut world, connection, doc! { "find": "x", "filter": { "$jsonSchema": schema } });
    match code(&reply) {
        0 => Ok(batch(&reply).iter().map(|it| it.get_i32("_id").unwrap()).collect()),
        code => Err(code),
    }
}

/// As 4.2.6 and 6.0.5 do.
#[test]
fn a_schema_finds_what_meets_it() {
    let of = |name: &str, schema: Document| doc! { "properties": { name: schema } };
    let of_o = |schema: Document| doc! { "properties": { "o": schema } };
    let in_order = doc! { "items": [{ "maximum": 1 }, { "minimum": 2 }], "additionalItems": false };
    let cases: [(Document, &[i32]); 27] = [
        (doc! { "required": ["n"] }, &[1, 2, 4]),
        (of("n", doc! { "bsonType": "int" }), &[1, 3]),
        (of("n", doc! { "type": "number", "minimum": 5, "exclusiveMinimum": true }), &[2, 3, 4]),
        (of("n", doc! { "minimum": 5, "maximum": 6 }), &[1, 2, 3]),
        (of("s", doc! { "minLength": 2, "maxLength": 5, "pattern": "^a" }), &[1, 3, 4]),
        (of("a", doc! { "uniqueItems": true, "minItems": 1 }), &[1, 3, 4]),
        (of("a", doc! { "items": { "maximum": 1 } }), &[2, 3, 4]),
        (of("a", in_order), &[1, 3, 4]),
        (of_o(doc! { "required": ["y"] }), &[2, 3, 4]),
        (of_o(doc! { "additionalProperties": false, "properties": { "x": {} } }), &[1, 3, 4]),
        (of_o(doc! { "patternProperties": { "^x": { "bsonType": "string" } } }), &[2, 3, 4]),
        (of("n", doc! { "enum": [5, 7] }), &[1, 3, 4]),
        (of("n", doc! { "multipleOf": 5 }), &[1, 3]),
        (doc! { "anyOf": [{ "required": ["b"] }, { "required": ["o"] }] }, &[1, 2, 4]),
        (doc! { "oneOf": [{ "required": ["n"] }, { "required": ["b"] }] }, &[1, 2]),
        (doc! { "allOf": [{ "required": ["n"] }, { "required": ["b"] }] }, &[4]),
        (doc! { "not": { "required": ["n"] } }, &[3]),
        (doc! { "minProperties": 3 }, &[1, 2, 4]),
        (doc! { "maxProperties": 1 }, &[3]),
        (doc! { "dependencies": { "n": ["s"] } }, &[1, 2, 3]),
        (doc! { "dependencies": { "n": { "required": ["b"] } } }, &[3, 4]),
        (doc! { "title": "t", "description": "d" }, &[1, 2, 3, 4]),
        (doc! { "bsonType": ["object", "int"] }, &[1, 2, 3, 4]),
        (doc! { "bsonType": "number" }, &[]),
        (of("a", doc! { "bsonType": "array" }), &[1, 2, 3, 4]),
        (of("z", doc! { "bsonType": "null" }), &[1, 2, 3, 4]),
        (doc! { "pattern": "a" }, &[1, 2, 3, 4]),
    ];
    for (schema, expected) in cases {
        assert_eq!(found(schema.clone()).as_deref(), Ok(expected), "{schema}");
    }
}

/// With the codes of 4.2.6 and 6.0.5, but for what is not known here.
#[test]
fn a_schema_that_is_none_is_refused() {
    let cases = [
        (doc! { "nonsense": 1 }, 9),
        (doc! { "$ref": "x" }, 9),
        (doc! { "format": "email" }, 9),
        (doc! { "type": "integer" }, 9),
        (doc! { "type": "nonsense" }, 2),
        (doc! { "bsonType": "nonsense" }, 2),
        (doc! { "type": "string", "bsonType": "string" }, 9),
        (doc! { "required": [] }, 9),
        (doc! { "required": "n" }, 14),
        (doc! { "required": ["n", "n"] }, 9),
        (doc! { "properties": 5 }, 14),
        (doc! { "properties": { "n": { "exclusiveMinimum": true } } }, 9),
        (doc! { "minLength": -1 }, 9),
        (doc! { "enum": [] }, 9),
        (doc! { "enum": [1, 1.0] }, 9),
        (doc! { "anyOf": [] }, 2),
        (doc! { "title": 5 }, 14),
        (doc! { "multipleOf": 0 }, 9),
        (doc! { "uniqueItems": 5 }, 14),
        (doc! { "additionalProperties": 5 }, 14),
        (doc! { "maximum": "x" }, 14),
        (doc! { "encrypt": {} }, 238),
    ];
    for (schema, expected) in cases {
        assert_eq!(found(schema.clone()), Err(expected), "{schema}");
    }
}

#[test]
fn a_validator_is_a_schema_that_every_document_meets() {
    let schema = doc! { "required": ["n"], "properties": { "n": { "minimum": 3 } } };
    let validator = doc! { "$jsonSchema": schema };
    for (version, explains) in [(ServerVersion::V4_4, false), (ServerVersion::V6_0, true)] {
        let (mut world, connection) = keeping(version);
        let create = doc! { "create": "x", "validator": validator.clone() };
        must(&mut world, connection, create);
        let write = doc! { "insert": "x", "documents": [{ "_id": 1, "n": 1 }] };
        let reply = ask(&mut world, connection, write);
        let error = reply.get_array("writeErrors").unwrap()[0].as_document().unwrap();
        assert_eq!(code(error), 121);
        let details = error.get_document("errInfo").and_then(|it| it.get_document("details"));
        assert_eq!(details.is_ok(), explains, "{error}");
        if let Ok(details) = details {
            let rule = doc! { "operatorName": "minimum", "specifiedAs": { "minimum": 3 },
            "consideredValue": 1 };
            let broken = doc! { "propertyName": "n", "details": [rule] };
            let broken = doc! { "operatorName": "properties", "propertiesNotSatisfied": [broken] };
            let expected =
                doc! { "operatorName": "$jsonSchema", "schemaRulesNotSatisfied": [broken] };
            assert_eq!(details, &expected);
        }
        insert(&mut world, connection, vec![doc! { "_id": 2, "n": 3 }]);
    }
    let (mut world, connection) = client();
    let wrong = doc! { "$jsonSchema": { "nonsense": 1 } };
    let create = doc! { "create": "x", "validator": wrong.clone() };
    assert_eq!(code(&ask(&mut world, connection, create)), 9);
    must(&mut world, connection, doc! { "create": "x" });
    let modify = doc! { "collMod": "x", "validator": wrong };
    assert_eq!(code(&ask(&mut world, connection, modify)), 9);
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
