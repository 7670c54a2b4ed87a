//! Collects options and refuses the combinations that are not allowed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::{
    MAX_SEEDS, MIN_HEARTBEAT_FREQUENCY, MonitoringMode, OpeningHello, Options, OptionsError,
    ServerApi, Warning,
};
use crate::address::ServerAddress;
use crate::address_map::AddressMap;
use crate::metadata::{ClientMetadata, DriverInfo, Environment, Os};
use crate::uri;

/// Collects [`Options`].
///
/// Of several calls that set the same option the last one counts; [`OptionsBuilder::uri`] is such
/// a call for what the connection string mentions, and leaves alone what it does not.
///
/// ```
/// use sdam_core::metadata::Environment;
/// use sdam_core::options::Options;
///
/// let options = Options::builder()
///     .uri("mongodb://db.example/?appName=shop")?
///     .environment(Environment::default())
///     .build()?;
/// assert_eq!(options.metadata().application(), Some("shop"));
/// # Ok::<(), sdam_core::options::OptionsError>(())
/// ```
#[derive(Clone, Debug)]
pub struct OptionsBuilder {
    seeds: Vec<ServerAddress>,
    replica_set: Option<Arc<str>>,
    direct_connection: bool,
    load_balanced: bool,
    heartbeat_frequency: Duration,
    connect_timeout: Duration,
    local_threshold: Duration,
    server_selection_timeout: Duration,
    monitoring_mode: MonitoringMode,
    server_api: Option<ServerApi>,
    opening_hello: OpeningHello,
    app_name: Option<String>,
    os: Os,
    environment: Environment,
    driver_infos: Vec<DriverInfo>,
    address_map: AddressMap,
    warnings: Vec<Warning>,
}

impl OptionsBuilder {
    /// The defaults of URI Options, SDAM, Server Monitoring and Server Selection.
    pub(super) fn new() -> Self {
        Self {
            seeds: Vec::new(),
            replica_set: None,
            direct_connection: false,
            load_balanced: false,
            heartbeat_frequency: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(10),
            local_threshold: Duration::from_millis(15),
            server_selection_timeout: Duration::from_secs(30),
            monitoring_mode: MonitoringMode::default(),
            server_api: None,
            opening_hello: OpeningHello::default(),
            app_name: None,
            os: Os::current(),
            environment: Environment::default(),
            driver_infos: Vec::new(),
            address_map: AddressMap::default(),
            warnings: Vec::new(),
        }
    }

    /// Sets the seeds and all options that a connection string mentions.
    ///
    /// # Errors
    ///
    /// The string is malformed. Combinations are judged by [`OptionsBuilder::build`].
    pub fn uri(self, uri: &str) -> Result<Self, OptionsError> {
        Ok(uri::apply(uri, self)?)
    }

    /// Sets the servers to start from; repetitions do not count.
    #[must_use]
    pub fn seeds(mut self, seeds: impl IntoIterator<Item = ServerAddress>) -> Self {
        let mut seen = BTreeSet::new();
        let is_new = |seed: &ServerAddress| seen.insert(seed.clone());
        self.seeds = seeds.into_iter().filter(is_new).collect();
        self
    }

    /// Sets the name that the replica set must have.
    #[must_use]
    pub fn replica_set(mut self, name: impl Into<Arc<str>>) -> Self {
        self.replica_set = Some(name.into());
        self
    }

    /// Sets whether the only seed is used whatever it is.
    #[must_use]
    pub const fn direct_connection(mut self, direct: bool) -> Self {
        self.direct_connection = direct;
        self
    }

    /// Sets whether the only seed is a load balancer.
    #[must_use]
    pub const fn load_balanced(mut self, load_balanced: bool) -> Self {
        self.load_balanced = load_balanced;
        self
    }

    /// Sets the time from the end of one check to the next, by default 10 s.
    #[must_use]
    pub const fn heartbeat_frequency(mut self, frequency: Duration) -> Self {
        self.heartbeat_frequency = frequency;
        self
    }

    /// Sets the limit for connecting and for a check, by default 10 s; zero lifts it.
    #[must_use]
    pub const fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets how much slower than the fastest a server may be, by default 15 ms.
    #[must_use]
    pub const fn local_threshold(mut self, threshold: Duration) -> Self {
        self.local_threshold = threshold;
        self
    }

