//! The reason why each server was picked from or not.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::choose::LatencyLimit;
use super::criteria::Criteria;
use super::snapshot::Snapshot;
use super::suitable::{Attempt, Class, excess_staleness, has_tags};
use crate::config::ServerAddress;
use crate::description::{ServerDescription, ServerType, millis};
use crate::id::ServerId;

/// The reason why each server was picked from or not.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Explanation {
    /// The servers, in the order of their addresses.
    pub servers: Vec<ServerExplanation>,
}

/// The reason why one server was picked from or not.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ServerExplanation {
    /// The server's membership.
    #[serde(skip)]
    pub id: ServerId,
    /// The server's address.
    pub address: ServerAddress,
    /// The type of the server.
    #[serde(rename = "type")]
    pub server_type: ServerType,
    /// The reason why it was picked from or not.
    #[serde(flatten)]
    pub reason: Reason,
}

/// The reason why a server was picked from or not.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "reason", rename_all = "camelCase")]
#[non_exhaustive]
pub enum Reason {
    /// It is suitable and inside the latency window: one of those that are picked from.
    InWindow,
    /// It is suitable, but farther away than the latency window allows.
    OutsideWindow {
        /// By how much.
        #[serde(rename = "byMS", serialize_with = "millis")]
        by: Duration,
    },
    /// Nothing is known of it, or it has failed.
    Unknown,
    /// It is of another type than the operation needs.
    WrongType,
    /// It is of a type that would do, but another type is preferred and available.
    NotPreferred,
    /// It is too far behind the primary.
    TooStale {
        /// By how much more than allowed.
        #[serde(rename = "byMS", serialize_with = "millis")]
        by: Duration,
    },
    /// Its tags match no tag set, or only one that comes later than one that others match.
    NoTagMatch,
    /// It is to be avoided, and others are suitable.
    Deprioritized,
    /// The application's own condition refuses it.
    Predicate,
    /// Another member is the only one that will do.
    OtherMember,
}

impl Reason {
    /// Returns whether the server is suitable.
    pub const fn is_suitable(&self) -> bool {
        match self {
            Self::InWindow | Self::OutsideWindow { .. } => true,
            Self::Unknown
            | Self::WrongType
            | Self::NotPreferred
            | Self::TooStale { .. }
            | Self::NoTagMatch
            | Self::Deprioritized
            | Self::Predicate
            | Self::OtherMember => false,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InWindow => f.write_str("suitable"),
            Self::OutsideWindow { by } => write!(f, "outside the latency window by {by:.1?}"),
            Self::Unknown => f.write_str("unknown"),
            Self::WrongType => f.write_str("of a type that the operation cannot use"),
            Self::NotPreferred => f.write_str("not preferred"),
            Self::TooStale { by } => write!(f, "too stale by {:.1} s", by.as_secs_f64()),
            Self::NoTagMatch => f.write_str("without the tags asked for"),
            Self::Deprioritized => f.write_str("deprioritized"),
            Self::Predicate => f.write_str("refused by the application's predicate"),
            Self::OtherMember => f.write_str("not the member that is needed"),
        }
    }
}

impl Explanation {
    pub(super) fn new(snapshot: &Snapshot, criteria: &Criteria) -> Self {
        let attempt = Attempt::first_successful(snapshot, criteria);
        let successful =
            attempt.map(|attempt| (attempt, snapshot.latency_limit(&attempt, criteria)));
        let explain = |server: &ServerDescription| {
            let reason = match &successful {
                _ if criteria.member().is_some() => as_member(criteria, server),
                Some((attempt, limit)) => why_not(snapshot, criteria, attempt, server)
                    .unwrap_or_else(|| in_window(server, *limit)),
                None => why_never(snapshot, criteria, server),
            };
            let (id, address) = (server.id, server.address.clone());
            ServerExplanation { id, address, server_type: server.server_type, reason }
        };
        let servers = snapshot.description().servers();
        Self { servers: servers.iter().map(|server| explain(server)).collect() }
    }
}

/// The reason where one member alone will do.
fn as_member(criteria: &Criteria, server: &ServerDescription) -> Reason {
    match (criteria.member() == Some(&server.address), server.server_type) {
        (false, _) => Reason::OtherMember,
        (true, ServerType::Unknown) => Reason::Unknown,
        (true, _) => Reason::InWindow,
    }
}

fn in_window(server: &ServerDescription, limit: LatencyLimit) -> Reason {
    limit.excess(server).map_or(Reason::InWindow, |by| Reason::OutsideWindow { by })
}

/// The reason why a server is not among those that the successful attempt has found, `None` if it
/// is.
fn why_not(
    snapshot: &Snapshot,
    criteria: &Criteria,
    attempt: &Attempt<'_>,
    server: &ServerDescription,
) -> Option<Reason> {
    if attempt.avoid_deprioritized && criteria.deprioritized().contains(&server.address) {
        return Some(Reason::Deprioritized);
    }
    if !attempt.class.has(server.server_type) {
        return Some(wrong_class(snapshot, criteria, server));
    }
    if let Some(by) = excess_staleness(snapshot, criteria, server) {
        return Some(Reason::TooStale { by });
    }
    if attempt.tags.is_some_and(|tags| !has_tags(server, tags)) {
        return Some(Reason::NoTagMatch);
    }
    (!snapshot.suits(attempt, criteria, server)).then_some(Reason::Predicate)
}

/// The reason why a server is not suitable when none is.
fn why_never(snapshot: &Snapshot, criteria: &Criteria, server: &ServerDescription) -> Reason {
    match (wrong_class(snapshot, criteria, server), excess_staleness(snapshot, criteria, server)) {
        // Of the right class but not suitable: staleness, or else the tags.
        (Reason::NotPreferred, Some(by)) => Reason::TooStale { by },
        (Reason::NotPreferred, None) => Reason::NoTagMatch,
        (reason, _) => reason,
    }
}

/// The reason why a server is not of the class that was chosen.
fn wrong_class(snapshot: &Snapshot, criteria: &Criteria, server: &ServerDescription) -> Reason {
    let known = snapshot.description();
    let classes = Class::in_order(known.topology_type, criteria.mode_in(known));
    if server.server_type == ServerType::Unknown {
        Reason::Unknown
    } else if classes.iter().any(|class| class.has(server.server_type)) {
        Reason::NotPreferred
    } else {
        Reason::WrongType
    }
}
