//! One exchange on a connection: what is written, and what the reply says.

use std::ops::Deref;

use bson::{RawBsonRef, RawDocument};

use super::cluster_time::Clock;
use super::connection::{Connection, malformed};
use super::{Runtime, Shared};
use crate::failure::{Cause, Failure, Stage};
use crate::hello::ReplyDocument;
use crate::operation::{CommandError, InvalidCommand, OperationError, is_one};
use crate::options::{Options, ServerApi};
use crate::time::Instant;
use crate::wire::{CommandWriter, Flags, Message, WireError, may_be_compressed};

/// What is sent besides the application's document.
#[derive(Clone, Copy, Default)]
pub(super) struct Request<'a> {
    pub(super) database: &'a str,
    pub(super) command: Option<&'a RawDocument>,
    pub(super) sequences: &'a [(&'a str, &'a [&'a RawDocument])],
    pub(super) read_preference: Option<&'a RawDocument>,
}

/// A successful reply: a document, in the memory it was read into.
#[derive(Clone, Debug)]
pub struct Reply {
    document: ReplyDocument,
    write_concern_error: Option<Box<CommandError>>,
}

impl Reply {
    /// Returns the document.
    pub const fn document(&self) -> &ReplyDocument {
        &self.document
    }

    /// Returns the document alone.
    pub fn into_document(self) -> ReplyDocument {
        self.document
    }

    /// Returns the error of the write concern: the command succeeded, but not to the extent asked
    /// for. The topology was told, if it says something of the server.
    pub fn write_concern_error(&self) -> Option<&CommandError> {
        self.write_concern_error.as_deref()
    }
}

impl Deref for Reply {
    type Target = RawDocument;

    fn deref(&self) -> &RawDocument {
        &self.document
    }
}

/// What a message from the server was.
pub(super) struct Received {
    /// The reply, or the error that the server replied with.
    pub(super) reply: Result<Reply, CommandError>,
    /// The number of the message, if more follow without being asked for.
    pub(super) more: Option<i32>,
}

impl<R: Runtime> Shared<R> {
    /// Returns by when to send or to receive: by the operation's deadline, and if there is none,
    /// within socketTimeoutMS, which timeoutMS overrides (CSOT, "Backwards Breaking
    /// Considerations").
    pub(super) fn limit(&self, deadline: Option<Instant>) -> Option<Instant> {
        let options = &self.options;
        let socket_timeout = options.socket_timeout().filter(|_| options.timeout().is_none());
        deadline.or_else(|| socket_timeout.map(|timeout| self.runtime.now() + timeout))
    }

    /// As [`limit`](Self::limit), but refuses to send what is too late: nobody would wait for the
    /// reply, and the connection would be lost in vain.
    pub(super) fn limit_unless_passed(
        &self,
        deadline: Option<Instant>,
    ) -> Result<Option<Instant>, OperationError> {
        if deadline.is_some_and(|deadline| deadline <= self.runtime.now()) {
            let detail = "the time allowed had passed before the command was sent";
            let failure = Failure::new(Stage::Operate, Cause::Timeout, detail);
            return Err(OperationError::Stream(failure));
        }
        Ok(self.limit(deadline))
    }
}

/// The names of fields that are the driver's to add.
const RESERVED: [&str; 3] = ["$db", "$clusterTime", "$readPreference"];

