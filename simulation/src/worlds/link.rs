//! A stream between the client and a server, and what is under way on it.

use std::collections::VecDeque;

use sdam_core::description::TopologyVersion;
use sdam_core::time::Instant;
use serde::Serialize;

use super::deployment::Hello;

/// A message under way to the client.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) enum Arrival {
    Reply { hello: Hello, more: bool },
    End,
}

/// A stream between the client and a server.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Link {
    pub(super) member: usize,
    pub(super) is_open: bool,
    /// The number of the request to be answered next, or of the last reply of a stream.
    pub(super) request_id: i32,
    pub(super) is_legacy: bool,
    /// The time when the server answers again although nothing has changed, if the client listens.
    pub(super) listens_until: Option<Instant>,
    /// The last version that the client has received.
    pub(super) told: Option<TopologyVersion>,
    pub(super) arrivals: VecDeque<Arrival>,
}

impl Link {
    /// Begins with a stream that is being opened.
    pub(super) const fn new(member: usize) -> Self {
        Self {
            member,
            is_open: false,
            request_id: 0,
            is_legacy: false,
            listens_until: None,
            told: None,
            arrivals: VecDeque::new(),
        }
    }

    /// Returns whether nothing more comes after what is under way.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.arrivals.back(), Some(Arrival::End))
    }
}

/// The server's end of a stream is gone; what it has sent may arrive all the same.
pub(super) fn end(link: &mut Link) {
    link.listens_until = None;
    if link.is_open && !link.has_ended() {
        link.arrivals.push_back(Arrival::End);
    }
}
