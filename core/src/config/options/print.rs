//! Prints options as the connection string that means them.

use std::fmt::{self, Display};
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::{Options, Settings};
use crate::config::{Acknowledgment, AuthMechanism, ReadMode, Secret, ServerAddress};

/// What RFC 3986 reserves, and all that is not ASCII.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// What must be encoded in the value of an option.
const IN_VALUE: &AsciiSet =
    &RESERVED.remove(b':').remove(b',').remove(b'/').remove(b'$').remove(b'*');

/// What must be encoded in a host, where no escape may stand for a delimiter.
const IN_HOST: &AsciiSet = &RESERVED.remove(b':').remove(b'[').remove(b']');

/// The properties of mechanisms that are no secrets.
const OPEN_PROPERTIES: [&str; 6] = [
    "CANONICALIZE_HOST_NAME",
    "ENVIRONMENT",
    "SERVICE_HOST",
    "SERVICE_NAME",
    "SERVICE_REALM",
    "TOKEN_RESOURCE",
];

impl Options {
    /// Prints the connection string that means these options, with `***` for every secret.
    ///
    /// Options that have their default are left out, seeds that were looked up in DNS too.
    pub fn to_uri(&self) -> String {
        Printer { settings: &self.settings, secrets: false }.to_string()
    }

    /// Prints the connection string that means these options, secrets included.
    ///
    /// What was parsed parses again to the same options, without warnings, unless escapes make it
    /// longer than [`MAX_URI_LEN`](crate::config::uri::MAX_URI_LEN). What only a builder can set is
    /// lost: the Stable API, the opening hello, the environment and what libraries say of
    /// themselves, the callback of OpenID Connect, that PLAIN is allowed without TLS, hedged reads,
    /// fractions of the options' units.
    pub fn to_uri_with_secrets(&self) -> Secret {
        Printer { settings: &self.settings, secrets: true }.to_string().into()
    }
}

/// Prints [`Options::to_uri`].
impl Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Printer { settings: &self.settings, secrets: false }.fmt(f)
    }
}

struct Printer<'a> {
    settings: &'a Settings,
    secrets: bool,
}

impl Display for Printer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = self.settings;
        f.write_str(if settings.srv.is_some() { "mongodb+srv://" } else { "mongodb://" })?;
        if let Some(username) = &settings.username {
            write!(f, "{}", utf8_percent_encode(username, RESERVED))?;
            if let Some(password) = &settings.password {
                write!(f, ":{}", self.secret(password, RESERVED))?;
            }
            f.write_str("@")?;
        }
        match &settings.srv {
            Some(srv) => write!(f, "{}", utf8_percent_encode(&srv.hostname, IN_HOST))?,
            None => print_hosts(f, &settings.seeds)?,
        }
        let database = settings.database.as_deref().unwrap_or_default();
        write!(f, "/{}", utf8_percent_encode(database, RESERVED))?;
        let mut query = Query { f, is_empty: true };
        self.deployment(&mut query)?;
        self.connections(&mut query)?;
        self.authentication(&mut query)?;
        self.commands(&mut query)
    }
}

fn print_hosts(f: &mut fmt::Formatter<'_>, seeds: &[ServerAddress]) -> fmt::Result {
    for (index, seed) in seeds.iter().enumerate() {
        if index > 0 {
            f.write_str(",")?;
        }
        match seed {
            ServerAddress::Unix { path } => {
                write!(f, "{}", utf8_percent_encode(path, RESERVED))?;
            }
            ServerAddress::Tcp { .. } => {
                write!(f, "{}", utf8_percent_encode(&seed.to_string(), IN_HOST))?;
            }
        }
    }
    Ok(())
}

/// Prints options, each behind its separator.
struct Query<'a, 'f> {
    f: &'a mut fmt::Formatter<'f>,
    is_empty: bool,
}

