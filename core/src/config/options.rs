//! The configuration of a client, valid once constructed.
//!
//! The names and limits are those of the [URI options specification]; the combinations that are
//! refused are those of Server Discovery And Monitoring, "Allowed configuration combinations", and
//! of Load Balancer Support, "URI Validation".
//!
//! [URI options specification]: https://github.com/mongodb/specifications/blob/master/source/uri-options/uri-options.md

mod builder;
mod connection;
mod error;
mod meaning;
mod notice;
mod print;
mod query;
mod settings;
mod suffix;
mod table;
#[cfg(test)]
mod tests;
mod value;
mod warning;

use std::fmt;
use std::time::Duration;

use crate::config::address_map::AddressMap;
#[cfg(feature = "trace")]
use crate::config::metadata::Os;
use crate::config::metadata::{ClientMetadata, Environment};
use crate::config::uri::UriError;
use crate::config::{Credential, ReadConcern, Secret, ServerAddress};
use crate::wire::Compressor;

pub use builder::OptionsBuilder;
pub use connection::{PoolOptions, ProxyOptions, SrvOptions, TcpOptions, TlsOptions};
pub use error::OptionsError;
pub use notice::Notice;
use print::Printer;
pub(crate) use table::Settings;
use value::Secrets;
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

/// True if monitors stream: `serverMonitoringMode` (Server Monitoring, "serverMonitoringMode").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
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
#[non_exhaustive]
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
#[non_exhaustive]
pub struct ServerApi {
    /// The version: `apiVersion`.
    pub version: ServerApiVersion,
    /// True if other commands are refused: `apiStrict`, not sent if absent.
    pub strict: Option<bool>,
    /// True if deprecated behaviour is an error: `apiDeprecationErrors`, not sent if absent.
    pub deprecation_errors: Option<bool>,
}

impl ServerApi {
    /// Declares a version, and leaves the rest to the server.
    ///
    /// ```
    /// use sdam_core::config::{Options, ServerApi, ServerApiVersion};
    ///
    /// let api = ServerApi::new(ServerApiVersion::V1).with_strict(true);
    /// let builder = Options::builder().uri("mongodb://db.example/?appName=books")?;
    /// let options = builder.server_api(api).build()?;
    /// assert_eq!(options.server_api(), Some(api));
    /// assert_eq!(options.app_name(), Some("books"));
    /// # Ok::<(), sdam_core::config::OptionsError>(())
    /// ```
    pub const fn new(version: ServerApiVersion) -> Self {
        Self { version, strict: None, deprecation_errors: None }
    }

    /// Replaces [`strict`](Self::strict).
    #[must_use]
    pub fn with_strict(mut self, strict: impl Into<Option<bool>>) -> Self {
        self.strict = strict.into();
        self
    }

    /// Replaces [`deprecation_errors`](Self::deprecation_errors).
    #[must_use]
    pub fn with_deprecation_errors(mut self, deprecation_errors: impl Into<Option<bool>>) -> Self {
        self.deprecation_errors = deprecation_errors.into();
        self
    }
}

impl From<ServerApiVersion> for ServerApi {
    fn from(version: ServerApiVersion) -> Self {
        Self::new(version)
    }
}

/// The configuration of a client.
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

/// The options that a builder has collected, judged by [`OptionsBuilder::build`].
impl TryFrom<OptionsBuilder> for Options {
    type Error = OptionsError;

    fn try_from(builder: OptionsBuilder) -> Result<Self, OptionsError> {
        builder.build()
    }
}

/// A connection string, as [`Options::parse`] takes it.
impl TryFrom<&str> for Options {
    type Error = OptionsError;

    fn try_from(uri: &str) -> Result<Self, OptionsError> {
        Self::parse(uri)
    }
}

/// A connection string, as [`Options::parse`] takes it.
impl TryFrom<&String> for Options {
    type Error = OptionsError;

    fn try_from(uri: &String) -> Result<Self, OptionsError> {
        Self::parse(uri)
    }
}

/// A connection string, as [`Options::parse`] takes it.
impl TryFrom<String> for Options {
    type Error = OptionsError;

    fn try_from(uri: String) -> Result<Self, OptionsError> {
        Self::parse(&uri)
    }
}

impl Options {
    /// Starts from the defaults and no seeds.
    pub fn builder() -> OptionsBuilder {
        OptionsBuilder::new()
    }

