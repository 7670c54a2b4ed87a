//! The options of connections: TLS, a proxy, the pools, and a seed list from DNS.

use std::sync::Arc;
use std::time::Duration;

use super::{OptionsError, suffix};
use crate::config::{MAX_HOST_LEN, Secret, ServerAddress};

/// The options of TLS: the proof that servers give, and the client's own.
///
/// The combinations that URI Options, "Conflicting TLS options" forbids are refused when the
/// options are built.
///
/// Whether a server's certificate was revoked is checked with the feature `ocsp` (OCSP Support),
/// and by lists (CRL) of your own.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TlsOptions {
    /// The file with the authorities to trust instead of the system's: `tlsCAFile`.
    pub ca_file: Option<String>,
    /// The file with the client's certificate and private key: `tlsCertificateKeyFile`.
    pub certificate_key_file: Option<String>,
    /// The password of that private key: `tlsCertificateKeyFilePassword`.
    pub certificate_key_file_password: Option<Secret>,
    /// True if any certificate will do: `tlsAllowInvalidCertificates`, or `tlsInsecure`.
    pub allow_invalid_certificates: bool,
    /// True if the certificate may be for another host: `tlsAllowInvalidHostnames`, or
    /// `tlsInsecure`.
    pub allow_invalid_hostnames: bool,
    /// True if neither staples nor responders of OCSP nor lists say whether certificates were
    /// revoked: `tlsDisableCertificateRevocationCheck`.
    pub disable_certificate_revocation_check: bool,
    /// True if no OCSP responder is asked, whereas staples are judged:
    /// `tlsDisableOCSPEndpointCheck`.
    pub disable_ocsp_endpoint_check: bool,
    /// The file with lists of revoked certificates, in PEM, one for each authority whose
    /// certificates they are about. No option of connection strings names it. Like the other files
    /// it is read again when it changes.
    pub revocation_lists_file: Option<String>,
}

impl TlsOptions {
    pub(super) fn check(&self) -> Result<(), OptionsError> {
        let certificates = ("tlsAllowInvalidCertificates", self.allow_invalid_certificates);
        let revocation =
            ("tlsDisableCertificateRevocationCheck", self.disable_certificate_revocation_check);
        let endpoint = ("tlsDisableOCSPEndpointCheck", self.disable_ocsp_endpoint_check);
        let lists = ("the file of revocation lists", self.revocation_lists_file.is_some());
        for (one, other) in [
            (certificates, revocation),
            (certificates, endpoint),
            (revocation, endpoint),
            (lists, certificates),
            (lists, revocation),
        ] {
            if one.1 && other.1 {
                return Err(OptionsError::Conflict { option: one.0, with: other.0 });
            }
        }
        Ok(())
    }

    /// Replaces [`ca_file`](Self::ca_file).
    #[must_use]
    pub fn with_ca_file(mut self, ca_file: Option<String>) -> Self {
        self.ca_file = ca_file;
        self
    }

    /// Replaces [`certificate_key_file`](Self::certificate_key_file).
    #[must_use]
    pub fn with_certificate_key_file(mut self, certificate_key_file: Option<String>) -> Self {
        self.certificate_key_file = certificate_key_file;
        self
    }

    /// Replaces [`certificate_key_file_password`](Self::certificate_key_file_password).
    #[must_use]
    pub fn with_certificate_key_file_password(
        mut self,
        certificate_key_file_password: Option<Secret>,
    ) -> Self {
        self.certificate_key_file_password = certificate_key_file_password;
        self
    }

    /// Replaces [`allow_invalid_certificates`](Self::allow_invalid_certificates).
    #[must_use]
    pub fn with_allow_invalid_certificates(mut self, allow_invalid_certificates: bool) -> Self {
        self.allow_invalid_certificates = allow_invalid_certificates;
        self
    }

    /// Replaces [`allow_invalid_hostnames`](Self::allow_invalid_hostnames).
    #[must_use]
    pub fn with_allow_invalid_hostnames(mut self, allow_invalid_hostnames: bool) -> Self {
        self.allow_invalid_hostnames = allow_invalid_hostnames;
        self
    }

    /// Replaces
    /// [`disable_certificate_revocation_check`](Self::disable_certificate_revocation_check).
    #[must_use]
    pub fn with_disable_certificate_revocation_check(mut self, disable: bool) -> Self {
        self.disable_certificate_revocation_check = disable;
        self
    }

