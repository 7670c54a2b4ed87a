//! The reason why a server has no place in a topology, as far as the server's own replies say.

use std::fmt;

use serde::Serialize;

use super::server::{ServerDescription, ServerType};
use super::topology::{TopologyDescription, TopologyType};
use crate::config::ServerAddress;

/// The reason why a server has no place in a topology.
///
/// Its text is the end of a sentence that begins with the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "removalReason", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum RemovalReason {
    /// It is in another replica set than the one that is expected.
    OtherSet {
        /// The name that the server gave.
        found: String,
        /// The name of the set that is monitored.
        wanted: String,
    },
    /// It is in no replica set, and one is monitored.
    NoMember {
        /// The type of the server.
        server_type: ServerType,
    },
    /// It is no mongos, and others are.
    NoMongos {
        /// The type of the server.
        server_type: ServerType,
    },
    /// It is a standalone, and one of several seeds.
    OneOfSeveral,
    /// The replica set knows it by another address.
    OtherName {
        /// That address.
        name: ServerAddress,
    },
    /// The replica set's primary does not list it.
    NotListed,
}

impl RemovalReason {
    /// Returns the name, as in JSON: a label for metrics, which stays as it is.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::OtherSet { .. } => "otherSet",
            Self::NoMember { .. } => "noMember",
            Self::NoMongos { .. } => "noMongos",
            Self::OneOfSeveral => "oneOfSeveral",
            Self::OtherName { .. } => "otherName",
            Self::NotListed => "notListed",
        }
    }

    /// Infers why a server that was just found to be `server` had to leave `topology`.
    pub fn infer(server: &ServerDescription, topology: &TopologyDescription) -> Self {
        let server_type = server.server_type;
        match (topology.topology_type, server_type) {
            (TopologyType::Sharded, _) => return Self::NoMongos { server_type },
            (TopologyType::Unknown, ServerType::Standalone) => return Self::OneOfSeveral,
            (_, ServerType::Standalone | ServerType::Mongos) => {
                return Self::NoMember { server_type };
            }
            _ => {}
        }
        match (&server.set_name, &topology.set_name, &server.me) {
            (Some(found), Some(wanted), _) if found != wanted => {
                Self::OtherSet { found: found.to_string(), wanted: wanted.to_string() }
            }
            (_, _, Some(me)) if *me != server.address => Self::OtherName { name: me.clone() },
            _ => Self::NotListed,
        }
    }

    /// Returns what the user can do if no other server is left.
    pub const fn remedy(&self) -> &'static str {
        match self {
            Self::OtherSet { .. } => "correct replicaSet or the hosts in the connection string",
            Self::NoMember { .. } => "leave out replicaSet, or name members of the replica set",
            Self::NoMongos { .. } => "name no other servers than mongos",
            Self::OneOfSeveral => "name that server alone",
            Self::OtherName { .. } | Self::NotListed => {
                "name servers as the replica set's configuration does, or use directConnection=true"
            }
        }
    }
}

impl fmt::Display for RemovalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherSet { found, wanted } => {
                write!(f, "is in replica set {found:?}, but {wanted:?} is expected")
            }
            Self::NoMember { server_type } => {
                write!(f, "is a {server_type}, but a replica set is expected")
            }
            Self::NoMongos { server_type } => {
                write!(f, "is of type {server_type}, but the others are mongos")
            }
            Self::OneOfSeveral => f.write_str("is a Standalone, but several servers were named"),
            Self::OtherName { name } => write!(f, "is called {name} by its replica set"),
            Self::NotListed => f.write_str("is not listed by the primary of the replica set"),
        }
    }
}

/// A server that has left a topology, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Removal {
    /// The server.
    pub address: ServerAddress,
    /// The reason why it has no place there.
    #[serde(flatten)]
    pub removal_reason: RemovalReason,
}

impl fmt::Display for Removal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.address, self.removal_reason)
    }
}
