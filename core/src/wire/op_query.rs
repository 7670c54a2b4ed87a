//! OP_QUERY and OP_REPLY, for an opening legacy hello to servers that want it.

use bson::RawDocument;

use super::{WireError, begin, finish, op_code, take_cstr, take_document, take_i32};

/// An OP_QUERY, read in place.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct OpQuery<'a> {
    /// The full name of the collection, `admin.$cmd` for a command.
    pub collection: &'a str,
    /// The query: here a command.
    pub query: &'a RawDocument,
    /// Any member may answer, not only a primary ("slaveOk").
    pub secondary_ok: bool,
    /// The number of documents that the client wants; for a command 1, or -1 to be given no cursor.
    pub number_to_return: i32,
}

/// The flag "slaveOk".
const SECONDARY_OK: i32 = 4;

impl<'a> OpQuery<'a> {
    /// Reads what follows the header.
    pub(super) fn parse(mut body: &'a [u8]) -> Result<Self, WireError> {
        let rest = &mut body;
        let flags = take_i32(rest, "flags")?;
        let collection = take_cstr(rest, "collection name")?;
        take_i32(rest, "number to skip")?;
        let number_to_return = take_i32(rest, "number to return")?;
        let query = take_document(rest)?;
        if !rest.is_empty() {
            take_document(rest)?;
        }
        no_more(rest)?;
        let secondary_ok = flags & SECONDARY_OK != 0;
        Ok(Self { collection, query, secondary_ok, number_to_return })
    }
}

/// The flag bits of OP_REPLY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyFlags(i32);

impl ReplyFlags {
    /// A reply without anything special.
    pub const NONE: Self = Self(0);
    /// The query failed; the document says why in `$err`.
    pub const QUERY_FAILURE: Self = Self(2);
    /// The server knows a flag of OP_QUERY that commands have no use for; all real ones say so in
    /// every reply to a command.
    pub const AWAIT_CAPABLE: Self = Self(8);

    /// Returns whether the query failed.
    pub const fn query_failed(self) -> bool {
        self.0 & Self::QUERY_FAILURE.0 != 0
    }

    /// Returns whether the server knows the flag "AwaitData".
    pub const fn await_capable(self) -> bool {
        self.0 & Self::AWAIT_CAPABLE.0 != 0
    }
}

/// An OP_REPLY with its one document, read in place.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct OpReply<'a> {
    /// The flags.
    pub flags: ReplyFlags,
    /// The reply to the command.
    pub document: &'a RawDocument,
}

impl<'a> OpReply<'a> {
    /// Reads what follows the header.
    pub(super) fn parse(mut body: &'a [u8]) -> Result<Self, WireError> {
        let rest = &mut body;
        let flags = ReplyFlags(take_i32(rest, "flags")?);
        take_i32(rest, "cursor id")?;
        take_i32(rest, "cursor id")?;
        take_i32(rest, "starting number")?;
        let count = take_i32(rest, "number of documents")?;
        if count != 1 {
            return Err(WireError::Documents(count));
        }
        let document = take_document(rest)?;
        no_more(rest)?;
        Ok(Self { flags, document })
    }
}

const fn no_more(rest: &[u8]) -> Result<(), WireError> {
    match rest.len() {
        0 => Ok(()),
        count => Err(WireError::TrailingBytes(count)),
    }
}

/// Appends a command as OP_QUERY to `database`.
///
/// # Panics
///
/// Panics if `database` contains NUL, or if the message is longer than
/// [`MAX_MESSAGE_LEN`](super::MAX_MESSAGE_LEN).
pub fn write_op_query(out: &mut Vec<u8>, request_id: i32, database: &str, command: &RawDocument) {
    assert!(!database.contains('\0'), "the name of a database contains NUL");
    let start = begin(out, request_id, 0, op_code::OP_QUERY);
    out.extend_from_slice(&SECONDARY_OK.to_le_bytes());
    out.extend_from_slice(database.as_bytes());
    out.extend_from_slice(b".$cmd\0");
    out.extend_from_slice(&0_i32.to_le_bytes());
    out.extend_from_slice(&(-1_i32).to_le_bytes());
    out.extend_from_slice(command.as_bytes());
    finish(out, start);
}

/// Appends an OP_REPLY with one document.
///
/// # Panics
///
/// Panics if the message is longer than [`MAX_MESSAGE_LEN`](super::MAX_MESSAGE_LEN).
pub fn write_op_reply(
    out: &mut Vec<u8>,
    request_id: i32,
    response_to: i32,
    flags: ReplyFlags,
    document: &RawDocument,
) {
    let start = begin(out, request_id, response_to, op_code::OP_REPLY);
    out.extend_from_slice(&flags.0.to_le_bytes());
    out.extend_from_slice(&0_i64.to_le_bytes());
    out.extend_from_slice(&0_i32.to_le_bytes());
    out.extend_from_slice(&1_i32.to_le_bytes());
    out.extend_from_slice(document.as_bytes());
    finish(out, start);
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::super::{Frames, Message, WireError};
    use super::{OpQuery, OpReply, ReplyFlags, write_op_query, write_op_reply};

    fn message(bytes: &[u8]) -> Message {
        let mut frames = Frames::new();
        frames.extend(bytes);
        frames.next().unwrap().expect("a whole message")
    }

    #[test]
    fn a_query_comes_back() {
        let command = rawdoc! { "isMaster": 1, "helloOk": true };
        let mut bytes = Vec::new();
        write_op_query(&mut bytes, 3, "admin", &command);
        let expected = OpQuery {
            collection: "admin.$cmd",
            query: &command,
            secondary_ok: true,
            number_to_return: -1,
        };
        assert_eq!(message(&bytes).op_query().unwrap(), expected);
        assert_eq!(message(&bytes).header().request_id, 3);
    }

    #[test]
    fn a_reply_comes_back_and_a_wrong_count_is_refused() {
        let document = rawdoc! { "ok": 1 };
        let mut bytes = Vec::new();
        write_op_reply(&mut bytes, 4, 3, ReplyFlags::QUERY_FAILURE, &document);
        let expected = OpReply { flags: ReplyFlags::QUERY_FAILURE, document: &document };
        assert_eq!(message(&bytes).op_reply().unwrap(), expected);
        assert!(expected.flags.query_failed());
        bytes[32] = 2;
        assert_eq!(message(&bytes).op_reply(), Err(WireError::Documents(2)));
    }

    #[test]
    fn bytes_behind_the_document_are_refused() {
        let mut bytes = Vec::new();
        write_op_reply(&mut bytes, 4, 3, ReplyFlags::NONE, &rawdoc! {});
        bytes.push(0);
        bytes[0] += 1;
        assert_eq!(message(&bytes).op_reply(), Err(WireError::TrailingBytes(1)));
    }
}
