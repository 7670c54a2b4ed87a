//! Each span, with its name and its attributes.

use std::fmt::Write;

use bson::oid::ObjectId;
use bson::spec::BinarySubtype;
use bson::{Binary, RawDocument, rawdoc};

use super::{Attribute, AttributeValue, SpanEnd, SpanStart};
use crate::command::MonitoredCommand;
use crate::failure::{Cause, Failure, Stage};
use crate::id::ConnectionId;
use crate::operation::{CommandError, InvalidCommand, OperationError};
use crate::wire::{CommandWriter, Flags, OpMsg};

/// Writes attributes as lines.
fn lines(attributes: &[Attribute]) -> String {
    attributes.iter().fold(String::new(), |mut lines, (name, value)| {
        match value {
            AttributeValue::Text(text) => writeln!(lines, "{name}={text}"),
            AttributeValue::Integer(number) => writeln!(lines, "{name}={number}i"),
        }
        .unwrap();
        lines
    })
}

/// Begins a command that is sent to the database `app` of `db:5`.
fn begin(
    address: &str,
    database: &str,
    command: &RawDocument,
    sequences: &[(&str, &[&RawDocument])],
    longest: usize,
) -> Option<SpanStart> {
    let mut bytes = Vec::new();
    let mut writer = CommandWriter::begin(&mut bytes, 7, Flags::NONE, command);
    writer.string("$db", database);
    writer.finish(sequences);
    let sent = OpMsg::read(&bytes).unwrap();
    let command = MonitoredCommand::new(&sent, 7, 3, ConnectionId(2)).with_server(Some(9), None);
    SpanStart::of_command(&address.parse().unwrap(), &command, &sent, longest)
}

fn on_app(command: &RawDocument) -> SpanStart {
    begin("db:5", "app", command, &[], 0).unwrap()
}

fn attribute<'a>(span: &'a SpanStart, name: &str) -> Option<&'a AttributeValue> {
    span.attributes.iter().find(|(key, _)| *key == name).map(|(_, value)| value)
}

fn text<'a>(span: &'a SpanStart, name: &str) -> Option<&'a str> {
    match attribute(span, name)? {
        AttributeValue::Text(text) => Some(text),
        AttributeValue::Integer(_) => None,
    }
}

/// OpenTelemetry, "Transactions": "This span MUST have only one attribute `db.system.name` with the
/// value `mongodb`".
#[test]
fn the_span_of_a_transaction_has_one_attribute() {
    let span = SpanStart::of_transaction();
    assert_eq!(span.name, "transaction");
    assert_eq!(lines(&span.attributes), "db.system.name=mongodb\n");
}

/// OpenTelemetry, "Operation Span Attributes".
#[test]
fn the_span_of_an_operation_has_the_attributes_of_the_specification() {
    let span = SpanStart::of_operation("find", "app", Some("users"));
    assert_eq!(span.name, "find app.users");
    assert_eq!(
        lines(&span.attributes),
        "db.system.name=mongodb\n\
         db.namespace=app\n\
         db.collection.name=users\n\
         db.operation.name=find\n\
         db.operation.summary=find app.users\n"
    );
    let span = SpanStart::of_operation("runCommand", "warehouse", None);
    assert_eq!(span.name, "runCommand warehouse");
    assert_eq!(attribute(&span, "db.collection.name"), None);
}

/// OpenTelemetry, "Covered operations": the names of operations are not always those of commands.
#[test]
fn an_operation_of_one_command_is_named_after_it() {
    let name = |command: &RawDocument| SpanStart::of_operation_by("app", command).name;
    assert_eq!(name(&rawdoc! { "findAndModify": "users" }), "findAndModify app.users");
    assert_eq!(name(&rawdoc! { "drop": "users" }), "dropCollection app.users");
    assert_eq!(name(&rawdoc! { "create": "users" }), "createCollection app.users");
    assert_eq!(name(&rawdoc! { "listCollections": 1 }), "listCollections app");
    assert_eq!(name(&rawdoc! {}), " app");
}

