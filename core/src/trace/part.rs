//! The bytes that have come over a link and are not a whole message yet.

use serde_json::Value;

use super::message;
use crate::wire::{HEADER_LEN, MAX_HELLO_LEN};

/// The memory that is kept for the next message, in bytes, however long the last one was.
pub(super) const MAX_SPARE_LEN: usize = 1 << 16;

/// The bytes of a message that is not whole yet.
#[derive(Debug, Default)]
pub(super) struct Part {
    /// From the beginning of the message, as many as are kept of one.
    kept: Vec<u8>,
    /// The number that have come behind those.
    let_go: usize,
}

/// The messages in the bytes of a link.
#[derive(Debug, Default)]
pub(super) struct Messages {
    /// The messages that became whole; behind them, how many bytes wait for the rest of one.
    pub(super) shown: Vec<Value>,
    /// The lengths of the messages that are too long to be shown.
    pub(super) omitted: usize,
    /// True if nothing became whole, and no more waits than a reader knows by the last power of two
    /// that was reached.
    pub(super) is_no_news: bool,
}

impl Part {
    /// Takes bytes, and shows the messages that they complete, if those have so many bytes at most.
    pub(super) fn receive(&mut self, mut bytes: &[u8], limit: usize) -> Messages {
        let limit = limit.max(HEADER_LEN);
        let (mut messages, waited) = (Messages::default(), self.len());
        loop {
            self.take(&mut bytes, size_of::<i32>().saturating_sub(self.len()), limit);
            let Some(length) = self.kept.first_chunk() else { break };
            let length = match usize::try_from(i32::from_le_bytes(*length)) {
                Ok(length) if (HEADER_LEN..=MAX_HELLO_LEN).contains(&length) => length,
                // No message, now and for ever.
                _ => self.len() + bytes.len(),
            };
            self.take(&mut bytes, length - self.len(), limit);
            if self.len() < length {
                break;
            }
            match self.let_go {
                0 => messages.shown.push(message::to_json(&self.kept)),
                _ => messages.omitted += length,
            }
            self.kept.clear();
            self.kept.shrink_to(MAX_SPARE_LEN);
            self.let_go = 0;
        }
        let is_whole = !messages.shown.is_empty() || messages.omitted > 0;
        let is_known = waited > 0 && waited.ilog2() == self.len().max(1).ilog2();
        messages.is_no_news = !is_whole && is_known;
        if self.len() > 0 {
            messages.shown.push(self.len().into());
        }
        messages
    }

    /// Returns how many bytes have come.
    const fn len(&self) -> usize {
        self.kept.len() + self.let_go
    }

    /// Returns how much memory it has.
    #[cfg(test)]
    pub(super) const fn reserved(&self) -> usize {
        self.kept.capacity()
    }

    /// Takes so many bytes, if there are as many.
    fn take(&mut self, bytes: &mut &[u8], count: usize, limit: usize) {
        let (taken, rest) = bytes.split_at(count.min(bytes.len()));
        *bytes = rest;
        let kept = taken.len().min(limit.saturating_sub(self.kept.len()));
        self.kept.extend_from_slice(&taken[..kept]);
        self.let_go += taken.len() - kept;
    }
}
