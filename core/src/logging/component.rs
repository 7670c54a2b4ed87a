//! The components of the log, and the severity of messages.

use std::fmt;
use std::str::FromStr;

/// A part of the driver whose messages can be asked for by themselves (Logging, "Components").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Component {
    /// The commands of the application.
    Command,
    /// The topology and its monitoring.
    Topology,
    /// The selection of servers.
    ServerSelection,
    /// The pools and their connections.
    Connection,
}

impl Component {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::Command, Self::Topology, Self::ServerSelection, Self::Connection];

    /// Returns the name that the specification gives it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Topology => "topology",
            Self::ServerSelection => "serverSelection",
            Self::Connection => "connection",
        }
    }

    /// Returns the target of its messages in the facade `tracing`.
    pub const fn target(self) -> &'static str {
        match self {
            Self::Command => "mongodb::command",
            Self::Topology => "mongodb::topology",
            Self::ServerSelection => "mongodb::server_selection",
            Self::Connection => "mongodb::connection",
        }
    }

    /// Returns the environment variable with the least severity of its messages.
    pub const fn variable(self) -> &'static str {
        match self {
            Self::Command => "MONGODB_LOG_COMMAND",
            Self::Topology => "MONGODB_LOG_TOPOLOGY",
            Self::ServerSelection => "MONGODB_LOG_SERVER_SELECTION",
            Self::Connection => "MONGODB_LOG_CONNECTION",
        }
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The severity of a message, the most severe first (Logging, "Log Severity Levels").
///
/// ```
/// use sdam_core::logging::Severity;
///
/// assert_eq!("Warn".parse(), Ok(Severity::Warning));
/// assert!(Severity::Error < Severity::Debug);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Severity {
    /// Not used by the specifications.
    Emergency,
    /// Not used by the specifications.
    Alert,
    /// Not used by the specifications.
    Critical,
    /// An error that cannot be reported to the application in any other way.
    Error,
    /// A situation in which applications may misbehave.
    Warning,
    /// Something unusual, and no problem.
    Notice,
    /// Normal behaviour, at a high level.
    Informational,
    /// Details that help to find the cause of problems.
    Debug,
    /// Every step.
    Trace,
}

impl Severity {
    /// All of them, the most severe first.
    pub const ALL: [Self; 9] = [
        Self::Emergency,
        Self::Alert,
        Self::Critical,
        Self::Error,
        Self::Warning,
        Self::Notice,
        Self::Informational,
        Self::Debug,
        Self::Trace,
    ];

    /// Returns the name that environment variables and the official suites give it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Emergency => "emergency",
            Self::Alert => "alert",
            Self::Critical => "critical",
            Self::Error => "error",
            Self::Warning => "warn",
            Self::Notice => "notice",
            Self::Informational => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The reason why a text names no severity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no severity: off, emergency, alert, critical, error, warn, notice, info, debug and \
     trace are"
)]
pub struct UnknownSeverity(pub(super) String);

impl FromStr for Severity {
    type Err = UnknownSeverity;

    /// Reads a name, in upper or lower case.
    fn from_str(text: &str) -> Result<Self, UnknownSeverity> {
        let named = |severity: &&Self| severity.name().eq_ignore_ascii_case(text);
        Self::ALL.iter().find(named).copied().ok_or_else(|| UnknownSeverity(text.to_owned()))
    }
}