impl Query<'_, '_> {
    fn option(&mut self, name: &str, value: impl Display) -> fmt::Result {
        let separator = if self.is_empty { '?' } else { '&' };
        self.is_empty = false;
        let value = value.to_string();
        write!(self.f, "{separator}{name}={}", utf8_percent_encode(&value, IN_VALUE))
    }

    fn given(&mut self, name: &str, value: Option<impl Display>) -> fmt::Result {
        value.map_or(Ok(()), |value| self.option(name, value))
    }

    fn unless<T: PartialEq + Display>(
        &mut self,
        default: &T,
        name: &str,
        value: &T,
    ) -> fmt::Result {
        if value == default { Ok(()) } else { self.option(name, value) }
    }

    fn flag(&mut self, name: &str, value: bool) -> fmt::Result {
        self.unless(&false, name, &value)
    }

    fn milliseconds_unless(
        &mut self,
        default: Duration,
        name: &str,
        time: Duration,
    ) -> fmt::Result {
        self.unless(&milliseconds(default), name, &milliseconds(time))
    }
}

/// URI Options: "All integer options are 32-bit".
fn milliseconds(time: Duration) -> u128 {
    time.as_millis().min(0x7fff_ffff)
}

impl Printer<'_> {
    /// Returns a secret as it may be shown, encoded.
    fn secret(&self, secret: &Secret, set: &'static AsciiSet) -> String {
        match self.secrets {
            true => utf8_percent_encode(secret.expose(), set).to_string(),
            false => Secret::REDACTED.to_owned(),
        }
    }

    fn shown<'a>(&self, secret: &'a Secret) -> &'a str {
        if self.secrets { secret.expose() } else { Secret::REDACTED }
    }

    fn deployment(&self, query: &mut Query<'_, '_>) -> fmt::Result {
        let (settings, default) = (self.settings, Settings::default());
        query.given("replicaSet", settings.replica_set.as_ref())?;
        query.flag("directConnection", settings.direct_connection)?;
        query.given("loadBalanced", settings.load_balanced)?;
        if let Some(srv) = &settings.srv {
            query.unless(&"mongodb", "srvServiceName", &&*srv.service_name)?;
            query.unless(&0, "srvMaxHosts", &srv.max_hosts)?;
        }
        query.given("heartbeatFrequencyMS", settings.heartbeat_frequency.map(milliseconds))?;
        query.milliseconds_unless(
            default.local_threshold,
            "localThresholdMS",
            settings.local_threshold,
        )?;
        query.milliseconds_unless(
            default.server_selection_timeout,
            "serverSelectionTimeoutMS",
            settings.server_selection_timeout,
        )?;
        query.given("serverSelectionTryOnce", settings.server_selection_try_once)?;
        let mode = settings.monitoring_mode.name();
        query.unless(&default.monitoring_mode.name(), "serverMonitoringMode", &mode)?;
        query.given("appName", settings.app_name.as_deref().filter(|name| !name.is_empty()))
    }

    fn connections(&self, query: &mut Query<'_, '_>) -> fmt::Result {
        let (settings, default) = (self.settings, Settings::default());
        let connect = settings.connect_timeout;
        query.milliseconds_unless(default.connect_timeout, "connectTimeoutMS", connect)?;
        let socket = settings.socket_timeout;
        query.milliseconds_unless(default.socket_timeout, "socketTimeoutMS", socket)?;
        match &settings.tls_options {
            None if settings.srv.is_some() => query.option("tls", false)?,
            None => {}
            Some(tls) => {
                query.unless(&settings.srv.is_some(), "tls", &true)?;
                query.given("tlsCAFile", tls.ca_file.as_ref())?;
                query.given("tlsCertificateKeyFile", tls.certificate_key_file.as_ref())?;
                let password = tls.certificate_key_file_password.as_ref();
                let password = password.map(|password| self.shown(password));
                query.given("tlsCertificateKeyFilePassword", password)?;
                query.flag("tlsAllowInvalidCertificates", tls.allow_invalid_certificates)?;
                query.flag("tlsAllowInvalidHostnames", tls.allow_invalid_hostnames)?;
                let unchecked = tls.disable_certificate_revocation_check;
                query.flag("tlsDisableCertificateRevocationCheck", unchecked)?;
                query.flag("tlsDisableOCSPEndpointCheck", tls.disable_ocsp_endpoint_check)?;
            }
        }
        if let Some(proxy) = &settings.proxy {
            query.option("proxyHost", &proxy.host)?;
            query.option("proxyPort", proxy.port)?;
            query.given("proxyUsername", proxy.username.as_ref())?;
            let password = proxy.password.as_ref();
            query.given("proxyPassword", password.map(|password| self.shown(password)))?;
        }
        let (pool, default) = (&settings.pool, default.pool);
        query.unless(&default.max_pool_size, "maxPoolSize", &pool.max_pool_size)?;
        query.unless(&default.min_pool_size, "minPoolSize", &pool.min_pool_size)?;
        query.unless(&default.max_connecting, "maxConnecting", &pool.max_connecting)?;
        let idle = pool.max_idle_time;
        query.milliseconds_unless(default.max_idle_time, "maxIdleTimeMS", idle)?;
        query.given("waitQueueTimeoutMS", pool.wait_queue_timeout.map(milliseconds))
    }

    fn authentication(&self, query: &mut Query<'_, '_>) -> fmt::Result {
        let settings = self.settings;
        query.given("authSource", settings.auth_source.as_ref())?;
        query.given("authMechanism", settings.auth_mechanism.map(AuthMechanism::name))?;
        let pair = |(name, value): (&String, &Secret)| {
            let is_open = OPEN_PROPERTIES.contains(&name.as_str());
            format!("{name}:{}", if is_open { value.expose() } else { self.shown(value) })
        };
        let properties: Vec<String> = settings.auth_mechanism_properties.iter().map(pair).collect();
        let properties = Some(properties.join(",")).filter(|properties| !properties.is_empty());
        query.given("authMechanismProperties", properties)
    }

    fn commands(&self, query: &mut Query<'_, '_>) -> fmt::Result {
        let (settings, default) = (self.settings, Settings::default());
        let preference = &settings.read_preference;
        query.unless(&ReadMode::Primary, "readPreference", &preference.mode())?;
        for tags in preference.tag_sets() {
            let pairs: Vec<_> =
                tags.iter().map(|(name, value)| format!("{name}:{value}")).collect();
            query.option("readPreferenceTags", pairs.join(","))?;
        }
        let staleness = preference.max_staleness().map(|most| most.as_secs());
        query.given("maxStalenessSeconds", staleness)?;
        query.given("readConcernLevel", settings.read_concern_level.as_ref())?;
        match &settings.write_concern.w {
            None => {}
            Some(Acknowledgment::Servers(number)) => query.option("w", number)?,
            Some(Acknowledgment::Named(name)) => query.option("w", name)?,
        }
        query.given("journal", settings.write_concern.journal)?;
        let timeout = settings.write_concern.timeout.map(|timeout| timeout.as_millis());
        query.given("wTimeoutMS", timeout)?;
        query.unless(&true, "retryReads", &settings.retry_reads)?;
        query.unless(&true, "retryWrites", &settings.retry_writes)?;
        let retries = settings.max_adaptive_retries;
        query.unless(&default.max_adaptive_retries, "maxAdaptiveRetries", &retries)?;
        query.flag("enableOverloadRetargeting", settings.overload_retargeting)?;
        query.given("timeoutMS", settings.timeout.map(milliseconds))?;
        let names: Vec<_> = settings.compressors.iter().map(|one| one.name()).collect();
        query.given("compressors", Some(names.join(",")).filter(|names| !names.is_empty()))?;
        let level = settings.zlib_compression_level;
        query.unless(&default.zlib_compression_level, "zlibCompressionLevel", &level)
    }
}
