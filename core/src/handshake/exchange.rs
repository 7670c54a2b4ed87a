//! Commands and replies on one connection, one at a time.

use bson::cstr;

use crate::auth::SecretDocument;
use crate::config::{OpeningHello, Options};
use crate::hello::{self};
use crate::wire::{
    Awaited, Flags, Frames, MAX_HELLO_LEN, ReplyDocument, RequestIds, WireError, write_op_msg,
    write_op_query,
};

/// The room for a message besides its document. It is reserved at once: a buffer that grew would
/// leave copies of secrets behind.
const ROOM: usize = 64;

/// Commands and replies on one connection, one at a time.
pub(super) struct Exchange {
    frames: Frames,
    request_ids: RequestIds,
    due: Option<Awaited>,
}

/// The reason why what came is not the reply that is due.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExchangeError {
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("a message that nothing asked for")]
    Unasked,
}

impl Default for Exchange {
    fn default() -> Self {
        let request_ids = RequestIds::default();
        Self { frames: Frames::with_limit(MAX_HELLO_LEN), request_ids, due: None }
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
            let id = self.request_ids.next_id();
            self.due = Some(Awaited::op_reply(id));
            out.reserve(command.as_bytes().len() + ROOM);
            write_op_query(out, id, "admin", &command);
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
        let id = self.request_ids.next_id();
        self.due = Some(Awaited::op_msg(id));
        out.reserve(command.as_bytes().len() + ROOM);
        write_op_msg(out, id, 0, Flags::NONE, &command);
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
        let due = self.due.take().ok_or(ExchangeError::Unasked)?;
        Ok(Some(due.read(&message)?.document))
    }
}
