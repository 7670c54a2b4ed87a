//! Collects options and refuses the combinations that are not allowed.

use std::sync::Arc;
use std::time::Duration;

use super::{MonitoringMode, OpeningHello, Options, OptionsError, ServerApi, Settings, Warning};
use crate::config::address_map::AddressMap;
use crate::config::metadata::{ClientMetadata, DriverInfo, Environment, Os};
use crate::config::{Credential, ServerAddress, uri};
use crate::wire::is_compiled_in;

/// Collects [`Options`].
///
/// Of several calls that set the same option the last one counts; [`OptionsBuilder::uri`] is such
/// a call for what the connection string mentions, and leaves alone what it does not.
///
/// ```
/// use sdam_core::config::metadata::Environment;
/// use sdam_core::config::Options;
///
/// let options = Options::builder()
///     .uri("mongodb://db.example/?appName=shop")?
///     .environment(Environment::default())
///     .build()?;
/// assert_eq!(options.metadata().application(), Some("shop"));
/// # Ok::<(), sdam_core::config::OptionsError>(())
/// ```
#[derive(Clone, Debug)]
pub struct OptionsBuilder {
    pub(super) settings: Settings,
    os: Os,
    environment: Option<Environment>,
    driver_infos: Vec<DriverInfo>,
    address_map: AddressMap,
    warnings: Vec<Warning>,
}

impl OptionsBuilder {
    pub(super) fn new() -> Self {
        Self {
            settings: Settings::default(),
            os: Os::current(),
            environment: None,
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
    pub fn uri(mut self, uri: &str) -> Result<Self, OptionsError> {
        uri::apply(uri, &mut self.settings, &mut self.warnings)?;
        Ok(self)
    }

    /// Sets the servers to start from; repetitions do not count.
    ///
    /// If they take the place of a name in DNS, TLS stays on, as `mongodb+srv://` implies, unless
    /// it was or is turned off.
    #[must_use]
    pub fn seeds(mut self, seeds: impl IntoIterator<Item = ServerAddress>) -> Self {
        if self.settings.srv.take().is_some() {
            self.settings.tls.get_or_insert(true);
        }
        self.settings.set_seeds(seeds);
        self
    }

    /// Sets the name that the replica set must have.
    #[must_use]
    pub fn replica_set(mut self, name: impl Into<Arc<str>>) -> Self {
        self.settings.replica_set = Some(name.into());
        self
    }

    /// Sets whether the only seed is used whatever it is.
    #[must_use]
    pub const fn direct_connection(mut self, direct: bool) -> Self {
        self.settings.direct_connection = direct;
        self
    }

    /// Sets whether the only seed is a load balancer.
    #[must_use]
    pub const fn load_balanced(mut self, load_balanced: bool) -> Self {
        self.settings.load_balanced = Some(load_balanced);
        self
    }

    /// Sets whether nothing happens in the background, by default not: all servers are checked
    /// one after another by the operation that comes 60 s after the last such scan or finds no
    /// suitable server, and that waits for it (Server Monitoring, "Single-threaded monitoring").
    ///
    /// Selecting a server may then take as long as a scan, which is connectTimeoutMS for each
    /// server that does not answer, twice that if it was known. Streaming is not used.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sdam_core::config::Options;
    ///
    /// let uri = "mongodb://a.example/?serverSelectionTryOnce=false";
    /// let options = Options::builder().uri(uri)?.single_threaded(true).build()?;
    /// assert_eq!(options.heartbeat_frequency(), Duration::from_secs(60));
    /// assert!(!options.server_selection_try_once());
    /// # Ok::<(), sdam_core::config::OptionsError>(())
    /// ```
    #[must_use]
    pub const fn single_threaded(mut self, single_threaded: bool) -> Self {
        self.settings.single_threaded = single_threaded;
        self
    }

    /// Sets the time from the end of one check to the next, by default 10 s, or 60 s in the
    /// single-threaded mode.
    #[must_use]
    pub const fn heartbeat_frequency(mut self, frequency: Duration) -> Self {
        self.settings.heartbeat_frequency = Some(frequency);
        self
    }

    /// Sets the limit for connecting and for a check, by default 10 s; zero lifts it.
    #[must_use]
    pub const fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.settings.connect_timeout = timeout;
        self
    }

    /// Sets how much slower than the fastest a server may be, by default 15 ms.
    #[must_use]
    pub const fn local_threshold(mut self, threshold: Duration) -> Self {
        self.settings.local_threshold = threshold;
        self
    }

    /// Sets how long an operation waits for a server, by default 30 s.
    ///
    /// Zero is to select from what is known already.
    #[must_use]
    pub const fn server_selection_timeout(mut self, timeout: Duration) -> Self {
        self.settings.server_selection_timeout = timeout;
        self
    }

    /// Sets how servers are monitored.
    #[must_use]
    pub const fn monitoring_mode(mut self, mode: MonitoringMode) -> Self {
        self.settings.monitoring_mode = mode;
        self
    }

    /// Sets the Stable API that every command declares.
    #[must_use]
    pub const fn server_api(mut self, api: ServerApi) -> Self {
        self.settings.server_api = Some(api);
        self
    }

    /// Sets the message that carries the first hello, where there is a choice.
    #[must_use]
    pub const fn opening_hello(mut self, opening: OpeningHello) -> Self {
        self.settings.opening_hello = opening;
        self
    }

    /// Sets the application's name, which servers log.
    #[must_use]
    pub fn app_name(mut self, name: impl Into<String>) -> Self {
        self.settings.app_name = Some(name.into());
        self
    }

    /// Sets the operating system, by default [`Os::current`].
    #[must_use]
    pub fn os(mut self, os: Os) -> Self {
        self.os = os;
        self
    }

    /// Sets what the process runs in, in place of what the client's runtime finds out itself;
    /// with [`Environment::default`] nothing is said of it, and monitors stream everywhere.
    #[must_use]
    pub fn environment(mut self, environment: Environment) -> Self {
        self.environment = Some(environment);
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

    /// Judges the options.
    ///
    /// # Errors
    ///
    /// There are no seeds or too many, a value is out of its range, or a combination is not
    /// allowed.
    pub fn build(mut self) -> Result<Options, OptionsError> {
        self.settings.decide_tls();
        self.settings.check()?;
        self.warnings.extend(self.settings.in_vain(is_compiled_in));
        let credential = Credential::from_settings(&self.settings)?;
        let app_name = self.settings.app_name.as_deref();
        let mut metadata = ClientMetadata::new(app_name, self.os, self.environment)?;
        for info in &self.driver_infos {
            metadata.append(info);
        }
        Ok(Options {
            settings: self.settings,
            credential,
            metadata,
            address_map: self.address_map,
            warnings: self.warnings,
        })
    }
}
