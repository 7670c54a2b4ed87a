//! Calls of sessions, and transactions that are run as a whole: their callback asks the machine for
//! its operations, and waits until those have ended.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bson::Bson;
use sdam::error::Error;
use sdam::generic::ClientSession;
use sdam_core::session::TransactionState;
use sdam_host::driver::DriverSession as _;
use sdam_host::{CallbackError, Runtime};

use super::call::invalid;
use super::operate::{CallError, milliseconds};
use crate::unified::play::{Ended, Failed, OfSession, Token, WithTransaction};

/// Calls a session.
pub(super) async fn of_session<R: Runtime>(
    session: ClientSession<R>,
    call: OfSession,
) -> Result<Ended, CallError> {
    let result = match call {
        OfSession::End => {
            session.end();
            None
        }
        OfSession::IsDirty => Some(session.is_dirty().map(Bson::Boolean).map_err(Error::from)?),
        OfSession::IsPinned => Some(Bson::Boolean(session.pinned_server().is_some())),
        OfSession::TransactionState => {
            let state = session.transaction_state().map_err(Error::from)?;
            Some(Bson::String(name_of(state).to_owned()))
        }
        OfSession::SnapshotTime => {
            session.snapshot_time().map_err(Error::from)?.map(Bson::Timestamp)
        }
        OfSession::StartTransaction(options) => {
            session.start_transaction().with_options(options).await?;
            None
        }
        OfSession::Commit(limit) => {
            let commit = session.commit_transaction();
            match limit.map(milliseconds).transpose()? {
                Some(limit) => commit.timeout(limit).await?,
                None => commit.await?,
            }
            None
        }
        OfSession::Abort(limit) => {
            let abort = session.abort_transaction();
            match limit.map(milliseconds).transpose()? {
                Some(limit) => abort.timeout(limit).await?,
                None => abort.await?,
            }
            None
        }
    };
    Ok(Ended { result, server: None })
}

/// Returns the name of a state (Unified Test Format, "assertSessionTransactionState").
const fn name_of(state: TransactionState) -> &'static str {
    match state {
        TransactionState::None => "none",
        TransactionState::Starting => "starting",
        TransactionState::InProgress => "in_progress",
        TransactionState::Committed => "committed",
        TransactionState::Aborted => "aborted",
        _ => "unknown",
    }
}

/// Runs a transaction as a whole.
pub(super) async fn run<R: Runtime>(
    session: ClientSession<R>,
    callback: Callback,
    run: WithTransaction,
) -> Result<Ended, CallError> {
    let mut start = session.start_transaction().with_options(run.options);
    if let Some(limit) = run.timeout_ms {
        start = start.timeout(milliseconds(limit)?);
    }
    let outcome = start.and_run(|_| callback.call()).await;
    match outcome {
        Ok(()) => Ok(Ended::default()),
        Err(Interrupted::Driver(error)) => Err((*error).into()),
        Err(Interrupted::Ended) => Err(invalid("the callback was ended by the test").into()),
    }
}

/// The errors of operations that the driver has returned, for callbacks that return them to it.
#[derive(Clone, Default)]
pub(super) struct Errors(Arc<Mutex<BTreeMap<Token, Error>>>);

impl Errors {
    /// Keeps the error of a call, and returns the part of it that the test sees.
    pub(super) fn keep(&self, token: Token, error: CallError) -> Box<Failed> {
        if let Some(error) = error.error {
            lock(&self.0).insert(token, error);
        }
        error.failed
    }

    /// Returns what a callback ends with whose operation has failed in this call; without one, it
    /// ends because the test does.
    pub(super) fn take(&self, token: Option<Token>) -> Interrupted {
        let error = token.and_then(|token| lock(&self.0).remove(&token));
        error.map_or(Interrupted::Ended, |error| Interrupted::Driver(Box::new(error)))
    }
}

/// The reason why a callback ends with an error.
pub(super) enum Interrupted {
    /// An operation has failed.
    Driver(Box<Error>),
    /// The test has ended, or what failed is none of the driver's errors.
    Ended,
}

impl From<Error> for Interrupted {
    fn from(error: Error) -> Self {
        Self::Driver(Box::new(error))
    }
}

impl CallbackError for Interrupted {
    fn database_error(&self) -> Option<&Error> {
        match self {
            Self::Driver(error) => Some(error),
            Self::Ended => None,
        }
    }
}

/// The callbacks that may be called, by the call of their transaction. Dropping them ends all.
#[derive(Default)]
pub(super) struct Callbacks(BTreeMap<Token, Callback>);

impl Callbacks {
    /// Makes the callback of a call.
    pub(super) fn add(&mut self, token: Token) -> Callback {
        self.0.entry(token).or_default().clone()
    }

    /// Returns the calls whose callback was called since this was asked last, or arranges for a
    /// wake-up when one is.
    pub(super) fn called(&self, cx: &Context<'_>) -> impl Iterator<Item = Token> {
        self.0.iter().filter(|(_, callback)| callback.poll_called(cx)).map(|(token, _)| *token)
    }

    /// Ends a call of a callback.
    pub(super) fn end(&self, token: Token, outcome: Result<(), Interrupted>) {
        if let Some(callback) = self.0.get(&token) {
            callback.end(outcome);
        }
    }
}

impl Drop for Callbacks {
    fn drop(&mut self) {
        self.0.values().for_each(|callback| callback.end(Err(Interrupted::Ended)));
    }
}

/// The callback of a transaction, which is called in the background. Clones are the same one.
#[derive(Clone, Default)]
pub(super) struct Callback(Arc<Mutex<Turn>>);

#[derive(Default)]
struct Turn {
    /// True from a call until the stage has heard of it.
    is_called: bool,
    outcome: Option<Result<(), Interrupted>>,
    stage: Option<Waker>,
    callback: Option<Waker>,
}

impl Callback {
    /// Calls it: waits until its operations have ended.
    async fn call(&self) -> Result<(), Interrupted> {
        let waker = {
            let mut turn = lock(&self.0);
            turn.is_called = true;
            turn.stage.take()
        };
        waker.into_iter().for_each(Waker::wake);
        poll_fn(|cx| {
            let mut turn = lock(&self.0);
            match turn.outcome.take() {
                Some(outcome) => Poll::Ready(outcome),
                None => {
                    turn.callback = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    fn poll_called(&self, cx: &Context<'_>) -> bool {
        let mut turn = lock(&self.0);
        turn.stage = Some(cx.waker().clone());
        std::mem::take(&mut turn.is_called)
    }

    fn end(&self, outcome: Result<(), Interrupted>) {
        let waker = {
            let mut turn = lock(&self.0);
            turn.outcome = Some(outcome);
            turn.callback.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
