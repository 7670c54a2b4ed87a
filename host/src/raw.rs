//! Exchanges of raw messages, for proxies.

use bson::RawDocument;

use super::loan::State;
use super::{CheckedOut, Runtime};
use sdam_core::failure::Stage;
use sdam_core::operation::{CommandError, InvalidCommand, OperationError};
use sdam_core::wire::{Flags, Message};

/// What came of an exchange of raw messages.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Outcome {
    /// The reply says nothing of the server, and the connection can be used again.
    Success,
    /// The operation failed: the topology is told, and the connection is kept only if the server
    /// has replied.
    Failure(OperationError),
    /// The connection is not to be used again; that says nothing of the server.
    Discard,
}

impl Outcome {
    /// Judges a reply: it is a failure if it says that the server is not what it was, be it by the
    /// error of its write concern.
    pub fn of_reply(reply: &RawDocument) -> Self {
        match CommandError::in_reply(reply).filter(|error| error.state_change().is_some()) {
            Some(error) => Self::Failure(OperationError::Reply { stage: Stage::Operate, error }),
            None => Self::Success,
        }
    }
}

impl<R: Runtime> CheckedOut<R> {
    /// Sends a message as it is, a header and a body; for proxies.
    ///
    /// The exchange ends with [`report`](Self::report). A loan that is dropped before that closes
    /// its connection.
    ///
    /// # Errors
    ///
    /// Fails if the message is not exactly one, and if the stream fails.
    pub async fn send_message(&mut self, message: &Message) -> Result<(), OperationError> {
        self.shared().process.check().map_err(InvalidCommand::from)?;
        if !matches!(self.state, State::Unreported) {
            self.begin()?;
        }
        let limit = self.agreement().max_message_size_bytes;
        if message.bytes().len() > limit {
            let length = message.bytes().len();
            return Err(InvalidCommand::TooLong { length, limit }.into());
        }
        let deadline = self.shared().limit_unless_passed(self.deadline)?;
        self.state = State::Awaiting(message.header().request_id);
        let sent = self.connection().stream.send(message.bytes(), deadline).await;
        if let Err(error) = sent {
            let failure = self.connection().stream.failure(&error);
            return Err(self.broken(failure));
        }
        let flags = self.flags(message);
        self.takes_several = flags.contains(Flags::EXHAUST_ALLOWED);
        if flags.contains(Flags::MORE_TO_COME) {
            self.state = State::Unreported;
        }
        Ok(())
    }

    /// Returns whether [`receive_message`](Self::receive_message) has something to wait for: not
    /// after a message to which there is no reply, nor after the last of several replies.
    pub const fn is_reply_due(&self) -> bool {
        matches!(self.state, State::Awaiting(_))
    }

    /// Receives a message as it is: the reply to the one sent, or the next of several.
    ///
    /// # Errors
    ///
    /// Fails if no reply is due, and if the stream fails or the deadline passes; the topology was
    /// told then.
    pub async fn receive_message(&mut self) -> Result<Message, OperationError> {
        self.shared().process.check().map_err(InvalidCommand::from)?;
        if !matches!(self.state, State::Awaiting(_)) {
            return Err(InvalidCommand::NoReplyDue.into());
        }
        let deadline = self.shared().limit(self.deadline);
        let message = self.connection().receive(deadline).await;
        let message = message.map_err(|failure| self.broken(failure))?;
        // "The server will never produce replies with the moreToCome bit set unless the request has
        // the exhaustAllowed bit set", so that most replies need not be decompressed.
        let more = self.takes_several && self.flags(&message).contains(Flags::MORE_TO_COME);
        self.state = match more {
            true => State::Awaiting(message.header().request_id),
            false => State::Unreported,
        };
        Ok(message)
    }

    /// Ends an exchange of raw messages: the loan can be used for the next one, or dropped.
    ///
    /// If replies are still due, or the stream has failed, the connection is of no more use,
    /// whatever the outcome.
    pub fn report(&mut self, outcome: Outcome) {
        let settled = matches!(self.state, State::Idle | State::Unreported);
        let (usable, error) = match outcome {
            Outcome::Success => (settled, None),
            Outcome::Discard => (false, None),
            Outcome::Failure(error @ OperationError::Reply { .. }) => (settled, Some(error)),
            Outcome::Failure(error) => (false, Some(error)),
        };
        self.state = if usable { State::Idle } else { State::Broken };
        if let Some(error) = error {
            self.tell(error);
        }
    }

    /// Returns the flags of a message that may be compressed; none, if it has none.
    fn flags(&mut self, message: &Message) -> Flags {
        let plain = self.connection().decompressor.decompress(message.clone());
        plain.and_then(|plain| plain.flags()).unwrap_or_default()
    }
}
