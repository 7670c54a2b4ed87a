//! A description of a topology as a log has it: as much of it as all drivers log.

use std::collections::BTreeMap;
use std::fmt;

use sdam_core::config::ServerAddress;
use sdam_core::description::{ServerType, TopologyDescription, TopologyType};
use serde_json::{Map, Value};

/// The description of a server in a log.
#[derive(Clone, Debug)]
pub(crate) struct ServerShape {
    pub(crate) server_type: ServerType,
    /// True if the log says why the server is Unknown.
    pub(crate) has_error: bool,
    /// True if the log says that, or that there is no error.
    pub(crate) tells_error: bool,
    /// The average round trip time in milliseconds, if the log says whether there is one.
    pub(crate) round_trip_time: Option<Option<f64>>,
    /// Everything that is said, by the names of hello's fields; empty in a text such as PyMongo's.
    pub(crate) details: Map<String, Value>,
}

/// The description of a topology in a log.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) topology_type: TopologyType,
    pub(crate) set_name: Option<String>,
    /// The largest electionId so far and its setVersion, if the log has them.
    pub(crate) max_election: Option<(String, i64)>,
    /// logicalSessionTimeoutMinutes of the topology, if the log says whether there is one.
    pub(crate) session_timeout: Option<Option<i64>>,
    /// `None` if the log leaves them out, as a `Map` that was printed with JSON.stringify does.
    pub(crate) servers: Option<BTreeMap<ServerAddress, ServerShape>>,
}

/// The fields of descriptions that are not compared (SDAM, "Server Description
/// Equality"), as drivers call it.
const NOT_COMPARED: [&str; 12] = [
    "$clusterTime",
    "connectionId",
    "lastUpdateTime",
    "lastUpdateTimeMS",
    "lastWrite",
    "lastWriteDate",
    "localTime",
    "minRoundTripTime",
    "minRoundTripTimeMS",
    "opTime",
    "roundTripTime",
    "roundTripTimeMS",
];

impl ServerShape {
    /// Returns whether both are of the same type, and say the same in every field that there is;
    /// not of descriptions that have none.
    pub(crate) fn says_the_same_as(&self, other: &Self) -> bool {
        !self.details.is_empty()
            && self.server_type == other.server_type
            && self.compared().eq(other.compared())
    }

    fn compared(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.details.iter().filter(|(name, _)| !NOT_COMPARED.contains(&name.as_str()))
    }
}

impl Shape {
    /// Returns what a log would say of `known`.
    pub(crate) fn of(known: &TopologyDescription) -> Self {
        let shape = |server_type, has_error| {
            let (round_trip_time, details) = (None, Map::new());
            let tells_error = true;
            ServerShape { server_type, has_error, tells_error, round_trip_time, details }
        };
        let servers = known.servers().iter().map(|server| {
            (server.address.clone(), shape(server.server_type, server.error.is_some()))
        });
        Self {
            topology_type: known.topology_type,
            set_name: known.set_name.as_deref().map(str::to_owned),
            max_election: None,
            session_timeout: None,
            servers: Some(servers.collect()),
        }
    }

    /// Returns the type of a server; `None` if it is no member, or if the log has no members.
    pub(crate) fn type_of(&self, address: &ServerAddress) -> Option<ServerType> {
        Some(self.servers.as_ref()?.get(address)?.server_type)
    }

    /// Returns the members and their types, in the order of their addresses.
    pub(crate) fn types(&self) -> impl Iterator<Item = (&ServerAddress, ServerType)> {
        let servers = self.servers.iter().flatten();
        servers.map(|(address, server)| (address, server.server_type))
    }

    /// Returns whether both say the same, as far as both say anything.
    pub(crate) fn agrees_with(&self, other: &Self) -> bool {
        let names = (&self.set_name, &other.set_name);
        let stated = self.servers.is_some() && other.servers.is_some();
        self.topology_type == other.topology_type
            && !matches!(names, (Some(one), Some(other)) if one != other)
            && (!stated || self.types().eq(other.types()))
    }

    /// Returns whether nothing is known of any server, as before the first check and after the
    /// last.
    pub(crate) fn is_blank(&self) -> bool {
        let with_primary = self.topology_type == TopologyType::ReplicaSetWithPrimary;
        !with_primary && self.types().all(|(_, server_type)| server_type == ServerType::Unknown)
    }

    /// Returns whether there are no servers.
    pub(crate) fn is_empty(&self) -> bool {
        self.servers.as_ref().is_some_and(BTreeMap::is_empty)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.topology_type.name())?;
        for (index, (address, server_type)) in self.types().enumerate() {
            let separator = if index == 0 { ": " } else { ", " };
            write!(f, "{separator}{address} {server_type}")?;
        }
        Ok(())
    }
}

/// Reads the name of a topology's type.
pub(crate) fn topology_type(name: &str) -> Option<TopologyType> {
    use TopologyType as T;
    [
        T::Unknown,
        T::Single,
        T::Sharded,
        T::ReplicaSetNoPrimary,
        T::ReplicaSetWithPrimary,
        T::LoadBalanced,
    ]
    .into_iter()
    .find(|it| it.name() == name)
}

/// Reads the name of a server's type; a PossiblePrimary is Unknown to all but a scan.
pub(crate) fn server_type(name: &str) -> Option<ServerType> {
    use ServerType as T;
    if name == "PossiblePrimary" {
        return Some(T::Unknown);
    }
    [
        T::Unknown,
        T::Standalone,
        T::Mongos,
        T::RsPrimary,
        T::RsSecondary,
        T::RsArbiter,
        T::RsOther,
        T::RsGhost,
        T::LoadBalancer,
    ]
    .into_iter()
    .find(|it| it.name().eq_ignore_ascii_case(name))
}
