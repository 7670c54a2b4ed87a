//! What drivers are told of writes: how many documents they met, and whether to try them again.

use bson::raw::{CStr, cstr};
use bson::{RawDocument, RawDocumentBuf, rawdoc};
use sdam_core::bson;
use sdam_core::wire::{Flags, write_op_msg_with_sequences};

use super::{ServerVersion, World, body};

fn labels(reply: &RawDocument) -> Vec<&str> {
    let labels = reply.get_array("errorLabels").into_iter().flatten();
    labels.map(|it| it.unwrap().as_str().unwrap()).collect()
}

fn insert() -> RawDocumentBuf {
    rawdoc! { "insert": "x", "documents": [{}], "$db": "test" }
}

/// An insert with these fields, of which drivers choose the label of an error.
fn with(fields: RawDocumentBuf) -> RawDocumentBuf {
    let mut command = insert();
    for field in &fields {
        let (name, value) = field.unwrap();
        command.append(name, value);
    }
    command
}

#[test]
fn a_reply_counts_the_statements_wherever_the_message_has_them() {
    let mut world = World::settled(ServerVersion::V6_0);
    let connection = world.connect(world.primary().unwrap());
    let cases: [(&CStr, &CStr, &[&str]); 3] = [
        (cstr!("insert"), cstr!("documents"), &["n"]),
        (cstr!("update"), cstr!("updates"), &["n", "nModified"]),
        (cstr!("delete"), cstr!("deletes"), &["n"]),
    ];
    for (name, field, counts) in cases {
        let mut command = RawDocumentBuf::new();
        command.append(name, "x");
        command.append(cstr!("$db"), "test");
        let mut whole = command.clone();
        whole.append(field, bson::RawArrayBuf::from_iter([rawdoc! {}, rawdoc! {}, rawdoc! {}]));
        let mut bytes = Vec::new();
        let one = rawdoc! {};
        let sequences: [(&str, &[&RawDocument]); 1] = [(field.as_str(), &[&one, &one, &one])];
        write_op_msg_with_sequences(&mut bytes, 1, 0, Flags::NONE, &command, &sequences);
        let in_body = world.ask(connection, &whole);
        world.receive(connection, &bytes);
        let behind_it = body(&world.replies(connection)[0].1);
        for count in counts {
            assert_eq!(in_body.get_i32(count).unwrap(), 3, "{name} {count}");
            assert_eq!(behind_it.get_i32(count).unwrap(), 3, "{name} {count}");
        }
    }
    let command = rawdoc! { "findAndModify": "x", "update": {}, "$db": "test" };
    let found = world.ask(connection, &command);
    assert_eq!(found.get_document("value").unwrap().get_i64("_id").unwrap(), 0);
}

/// Retryable Writes, "RetryableWriteError Labels"; as 6.0.5 does.
#[test]
fn an_error_says_whether_a_write_may_be_tried_again() {
    let numbered = rawdoc! { "txnNumber": 1_i64 };
    let in_transaction = rawdoc! { "txnNumber": 1_i64, "autocommit": false };
    let cases = [
        (ServerVersion::V6_0, rawdoc! {}, None),
        (ServerVersion::V6_0, numbered.clone(), Some("RetryableWriteError")),
        (ServerVersion::V4_2, numbered, None),
        (ServerVersion::V6_0, in_transaction, Some("TransientTransactionError")),
    ];
    for (version, fields, expected) in cases {
        let mut world = World::settled(version);
        let connection = world.connect(world.secondary());
        let reply = world.ask(connection, &with(fields));
        assert_eq!(reply.get_i32("code").unwrap(), 10107);
        assert_eq!(labels(&reply), expected.into_iter().collect::<Vec<_>>());
    }
}

/// As 6.0.5 does with each of these.
#[test]
fn a_fail_point_leaves_the_labels_to_the_server_unless_it_names_some_or_none() {
    let mut world = World::settled(ServerVersion::V6_0);
    let connection = world.connect(world.primary().unwrap());
    let write_concern_error = rawdoc! { "code": 91, "errmsg": "so be it" };
    let cases: [(RawDocumentBuf, &[&str]); 5] = [
        (rawdoc! { "errorCode": 189 }, &["RetryableWriteError"]),
        (rawdoc! { "errorCode": 64 }, &[]),
        (rawdoc! { "errorCode": 189, "errorLabels": [] }, &[]),
        (rawdoc! { "errorCode": 64, "errorLabels": ["Own"] }, &["Own"]),
        (rawdoc! { "writeConcernError": write_concern_error }, &["RetryableWriteError"]),
    ];
    for (mut data, expected) in cases {
        data.append(cstr!("failCommands"), bson::RawArrayBuf::from_iter(["insert"]));
        let command = rawdoc! {
            "configureFailPoint": "failCommand", "mode": "alwaysOn", "data": data, "$db": "admin",
        };
        assert_eq!(world.ask(connection, &command).get_f64("ok").unwrap(), 1.0);
        let reply = world.ask(connection, &with(rawdoc! { "txnNumber": 1_i64 }));
        assert_eq!(labels(&reply), expected);
    }
}
