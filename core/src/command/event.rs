//! The events of the Command Logging and Monitoring specification.

use std::time::Duration;

use bson::oid::ObjectId;
use bson::raw::CStr;
use bson::{RawArrayBuf, RawDocumentBuf, cstr};
use serde::Serialize;

use super::sensitive::{is_sensitive, redacted};
use crate::id::ConnectionId;
use crate::operation::OperationError;
use crate::wire::{OpMsg, ReplyDocument};

/// The command of an event: what all command events have in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct MonitoredCommand {
    /// The name of the command, its first field.
    pub command_name: String,
    /// The database that it is for.
    pub database_name: String,
    /// The number of the message, which no other command of the client has, until more than 2^31
    /// were sent.
    pub request_id: i64,
    /// The number of the operation that the command is a part of; operations are numbered from 1
    /// for each client.
    pub operation_id: i64,
    /// The connection, in the pool of its server.
    pub driver_connection_id: ConnectionId,
    /// The server's number for the connection, if its hello had one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_connection_id: Option<i64>,
    /// Behind a load balancer, the service that the connection leads to.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "crate::id::service_id")]
    pub service_id: Option<ObjectId>,
    /// True if events leave out the command and its reply.
    #[serde(skip)]
    is_sensitive: bool,
}

/// A command that was sent, or its outcome.
///
/// Each [`CommandStarted`](Self::CommandStarted) is followed by one of the others with the same
/// [`request_id`](MonitoredCommand::request_id). Of [sensitive](super::is_sensitive) commands,
/// the documents are empty. Serialised, events are without documents, which are the
/// application's own.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum CommandEvent {
    /// A command is about to be sent.
    CommandStarted {
        /// The command as it is sent, with `$db` and all that the driver attaches to it; document
        /// sequences are arrays in it.
        #[serde(skip)]
        command: RawDocumentBuf,
    },
    /// The server has replied that the command has succeeded; or a command to which there is no
    /// reply was sent.
    CommandSucceeded {
        /// The time from sending the command to its reply.
        #[serde(rename = "durationMS", serialize_with = "crate::description::millis")]
        duration: Duration,
        /// The reply; `{ ok: 1 }` if there is none.
        #[serde(skip)]
        reply: ReplyDocument,
    },
    /// The server has replied with an error, or the command or its reply was lost, or no caller
    /// waits for it any more.
    CommandFailed {
        /// The time from sending the command to its failure.
        #[serde(rename = "durationMS", serialize_with = "crate::description::millis")]
        duration: Duration,
        /// The cause; of a sensitive command only what says nothing of it.
        #[serde(serialize_with = "as_failure")]
        failure: Box<OperationError>,
    },
}

impl MonitoredCommand {
    /// Names the command in a message for its events, and the connection that it is sent over.
    pub fn new(
        message: &OpMsg<'_>,
        request_id: i32,
        operation_id: i64,
        driver_connection_id: ConnectionId,
    ) -> Self {
        let body = message.body;
        let name = body.iter().next().and_then(Result::ok);
        Self {
            command_name: name.map_or_else(String::new, |(name, _)| name.as_str().to_owned()),
            database_name: body.get_str("$db").unwrap_or_default().to_owned(),
            request_id: request_id.into(),
            operation_id,
            driver_connection_id,
            server_connection_id: None,
            service_id: None,
            is_sensitive: is_sensitive(body),
        }
    }

    /// Replaces [`server_connection_id`](Self::server_connection_id) and
    /// [`service_id`](Self::service_id).
    #[must_use]
    pub const fn with_server(
        mut self,
        server_connection_id: Option<i64>,
        service_id: Option<ObjectId>,
    ) -> Self {
        (self.server_connection_id, self.service_id) = (server_connection_id, service_id);
        self
    }

    /// Returns whether the command may carry secrets, see [`is_sensitive`](super::is_sensitive).
    pub const fn is_sensitive(&self) -> bool {
        self.is_sensitive
    }

    /// Returns the event before the message with the command is sent; document sequences become
    /// arrays (Command Logging and Monitoring, "Implementation Notes").
    pub fn started(&self, message: &OpMsg<'_>) -> CommandEvent {
        if self.is_sensitive {
            return CommandEvent::CommandStarted { command: RawDocumentBuf::new() };
        }
        let mut command = message.body.to_owned();
        for sequence in message.sequences() {
            // No name that was read has NUL in it.
            let Ok(name) = <&CStr>::try_from(sequence.identifier) else { continue };
            command
                .append(name, RawArrayBuf::from_iter(sequence.documents().map_while(Result::ok)));
        }
        CommandEvent::CommandStarted { command }
    }

    /// Returns the event after a reply that is no error.
    pub fn succeeded(&self, duration: Duration, reply: &ReplyDocument) -> CommandEvent {
        let reply = match self.is_sensitive {
            true => ReplyDocument::from(RawDocumentBuf::new()),
            false => reply.clone(),
        };
        CommandEvent::CommandSucceeded { duration, reply }
    }

    /// Returns the event after sending a command to which there is no reply (Command Logging and
    /// Monitoring, "Unacknowledged/Acknowledged Writes").
    pub fn unacknowledged(&self, duration: Duration) -> CommandEvent {
        let mut ok = RawDocumentBuf::new();
        ok.append(cstr!("ok"), 1);
        self.succeeded(duration, &ReplyDocument::from(ok))
    }

    /// Returns the event after a failure of the command.
    pub fn failed(&self, duration: Duration, error: OperationError) -> CommandEvent {
        let error = if self.is_sensitive { redacted(error) } else { error };
        CommandEvent::CommandFailed { duration, failure: Box::new(error) }
    }
}

