//! What a reader needs besides what is replayed: how the pools fare, and what was known.

use super::action::told;
use super::time;
use crate::description::TopologyDescription;
use crate::event::{Event, EventKind};

/// Writes what happened to a pool as a comment, but for what happens with every operation.
pub(crate) fn comment(event: &Event) -> Option<String> {
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

/// Writes all that is known as a comment.
pub(crate) fn view(view: &TopologyDescription) -> String {
    format!("# what is known at the end: {}\n", told(view))
}
