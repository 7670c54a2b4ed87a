//! The first bytes of each message of a client, and whether it is a hello.

use super::{RelayError, header, integer, length, take};
use crate::wire::{
    Decompressor, Flags, Frames, HEADER_LEN, Header, MAX_MESSAGE_LEN, Message, op_code,
};

/// The number of bytes of a message that are looked at, in which a hello is known as one.
const LOOKED_AT: usize = 512;

/// The length of the longest compressed message that is looked into, before and after, in bytes.
/// Drivers compress no hello; one that an application sends as any other command is short.
const MAX_COMPRESSED_LEN: usize = 16 * 1024;

/// The messages of a client, as they pass.
#[derive(Debug, Default)]
pub(super) struct Opening {
    /// The beginning of the message that passes, as far as it is looked at.
    seen: Vec<u8>,
    /// The number of its bytes that are not looked at, and still to come.
    passing: usize,
    /// True if a whole header has come before.
    has_begun: bool,
}

impl Opening {
    /// Reads on, and says the number of each hello that has a reply.
    pub(super) fn read(
        &mut self,
        mut bytes: &[u8],
        decompressor: &mut Decompressor,
        mut hello: impl FnMut(i32) -> Result<(), RelayError>,
    ) -> Result<(), RelayError> {
        while !bytes.is_empty() {
            if self.passing > 0 {
                self.passing -= take(&mut bytes, self.passing).len();
                continue;
            }
            let Some(header) = header(&self.seen) else {
                let missing = HEADER_LEN - self.seen.len();
                self.seen.extend_from_slice(take(&mut bytes, missing));
                // A message may end with its header.
                self.look(decompressor, &mut hello)?;
                continue;
            };
            let wanted = looked_at(header)?;
            self.seen.extend_from_slice(take(&mut bytes, wanted - self.seen.len()));
            self.look(decompressor, &mut hello)?;
        }
        Ok(())
    }

    /// Judges a message, if enough of it is there.
    fn look(
        &mut self,
        decompressor: &mut Decompressor,
        hello: impl FnOnce(i32) -> Result<(), RelayError>,
    ) -> Result<(), RelayError> {
        let Some(header) = header(&self.seen) else { return Ok(()) };
        if !self.has_begun && is_tls(&self.seen) {
            return Err(RelayError::Tls);
        }
        self.has_begun = true;
        let wanted = looked_at(header)?;
        if self.seen.len() < wanted {
            return Ok(());
        }
        self.passing = length(header, MAX_MESSAGE_LEN).map_err(RelayError::Request)? - wanted;
        let is_hello = is_hello(header, &self.seen, decompressor);
        self.seen.clear();
        match is_hello {
            true => hello(header.request_id),
            false => Ok(()),
        }
    }
}

/// Returns how much of a message is looked at.
fn looked_at(header: Header) -> Result<usize, RelayError> {
    let length = length(header, MAX_MESSAGE_LEN).map_err(RelayError::Request)?;
    Ok(match header.op_code {
        op_code::OP_MSG | op_code::OP_QUERY => length.min(LOOKED_AT),
        op_code::OP_COMPRESSED if length <= MAX_COMPRESSED_LEN => length,
        _ => HEADER_LEN,
    })
}

/// Returns whether this is how TLS begins: a record with a handshake. A first message of MongoDB's
/// that begins alike would be longer than 64 KiB.
fn is_tls(bytes: &[u8]) -> bool {
    matches!(bytes, [0x16, 3, 1..=4, ..])
}

/// Returns whether a message is a hello, to which there will be a reply.
fn is_hello(header: Header, seen: &[u8], decompressor: &mut Decompressor) -> bool {
    if header.op_code != op_code::OP_COMPRESSED {
        return opens_hello(header.op_code, &seen[HEADER_LEN..]).unwrap_or(false);
    }
    let claimed = integer(seen, HEADER_LEN + 4).and_then(|claimed| usize::try_from(claimed).ok());
    if claimed.is_none_or(|claimed| claimed > MAX_COMPRESSED_LEN) {
        return false;
    }
    // What cannot be decompressed is for the server to judge.
    whole(seen).and_then(|message| decompressor.decompress(message).ok()).is_some_and(|message| {
        opens_hello(message.header().op_code, message.body()).unwrap_or(false)
    })
}

fn whole(bytes: &[u8]) -> Option<Message> {
    let mut frames = Frames::new();
    frames.extend(bytes);
    frames.next().ok()?
}

/// Looks for the name of the command in what follows the header; `None` if it is not there.
fn opens_hello(op_code: i32, body: &[u8]) -> Option<bool> {
    match op_code {
        op_code::OP_MSG => {
            let flags = integer(body, 0)?.cast_unsigned();
            if flags & Flags::MORE_TO_COME.bits() != 0 {
                return Some(false);
            }
            let mut sections = body.get(4..)?;
            // Sequences of documents may stand before the command.
            while let [1, sequence @ ..] = sections {
                let size = usize::try_from(integer(sequence, 0)?).ok()?;
                sections = sequence.get(size.max(4)..)?;
            }
            match sections {
                [0, command @ ..] => names_hello(command),
                _ => None,
            }
        }
        op_code::OP_QUERY => {
            let collection = body.get(4..)?;
            let end = collection.iter().position(|byte| *byte == 0)?;
            let query = collection.get(end + 1 + 8..)?;
            Some(collection[..end].ends_with(b".$cmd") && names_hello(query)?)
        }
        _ => None,
    }
}

/// Returns whether the first field of a document is the name of hello; in OP_QUERY the command may
/// be inside `$query`.
fn names_hello(document: &[u8]) -> Option<bool> {
    const DOCUMENT: u8 = 3;
    let (kind, rest) = document.get(4..)?.split_first()?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    match &rest[..end] {
        b"hello" | b"isMaster" | b"ismaster" => Some(true),
        b"$query" | b"query" if *kind == DOCUMENT => {
            let (_, rest) = rest.get(end + 1 + 4..)?.split_first()?;
            let end = rest.iter().position(|byte| *byte == 0)?;
            Some(matches!(&rest[..end], b"hello" | b"isMaster" | b"ismaster"))
        }
        _ => Some(false),
    }
}
