//! The rules of operations, sessions, cursors and bulk writes, judged by what is heard on the
//! network and by what applications are given.
//!
//! - [`sessions`]: a session is used by one holder at a time, and by others when it may be.
//! - [`cursors`]: a cursor is continued and closed where it was opened.
//! - [`times`]: commands carry the latest times that replies have brought.
//! - [`transactions`]: commands of a transaction carry what they must, in order, to one server.
//! - [`files`]: a file is stored after its chunks, removed before them, and read as it was written.
//! - [`retries`]: an operation is sent again as often as it may be, and elsewhere if it can be.
//! - [`streams`]: a change stream goes on where it has come to, once for each error.
//! - [`writes`]: an ordered bulk stops at an error, and results name what was inserted.

mod cursors;
mod files;
mod retries;
mod sessions;
mod streams;
mod times;
mod transactions;
mod writes;

use sdam_core::time::Instant;

use super::conversation::Heard;
use super::operations::Operations;
use crate::sim::checks::{Finding, ensure};

pub(super) use files::{FailedAbort, Fate, Known, Source};
pub(super) use retries::{Choice, Retries};
pub(super) use streams::Beginning;
pub(super) use transactions::Transactions;

use cursors::Cursors;
use files::Files;
use sessions::Sessions;
use streams::Streams;
use times::Times;
use writes::Writes;

/// All checks, of all clients.
#[derive(Debug)]
pub(super) struct Checks {
    pub(super) sessions: Sessions,
    pub(super) cursors: Cursors,
    pub(super) files: Files,
    pub(super) times: Times,
    pub(super) retries: Retries,
    pub(super) streams: Streams,
    pub(super) writes: Writes,
    pub(super) transactions: Transactions,
}

/// The situation of a client that sends a command.
#[derive(Clone, Debug)]
pub(super) struct Situation {
    /// True if nothing else of the client is under way.
    pub(super) is_alone: bool,
    /// The members that the client may choose from.
    pub(super) choice: Choice,
}

impl Checks {
    pub(super) fn new(is_sharded: bool, retries: Retries) -> Self {
        Self {
            sessions: Sessions::default(),
            cursors: Cursors::default(),
            files: Files::default(),
            times: Times::default(),
            streams: Streams::new(retries.most()),
            retries,
            writes: Writes::default(),
            transactions: Transactions::new(is_sharded),
        }
    }

    /// Judges what is heard.
    pub(super) fn hear(
        &mut self,
        now: Instant,
        heard: &Heard,
        operations: &Operations,
        situation: impl FnOnce() -> Situation,
    ) -> Finding {
        match heard {
            Heard::Command(command) if self.transactions.is_question(command) => {
                self.times.sent(command, operations)?;
                self.transactions.asked(command)?;
                self.retries.sent(command, operations, &situation().choice)?;
                self.sessions.asked(command);
                Ok(())
            }
            Heard::Reply(command, reply) if self.transactions.is_question(command) => {
                self.times.replied(command, reply, operations);
                self.retries.replied(command, reply);
                Ok(())
            }
            Heard::Lost(command) if self.transactions.is_question(command) => {
                self.retries.lost(now, command);
                Ok(())
            }
            Heard::Command(command) => {
                let situation = situation();
                self.times.sent(command, operations)?;
                self.cursors.sent(command)?;
                self.files.sent(command)?;
                self.streams.sent(command)?;
                self.writes.sent(command)?;
                let retries = &self.retries;
                self.transactions.ends(command, |member, since| {
                    retries.was_steady((command.line.client, member), since, &situation.choice)
                });
                self.transactions.sent(command)?;
                self.retries.sent(command, operations, &situation.choice)?;
                self.sessions.sent(command, operations, situation.is_alone)
            }
            Heard::Reply(command, reply) => {
                self.times.replied(command, reply, operations);
                self.cursors.replied(command, reply, operations);
                self.files.replied(command, reply);
                self.streams.replied(command, reply);
                self.writes.replied(command, reply);
                self.transactions.replied(command, reply);
                self.retries.replied(command, reply);
                self.sessions.replied(command, reply, operations);
                Ok(())
            }
            Heard::Lost(command) => {
                self.sessions.lost(command);
                self.transactions.lost(command);
                self.cursors.lost(command);
                self.retries.lost(now, command);
                self.files.lost(now, command)
            }
            Heard::Unread(command, reply) => {
                self.times.unread(now, command.line);
                self.sessions.unread(command);
                self.cursors.unread(reply);
                self.files.unread(now, command);
                Ok(())
            }
            Heard::Unused(line) => {
                self.files.unused(now, *line);
                self.retries.unused(now, *line);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod testing;
