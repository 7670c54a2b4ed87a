//! What a reader needs besides what is replayed: how the pools fare, and what was known.

use super::action::told;
use super::time;
use crate::description::TopologyDescription;
use crate::event::{Event, EventKind};

/// Writes what happened to a pool as a comment, a line for the readers of a trace; nothing of other
/// events, and of those that come with every operation.
pub fn pool_comment(event: &Event) -> Option<String> {
    match &event.kind {
        EventKind::PoolReady { .. }
        | EventKind::PoolCleared { .. }
        | EventKind::ConnectionCreated { .. }
        | EventKind::ConnectionReady { .. }
        | EventKind::ConnectionClosed { .. }
        | EventKind::ConnectionCheckOutFailed { .. } => {
            Some(format!("# {} {}\n", time::written(event.at), told(&event.kind)))
        }
        _ => None,
    }
}

/// Writes all that is known as a comment, a line for the readers of a trace.
pub fn description_comment(description: &TopologyDescription) -> String {
    format!("# what is known at the end: {}\n", told(description))
}
