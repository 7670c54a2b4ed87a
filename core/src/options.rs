//! What a client was configured with, valid once constructed.
//!
//! The names and limits are those of the [URI options specification]; the combinations that are
//! refused are those of Server Discovery And Monitoring, "Allowed configuration combinations", and
//! of Load Balancer Support, "URI Validation".
//!
//! [URI options specification]: https://github.com/mongodb/specifications/blob/master/source/uri-options/uri-options.md

mod builder;
#[cfg(test)]
mod tests;
mod warning;

use std::sync::Arc;
use std::time::Duration;

use crate::address::ServerAddress;
use crate::address_map::AddressMap;
use crate::metadata::{ClientMetadata, MetadataError};
use crate::uri::UriError;

pub use builder::OptionsBuilder;
pub use warning::Warning;

/// The shortest allowed time between two checks of a server: minHeartbeatFrequencyMS.
pub const MIN_HEARTBEAT_FREQUENCY: Duration = Duration::from_millis(500);

/// The greatest number of different seeds.
///
/// Each is monitored at once, and any one of them suffices to find the others.
pub const MAX_SEEDS: usize = 1000;

/// Whether monitors stream: `serverMonitoringMode` (Server Monitoring, "serverMonitoringMode").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum MonitoringMode {
    /// Stream, except on a function-as-a-service platform.
    #[default]
    Auto,
    /// Let servers that can do so push changes as they happen.
    Stream,
    /// Ask each server at intervals.
    Poll,
}

/// The message that carries the first hello of a connection.
///
/// Since June 2026 that is OP_MSG. OP_QUERY is for older servers and for compatible services that
/// await it. Where a server API version or a load balancer demands the `hello` command, only
/// OP_MSG may carry it (Handshake, "Connection handshake").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OpeningHello {
    /// OP_MSG, as for all that follows.
    #[default]
    OpMsg,
    /// The legacy OP_QUERY.
    OpQuery,
}

/// A version of the Stable API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerApiVersion {
    /// Version 1.
    V1,
}

impl ServerApiVersion {
    /// Returns the version as the field `apiVersion` spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "1",
        }
    }
}

/// The Stable API that every command declares (Stable API for Drivers).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerApi {
    /// The version: `apiVersion`.
    pub version: ServerApiVersion,
    /// Whether other commands are refused: `apiStrict`, not sent if absent.
    pub strict: Option<bool>,
    /// Whether deprecated behaviour is an error: `apiDeprecationErrors`, not sent if absent.
    pub deprecation_errors: Option<bool>,
}

impl From<ServerApiVersion> for ServerApi {
    fn from(version: ServerApiVersion) -> Self {
        Self { version, strict: None, deprecation_errors: None }
    }
}

/// Why options are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// The connection string is malformed, or asks for something that this version cannot do.
    #[error(transparent)]
    Uri(#[from] UriError),
    /// The client metadata is not allowed.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// There is no seed.
    #[error("there is no seed; at least one server address is needed")]
    NoSeeds,
    /// There are more than [`MAX_SEEDS`] different seeds.
    #[error("there are {0} seeds; at most {MAX_SEEDS} are allowed")]
    TooManySeeds(usize),
    /// The name of the replica set is empty.
    #[error("replicaSet is empty; it must have at least one character, or be left out")]
    EmptyReplicaSet,
    /// The heartbeat frequency is below [`MIN_HEARTBEAT_FREQUENCY`].
    #[error("heartbeatFrequencyMS is {} ms; at least 500 ms are needed", .0.as_millis())]
    HeartbeatFrequency(Duration),
    /// A direct connection goes to one server.
    #[error("directConnection=true needs exactly one seed, but there are {0}")]
    DirectConnectionWithSeeds(usize),
    /// A load balancer has one address.
    #[error("loadBalanced=true needs exactly one seed, but there are {0}")]
    LoadBalancedWithSeeds(usize),
    /// A load balancer hides the servers behind it.
    #[error("loadBalanced=true cannot be combined with directConnection=true")]
    LoadBalancedWithDirectConnection,
    /// A load balancer is no replica set.
    #[error("loadBalanced=true cannot be combined with replicaSet")]
    LoadBalancedWithReplicaSet,
}

