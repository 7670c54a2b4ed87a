//! Collects options and refuses the combinations that are not allowed.

use std::time::Duration;

use super::{Options, OptionsError, Settings, SrvOptions, Warning, query};
use crate::config::address_map::AddressMap;
use crate::config::metadata::{ClientMetadata, DriverInfo, Environment, Os};
use crate::config::uri::{ConnectionString, Hosts};
use crate::config::{Credential, ReadConcern, Secret, ServerAddress};
use crate::wire::{Compressor, is_compiled_in};

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

    /// Takes options apart again, without what [`build`](Self::build) concludes from the others.
    pub(super) fn of(options: Options) -> Self {
        let (os, environment, driver_infos) = options.metadata.into_parts();
        let Options { mut settings, address_map, mut warnings, .. } = options;
        settings.undecide_tls();
        let unused = settings.unused(is_compiled_in);
        warnings.retain(|warning| !unused.contains(warning));
        Self { settings, os, environment, driver_infos, address_map, warnings }
    }

    /// Sets the seeds and all options that a connection string mentions.
    ///
    /// # Errors
    ///
    /// The string is malformed. Combinations are judged by [`OptionsBuilder::build`].
    pub fn uri(mut self, uri: &str) -> Result<Self, OptionsError> {
        let uri = ConnectionString::parse(uri)?;
        match uri.hosts {
            Hosts::Seeds(seeds) => {
                self.settings.set_seeds(seeds);
                self.settings.srv = None;
            }
            Hosts::Srv(hostname) => self = self.srv(SrvOptions::new(hostname)),
        }
        if let Some((username, password)) = uri.user {
            self.settings.username = Some(username);
            self.settings.password = password;
        }
        if let Some(database) = uri.database {
            self.settings.database = Some(database);
        }
        query::apply(uri.options, uri.ambiguous, &mut self.settings, &mut self.warnings)?;
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

    /// Sets that the seeds come from DNS, in place of any that were set.
    #[must_use]
    pub fn srv(mut self, srv: SrvOptions) -> Self {
        self.settings.seeds.clear();
        self.settings.srv = Some(srv);
        self
    }

    /// Sets one of the things that the mechanism needs besides.
    #[must_use]
    pub fn auth_mechanism_property(
        mut self,
        name: impl Into<String>,
        value: impl Into<Secret>,
    ) -> Self {
        self.settings.auth_mechanism_properties.insert(name.into(), value.into());
        self
    }

    /// Sets whether the mechanism PLAIN may be used without TLS, by default not: an eavesdropper
    /// would see the password.
    #[must_use]
    pub const fn allow_plain_without_tls(mut self, allow: bool) -> Self {
        self.settings.plain_without_tls = allow;
        self
    }

    /// Sets which data reads may see, by default what the server's default is:
    /// `readConcernLevel`.
    #[must_use]
    pub fn read_concern(mut self, concern: ReadConcern) -> Self {
        self.settings.read_concern_level = concern.level;
        self
    }

    /// Sets the compressors to offer, the preferred one first, by default none.
    #[must_use]
    pub fn compressors(mut self, compressors: impl IntoIterator<Item = Compressor>) -> Self {
        self.settings.compressors = compressors.into_iter().collect();
        self
    }

    /// Sets the maximum number of connections to a server, 0 for no limit, by default 100; for
    /// this and the other options of pools at once, there is [`pool`](Self::pool).
    #[must_use]
    pub const fn max_pool_size(mut self, connections: u32) -> Self {
        self.settings.pool.max_pool_size = connections;
        self
    }

    /// Sets the minimum number of connections to a server, by default 0.
    #[must_use]
    pub const fn min_pool_size(mut self, connections: u32) -> Self {
        self.settings.pool.min_pool_size = connections;
        self
    }

    /// Sets the number of connections to a server that are established at once, by default 2.
    #[must_use]
    pub const fn max_connecting(mut self, connections: u32) -> Self {
        self.settings.pool.max_connecting = connections;
        self
    }

    /// Sets the time that a connection may be idle, by default zero, which is for ever.
    #[must_use]
    pub const fn max_idle_time(mut self, time: Duration) -> Self {
        self.settings.pool.max_idle_time = time;
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
        self.warnings.extend(self.settings.unused(is_compiled_in));
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
