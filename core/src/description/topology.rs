//! The description of the whole deployment.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bson::oid::ObjectId;
use serde::{Serialize, Serializer};

use super::changes::{Change, Changes, list, optional};
use super::incompatibility::Incompatibility;
use super::server::{ServerDescription, ServerType, optional_hex};
use super::servers::Servers;
use crate::config::ServerAddress;
use crate::id::ServerId;

/// The number of servers that a topology may have; what a reply names beyond that is not added.
///
/// A hello reply may list a thousand members of each kind, and without a primary nothing removes
/// those that no other member knows of.
pub const MAX_SERVERS: usize = 3000;

/// The type of a deployment (SDAM: "TopologyType").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum TopologyType {
    /// Nothing is known yet.
    #[default]
    Unknown,
    /// One server, whatever it is.
    Single,
    /// One or more mongos.
    Sharded,
    /// A replica set whose primary is not known.
    ReplicaSetNoPrimary,
    /// A replica set whose primary is known.
    ReplicaSetWithPrimary,
    /// Servers behind a load balancer.
    LoadBalanced,
}

impl TopologyType {
    /// Returns the name that the specifications give this type.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "Unknown",
            Self::Single => "Single",
            Self::Sharded => "Sharded",
            Self::ReplicaSetNoPrimary => "ReplicaSetNoPrimary",
            Self::ReplicaSetWithPrimary => "ReplicaSetWithPrimary",
            Self::LoadBalanced => "LoadBalanced",
        }
    }
}

impl fmt::Display for TopologyType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for TopologyType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// The old and the new description of one server.
pub(crate) type Replaced = (Arc<ServerDescription>, Arc<ServerDescription>);

/// The description of the whole deployment (SDAM: "TopologyDescription").
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct TopologyDescription {
    /// The type of the deployment.
    #[serde(rename = "type")]
    pub topology_type: TopologyType,
    /// The name of the replica set, as the user or its first member gave it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_name: Option<Arc<str>>,
    /// The largest electionId that a primary has reported.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "optional_hex")]
    pub max_election_id: Option<ObjectId>,
    /// The setVersion that goes with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_set_version: Option<i64>,
    /// The reason why no operation is possible, if a server and the client share no wire version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incompatibility: Option<Incompatibility>,
    /// The time that sessions live unused: the smallest value among data-bearing servers, and
    /// `None` if one of them gave none (SDAM: "Logical Session Timeout").
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logical_session_timeout_minutes: Option<i64>,
    /// In the order of their addresses.
    pub(crate) servers: Servers,
    /// The id of the next server that joins.
    #[serde(skip)]
    pub(super) next_id: u64,
    /// The interval of checks, by which the staleness of secondaries is estimated.
    #[serde(skip)]
    pub(crate) heartbeat_frequency: Duration,
}

impl TopologyDescription {
    /// Describes a deployment of which nothing was heard yet but the addresses of some servers.
    pub(crate) fn of_seeds(
        topology_type: TopologyType,
        set_name: Option<Arc<str>>,
        heartbeat_frequency: Duration,
        seeds: &[ServerAddress],
    ) -> Self {
        let mut description =
            Self { topology_type, set_name, heartbeat_frequency, ..Self::default() };
        description.add(seeds);
        description
    }

    /// Returns the servers, in the order of their addresses.
    pub const fn servers(&self) -> &Servers {
        &self.servers
    }

    /// Returns the server at `address`.
    pub fn server(&self, address: &ServerAddress) -> Option<&Arc<ServerDescription>> {
        self.servers.position(address).ok().map(|index| &self.servers[index])
    }

    /// Returns the primary, if this is a replica set and it is known.
    pub fn primary(&self) -> Option<&Arc<ServerDescription>> {
        self.servers.first_of(ServerType::RsPrimary).map(|index| &self.servers[index])
    }

    /// Returns whether nothing has changed that events report: not if only round trip times, dates
    /// of writes and times of checks differ (SDAM Logging and Monitoring,
    /// "TopologyDescriptionChangedEvent").
    pub fn same_as(&self, other: &Self) -> bool {
        self.differs_in_servers_only(other) && self.servers.same_as(&other.servers)
    }

    /// Returns whether nothing but the servers may differ, of what events report.
    pub(crate) fn differs_in_servers_only(&self, other: &Self) -> bool {
        self.topology_type == other.topology_type
            && self.set_name == other.set_name
            && self.max_election_id == other.max_election_id
            && self.max_set_version == other.max_set_version
            && self.incompatibility == other.incompatibility
            && self.logical_session_timeout_minutes == other.logical_session_timeout_minutes
    }

    /// Lists what differs from `self` to `new`, servers that joined and left included, what
    /// differs in the description of a server not.
    pub fn changes(&self, new: &Self) -> Vec<Change> {
        let (mut changes, old) = (Changes::default(), self);
        changes.compare("type", &old.topology_type, &new.topology_type, ToString::to_string);
        changes.compare("setName", &old.set_name, &new.set_name, optional);
        changes.compare("maxElectionId", &old.max_election_id, &new.max_election_id, optional);
        changes.compare("maxSetVersion", &old.max_set_version, &new.max_set_version, optional);
        changes.compare("incompatibility", &old.incompatibility, &new.incompatibility, optional);
        changes.compare(
            "logicalSessionTimeoutMinutes",
            &old.logical_session_timeout_minutes,
            &new.logical_session_timeout_minutes,
            optional,
        );
        let addresses = |description: &Self| -> Vec<String> {
            description.servers().iter().map(|server| server.address.to_string()).collect()
        };
        changes.compare("servers", &addresses(old), &addresses(new), |servers| list(servers));
        changes.0
    }

    /// Adds Unknown servers under new ids, but for addresses that are known already, and returns
    /// them in the order given.
    pub(crate) fn add<'a>(
        &mut self,
        addresses: impl IntoIterator<Item = &'a ServerAddress>,
    ) -> Vec<Arc<ServerDescription>> {
        let room = MAX_SERVERS.saturating_sub(self.servers.len());
        let (mut added, mut seen) = (Vec::new(), BTreeSet::new());
        for address in addresses {
            if added.len() == room {
                break;
            }
            if self.servers.position(address).is_err() && seen.insert(address) {
                let unknown = ServerDescription::unknown(ServerId(self.next_id), address.clone());
                self.next_id += 1;
                added.push(Arc::new(unknown));
            }
        }
        self.servers.insert(added.clone());
        added
    }

    /// Derives the fields that summarise all servers.
    pub(crate) fn summarise(&mut self) {
        self.incompatibility = self.servers.incompatibility();
        self.logical_session_timeout_minutes = self.servers.session_timeout();
    }
}
