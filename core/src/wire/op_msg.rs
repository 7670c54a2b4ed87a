//! OP_MSG: flags, a body, document sequences, and an optional checksum.

use std::fmt;

use bson::{RawDocument, rawdoc};
use crc::{CRC_32_ISCSI, Crc, Table};

use super::{
    HEADER_LEN, MAX_SEQUENCES, WireError, begin, finish, op_code, take_cstr, take_document,
    take_i32,
};
use crate::text;

/// CRC-32C, as the OP_MSG specification asks for in "checksum".
static CRC_32C: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISCSI);

/// Returns the CRC-32C of some bytes.
pub(crate) fn crc_32c(bytes: &[u8]) -> u32 {
    CRC_32C.checksum(bytes)
}

const CHECKSUM_LEN: usize = 4;

/// The first version of the protocol in which a command may name its trace: that of 9.0.
pub const WIRE_VERSION_OF_TRACE_CONTEXTS: i32 = 29;

/// The maximum length of the document that names a trace, in bytes.
const MAX_TRACE_CONTEXT_LEN: usize = 4096;

/// The flag bits of OP_MSG.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(u32);

impl Flags {
    /// No flag is set.
    pub const NONE: Self = Self(0);
    /// The message ends with the CRC-32C of all that precedes it.
    pub const CHECKSUM_PRESENT: Self = Self(1);
    /// Another message follows without a request in between.
    pub const MORE_TO_COME: Self = Self(1 << 1);
    /// The client can take several replies to this request.
    pub const EXHAUST_ALLOWED: Self = Self(1 << 16);

    /// Returns whether all flags of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns these flags and those of `other`.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the bits as the message has them.
    pub(crate) const fn bits(self) -> u32 {
        self.0
    }

    /// Refuses unknown bits among the first sixteen.
    ///
    /// OP_MSG, "flagBits": those are required, and a parser MUST error if an unknown one is set;
    /// the others are optional, and unknown ones MUST be ignored.
    pub(super) fn parse(bits: u32) -> Result<Self, WireError> {
        let known = Self::CHECKSUM_PRESENT.with(Self::MORE_TO_COME).0;
        match bits & 0xffff & !known {
            0 => Ok(Self(bits & (known | Self::EXHAUST_ALLOWED.0))),
            unknown => Err(WireError::UnknownFlags(unknown)),
        }
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (Self::CHECKSUM_PRESENT, "checksumPresent"),
            (Self::MORE_TO_COME, "moreToCome"),
            (Self::EXHAUST_ALLOWED, "exhaustAllowed"),
        ];
        f.debug_set()
            .entries(names.iter().filter(|(flag, _)| self.contains(*flag)).map(|(_, name)| name))
            .finish()
    }
}

/// An OP_MSG, read in place.
#[derive(Clone, Copy, Debug)]
pub struct OpMsg<'a> {
    /// The flags; unknown optional ones are dropped.
    pub flags: Flags,
    /// The body, the one section of kind 0: a command or its reply.
    pub body: &'a RawDocument,
    sections: Sections<'a>,
    trace_context: Option<&'a RawDocument>,
}

impl<'a> OpMsg<'a> {
    /// Returns the document sequences, the sections of kind 1, in order.
    pub fn sequences(&self) -> impl Iterator<Item = DocumentSequence<'a>> + use<'a> {
        self.sections.filter_map(|section| match section {
            Ok(Section::Sequence(sequence)) => Some(sequence),
            Ok(Section::Body(_) | Section::TraceContext(_)) | Err(_) => None,
        })
    }

    /// Returns the trace that the command belongs to, the section of kind 3, if it has one:
    /// `{ otel: { traceparent: .. } }`.
    pub const fn trace_context(&self) -> Option<&'a RawDocument> {
        self.trace_context
    }

    /// Reads the one message that `bytes` are, header included: as one that is about to be sent.
    ///
    /// # Errors
    ///
    /// Says what is wrong if they are too short, have another opcode, or are malformed, checksum
    /// included.
    pub fn read(bytes: &'a [u8]) -> Result<Self, WireError> {
        let found = &mut bytes.get(HEADER_LEN - 4..).unwrap_or_default();
        match take_i32(found, "header")? {
            op_code::OP_MSG => Self::parse(bytes),
            found => Err(WireError::OpCode { expected: op_code::OP_MSG, found }),
        }
    }

    /// Reads a message with the right opcode; every section is checked to be whole.
    pub(super) fn parse(message: &'a [u8]) -> Result<Self, WireError> {
        let mut rest = &message[HEADER_LEN..];
        let flags = Flags::parse(take_i32(&mut rest, "flags")?.cast_unsigned())?;
        if flags.contains(Flags::CHECKSUM_PRESENT) {
            rest = verify_checksum(message, rest)?;
        }
        let sections = Sections { rest };
        let (mut body, mut bodies, mut names) = (None, 0, SequenceNames::default());
        let (mut trace_context, mut trace_contexts) = (None, 0);
        for section in sections {
            match section? {
                Section::Body(document) => {
                    body = Some(document);
                    bodies += 1;
                }
                Section::Sequence(sequence) => {
                    names.add(sequence.identifier).map_err(WireError::Sequence)?;
                    for document in sequence.documents() {
                        document?;
                    }
                }
                Section::TraceContext(document) => {
                    (trace_context, trace_contexts) = (Some(document), trace_contexts + 1);
                    let length = document.as_bytes().len();
                    if trace_contexts > 1 || length > MAX_TRACE_CONTEXT_LEN {
                        return Err(WireError::TraceContext { count: trace_contexts, length });
                    }
                }
            }
        }
        match body {
            Some(body) if bodies == 1 => Ok(Self { flags, body, sections, trace_context }),
            _ => Err(WireError::Bodies(bodies)),
        }
    }
}

