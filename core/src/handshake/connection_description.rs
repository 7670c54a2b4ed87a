//! The reply to the opening hello, and what client and server have agreed on by it.

use bson::oid::ObjectId;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};

use super::command;
use crate::config::{AuthMechanism, Options, Secret};
use crate::description::ServerType;
use crate::failure::{Cause, Failure, Stage};
use crate::hello::{
    self, Field, HelloReply, ReplyError, document, integer, natural, read_ok, wrong_type,
};
use crate::operation::{CommandError, OperationError};
use crate::wire::{Compressor, MAX_MESSAGE_LEN, ReplyDocument};

/// The facts on which client and server have agreed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConnectionDescription {
    /// The reply to hello.
    pub hello: ReplyDocument,
    /// The type of the server.
    pub server_type: ServerType,
    /// The newest wire version the server speaks.
    pub max_wire_version: i32,
    /// The maximum length of a document, in bytes.
    pub max_bson_object_size: usize,
    /// The maximum length of a message, in bytes; at most [`MAX_MESSAGE_LEN`].
    pub max_message_size_bytes: usize,
    /// The number of writes that a command may contain.
    pub max_write_batch_size: usize,
    /// The server's number for the connection, as its log has it.
    pub server_connection_id: Option<i64>,
    /// The compressor for messages, except for those that carry secrets.
    pub compressor: Option<Compressor>,
    /// True if the server has sessions: it has sent `logicalSessionTimeoutMinutes`.
    pub has_sessions: bool,
    /// Behind a load balancer, the service that the connection leads to.
    pub service: Option<ObjectId>,
    /// The mechanism by which the connection was authenticated, if it was.
    pub mechanism: Option<AuthMechanism>,
    /// The token of OpenID Connect that it was authenticated with.
    pub token: Option<Secret>,
}

/// The content of the reply to the opening hello.
pub(super) struct OpeningReply {
    pub(super) connection_description: ConnectionDescription,
    /// The mechanism that the server prefers, where the user named none.
    pub(super) negotiated: AuthMechanism,
    /// The reply to what was tried along with hello.
    pub(super) speculative: Option<RawDocumentBuf>,
}

impl OpeningReply {
    pub(super) fn read(reply: &ReplyDocument, options: &Options) -> Result<Self, OperationError> {
        let hello = HelloReply::parse(reply, None).map_err(|error| malformed(&error))?;
        if !hello.ok {
            let error = CommandError::in_reply(reply).unwrap_or_default();
            return Err(OperationError::Reply { stage: Stage::Hello, error });
        }
        let service = match options.load_balanced() {
            true => Some(hello::service_id(reply).map_err(|error| {
                let detail = error.to_string();
                let failure = Failure::new(Stage::Hello, Cause::Configuration, detail);
                OperationError::Stream(failure)
            })?),
            false => None,
        };
        let connection_description = ConnectionDescription {
            server_type: hello.server_type(),
            max_wire_version: hello.max_wire_version,
            max_bson_object_size: 16 * 1024 * 1024,
            max_message_size_bytes: MAX_MESSAGE_LEN,
            max_write_batch_size: 100_000,
            server_connection_id: None,
            has_sessions: false,
            compressor: None,
            service,
            mechanism: None,
            token: None,
            hello: reply.clone(),
        };
        let negotiated = AuthMechanism::ScramSha1;
        let mut greeting = Self { connection_description, negotiated, speculative: None };
        greeting.read_fields(reply, options).map_err(|error| malformed(&error))?;
        Ok(greeting)
    }

    fn read_fields(&mut self, reply: &RawDocument, options: &Options) -> Field<()> {
        let connection_description = &mut self.connection_description;
        for element in reply.iter_elements() {
            let element = element.map_err(|error| ReplyError::Bson(error.to_string()))?;
            // A text that is no UTF-8 is none of these, whose names are read above.
            let Ok(value) = element.value() else { continue };
            if value == RawBsonRef::Null {
                continue;
            }
            match element.key().as_str() {
                "maxBsonObjectSize" => {
                    connection_description.max_bson_object_size = size("maxBsonObjectSize", value)?;
                }
                "maxMessageSizeBytes" => {
                    let size = size("maxMessageSizeBytes", value)?;
                    connection_description.max_message_size_bytes = size.min(MAX_MESSAGE_LEN);
                }
                "maxWriteBatchSize" => {
                    connection_description.max_write_batch_size = size("maxWriteBatchSize", value)?;
                }
                "connectionId" => {
                    connection_description.server_connection_id =
                        Some(integer("connectionId", value)?);
                }
                // "If it has a value, sessions are supported."
                "logicalSessionTimeoutMinutes" => connection_description.has_sessions = true,
                "compression" => connection_description.compressor = common(value, options)?,
                // Anything may be in there, known or not: it is not judged.
                "saslSupportedMechs" if lists(value, AuthMechanism::ScramSha256.name()) => {
                    self.negotiated = AuthMechanism::ScramSha256;
                }
                "speculativeAuthenticate" => {
                    let reply = document("speculativeAuthenticate", value)?;
                    self.speculative = Some(reply.to_owned());
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Returns the error that a reply to a step of authentication says, if it does not say `ok: 1`.
pub(super) fn refusal(reply: &RawDocument) -> Field<Option<CommandError>> {
    for element in reply.iter_elements() {
        let element = element.map_err(|error| ReplyError::Bson(error.to_string()))?;
        if element.key() == "ok" {
            let value = element.value().map_err(|error| ReplyError::Bson(error.to_string()))?;
            return Ok(
                (!read_ok(value)?).then(|| CommandError::in_reply(reply).unwrap_or_default())
            );
        }
    }
    Err(ReplyError::Missing("ok"))
}

fn size(field: &'static str, value: RawBsonRef<'_>) -> Field<usize> {
    let found = natural(field, value)?;
    match usize::try_from(found) {
        Ok(size) if size > 0 => Ok(size),
        _ => Err(ReplyError::Range { field, found }),
    }
}

/// "clients MUST use the first compressor in the client's configured compressors list that is also
/// in the servers list" (Wire Compression, "Handshake").
fn common(value: RawBsonRef<'_>, options: &Options) -> Field<Option<Compressor>> {
    match value {
        RawBsonRef::Array(_) => {
            Ok(command::compressors(options).find(|compressor| lists(value, compressor.name())))
        }
        _ => wrong_type("compression", value, "an array"),
    }
}

/// Returns whether a value is an array that contains this text.
fn lists(value: RawBsonRef<'_>, text: &str) -> bool {
    value.as_array().is_some_and(|array| {
        array.into_iter().map_while(Result::ok).any(|element| element.as_str() == Some(text))
    })
}

fn malformed(error: &ReplyError) -> OperationError {
    let detail = format!("malformed reply: a reply to hello in which {error}");
    OperationError::Stream(Failure::new(Stage::Hello, Cause::Malformed, detail))
}
