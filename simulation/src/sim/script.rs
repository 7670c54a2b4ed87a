//! Commands that a script answers in the place of members, which keep to the truth.

use std::fmt::Debug;

use bson::{RawDocument, RawDocumentBuf};
use sdam_core::wire::{Flags, Frames, write_op_msg};

/// Answers commands in the place of members.
pub(crate) trait Script: Debug + Send + Sync {
    /// Returns the reply to a command, or `None` if the member is to answer it.
    fn answer(&self, command: &RawDocument) -> Option<RawDocumentBuf>;
}

/// Returns the reply to what a client has sent, if that is a message which the script answers.
pub(super) fn answer(script: &dyn Script, bytes: &[u8]) -> Option<Vec<u8>> {
    let mut frames = Frames::new();
    frames.extend(bytes);
    let message = frames.next().ok()??;
    let reply = script.answer(message.op_msg().ok()?.body)?;
    let mut bytes = Vec::new();
    write_op_msg(&mut bytes, 0, message.header().request_id, Flags::NONE, &reply);
    Some(bytes)
}
