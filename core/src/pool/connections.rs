//! The established connections of a pool: those that are available, and what it knows of those in
//! use.

use std::collections::VecDeque;

use bson::oid::ObjectId;

use super::{CheckOut, ConnectionsInUse, Purpose};
use crate::id::{ConnectionId, Generation};
use crate::time::Instant;

/// The established connections of a pool.
///
/// Lending and keeping a connection take constant time and allocate nothing: [`add`](Self::add)
/// makes room for both.
#[derive(Clone, Debug)]
pub(super) struct ConnectionTable<C> {
    records: Vec<Record<C>>,
    free: Vec<u32>,
    /// The slots of available connections: the one that was returned last is at the end.
    available: VecDeque<u32>,
    in_use: ConnectionsInUse,
    /// The number of the last check-out.
    last: u64,
}

#[derive(Clone, Debug)]
struct Record<C> {
    identity: Identity,
    state: ConnectionState<C>,
}

/// The facts of an established connection that never change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Identity {
    pub(super) id: ConnectionId,
    pub(super) generation: Generation,
    pub(super) service: Option<ObjectId>,
}

#[derive(Clone, Debug)]
enum ConnectionState<C> {
    Free,
    Available { connection: C, since: Instant },
    InUse { number: u64, purpose: Purpose, interrupted: bool },
}

impl<C> ConnectionTable<C> {
    pub(super) fn new(max_pool_size: u32) -> Self {
        let in_use = ConnectionsInUse { max_pool_size, ..ConnectionsInUse::default() };
        let (records, free, available) = (Vec::new(), Vec::new(), VecDeque::new());
        Self { records, free, available, in_use, last: 0 }
    }

    pub(super) fn available(&self) -> usize {
        self.available.len()
    }

    pub(super) fn in_use(&self) -> usize {
        self.records.len() - self.free.len() - self.available.len()
    }

    pub(super) const fn connections_in_use(&self) -> ConnectionsInUse {
        self.in_use
    }

