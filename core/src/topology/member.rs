//! One server as the topology keeps it: its monitor, and the generations of its pool.

use std::time::Duration;

use bson::oid::ObjectId;
use serde::Serialize;

use super::monitor::Monitor;
use crate::config::ServerAddress;
use crate::failure::Failure;
use crate::id::Generation;
use crate::pool::{Command, Generations};
use crate::time::Instant;

/// One server as the topology keeps it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Member {
    pub(super) address: ServerAddress,
    /// Load balancers have none.
    pub(super) monitor: Option<Monitor>,
    /// True if the pool was made ready, and not cleared since.
    ready: bool,
    /// Behind a load balancer, they count for each service.
    generations: Generations,
    /// Since when the server's checks have been failing, and how many have failed.
    pub(super) failing: Option<(Instant, u32)>,
    /// True if the server has ever answered, which only errors report.
    #[serde(skip)]
    pub(super) has_answered: bool,
    /// The number of operations in a row that were refused because it is no primary, and when the
    /// last one was.
    #[serde(skip)]
    pub(super) refusals: Option<Box<(u32, Instant)>>,
    /// The time that its name took to be looked up, if that was slow.
    #[serde(skip)]
    pub(super) slow_lookup: Option<Box<Duration>>,
}

impl Member {
    pub(super) fn new(address: ServerAddress, monitor: Option<Monitor>) -> Self {
        let generations = Generations::default();
        Self {
            address,
            monitor,
            ready: false,
            failing: None,
            generations,
            has_answered: false,
            refusals: None,
            slow_lookup: None,
        }
    }

    /// Returns the generation that connections made now belong to.
    pub(super) fn generation(&self, service: Option<ObjectId>) -> Generation {
        self.generations.current(service)
    }

    /// A check has ended.
    pub(super) fn checked(&mut self, succeeded: bool, now: Instant) {
        self.has_answered |= succeeded;
        self.failing = match (succeeded, self.failing) {
            (true, _) => None,
            (false, None) => Some((now, 1)),
            (false, Some((since, count))) => Some((since, count.saturating_add(1))),
        };
    }

    /// Returns whether the pool was made ready, and was not cleared since.
    pub(super) const fn is_ready(&self) -> bool {
        self.ready
    }

    /// The server can be used; returns the command for the pool, if it is news.
    pub(super) fn make_ready(&mut self) -> Option<Command> {
        (!std::mem::replace(&mut self.ready, true)).then_some(Command::Ready)
    }

    /// Begins a new generation, and returns the command for the pool.
    pub(super) fn clear(&mut self, cause: Failure, interrupt: bool) -> Command {
        self.ready = false;
        let to = self.generations.current(None).next();
        self.generations.begin(to);
        Command::Clear { to, interrupt, cause }
    }

    /// Begins a new generation for one service, and returns the command for the pool.
    pub(super) fn clear_service(&mut self, service: ObjectId, cause: Failure) -> Command {
        let to = self.generations.current(Some(service)).next();
        self.generations.begin_service(service, to);
        Command::ClearService { service, to, cause }
    }
}
