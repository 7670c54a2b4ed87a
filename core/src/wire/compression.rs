//! OP_COMPRESSED: a message whose content is compressed.
//!
//! Implements the [Wire Compression] specification below its handshake: what may be compressed, how
//! a message is wrapped, and how it is unwrapped without trust in the sizes that it claims.
//!
//! [Wire Compression]: https://github.com/mongodb/specifications/blob/master/source/compression/OP_COMPRESSED.md

#[cfg(feature = "snappy")]
mod snappy;
#[cfg(feature = "zlib")]
mod zlib;
#[cfg(feature = "zstd")]
mod zstd;

use std::fmt;

use super::{HEADER_LEN, MAX_MESSAGE_LEN, Message, WireError, finish, op_code, take_i32};

/// The length of the fields between the header and the compressed bytes: the opcode of the message
/// inside, its size, and the number of the compressor.
const PREFIX_LEN: usize = 9;

/// The number of "noop": nothing is compressed. Only read, never written.
const NOOP: u8 = 0;

/// Commands whose messages MUST NOT be compressed, lest their secrets show in lengths.
const NEVER_COMPRESSED: [&str; 11] = [
    "hello",
    "isMaster",
    "saslStart",
    "saslContinue",
    "getnonce",
    "authenticate",
    "createUser",
    "updateUser",
    "copydbSaslStart",
    "copydbgetnonce",
    "copydb",
];

/// Returns whether messages of this command may be compressed: those about authentication may not.
///
/// ```
/// use sdam_core::wire::may_be_compressed;
///
/// assert!(may_be_compressed("find"));
/// assert!(!may_be_compressed("saslStart"));
/// ```
pub fn may_be_compressed(command_name: &str) -> bool {
    // "ismaster" is a name of its own to servers; of other commands one spelling is the right one.
    !NEVER_COMPRESSED.iter().any(|name| name.eq_ignore_ascii_case(command_name))
}

/// An algorithm that messages may be compressed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compressor {
    /// Snappy.
    Snappy,
    /// zlib.
    Zlib,
    /// Zstandard.
    Zstd,
}

impl Compressor {
    /// Returns the name in `compressors` and in the handshake.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Snappy => "snappy",
            Self::Zlib => "zlib",
            Self::Zstd => "zstd",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        [Self::Snappy, Self::Zlib, Self::Zstd].into_iter().find(|known| known.name() == name)
    }
}

/// Returns whether this build can compress and decompress with `compressor`: what may be offered in
/// a handshake.
pub const fn is_compiled_in(compressor: Compressor) -> bool {
    match compressor {
        Compressor::Snappy => cfg!(feature = "snappy"),
        Compressor::Zlib => cfg!(feature = "zlib"),
        Compressor::Zstd => cfg!(feature = "zstd"),
    }
}

/// A compressor that this build does not contain; each is a feature of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} is not compiled in; the feature \"{name}\" adds it", name = .0.name())]
pub struct NotCompiledIn(pub Compressor);

/// One direction of one algorithm. What it allocates, it uses again for the next message.
trait Encode: Send {
    /// Returns the room to be lent for `length` bytes.
    fn room(&self, length: usize) -> usize;

    /// Compresses `input` and returns how much of `output` that took, or `None` if it did not fit.
    fn encode(&mut self, input: &[u8], output: &mut [u8]) -> Option<usize>;
}

/// The other direction.
trait Decode: Send {
    /// Fills `output` and returns how many bytes `input` holds. Any count beyond the length of
    /// `output` stands for "more than that".
    fn decode(&mut self, input: &[u8], output: &mut [u8]) -> Result<usize, String>;
}

/// One connection's compressor, with the memory that it uses again for every message.
///
/// ```
/// # #[cfg(feature = "snappy")] {
/// use bson::rawdoc;
/// use sdam_core::wire::Compressor;
/// use sdam_core::wire::{Compression, Flags, write_op_msg};
///
/// let mut compression = Compression::new(Compressor::Snappy, -1)?;
/// let (mut out, start) = (Vec::new(), 0);
/// write_op_msg(&mut out, 1, 0, Flags::NONE, &rawdoc! { "insert": "c", "text": "a".repeat(500) });
/// compression.compress(&mut out, start);
/// assert!(out.len() < 100);
/// # }
/// # Ok::<(), sdam_core::wire::NotCompiledIn>(())
/// ```
pub struct Compression {
    compressor: Compressor,
    encoder: Box<dyn Encode>,
}