/// The names of a message's document sequences, to be sent or read.
#[derive(Debug, Default)]
pub struct SequenceNames<'a> {
    /// Most messages have one.
    first: Option<&'a str>,
    more: Vec<&'a str>,
}

/// The reason why a message cannot have a document sequence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SequenceError {
    /// It would be one more than [`MAX_SEQUENCES`].
    #[error("more than {MAX_SEQUENCES} document sequences")]
    TooMany,
    /// Another one has the same name ("sections"); this is its beginning.
    #[error("two document sequences with the name {0:?}; each name may occur once")]
    Duplicate(String),
    /// Its name has NUL in it; this is its beginning.
    #[error("a document sequence whose name {0:?} has NUL in it, which ends a name")]
    Nul(String),
}

impl<'a> SequenceNames<'a> {
    /// Adds the name of one more sequence.
    ///
    /// # Errors
    ///
    /// Refuses a name with NUL in it, one that is there already ("Each identifier MUST be unique
    /// per message"), and more than [`MAX_SEQUENCES`].
    pub fn add(&mut self, name: &'a str) -> Result<(), SequenceError> {
        let beginning = || text::beginning(name, SHOWN_LEN).to_owned();
        if name.contains('\0') {
            return Err(SequenceError::Nul(beginning()));
        }
        if self.first == Some(name) || self.more.contains(&name) {
            return Err(SequenceError::Duplicate(beginning()));
        }
        if usize::from(self.first.is_some()) + self.more.len() == MAX_SEQUENCES {
            return Err(SequenceError::TooMany);
        }
        match self.first {
            None => self.first = Some(name),
            Some(_) => self.more.push(name),
        }
        Ok(())
    }
}

/// The maximum length of a name in an error, in bytes.
const SHOWN_LEN: usize = 100;

/// Checks the checksum at the end of `message` and returns the sections in front of it.
fn verify_checksum<'a>(message: &[u8], rest: &'a [u8]) -> Result<&'a [u8], WireError> {
    let (sections, stated) =
        rest.split_last_chunk::<CHECKSUM_LEN>().ok_or(WireError::Truncated("checksum"))?;
    let stated = u32::from_le_bytes(*stated);
    let computed = crc_32c(&message[..message.len() - CHECKSUM_LEN]);
    match stated == computed {
        true => Ok(sections),
        false => Err(WireError::Checksum { stated, computed }),
    }
}

/// A section of kind 1: documents under one name, as the `documents` of an insert.
#[derive(Clone, Copy, Debug)]
pub struct DocumentSequence<'a> {
    /// The field of the command that the documents belong to.
    pub identifier: &'a str,
    documents: &'a [u8],
}

impl<'a> DocumentSequence<'a> {
    /// Returns the documents in order.
    pub fn documents(&self) -> impl Iterator<Item = Result<&'a RawDocument, WireError>> + use<'a> {
        let mut rest = self.documents;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let document = take_document(&mut rest);
            if document.is_err() {
                rest = &[];
            }
            Some(document)
        })
    }
}

#[derive(Clone, Copy, Debug)]
enum Section<'a> {
    Body(&'a RawDocument),
    Sequence(DocumentSequence<'a>),
    TraceContext(&'a RawDocument),
}

/// The sections of an OP_MSG, read one at a time.
#[derive(Clone, Copy, Debug)]
struct Sections<'a> {
    rest: &'a [u8],
}

impl<'a> Sections<'a> {
    fn read(&mut self) -> Result<Section<'a>, WireError> {
        let (&kind, rest) = self.rest.split_first().expect("next() has seen a byte");
        self.rest = rest;
        match kind {
            0 => Ok(Section::Body(take_document(&mut self.rest)?)),
            1 => {
                let size = take_i32(&mut &*self.rest, "document sequence")?;
                let size = usize::try_from(size).ok().filter(|size| *size >= 4);
                let size = size.ok_or(WireError::Truncated("document sequence"))?;
                if size > self.rest.len() {
                    return Err(WireError::Truncated("document sequence"));
                }
                let (sequence, rest) = self.rest.split_at(size);
                self.rest = rest;
                let mut documents = &sequence[4..];
                let identifier = take_cstr(&mut documents, "sequence identifier")?;
                Ok(Section::Sequence(DocumentSequence { identifier, documents }))
            }
            3 => Ok(Section::TraceContext(take_document(&mut self.rest)?)),
            kind => Err(WireError::SectionKind(kind)),
        }
    }
}