    /// Replaces [`disable_ocsp_endpoint_check`](Self::disable_ocsp_endpoint_check).
    #[must_use]
    pub fn with_disable_ocsp_endpoint_check(mut self, disable: bool) -> Self {
        self.disable_ocsp_endpoint_check = disable;
        self
    }

    /// Replaces [`revocation_lists_file`](Self::revocation_lists_file).
    #[must_use]
    pub fn with_revocation_lists_file(mut self, revocation_lists_file: Option<String>) -> Self {
        self.revocation_lists_file = revocation_lists_file;
        self
    }
}

/// The SOCKS5 proxy that every connection goes through.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProxyOptions {
    /// Its name or IP address, an IPv6 address without brackets: `proxyHost`.
    pub host: String,
    /// Its port: `proxyPort`.
    pub port: u16,
    /// The user name for it: `proxyUsername`. Never without a password, nor empty.
    pub username: Option<String>,
    /// The proof: `proxyPassword`. Never without a user name, nor empty.
    pub password: Option<Secret>,
}

impl ProxyOptions {
    /// The port of a proxy for which none is given.
    pub const DEFAULT_PORT: u16 = 1080;

    /// Describes a proxy at the default port that demands no password.
    pub fn new(host: impl Into<String>) -> Self {
        Self { host: host.into(), port: Self::DEFAULT_PORT, username: None, password: None }
    }

    /// Replaces [`port`](Self::port).
    #[must_use]
    pub fn with_port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Replaces both [`username`](Self::username) and [`password`](Self::password).
    #[must_use]
    pub fn with_login(mut self, username: impl Into<String>, password: impl Into<Secret>) -> Self {
        self.username = Some(username.into());
        self.password = Some(password.into());
        self
    }

    /// Returns where the proxy is.
    pub fn address(&self) -> ServerAddress {
        ServerAddress::Tcp { host: self.host.as_str().into(), port: self.port }
    }

    /// SOCKS5 Support, "MongoClient Configuration"; RFC 1929 counts the lengths in one byte.
    pub(super) fn check(&self) -> Result<(), OptionsError> {
        let fits = |length: usize| (1..=255).contains(&length);
        if self.host.is_empty() || self.host.len() > MAX_HOST_LEN {
            return Err(OptionsError::ProxyHost(self.host.len()));
        }
        if self.port == 0 {
            return Err(OptionsError::ProxyPort);
        }
        let needs = |option, other| Err(OptionsError::Needs { option, other });
        match (&self.username, &self.password) {
            (None, None) => Ok(()),
            (Some(_), None) => needs("proxyUsername", "proxyPassword"),
            (None, Some(_)) => needs("proxyPassword", "proxyUsername"),
            (Some(name), _) if !fits(name.len()) => {
                Err(OptionsError::ProxyLogin { option: "proxyUsername", length: name.len() })
            }
            (_, Some(password)) if !fits(password.expose().len()) => {
                let length = password.expose().len();
                Err(OptionsError::ProxyLogin { option: "proxyPassword", length })
            }
            (Some(_), Some(_)) => Ok(()),
        }
    }
}

/// The patience of TCP sockets with a peer, a server or a proxy, of which nothing comes any more.
///
/// A partition that swallows every packet says nothing to either end. The operating system finds it
/// in two ways: it probes a connection over which nothing comes (keepalive), and it sends again
/// what was not acknowledged. Both are as patient by default as drivers agree to be, so that
/// the monitors find such a partition first, by the time limit of their checks. With
/// [`noticing_within`](Self::noticing_within), connections of monitors and pools break sooner.
///
/// No connection string has these options, as no specification names them. Linux and Android have
/// all of them; other systems have those of keepalive only. Sockets that a dialer of the
/// application opens have none.
///
/// ```
/// use std::time::Duration;
/// use sdam_core::config::{Options, TcpOptions};
///
/// let tcp = TcpOptions::noticing_within(Duration::from_secs(4));
/// let options = Options::builder().uri("mongodb://a.example")?.tcp(tcp).build()?;
/// assert_eq!(options.tcp().user_timeout, Some(Duration::from_secs(4)));
/// # Ok::<(), sdam_core::config::OptionsError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TcpOptions {
    /// The time that nothing comes over a connection before its peer is probed, in whole seconds
    /// from 1 to 32,767; by default 120 s, as load balancers and firewalls forget a connection
    /// after some minutes of silence.
    pub keepalive_idle: Duration,
    /// The time from one probe to the next, in whole seconds from 1 to 32,767; by default 10 s.
    pub keepalive_interval: Duration,
    /// The number of unanswered probes after which the connection breaks, from 1 to 127; by default
    /// 9.
    pub keepalive_probes: u32,
    /// The time that sent bytes, or probes, may stay unacknowledged before the connection breaks
    /// (`TCP_USER_TIMEOUT`), from 1 s to 2,147,483 s; by default the system decides, which takes a
    /// quarter of an hour on Linux. It takes the place of the number of probes.
    pub user_timeout: Option<Duration>,
}