impl Compression {
    /// Creates what compresses with `compressor`. How hard zlib tries is a number from 0 to 9, or
    /// -1 for its own default; the other compressors have no level.
    ///
    /// # Errors
    ///
    /// [`NotCompiledIn`] if this build does not contain the compressor.
    pub fn new(compressor: Compressor, zlib_level: i32) -> Result<Self, NotCompiledIn> {
        Ok(Self { compressor, encoder: encoder(compressor, zlib_level)? })
    }

    /// Returns the compressor.
    pub const fn compressor(&self) -> Compressor {
        self.compressor
    }

    /// Replaces the message that begins at `start` and ends where `out` does by a compressed one.
    ///
    /// A message that would become longer than [`MAX_MESSAGE_LEN`] stays as it is. The compressed
    /// bytes are written behind the message before they take its place, so that `out` is for a
    /// moment twice as long.
    ///
    /// # Panics
    ///
    /// Panics if no whole message begins at `start`, or one that is compressed already.
    pub fn compress(&mut self, out: &mut Vec<u8>, start: usize) {
        let (body, end) = (start + HEADER_LEN, out.len());
        assert!(body <= end, "a message is at least as long as its header");
        let size = i32::try_from(end - body).expect("a message has at most MAX_MESSAGE_LEN bytes");
        let op_code: [u8; 4] = out[body - 4..body].try_into().expect("four bytes are four bytes");
        assert_ne!(op_code, op_code::OP_COMPRESSED.to_le_bytes(), "a message is compressed once");

        out.resize(end + PREFIX_LEN + self.encoder.room(end - body), 0);
        let (messages, room) = out.split_at_mut(end);
        let written = self.encoder.encode(&messages[body..], room);
        match written.filter(|written| HEADER_LEN + PREFIX_LEN + written <= MAX_MESSAGE_LEN) {
            None => out.truncate(end),
            Some(written) => {
                let content = body + PREFIX_LEN;
                out.copy_within(end..end + written, content);
                out.truncate(content + written);
                out[body - 4..body].copy_from_slice(&op_code::OP_COMPRESSED.to_le_bytes());
                out[body..body + 4].copy_from_slice(&op_code);
                out[body + 4..body + 8].copy_from_slice(&size.to_le_bytes());
                out[body + 8] = id(self.compressor);
                finish(out, start);
            }
        }
    }
}

impl fmt::Debug for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compression").field("compressor", &self.compressor).finish_non_exhaustive()
    }
}

/// One connection's way to undo OP_COMPRESSED; it owns no memory until a compressed message comes,
/// and after that what one compressor needs.
///
/// ```
/// use sdam_core::wire::{Decompressor, Frames};
///
/// let (mut frames, mut decompressor) = (Frames::new(), Decompressor::new());
/// // OP_COMPRESSED with the noop compressor, 5 bytes, around OP_MSG.
/// frames.extend(&[30, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 220, 7, 0, 0]);
/// frames.extend(&[221, 7, 0, 0, 5, 0, 0, 0, 0, 1, 2, 3, 4, 5]);
/// let message = frames.next()?.expect("a whole message");
/// assert_eq!(decompressor.decompress(message)?.body(), [1, 2, 3, 4, 5]);
/// # Ok::<(), sdam_core::wire::WireError>(())
/// ```
#[derive(Default)]
pub struct Decompressor {
    /// The decoder of the last compressed message. A server has no reason to use two compressors.
    last: Option<(Compressor, Box<dyn Decode>)>,
}

impl Decompressor {
    /// Creates a decompressor, which owns no memory yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Undoes OP_COMPRESSED; other messages pass as they are.
    ///
    /// The compressor is the one that the message names, as the specification demands. Memory is
    /// reserved for what a message claims to hold only if its length makes that possible.
    ///
    /// # Errors
    ///
    /// Says what is wrong if the message is malformed, nested, not of the size that it claims, or
    /// of a compressor that this build does not contain.
    pub fn decompress(&mut self, message: Message) -> Result<Message, WireError> {
        let header = message.header();
        if header.op_code != op_code::OP_COMPRESSED {
            return Ok(message);
        }
        let Compressed { op_code, size, compressor, content } = Compressed::parse(message.body())?;
        let length = i32::try_from(HEADER_LEN + size).expect("MAX_MESSAGE_LEN fits");
        let mut bytes = vec![0; HEADER_LEN + size];
        let fields = [length, header.request_id, header.response_to, op_code];
        for (place, field) in bytes.chunks_exact_mut(4).zip(fields) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        let found = self.decode(compressor, content, &mut bytes[HEADER_LEN..])?;
        match found == size {
            true => Ok(Message::new(bytes.into())),
            false => Err(WireError::UncompressedSizeMismatch { claimed: size, found }),
        }
    }

