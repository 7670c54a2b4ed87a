//! What a reader needs besides what is replayed: how the pools fare.

use super::action::told;
use super::time;
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
