//! The commands that carry the messages of a SASL mechanism, and their replies.

use bson::spec::BinarySubtype;
use bson::{RawBinaryRef, RawBsonRef, RawDocument, cstr};

use super::{AuthError, AuthStep, SecretDocument};
use crate::hello::{Field, ReplyError, boolean, integer, wrong_type};

/// The maximum length of a server's message, in bytes.
const MAX_PAYLOAD_LEN: usize = 16 * 1024;

/// The SASL conversation of one connection ("SASL Mechanisms").
#[derive(Clone, Debug)]
pub(super) struct Sasl {
    mechanism: &'static str,
    /// The server's number for the conversation.
    id: Option<i64>,
}

/// The message of the server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SaslReply<'a> {
    pub(super) payload: &'a [u8],
    pub(super) done: bool,
}

impl Sasl {
    pub(super) const fn new(mechanism: &'static str) -> Self {
        Self { mechanism, id: None }
    }

    pub(super) fn start(&mut self, payload: &[u8]) -> SecretDocument {
        self.id = None;
        let mut command = SecretDocument::with_room(payload.len());
        command.append(cstr!("saslStart"), 1);
        command.append(cstr!("mechanism"), self.mechanism);
        append_payload(&mut command, payload);
        command
    }

    pub(super) fn proceed(&self, payload: &[u8]) -> Result<AuthStep, AuthError> {
        let id = self.id.ok_or(ReplyError::Missing("conversationId"))?;
        let mut command = SecretDocument::with_room(payload.len());
        command.append(cstr!("saslContinue"), 1);
        match i32::try_from(id) {
            Ok(id) => command.append(cstr!("conversationId"), id),
            Err(_) => command.append(cstr!("conversationId"), id),
        }
        append_payload(&mut command, payload);
        Ok(AuthStep::Send(command))
    }

    /// Reads a reply; what is null counts as absent.
    pub(super) fn read<'a>(&mut self, reply: &'a RawDocument) -> Result<SaslReply<'a>, AuthError> {
        let read = self.read_fields(reply)?;
        match read.payload.len() {
            0..=MAX_PAYLOAD_LEN => Ok(read),
            _ => {
                let what = "is longer than 16 kB";
                Err(AuthError::Message { mechanism: self.mechanism, what })
            }
        }
    }

    fn read_fields<'a>(&mut self, reply: &'a RawDocument) -> Field<SaslReply<'a>> {
        let mut read = SaslReply { payload: &[], done: false };
        for element in reply.iter_elements() {
            let element = element.map_err(|error| ReplyError::Bson(error.to_string()))?;
            // What is no value of these types is a text that nothing depends on.
            let Ok(value) = element.value() else { continue };
            match (element.key().as_str(), value) {
                (_, RawBsonRef::Null) => {}
                ("conversationId", value) => self.id = Some(integer("conversationId", value)?),
                ("done", value) => read.done = boolean("done", value)?,
                ("payload", RawBsonRef::Binary(binary)) => read.payload = binary.bytes,
                ("payload", value) => return wrong_type("payload", value, "binary data"),
                _ => {}
            }
        }
        Ok(read)
    }

    /// Reads the reply to the only step of a mechanism that has one.
    pub(super) fn end(&mut self, reply: &RawDocument) -> Result<AuthStep, AuthError> {
        match self.read(reply)?.done {
            true => Ok(AuthStep::Done),
            false => Err(AuthError::GoesOn),
        }
    }
}

fn append_payload(command: &mut SecretDocument, payload: &[u8]) {
    let binary = RawBinaryRef { subtype: BinarySubtype::Generic, bytes: payload };
    command.append(cstr!("payload"), binary);
}
