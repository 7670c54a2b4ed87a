//! What a client was configured with, valid once constructed.
//!
//! The names and limits are those of the [URI options specification]; the combinations that are
//! refused are those of Server Discovery And Monitoring, "Allowed configuration combinations", and
//! of Load Balancer Support, "URI Validation".
//!
//! [URI options specification]: https://github.com/mongodb/specifications/blob/master/source/uri-options/uri-options.md

mod builder;
mod carried;
mod connection;
mod error;
mod notice;
mod print;
mod settings;
#[cfg(test)]
mod tests;
#[cfg(feature = "trace")]
mod traced;
mod warning;

use std::sync::Arc;
use std::time::Duration;

use crate::config::address_map::AddressMap;
use crate::config::metadata::{ClientMetadata, Environment};
use crate::config::{Credential, ServerAddress};

pub use builder::OptionsBuilder;
pub use connection::{PoolOptions, ProxyOptions, SrvOptions, TlsOptions};
pub use error::OptionsError;
pub use notice::Notice;
pub(crate) use settings::{Settings, is_service_name};
pub use warning::Warning;

/// The shortest allowed time between two checks of a server: minHeartbeatFrequencyMS.
pub const MIN_HEARTBEAT_FREQUENCY: Duration = Duration::from_millis(500);

/// The shortest time between two lookups of a deployment's hosts ("rescanSRVIntervalMS").
pub const MIN_RESCAN_INTERVAL: Duration = Duration::from_secs(60);

/// The default of heartbeatFrequencyMS (SDAM, "heartbeatFrequencyMS defaults to 10 seconds or 60
/// seconds"), and that of the single-threaded mode, where checks delay the application.
const HEARTBEAT_FREQUENCY: Duration = Duration::from_secs(10);
const SINGLE_THREADED_HEARTBEAT_FREQUENCY: Duration = Duration::from_secs(60);

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

impl MonitoringMode {
    /// Returns the name in `serverMonitoringMode`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Stream => "stream",
            Self::Poll => "poll",
        }
    }
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

/// What a client was configured with.
///
/// ```
/// use sdam_core::config::Options;
///
/// let options = Options::parse("mongodb://a.example,b.example:27018/?replicaSet=rs0")?;
/// assert_eq!(options.seeds().len(), 2);
/// assert_eq!(options.replica_set().map(|name| &**name), Some("rs0"));
/// assert!(Options::parse("mongodb://a,b/?directConnection=true").is_err());
/// # Ok::<(), sdam_core::config::OptionsError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    settings: Settings,
    credential: Option<Credential>,
    metadata: ClientMetadata,
    address_map: AddressMap,
    warnings: Vec<Warning>,
}

impl Options {
    /// Starts from the defaults and no seeds.
    pub fn builder() -> OptionsBuilder {
        OptionsBuilder::new()
    }

    /// Parses a connection string, see [`crate::config::uri`].
    ///
    /// # Errors
    ///
    /// The string is malformed, or the combination of its options is not allowed.
    pub fn parse(uri: &str) -> Result<Self, OptionsError> {
        Self::builder().uri(uri)?.build()
    }

    /// Returns the servers to start from: at least one, each once, in the order given; none if
    /// they are still to be looked up in DNS, see [`Options::srv`].
    pub fn seeds(&self) -> &[ServerAddress] {
        &self.settings.seeds
    }

    /// Returns the name that the replica set must have, never empty: `replicaSet`.
    pub const fn replica_set(&self) -> Option<&Arc<str>> {
        self.settings.replica_set.as_ref()
    }

    /// Returns whether the only seed is used whatever it is: `directConnection`.
    pub const fn direct_connection(&self) -> bool {
        self.settings.direct_connection
    }

    /// Returns whether the only seed is a load balancer: `loadBalanced`.
    pub fn load_balanced(&self) -> bool {
        self.settings.is_load_balanced()
    }

    /// Returns whether nothing happens in the background: servers are checked by operations that
    /// need to know, see [`OptionsBuilder::single_threaded`].
    pub const fn is_single_threaded(&self) -> bool {
        self.settings.single_threaded
    }

    /// Returns the time from the end of one check to the next, or in the single-threaded mode from
    /// the end of one scan of all servers to the next: `heartbeatFrequencyMS`.
    pub const fn heartbeat_frequency(&self) -> Duration {
        match (self.settings.heartbeat_frequency, self.settings.single_threaded) {
            (Some(frequency), _) => frequency,
            (None, false) => HEARTBEAT_FREQUENCY,
            (None, true) => SINGLE_THREADED_HEARTBEAT_FREQUENCY,
        }
    }

    /// Returns the limit for connecting and for a check, `None` if unlimited: `connectTimeoutMS`.
    pub fn connect_timeout(&self) -> Option<Duration> {
        Some(self.settings.connect_timeout).filter(|timeout| !timeout.is_zero())
    }

    /// Returns how much slower than the fastest a server may be: `localThresholdMS`.
    pub const fn local_threshold(&self) -> Duration {
        self.settings.local_threshold
    }

    /// Returns how long an operation waits for a server: `serverSelectionTimeoutMS`.
    ///
    /// Zero is to select from what is known already. In the single-threaded mode, this has no
    /// effect with [`server_selection_try_once`](Self::server_selection_try_once).
    pub const fn server_selection_timeout(&self) -> Duration {
        self.settings.server_selection_timeout
    }

    /// Returns how servers are monitored, as configured: `serverMonitoringMode`.
    pub const fn monitoring_mode(&self) -> MonitoringMode {
        self.settings.monitoring_mode
    }

    /// Returns whether monitors stream, given the mode and the environment; never in the
    /// single-threaded mode, as nobody would listen.
    pub const fn streaming(&self) -> bool {
        match self.settings.monitoring_mode {
            _ if self.settings.single_threaded => false,
            MonitoringMode::Auto => match self.metadata.environment() {
                Some(environment) => !environment.is_faas(),
                None => true,
            },
            MonitoringMode::Stream => true,
            MonitoringMode::Poll => false,
        }
    }

    /// Returns the options with the environment that `detect` finds, unless they name one.
    ///
    /// Runtimes do so when a client is created: core does not look at the process.
    #[must_use]
    pub fn or_environment(mut self, detect: impl FnOnce() -> Environment) -> Self {
        self.metadata.or_environment(detect);
        self
    }

    /// Returns the Stable API that every command declares.
    pub const fn server_api(&self) -> Option<ServerApi> {
        self.settings.server_api
    }

    /// Returns the message that carries the first hello: OP_MSG wherever `hello` is demanded.
    pub fn opening_hello(&self) -> OpeningHello {
        match self.settings.server_api.is_some() || self.load_balanced() {
            true => OpeningHello::OpMsg,
            false => self.settings.opening_hello,
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