impl<S> Connection<S> {
    /// Writes a command to `outgoing`, and returns the number of the message.
    pub(super) fn write(
        &mut self,
        request: &Request<'_>,
        flags: Flags,
        options: &Options,
        clock: &Clock,
    ) -> Result<i32, InvalidCommand> {
        let command = request.command.ok_or(InvalidCommand::Empty)?;
        let name = check(request.database, command)?;
        let (length, limit) = (request.length(), self.agreement.max_message_size_bytes);
        if length + ADDED_LEN > limit {
            return Err(InvalidCommand::TooLong { length, limit });
        }
        self.last_request = self.last_request.wrapping_add(1);
        self.outgoing.clear();
        let id = self.last_request;
        let mut writer = CommandWriter::begin(&mut self.outgoing, id, flags, command);
        writer.string("$db", request.database);
        if let Some(read_preference) = request.read_preference {
            writer.document("$readPreference", read_preference);
        }
        if let Some(api) = options.server_api() {
            declare(&mut writer, api);
        }
        if let Some(time) = &*clock.now() {
            writer.document("$clusterTime", &time.document);
        }
        writer.finish(request.sequences);
        if let Some(compression) = &mut self.compression
            && may_be_compressed(name)
        {
            compression.compress(&mut self.outgoing, 0);
        }
        Ok(id)
    }
}

/// How much the header may take, and the fields that the driver adds by itself: the cluster time
/// for the most part.
const ADDED_LEN: usize = 8192;

impl Request<'_> {
    /// Returns how many bytes of a message are of the application's choice.
    fn length(&self) -> usize {
        let of = |document: &RawDocument| document.as_bytes().len();
        let sequences = self.sequences.iter().map(|(name, documents)| {
            let documents: usize = documents.iter().map(|document| of(document)).sum();
            SEQUENCE_LEN + name.len() + documents
        });
        self.command.map_or(0, of)
            + self.database.len()
            + self.read_preference.map_or(0, of)
            + sequences.sum::<usize>()
    }
}

/// What a sequence takes besides its name and its documents: its kind, its length and a NUL.
const SEQUENCE_LEN: usize = 6;

/// "The apiVersion, apiStrict and apiDeprecationErrors fields MUST be sent with every command"
fn declare(writer: &mut CommandWriter<'_>, api: ServerApi) {
    writer.string("apiVersion", api.version.as_str());
    if let Some(strict) = api.strict {
        writer.boolean("apiStrict", strict);
    }
    if let Some(errors) = api.deprecation_errors {
        writer.boolean("apiDeprecationErrors", errors);
    }
}

/// Refuses what no server would understand, and returns the command's name.
fn check<'a>(database: &str, command: &'a RawDocument) -> Result<&'a str, InvalidCommand> {
    if database.is_empty() || database.contains('\0') {
        return Err(InvalidCommand::Database);
    }
    let mut name = None;
    for element in command {
        let (key, _) = element.map_err(|error| InvalidCommand::Bson(error.to_string()))?;
        let key = key.as_str();
        if let Some(reserved) = RESERVED.into_iter().find(|reserved| *reserved == key) {
            return Err(InvalidCommand::Reserved(reserved));
        }
        name = name.or(Some(key));
    }
    name.ok_or(InvalidCommand::Empty)
}

/// Reads a reply to message `request`, and keeps the cluster time it brings.
pub(super) fn digest(message: &Message, request: i32, clock: &Clock) -> Result<Received, Failure> {
    let header = message.header();
    if header.response_to != request {
        let (expected, found) = (request, header.response_to);
        return Err(malformed(WireError::ResponseTo { expected, found }));
    }
    let op_msg = message.op_msg().map_err(malformed)?;
    let (mut ok, mut write_concern) = (false, false);
    for element in op_msg.body {
        let (key, value) = element.map_err(malformed)?;
        match (key.as_str(), value) {
            ("ok", value) => ok = is_one(value),
            ("writeConcernError", RawBsonRef::Document(_)) => write_concern = true,
            ("$clusterTime", RawBsonRef::Document(time)) => clock.advance(time),
            _ => {}
        }
    }
    let error = match ok && !write_concern {
        true => None,
        false => CommandError::in_reply(op_msg.body),
    };
    let more = op_msg.flags.contains(Flags::MORE_TO_COME).then_some(header.request_id);
    let reply = match (ok, error) {
        (true, error) => Ok(Reply {
            document: ReplyDocument::new(message.bytes(), op_msg.body),
            write_concern_error: error.map(Box::new),
        }),
        (false, error) => Err(error.unwrap_or_default()),
    };
    Ok(Received { reply, more })
}
