//! The ways in which a pool gets its connections ("Creating a Connection", "Establishing a
//! Connection", "Populating the Pool with a Connection").

use super::connections::Identity;
use super::machine::{Pool, PoolState};
use super::pending::Pending;
use super::{Action, CheckOutError, CloseReason, Established, PoolEvent, Stages};
use crate::config::{MIN_HEARTBEAT_FREQUENCY, PoolOptions};
use crate::diagnosis::Verdict;
use crate::failure::Stage;
use crate::id::ConnectionId;
use crate::operation::OperationError;
use crate::time::Instant;

impl<C> Pool<C> {
    /// Returns whether there may be one more connection, and it may be established now.
    pub(super) fn has_room(&self) -> bool {
        let PoolOptions { max_pool_size: most, max_connecting, .. } = self.config.options;
        matches!(self.state, PoolState::Ready)
            && self.pending.len() < max_connecting.max(1) as usize
            && (most == 0 || self.counts().total() < most as usize)
    }

    pub(super) fn is_below_minimum(&self) -> bool {
        self.counts().total() < self.config.options.min_pool_size as usize
    }

    /// Returns whether more operations wait than connections are being established.
    pub(super) fn is_short(&self) -> bool {
        self.queue.len() > self.pending.fresh()
    }

    /// Begins to establish the connections that operations and minPoolSize need.
    pub(super) fn establish(&mut self, out: &mut Vec<Action<C>>) {
        while self.has_room()
            && (self.is_short() || self.is_below_minimum() && self.populate_at <= self.now.clock)
        {
            self.last += 1;
            let connection = ConnectionId(self.last);
            let ticket = self.is_short().then(|| self.queue.provide(connection)).flatten();
            let limit = self.limit();
            let generation = self.generation(None);
            self.pending.add(connection, Pending::new(generation, ticket, self.now.clock, limit));
            self.created(connection, out);
            out.push(Action::Establish { connection, generation });
        }
    }

    /// Returns when a connection that is begun now is given up.
    fn limit(&self) -> Option<Instant> {
        let timeout = self.config.connect_timeout.filter(|timeout| !timeout.is_zero());
        timeout.map(|timeout| self.now.clock + timeout)
    }

    /// A connection's server is asked for the next step of its login.
    ///
    /// "if `timeoutMS` is set at the MongoClient level, it MUST be used as the timeout for all
    /// commands sent as part of the MongoDB or authentication handshakes. The timeout MUST be
    /// refreshed after each command" (Client Side Operations Timeout, "Background Connection
    /// Pooling"). Hello is none of them here: tests of the official suite hold it up for longer.
    pub(super) fn asked(&mut self, id: ConnectionId) {
        if let Some(limit) = self.limit_of_command() {
            self.pending.limit(id, Some(limit), true);
        }
    }

    /// The client works out the next step of a login itself.
    pub(super) fn answered(&mut self, id: ConnectionId) {
        if self.pending.find(id).is_some_and(|pending| pending.asked) {
            self.pending.limit(id, self.limit(), false);
        }
    }

    /// The client has what a person was asked for, and goes on with the login.
    pub(super) fn person_answered(&mut self, id: ConnectionId) {
        self.pending.resume(id, self.limit());
    }

    /// Returns when the answer to a command of a login that is sent now is given up.
    fn limit_of_command(&self) -> Option<Instant> {
        let timeout = self.config.handshake_timeout.filter(|timeout| !timeout.is_zero());
        timeout.map(|timeout| self.now.clock + timeout)
    }

    /// Establishing a connection goes on.
    ///
    /// When that is heard after its limit and before the limit is judged, the process was stopped
    /// meanwhile, and not the server slow: the next step was not begun, and has all of its time. It
    /// is renewed only then, so that a server that answers one byte at a time gains nothing.
    pub(super) fn reached(&mut self, id: ConnectionId, stage: Stage) {
        self.pending.reached(id, stage, self.now.clock);
        let renewed = match self.pending.find(id) {
            Some(pending) if pending.asked => self.limit_of_command(),
            _ => self.limit(),
        };
        if let Some(renewed) = renewed {
            self.pending.renew(id, self.now.clock, renewed);
        }
    }

    pub(super) fn established(
        &mut self,
        id: ConnectionId,
        Established { connection, service }: Established<C>,
        out: &mut Vec<Action<C>>,
    ) {
        let Some(pending) = self.pending.remove(id, self.generation(None)) else {
            out.push(Action::Dispose { id, connection });
            return;
        };
        let service = self.config.load_balanced.then_some(service).flatten();
        if pending.generation < self.generation(None) {
            self.close((id, connection), CloseReason::Stale, out);
        } else {
            let (duration, stages) =
                (self.now.clock - pending.created, pending.stages(self.now.clock));
            self.took = Some((duration, longest(&stages)));
            let kind = PoolEvent::ConnectionReady { connection: id, duration, stages };
            self.emit(kind, out);
            let identity = Identity { id, generation: self.generation(service), service };
            self.connections.add(identity, connection, self.now.clock);
            if let Some(ticket) = pending.ticket {
                self.queue.deprive(ticket);
            }
            self.serve(out);
        }
        self.establish(out);
    }

    /// Says that establishing connections takes too long, if connections are being established and
    /// there is room for more: then it is not the size of the pool that operations wait for.
    pub(super) fn slow_establishment(&self) -> Option<Verdict> {
        let (options, counts) = (&self.config.options, self.counts());
        let has_room =
            options.max_pool_size == 0 || counts.total() < options.max_pool_size as usize;
        let oldest = self.pending.oldest().filter(|_| has_room)?;
        let lasts = self.now.clock - oldest.created;
        let stages = longest(&oldest.stages(self.now.clock));
        // What is still going on may take as long again.
        let known = self.took.filter(|(took, _)| *took >= lasts);
        let (takes, stage) = known.unwrap_or((lasts, stages));
        Some(Verdict::EstablishmentSlow {
            server: self.config.address.clone(),
            takes,
            stage,
            max_connecting: options.max_connecting,
            in_use: counts.in_use.try_into().unwrap_or(u32::MAX),
            max_pool_size: options.max_pool_size,
        })
    }

    /// Makes the operation for which the connection was created wait for nothing but its error.
    pub(super) fn failing(&mut self, id: ConnectionId) {
        if let Some(pending) = self.pending.find_mut(id)
            && let Some(waiter) = pending.ticket.and_then(|ticket| self.queue.leave(ticket))
        {
            pending.failing = Some(waiter);
        }
    }

    pub(super) fn not_established(
        &mut self,
        id: ConnectionId,
        error: OperationError,
        out: &mut Vec<Action<C>>,
    ) {
        self.failing(id);
        let Some(pending) = self.pending.remove(id, self.generation(None)) else { return };
        self.closed(id, CloseReason::Error, Some(Box::new(error.clone())), out);
        if let Some(waiter) = pending.failing {
            let (address, stages) = (self.config.address.clone(), pending.stages(self.now.clock));
            self.refuse(waiter, CheckOutError::Establishing { address, error, stages }, out);
        }
        self.populate_at = self.now.clock + MIN_HEARTBEAT_FREQUENCY;
        self.establish(out);
    }
}

/// Returns the stage that took the longest.
fn longest(stages: &Stages) -> Option<Stage> {
    stages.iter().max_by_key(|(_, took)| *took).map(|(stage, _)| *stage)
}