    fn decode(
        &mut self,
        compressor: Option<Compressor>,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<usize, WireError> {
        let Some(compressor) = compressor else {
            if input.len() == output.len() {
                output.copy_from_slice(input);
            }
            return Ok(input.len());
        };
        let decoder = match &mut self.last {
            Some((last, decoder)) if *last == compressor => decoder,
            last => &mut last.insert((compressor, decoder(compressor)?)).1,
        };
        decoder
            .decode(input, output)
            .map_err(|reason| WireError::Compressed { compressor: compressor.name(), reason })
    }
}

/// The content of an OP_COMPRESSED, as it came.
pub(super) struct Compressed<'a> {
    op_code: i32,
    /// The length of what it stands for, without a header.
    size: usize,
    compressor: Option<Compressor>,
    content: &'a [u8],
}

impl<'a> Compressed<'a> {
    /// Reads what follows the header.
    pub(super) fn parse(mut body: &'a [u8]) -> Result<Self, WireError> {
        let rest = &mut body;
        let op_code = take_i32(rest, "opcode of the compressed message")?;
        let claimed = take_i32(rest, "uncompressed size")?;
        let (&id, content) = rest.split_first().ok_or(WireError::Truncated("compressor"))?;
        if op_code == op_code::OP_COMPRESSED {
            return Err(WireError::NestedCompression);
        }
        let size = usize::try_from(claimed).ok().filter(|n| *n <= MAX_MESSAGE_LEN - HEADER_LEN);
        let size = size.ok_or(WireError::UncompressedSize(claimed))?;

        let compressor = match id {
            NOOP => None,
            id => Some(from_id(id).ok_or(WireError::UnknownCompressor(id))?),
        };
        let possible = content.len().saturating_mul(max_ratio(compressor));
        if size > possible {
            return Err(WireError::ImpossibleSize { claimed: size, compressed: content.len() });
        }
        Ok(Self { op_code, size, compressor, content })
    }
}

impl fmt::Debug for Decompressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.last.as_ref().map(|(compressor, _)| compressor);
        f.debug_struct("Decompressor").field("last", &last).finish_non_exhaustive()
    }
}

#[cfg_attr(not(feature = "zlib"), allow(unused_variables, reason = "only zlib has a level"))]
fn encoder(compressor: Compressor, zlib_level: i32) -> Result<Box<dyn Encode>, NotCompiledIn> {
    match compressor {
        #[cfg(feature = "snappy")]
        Compressor::Snappy => Ok(Box::<snappy::Encoder>::default()),
        #[cfg(feature = "zlib")]
        Compressor::Zlib => Ok(Box::new(zlib::Encoder::new(zlib_level))),
        #[cfg(feature = "zstd")]
        Compressor::Zstd => Ok(Box::<zstd::Encoder>::default()),
        #[allow(unreachable_patterns, reason = "all of them may be compiled in")]
        missing => Err(NotCompiledIn(missing)),
    }
}

fn decoder(compressor: Compressor) -> Result<Box<dyn Decode>, NotCompiledIn> {
    match compressor {
        #[cfg(feature = "snappy")]
        Compressor::Snappy => Ok(Box::<snappy::Decoder>::default()),
        #[cfg(feature = "zlib")]
        Compressor::Zlib => Ok(Box::<zlib::Decoder>::default()),
        #[cfg(feature = "zstd")]
        Compressor::Zstd => Ok(Box::<zstd::Decoder>::default()),
        #[allow(unreachable_patterns, reason = "all of them may be compiled in")]
        missing => Err(NotCompiledIn(missing)),
    }
}

/// The number of a compressor in OP_COMPRESSED.
const fn id(compressor: Compressor) -> u8 {
    match compressor {
        Compressor::Snappy => 1,
        Compressor::Zlib => 2,
        Compressor::Zstd => 3,
    }
}

fn from_id(number: u8) -> Option<Compressor> {
    let all = [Compressor::Snappy, Compressor::Zlib, Compressor::Zstd];
    all.into_iter().find(|compressor| id(*compressor) == number)
}

/// The number of bytes that one compressed byte stands for at most, whatever the input.
const fn max_ratio(compressor: Option<Compressor>) -> usize {
    match compressor {
        None => 1,
        // 3 bytes copy 64.
        Some(Compressor::Snappy) => 22,
        // 2 bits copy 258.
        Some(Compressor::Zlib) => 1_032,
        // 4 bytes are a block of 128 KiB that repeats one byte.
        Some(Compressor::Zstd) => 32_768,
    }
}

#[cfg(test)]
mod tests;
