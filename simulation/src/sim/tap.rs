//! The conversations of clients with members, as they are heard on the network.

use std::fmt::Debug;

use sdam_core::time::Instant;

use super::network::StreamId;

/// The connection that something is heard on, and its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// The client, by the number that it has in its simulation.
    pub(super) client: usize,
    pub(super) member: usize,
    pub(super) stream: StreamId,
}

/// Something that is heard on a connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum Overheard<'a> {
    /// The client sends bytes.
    Sent(&'a [u8]),
    /// Bytes of the member have come.
    Came(&'a [u8]),
    /// The client closes the connection.
    Closed,
}

/// Hears what is said.
pub(super) trait Tap: Debug + Send + Sync {
    /// Takes what is heard now.
    fn hear(&self, now: Instant, line: Line, what: Overheard<'_>);
}
