//! Several replies to one command.

use bson::RawDocument;

use super::exchange::Reply;
use super::loan::State;
use super::request::Request;
use super::{CheckedOut, Runtime};
use sdam_core::operation::{InvalidCommand, OperationError};
use sdam_core::wire::Flags;

impl<R: Runtime> CheckedOut<R> {
    /// Runs a command that the server may answer with several replies (OP_MSG, "exhaustAllowed").
    ///
    /// # Errors
    ///
    /// Fails if the command cannot be sent.
    pub async fn command_exhaust(
        &mut self,
        database: &str,
        command: &RawDocument,
    ) -> Result<Exhaust<'_, R>, OperationError> {
        let request = Request::new(database, command);
        let id = self.send(&request, Flags::EXHAUST_ALLOWED).await?;
        Ok(Exhaust { loan: self, next: Some(id) })
    }
}

/// The replies to one command, as they come.
///
/// Dropped before the last, it leaves the exchange unfinished, so that the loan's connection is
/// closed when the loan ends.
#[derive(Debug)]
pub struct Exhaust<'a, R: Runtime> {
    loan: &'a mut CheckedOut<R>,
    /// The message that the next reply answers; `None` after the last.
    next: Option<i32>,
}

impl<R: Runtime> Exhaust<'_, R> {
    /// Waits for the next reply; `None` after the last. Cancelling the wait loses nothing.
    ///
    /// # Errors
    ///
    /// Fails as [`CheckedOut::command`] does; an error is the last reply.
    pub async fn next(&mut self) -> Option<Result<Reply, OperationError>> {
        let id = self.next?;
        if let Err(forked) = self.loan.shared().process.check() {
            self.next = None;
            return Some(Err(InvalidCommand::from(forked).into()));
        }
        let received = match self.loan.receive().await {
            Ok(message) => self.loan.digest(&message, id),
            Err(error) => Err(error),
        };
        self.next = None;
        Some(received.and_then(|received| {
            self.next = received.more.filter(|_| received.reply.is_ok());
            self.loan.state = match (self.next, received.more) {
                (Some(id), _) => State::Awaiting(id),
                (None, None) => State::Idle,
                (None, Some(_)) => State::Broken,
            };
            self.loan.conclude(received.reply)
        }))
    }
}
