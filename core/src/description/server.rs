//! The description of one server.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bson::DateTime;
use bson::oid::ObjectId;
use serde::{Serialize, Serializer};

use crate::config::ServerAddress;
use crate::failure::Failure;
use crate::id::ServerId;
use crate::time::Instant;

/// The type of a server (SDAM: "ServerType").
///
/// `Display` writes the [name](Self::name) that the specifications give it, `RSSecondary` for one.
///
/// PossiblePrimary is no type of its own here, but Unknown; the scan of a single-threaded client
/// knows which server it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum ServerType {
    /// Not checked yet, or the last check failed.
    #[default]
    Unknown,
    /// A mongod that is no member of a replica set.
    Standalone,
    /// A router of a sharded cluster.
    Mongos,
    /// The primary of a replica set.
    RsPrimary,
    /// A secondary of a replica set.
    RsSecondary,
    /// An arbiter of a replica set.
    RsArbiter,
    /// A member that is hidden, starting up or recovering.
    RsOther,
    /// A server that could be a member but is in no replica set (yet, or any more).
    RsGhost,
    /// A load balancer, which is never checked.
    LoadBalancer,
}

impl ServerType {
    /// Returns the name that the specifications give this type.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "Unknown",
            Self::Standalone => "Standalone",
            Self::Mongos => "Mongos",
            Self::RsPrimary => "RSPrimary",
            Self::RsSecondary => "RSSecondary",
            Self::RsArbiter => "RSArbiter",
            Self::RsOther => "RSOther",
            Self::RsGhost => "RSGhost",
            Self::LoadBalancer => "LoadBalancer",
        }
    }

    /// Returns whether applications can receive data from such a server (SDAM: "Data-Bearing
    /// Server Type").
    pub const fn is_data_bearing(self) -> bool {
        match self {
            Self::Standalone
            | Self::Mongos
            | Self::RsPrimary
            | Self::RsSecondary
            | Self::LoadBalancer => true,
            Self::Unknown | Self::RsArbiter | Self::RsOther | Self::RsGhost => false,
        }
    }
}

impl fmt::Display for ServerType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for ServerType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// The freshness of a server's description of itself (SDAM: "topologyVersion").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct TopologyVersion {
    /// A value that the server draws whenever its process starts.
    #[serde(serialize_with = "hex")]
    pub process_id: ObjectId,
    /// The number of significant changes that the process has seen.
    pub counter: i64,
}

impl TopologyVersion {
    /// Returns whether `self` is known to be older than `other`: the same process, a lower counter
    /// (SDAM: "topologyVersion Comparison").
    pub fn is_older_than(&self, other: &Self) -> bool {
        self.process_id == other.process_id && self.counter < other.counter
    }

    /// Names a process and how many changes it has seen.
    pub const fn new(process_id: ObjectId, counter: i64) -> Self {
        Self { process_id, counter }
    }
}

impl fmt::Display for TopologyVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.process_id, self.counter)
    }
}

/// The description of one server, from its last check (SDAM: "ServerDescription").
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ServerDescription {
    /// The server's membership.
    #[serde(skip)]
    pub id: ServerId,
    /// The address that the client connects to; [`me`](Self::me) may differ.
    pub address: ServerAddress,
    /// The type of the server.
    #[serde(rename = "type")]
    pub server_type: ServerType,
    /// The reason why the server is Unknown, if it is and was checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// The moving average of the duration of hello; `None` while the server is Unknown.
    #[serde(rename = "roundTripTimeMS", serialize_with = "optional_millis")]
    pub round_trip_time: Option<Duration>,
    /// The shortest of the last ten such durations, zero while there are fewer than two.
    #[serde(rename = "minRoundTripTimeMS", serialize_with = "millis")]
    pub min_round_trip_time: Duration,
    /// The time when the server was last checked; `None` if never.
    #[serde(skip)]
    pub last_update_time: Option<Instant>,
    /// The time when the server last saw a write, by its own clock.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "optional_date")]
    pub last_write_date: Option<DateTime>,
    /// The lowest wire protocol version that the server speaks.
    pub min_wire_version: i32,
    /// The highest wire protocol version that the server speaks.
    pub max_wire_version: i32,
    /// The address that the replica set's configuration gives this server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub me: Option<ServerAddress>,
    /// The members that may become primary, in the server's opinion; sorted.
    pub hosts: Arc<[ServerAddress]>,
    /// The members of priority zero, in the server's opinion; sorted.
    pub passives: Arc<[ServerAddress]>,
    /// The arbiters, in the server's opinion; sorted.
    pub arbiters: Arc<[ServerAddress]>,
    /// The server's tags.
    pub tags: Arc<BTreeMap<String, String>>,
    /// The name of the replica set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_name: Option<Arc<str>>,
    /// The election that made this server primary.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "optional_hex")]
    pub election_id: Option<ObjectId>,
    /// The version of the replica set's configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_version: Option<i64>,
    /// The primary, in the server's opinion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub primary: Option<ServerAddress>,
    /// The time that sessions live unused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logical_session_timeout_minutes: Option<i64>,
    /// The freshness of this description.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology_version: Option<TopologyVersion>,
    /// True if the server is mongocryptd.
    pub iscryptd: bool,
}

