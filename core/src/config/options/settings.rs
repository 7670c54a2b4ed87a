//! The values of all options, and the combinations of them that are allowed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::{
    MAX_SEEDS, MIN_HEARTBEAT_FREQUENCY, MonitoringMode, OpeningHello, OptionsError, PoolOptions,
    ProxyOptions, ServerApi, SrvOptions, TlsOptions, Warning,
};
use crate::config::{
    AuthMechanism, MIN_RESCAN_INTERVAL, ReadPreference, Secret, ServerAddress, WriteConcern,
};
use crate::wire::Compressor;

/// The values of all options, as a builder collects and options keep them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) seeds: Vec<ServerAddress>,
    pub(crate) srv: Option<SrvOptions>,
    pub(crate) rescan_interval: Duration,
    pub(crate) replica_set: Option<Arc<str>>,
    pub(crate) direct_connection: bool,
    /// Absent and `false` differ: only an absent one is taken from a TXT record.
    pub(crate) load_balanced: Option<bool>,
    /// Whether all is done by whoever calls.
    pub(crate) single_threaded: bool,
    /// Absent, the mode decides.
    pub(crate) heartbeat_frequency: Option<Duration>,
    pub(crate) connect_timeout: Duration,
    pub(crate) local_threshold: Duration,
    pub(crate) server_selection_timeout: Duration,
    pub(crate) server_selection_try_once: Option<bool>,
    pub(crate) monitoring_mode: MonitoringMode,
    pub(crate) server_api: Option<ServerApi>,
    pub(crate) opening_hello: OpeningHello,
    pub(crate) app_name: Option<String>,
    /// Whether TLS is used, if that was said outright.
    pub(crate) tls: Option<bool>,
    /// What was said of TLS besides.
    pub(crate) tls_options: Option<TlsOptions>,
    pub(crate) proxy: Option<ProxyOptions>,
    pub(crate) pool: PoolOptions,
    pub(crate) username: Option<String>,
    pub(crate) password: Option<Secret>,
    pub(crate) database: Option<String>,
    pub(crate) auth_source: Option<String>,
    pub(crate) auth_mechanism: Option<AuthMechanism>,
    pub(crate) auth_mechanism_properties: BTreeMap<String, Secret>,
    pub(crate) oidc_callback: bool,
    pub(crate) plain_without_tls: bool,
    pub(crate) read_preference: ReadPreference,
    pub(crate) read_concern_level: Option<String>,
    pub(crate) write_concern: WriteConcern,
    pub(crate) retry_reads: bool,
    pub(crate) retry_writes: bool,
    pub(crate) max_adaptive_retries: u32,
    pub(crate) overload_retargeting: bool,
    pub(crate) timeout: Option<Duration>,
    pub(crate) socket_timeout: Duration,
    pub(crate) compressors: Vec<Compressor>,
    pub(crate) zlib_compression_level: i32,
}

impl Default for Settings {
    /// The defaults of URI Options and of the specifications that it names.
    fn default() -> Self {
        Self {
            seeds: Vec::new(),
            srv: None,
            rescan_interval: MIN_RESCAN_INTERVAL,
            replica_set: None,
            direct_connection: false,
            load_balanced: None,
            single_threaded: false,
            heartbeat_frequency: None,
            connect_timeout: Duration::from_secs(10),
            local_threshold: Duration::from_millis(15),
            server_selection_timeout: Duration::from_secs(30),
            server_selection_try_once: None,
            monitoring_mode: MonitoringMode::default(),
            server_api: None,
            opening_hello: OpeningHello::default(),
            app_name: None,
            tls: None,
            tls_options: None,
            proxy: None,
            pool: PoolOptions::default(),
            username: None,
            password: None,
            database: None,
            auth_source: None,
            auth_mechanism: None,
            auth_mechanism_properties: BTreeMap::new(),
            oidc_callback: false,
            plain_without_tls: false,
            read_preference: ReadPreference::default(),
            read_concern_level: None,
            write_concern: WriteConcern::default(),
            retry_reads: true,
            retry_writes: true,
            max_adaptive_retries: 2,
            overload_retargeting: false,
            timeout: None,
            socket_timeout: Duration::ZERO,
            compressors: Vec::new(),
            zlib_compression_level: -1,
        }
    }
}

impl Settings {
    /// Sets the seeds, each once, in the order given.
    pub(crate) fn set_seeds(&mut self, seeds: impl IntoIterator<Item = ServerAddress>) {
        let mut seen = BTreeSet::new();
        let is_new = |seed: &ServerAddress| seen.insert(seed.clone());
        self.seeds = seeds.into_iter().filter(is_new).collect();
    }