/// OpenTelemetry, "Command Span Attributes".
#[test]
fn the_span_of_a_command_has_the_attributes_of_the_specification() {
    let id = Binary { subtype: BinarySubtype::Uuid, bytes: vec![0x11; 16] };
    let find = rawdoc! { "find": "users", "lsid": { "id": id }, "txnNumber": 4_i64 };
    let span = on_app(&find);
    assert_eq!(span.name, "find");
    assert_eq!(
        lines(&span.attributes),
        "db.system.name=mongodb\n\
         db.namespace=app\n\
         db.collection.name=users\n\
         db.command.name=find\n\
         server.port=5i\n\
         server.address=db\n\
         network.transport=tcp\n\
         db.query.summary=find app.users\n\
         db.mongodb.server_connection_id=9i\n\
         db.mongodb.driver_connection_id=2i\n\
         db.mongodb.txn_number=4i\n\
         db.mongodb.lsid=11111111-1111-1111-1111-111111111111\n"
    );
    let span = begin("/tmp/mongodb.sock", "app", &rawdoc! { "ping": 1 }, &[], 0).unwrap();
    assert_eq!(text(&span, "network.transport"), Some("unix"));
    assert_eq!(text(&span, "server.address"), Some("/tmp/mongodb.sock"));
    assert_eq!(attribute(&span, "server.port"), None);
    let generic = Binary { subtype: BinarySubtype::Generic, bytes: vec![0x11; 16] };
    let span = on_app(&rawdoc! { "ping": 1, "lsid": { "id": generic } });
    assert_eq!(attribute(&span, "db.mongodb.lsid"), None);
}

/// OpenTelemetry, "db.collection.name": "this field is omitted for commands running against `admin`
/// database or commands that do not target a specific collection".
#[test]
fn a_collection_is_named_where_a_command_is_about_one() {
    let summary = |database, command: &RawDocument| {
        let span = begin("db:5", database, command, &[], 0).unwrap();
        text(&span, "db.query.summary").unwrap().to_owned()
    };
    for (command, expected) in [
        (rawdoc! { "aggregate": "users" }, "aggregate app.users"),
        (rawdoc! { "findandmodify": "users" }, "findandmodify app.users"),
        (rawdoc! { "getMore": 5_i64, "collection": "users" }, "getMore app.users"),
        (rawdoc! { "explain": { "count": "users" } }, "explain app.users"),
        (rawdoc! { "explain": { "ping": 1 } }, "explain app"),
        (rawdoc! { "aggregate": 1 }, "aggregate app"),
        (rawdoc! { "getMore": 5_i64, "collection": "$cmd.aggregate" }, "getMore app"),
        (rawdoc! { "usersInfo": "alice" }, "usersInfo app"),
        (rawdoc! { "ping": "users" }, "ping app"),
    ] {
        assert_eq!(summary("app", &command), expected, "{command:?}");
    }
    let rename = rawdoc! { "renameCollection": "app.users", "to": "app.people" };
    assert_eq!(summary("admin", &rename), "renameCollection admin");
    assert_eq!(summary("admin", &rawdoc! { "find": "system.users" }), "find admin");
    assert_eq!(summary("admin", &rawdoc! { "bulkWrite": 1 }), "bulkWrite admin");
}

/// OpenTelemetry, "db.mongodb.cursor_id": "If the command returns a cursor, or uses a cursor".
#[test]
fn cursors_are_told_by_the_command_that_opens_continues_or_closes_them() {
    let cursor = |span: &SpanStart| attribute(span, "db.mongodb.cursor_id").cloned();
    let five = Some(AttributeValue::Integer(5));
    let more = rawdoc! { "getMore": 5_i64, "collection": "users" };
    assert_eq!(cursor(&on_app(&more)), five);
    let kill = rawdoc! { "killCursors": "users", "cursors": [5_i64] };
    assert_eq!(cursor(&on_app(&kill)), five);
    assert_eq!(cursor(&on_app(&rawdoc! { "find": "users" })), None);
    let ended = |reply: &RawDocument| lines(&SpanEnd::of_reply(reply).attributes);
    let opened = rawdoc! { "cursor": { "firstBatch": [], "id": 5_i64 } };
    assert_eq!(ended(&opened), "db.mongodb.cursor_id=5i\n");
    assert_eq!(ended(&rawdoc! { "cursor": { "firstBatch": [], "id": 0_i64 } }), "");
    // It is known since the command has begun.
    assert_eq!(ended(&rawdoc! { "cursor": { "nextBatch": [], "id": 5_i64 } }), "");
    assert_eq!(SpanEnd::of_reply(&rawdoc! { "ok": 1 }), SpanEnd::default());
}

