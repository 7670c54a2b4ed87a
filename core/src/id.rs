//! Identities that are never reused, so that late input cannot reach the wrong addressee.

use std::fmt;

use bson::oid::ObjectId;
use serde::{Serialize, Serializer};

/// A topology, as it appears in events: one for each client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct TopologyId(pub(crate) u64);

/// A server's membership in a topology; one that leaves and returns gets a new id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct ServerId(pub(crate) u64);

/// A monitoring byte stream of one server.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct LinkId {
    pub(crate) server: ServerId,
    pub(crate) number: u64,
}

impl LinkId {
    /// Returns the server that the stream leads to.
    pub const fn server(self) -> ServerId {
        self.server
    }
}

/// A connection of a pool: its number, from 1 in the order in which they were created.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct ConnectionId(pub(crate) u64);

impl ConnectionId {
    /// Returns the number, as it appears in events.
    pub const fn number(self) -> u64 {
        self.0
    }
}

/// The number of clears of a pool at the time when one of its connections was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
pub struct Generation(u32);

impl Generation {
    /// Names the generation that follows `clears` clears.
    pub const fn new(clears: u32) -> Self {
        Self(clears)
    }

    /// Returns how often the pool had been cleared.
    pub const fn number(self) -> u32 {
        self.0
    }

    pub(crate) const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Counts from the beginning of `other`, which was before this.
    pub(crate) const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Counts from the beginning that `other` counts from.
    pub(crate) const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

/// An operation that waits for a server or a connection; chosen by the caller, who never uses one
/// twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct WaiterId(pub u64);

/// Writes a service's name as events have it.
pub(crate) fn service_id<S: Serializer>(
    service: &Option<ObjectId>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match service {
        Some(service) => serializer.collect_str(service),
        None => serializer.serialize_none(),
    }
}

impl fmt::Display for TopologyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s{}", self.0)
    }
}

impl fmt::Display for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.server, self.number)
    }
}

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c{}", self.0)
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Debug for TopologyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Debug for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Debug for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
