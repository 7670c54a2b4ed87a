//! The version of the API that commands declare, judged as 5.0.4 and 6.0.5 do (Versioned API,
//! "Server API Version").

use bson::{Document, doc};
use sdam_core::bson;

use super::data::{ask, keeping};
use crate::ServerVersion;

use ServerVersion::{V4_4, V5_0, V6_0, V7_0, V8_0};

fn code_of(version: ServerVersion, command: Document) -> i32 {
    let (mut world, connection) = keeping(version);
    super::data::code(&ask(&mut world, connection, command))
}

/// The same command, of version 1 and strictly so.
fn strict(mut command: Document) -> Document {
    command.extend(doc! { "apiVersion": "1", "apiStrict": true });
    command
}

#[test]
fn a_declaration_of_another_version_or_form_is_refused() {
    let cases = [
        (doc! { "ping": 1, "apiVersion": "1" }, 0),
        (doc! { "ping": 1, "apiVersion": "2" }, 322),
        (doc! { "hello": 1, "apiVersion": "2" }, 322),
        (doc! { "ping": 1, "apiVersion": 1 }, 14),
        (doc! { "ping": 1, "apiVersion": "1", "apiStrict": 1 }, 14),
        (doc! { "ping": 1, "apiStrict": false }, 4_886_600),
        (doc! { "ping": 1, "apiDeprecationErrors": true }, 4_886_600),
        (doc! { "ping": 1, "apiVersion": "1", "apiDeprecationErrors": true }, 0),
    ];
    for (command, expected) in cases {
        assert_eq!(code_of(V6_0, command.clone()), expected, "{command}");
    }
    assert_eq!(code_of(V4_4, doc! { "ping": 1, "apiVersion": "2" }), 0, "it came with 5.0");
}

#[test]
fn a_strict_command_is_in_version_1_with_its_fields_and_stages() {
    let pipeline = |stage: Document| doc! { "aggregate": "x", "pipeline": [stage], "cursor": {} };
    let operation = doc! { "insert": 0, "document": {} };
    let bulk =
        doc! { "bulkWrite": 1, "ops": [operation], "nsInfo": [{ "ns": "test.x" }], "$db": "admin" };
    let cases = [
        (V6_0, doc! { "find": "x" }, 0),
        (V6_0, doc! { "find": "x", "tailable": true }, 323),
        (V6_0, doc! { "distinct": "x", "key": "a" }, 323),
        (V6_0, doc! { "isMaster": 1 }, 323),
        (V6_0, doc! { "count": "x" }, 0),
        (V5_0, doc! { "count": "x" }, 323),
        (V6_0, doc! { "create": "y", "capped": true, "size": 4096 }, 323),
        (V6_0, doc! { "create": "y" }, 0),
        (V6_0, pipeline(doc! { "$match": {} }), 0),
        (V6_0, pipeline(doc! { "$indexStats": {} }), 323),
        (V6_0, pipeline(doc! { "$collStats": { "storageStats": {} } }), 323),
        (V6_0, pipeline(doc! { "$collStats": { "count": {} } }), 26),
        (V8_0, bulk.clone(), 0),
        (V7_0, bulk, 323),
    ];
    for (version, command, expected) in cases {
        let command = strict(command);
        assert_eq!(code_of(version, command.clone()), expected, "{version:?} {command}");
    }
}
