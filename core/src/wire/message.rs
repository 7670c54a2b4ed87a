//! A whole message: its header, and the bytes behind it.

use bytes::Bytes;

use super::{Flags, HEADER_LEN, OpMsg, OpQuery, OpReply, WireError, op_code, take_i32};

/// The sixteen bytes that every message begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Header {
    /// The length of the whole message, header included, in bytes.
    pub length: i32,
    /// The sender's number for this message.
    pub request_id: i32,
    /// The `request_id` that this message answers, or 0.
    pub response_to: i32,
    /// The kind of message, see [`op_code`].
    pub op_code: i32,
}

/// A whole message; it shares the memory it was read into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message(Bytes);

impl Message {
    /// Takes bytes that [`Frames`](super::Frames) found to be one message.
    pub(super) fn new(bytes: Bytes) -> Self {
        debug_assert!(bytes.len() >= HEADER_LEN);
        Self(bytes)
    }

    /// Returns the header.
    pub fn header(&self) -> Header {
        let field = |at: usize| {
            let bytes = self.0[at..at + 4].try_into().expect("four bytes are four bytes");
            i32::from_le_bytes(bytes)
        };
        Header { length: field(0), request_id: field(4), response_to: field(8), op_code: field(12) }
    }

    /// Returns the whole message, header included.
    pub const fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// Returns what follows the header.
    pub fn body(&self) -> &[u8] {
        &self.0[HEADER_LEN..]
    }

    /// Reads the message as OP_MSG.
    ///
    /// # Errors
    ///
    /// Says what is wrong if the message has another opcode or is malformed, checksum included.
    pub fn op_msg(&self) -> Result<OpMsg<'_>, WireError> {
        self.expect(op_code::OP_MSG)?;
        OpMsg::parse(&self.0)
    }

    /// Returns the flags of an OP_MSG, of which nothing else is looked at.
    ///
    /// # Errors
    ///
    /// Says what is wrong if the message has another opcode, no flags, or some that are not known.
    pub fn flags(&self) -> Result<Flags, WireError> {
        self.expect(op_code::OP_MSG)?;
        Flags::parse(take_i32(&mut self.body(), "flags")?.cast_unsigned())
    }

    /// Reads the message as OP_REPLY.
    ///
    /// # Errors
    ///
    /// Says what is wrong if the message has another opcode or is malformed.
    pub fn op_reply(&self) -> Result<OpReply<'_>, WireError> {
        self.expect(op_code::OP_REPLY)?;
        OpReply::parse(self.body())
    }

    /// Reads the message as OP_QUERY.
    ///
    /// # Errors
    ///
    /// Says what is wrong if the message has another opcode or is malformed.
    pub fn op_query(&self) -> Result<OpQuery<'_>, WireError> {
        self.expect(op_code::OP_QUERY)?;
        OpQuery::parse(self.body())
    }

    fn expect(&self, expected: i32) -> Result<(), WireError> {
        match self.header().op_code {
            found if found == expected => Ok(()),
            found => Err(WireError::OpCode { expected, found }),
        }
    }
}