    /// Makes a new connection available.
    pub(super) fn add(&mut self, identity: Identity, connection: C, since: Instant) {
        let record = Record { identity, state: ConnectionState::Available { connection, since } };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.records[slot as usize] = record;
                slot
            }
            None => {
                self.records.push(record);
                let connections = self.records.len();
                self.free.reserve(connections);
                self.available.reserve(connections - self.available.len());
                // Each takes a socket, and no process has four billion of those.
                u32::try_from(connections - 1).expect("fewer than four billion connections")
            }
        };
        self.available.push_back(slot);
    }

    /// Lends the connection that was returned last, unless it has been idle since before
    /// `not_before`.
    pub(super) fn check_out(&mut self, not_before: Option<Instant>) -> Option<(CheckOut, C)> {
        let slot = *self.available.back()?;
        let record = &mut self.records[slot as usize];
        if let ConnectionState::Available { since, .. } = record.state
            && not_before.is_some_and(|limit| since <= limit)
        {
            return None;
        }
        self.available.pop_back();
        self.last += 1;
        let (number, purpose) = (self.last, Purpose::Operation);
        let in_use = ConnectionState::InUse { number, purpose, interrupted: false };
        let Identity { id, generation, service } = record.identity;
        match std::mem::replace(&mut record.state, in_use) {
            ConnectionState::Available { connection, .. } => {
                *self.in_use.of(purpose) += 1;
                Some((CheckOut { connection: id, generation, service, slot, number }, connection))
            }
            ConnectionState::Free | ConnectionState::InUse { .. } => {
                unreachable!("the slot was listed as available")
            }
        }
    }

    /// Returns what is known of a connection in use, and whether it was interrupted; `None` if
    /// the check-out has ended.
    pub(super) fn checked_out(&self, check_out: &CheckOut) -> Option<(Identity, bool)> {
        let record = self.records.get(check_out.slot as usize)?;
        match record.state {
            ConnectionState::InUse { number, interrupted, .. } if number == check_out.number => {
                Some((record.identity, interrupted))
            }
            ConnectionState::Free
            | ConnectionState::Available { .. }
            | ConnectionState::InUse { .. } => None,
        }
    }

    /// Makes a connection in use available again.
    pub(super) fn check_in(&mut self, check_out: &CheckOut, connection: C, since: Instant) {
        self.end_use(check_out, ConnectionState::Available { connection, since });
        self.available.push_back(check_out.slot);
    }

    /// Forgets a connection in use.
    pub(super) fn remove(&mut self, check_out: &CheckOut) {
        self.end_use(check_out, ConnectionState::Free);
        self.free.push(check_out.slot);
    }

    fn end_use(&mut self, check_out: &CheckOut, next: ConnectionState<C>) {
        let record = &mut self.records[check_out.slot as usize];
        if let ConnectionState::InUse { purpose, .. } = std::mem::replace(&mut record.state, next) {
            *self.in_use.of(purpose) -= 1;
        }
    }

    /// Notes what a check-out is needed for.
    pub(super) fn pin(&mut self, check_out: &CheckOut, purpose: Purpose) {
        if self.checked_out(check_out).is_some()
            && let ConnectionState::InUse { purpose: old, .. } =
                &mut self.records[check_out.slot as usize].state
        {
            *self.in_use.of(*old) -= 1;
            *self.in_use.of(purpose) += 1;
            *old = purpose;
        }
    }

    /// Returns since when the connection that has been idle for longest is.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        match self.records[*self.available.front()? as usize].state {
            ConnectionState::Available { since, .. } => Some(since),
            ConnectionState::Free | ConnectionState::InUse { .. } => None,
        }
    }

    /// Takes the available connection that has been idle for longest.
    pub(super) fn take_oldest(&mut self) -> Option<(ConnectionId, C)> {
        let slot = self.available.pop_front()?;
        self.take(slot)
    }

    /// Takes the available connections to one service that belong to older generations.
    pub(super) fn take_stale(
        &mut self,
        service: ObjectId,
        current: Generation,
    ) -> Vec<(ConnectionId, C)> {
        let records = &self.records;
        let all = self.available.iter().copied();
        let (stale, kept): (Vec<u32>, Vec<u32>) = all.partition(|slot| {
            let identity = records[*slot as usize].identity;
            identity.service == Some(service) && identity.generation < current
        });
        // Copied back, so that the room made by `add` stays.
        self.available.clear();
        self.available.extend(kept);
        stale.into_iter().filter_map(|slot| self.take(slot)).collect()
    }

    fn take(&mut self, slot: u32) -> Option<(ConnectionId, C)> {
        let record = &mut self.records[slot as usize];
        self.free.push(slot);
        match std::mem::replace(&mut record.state, ConnectionState::Free) {
            ConnectionState::Available { connection, .. } => Some((record.identity.id, connection)),
            ConnectionState::Free | ConnectionState::InUse { .. } => {
                unreachable!("the slot was listed as available")
            }
        }
    }

    /// Marks the connections in use that belong to older generations as interrupted, and returns
    /// those that were not yet.
    pub(super) fn interrupt(&mut self, current: Generation) -> Vec<ConnectionId> {
        let mut found = Vec::new();
        for record in &mut self.records {
            if let ConnectionState::InUse { interrupted, .. } = &mut record.state
                && record.identity.generation < current
                && !std::mem::replace(interrupted, true)
            {
                found.push(record.identity.id);
            }
        }
        found.sort_unstable();
        found
    }
}

impl ConnectionsInUse {
    const fn of(&mut self, purpose: Purpose) -> &mut u32 {
        match purpose {
            Purpose::Operation => &mut self.others,
            Purpose::Cursor => &mut self.cursors,
            Purpose::Transaction => &mut self.transactions,
        }
    }
}
