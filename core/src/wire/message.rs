//! A whole message: its header, and the bytes behind it.

use bytes::Bytes;

use super::compression::Compressed;
use super::{
    Flags, HEADER_LEN, MAX_MESSAGE_LEN, OpMsg, OpQuery, OpReply, WireError, op_code, take_i32,
};

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
///
/// [`Frames`](super::Frames) cuts a stream of bytes into messages. Bytes that are one message
/// already are converted, and checked: the length, the opcode, and the content, an OP_MSG's flags
/// and checksum included. What is compressed is not looked into.
///
/// ```
/// use sdam_core::bson::rawdoc;
/// use sdam_core::bytes::Bytes;
/// use sdam_core::wire::{Flags, Message, WireError, write_op_msg};
///
/// let mut bytes = Vec::new();
/// write_op_msg(&mut bytes, 1, 0, Flags::NONE, &rawdoc! { "ping": 1, "$db": "admin" });
/// let message = Message::try_from(Bytes::from(bytes))?;
/// assert_eq!(message.op_msg()?.body.get_i32("ping")?, 1);
/// assert!(Message::try_from(Bytes::from_static(b"GET / HTTP/1.1\r\n\r\n")).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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

impl TryFrom<Bytes> for Message {
    type Error = WireError;

    /// Takes bytes that are one whole message.
    fn try_from(bytes: Bytes) -> Result<Self, WireError> {
        if bytes.len() < HEADER_LEN {
            return Err(WireError::Truncated("header"));
        }
        let message = Self::new(bytes);
        let (length, held) = (message.header().length, message.0.len());
        let claimed = usize::try_from(length).ok();
        match claimed.filter(|claimed| (HEADER_LEN..=MAX_MESSAGE_LEN).contains(claimed)) {
            None => return Err(WireError::Length { length, most: MAX_MESSAGE_LEN }),
            Some(claimed) if held < claimed => return Err(WireError::Truncated("content")),
            Some(claimed) if held > claimed => {
                return Err(WireError::TrailingBytes(held - claimed));
            }
            Some(_) => {}
        }
        match message.header().op_code {
            op_code::OP_MSG => message.op_msg().map(|_| ())?,
            op_code::OP_QUERY => message.op_query().map(|_| ())?,
            op_code::OP_REPLY => message.op_reply().map(|_| ())?,
            op_code::OP_COMPRESSED => Compressed::parse(message.body()).map(|_| ())?,
            found => return Err(WireError::UnknownOpCode(found)),
        }
        Ok(message)
    }
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;
    use bytes::Bytes;

    use super::Message;
    use crate::wire::{Flags, ReplyFlags, WireError, write_op_msg, write_op_query, write_op_reply};

    fn ping() -> Vec<u8> {
        let mut bytes = Vec::new();
        write_op_msg(&mut bytes, 1, 0, Flags::NONE, &rawdoc! { "ping": 1 });
        bytes
    }

    fn refused(bytes: Vec<u8>) -> WireError {
        Message::try_from(Bytes::from(bytes)).expect_err("it is no message")
    }

    #[test]
    fn every_kind_of_message_is_taken() {
        let (mut query, mut reply) = (Vec::new(), Vec::new());
        write_op_query(&mut query, 1, "admin", &rawdoc! { "isMaster": 1 });
        write_op_reply(&mut reply, 1, 1, ReplyFlags::NONE, &rawdoc! { "ok": 1 });
        for bytes in [ping(), query, reply] {
            let message = Message::try_from(Bytes::from(bytes.clone())).unwrap();
            assert_eq!(message.bytes()[..], bytes[..]);
        }
    }

    #[test]
    fn bytes_that_are_no_message_are_refused_and_the_error_says_why() {
        for length in 0..16 {
            assert_eq!(refused(ping()[..length].to_vec()), WireError::Truncated("header"));
        }
        let cut = ping().len() - 1;
        assert_eq!(refused(ping()[..cut].to_vec()), WireError::Truncated("content"));
        assert_eq!(refused([ping(), vec![0; 3]].concat()), WireError::TrailingBytes(3));
        let with = |at: usize, value: i32| {
            let mut bytes = ping();
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            refused(bytes)
        };
        for length in [i32::MIN, -1, 0, 15, 48_000_001] {
            assert!(matches!(with(0, length), WireError::Length { .. }), "{length}");
        }
        assert_eq!(with(12, 2002), WireError::UnknownOpCode(2002));
        assert_eq!(with(16, 1 << 5), WireError::UnknownFlags(1 << 5));
        // A checksum is announced, and four bytes of the document are none.
        assert!(matches!(with(16, 1), WireError::Checksum { .. } | WireError::Truncated(_)));
        assert!(matches!(with(12, 2012), WireError::ImpossibleSize { .. }));
    }
}
