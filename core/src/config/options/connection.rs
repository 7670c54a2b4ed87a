//! The options of connections: TLS, a proxy, the pools, and a seed list from DNS.

use std::sync::Arc;
use std::time::Duration;

use super::OptionsError;
use crate::config::{MAX_HOST_LEN, Secret, ServerAddress};

/// The options of TLS: the proof that servers give, and the client's own.
///
/// The combinations that URI Options, "Conflicting TLS options" forbids are refused when the
/// options are built.
///
/// Whether a certificate was revoked is never checked, neither by OCSP nor by lists (CRL).
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
    /// True if revoked certificates are accepted: `tlsDisableCertificateRevocationCheck`. They are
    /// in either case, as this version checks no revocation.
    pub disable_certificate_revocation_check: bool,
    /// True if no OCSP responder is asked: `tlsDisableOCSPEndpointCheck`. None is in either case.
    pub disable_ocsp_endpoint_check: bool,
}

impl TlsOptions {
    pub(super) fn check(&self) -> Result<(), OptionsError> {
        let certificates = ("tlsAllowInvalidCertificates", self.allow_invalid_certificates);
        let revocation =
            ("tlsDisableCertificateRevocationCheck", self.disable_certificate_revocation_check);
        let endpoint = ("tlsDisableOCSPEndpointCheck", self.disable_ocsp_endpoint_check);
        for (one, other) in
            [(certificates, revocation), (certificates, endpoint), (revocation, endpoint)]
        {
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
}

impl SrvOptions {
    /// Asks for all hosts that the service `mongodb` has under a name.
    pub fn new(hostname: impl Into<Arc<str>>) -> Self {
        Self { hostname: hostname.into(), service_name: "mongodb".into(), max_hosts: 0 }
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