    /// Goes back to a builder, to change some of the options; those that depend on each other are
    /// judged once more.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sdam_core::config::Options;
    ///
    /// let options = Options::parse("mongodb://db.example/?maxPoolSize=10")?;
    /// let limit = Duration::from_secs(5);
    /// let patient = options.clone().into_builder().server_selection_timeout(limit).build()?;
    /// assert_eq!(patient.server_selection_timeout(), limit);
    /// assert_eq!(patient.pool(), options.pool());
    /// # Ok::<(), sdam_core::config::OptionsError>(())
    /// ```
    #[must_use]
    pub fn into_builder(self) -> OptionsBuilder {
        OptionsBuilder::of(self)
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

    /// Returns the application's name, which servers write to their logs: `appName`.
    pub fn app_name(&self) -> Option<&str> {
        self.metadata.application()
    }

    /// Returns which data reads may see, by default what the server's default is:
    /// `readConcernLevel`.
    pub fn read_concern(&self) -> ReadConcern {
        ReadConcern::default().with_level(self.settings.read_concern_level.clone())
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

    /// Returns whether monitors stream, given the mode and the environment; never in the
    /// single-threaded mode, as nothing would read the replies.
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

    /// Returns how TLS is used, or `None` if it is not.
    ///
    /// It is used with `tls=true` or its alias `ssl=true`; also without either, if there is any
    /// other option whose name begins with `tls`, or if the seeds come from DNS.
    pub const fn tls(&self) -> Option<&TlsOptions> {
        self.settings.tls_options.as_ref()
    }

    /// Completes options whose seeds come from DNS with what DNS answered.
    ///
    /// `txt` is the text of the TXT record, or empty without one. Of what it says only that counts
    /// on which these options are silent.
    ///
    /// # Errors
    ///
    /// These options have no [`Options::srv`], there is no seed, the TXT record is malformed or
    /// sets another option than `authSource`, `replicaSet` and `loadBalanced`, or the combination
    /// is not allowed.
    pub fn resolved(&self, seeds: Vec<ServerAddress>, txt: &str) -> Result<Self, OptionsError> {
        if self.settings.srv.is_none() {
            return Err(OptionsError::NotSrv);
        }
        if seeds.is_empty() {
            return Err(OptionsError::NoSeeds);
        }
        let mut settings = self.settings.clone();
        settings.set_seeds(seeds);
        let mut warnings = self.warnings.clone();
        query::apply_txt(txt, &mut settings, &mut warnings)?;
        settings.check()?;
        let credential = Credential::from_settings(&settings)?;
        let (metadata, address_map) = (self.metadata.clone(), self.address_map.clone());
        Ok(Self { settings, credential, metadata, address_map, warnings })
    }

    /// Returns options that differ in the servers to start from only, wherever those came from:
    /// with members that another client has found, say.
    ///
    /// # Errors
    ///
    /// There are no seeds or too many, or the combination is not allowed.
    pub fn with_seeds(
        &self,
        seeds: impl IntoIterator<Item = ServerAddress>,
    ) -> Result<Self, OptionsError> {
        let mut options = self.clone();
        options.settings.set_seeds(seeds);
        if options.seeds().is_empty() {
            return Err(OptionsError::NoSeeds);
        }
        options.settings.check()?;
        Ok(options)
    }

    /// Says that a function of the application judges the hosts that DNS names, in place of the
    /// rule that they must be in the domain of the deployment. Those that it refuses are marked
    /// where the records are looked up.
    ///
    /// # Errors
    ///
    /// These options have no [`Options::srv`], or its
    /// [`allowed_hosts_suffix`](SrvOptions::allowed_hosts_suffix) is set.
    pub fn with_judged_hosts(mut self) -> Result<Self, OptionsError> {
        let option = "srv_host_validator";
        let Some(srv) = &mut self.settings.srv else {
            return Err(UriError::NeedsSrv { option }.into());
        };
        srv.hosts_are_judged = true;
        self.settings.check()?;
        Ok(self)
    }

    /// Says how long the hosts that DNS named may be relied on before they are looked up again; at
    /// least [`MIN_RESCAN_INTERVAL`], which is also the default.
    #[must_use]
    pub fn with_rescan_interval(mut self, interval: Duration) -> Self {
        self.settings.rescan_interval = interval.max(MIN_RESCAN_INTERVAL);
        self
    }

    /// Returns who the client is, if it is to authenticate.
    pub const fn credential(&self) -> Option<&Credential> {
        self.credential.as_ref()
    }

    /// Returns how long sending or receiving for an operation may take, `None` if unlimited:
    /// `socketTimeoutMS`, deprecated in favour of `timeoutMS`.
    pub fn socket_timeout(&self) -> Option<Duration> {
        Some(self.settings.socket_timeout).filter(|timeout| !timeout.is_zero())
    }

    /// Returns the compressors to offer, the preferred one first: `compressors`.
    pub fn compressors(&self) -> &[Compressor] {
        &self.settings.compressors
    }

    /// Returns whether an operation scans the servers once at most before it fails, however long
    /// that takes, instead of again and again within serverSelectionTimeoutMS:
    /// `serverSelectionTryOnce`, by default so. It counts in the single-threaded mode only.
    ///
    /// If so, selecting a server may take as long as a scan, and up to 500 ms more right after
    /// another one; otherwise an operation never waits longer than serverSelectionTimeoutMS, though
    /// the next operation may have to end the scan that it began. A limit of the operation itself,
    /// as `timeoutMS`, holds either way.
    pub const fn server_selection_try_once(&self) -> bool {
        match self.settings.server_selection_try_once {
            Some(once) => once,
            None => true,
        }
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

    /// Returns what has no effect in the connection string, for the application's log.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }
    /// Prints the connection string that means these options, with `***` for every secret.
    ///
    /// Options that have their default are left out, seeds that were looked up in DNS too.
    pub fn to_uri(&self) -> String {
        Printer { settings: &self.settings, secrets: Secrets::Hidden }.to_string()
    }

    /// Prints the connection string that means these options, secrets included.
    ///
    /// What was parsed parses again to the same options, without warnings, unless escapes make it
    /// longer than [`MAX_URI_LEN`](crate::config::uri::MAX_URI_LEN). What only a builder can set is
    /// lost: the Stable API, the opening hello, the environment and what libraries say of
    /// themselves, the callback of OpenID Connect, that PLAIN is allowed without TLS, that a
    /// function judges the hosts in DNS, hedged reads, fractions of the options' units.
    pub fn to_uri_with_secrets(&self) -> Secret {
        Printer { settings: &self.settings, secrets: Secrets::Shown }.to_string().into()
    }

    /// Returns what these options mean, where that is easily overlooked, for the application's
    /// log.
    ///
    /// ```
    /// use sdam_core::config::{Notice, Options};
    ///
    /// let options = Options::parse("mongodb://a/?tlsInsecure=true")?;
    /// assert_eq!(options.notices(), [Notice::AnyCertificate]);
    /// # Ok::<(), sdam_core::config::OptionsError>(())
    /// ```
    pub fn notices(&self) -> Vec<Notice> {
        self.tls().map_or_else(Vec::new, Notice::of)
    }

    /// Returns whether clients with these options and with `other` can share their monitors: both
    /// have the same seeds, in whatever order, and agree in all that decides how servers are
    /// reached, checked and judged, and in what monitors send them about the application.
    ///
    /// They may differ in credentials, in pools, concerns and compressors, and in the limits of
    /// operations. Nothing is shared where nothing is monitored: with a load balancer, and in the
    /// single-threaded mode.
    ///
    /// ```
    /// use sdam_core::config::Options;
    ///
    /// let [one, other] = ["ann:secret", "bob:secret"].map(|user| {
    ///     Options::parse(&format!("mongodb://{user}@a.example,b.example/?replicaSet=rs0"))
    /// });
    /// assert!(one?.can_share_monitors(&other?));
    /// # Ok::<(), sdam_core::config::OptionsError>(())
    /// ```
    pub fn can_share_monitors(&self, other: &Self) -> bool {
        let seeds = |options: &Self| {
            let mut seeds = options.seeds().to_vec();
            seeds.sort_unstable();
            seeds
        };
        !self.is_single_threaded()
            && !self.load_balanced()
            && seeds(self) == seeds(other)
            && self.settings.monitor_alike(&other.settings)
            && self.metadata == other.metadata
            && self.address_map == other.address_map
    }

    /// Returns the same without the user and what proves who that is, for monitors, which never
    /// log in.
    #[must_use]
    pub fn without_credential(&self) -> Self {
        let mut options = self.clone();
        options.settings.forget_user();
        options.credential = None;
        options
    }

    /// Returns options by which a topology does the same, and that say nothing else.
    #[cfg(feature = "trace")]
    pub(crate) fn traced(&self) -> Self {
        let mut settings = self.settings.traced();
        // What the environment decides is decided.
        settings.monitoring_mode = match self.streaming() {
            true => MonitoringMode::Stream,
            false => MonitoringMode::Poll,
        };
        settings.tls = Some(self.tls().is_some());
        settings.tls_options = self.tls().map(|_| TlsOptions::default());
        let metadata =
            ClientMetadata::new(None, Os::new(""), None).expect("no name is not too long a name");
        let address_map = self.address_map.clone();
        Self { settings, credential: None, metadata, address_map, warnings: Vec::new() }
    }
}

/// Prints [`Options::to_uri`].
impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Printer { settings: &self.settings, secrets: Secrets::Hidden }.fmt(f)
    }
}
