//! The relay of a proxy that keeps the members of a deployment apart: messages pass as they are,
//! but for replies to hello, in which members have other names.
//!
//! Messages are those of the wire protocol; which replies follow each other without a request is
//! said by OP_MSG, "exhaustAllowed".

mod opening;
#[cfg(test)]
mod tests;

use bytes::Bytes;

use self::opening::Opening;
use super::{ReplyError, rename_members};
use crate::config::ServerAddress;
use crate::wire::{
    Decompressor, Flags, HEADER_LEN, Header, MAX_HELLO_LEN, MAX_MESSAGE_LEN, Message, WireError,
    op_code, write_op_msg, write_op_reply,
};

/// The number of hellos that a client may have sent on one connection without having had a reply.
pub const MAX_OPEN_HELLOS: usize = 100;

/// One connection of a client to a member through a proxy: both directions of it, without sockets.
///
/// The proxy shows every byte of the client to [`request`](Self::request) and passes it on; what
/// comes from the member goes through [`reply`](Self::reply). Of each request only the beginning is
/// looked at, and of each reply the header; they pass as they come, in pieces. A hello is known in
/// each of its forms (`hello`, `isMaster`, `ismaster`, in OP_MSG, OP_QUERY or compressed). A reply
/// to it is held back until it is whole, which takes [`MAX_HELLO_LEN`] bytes at most. If it was
/// compressed, it goes on without being so if a member has another name in it.
///
/// ```
/// use sdam_core::bson::rawdoc;
/// use sdam_core::config::ServerAddress;
/// use sdam_core::hello::Relay;
/// use sdam_core::wire::{Flags, Frames, write_op_msg};
///
/// let (mut relay, mut frames) = (Relay::new(), Frames::new());
/// let (mut hello, mut reply, mut out) = (Vec::new(), Vec::new(), Vec::new());
/// write_op_msg(&mut hello, 7, 0, Flags::NONE, &rawdoc! { "hello": 1, "$db": "admin" });
/// write_op_msg(&mut reply, 1, 7, Flags::NONE, &rawdoc! { "me": "db1:27017", "ok": 1 });
///
/// let here: ServerAddress = "127.0.0.1:27100".parse()?;
/// relay.request(&hello)?;
/// relay.reply(&reply, |_| Some(here.clone()), &mut out)?;
/// frames.extend(&out);
/// let renamed = frames.next()?.expect("a whole message");
/// assert_eq!(renamed.op_msg()?.body.get_str("me")?, "127.0.0.1:27100");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Relay {
    requests: Opening,
    /// The header of the reply that comes, as far as it is there.
    header: Vec<u8>,
    /// The number of bytes of a reply that are still to pass.
    passing: usize,
    /// The reply to a hello that is held back, and its length.
    held: Option<(Vec<u8>, usize)>,
    /// The messages whose replies are replies to hello.
    awaited: Vec<i32>,
    decompressor: Decompressor,
}

/// The reason why a connection cannot go on; after that its relay is of no more use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RelayError {
    /// The client sent what is no message.
    #[error("the client sent {0}")]
    Request(WireError),
    /// The client began with TLS.
    #[error("the client speaks TLS, which this port does not; connect without TLS")]
    Tls,
    /// The client asks again and again, and does not wait for replies.
    #[error("the client sent more than {MAX_OPEN_HELLOS} hellos without a reply")]
    TooManyHellos,
    /// The member sent what is no message, or no reply to hello.
    #[error("the server's message makes no sense: {0}")]
    Reply(WireError),
    /// The member's reply to hello cannot be read.
    #[error("the server's reply to hello makes no sense: {0}")]
    Hello(ReplyError),
}

impl From<ReplyError> for RelayError {
    fn from(error: ReplyError) -> Self {
        Self::Hello(error)
    }
}

impl Relay {
    /// Begins at the beginning of a connection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Looks at bytes of the client, all of which are to be passed on. How they are split changes
    /// nothing.
    ///
    /// # Errors
    ///
    /// Fails if they are no messages, or too many of them are hellos.
    pub fn request(&mut self, bytes: &[u8]) -> Result<(), RelayError> {
        let Self { requests, awaited, decompressor, .. } = self;
        requests.read(bytes, decompressor, |request| match awaited.len() < MAX_OPEN_HELLOS {
            true => {
                awaited.push(request);
                Ok(())
            }
            false => Err(RelayError::TooManyHellos),
        })
    }

