//! The comments for readers besides the replayed lines: the state of the pools, and views.

use super::action::told;
use super::time;
use crate::description::TopologyDescription;
use crate::pool::PoolEvent;
use crate::topology::{Event, EventKind};

/// Writes what happened to a pool as a comment, a line for the readers of a trace; nothing of other
/// events, and of those that come with every operation.
pub fn pool_comment(event: &Event) -> Option<String> {
    let EventKind::Pool { event: happened, .. } = &event.kind else { return None };
    match happened {
        PoolEvent::PoolReady
        | PoolEvent::PoolCleared { .. }
        | PoolEvent::ConnectionCreated { .. }
        | PoolEvent::ConnectionReady { .. }
        | PoolEvent::ConnectionClosed { .. }
        | PoolEvent::ConnectionCheckOutFailed { .. } => {
            Some(format!("# {} {}\n", time::written(event.at), told(&event.kind)))
        }
        PoolEvent::PoolCreated { .. }
        | PoolEvent::PoolClosed
        | PoolEvent::ConnectionCheckOutStarted
        | PoolEvent::ConnectionCheckedOut { .. }
        | PoolEvent::ConnectionCheckedIn { .. } => None,
    }
}

/// Writes all that is known as a comment, a line for the readers of a trace.
pub fn description_comment(description: &TopologyDescription) -> String {
    format!("# what is known at the end: {}\n", told(description))
}
