//! Commands and replies on one connection, one at a time.

use bson::cstr;

use crate::auth::SecretDocument;
use crate::config::{OpeningHello, Options};
use crate::hello::{self, ReplyDocument};
use crate::wire::{
    Flags, Frames, MAX_HELLO_LEN, Message, WireError, op_code, write_op_msg, write_op_query,
};

/// What a message has besides its document. Room is made at once: a buffer that grew would leave
/// copies of secrets behind.
const ROOM: usize = 64;

/// Commands and replies on one connection, one at a time.
pub(super) struct Exchange {
    frames: Frames,
    /// The number of the last request.
    request_id: i32,
    /// The opcode of the reply that is due.
    due: Option<i32>,
}

/// Why what came is not the reply that is due.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExchangeError {
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("a message that nothing asked for")]
    Unasked,
    #[error("a reply that announces another one")]
    MoreToCome,
}

impl Default for Exchange {
    fn default() -> Self {
        Self { frames: Frames::with_limit(MAX_HELLO_LEN), request_id: 0, due: None }
    }
}

impl Exchange {
    /// Sends the first command; legacy hello may go by OP_QUERY, hello never does.
    pub(super) fn send_hello(
        &mut self,
        options: &Options,
        command: SecretDocument,
        out: &mut Vec<u8>,
    ) {
        if options.opening_hello() == OpeningHello::OpQuery && !hello::opens_with_hello(options) {
            self.expect(op_code::OP_REPLY);
            out.reserve(command.as_bytes().len() + ROOM);
            write_op_query(out, self.request_id, "admin", &command);
        } else {
            self.send_op_msg(command, "admin", out);
        }
    }

    /// Sends a later command; with the Stable API, every one declares it.
    pub(super) fn send(
        &mut self,
        options: &Options,
        mut command: SecretDocument,
        database: &str,
        out: &mut Vec<u8>,
    ) {
        hello::append_server_api(&mut command, options.server_api());
        self.send_op_msg(command, database, out);
    }

    fn send_op_msg(&mut self, mut command: SecretDocument, database: &str, out: &mut Vec<u8>) {
        command.append(cstr!("$db"), database);
        self.expect(op_code::OP_MSG);
        out.reserve(command.as_bytes().len() + ROOM);
        write_op_msg(out, self.request_id, 0, Flags::NONE, &command);
    }

    const fn expect(&mut self, op_code: i32) {
        self.request_id += 1;
        self.due = Some(op_code);
    }

    pub(super) fn receive(&mut self, bytes: &[u8]) {
        self.frames.extend(bytes);
    }

    /// Returns whether nothing has come that was not read.
    pub(super) const fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Returns the reply, or `None` if it has not come yet.
    pub(super) fn next_reply(&mut self) -> Result<Option<ReplyDocument>, ExchangeError> {
        let Some(message) = self.frames.next()? else { return Ok(None) };
        let op_code = self.due.take().ok_or(ExchangeError::Unasked)?;
        let (expected, found) = (self.request_id, message.header().response_to);
        if found != expected {
            return Err(WireError::ResponseTo { expected, found }.into());
        }
        read(&message, op_code).map(Some)
    }
}

fn read(message: &Message, op_code: i32) -> Result<ReplyDocument, ExchangeError> {
    if op_code == op_code::OP_REPLY {
        return Ok(ReplyDocument::new(message.bytes(), message.op_reply()?.document));
    }
    let reply = message.op_msg()?;
    match reply.flags.contains(Flags::MORE_TO_COME) {
        true => Err(ExchangeError::MoreToCome),
        false => Ok(ReplyDocument::new(message.bytes(), reply.body)),
    }
}