impl ServerDescription {
    /// Describes a server of which nothing is known yet.
    pub(crate) fn unknown(id: ServerId, address: ServerAddress) -> Self {
        Self {
            id,
            address,
            server_type: ServerType::Unknown,
            error: None,
            round_trip_time: None,
            min_round_trip_time: Duration::ZERO,
            last_update_time: None,
            last_write_date: None,
            min_wire_version: 0,
            max_wire_version: 0,
            me: None,
            hosts: Arc::default(),
            passives: Arc::default(),
            arbiters: Arc::default(),
            tags: Arc::default(),
            set_name: None,
            election_id: None,
            set_version: None,
            primary: None,
            logical_session_timeout_minutes: None,
            topology_version: None,
            iscryptd: false,
        }
    }

    /// Describes the same server as Unknown because of `failure`.
    pub(crate) fn failed(&self, now: Instant, failure: Failure) -> Self {
        Self {
            error: Some(failure),
            last_update_time: Some(now),
            ..Self::unknown(self.id, self.address.clone())
        }
    }

    /// Describes the same server as a load balancer, which is never checked.
    pub(crate) fn as_load_balancer(&self) -> Self {
        let server_type = ServerType::LoadBalancer;
        Self { server_type, ..Self::unknown(self.id, self.address.clone()) }
    }

    /// Returns every member that the server knows: hosts, passives and arbiters.
    pub fn members(&self) -> impl Iterator<Item = &ServerAddress> {
        self.hosts.iter().chain(self.passives.iter()).chain(self.arbiters.iter())
    }

    /// Returns whether nothing has changed that events report (SDAM: "Server Description Equality",
    /// the fields marked with an equals sign).
    pub fn same_as(&self, other: &Self) -> bool {
        self.address == other.address
            && self.server_type == other.server_type
            && self.error == other.error
            && self.min_wire_version == other.min_wire_version
            && self.max_wire_version == other.max_wire_version
            && self.me == other.me
            && self.hosts == other.hosts
            && self.passives == other.passives
            && self.arbiters == other.arbiters
            && self.tags == other.tags
            && self.set_name == other.set_name
            && self.election_id == other.election_id
            && self.set_version == other.set_version
            && self.primary == other.primary
            && self.logical_session_timeout_minutes == other.logical_session_timeout_minutes
            && self.topology_version == other.topology_version
            && self.iscryptd == other.iscryptd
    }
}

/// Serialises a duration as milliseconds.
pub(crate) fn millis<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64() * 1e3)
}

pub(crate) fn optional_millis<S: Serializer>(
    duration: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_some(&duration.map(|duration| duration.as_secs_f64() * 1e3))
}

pub(crate) fn optional_date<S: Serializer>(
    date: &Option<DateTime>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_some(&date.map(DateTime::timestamp_millis))
}

fn hex<S: Serializer>(id: &ObjectId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}

/// Serialises an ObjectId as its 24 hexadecimal digits.
pub(super) fn optional_hex<S: Serializer>(
    id: &Option<ObjectId>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match id {
        Some(id) => serializer.collect_str(id),
        None => serializer.serialize_none(),
    }
}