/// What a client was configured with.
///
/// ```
/// use sdam_core::options::Options;
///
/// let options = Options::parse("mongodb://a.example,b.example:27018/?replicaSet=rs0")?;
/// assert_eq!(options.seeds().len(), 2);
/// assert_eq!(options.replica_set().map(|name| &**name), Some("rs0"));
/// assert!(Options::parse("mongodb://a,b/?directConnection=true").is_err());
/// # Ok::<(), sdam_core::options::OptionsError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    seeds: Vec<ServerAddress>,
    replica_set: Option<Arc<str>>,
    direct_connection: bool,
    load_balanced: bool,
    heartbeat_frequency: Duration,
    connect_timeout: Option<Duration>,
    local_threshold: Duration,
    server_selection_timeout: Duration,
    monitoring_mode: MonitoringMode,
    server_api: Option<ServerApi>,
    opening_hello: OpeningHello,
    metadata: ClientMetadata,
    address_map: AddressMap,
    warnings: Vec<Warning>,
}

impl Options {
    /// Starts from the defaults and no seeds.
    pub fn builder() -> OptionsBuilder {
        OptionsBuilder::new()
    }

    /// Parses a connection string, see [`crate::uri`].
    ///
    /// # Errors
    ///
    /// The string is malformed, or the combination of its options is not allowed.
    pub fn parse(uri: &str) -> Result<Self, OptionsError> {
        Self::builder().uri(uri)?.build()
    }

    /// Returns the servers to start from: at least one, each once, in the order given.
    pub fn seeds(&self) -> &[ServerAddress] {
        &self.seeds
    }

    /// Returns the name that the replica set must have, never empty: `replicaSet`.
    pub const fn replica_set(&self) -> Option<&Arc<str>> {
        self.replica_set.as_ref()
    }

    /// Returns whether the only seed is used whatever it is: `directConnection`.
    pub const fn direct_connection(&self) -> bool {
        self.direct_connection
    }

    /// Returns whether the only seed is a load balancer: `loadBalanced`.
    pub const fn load_balanced(&self) -> bool {
        self.load_balanced
    }

    /// Returns the time from the end of one check to the next: `heartbeatFrequencyMS`.
    pub const fn heartbeat_frequency(&self) -> Duration {
        self.heartbeat_frequency
    }

    /// Returns the limit for connecting and for a check, `None` if unlimited: `connectTimeoutMS`.
    pub const fn connect_timeout(&self) -> Option<Duration> {
        self.connect_timeout
    }

    /// Returns how much slower than the fastest a server may be: `localThresholdMS`.
    pub const fn local_threshold(&self) -> Duration {
        self.local_threshold
    }

    /// Returns how long an operation waits for a server: `serverSelectionTimeoutMS`.
    ///
    /// Zero is to select from what is known already.
    pub const fn server_selection_timeout(&self) -> Duration {
        self.server_selection_timeout
    }

    /// Returns how servers are monitored, as configured: `serverMonitoringMode`.
    pub const fn monitoring_mode(&self) -> MonitoringMode {
        self.monitoring_mode
    }

    /// Returns whether monitors stream, given the mode and the environment.
    pub const fn streaming(&self) -> bool {
        match self.monitoring_mode {
            MonitoringMode::Auto => !self.metadata.environment().is_faas(),
            MonitoringMode::Stream => true,
            MonitoringMode::Poll => false,
        }
    }

    /// Returns the Stable API that every command declares.
    pub const fn server_api(&self) -> Option<ServerApi> {
        self.server_api
    }

    /// Returns the message that carries the first hello: OP_MSG wherever `hello` is demanded.
    pub const fn opening_hello(&self) -> OpeningHello {
        match self.server_api.is_some() || self.load_balanced {
            true => OpeningHello::OpMsg,
            false => self.opening_hello,
        }
    }

    /// Returns what a new connection says of the client.
    pub const fn metadata(&self) -> &ClientMetadata {
        &self.metadata
    }

    /// Returns where the bytes for a server go, if not to the address it advertises.
    pub const fn address_map(&self) -> &AddressMap {
        &self.address_map
    }

    /// Returns what the connection string contained in vain, for the application's log.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }
}