/// The most that Linux takes for both times of keepalive, in seconds.
const MAX_KEEPALIVE: Duration = Duration::from_secs(32_767);

/// The shortest and the longest `TCP_USER_TIMEOUT`: the system counts in milliseconds, in 31 bits.
const USER_TIMEOUTS: (Duration, Duration) =
    (Duration::from_secs(1), Duration::from_secs(2_147_483));

impl Default for TcpOptions {
    fn default() -> Self {
        Self {
            keepalive_idle: Duration::from_secs(120),
            keepalive_interval: Duration::from_secs(10),
            keepalive_probes: 9,
            user_timeout: None,
        }
    }
}

impl TcpOptions {
    /// Returns options with which a connection breaks when nothing has come for about `limit`,
    /// whether something was sent meanwhile or not.
    ///
    /// Probes begin after half of that time, and cost one small packet each way per second or per
    /// eighth of `limit`. A limit of 4 s suits a data centre; one shorter than pauses that the
    /// network or a suspended machine may have breaks connections that were well. Limits below 2 s
    /// are taken for 2 s, as systems count probes in seconds, and those above 32,767 s for that.
    pub fn noticing_within(limit: Duration) -> Self {
        let limit = limit.clamp(Duration::from_secs(2), MAX_KEEPALIVE);
        let idle = limit.as_secs() / 2;
        let interval = (limit.as_secs() / 8).max(1);
        let probes = (limit.as_secs() - idle) / interval;
        Self {
            keepalive_idle: Duration::from_secs(idle),
            keepalive_interval: Duration::from_secs(interval),
            keepalive_probes: u32::try_from(probes).unwrap_or(u32::MAX),
            user_timeout: Some(limit),
        }
    }

    /// Replaces [`keepalive_idle`](Self::keepalive_idle).
    #[must_use]
    pub const fn with_keepalive_idle(mut self, keepalive_idle: Duration) -> Self {
        self.keepalive_idle = keepalive_idle;
        self
    }

    /// Replaces [`keepalive_interval`](Self::keepalive_interval).
    #[must_use]
    pub const fn with_keepalive_interval(mut self, keepalive_interval: Duration) -> Self {
        self.keepalive_interval = keepalive_interval;
        self
    }

    /// Replaces [`keepalive_probes`](Self::keepalive_probes).
    #[must_use]
    pub const fn with_keepalive_probes(mut self, keepalive_probes: u32) -> Self {
        self.keepalive_probes = keepalive_probes;
        self
    }

    /// Replaces [`user_timeout`](Self::user_timeout).
    #[must_use]
    pub const fn with_user_timeout(mut self, user_timeout: Option<Duration>) -> Self {
        self.user_timeout = user_timeout;
        self
    }

    pub(super) fn check(&self) -> Result<(), OptionsError> {
        let keepalive = |option, time: Duration| {
            let (least, most) = (Duration::from_secs(1), MAX_KEEPALIVE);
            match time.subsec_nanos() == 0 && (least..=most).contains(&time) {
                true => Ok(()),
                false => Err(OptionsError::Keepalive { option, time }),
            }
        };
        keepalive("the idle time of TCP keepalive", self.keepalive_idle)?;
        keepalive("the interval of TCP keepalive", self.keepalive_interval)?;
        if !(1..=127).contains(&self.keepalive_probes) {
            return Err(OptionsError::KeepaliveProbes(self.keepalive_probes));
        }
        match self.user_timeout {
            Some(time) if !(USER_TIMEOUTS.0..=USER_TIMEOUTS.1).contains(&time) => {
                Err(OptionsError::UserTimeout(time))
            }
            _ => Ok(()),
        }
    }
}

/// The source of the seed list: what `mongodb+srv://` names.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SrvOptions {
    /// The name whose records are looked up, in lower case.
    pub hostname: Arc<str>,
    /// The service that is looked up, by default `mongodb`: `srvServiceName`.
    pub service_name: Arc<str>,
    /// The maximum number of hosts that are used, 0 for all: `srvMaxHosts`.
    pub max_hosts: usize,
    /// The domain that hosts must be in, in place of that of [`hostname`](Self::hostname), in
    /// lower case and without a dot at either end: `srvAllowedHostsSuffix`.
    pub allowed_hosts_suffix: Option<Arc<str>>,
    /// True if a function of the application judges the hosts, in place of both.
    pub hosts_are_judged: bool,
}

