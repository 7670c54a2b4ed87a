//! The events, each with the number of those that were dropped before it.

use sdam_core::description::ServerType;
use sdam_core::topology::{Event, EventKind};
use sdam_host::Events;

/// The events, without those of pools, which are unused here, and each with the number of those
/// that were dropped before it.
#[derive(Debug)]
pub(super) struct Feed {
    events: Events,
    /// The number of dropped events that were reported.
    counted: u64,
    /// True if any server has been available.
    has_found: bool,
}

/// An event, and how many were dropped since the one that was read before it.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) event: Event,
    pub(super) dropped: u64,
}

impl Feed {
    /// Reads from a new subscription.
    pub(super) const fn new(events: Events) -> Self {
        Self { events, counted: 0, has_found: false }
    }

    /// Waits for the next event; `None` after the last one. Cancelling the wait loses nothing.
    pub(super) async fn next(&mut self) -> Option<Arrival> {
        loop {
            let event = self.events.next().await?;
            if !matches!(event.kind, EventKind::Pool { .. }) {
                return Some(self.arrival(event));
            }
        }
    }

    /// Returns the next event if there is one already.
    pub(super) fn try_next(&mut self) -> Option<Arrival> {
        loop {
            let event = self.events.try_next()?;
            if !matches!(event.kind, EventKind::Pool { .. }) {
                return Some(self.arrival(event));
            }
        }
    }

    /// Returns whether any server was available so far, and had a place in the topology.
    pub(super) const fn has_found(&self) -> bool {
        self.has_found
    }

    fn arrival(&mut self, event: Event) -> Arrival {
        if let EventKind::TopologyDescriptionChanged { new, .. } = &event.kind {
            let mut servers = new.servers().iter();
            // A load balancer is never asked.
            let is_unreachable =
                |it: ServerType| matches!(it, ServerType::Unknown | ServerType::LoadBalancer);
            self.has_found |= servers.any(|server| !is_unreachable(server.server_type));
        }
        let dropped = self.events.dropped() - self.counted;
        self.counted += dropped;
        Arrival { event, dropped }
    }
}