impl<'a> Iterator for Sections<'a> {
    type Item = Result<Section<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let section = self.read();
        if section.is_err() {
            self.rest = &[];
        }
        Some(section)
    }
}

/// Appends an OP_MSG with a body and no document sequence.
///
/// # Panics
///
/// Panics if the message is longer than [`MAX_MESSAGE_LEN`](super::MAX_MESSAGE_LEN).
pub fn write_op_msg(
    out: &mut Vec<u8>,
    request_id: i32,
    response_to: i32,
    flags: Flags,
    body: &RawDocument,
) {
    write_op_msg_with_sequences(out, request_id, response_to, flags, body, &[]);
}

/// Appends an OP_MSG with a body and document sequences, each a name and its documents.
///
/// The checksum is computed where `flags` ask for one.
///
/// # Panics
///
/// Panics if the message is longer than [`MAX_MESSAGE_LEN`](super::MAX_MESSAGE_LEN), or if a name
/// contains NUL.
pub fn write_op_msg_with_sequences(
    out: &mut Vec<u8>,
    request_id: i32,
    response_to: i32,
    flags: Flags,
    body: &RawDocument,
    sequences: &[(&str, &[&RawDocument])],
) {
    let checksum = flags.contains(Flags::CHECKSUM_PRESENT);
    let start = begin(out, request_id, response_to, op_code::OP_MSG);
    out.extend_from_slice(&flags.0.to_le_bytes());
    out.push(0);
    out.extend_from_slice(body.as_bytes());
    for (identifier, documents) in sequences {
        append_sequence(out, identifier, documents);
    }
    if checksum {
        out.extend_from_slice(&[0; CHECKSUM_LEN]);
    }
    finish(out, start);
    if checksum {
        let end = out.len() - CHECKSUM_LEN;
        let sum = crc_32c(&out[start..end]);
        out[end..].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Appends a section of kind 1.
pub(super) fn append_sequence(out: &mut Vec<u8>, identifier: &str, documents: &[&RawDocument]) {
    assert!(!identifier.contains('\0'), "the name of a sequence contains NUL");
    let length: usize = documents.iter().map(|document| document.as_bytes().len()).sum();
    let size = i32::try_from(4 + identifier.len() + 1 + length).unwrap_or(i32::MAX);
    out.push(1);
    out.extend_from_slice(&size.to_le_bytes());
    out.extend_from_slice(identifier.as_bytes());
    out.push(0);
    documents.iter().for_each(|document| out.extend_from_slice(document.as_bytes()));
}

/// Adds the section of kind 3 to a whole OP_MSG: the trace that the command belongs to, as a W3C
/// `traceparent` says it (OpenTelemetry, "Propagating Trace Context to the Server"). Returns
/// whether it was added.
///
/// The message stays as it is if the `traceparent` is not valid, as servers refuse what is not; if
/// it would be longer than `limit`; and if it has a checksum.
pub fn add_trace_context(message: &mut Vec<u8>, traceparent: &str, limit: usize) -> bool {
    let section = rawdoc! { "otel": { "traceparent": traceparent } };
    let added = 1 + section.as_bytes().len();
    let has_checksum = message
        .get(HEADER_LEN..HEADER_LEN + 4)
        .is_none_or(|flags| flags[0] & Flags::CHECKSUM_PRESENT.0.to_le_bytes()[0] != 0);
    let length = i32::try_from(message.len() + added).ok();
    let length = length.filter(|_| message.len() + added <= limit && !has_checksum);
    let (Some(length), true) = (length, is_traceparent(traceparent)) else { return false };
    // A message of megabytes is not to have room for another one.
    message.reserve_exact(added);
    message.push(3);
    message.extend_from_slice(section.as_bytes());
    message[..4].copy_from_slice(&length.to_le_bytes());
    true
}

/// Returns whether a text is a `traceparent` of version 00: 32 and 16 digits that are not all zero,
/// and 2 of flags.
fn is_traceparent(text: &str) -> bool {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_id = |part: &str, length: usize| {
        part.len() == length && part.bytes().all(is_digit) && part.bytes().any(|it| it != b'0')
    };
    let parts: Vec<&str> = text.split('-').collect();
    let [version, trace, span, flags] = *parts else { return false };
    let are_flags = flags.len() == 2 && flags.bytes().all(is_digit);
    version == "00" && is_id(trace, 32) && is_id(span, 16) && are_flags
}

#[cfg(test)]
mod tests;
