//! A read buffer that yields whole messages without copying them.

use std::io;

use bytes::{Buf, BytesMut};

use super::{HEADER_LEN, MAX_HELLO_LEN, MAX_MESSAGE_LEN, Message, WireError};

/// The least number of bytes to read when the length of the next message is not known yet.
const READ_AHEAD: usize = 1024;

/// The memory that a length which a peer merely claims may reserve at once, in bytes.
const MAX_RESERVE: usize = 1 << 20;

/// A read buffer that yields whole messages without copying them.
///
/// A socket reads into [`spare`](Self::spare) and reports with [`fill`](Self::fill) how much came;
/// a caller that has bytes already calls [`extend`](Self::extend). A message keeps the memory it
/// was read into alive; the buffer itself holds none while it is empty.
///
/// ```
/// use sdam_core::wire::Frames;
///
/// let mut frames = Frames::new();
/// frames.extend(&[16, 0, 0, 0]);
/// assert!(frames.next()?.is_none());
/// frames.extend(&[0; 12]);
/// assert_eq!(frames.next()?.unwrap().header().length, 16);
/// # Ok::<(), sdam_core::wire::WireError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Frames {
    /// Bytes received, and behind them the zeroed space that `spare` lends.
    buffer: BytesMut,
    /// The number of bytes of `buffer` that were received.
    filled: usize,
    /// The maximum length of a message.
    limit: usize,
}

impl Default for Frames {
    fn default() -> Self {
        Self::new()
    }
}

impl Frames {
    /// Creates an empty buffer, which owns no memory, for messages of any length that is allowed.
    pub fn new() -> Self {
        Self::with_limit(MAX_MESSAGE_LEN)
    }

    /// Creates an empty buffer for messages of at most `limit` bytes, and never more than
    /// [`MAX_MESSAGE_LEN`]: for what a peer sends of whom nothing is known yet.
    pub fn with_limit(limit: usize) -> Self {
        Self { buffer: BytesMut::new(), filled: 0, limit: limit.min(MAX_MESSAGE_LEN) }
    }

    /// Returns space to read into, never empty: the rest of the current message once its length is
    /// known, and no more than that, so that a message ends where its memory does.
    pub fn spare(&mut self) -> &mut [u8] {
        let wanted = match self.length() {
            Ok(Some(length)) if length > self.filled => {
                (length - self.filled).min(MAX_RESERVE.max(self.filled))
            }
            _ => READ_AHEAD,
        };
        self.buffer.resize(self.filled + wanted, 0);
        &mut self.buffer[self.filled..]
    }

    /// Records that the first `count` bytes of [`spare`](Self::spare) were filled.
    ///
    /// # Panics
    ///
    /// Panics if `spare` lent less than that.
    pub fn fill(&mut self, count: usize) {
        assert!(self.filled + count <= self.buffer.len(), "more was filled than was spare");
        self.filled += count;
    }

    /// Appends bytes that were received elsewhere.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.buffer.truncate(self.filled);
        self.buffer.extend_from_slice(bytes);
        self.filled += bytes.len();
    }

    /// Returns the next whole message, or `None` if more must be read first.
    ///
    /// # Errors
    ///
    /// [`WireError::Length`] if the next message claims a length outside the allowed range, now and
    /// for ever: where a message ends is not known any more, so the stream is of no more use.
    #[allow(clippy::should_implement_trait, reason = "a stream that may continue is no iterator")]
    pub fn next(&mut self) -> Result<Option<Message>, WireError> {
        match self.length()? {
            Some(length) if length <= self.filled => {
                // The last message takes the memory with it.
                let bytes = if length == self.filled {
                    self.buffer.truncate(length);
                    std::mem::take(&mut self.buffer).freeze()
                } else {
                    self.buffer.split_to(length).freeze()
                };
                self.filled -= length;
                Ok(Some(Message::new(bytes)))
            }
            _ => Ok(None),
        }
    }

    /// Returns whether bytes of an unfinished message are waiting for the rest of it.
    pub const fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// The length of the current message, once its first four bytes are there.
    fn length(&self) -> Result<Option<usize>, WireError> {
        if self.filled < 4 {
            return Ok(None);
        }
        if self.limit <= MAX_HELLO_LEN && is_tls_alert(&self.buffer[..self.filled]) {
            return Err(WireError::OtherProtocol("TLS"));
        }
        let length = (&self.buffer[..4]).get_i32_le();
        match usize::try_from(length) {
            Ok(length) if (HEADER_LEN..=self.limit).contains(&length) => Ok(Some(length)),
            _ => Err(match other_protocol(&self.buffer[..4]) {
                Some(protocol) => WireError::OtherProtocol(protocol),
                None => WireError::Length { length, most: self.limit },
            }),
        }
    }
}

