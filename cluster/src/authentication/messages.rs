//! The arguments of `saslStart` and `saslContinue`, and the replies.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bson::raw::cstr;
use bson::spec::BinarySubtype;
use bson::{RawBinaryRef, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use sdam_core::bson;

use crate::options::ServerVersion;
use crate::wire::{CommandError, integer};

/// The number of every conversation, as a connection has one at a time.
pub(crate) const CONVERSATION_ID: i64 = 1;

/// The maximum length of a message of a client, in bytes; it is repeated, in part, by the server.
const MAX_PAYLOAD_LEN: usize = 16 * 1024;

/// A message of a client.
#[derive(Debug)]
pub(crate) struct Payload {
    pub(crate) bytes: Vec<u8>,
    /// It came as text in base64, and so goes the answer.
    is_text: bool,
}

impl Payload {
    pub(crate) fn parse(
        command: &RawDocument,
        version: ServerVersion,
    ) -> Result<Self, CommandError> {
        let (bytes, is_text) = match required(command, "payload", version)? {
            RawBsonRef::Binary(binary) => (binary.bytes.to_vec(), false),
            RawBsonRef::String(text) => {
                let decoded = BASE64_STANDARD.decode(text);
                let invalid = |_| CommandError::numbered(10270, "the payload is not in base64");
                (decoded.map_err(invalid)?, true)
            }
            _ => return Err(CommandError::coded(2, "the payload is binary, or text in base64")),
        };
        if bytes.len() > MAX_PAYLOAD_LEN {
            let (found, most) = (bytes.len(), MAX_PAYLOAD_LEN);
            let reason = format!("a payload of {found} bytes; at most {most} are allowed");
            return Err(CommandError::coded(2, reason));
        }
        Ok(Self { bytes, is_text })
    }

    /// Returns what a server answers to it, without `ok`.
    pub(crate) fn answer(&self, message: &[u8], done: bool) -> RawDocumentBuf {
        let mut reply = rawdoc! { "conversationId": 1, "done": done };
        if self.is_text {
            reply.append(cstr!("payload"), BASE64_STANDARD.encode(message));
        } else {
            let payload = RawBinaryRef { subtype: BinarySubtype::Generic, bytes: message };
            reply.append(cstr!("payload"), payload);
        }
        reply
    }
}

/// Reads the name of the mechanism.
pub(crate) fn mechanism(
    command: &RawDocument,
    version: ServerVersion,
) -> Result<&str, CommandError> {
    let name = required(command, "mechanism", version)?.as_str();
    name.ok_or_else(|| CommandError::coded(14, "the mechanism is a text"))
}

/// Returns whether the client wants to leave out the exchange in which nothing is said.
pub(crate) fn skips_empty_exchange(
    command: &RawDocument,
    version: ServerVersion,
) -> Result<bool, CommandError> {
    let options = match command.get("options").ok().flatten() {
        Some(options) if version > ServerVersion::V4_2 => options,
        _ => return Ok(false),
    };
    let options = options.as_document();
    let options = options.ok_or_else(|| CommandError::coded(14, "the options are a document"))?;
    match options.get("skipEmptyExchange").ok().flatten() {
        None => Ok(false),
        Some(RawBsonRef::Boolean(skips)) => Ok(skips),
        Some(_) => Err(CommandError::coded(2, "skipEmptyExchange is a boolean")),
    }
}

/// Reads the number of the conversation, of which 5.0 demands the type that it has replied with.
pub(crate) fn conversation_id(
    command: &RawDocument,
    version: ServerVersion,
) -> Result<i64, CommandError> {
    let id = match required(command, "conversationId", version)? {
        RawBsonRef::Int32(id) => Some(id.into()),
        id if version < ServerVersion::V5_0 => integer(id),
        _ => None,
    };
    id.ok_or_else(|| CommandError::coded(14, "the conversationId is an int"))
}

fn required<'a>(
    command: &'a RawDocument,
    field: &'static str,
    version: ServerVersion,
) -> Result<RawBsonRef<'a>, CommandError> {
    let missing = || {
        let code = if version < ServerVersion::V5_0 { 4 } else { 40414 };
        CommandError::coded(code, format!("the field {field:?} is missing"))
    };
    command.get(field).ok().flatten().ok_or_else(missing)
}
