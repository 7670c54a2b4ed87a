//! How a pool lets go of its connections: when it is cleared, and when it is closed.

use bson::oid::ObjectId;

use super::machine::{Pool, State};
use super::{Action, CheckOutError, CloseReason, PoolEvent};
use crate::failure::Failure;
use crate::id::Generation;

impl<C> Pool<C> {
    /// "Clearing a non-load balanced pool"
    pub(super) fn clear(
        &mut self,
        to: Generation,
        interrupt: bool,
        cause: &Failure,
        out: &mut Vec<Action<C>>,
    ) {
        if self.config.load_balanced
            || matches!(self.state, State::Closed)
            || !self.generations.begin(to)
        {
            return;
        }
        self.pending.grow_stale();
        let since = match self.state {
            State::Paused { since, .. } => since,
            State::New | State::Ready | State::Closed => {
                self.cleared(None, interrupt, cause.clone(), out);
                self.now.clock
            }
        };
        self.state = State::Paused { since, cause: Some(cause.clone()) };
        self.close_available(CloseReason::Stale, out);
        if interrupt {
            self.abort_pending(CloseReason::Stale, out);
            for connection in self.slots.interrupt(to) {
                out.push(Action::Interrupt { connection });
            }
        }
        while let Some(waiter) = self.queue.pop() {
            let address = self.config.address.clone();
            let (paused, cause) = (self.now.clock - since, cause.clone());
            self.refuse(waiter, CheckOutError::PoolCleared { address, paused, cause }, out);
        }
    }

    /// "Clearing a load balanced pool": it is not paused, and nobody stops waiting.
    pub(super) fn clear_service(
        &mut self,
        service: ObjectId,
        to: Generation,
        cause: Failure,
        out: &mut Vec<Action<C>>,
    ) {
        if !self.config.load_balanced
            || matches!(self.state, State::Closed)
            || !self.generations.begin_service(service, to)
        {
            return;
        }
        self.cleared(Some(service), false, cause, out);
        for stale in self.slots.take_stale(service, to) {
            self.close(stale, CloseReason::Stale, out);
        }
        self.establish(out);
    }

    /// "Closing a Connection Pool"
    pub(super) fn shut(&mut self, out: &mut Vec<Action<C>>) {
        if let State::Closed = self.state {
            return;
        }
        self.state = State::Closed;
        self.close_available(CloseReason::PoolClosed, out);
        self.abort_pending(CloseReason::PoolClosed, out);
        while let Some(waiter) = self.queue.pop() {
            let address = self.config.address.clone();
            self.refuse(waiter, CheckOutError::PoolClosed { address }, out);
        }
        self.emit(PoolEvent::PoolClosed, out);
    }

    fn cleared(
        &self,
        service: Option<ObjectId>,
        interrupt_in_use_connections: bool,
        cause: Failure,
        out: &mut Vec<Action<C>>,
    ) {
        let kind = PoolEvent::PoolCleared { service, interrupt_in_use_connections, cause };
        self.emit(kind, out);
    }

    fn close_available(&mut self, reason: CloseReason, out: &mut Vec<Action<C>>) {
        while let Some(available) = self.slots.take_oldest() {
            self.close(available, reason, out);
        }
    }

    fn abort_pending(&mut self, reason: CloseReason, out: &mut Vec<Action<C>>) {
        for (connection, pending) in self.pending.take_all() {
            out.push(Action::Abort { connection });
            self.closed(connection, reason, out);
            // Its own failure is not going to be told any more.
            pending.failing.into_iter().for_each(|waiter| self.queue.enter(waiter));
        }
    }
}
