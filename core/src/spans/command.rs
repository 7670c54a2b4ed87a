//! The spans of commands.

use bson::raw::CStr;
use bson::spec::BinarySubtype;
use bson::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, Uuid};

use super::about::{collection, summary};
use super::span::{AttributeValue, CURSOR, SpanEnd, SpanStart};
use crate::command::MonitoredCommand;
use crate::config::ServerAddress;
use crate::logging::extended_json;
use crate::wire::OpMsg;

/// The fields that the text of a command is without ("db.query.text").
const LEFT_OUT: [&str; 4] = ["lsid", "$db", "$clusterTime", "signature"];

impl SpanStart {
    /// Begins a command that is about to be sent with a message ("Instrumenting Server Commands");
    /// `None` if it is [sensitive](crate::command::is_sensitive).
    ///
    /// Its text is an attribute if it may have any length, in code points, and is cut there.
    pub fn of_command(
        address: &ServerAddress,
        command: &MonitoredCommand,
        message: &OpMsg<'_>,
        query_text_max_length: usize,
    ) -> Option<Self> {
        if command.is_sensitive() {
            return None;
        }
        let (name, database, body) = (&command.command_name, &command.database_name, message.body);
        let collection = collection(database, body);
        let driver_id = i64::try_from(command.driver_connection_id.0).unwrap_or(i64::MAX);
        let transport = if address.port().is_some() { "tcp" } else { "unix" };
        let mut start = Self::about(name.clone(), database, collection)
            .text("db.command.name", name)
            .number("server.port", address.port().map(i64::from))
            .text("server.address", address.host())
            .text("network.transport", transport)
            .text("db.query.summary", &summary(name, database, collection))
            .number("db.mongodb.server_connection_id", command.server_connection_id)
            .number("db.mongodb.driver_connection_id", driver_id)
            .number(CURSOR, used_cursor(body))
            .number("db.mongodb.txn_number", body.get_i64("txnNumber").ok());
        if let Some(session) = session(body) {
            start = start.text("db.mongodb.lsid", &session);
        }
        if query_text_max_length > 0 {
            let text = extended_json(&shown(message), query_text_max_length);
            start = start.text("db.query.text", &text);
        }
        Some(start)
    }
}

impl SpanEnd {
    /// Ends a command that has succeeded with that reply: of a cursor that it has opened, the
    /// number is an attribute.
    pub fn of_reply(reply: &RawDocument) -> Self {
        let cursor = reply.get_document("cursor").ok();
        let has_begun =
            cursor.filter(|cursor| cursor.get("firstBatch").is_ok_and(|it| it.is_some()));
        let id = has_begun.and_then(|cursor| cursor.get_i64("id").ok()).filter(|id| *id != 0);
        let attributes = id.map(|id| (CURSOR, AttributeValue::Integer(id))).into_iter().collect();
        Self { attributes, ..Self::default() }
    }
}

/// Returns the cursor that a command continues or closes.
fn used_cursor(command: &RawDocument) -> Option<i64> {
    let (name, value) = command.iter().next()?.ok()?;
    match name.as_str() {
        "getMore" => value.as_i64(),
        "killCursors" => command.get_array("cursors").ok()?.get_i64(0).ok(),
        _ => None,
    }
}

/// Returns the name of a command's session.
fn session(command: &RawDocument) -> Option<String> {
    let id = command.get_document("lsid").ok()?.get_binary("id").ok()?;
    let bytes = id.bytes.try_into().ok().filter(|_| id.subtype == BinarySubtype::Uuid)?;
    Some(Uuid::from_bytes(bytes).to_string())
}

/// Returns the command as its text is to show it; document sequences are arrays in it.
fn shown(message: &OpMsg<'_>) -> RawDocumentBuf {
    let mut command = RawDocumentBuf::new();
    for (name, value) in message.body.iter().map_while(Result::ok) {
        if !LEFT_OUT.contains(&name.as_str()) {
            command.append(name, value);
        }
    }
    for sequence in message.sequences() {
        // No name that was read has NUL in it.
        let Ok(name) = <&CStr>::try_from(sequence.identifier) else { continue };
        let documents = sequence.documents().map_while(Result::ok).map(RawBsonRef::Document);
        command.append(name, RawArrayBuf::from_iter(documents));
    }
    command
}
