//! The state that a topology is in, as data, to compare and to print.

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use super::Topology;

/// Serialises what decides what a topology does next: not what it was configured with, nor what
/// follows from the rest, nor what only errors report.
///
/// Left out as well, although they do decide: frames that have come in part, what waiters are
/// waiting for, when descriptions were last updated, what the random numbers will be, the metadata
/// of new connections, and the clock.
impl Serialize for Topology {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut state = serializer.serialize_struct("Topology", 8)?;
        state.serialize_field("state", &self.state)?;
        state.serialize_field("description", &self.description)?;
        state.serialize_field("members", &self.members)?;
        state.serialize_field("departed", &self.departed)?;
        state.serialize_field("waiters", &self.waiters)?;
        state.serialize_field("rescan", &self.rescan)?;
        state.serialize_field("reseed", &self.reseed)?;
        state.serialize_field("scan", &self.scan)?;
        state.end()
    }
}
