//! The summary of some servers of a topology: answers to what is asked about all of them at once.

use super::incompatibility::Incompatibility;
use super::server::{ServerDescription, ServerType};

/// The summary of some servers; that of more is made of those of fewer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Summary {
    /// A bit for each type of which there is a server.
    types: u16,
    /// True if this client shares no version of the wire protocol with one of them.
    pub(super) is_incompatible: bool,
    /// The shortest time that sessions live unused; of a server that gave none, `None`, which
    /// sorts first: one server without sessions decides. Without a data-bearing server there is
    /// none at all.
    session_timeout: Option<Option<i64>>,
}

impl Summary {
    /// Summarises one server.
    pub(super) fn of(server: &ServerDescription) -> Self {
        let is_data_bearing = server.server_type.is_data_bearing();
        Self {
            types: bit(server.server_type),
            is_incompatible: Incompatibility::of(server).is_some(),
            session_timeout: is_data_bearing.then_some(server.logical_session_timeout_minutes),
        }
    }

    /// Summarises the servers of both.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            types: self.types | other.types,
            is_incompatible: self.is_incompatible || other.is_incompatible,
            session_timeout: self.session_timeout.into_iter().chain(other.session_timeout).min(),
        }
    }

    /// Returns whether there is a server of a type.
    pub(super) const fn has(&self, server_type: ServerType) -> bool {
        self.types & bit(server_type) != 0
    }

    /// Returns whether there is a data-bearing server.
    pub(super) const fn has_data_bearing(&self) -> bool {
        self.session_timeout.is_some()
    }

    /// Returns the time that sessions live unused (SDAM: "Logical Session Timeout").
    pub(super) fn session_timeout(&self) -> Option<i64> {
        self.session_timeout.flatten()
    }
}

const fn bit(server_type: ServerType) -> u16 {
    1 << server_type as u16
}
