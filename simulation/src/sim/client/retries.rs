//! How long operations wait, those that are tried once more, and what is to be seen of pools that
//! are short of connections.

use std::sync::Arc;
use std::time::Duration;

use sdam_core::id::ServerId;

use super::cursors::Cursor;
use super::operations::{OperationId, State, Timer};
use super::{Client, Operation};
use crate::sim::bounds::Bounds;
use crate::sim::network::Network;
use crate::sim::random::Random;
use crate::sim::witness::Sign;
use crate::sim::world::Event;

/// How many operations that wait are a burst.
const BURST: usize = 10;

/// How many of a hundred operations of a single-threaded client wait for a server for as long as
/// one may take to be found, and longer.
const PATIENT_PERCENT: u64 = 10;

/// How much longer.
const LONGER: Duration = Duration::from_secs(10);

impl Client {
    /// Draws how long an operation may take.
    pub(super) fn patience(&self, random: &mut Random) -> Duration {
        let usual = random.between(self.plan.patience / 4, self.plan.patience);
        if !self.options.is_single_threaded() || !random.percent(PATIENT_PERCENT) {
            return usual;
        }
        let bounds = Bounds::of_single_threaded(&self.options, self.plan.addresses.len());
        bounds.reachable + bounds.selection + LONGER
    }

    /// An operation that has a connection waits for a reply as long as others do, however patient
    /// it was in waiting for a server.
    pub(super) fn limit_exchange(&mut self, network: &mut Network, id: OperationId) {
        let limit = self.now + self.plan.patience;
        let Some(operation) = self.operations.get_mut(&id) else { return };
        if operation.deadline > limit {
            operation.deadline = limit;
            let (client, timer) = (self.index, Timer::Expire);
            let expire = Event::OperationTimer { client, operation: id, timer };
            network.plan(self.plan.patience, expire);
        }
    }

    /// Returns whether an operation that has failed may be tried again: once, in time, and not if
    /// it reads on from a server.
    pub(super) fn may_retry(&self, id: OperationId) -> bool {
        let may = |it: &Operation| {
            !it.retried && self.now < it.deadline && !matches!(it.cursor, Cursor::Open { .. })
        };
        self.plan.retries && !self.closed && self.operations.get(&id).is_some_and(may)
    }

    /// Tries an operation once more, if possible with another server. It has no connection any
    /// more, as whoever kept one while waiting for another could wait for ever.
    pub(super) fn retry(&mut self, network: &mut Network, id: OperationId, failed: ServerId) {
        let Some(operation) = self.operations.get_mut(&id) else { return };
        operation.retried = true;
        operation.state = State::Idle;
        operation.wants_since = self.now;
        if let Some(server) = self.servers.get(&failed) {
            let criteria = (*operation.criteria).clone();
            operation.criteria = Arc::new(criteria.deprioritize([server.address.clone()]));
        }
        self.select(network, id);
    }

    /// Looks at a pool that somebody has just asked for a connection.
    pub(super) fn note_queue(&mut self, id: ServerId, retry: Option<OperationId>) {
        let Some(server) = self.servers.get(&id) else { return };
        let counts = server.pool.get().counts();
        let most = self.options.pool().max_pool_size as usize;
        if counts.waiting >= BURST && counts.total() == counts.pending && counts.pending > 1 {
            self.checks.note(Sign::ColdBurst);
        }
        let operation = retry.and_then(|retry| self.operations.get_mut(&retry));
        if let Some(operation) = operation.filter(|_| most > 0 && counts.in_use >= most) {
            operation.met_all_out = true;
        }
    }

    /// An operation is about to be cancelled while it waits for a connection.
    pub(super) fn note_cancelled(&mut self, id: ServerId) {
        let most = self.options.pool().max_pool_size as usize;
        let counts = self.servers.get(&id).map(|server| server.pool.get().counts());
        if counts.is_some_and(|counts| most > 0 && counts.in_use >= most) {
            self.checks.note(Sign::CancelledInQueue);
        }
    }
}
