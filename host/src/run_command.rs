//! Selecting, checking out and running a command in one go, under one deadline.

use std::sync::Arc;
use std::time::Duration;

use bson::RawDocument;

use super::exchange::Reply;
use super::request::Request;
use super::{Host, Runtime};
use sdam_core::config::ServerAddress;
use sdam_core::operation::OperationError;
use sdam_core::pool::CheckOutError;
use sdam_core::selection::{Criteria, SelectionError};
use sdam_core::time::Instant;

/// Why a command did not succeed, and where the time went.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{cause}{}; {spent}", at(server.as_ref()))]
#[non_exhaustive]
pub struct RunCommandError {
    /// The server that was selected.
    pub server: Option<ServerAddress>,
    /// What went wrong; the text of the error says it, so that it is no `source()`.
    pub cause: RunCommandCause,
    /// Where the time went.
    pub spent: Spent,
}

fn at(server: Option<&ServerAddress>) -> String {
    server.map(|server| format!(" (at {server})")).unwrap_or_default()
}

impl RunCommandError {
    /// Returns the labels of the error.
    pub fn labels(&self) -> Vec<&str> {
        match &self.cause {
            RunCommandCause::Selection(_) => Vec::new(),
            RunCommandCause::CheckOut(error) => error.labels(),
            RunCommandCause::Operation(error) => error.labels(),
        }
    }
}

/// What went wrong with a command.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunCommandCause {
    /// No server was found.
    #[error(transparent)]
    Selection(Box<SelectionError>),
    /// No connection was to be had.
    #[error(transparent)]
    CheckOut(Box<CheckOutError>),
    /// The exchange failed, or the server replied with an error.
    #[error(transparent)]
    Operation(OperationError),
}

/// How long each part of running a command took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Spent {
    /// Selecting servers.
    pub selecting: Duration,
    /// Checking out connections.
    pub checking_out: Duration,
    /// The exchange.
    pub exchanging: Duration,
}

impl std::fmt::Display for Spent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let millis = |duration: Duration| duration.as_millis();
        write!(
            f,
            "{} ms went into selecting a server, {} ms into checking out a connection, {} ms into \
             the exchange",
            millis(self.selecting),
            millis(self.checking_out),
            millis(self.exchanging)
        )
    }
}

/// How often another server is selected because the pool of the last one was found cleared.
///
/// A clear says that a server was just found to be of no use, so that one more selection leads to
/// whoever has taken over; two serve where that one falls, too, as in a rolling restart. What is
/// cleared more often than that is an overloaded or a flapping deployment, which is not helped by
/// callers that come again: their error says so, and is labelled `RetryableError`.
const MAX_RESELECTIONS: u32 = 2;

impl<R: Runtime> Host<R> {
    /// Selects a server, checks out a connection, and runs a command: all of it by `deadline`, if
    /// there is one, and the selection by `selection_deadline`, too.
    ///
    /// A command is sent once at most, whatever the reply ("All commands executed via RunCommand
    /// are non-retryable operations"). Before it is sent, a server is selected again if the pool of
    /// the last one is found cleared, twice at most and not after the deadline of the selection;
    /// and once, if an idle connection is found dead in the single-threaded mode.
    ///
    /// # Errors
    ///
    /// Fails as the three parts do.
    pub async fn run_command(
        &self,
        database: &str,
        command: &RawDocument,
        criteria: &Arc<Criteria>,
        selection_deadline: Option<Instant>,
        deadline: Option<Instant>,
    ) -> Result<Reply, Box<RunCommandError>> {
        let selection_deadline = selection_deadline.into_iter().chain(deadline).min();
        let mut clock = StopWatch { at: self.runtime().now(), spent: Spent::default() };
        // "drivers MUST use the remaining computedServerSelectionTimeout value as the timeout for
        // connection checkout" (Client Side Operations Timeout), if timeoutMS is set.
        let check_out = deadline.and(selection_deadline);
        let mut again = Again::default();
        let mut loan = loop {
            let selected = self.select(criteria, selection_deadline).await;
            clock.lap(self.runtime().now(), |spent| &mut spent.selecting);
            let selected = selected.map_err(|error| clock.stop(None, error.into()))?;
            let loan = selected.check_out_by(check_out).await;
            let now = self.runtime().now();
            clock.lap(now, |spent| &mut spent.checking_out);
            let has_time = selection_deadline.is_none_or(|deadline| now < deadline);
            match loan {
                Ok(loan) => break loan,
                Err(error) if has_time && again.is_worth_it(&error) => {}
                Err(error) => {
                    return Err(clock.stop(Some(selected.server().address()), error.into()));
                }
            }
        };
        loan.set_deadline(deadline);
        let reply = loan.exchange(&Request::new(database, command)).await;
        reply.map_err(|error| {
            clock.lap(self.runtime().now(), |spent| &mut spent.exchanging);
            clock.stop(Some(loan.server().address()), RunCommandCause::Operation(error))
        })
    }
}

/// How often a server was selected again, and why.
#[derive(Default)]
struct Again {
    cleared: u32,
    found_dead: bool,
}

impl Again {
    /// Says whether to select once more after an error that comes before anything is sent.
    fn is_worth_it(&mut self, error: &CheckOutError) -> bool {
        match error {
            CheckOutError::PoolCleared { .. } => {
                self.cleared += 1;
                self.cleared <= MAX_RESELECTIONS
            }
            // "attempt once more to select a server"
            CheckOutError::IdleConnection { .. } => !std::mem::replace(&mut self.found_dead, true),
            _ => false,
        }
    }
}

impl From<Box<SelectionError>> for RunCommandCause {
    fn from(error: Box<SelectionError>) -> Self {
        Self::Selection(error)
    }
}

impl From<Box<CheckOutError>> for RunCommandCause {
    fn from(error: Box<CheckOutError>) -> Self {
        Self::CheckOut(error)
    }
}

struct StopWatch {
    at: Instant,
    spent: Spent,
}

impl StopWatch {
    /// Books the time since the last lap.
    fn lap(&mut self, now: Instant, part: impl Fn(&mut Spent) -> &mut Duration) {
        *part(&mut self.spent) += now - std::mem::replace(&mut self.at, now);
    }

    fn stop(&self, server: Option<&ServerAddress>, cause: RunCommandCause) -> Box<RunCommandError> {
        Box::new(RunCommandError { server: server.cloned(), cause, spent: self.spent })
    }
}
