//! The options that transports, pools, authentication and commands make effective.

use std::time::Duration;

use super::{
    Options, OptionsBuilder, OptionsError, PoolOptions, ProxyOptions, SrvOptions, TlsOptions,
};
use crate::config::{
    AuthMechanism, Credential, MIN_RESCAN_INTERVAL, ReadPreference, Secret, ServerAddress,
    WriteConcern,
};
use crate::wire::Compressor;

impl Options {
    /// Returns how TLS is used, or `None` if it is not.
    ///
    /// It is used with `tls=true` or its alias `ssl=true`; also without either, if there is any
    /// other option whose name begins with `tls`, or if the seeds come from DNS.
    pub const fn tls(&self) -> Option<&TlsOptions> {
        self.settings.tls_options.as_ref()
    }

    /// Returns the proxy that every connection goes through.
    pub const fn proxy(&self) -> Option<&ProxyOptions> {
        self.settings.proxy.as_ref()
    }

    /// Returns where the seeds come from, if that is DNS.
    ///
    /// There are none yet if [`Options::seeds`] is empty: look them up, and go on with
    /// [`Options::resolved`].
    pub const fn srv(&self) -> Option<&SrvOptions> {
        self.settings.srv.as_ref()
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
        crate::config::uri::apply_txt(txt, &mut settings, &mut warnings)?;
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

    /// Says how long the hosts that DNS named may be relied on before they are looked up again; at
    /// least [`MIN_RESCAN_INTERVAL`], which is also the default.
    #[must_use]
    pub fn with_rescan_interval(mut self, interval: Duration) -> Self {
        self.settings.rescan_interval = interval.max(MIN_RESCAN_INTERVAL);
        self
    }

    /// Returns how long it is from the creation of a client to the first time the hosts are looked
    /// up again, if they came from DNS; later, the time to live of the records decides.
    pub const fn rescan_interval(&self) -> Duration {
        self.settings.rescan_interval
    }

    /// Returns the size and patience of each server's pool.
    pub const fn pool(&self) -> &PoolOptions {
        &self.settings.pool
    }

    /// Returns who the client is, if it is to authenticate.
    pub const fn credential(&self) -> Option<&Credential> {
        self.credential.as_ref()
    }

    /// Returns whether the mechanism PLAIN may be used without TLS.
    pub const fn plain_without_tls(&self) -> bool {
        self.settings.plain_without_tls
    }

    /// Returns the database that users are kept in, if one was named: `authSource`. A
    /// [`credential`](Self::credential) has the one that is used.
    pub fn auth_source(&self) -> Option<&str> {
        self.settings.auth_source.as_deref()
    }

    /// Returns the database that the connection string names; that alone asks for no
    /// authentication.
    pub fn database(&self) -> Option<&str> {
        self.settings.database.as_deref()
    }

    /// Returns which servers reads may use: `readPreference`, `readPreferenceTags`,
    /// `maxStalenessSeconds`.
    pub const fn read_preference(&self) -> &ReadPreference {
        &self.settings.read_preference
    }

    /// Returns which data reads may see: `readConcernLevel`.
    pub fn read_concern_level(&self) -> Option<&str> {
        self.settings.read_concern_level.as_deref()
    }

    /// Returns what makes a write successful: `w`, `journal`, `wTimeoutMS`.
    pub const fn write_concern(&self) -> &WriteConcern {
        &self.settings.write_concern
    }

    /// Returns whether reads are retried: `retryReads`.
    pub const fn retry_reads(&self) -> bool {
        self.settings.retry_reads
    }

    /// Returns whether writes are retried: `retryWrites`.
    pub const fn retry_writes(&self) -> bool {
        self.settings.retry_writes
    }

    /// Returns how often a command is retried that an overloaded server refused:
    /// `maxAdaptiveRetries`.
    pub const fn max_adaptive_retries(&self) -> u32 {
        self.settings.max_adaptive_retries
    }

    /// Returns whether such a retry avoids that server: `enableOverloadRetargeting`.
    pub const fn overload_retargeting(&self) -> bool {
        self.settings.overload_retargeting
    }

    /// Returns how long an operation may take with all its retries, zero for ever: `timeoutMS`.
    ///
    /// `None` is another thing than zero: the older time-outs hold then.
    pub const fn timeout(&self) -> Option<Duration> {
        self.settings.timeout
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

    /// Returns how hard zlib tries, from 0 to 9, or -1 for its own default:
    /// `zlibCompressionLevel`.
    pub const fn zlib_compression_level(&self) -> i32 {
        self.settings.zlib_compression_level
    }

    /// Returns whether an operation scans the servers once at most before it fails, however long
    /// that takes, instead of again and again within serverSelectionTimeoutMS:
    /// `serverSelectionTryOnce`, by default so. It counts in the single-threaded mode only.
    ///
    /// If so, selecting a server may take as long as a scan, and up to 500 ms more right after
    /// another one; otherwise an operation never waits longer than serverSelectionTimeoutMS, though
    /// the scan it began may still have to be ended by the next operation. A limit of the operation
    /// itself, as `timeoutMS`, holds either way.
    pub const fn server_selection_try_once(&self) -> bool {
        match self.settings.server_selection_try_once {
            Some(once) => once,
            None => true,
        }
    }
}

impl OptionsBuilder {
    /// Sets whether TLS is used; if nothing says so, it is with [`OptionsBuilder::tls_options`]
    /// and with [`OptionsBuilder::srv`].
    #[must_use]
    pub const fn tls(mut self, tls: bool) -> Self {
        self.settings.tls = Some(tls);
        self
    }

    /// Sets how TLS is used, unless it is not.
    #[must_use]
    pub fn tls_options(mut self, options: TlsOptions) -> Self {
        self.settings.tls_options = Some(options);
        self
    }

    /// Sets the proxy that every connection goes through.
    #[must_use]
    pub fn proxy(mut self, proxy: ProxyOptions) -> Self {
        self.settings.proxy = Some(proxy);
        self
    }

    /// Sets that the seeds come from DNS, in place of any that were set.
    #[must_use]
    pub fn srv(mut self, srv: SrvOptions) -> Self {
        self.settings.seeds.clear();
        self.settings.srv = Some(srv);
        self
    }

    /// Sets the size and patience of each server's pool.
    #[must_use]
    pub const fn pool(mut self, pool: PoolOptions) -> Self {
        self.settings.pool = pool;
        self
    }

    /// Sets the user's name, which asks for authentication.
    #[must_use]
    pub fn username(mut self, name: impl Into<String>) -> Self {
        self.settings.username = Some(name.into());
        self
    }

    /// Sets the user's password.
    #[must_use]
    pub fn password(mut self, password: impl Into<Secret>) -> Self {
        self.settings.password = Some(password.into());
        self
    }

    /// Sets the database that the connection string would name.
    #[must_use]
    pub fn database(mut self, name: impl Into<String>) -> Self {
        self.settings.database = Some(name.into());
        self
    }

    /// Sets the database that knows the user, by default [`OptionsBuilder::database`].
    #[must_use]
    pub fn auth_source(mut self, database: impl Into<String>) -> Self {
        self.settings.auth_source = Some(database.into());
        self
    }

    /// Sets how the client proves who it is, by default a SCRAM agreed on with the server.
    #[must_use]
    pub const fn auth_mechanism(mut self, mechanism: AuthMechanism) -> Self {
        self.settings.auth_mechanism = Some(mechanism);
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

    /// Sets that whoever authenticates obtains the tokens of OpenID Connect by a callback, so that
    /// the property `ENVIRONMENT` is neither needed nor allowed.
    #[must_use]
    pub const fn oidc_callback(mut self, callback: bool) -> Self {
        self.settings.oidc_callback = callback;
        self
    }

    /// Sets whether the mechanism PLAIN may be used without TLS, by default not: whoever can read
    /// along then has the password.
    #[must_use]
    pub const fn allow_plain_without_tls(mut self, allow: bool) -> Self {
        self.settings.plain_without_tls = allow;
        self
    }

    /// Sets which servers reads may use, by default the primary.
    #[must_use]
    pub fn read_preference(mut self, preference: ReadPreference) -> Self {
        self.settings.read_preference = preference;
        self
    }

    /// Sets which data reads may see, by default what the server's default is.
    #[must_use]
    pub fn read_concern_level(mut self, level: impl Into<String>) -> Self {
        self.settings.read_concern_level = Some(level.into());
        self
    }

    /// Sets what makes a write successful, by default what the server's default is.
    #[must_use]
    pub fn write_concern(mut self, concern: WriteConcern) -> Self {
        self.settings.write_concern = concern;
        self
    }

    /// Sets whether reads are retried, by default they are.
    #[must_use]
    pub const fn retry_reads(mut self, retry: bool) -> Self {
        self.settings.retry_reads = retry;
        self
    }

    /// Sets whether writes are retried, by default they are.
    #[must_use]
    pub const fn retry_writes(mut self, retry: bool) -> Self {
        self.settings.retry_writes = retry;
        self
    }

    /// Sets how often a command is retried that an overloaded server refused, by default 2.
    #[must_use]
    pub const fn max_adaptive_retries(mut self, retries: u32) -> Self {
        self.settings.max_adaptive_retries = retries;
        self
    }

    /// Sets whether such a retry avoids that server, by default not.
    #[must_use]
    pub const fn overload_retargeting(mut self, enabled: bool) -> Self {
        self.settings.overload_retargeting = enabled;
        self
    }

    /// Sets whether an operation scans the servers once at most before it fails, by default so; it
    /// counts in the single-threaded mode only.
    #[must_use]
    pub const fn server_selection_try_once(mut self, once: bool) -> Self {
        self.settings.server_selection_try_once = Some(once);
        self
    }

    /// Sets how long an operation may take with all its retries, zero for ever.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.settings.timeout = Some(timeout);
        self
    }

    /// Sets how long sending or receiving for an operation may take; zero, the default, is for
    /// ever.
    #[must_use]
    pub const fn socket_timeout(mut self, timeout: Duration) -> Self {
        self.settings.socket_timeout = timeout;
        self
    }

    /// Sets the compressors to offer, the preferred one first, by default none.
    #[must_use]
    pub fn compressors(mut self, compressors: impl IntoIterator<Item = Compressor>) -> Self {
        self.settings.compressors = compressors.into_iter().collect();
        self
    }

    /// Sets how hard zlib tries, from 0 to 9, by default -1 for its own default.
    #[must_use]
    pub const fn zlib_compression_level(mut self, level: i32) -> Self {
        self.settings.zlib_compression_level = level;
        self
    }
}
