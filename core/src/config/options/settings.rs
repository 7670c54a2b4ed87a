//! The combinations of options that are allowed, and what has no effect.

use std::collections::BTreeSet;

use super::{
    MAX_SEEDS, MIN_HEARTBEAT_FREQUENCY, OptionsError, ProxyOptions, Settings, TlsOptions, Warning,
    suffix,
};
use crate::config::ServerAddress;
use crate::wire::Compressor;

/// The fewest iterations of SCRAM that any server asks for (Authentication, "SCRAM-SHA-1").
const MIN_SCRAM_ITERATIONS: u32 = 4096;

impl Settings {
    /// Sets the seeds, each once, in the order given.
    pub(super) fn set_seeds(&mut self, seeds: impl IntoIterator<Item = ServerAddress>) {
        let mut seen = BTreeSet::new();
        let is_new = |seed: &ServerAddress| seen.insert(seed.clone());
        self.seeds = seeds.into_iter().filter(is_new).collect();
    }

    /// Forgets who the user is, and how that is proved.
    pub(super) fn forget_user(&mut self) {
        let defaults = Self::default();
        self.username = defaults.username;
        self.password = defaults.password;
        self.auth_source = defaults.auth_source;
        self.auth_mechanism = defaults.auth_mechanism;
        self.auth_mechanism_properties = defaults.auth_mechanism_properties;
        self.oidc_callback = defaults.oidc_callback;
        self.oidc_human_callback = defaults.oidc_human_callback;
    }

    pub(super) fn is_load_balanced(&self) -> bool {
        self.load_balanced == Some(true)
    }

    /// Makes explicit whether TLS is used: as was said, or else with any other `tls…` option, and
    /// with a seed list from DNS (Initial DNS Seedlist Discovery, "Validation Before Querying
    /// DNS").
    pub(super) fn decide_tls(&mut self) {
        let enabled = self.tls.unwrap_or(self.implies_tls());
        self.tls = Some(enabled);
        self.tls_options = enabled.then(|| self.tls_options.take().unwrap_or_default());
    }

    /// Leaves open whether TLS is used, where the other options say it.
    pub(super) fn undecide_tls(&mut self) {
        let implied = self.implies_tls();
        self.tls = self.tls.filter(|enabled| *enabled != implied);
    }

    const fn implies_tls(&self) -> bool {
        self.srv.is_some() || self.tls_options.is_some()
    }

    /// Returns what has no effect here, though its value is allowed.
    pub(super) fn unused(&self, is_compiled_in: fn(Compressor) -> bool) -> Vec<Warning> {
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
        if self.max_scram_iterations < MIN_SCRAM_ITERATIONS {
            return Err(OptionsError::MaxScramIterations(self.max_scram_iterations));
        }
        self.tls_options.as_ref().map_or(Ok(()), TlsOptions::check)?;
        self.proxy.as_ref().map_or(Ok(()), ProxyOptions::check)?;
        self.tcp.check()?;
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
        if let Some(suffix) = &srv.allowed_hosts_suffix {
            if srv.hosts_are_judged {
                let (option, with) = ("srvAllowedHostsSuffix", "srv_host_validator");
                return Err(OptionsError::Conflict { option, with });
            }
            suffix::check(suffix)?;
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
pub(super) fn is_service_name(name: &str) -> bool {
    (1..=62).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        && name.bytes().any(|byte| byte.is_ascii_alphabetic())
        && !name.starts_with('-')
        && !name.ends_with('-')
        && !name.contains("--")
}