/// Returns which protocol the first four bytes of an answer belong to, if it is a well-known one;
/// the lengths that they would stand for are not allowed.
pub fn other_protocol(first: &[u8]) -> Option<&'static str> {
    match first {
        b"HTTP" | b"<htm" | b"<HTM" | b"<!DO" | b"<!do" => Some("HTTP"),
        b"SSH-" => Some("SSH"),
        b"-ERR" | b"-NOA" | b"-DEN" | b"+PON" => Some("the protocol of Redis"),
        b"220 " | b"220-" => Some("SMTP or FTP"),
        _ => None,
    }
}

/// Returns whether an answer is a TLS record with an alert. The length that its first bytes would
/// stand for is allowed, but no reply to hello has it.
const fn is_tls_alert(bytes: &[u8]) -> bool {
    matches!(bytes, [21, 3, 1..=4, 0, 2, 1 | 2, ..])
}

/// Takes everything.
impl io::Write for Frames {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Frames, MAX_MESSAGE_LEN, MAX_RESERVE, READ_AHEAD, WireError};

    fn frame(body: &[u8]) -> Vec<u8> {
        let mut bytes = i32::try_from(16 + body.len()).unwrap().to_le_bytes().to_vec();
        bytes.extend_from_slice(&[7; 12]);
        bytes.extend_from_slice(body);
        bytes
    }

    #[test]
    fn lengths_outside_the_limits_are_refused_and_the_edges_accepted() {
        for length in [15, 0, -1, i32::MIN, 48_000_001, i32::MAX] {
            let mut frames = Frames::new();
            frames.extend(&length.to_le_bytes());
            let error = WireError::Length { length, most: MAX_MESSAGE_LEN };
            assert_eq!(frames.next().unwrap_err(), error);
            assert_eq!(frames.next().unwrap_err(), error, "and for ever");
        }
        for length in [16, 48_000_000_i32] {
            let mut frames = Frames::new();
            frames.extend(&length.to_le_bytes());
            assert!(frames.next().unwrap().is_none());
        }
        assert_eq!(MAX_MESSAGE_LEN, 48_000_000);
    }

    #[test]
    fn a_lower_limit_holds_at_its_edge_and_a_higher_one_is_that_of_all_messages() {
        for (limit, most) in [(100, 100), (usize::MAX, MAX_MESSAGE_LEN)] {
            let refused = i32::try_from(most).unwrap() + 1;
            let mut frames = Frames::with_limit(limit);
            frames.extend(&refused.to_le_bytes());
            let error = frames.next().unwrap_err();
            assert_eq!(error, WireError::Length { length: refused, most });
        }
        let mut frames = Frames::with_limit(100);
        frames.extend(&frame(&[0; 84]));
        assert_eq!(frames.next().unwrap().unwrap().header().length, 100);
    }

    #[test]
    fn a_claimed_length_reserves_little_memory() {
        let mut frames = Frames::new();
        frames.extend(&48_000_000_i32.to_le_bytes());
        assert_eq!(frames.spare().len(), MAX_RESERVE);
    }

    #[test]
    fn spare_ends_where_the_message_does() {
        let mut frames = Frames::new();
        assert_eq!(frames.spare().len(), READ_AHEAD);
        let bytes = frame(&[1; 5000]);
        frames.spare()[..20].copy_from_slice(&bytes[..20]);
        frames.fill(20);
        assert_eq!(frames.spare().len(), bytes.len() - 20);
        let rest = bytes.len() - 20;
        frames.spare().copy_from_slice(&bytes[20..]);
        frames.fill(rest);
        assert_eq!(frames.next().unwrap().unwrap().bytes()[..], bytes[..]);
        assert!(frames.is_empty() && frames.buffer.capacity() == 0, "an idle buffer owns nothing");
    }

    proptest! {
        /// Law 6 of `Machine`: how the bytes are split changes nothing.
        #[test]
        fn splitting_the_bytes_changes_nothing(
            bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..6),
            cuts in prop::collection::vec(1_usize..40, 0..40),
            read in any::<bool>(),
        ) {
            let bytes: Vec<u8> = bodies.iter().flat_map(|body| frame(body)).collect();
            let (mut frames, mut got, mut rest) = (Frames::new(), Vec::new(), &bytes[..]);
            let mut cuts = cuts.into_iter();
            while !rest.is_empty() {
                let mut count = cuts.next().unwrap_or(rest.len()).min(rest.len());
                if read {
                    let spare = frames.spare();
                    count = count.min(spare.len());
                    spare[..count].copy_from_slice(&rest[..count]);
                    frames.fill(count);
                } else {
                    frames.extend(&rest[..count]);
                }
                rest = &rest[count..];
                while let Some(message) = frames.next().unwrap() {
                    got.push(message.bytes().to_vec());
                }
            }
            let expected: Vec<Vec<u8>> = bodies.iter().map(|body| frame(body)).collect();
            prop_assert_eq!(got, expected);
        }
    }
}
