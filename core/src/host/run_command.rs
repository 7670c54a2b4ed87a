//! Selecting, checking out and running a command in one go, under one deadline.

use std::sync::Arc;
use std::time::Duration;

use bson::RawDocument;

use super::exchange::{Reply, Request};
use super::{Host, Runtime};
use crate::address::ServerAddress;
use crate::operation::OperationError;
use crate::pool::CheckOutError;
use crate::selection::{Criteria, SelectionError, read_preference_argument};
use crate::time::Instant;

/// Why a command did not succeed, and where the time went.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{cause}{}; {spent}", at(server.as_ref()))]
#[non_exhaustive]
pub struct RunCommandError {
    /// The server that was selected.
    pub server: Option<ServerAddress>,
    /// What went wrong.
    #[source]
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

impl<R: Runtime> Host<R> {
    /// Selects a server, checks out a connection, and runs a command: all of it by `deadline`, if
    /// there is one, and the selection by `selection_deadline`, too.
    ///
    /// A pool that is found cleared costs nothing but another selection, as nothing was sent yet;
    /// so does, once, an idle connection that is found dead in the single-threaded mode.
    ///
    /// # Errors
    ///
    /// Fails as the three parts do; a command is never sent twice.
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
        let mut found_dead = false;
        loop {
            let selected = self.select(criteria, selection_deadline).await;
            clock.lap(self.runtime().now(), |spent| &mut spent.selecting);
            let selected = selected.map_err(|error| clock.stop(None, error.into()))?;
            let address = selected.server().address();
            let read_preference = criteria.read_preference().and_then(|preference| {
                let server = selected.description().server_type;
                read_preference_argument(selected.topology_type(), server, preference)
            });
            // "drivers MUST use the remaining computedServerSelectionTimeout value as the timeout
            // for connection checkout" (Client Side Operations Timeout), if timeoutMS is set.
            let check_out = deadline.and(selection_deadline);
            let loan = selected.server().check_out(check_out).await;
            clock.lap(self.runtime().now(), |spent| &mut spent.checking_out);
            let mut loan = match loan {
                Ok(loan) => loan,
                Err(error) if matches!(*error, CheckOutError::PoolCleared { .. }) => continue,
                // "attempt once more to select a server"
                Err(error)
                    if matches!(*error, CheckOutError::IdleConnection { .. })
                        && !std::mem::replace(&mut found_dead, true) =>
                {
                    continue;
                }
                Err(error) => return Err(clock.stop(Some(address), error.into())),
            };
            loan.set_deadline(deadline);
            let reply = loan
                .exchange(&Request {
                    database,
                    command: Some(command),
                    read_preference: read_preference.as_deref(),
                    ..Request::default()
                })
                .await;
            return reply.map_err(|error| {
                clock.lap(self.runtime().now(), |spent| &mut spent.exchanging);
                clock.stop(Some(address), RunCommandCause::Operation(error))
            });
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
