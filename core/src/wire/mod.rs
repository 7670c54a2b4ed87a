//! The MongoDB wire protocol: headers, the messages this layer speaks, and a read buffer.
//!
//! Implements the [OP_MSG specification], the two legacy messages that an opening legacy hello may
//! use, OP_QUERY and OP_REPLY, and OP_COMPRESSED around any of them. Client and server side are
//! both here, because the embedded deployment speaks the same bytes.
//!
//! [OP_MSG specification]: https://github.com/mongodb/specifications/blob/master/source/message/OP_MSG.md

mod command;
mod compression;
mod elements;
mod exchange;
mod frames;
mod message;
mod nesting;
mod op_msg;
mod op_query;
mod reply;

pub use command::CommandWriter;
pub use compression::{
    Compression, Compressor, Decompressor, NotCompiledIn, is_compiled_in, may_be_compressed,
};
pub use elements::{Element, Elements, elements, text};
pub use exchange::{Awaited, Reply, RequestIds};
pub use frames::{Frames, other_protocol};
pub use message::{Header, Message};
pub use nesting::{MAX_NESTING, nesting};
pub(crate) use op_msg::crc_32c;
pub use op_msg::{
    DocumentSequence, Flags, OpMsg, SequenceError, SequenceNames, WIRE_VERSION_OF_TRACE_CONTEXTS,
    add_trace_context, write_op_msg, write_op_msg_with_sequences,
};
pub use op_query::{OpQuery, OpReply, ReplyFlags, write_op_query, write_op_reply};
pub use reply::{MAX_EVENT_REPLY_LEN, ReplyDocument, ok};

/// The length of a message header, and so of the shortest message, in bytes.
pub const HEADER_LEN: usize = 16;

/// The length of the longest message that is accepted, in bytes.
pub const MAX_MESSAGE_LEN: usize = 48_000_000;

/// The length of the longest reply to hello, or to a step of a login, that is accepted, in bytes: a
/// megabyte, as the server is not authenticated yet.
pub const MAX_HELLO_LEN: usize = 1 << 20;

/// The number of document sequences that a message may have; servers know of commands with two.
pub const MAX_SEQUENCES: usize = 100;

/// The opcodes this layer knows.
pub mod op_code {
    /// The reply to OP_QUERY.
    pub const OP_REPLY: i32 = 1;
    /// A legacy query, here only the opening legacy hello.
    pub const OP_QUERY: i32 = 2004;
    /// Any other message, compressed.
    pub const OP_COMPRESSED: i32 = 2012;
    /// Every other message, in both directions.
    pub const OP_MSG: i32 = 2013;
}