impl SrvOptions {
    /// Asks for all hosts that the service `mongodb` has under a name.
    pub fn new(hostname: impl Into<Arc<str>>) -> Self {
        Self {
            hostname: hostname.into(),
            service_name: "mongodb".into(),
            max_hosts: 0,
            allowed_hosts_suffix: None,
            hosts_are_judged: false,
        }
    }

    /// Replaces [`service_name`](Self::service_name).
    #[must_use]
    pub fn with_service_name(mut self, service_name: impl Into<Arc<str>>) -> Self {
        self.service_name = service_name.into();
        self
    }

    /// Replaces [`max_hosts`](Self::max_hosts).
    #[must_use]
    pub fn with_max_hosts(mut self, max_hosts: usize) -> Self {
        self.max_hosts = max_hosts;
        self
    }

    /// Replaces [`allowed_hosts_suffix`](Self::allowed_hosts_suffix); case, and dots at either end,
    /// do not matter.
    ///
    /// Anyone who can forge answers of DNS then leads the client to any host in that domain: it
    /// must be one whose names all belong to those who run the deployment. Options are refused
    /// whose suffix is one below which anybody can register a name, as `com` or `co.uk`; the list
    /// of those is there with the feature `public-suffixes`, without which no suffix is allowed.
    #[must_use]
    pub fn with_allowed_hosts_suffix(mut self, suffix: Option<&str>) -> Self {
        self.allowed_hosts_suffix = suffix.map(suffix::normal);
        self
    }
}

/// The size and patience of each server's pool (Connection Monitoring And Pooling, "Connection
/// Pool Options").
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolOptions {
    /// The maximum number of connections, 0 for no limit: `maxPoolSize`.
    pub max_pool_size: u32,
    /// The minimum number of connections: `minPoolSize`.
    pub min_pool_size: u32,
    /// The number of connections established at once, never 0: `maxConnecting`.
    pub max_connecting: u32,
    /// The time that a connection may be idle, zero for ever: `maxIdleTimeMS`.
    pub max_idle_time: Duration,
    /// The time that an operation waits for a connection, `None` if unlimited:
    /// `waitQueueTimeoutMS`, deprecated in favour of `timeoutMS`.
    pub wait_queue_timeout: Option<Duration>,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self {
            max_pool_size: 100,
            min_pool_size: 0,
            max_connecting: 2,
            max_idle_time: Duration::ZERO,
            wait_queue_timeout: None,
        }
    }
}

impl PoolOptions {
    pub(super) fn check(&self) -> Result<(), OptionsError> {
        let (min, max) = (self.min_pool_size, self.max_pool_size);
        if max > 0 && min > max {
            return Err(OptionsError::MinPoolSize { min, max });
        }
        if self.max_connecting == 0 {
            return Err(OptionsError::MaxConnecting);
        }
        match self.wait_queue_timeout {
            Some(Duration::ZERO) => Err(OptionsError::WaitQueueTimeout),
            _ => Ok(()),
        }
    }

    /// Replaces [`max_pool_size`](Self::max_pool_size).
    #[must_use]
    pub fn with_max_pool_size(mut self, max_pool_size: u32) -> Self {
        self.max_pool_size = max_pool_size;
        self
    }

    /// Replaces [`min_pool_size`](Self::min_pool_size).
    #[must_use]
    pub fn with_min_pool_size(mut self, min_pool_size: u32) -> Self {
        self.min_pool_size = min_pool_size;
        self
    }

    /// Replaces [`max_connecting`](Self::max_connecting).
    #[must_use]
    pub fn with_max_connecting(mut self, max_connecting: u32) -> Self {
        self.max_connecting = max_connecting;
        self
    }

    /// Replaces [`max_idle_time`](Self::max_idle_time).
    #[must_use]
    pub fn with_max_idle_time(mut self, max_idle_time: Duration) -> Self {
        self.max_idle_time = max_idle_time;
        self
    }

    /// Replaces [`wait_queue_timeout`](Self::wait_queue_timeout).
    #[must_use]
    pub fn with_wait_queue_timeout(mut self, wait_queue_timeout: Option<Duration>) -> Self {
        self.wait_queue_timeout = wait_queue_timeout;
        self
    }
}