    pub(super) fn is_load_balanced(&self) -> bool {
        self.load_balanced == Some(true)
    }

    /// Makes explicit whether TLS is used: as was said, or else with any other `tls…` option, and
    /// with a seed list from DNS (Initial DNS Seedlist Discovery, "Validation Before Querying
    /// DNS").
    pub(super) fn decide_tls(&mut self) {
        let implied = self.srv.is_some() || self.tls_options.is_some();
        let enabled = self.tls.unwrap_or(implied);
        self.tls = Some(enabled);
        self.tls_options = enabled.then(|| self.tls_options.take().unwrap_or_default());
    }

    /// Returns what has no effect here, though its value is allowed.
    pub(super) fn in_vain(&self, is_compiled_in: fn(Compressor) -> bool) -> Vec<Warning> {
        let mut warnings = Vec::new();
        if self.server_selection_try_once.is_some() && !self.single_threaded {
            warnings.push(Warning::SingleThreadedOnly { option: "serverSelectionTryOnce" });
        }
        let all = [Compressor::Snappy, Compressor::Zlib, Compressor::Zstd];
        let available = all.into_iter().filter(|compressor| is_compiled_in(*compressor));
        let available: Vec<_> = available.map(Compressor::name).collect();
        for compressor in self.compressors.iter().filter(|&&it| !is_compiled_in(it)) {
            let (option, element) = ("compressors", compressor.name());
            let available = available.clone();
            warnings.push(Warning::NotInThisBuild { option, element, available });
        }
        if self.zlib_compression_level != -1 && !self.compressors.contains(&Compressor::Zlib) {
            let (option, with) = ("zlibCompressionLevel", "zlib among the compressors");
            warnings.push(Warning::CountsOnlyWith { option, with });
        }
        warnings
    }

    pub(super) fn check(&self) -> Result<(), OptionsError> {
        self.check_deployment()?;
        if self.replica_set.as_ref().is_some_and(|name| name.is_empty()) {
            return Err(OptionsError::EmptyReplicaSet);
        }
        if let Some(frequency) = self.heartbeat_frequency
            && frequency < MIN_HEARTBEAT_FREQUENCY
        {
            return Err(OptionsError::HeartbeatFrequency(frequency));
        }
        if !(-1..=9).contains(&self.zlib_compression_level) {
            return Err(OptionsError::ZlibCompressionLevel(self.zlib_compression_level));
        }
        self.tls_options.as_ref().map_or(Ok(()), TlsOptions::check)?;
        self.proxy.as_ref().map_or(Ok(()), ProxyOptions::check)?;
        self.pool.check()?;
        self.write_concern.check()
    }

    /// SDAM, "Allowed configuration combinations"; Load Balancer Support, "URI Validation";
    /// Initial DNS Seedlist Discovery, "URI Validation".
    fn check_deployment(&self) -> Result<(), OptionsError> {
        let load_balanced = self.is_load_balanced();
        match self.seeds.len() {
            0 if self.srv.is_none() => return Err(OptionsError::NoSeeds),
            seeds if seeds > MAX_SEEDS => return Err(OptionsError::TooManySeeds(seeds)),
            seeds if seeds > 1 && self.direct_connection => {
                return Err(OptionsError::DirectConnectionWithSeeds(seeds));
            }
            seeds if seeds > 1 && load_balanced => {
                return Err(OptionsError::LoadBalancedWithSeeds(seeds));
            }
            _ => {}
        }
        if load_balanced && self.direct_connection {
            return Err(OptionsError::LoadBalancedWithDirectConnection);
        }
        if load_balanced && self.replica_set.is_some() {
            return Err(OptionsError::LoadBalancedWithReplicaSet);
        }
        let Some(srv) = &self.srv else { return Ok(()) };
        if self.direct_connection {
            return Err(OptionsError::DirectConnectionWithSrv);
        }
        if !is_service_name(&srv.service_name) {
            return Err(OptionsError::SrvServiceName);
        }
        let conflict = |with| Err(OptionsError::Conflict { option: "srvMaxHosts", with });
        match srv.max_hosts {
            0 => Ok(()),
            _ if self.replica_set.is_some() => conflict("replicaSet"),
            _ if load_balanced => conflict("loadBalanced=true"),
            _ => Ok(()),
        }
    }
}

/// RFC 6335, but with as many characters as DNS allows (Initial DNS Seedlist Discovery,
/// "srvServiceName").
pub(crate) fn is_service_name(name: &str) -> bool {
    (1..=62).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        && name.bytes().any(|byte| byte.is_ascii_alphabetic())
        && !name.starts_with('-')
        && !name.ends_with('-')
        && !name.contains("--")
}