    /// Sets how long an operation waits for a server, by default 30 s.
    ///
    /// Zero is to select from what is known already.
    #[must_use]
    pub const fn server_selection_timeout(mut self, timeout: Duration) -> Self {
        self.server_selection_timeout = timeout;
        self
    }

    /// Sets how servers are monitored.
    #[must_use]
    pub const fn monitoring_mode(mut self, mode: MonitoringMode) -> Self {
        self.monitoring_mode = mode;
        self
    }

    /// Sets the Stable API that every command declares.
    #[must_use]
    pub const fn server_api(mut self, api: ServerApi) -> Self {
        self.server_api = Some(api);
        self
    }

    /// Sets the message that carries the first hello, where there is a choice.
    #[must_use]
    pub const fn opening_hello(mut self, opening: OpeningHello) -> Self {
        self.opening_hello = opening;
        self
    }

    /// Sets the application's name, which servers log.
    #[must_use]
    pub fn app_name(mut self, name: impl Into<String>) -> Self {
        self.app_name = Some(name.into());
        self
    }

    /// Sets the operating system, by default [`Os::current`].
    #[must_use]
    pub fn os(mut self, os: Os) -> Self {
        self.os = os;
        self
    }

    /// Sets the environment, by default one of which nothing is known.
    #[must_use]
    pub fn environment(mut self, environment: Environment) -> Self {
        self.environment = environment;
        self
    }

    /// Adds what a wrapping library says of itself, as [`ClientMetadata::append`] does.
    #[must_use]
    pub fn driver_info(mut self, info: DriverInfo) -> Self {
        self.driver_infos.push(info);
        self
    }

    /// Sets where the bytes for a server go, by default to the address it advertises.
    #[must_use]
    pub fn address_map(mut self, map: AddressMap) -> Self {
        self.address_map = map;
        self
    }

    pub(crate) fn warn(&mut self, warning: Warning) {
        self.warnings.push(warning);
    }

    /// Judges the options.
    ///
    /// # Errors
    ///
    /// There are no seeds or too many, a value is out of its range, or a combination is not
    /// allowed.
    pub fn build(self) -> Result<Options, OptionsError> {
        self.check_combinations()?;
        let mut metadata =
            ClientMetadata::new(self.app_name.as_deref(), self.os, self.environment)?;
        for info in &self.driver_infos {
            metadata.append(info);
        }
        let connect_timeout = Some(self.connect_timeout).filter(|timeout| !timeout.is_zero());
        Ok(Options {
            seeds: self.seeds,
            replica_set: self.replica_set,
            direct_connection: self.direct_connection,
            load_balanced: self.load_balanced,
            heartbeat_frequency: self.heartbeat_frequency,
            connect_timeout,
            local_threshold: self.local_threshold,
            server_selection_timeout: self.server_selection_timeout,
            monitoring_mode: self.monitoring_mode,
            server_api: self.server_api,
            opening_hello: self.opening_hello,
            metadata,
            address_map: self.address_map,
            warnings: self.warnings,
        })
    }

    /// SDAM, "Allowed configuration combinations"; Load Balancer Support, "URI Validation".
    fn check_combinations(&self) -> Result<(), OptionsError> {
        match self.seeds.len() {
            0 => return Err(OptionsError::NoSeeds),
            seeds if seeds > MAX_SEEDS => return Err(OptionsError::TooManySeeds(seeds)),
            seeds if seeds > 1 && self.direct_connection => {
                return Err(OptionsError::DirectConnectionWithSeeds(seeds));
            }
            seeds if seeds > 1 && self.load_balanced => {
                return Err(OptionsError::LoadBalancedWithSeeds(seeds));
            }
            _ => {}
        }
        if self.load_balanced && self.direct_connection {
            return Err(OptionsError::LoadBalancedWithDirectConnection);
        }
        if self.load_balanced && self.replica_set.is_some() {
            return Err(OptionsError::LoadBalancedWithReplicaSet);
        }
        if self.replica_set.as_ref().is_some_and(|name| name.is_empty()) {
            return Err(OptionsError::EmptyReplicaSet);
        }
        if self.heartbeat_frequency < MIN_HEARTBEAT_FREQUENCY {
            return Err(OptionsError::HeartbeatFrequency(self.heartbeat_frequency));
        }
        Ok(())
    }
}
