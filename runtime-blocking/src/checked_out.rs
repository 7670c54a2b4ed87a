//! Connections in use.

use std::sync::Arc;

use sdam_core::bson::RawDocument;
use sdam_core::config::ServerAddress;
use sdam_core::handshake::ConnectionDescription;
use sdam_core::id::ConnectionId;
use sdam_core::operation::InvalidCommand;
use sdam_core::pool::Purpose;
use sdam_core::time::Instant;
use sdam_core::wire::Message;
use sdam_host::{self as host, Error, Outcome, Reply};

use crate::engine::Engine;
use crate::process::Own;
use crate::runtime::Blocking;

/// A connection in use, until it is dropped.
///
/// In a process that was forked off it is of no use: its connection is the parent's.
#[derive(Debug)]
#[must_use = "a connection that is dropped is checked in at once"]
pub struct CheckedOut(Own<host::CheckedOut<Blocking>>);

impl CheckedOut {
    pub(crate) fn new(checked_out: host::CheckedOut<Blocking>, engine: &Arc<Engine>) -> Self {
        Self(Own::new(checked_out, engine))
    }

    /// Returns the address of the server that the connection leads to, the one that it advertises.
    pub fn server(&self) -> &ServerAddress {
        self.0.anyones().server()
    }

    /// Returns the connection's number in its pool.
    pub fn connection_id(&self) -> ConnectionId {
        self.0.anyones().connection_id()
    }

    /// Returns what client and server agreed on when the connection was established.
    pub fn connection_description(&self) -> &ConnectionDescription {
        self.0.anyones().connection_description()
    }

    /// Returns when an exchange is to end at the latest; without one, socketTimeoutMS counts.
    pub fn deadline(&self) -> Option<Instant> {
        self.0.anyones().deadline()
    }

    /// Sets when exchanges are to end at the latest; at first it is the deadline of the check-out.
    pub fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.0.anyones_mut().set_deadline(deadline);
    }

    /// Runs a command on a database, and returns its reply.
    ///
    /// # Errors
    ///
    /// Fails as [`host::CheckedOut::command`] does.
    pub fn command(&mut self, database: &str, command: &RawDocument) -> Result<Reply, Error> {
        let (checked_out, engine) = self.ours()?;
        engine.wait(checked_out.command(database, command))
    }

    /// As [`command`](Self::command), with document sequences, each a name and its documents: the
    /// `documents` of an insert, for one.
    ///
    /// # Errors
    ///
    /// Fails as [`host::CheckedOut::command_with_sequences`] does.
    pub fn command_with_sequences(
        &mut self,
        database: &str,
        command: &RawDocument,
        sequences: &[(&str, &[&RawDocument])],
    ) -> Result<Reply, Error> {
        let (checked_out, engine) = self.ours()?;
        engine.wait(checked_out.command_with_sequences(database, command, sequences))
    }

    /// Sends a command to which the server gives no reply, as for unacknowledged writes.
    ///
    /// # Errors
    ///
    /// Fails as [`host::CheckedOut::command_unacknowledged`] does.
    pub fn command_unacknowledged(
        &mut self,
        database: &str,
        command: &RawDocument,
    ) -> Result<(), Error> {
        let (checked_out, engine) = self.ours()?;
        engine.wait(checked_out.command_unacknowledged(database, command))
    }

    /// Runs a command that the server may answer with several replies (OP_MSG, "exhaustAllowed").
    ///
    /// # Errors
    ///
    /// Fails if the command cannot be sent.
    pub fn command_exhaust(
        &mut self,
        database: &str,
        command: &RawDocument,
    ) -> Result<Exhaust<'_>, Error> {
        let (checked_out, engine) = self.ours()?;
        engine
            .wait(checked_out.command_exhaust(database, command))
            .map(|replies| Exhaust { replies: Own::new(replies, engine) })
    }

    /// Sends a message as it is, a header and a body; for proxies.
    ///
    /// # Errors
    ///
    /// Fails as [`host::CheckedOut::send_message`] does.
    pub fn send_message(&mut self, message: &Message) -> Result<(), Error> {
        let (checked_out, engine) = self.ours()?;
        engine.wait(checked_out.send_message(message))
    }

    /// Ends an exchange of raw messages, see [`host::CheckedOut::report`].
    pub fn report(&mut self, outcome: Outcome) {
        if let Some((checked_out, _)) = self.0.ours_mut() {
            checked_out.report(outcome);
        }
    }

    /// Says that the check-out is needed for more than one operation, see
    /// [`host::CheckedOut::pin`].
    pub fn pin(&self, purpose: Purpose) {
        if let Some((checked_out, _)) = self.0.ours() {
            checked_out.pin(purpose);
        }
    }

    /// Returns whether a reply is still due, see [`host::CheckedOut::is_reply_due`].
    pub fn is_reply_due(&self) -> bool {
        self.0.anyones().is_reply_due()
    }

    /// Receives a message as it is: the reply to the one sent, or the next of several.
    ///
    /// # Errors
    ///
    /// Fails as [`host::CheckedOut::receive_message`] does.
    pub fn receive_message(&mut self) -> Result<Message, Error> {
        let (checked_out, engine) = self.ours()?;
        engine.wait(checked_out.receive_message())
    }

    fn ours(&mut self) -> Result<(&mut host::CheckedOut<Blocking>, &Arc<Engine>), Error> {
        self.0.ours_mut().ok_or_else(|| InvalidCommand::Broken.into())
    }
}

/// The replies to one command, as they come; as an iterator, it waits for each.
///
/// Dropped before the last, it leaves the exchange unfinished, so that the check-out's connection
/// is closed when the check-out ends.
#[derive(Debug)]
pub struct Exhaust<'a> {
    replies: Own<host::Exhaust<'a, Blocking>>,
}

impl Iterator for Exhaust<'_> {
    type Item = Result<Reply, Error>;

    /// Waits for the next reply; `None` after the last. An error is the last reply.
    fn next(&mut self) -> Option<Self::Item> {
        let (replies, engine) = self.replies.ours_mut()?;
        engine.wait(replies.next())
    }
}
