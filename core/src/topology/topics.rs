//! The topics of events: what a subscriber may want to hear of.

use std::fmt;
use std::ops::BitOr;

use super::EventKind;

/// The topics of events that a subscriber wants to hear of.
///
/// ```
/// use sdam_core::topology::Topics;
///
/// let metrics = Topics::POOLS | Topics::COMMANDS;
/// assert!(metrics.contains(Topics::POOLS) && !metrics.contains(Topics::HEARTBEATS));
/// assert_eq!(format!("{metrics:?}"), r#"{"pools", "commands"}"#);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Topics(u8);

impl Topics {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// The topology: its beginning, its end, its descriptions, the hosts that DNS names, and what
    /// was found out about it.
    pub const TOPOLOGY: Self = Self(1);
    /// The servers: when they join and leave, and their descriptions.
    pub const SERVERS: Self = Self(1 << 1);
    /// The checks of servers.
    pub const HEARTBEATS: Self = Self(1 << 2);
    /// The pools and their connections, with every check-out and check-in.
    pub const POOLS: Self = Self(1 << 3);
    /// The commands of the application, which hold its data.
    pub const COMMANDS: Self = Self(1 << 4);
    /// Everything but commands.
    pub const WITHOUT_COMMANDS: Self =
        Self(Self::TOPOLOGY.0 | Self::SERVERS.0 | Self::HEARTBEATS.0 | Self::POOLS.0);
    /// Everything.
    pub const ALL: Self = Self(Self::WITHOUT_COMMANDS.0 | Self::COMMANDS.0);

    /// Returns whether all topics of `other` are among these.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns a bit for each topic, to be kept in an atomic.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Returns these topics and those of `other`; as `|` does, but in constants, too.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOr for Topics {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.with(other)
    }
}

impl fmt::Debug for Topics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (Self::TOPOLOGY, "topology"),
            (Self::SERVERS, "servers"),
            (Self::HEARTBEATS, "heartbeats"),
            (Self::POOLS, "pools"),
            (Self::COMMANDS, "commands"),
        ];
        f.debug_set()
            .entries(names.iter().filter(|(topic, _)| self.contains(*topic)).map(|(_, name)| name))
            .finish()
    }
}

impl EventKind {
    /// Returns the topic that the event belongs to.
    pub const fn topic(&self) -> Topics {
        match self {
            Self::TopologyOpening
            | Self::TopologyDescriptionChanged { .. }
            | Self::TopologyClosed
            | Self::SrvHostRefused { .. }
            | Self::SrvRescanFailed { .. }
            | Self::Diagnosed { .. } => Topics::TOPOLOGY,
            Self::ServerOpening { .. }
            | Self::ServerDescriptionChanged { .. }
            | Self::ServerClosed { .. } => Topics::SERVERS,
            Self::ServerHeartbeatStarted { .. }
            | Self::ServerHeartbeatSucceeded { .. }
            | Self::ServerHeartbeatFailed { .. } => Topics::HEARTBEATS,
            Self::Pool { .. } => Topics::POOLS,
            Self::Command { .. } => Topics::COMMANDS,
        }
    }
}