    /// Takes bytes of the member, and appends to `out` what the client is to have of them. How they
    /// are split changes nothing in all that is appended.
    ///
    /// `name` says how a member is called here, or nothing if it keeps its name.
    ///
    /// # Errors
    ///
    /// Fails if they are no messages, or a reply to hello cannot be read.
    pub fn reply(
        &mut self,
        mut bytes: &[u8],
        mut name: impl FnMut(&ServerAddress) -> Option<ServerAddress>,
        out: &mut Vec<u8>,
    ) -> Result<(), RelayError> {
        while !bytes.is_empty() {
            if self.passing > 0 {
                let passed = take(&mut bytes, self.passing);
                self.passing -= passed.len();
                out.extend_from_slice(passed);
            } else if let Some((held, length)) = &mut self.held {
                held.extend_from_slice(take(&mut bytes, *length - held.len()));
            } else {
                let missing = HEADER_LEN - self.header.len();
                self.header.extend_from_slice(take(&mut bytes, missing));
                self.begin(out)?;
            }
            if let Some((held, _)) = self.held.take_if(|(held, length)| held.len() == *length) {
                self.rename(&Bytes::from(held), &mut name, out)?;
            }
        }
        Ok(())
    }

    /// Decides what becomes of a reply, once its header is there.
    fn begin(&mut self, out: &mut Vec<u8>) -> Result<(), RelayError> {
        let Some(header) = header(&self.header) else { return Ok(()) };
        let length = length(header, MAX_MESSAGE_LEN).map_err(RelayError::Reply)?;
        let mut awaited = self.awaited.iter();
        match awaited.position(|request| *request == header.response_to) {
            None => {
                out.extend_from_slice(&self.header);
                self.passing = length - HEADER_LEN;
                self.header.clear();
            }
            Some(at) => {
                self.awaited.swap_remove(at);
                let length = self::length(header, MAX_HELLO_LEN).map_err(RelayError::Reply)?;
                self.held = Some((std::mem::take(&mut self.header), length));
            }
        }
        Ok(())
    }

    /// Passes a reply to hello on, with other names for the members.
    fn rename(
        &mut self,
        bytes: &Bytes,
        name: impl FnMut(&ServerAddress) -> Option<ServerAddress>,
        out: &mut Vec<u8>,
    ) -> Result<(), RelayError> {
        let message = Message::try_from(bytes.clone()).map_err(RelayError::Reply)?;
        let message = self.decompressed(message).map_err(RelayError::Reply)?;
        let Header { request_id, response_to, .. } = message.header();
        if message.header().op_code == op_code::OP_REPLY {
            let reply = message.op_reply().map_err(RelayError::Reply)?;
            match rename_members(reply.document, name)? {
                None => out.extend_from_slice(bytes),
                Some(it) => write_op_reply(out, request_id, response_to, reply.flags, &it),
            }
            return Ok(());
        }
        let reply = message.op_msg().map_err(RelayError::Reply)?;
        if reply.flags.contains(Flags::MORE_TO_COME) {
            self.awaited.push(request_id);
        }
        match rename_members(reply.body, name)? {
            None => out.extend_from_slice(bytes),
            Some(it) => write_op_msg(out, request_id, response_to, reply.flags, &it),
        }
        Ok(())
    }

    /// Undoes compression, unless that would make it longer than a reply to hello may be.
    fn decompressed(&mut self, message: Message) -> Result<Message, WireError> {
        let is_compressed = message.header().op_code == op_code::OP_COMPRESSED;
        match integer(message.body(), 4).filter(|_| is_compressed) {
            Some(claimed) if usize::try_from(claimed).is_ok_and(|it| it > MAX_HELLO_LEN) => {
                Err(WireError::Length { length: claimed, most: MAX_HELLO_LEN })
            }
            _ => self.decompressor.decompress(message),
        }
    }
}

/// Takes at most so many bytes from the beginning.
fn take<'a>(bytes: &mut &'a [u8], most: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(most.min(bytes.len()));
    *bytes = rest;
    taken
}

/// Reads the little-endian integer at a place, if it is there.
fn integer(bytes: &[u8], at: usize) -> Option<i32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(i32::from_le_bytes(*bytes))
}

/// Reads the header that a message begins with, once it is there.
fn header(bytes: &[u8]) -> Option<Header> {
    let field = |at| integer(bytes, at);
    let (length, request_id) = (field(0)?, field(4)?);
    Some(Header { length, request_id, response_to: field(8)?, op_code: field(12)? })
}

/// Returns the length of a message, if it may have that.
fn length(Header { length, .. }: Header, most: usize) -> Result<usize, WireError> {
    match usize::try_from(length) {
        Ok(length) if (HEADER_LEN..=most).contains(&length) => Ok(length),
        _ => Err(WireError::Length { length, most }),
    }
}
