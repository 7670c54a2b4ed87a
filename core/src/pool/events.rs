//! How a pool tells what happens to it and its connections ("Connection Pool Monitoring").

use super::machine::Pool;
use super::queue::Waiter;
use super::{Action, CheckOutError, CloseReason, Lease, PoolEvent};
use crate::id::ConnectionId;

impl<C> Pool<C> {
    pub(super) fn emit(&self, event: PoolEvent, out: &mut Vec<Action<C>>) {
        out.push(Action::Emit { at: self.now.clock, event });
    }

    pub(super) fn created(&self, connection: ConnectionId, out: &mut Vec<Action<C>>) {
        self.emit(PoolEvent::ConnectionCreated { connection }, out);
    }

    pub(super) fn closed(
        &self,
        connection: ConnectionId,
        reason: CloseReason,
        out: &mut Vec<Action<C>>,
    ) {
        self.emit(PoolEvent::ConnectionClosed { connection, reason }, out);
    }

    /// Closes a connection that belongs to the pool.
    pub(super) fn close(
        &self,
        (id, connection): (ConnectionId, C),
        reason: CloseReason,
        out: &mut Vec<Action<C>>,
    ) {
        self.closed(id, reason, out);
        out.push(Action::Dispose { id, connection });
    }

    pub(super) fn checked_in(&self, connection: ConnectionId, out: &mut Vec<Action<C>>) {
        self.emit(PoolEvent::ConnectionCheckedIn { connection }, out);
    }

    /// Ends a waiter's wait with what it has waited for.
    pub(super) fn deliver(&self, waiter: Waiter, lent: (Lease, C), out: &mut Vec<Action<C>>) {
        let (connection, duration) = (lent.0.connection, self.now.clock - waiter.since);
        let kind = PoolEvent::ConnectionCheckedOut { connection, duration };
        self.emit(kind, out);
        out.push(Action::Deliver { waiter: waiter.id, outcome: Ok(lent) });
    }

    /// Ends a waiter's wait without a connection.
    pub(super) fn refuse(&self, waiter: Waiter, error: CheckOutError, out: &mut Vec<Action<C>>) {
        let (error, duration) = (Box::new(error), self.now.clock - waiter.since);
        let outcome = Err(error.clone());
        let kind = PoolEvent::ConnectionCheckOutFailed { error, duration };
        self.emit(kind, out);
        out.push(Action::Deliver { waiter: waiter.id, outcome });
    }
}