/// OpenTelemetry, "db.query.text": "excluding the following fields: `lsid`, `$db`, `$clusterTime`,
/// `signature`"; "MUST NOT add this attribute by default"; "truncated to the provided value".
#[test]
fn the_text_of_a_command_is_told_on_request_up_to_a_length() {
    let document = rawdoc! { "_id": 1_i64 };
    let insert = rawdoc! {
        "insert": "users", "lsid": { "id": 1 }, "$clusterTime": { "signature": 1 }, "signature": 1,
        "txnNumber": 1_i64,
    };
    let sequences: [(&str, &[&RawDocument]); 1] = [("documents", &[&document])];
    let told = |longest| begin("db:5", "app", &insert, &sequences, longest).unwrap();
    assert_eq!(attribute(&told(0), "db.query.text"), None);
    let whole = r#"{"insert": "users", "txnNumber": 1, "documents": [{"_id": 1}]}"#;
    assert_eq!(text(&told(1024), "db.query.text"), Some(whole));
    assert_eq!(text(&told(9), "db.query.text"), Some(r#"{"insert"..."#));
}

/// OpenTelemetry, "Instrumenting Server Commands": "except for sensitive commands as listed in the
/// command logging and monitoring specification".
#[test]
fn there_are_no_spans_of_sensitive_commands() {
    let command = rawdoc! { "saslStart": 1, "payload": "hunter2" };
    assert_eq!(begin("db:5", "admin", &command, &[], 1024), None);
    let hello = rawdoc! { "hello": 1, "speculativeAuthenticate": { "saslStart": 1 } };
    assert_eq!(begin("db:5", "admin", &hello, &[], 1024), None);
    assert!(begin("db:5", "admin", &rawdoc! { "hello": 1 }, &[], 1024).is_some());
}

/// OpenTelemetry, "Exceptions", and `db.response.status_code`: "MongoDB error code represented as a
/// string"; `error.type` (pull request 1974 of the specifications): that code, or else the name of
/// the exception's type.
#[test]
fn a_command_that_has_failed_tells_its_exception() {
    let reply = rawdoc! {
        "ok": 0, "code": 26, "codeName": "NamespaceNotFound", "errmsg": "ns not found",
        "topologyVersion": { "processId": ObjectId::from_bytes([1; 12]), "counter": 1_i64 },
    };
    let error = CommandError::in_reply(&reply).unwrap();
    let error = OperationError::Reply { stage: Stage::Operate, error };
    let end = SpanEnd::of_error("app::Error", &error);
    assert_eq!(lines(&end.attributes), "error.type=26\ndb.response.status_code=26\n");
    let exception = end.exception.unwrap();
    assert!(exception.message.contains("ns not found"), "{}", exception.message);
    assert_eq!(
        lines(&exception.attributes()),
        format!("exception.message={}\nexception.type=app::Error\n", exception.message)
    );
    let traced =
        SpanEnd::of_error("app::Error", &error).with_stacktrace(|| "0: app::main".repeat(2000));
    let traced = traced.exception.unwrap();
    assert_eq!(traced.stacktrace.as_ref().map(String::len), Some(16 << 10), "it is cut there");
    assert!(lines(&traced.attributes()).contains("\nexception.stacktrace=0: app::main"));
    let closed = Failure::new(Stage::Operate, Cause::Closed, "the server has hung up");
    for error in [OperationError::Stream(closed), InvalidCommand::Busy.into()] {
        let end = SpanEnd::of_error("app::Error", &error);
        assert_eq!(lines(&end.attributes), "error.type=app::Error\n");
        assert_eq!(end.exception.unwrap().message, error.to_string());
    }
    let without = SpanEnd::default().with_stacktrace(|| unreachable!("nothing has failed"));
    assert_eq!(without.exception, None);
}
