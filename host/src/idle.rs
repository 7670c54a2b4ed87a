//! Checking connections that were idle, which clients that monitor in the background need not do.
//!
//! Implements "Checking an Idle Socket After socketCheckIntervalMS" of Server Selection, up to the
//! point where a server is to be selected once more.

use std::time::Duration;

use bson::rawdoc;

use super::Runtime;
use super::loan::{CheckedOut, State};
use super::request::Request;
use super::server::Server;
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::operation::OperationError;
use sdam_core::pool::CheckOutError;
use sdam_core::time::Instant;

/// After how long without use a connection is checked: socketCheckIntervalMS.
const SOCKET_CHECK_INTERVAL: Duration = Duration::from_secs(5);

impl<R: Runtime> Server<R> {
    /// Returns the time if connections are to be checked after idling; else nobody asks the clock.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let shared = self.shared();
        shared.options.is_single_threaded().then(|| shared.runtime.now())
    }
}

impl<R: Runtime> CheckedOut<R> {
    /// Checks with `ping` whether a connection that was idle for 5 s still works; if not, the
    /// topology has been told.
    pub(super) async fn check_after_idling(&mut self) -> Result<(), Box<CheckOutError>> {
        let Some(since) = self.connection().idle_since else { return Ok(()) };
        let now = self.shared().runtime.now();
        if now - since < SOCKET_CHECK_INTERVAL {
            return Ok(());
        }
        let (deadline, patience) = (self.deadline, self.shared().options.connect_timeout());
        let limit = patience.map(|patience| now + patience);
        self.set_deadline(deadline.into_iter().chain(limit).min());
        let ping = rawdoc! { "ping": 1 };
        let answered = self.exchange(&Request::new("admin", &ping)).await;
        self.set_deadline(deadline);
        match answered {
            Err(error) if self.state != State::Idle => {
                // Unless the operation itself had no more time.
                if deadline.is_none_or(|deadline| self.shared().runtime.now() < deadline) {
                    self.blame_for_silence(&error);
                }
                let address = self.server().address().clone();
                Err(Box::new(CheckOutError::IdleConnection { address, error }))
            }
            // Be it an error: the server has answered.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// A time-out says nothing of the server if the operation may be slow; `ping` is not.
    fn blame_for_silence(&self, error: &OperationError) {
        if let OperationError::Stream(Failure { cause: Cause::Timeout, .. }) = error {
            let failure = Failure::new(Stage::Operate, Cause::Io, "no reply to ping in time");
            self.tell(OperationError::Stream(failure));
        }
    }
}
