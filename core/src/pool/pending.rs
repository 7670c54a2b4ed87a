//! The connections that are being established.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Stages;
use super::queue::{Ticket, Waiter};
use crate::failure::Stage;
use crate::id::{ConnectionId, Generation, WaiterId};
use crate::time::Instant;

/// A connection that is being established.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) generation: Generation,
    /// The waiter for which it was created, if it was for one.
    pub(super) ticket: Option<Ticket>,
    /// That waiter, once it has left the queue because this connection is failing.
    pub(super) failing: Option<Waiter>,
    pub(super) created: Instant,
    /// The time when it is given up.
    pub(super) limit: Option<Instant>,
    /// True if that is the limit of a command of its handshake.
    pub(super) asked: bool,
    /// The stages that it has reached, and when.
    reached: Vec<(Stage, Instant)>,
}

impl Pending {
    pub(super) const fn new(
        generation: Generation,
        ticket: Option<Ticket>,
        created: Instant,
        limit: Option<Instant>,
    ) -> Self {
        Self {
            generation,
            ticket,
            failing: None,
            created,
            limit,
            asked: false,
            reached: Vec::new(),
        }
    }

    /// Returns how far it has come.
    pub(super) fn stage(&self) -> Stage {
        self.reached.last().map_or(Stage::Connect, |(stage, _)| *stage)
    }

    /// Returns how long each stage has taken until now, in the order in which they were reached
    /// first: a login may come to one of them several times.
    pub(super) fn stages(&self, now: Instant) -> Stages {
        let ends = self.reached.iter().skip(1).map(|(_, began)| *began).chain([now]);
        let mut stages: Vec<(Stage, Duration)> = Vec::with_capacity(self.reached.len());
        for ((stage, began), end) in self.reached.iter().zip(ends) {
            match stages.iter_mut().find(|(known, _)| known == stage) {
                Some((_, took)) => *took += end - *began,
                None => stages.push((*stage, end - *began)),
            }
        }
        stages.into()
    }
}

/// The connections that are being established.
#[derive(Clone, Debug, Default)]
pub(super) struct PendingSet {
    connections: BTreeMap<ConnectionId, Pending>,
    limits: BTreeSet<(Instant, ConnectionId)>,
    /// The number that will be of use when they are established.
    fresh: usize,
}

impl PendingSet {
    pub(super) fn len(&self) -> usize {
        self.connections.len()
    }

    /// Returns how many were created since the last clear.
    pub(super) const fn fresh(&self) -> usize {
        self.fresh
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.limits.first().map(|(limit, _)| *limit)
    }

    /// Returns the one that was begun first.
    pub(super) fn oldest(&self) -> Option<&Pending> {
        self.connections.values().next()
    }

    pub(super) fn find(&self, connection: ConnectionId) -> Option<&Pending> {
        self.connections.get(&connection)
    }

    pub(super) fn find_mut(&mut self, connection: ConnectionId) -> Option<&mut Pending> {
        self.connections.get_mut(&connection)
    }

    /// Notes that a waiter has stopped waiting.
    pub(super) fn forget(&mut self, waiter: WaiterId) -> Option<Waiter> {
        let mut pending = self.connections.values_mut();
        pending.find_map(|pending| pending.failing.take_if(|failing| failing.id == waiter))
    }

    pub(super) fn add(&mut self, connection: ConnectionId, pending: Pending) {
        self.limits.extend(pending.limit.map(|limit| (limit, connection)));
        self.connections.insert(connection, pending);
        self.fresh += 1;
    }

    /// Notes that a stage begins; those that come out of order are ignored, but in a login, which
    /// may ask for credentials at each of its steps.
    pub(super) fn reached(&mut self, connection: ConnectionId, stage: Stage, now: Instant) {
        let follows = |last: Stage| {
            last < stage || last == Stage::Authenticate && stage == Stage::Credentials
        };
        if let Some(pending) = self.connections.get_mut(&connection)
            && pending.reached.last().is_none_or(|(last, _)| follows(*last))
        {
            pending.reached.push((stage, now));
        }
    }

    /// Gives a connection that is for no waiter up at `limit`, that of a command of its handshake
    /// or not, unless somebody has judged it.
    pub(super) fn limit(&mut self, connection: ConnectionId, limit: Option<Instant>, asked: bool) {
        if let Some(pending) = self.connections.get_mut(&connection)
            && pending.ticket.is_none()
            && pending.limit.is_none_or(|before| self.limits.remove(&(before, connection)))
        {
            (pending.limit, pending.asked) = (limit, asked);
            self.limits.extend(limit.map(|limit| (limit, connection)));
        }
    }

    /// Gives a connection no limit, unless somebody has judged it.
    pub(super) fn suspend(&mut self, connection: ConnectionId) {
        if let Some(pending) = self.connections.get_mut(&connection)
            && let Some(limit) = pending.limit
            && self.limits.remove(&(limit, connection))
        {
            (pending.limit, pending.asked) = (None, false);
        }
    }

    /// Gives a connection up at `limit` that had none meanwhile.
    pub(super) fn resume(&mut self, connection: ConnectionId, limit: Option<Instant>) {
        if let Some(pending) = self.connections.get_mut(&connection)
            && pending.limit.is_none()
        {
            pending.limit = limit;
            self.limits.extend(limit.map(|limit| (limit, connection)));
        }
    }

    /// Gives a connection up at `renewed` only, if its limit has passed by `now` and was not judged
    /// yet.
    pub(super) fn renew(&mut self, connection: ConnectionId, now: Instant, renewed: Instant) {
        if let Some(pending) = self.connections.get_mut(&connection)
            && let Some(limit) = pending.limit.filter(|limit| *limit <= now)
            && self.limits.remove(&(limit, connection))
        {
            pending.limit = Some(renewed);
            self.limits.insert((renewed, connection));
        }
    }

    pub(super) fn remove(
        &mut self,
        connection: ConnectionId,
        current: Generation,
    ) -> Option<Pending> {
        let pending = self.connections.remove(&connection)?;
        if let Some(limit) = pending.limit {
            self.limits.remove(&(limit, connection));
        }
        if pending.generation == current {
            self.fresh -= 1;
        }
        Some(pending)
    }

    /// Notes that none of them will be of use.
    pub(super) const fn grow_stale(&mut self) {
        self.fresh = 0;
    }

    /// Gives all of them up.
    pub(super) fn take_all(&mut self) -> BTreeMap<ConnectionId, Pending> {
        self.limits.clear();
        self.fresh = 0;
        std::mem::take(&mut self.connections)
    }

    /// Returns one that has taken too long, once, with its stage and the option that says so.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<(ConnectionId, Stage, &'static str)> {
        let (limit, connection) = *self.limits.first()?;
        if limit > now {
            return None;
        }
        self.limits.pop_first();
        let pending = self.connections.get(&connection)?;
        let option = if pending.asked { "timeoutMS" } else { "connectTimeoutMS" };
        Some((connection, pending.stage(), option))
    }
}