/// The fault of bytes that should have been a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// A message length below [`HEADER_LEN`], or above what is allowed there: [`MAX_MESSAGE_LEN`],
    /// or [`MAX_HELLO_LEN`].
    #[error("a message of {length} bytes; lengths from {HEADER_LEN} to {most} are allowed")]
    Length {
        /// The length that the message claims.
        length: i32,
        /// The length of the longest that is allowed.
        most: usize,
    },
    /// Bytes of another protocol, where a message should begin.
    #[error("the peer answers in {0}")]
    OtherProtocol(&'static str),
    /// The message ends before its content does.
    #[error("a message that ends inside its {0}")]
    Truncated(&'static str),
    /// The message goes on after its content has ended.
    #[error("a message with {0} bytes behind its end")]
    TrailingBytes(usize),
    /// Another opcode than the one that is due.
    #[error("the message has opcode {found}, not {expected}")]
    OpCode {
        /// The opcode that is due.
        expected: i32,
        /// The opcode of the message.
        found: i32,
    },
    /// An opcode that no message has.
    #[error(
        "unknown opcode {0}; 1 (OP_REPLY), 2004 (OP_QUERY), 2012 (OP_COMPRESSED) and 2013 \
             (OP_MSG) are known"
    )]
    UnknownOpCode(i32),
    /// A reply to another request than the one that is waiting.
    #[error("a reply to request {found}, not to request {expected}")]
    ResponseTo {
        /// The request that is waiting.
        expected: i32,
        /// The request that the message answers.
        found: i32,
    },
    /// A reply that says that another one follows, although the request allows only one.
    #[error("a reply that announces another one, which nothing asked for")]
    MoreToCome,
    /// A required OP_MSG flag bit (0 to 15) that this version does not know.
    #[error("OP_MSG with unknown required flag bits {0:#06x}")]
    UnknownFlags(u32),
    /// A section kind other than 0, 1 and 3.
    #[error("OP_MSG with a section of unknown kind {0}")]
    SectionKind(u8),
    /// No section of kind 0, or more than one.
    #[error("OP_MSG with {0} body sections instead of one")]
    Bodies(usize),
    /// A section of kind 3 that is not the only one, or is longer than 4,096 bytes.
    #[error(
        "OP_MSG that names its trace {count} times, or in {length} bytes; once and 4096 are allowed"
    )]
    TraceContext {
        /// The number of such sections.
        count: usize,
        /// The length of the last one.
        length: usize,
    },
    /// A document sequence that no message has.
    #[error("OP_MSG with {0}")]
    Sequence(SequenceError),
    /// The checksum is not that of the message.
    #[error("OP_MSG whose checksum is {computed:#010x}, not {stated:#010x} as it states")]
    Checksum {
        /// The checksum that the message carries.
        stated: u32,
        /// The CRC-32C of the message.
        computed: u32,
    },
    /// An OP_REPLY without exactly one document.
    #[error("OP_REPLY with {0} documents instead of one")]
    Documents(i32),
    /// A document that is not BSON.
    #[error("malformed BSON: {0}")]
    Bson(String),
    /// Text that is not UTF-8.
    #[error("a {0} that is not UTF-8")]
    Utf8(&'static str),
    /// A compressed message inside a compressed one.
    #[error("a compressed message inside a compressed message")]
    NestedCompression,
    /// A number that stands for no compressor.
    #[error("unknown compressor {0}; 0 (noop), 1 (snappy), 2 (zlib) and 3 (zstd) are known")]
    UnknownCompressor(u8),
    /// A compressor that this build does not contain.
    #[error("a message that cannot be decompressed: {0}")]
    NotCompiledIn(NotCompiledIn),
    /// A size, without the header, that no message can have.
    #[error("a compressed message of {0} bytes; sizes from 0 to {max} are allowed",
        max = MAX_MESSAGE_LEN - HEADER_LEN)]
    UncompressedSize(i32),
    /// More bytes than so short a compressed form can hold.
    #[error("{compressed} compressed bytes that claim to hold {claimed}, which they cannot")]
    ImpossibleSize {
        /// The number of bytes that the message claims to hold.
        claimed: usize,
        /// The number of bytes that there are.
        compressed: usize,
    },
    /// Another number of bytes than the message claims to hold.
    #[error("a compressed message that claims to hold {claimed} bytes and holds {found}")]
    UncompressedSizeMismatch {
        /// The number of bytes that the message claims to hold.
        claimed: usize,
        /// The number that it holds; at least, if there are more than claimed.
        found: usize,
    },
    /// Compressed bytes that are malformed.
    #[error("malformed {compressor} data: {reason}")]
    Compressed {
        /// The name of the compressor.
        compressor: &'static str,
        /// The library's reason.
        reason: String,
    },
}

impl From<NotCompiledIn> for WireError {
    fn from(missing: NotCompiledIn) -> Self {
        Self::NotCompiledIn(missing)
    }
}

/// Reads a little-endian integer and moves `bytes` past it.
fn take_i32(bytes: &mut &[u8], what: &'static str) -> Result<i32, WireError> {
    let (head, rest) = bytes.split_first_chunk().ok_or(WireError::Truncated(what))?;
    *bytes = rest;
    Ok(i32::from_le_bytes(*head))
}

/// Reads a document, whose length is in its first four bytes, and moves `bytes` past it.
fn take_document<'a>(bytes: &mut &'a [u8]) -> Result<&'a bson::RawDocument, WireError> {
    let length = take_i32(&mut &**bytes, "document")?;
    let length = usize::try_from(length).map_err(|_| negative_length(length))?;
    if length > bytes.len() {
        return Err(WireError::Truncated("document"));
    }
    let (document, rest) = bytes.split_at(length);
    *bytes = rest;
    bson::RawDocument::from_bytes(document).map_err(|error| WireError::Bson(error.to_string()))
}

fn negative_length(length: i32) -> WireError {
    WireError::Bson(format!("a document of {length} bytes"))
}

/// Reads a string that ends with NUL and moves `bytes` past it.
fn take_cstr<'a>(bytes: &mut &'a [u8], what: &'static str) -> Result<&'a str, WireError> {
    let end = bytes.iter().position(|&byte| byte == 0).ok_or(WireError::Truncated(what))?;
    let (text, rest) = (&bytes[..end], &bytes[end + 1..]);
    *bytes = rest;
    std::str::from_utf8(text).map_err(|_| WireError::Utf8(what))
}

/// Appends a header with a length to be filled in, and returns where the message starts.
fn begin(out: &mut Vec<u8>, request_id: i32, response_to: i32, op_code: i32) -> usize {
    let start = out.len();
    for field in [0, request_id, response_to, op_code] {
        out.extend_from_slice(&field.to_le_bytes());
    }
    start
}

/// Fills in the length of the message that starts at `start` and ends here.
///
/// # Panics
///
/// Panics if the message is longer than [`MAX_MESSAGE_LEN`].
fn finish(out: &mut [u8], start: usize) {
    let length = out.len() - start;
    assert!(length <= MAX_MESSAGE_LEN, "a message of {length} bytes is too long to be sent");
    let length = i32::try_from(length).expect("MAX_MESSAGE_LEN fits");
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
}
