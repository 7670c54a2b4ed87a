//! The transactions of all sessions: one each, open or how it ended.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use sdam_core::time::Instant;

use super::{
    catalog::Change,
    error::StoreError,
    transaction::{LastUse, Transaction},
};

/// The number of transactions that may be open.
pub(crate) const MAX_OPEN: usize = 1000;

/// The number of sessions whose transactions are remembered.
const MAX_SESSIONS: usize = 4096;

/// The time after which a transaction is aborted that has not ended.
///
/// Servers call it `transactionLifetimeLimitSeconds`.
pub(crate) const LIFETIME: Duration = Duration::from_secs(60);

/// The number of transactions of which the log of a server says that they were open for too long.
const MAX_EXPIRED: usize = 100;

/// The newest transaction of a session.
#[derive(Clone, Debug)]
pub(crate) enum State {
    Open(Box<Transaction>),
    /// The one of this number was committed.
    Committed(i64),
    /// The one of this number was aborted.
    Aborted(i64),
}

impl State {
    pub(crate) fn number(&self) -> i64 {
        match self {
            Self::Open(transaction) => transaction.number,
            Self::Committed(number) | Self::Aborted(number) => *number,
        }
    }
}

/// The newest transaction that a mongos has begun in a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Routed {
    pub(crate) number: i64,
    /// It may have written, so that there is a shard that knows what becomes of it.
    pub(crate) writes: bool,
}

/// The transactions of a server, by the id of their session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Transactions {
    sessions: BTreeMap<Vec<u8>, State>,
    /// The number of those that have begun, were committed, and were aborted.
    pub(crate) started: i64,
    pub(crate) committed: i64,
    pub(crate) aborted: i64,
    /// The last of those that were aborted for their lifetime: when, and their numbers.
    expired: VecDeque<(Instant, i64)>,
}

impl Transactions {
    pub(crate) fn state(&self, session: &[u8]) -> Option<&State> {
        self.sessions.get(session)
    }

    /// Returns the open transaction of a session.
    pub(crate) fn open(&self, session: &[u8]) -> Option<&Transaction> {
        match self.sessions.get(session)? {
            State::Open(transaction) => Some(transaction),
            _ => None,
        }
    }

    /// Returns all that are open, with their sessions.
    pub(crate) fn all_open(&self) -> impl Iterator<Item = (&[u8], &Transaction)> {
        self.sessions.iter().filter_map(|(id, state)| match state {
            State::Open(transaction) => Some((&**id, &**transaction)),
            _ => None,
        })
    }

    /// Returns whether another session may have an open transaction.
    pub(crate) fn has_room(&self) -> bool {
        self.all_open().count() < MAX_OPEN
    }

    /// Notes the last command of the open transaction of a session.
    pub(crate) fn note_use(&mut self, session: &[u8], last: LastUse) {
        if let Some(State::Open(transaction)) = self.sessions.get_mut(session) {
            transaction.last = last;
        }
    }

    /// Begins a transaction, in the place of the one before it, which is aborted if it is open.
    pub(crate) fn begin(&mut self, session: Vec<u8>, transaction: Transaction) {
        self.abort(&session);
        self.started += 1;
        self.sessions.insert(session, State::Open(Box::new(transaction)));
        if self.sessions.len() > MAX_SESSIONS {
            let mut ended = self.sessions.iter().filter(|(_, it)| !matches!(it, State::Open(_)));
            if let Some(oldest) = ended.next().map(|(id, _)| id.clone()) {
                self.sessions.remove(&oldest);
            }
        }
    }

    /// Takes the open transaction of a session, to be put back.
    pub(crate) fn take(&mut self, session: &[u8]) -> Option<Box<Transaction>> {
        self.open(session)?;
        match self.sessions.remove(session) {
            Some(State::Open(transaction)) => Some(transaction),
            _ => None,
        }
    }

    /// Puts back what was taken.
    pub(crate) fn put_back(&mut self, session: Vec<u8>, transaction: Box<Transaction>) {
        self.sessions.insert(session, State::Open(transaction));
    }

    /// Notes that a transaction that was taken is committed.
    pub(crate) fn note_commit(&mut self, session: Vec<u8>, number: i64) {
        self.committed += 1;
        self.sessions.insert(session, State::Committed(number));
    }

    /// Aborts the open transaction of a session, and returns whether there was one.
    pub(crate) fn abort(&mut self, session: &[u8]) -> bool {
        let state = self.sessions.get_mut(session);
        let Some(state) = state.filter(|it| matches!(it, State::Open(_))) else { return false };
        *state = State::Aborted(state.number());
        self.aborted += 1;
        true
    }

    /// Aborts the open transactions that are meant, and returns whether there was one.
    pub(crate) fn abort_all(&mut self, is_meant: impl Fn(&[u8], &Transaction) -> bool) -> bool {
        let meant = self.all_open().filter(|(session, open)| is_meant(session, open));
        let meant: Vec<Vec<u8>> = meant.map(|(session, _)| session.to_vec()).collect();
        meant.iter().filter(|session| self.abort(session)).count() > 0
    }

    /// Aborts all that are open, and forgets how the others ended: the log says it from now on, and
    /// it may yet be rolled back.
    pub(crate) fn lose(&mut self) -> bool {
        let was_open = self.abort_all(|_, _| true);
        self.sessions.clear();
        was_open
    }

    /// Forgets the transaction of a session, as the session goes on with a retryable write.
    pub(crate) fn forget(&mut self, session: &[u8]) -> bool {
        let was_open = self.abort(session);
        self.sessions.remove(session);
        was_open
    }

    /// Returns when the oldest open transaction is to be aborted.
    pub(crate) fn ends_at(&self) -> Option<Instant> {
        self.all_open().map(|(_, open)| open.began + LIFETIME).min()
    }

    /// Aborts those that have been open for too long, and returns whether there was one.
    pub(crate) fn expire(&mut self, now: Instant) -> bool {
        let is_over = |open: &Transaction| open.began + LIFETIME <= now;
        let over = self.all_open().filter(|(_, open)| is_over(open));
        let numbers: Vec<i64> = over.map(|(_, open)| open.number).collect();
        self.expired.extend(numbers.into_iter().map(|number| (now, number)));
        self.expired.drain(..self.expired.len().saturating_sub(MAX_EXPIRED));
        self.abort_all(|_, open| is_over(open))
    }

    /// Returns the last of those that were aborted for their lifetime: when, and their numbers.
    pub(crate) fn expired(&self) -> impl Iterator<Item = (Instant, i64)> {
        self.expired.iter().copied()
    }

    /// Checks that none of the open transactions holds what others change in the live state.
    ///
    /// # Errors
    ///
    /// Fails with `WriteConflict` if one does.
    pub(crate) fn check(&self, changes: &[Change]) -> Result<(), StoreError> {
        let mut open = self.all_open();
        match open.any(|(_, open)| changes.iter().any(|change| open.blocks(change))) {
            true => Err(StoreError::write_conflict()),
            false => Ok(()),
        }
    }
}