impl CommandEvent {
    /// Returns the name, as in JSON: a label for metrics, which stays as it is.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::CommandStarted { .. } => "commandStarted",
            Self::CommandSucceeded { .. } => "commandSucceeded",
            Self::CommandFailed { .. } => "commandFailed",
        }
    }

    /// Returns how many bytes of documents it holds.
    pub fn documents_len(&self) -> usize {
        match self {
            Self::CommandStarted { command } => command.as_bytes().len(),
            Self::CommandSucceeded { reply, .. } => reply.as_bytes().len(),
            Self::CommandFailed { .. } => 0,
        }
    }
}

fn as_failure<S: serde::Serializer>(
    error: &OperationError,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    error.to_failure().serialize(serializer)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bson::{RawDocument, RawDocumentBuf, rawdoc};

    use super::{CommandEvent, MonitoredCommand};
    use crate::failure::Stage;
    use crate::id::ConnectionId;
    use crate::operation::{CommandError, InvalidCommand, OperationError};
    use crate::wire::{CommandWriter, Flags, OpMsg, ReplyDocument};

    const TOOK: Duration = Duration::from_micros(1500);

    /// Writes a command as it is sent to the database `app`.
    fn message(command: &RawDocument, sequences: &[(&str, &[&RawDocument])]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = CommandWriter::begin(&mut out, 7, Flags::NONE, command);
        writer.string("$db", "app");
        writer.finish(sequences);
        out
    }

    fn monitored(message: &OpMsg<'_>) -> MonitoredCommand {
        MonitoredCommand::new(message, 7, 3, ConnectionId(2)).with_server(Some(1 << 40), None)
    }

    #[test]
    fn a_command_is_named_by_its_first_field_and_its_database() {
        let message = message(&rawdoc! { "find": "things" }, &[]);
        let command = monitored(&OpMsg::read(&message).unwrap());
        assert_eq!((&*command.command_name, &*command.database_name), ("find", "app"));
        assert_eq!((command.request_id, command.operation_id), (7, 3));
        assert_eq!(command.server_connection_id, Some(1 << 40));
    }

    /// Command Logging and Monitoring, "Implementation Notes": "it MUST include the document
    /// sequence as a BSON array".
    #[test]
    fn document_sequences_are_arrays_in_the_event() {
        let (one, two) = (rawdoc! { "a": 1 }, rawdoc! { "a": 2 });
        let insert = rawdoc! { "insert": "things" };
        let message = message(&insert, &[("documents", &[&one, &two]), ("none", &[])]);
        let message = OpMsg::read(&message).unwrap();
        let event = monitored(&message).started(&message);
        let command = rawdoc! {
            "insert": "things", "$db": "app", "documents": [{ "a": 1 }, { "a": 2 }], "none": [],
        };
        assert_eq!(event.documents_len(), command.as_bytes().len());
        assert_eq!(event, CommandEvent::CommandStarted { command });
    }

    /// Command Logging and Monitoring, "Security": "MUST be replaced with an empty BSON document",
    /// the command and the reply.
    #[test]
    fn of_sensitive_commands_neither_command_nor_reply_is_told() {
        let start = rawdoc! { "saslStart": 1, "payload": "hunter2" };
        let message = message(&start, &[("sequence", &[&rawdoc! { "hunter2": 1 }])]);
        let message = OpMsg::read(&message).unwrap();
        let command = monitored(&message);
        let reply = ReplyDocument::from(rawdoc! { "ok": 1, "payload": "hunter2" });
        let text = "hunter2".to_owned();
        let error = CommandError { message: text, code: Some(18), ..CommandError::default() };
        let error = OperationError::Reply { stage: Stage::Authenticate, error };
        for event in [
            command.started(&message),
            command.succeeded(TOOK, &reply),
            command.failed(TOOK, error),
        ] {
            assert!(!format!("{event:?}").contains("hunter2"), "{event:?}");
        }
        let command = RawDocumentBuf::new();
        let empty = CommandEvent::CommandStarted { command };
        assert_eq!(monitored(&message).started(&message), empty);
    }

    /// Command Logging and Monitoring, "Unacknowledged/Acknowledged Writes": "with a `{ ok: 1 }`
    /// reply".
    #[test]
    fn a_command_without_a_reply_succeeds_with_ok() {
        let message = message(&rawdoc! { "insert": "things" }, &[]);
        let event = monitored(&OpMsg::read(&message).unwrap()).unacknowledged(TOOK);
        let reply = ReplyDocument::from(rawdoc! { "ok": 1 });
        assert_eq!(event, CommandEvent::CommandSucceeded { duration: TOOK, reply });
    }

    #[test]
    fn names_are_those_of_json_which_tells_no_documents() {
        let message = message(&rawdoc! { "find": "things", "filter": "private" }, &[]);
        let message = OpMsg::read(&message).unwrap();
        let command = monitored(&message);
        for event in [
            command.started(&message),
            command.unacknowledged(TOOK),
            command.failed(TOOK, OperationError::from(InvalidCommand::Busy)),
        ] {
            let json = serde_json::to_value(&event).unwrap();
            assert_eq!(json["event"], event.name());
            assert!(!json.to_string().contains("private"), "{json}");
            let took = json.get("durationMS").and_then(serde_json::Value::as_f64);
            let ended = !matches!(event, CommandEvent::CommandStarted { .. });
            assert_eq!(took, ended.then_some(1.5));
        }
    }
}
