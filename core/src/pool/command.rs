//! What a topology tells the connection pool of one server.
//!
//! Only the topology starts generations, so that it can judge an error stale without asking a pool
//! (SDAM, "Why ignore errors based on CMAP's generation number?").

use std::fmt;

use bson::oid::ObjectId;
use serde::Serialize;

use crate::failure::Failure;

/// How often a pool has been cleared when one of its connections was created.
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
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What the pool of one server is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    /// The server can be used: connections may be made and handed out.
    Ready,
    /// Connections from before generation `to` are of no use; pause until the next `Ready`.
    Clear {
        /// The generation that begins.
        to: Generation,
        /// Whether to interrupt connections in use too.
        interrupt: bool,
        /// What was found to be wrong.
        cause: Failure,
    },
    /// Behind a load balancer, connections to one service are of no use.
    ClearService {
        /// The service.
        service: ObjectId,
        /// The generation that begins for it.
        to: Generation,
        /// What was found to be wrong.
        cause: Failure,
    },
}
