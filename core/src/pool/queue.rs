//! The operations that wait for a connection, in the order in which they came ("WaitQueue").

use std::collections::{BTreeMap, BTreeSet};

use crate::id::{ConnectionId, WaiterId};
use crate::time::Instant;

/// A place in the queue, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(u64);

/// An operation that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter {
    pub(super) id: WaiterId,
    pub(super) since: Instant,
    /// The time when it fails if there is no connection.
    pub(super) limit: Option<Instant>,
    /// The number that were waiting when it came.
    pub(super) behind: usize,
    /// The connection that was created for it.
    pub(super) connection: Option<ConnectionId>,
}

/// The operations that wait; nothing takes longer than the logarithm of their number.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    waiters: BTreeMap<Ticket, Waiter>,
    tickets: BTreeMap<WaiterId, Ticket>,
    /// Those for which no connection was created.
    unprovided: BTreeSet<Ticket>,
    limits: BTreeSet<(Instant, Ticket)>,
    last: u64,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Returns when the next waiter has waited long enough.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.limits.first().map(|(limit, _)| *limit)
    }

    pub(super) fn contains(&self, waiter: WaiterId) -> bool {
        self.tickets.contains_key(&waiter)
    }

    /// Puts a waiter at the end.
    pub(super) fn enter(&mut self, waiter: Waiter) {
        self.last += 1;
        let ticket = Ticket(self.last);
        self.tickets.insert(waiter.id, ticket);
        self.unprovided.insert(ticket);
        self.limits.extend(waiter.limit.map(|limit| (limit, ticket)));
        self.waiters.insert(ticket, waiter);
    }

    /// Takes the waiter that came first.
    pub(super) fn pop(&mut self) -> Option<Waiter> {
        self.waiters.first_key_value().map(|(ticket, _)| *ticket).and_then(|it| self.leave(it))
    }

    /// Takes a waiter whose limit has come.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<Waiter> {
        let (limit, ticket) = *self.limits.first()?;
        if limit > now {
            return None;
        }
        self.leave(ticket)
    }

    /// Takes a waiter out, wherever it stands.
    pub(super) fn leave(&mut self, ticket: Ticket) -> Option<Waiter> {
        let waiter = self.waiters.remove(&ticket)?;
        self.tickets.remove(&waiter.id);
        self.unprovided.remove(&ticket);
        if let Some(limit) = waiter.limit {
            self.limits.remove(&(limit, ticket));
        }
        Some(waiter)
    }

    /// Takes a waiter out that has stopped waiting.
    pub(super) fn abandon(&mut self, waiter: WaiterId) -> Option<Waiter> {
        let ticket = self.tickets.get(&waiter).copied()?;
        self.leave(ticket)
    }

    /// Notes that a connection is being created for the first waiter that has none.
    pub(super) fn provide(&mut self, connection: ConnectionId) -> Option<Ticket> {
        let ticket = self.unprovided.pop_first()?;
        self.waiters.get_mut(&ticket)?.connection = Some(connection);
        Some(ticket)
    }

    /// Notes that the connection which was created for a waiter has gone to another.
    pub(super) fn deprive(&mut self, ticket: Ticket) {
        if let Some(waiter) = self.waiters.get_mut(&ticket) {
            waiter.connection = None;
            self.unprovided.insert(ticket);
        }
    }
}
