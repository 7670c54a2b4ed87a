//! The table of options: each is said here once.
//!
//! An entry has the type and the default of an option; how an application asks for it and sets it,
//! if not in a way of its `own`; `traced`, if a topology looks at it, so that a trace must contain
//! it, or `transport`, if it decides how the streams of monitors are opened; and the names by which
//! it stands in a connection string, each with its meaning. The text of an entry goes on from
//! "Returns" and from "Sets". Connection strings are printed in the order of the table.
//!
//! The names, defaults and limits are those of URI Options, "List of specified options", and of
//! Client Backpressure and Client Side Operations Timeout.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::settings::is_service_name;
use super::value::{
    Allowed, BOOLEAN, FROM_0, FROM_1, FROM_500, FROM_4096, Form, LONG, Meaning, PORT, TEXT,
    UriOption, ZLIB_LEVEL, print, read, value,
};
use super::{
    MonitoringMode, OpeningHello, Options, OptionsBuilder, PoolOptions, ProxyOptions, ServerApi,
    SrvOptions, TcpOptions, TlsOptions, meaning,
};
use crate::config::metadata::MAX_APPLICATION_NAME_LEN;
use crate::config::{
    AllowedHosts, AuthMechanism, MIN_RESCAN_INTERVAL, ReadPreference, Secret, ServerAddress,
    WriteConcern,
};
use crate::wire::Compressor;

/// Makes of the table what collects options, asks for them, sets, reads and prints them.
macro_rules! options {
    ($(
        #[doc = $first:literal]
        $(#[doc = $doc:literal])*
        $field:ident: $type:ty = $default:expr
            => get $get:ident $(<$got:ty>)?, set $set:ident $(<$given:ty>)? $(, $monitors:ident)? {
                $($name:literal => $meaning:expr),* $(,)?
            }
    )+) => {
        /// The values of all options, as a builder collects and options keep them.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub(crate) struct Settings {
            $(pub(crate) $field: $type,)+
        }

        impl Default for Settings {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }

        impl Settings {
            /// Returns what a trace contains, and the defaults of all else: what was forgotten is
            /// missing, not written.
            #[cfg(feature = "trace")]
            pub(super) fn traced(&self) -> Self {
                Self {
                    $($($field: told!($monitors, self.$field.clone(), $default),)?)+
                    ..Self::default()
                }
            }

            /// Returns whether monitors do the same with these as with `other`, apart from the
            /// seeds, and from when they are looked up next, which a cache of DNS decides.
            pub(super) fn monitor_alike(&self, other: &Self) -> bool {
                let others = |settings: &Self| Self {
                    seeds: Vec::new(),
                    rescan_interval: MIN_RESCAN_INTERVAL,
                    ..settings.clone()
                };
                let (one, other) = (others(self), others(other));
                true $($(&& alike!($monitors, one.$field == other.$field))?)+
            }
        }

        impl Options {
            $(getter! {
                [#[doc = concat!("Returns", $first)] $(#[doc = $doc])*]
                $get $(<$got>)? $field: $type
            })+
        }

        impl OptionsBuilder {
            $(setter! {
                [#[doc = concat!("Sets", $first)] $(#[doc = $doc])* #[must_use]]
                $set $(<$given>)? $field: $type
            })+
        }

        /// The options that a connection string may have.
        pub(super) static URI_OPTIONS: &[UriOption] =
            &[$($(UriOption { name: $name, meaning: $meaning },)*)+];
    };
}

#[cfg(feature = "trace")]
macro_rules! told {
    (traced, $value:expr, $default:expr) => {
        $value
    };
    (transport, $value:expr, $default:expr) => {
        $default
    };
}

/// Compares an option that monitors look at, whichever way.
macro_rules! alike {
    (traced, $alike:expr) => {
        $alike
    };
    (transport, $alike:expr) => {
        $alike
    };
}

/// Makes the method that asks for an option, unless it has one of its `own`.
macro_rules! getter {
    ([$($docs:tt)*] own $field:ident: $type:ty) => {};
    ([$($docs:tt)*] copy $field:ident: $type:ty) => {
        $($docs)*
        pub const fn $field(&self) -> $type {
            self.settings.$field
        }
    };
    ([$($docs:tt)*] whole $field:ident: $type:ty) => {
        $($docs)*
        pub const fn $field(&self) -> &$type {
            &self.settings.$field
        }
    };
    ([$($docs:tt)*] part<$part:ty> $field:ident: $type:ty) => {
        $($docs)*
        pub const fn $field(&self) -> Option<&$part> {
            self.settings.$field.as_ref()
        }
    };
    ([$($docs:tt)*] text $field:ident: $type:ty) => {
        $($docs)*
        pub fn $field(&self) -> Option<&str> {
            self.settings.$field.as_deref()
        }
    };
}

/// Makes the method that sets an option, unless it has one of its `own`.
macro_rules! setter {
    ([$($docs:tt)*] own $field:ident: $type:ty) => {};
    ([$($docs:tt)*] copy $field:ident: $type:ty) => {
        $($docs)*
        pub const fn $field(mut self, value: $type) -> Self {
            self.settings.$field = value;
            self
        }
    };
    ([$($docs:tt)*] whole $field:ident: $type:ty) => {
        $($docs)*
        pub fn $field(mut self, value: $type) -> Self {
            self.settings.$field = value;
            self
        }
    };
    ([$($docs:tt)*] some<$given:ty> $field:ident: $type:ty) => {
        $($docs)*
        pub const fn $field(mut self, value: $given) -> Self {
            self.settings.$field = Some(value);
            self
        }
    };
    ([$($docs:tt)*] into<$given:ty> $field:ident: $type:ty) => {
        $($docs)*
        pub fn $field(mut self, value: impl Into<$given>) -> Self {
            self.settings.$field = Some(value.into());
            self
        }
    };
}

options! {
    /// the servers to start from.
    seeds: Vec<ServerAddress> = Vec::new() => get own, set own, traced {}

    /// the name that the replica set must have, never empty: `replicaSet`.
    replica_set: Option<Arc<str>> = None => get part<Arc<str>>, set into<Arc<str>>, traced {
        // An empty name is a mistake, not a wish for the default: it is refused.
        "replicaSet" => value!(TEXT, replica_set).in_form(Form::OrEmpty),
    }

    /// whether the only seed is used whatever it is: `directConnection`.
    direct_connection: bool = false => get copy, set copy, traced {
        "directConnection" => value!(BOOLEAN, direct_connection),
    }

    /// whether the only seed is a load balancer: `loadBalanced`.
    // Absent and `false` differ: only an absent one is taken from a TXT record.
    load_balanced: Option<bool> = None => get own, set some<bool>, traced {
        "loadBalanced" => value!(BOOLEAN, load_balanced),
    }

    /// where the seeds come from, if that is DNS.
    ///
    /// There are none yet if [`Options::seeds`] is empty: look them up, and go on with
    /// [`Options::resolved`].
    srv: Option<SrvOptions> = None => get part<SrvOptions>, set own, traced {
        "srvServiceName" => value!(TEXT, srv: service_name)
            .only("1 to 62 letters, digits and single hyphens between them", is_service_name),
        "srvMaxHosts" => value!(FROM_0, srv: max_hosts),
        "srvAllowedHostsSuffix" => meaning::ALLOWED_HOSTS_SUFFIX,
    }

    /// how long it is from the creation of a client to the first time the hosts are looked up
    /// again, if they came from DNS; later, the time to live of the records decides.
    rescan_interval: Duration = MIN_RESCAN_INTERVAL => get copy, set own, traced {}

    /// whether nothing happens in the background.
    single_threaded: bool = false => get own, set own, traced {}

    /// the time from the end of one check to the next, by default 10 s, or 60 s in the
    /// single-threaded mode, where it is from the end of one scan of all servers to the next:
    /// `heartbeatFrequencyMS`.
    heartbeat_frequency: Option<Duration> = None => get own, set some<Duration>, traced {
        "heartbeatFrequencyMS" => value!(FROM_500, heartbeat_frequency),
    }

    /// how much slower than the fastest a server may be, by default 15 ms: `localThresholdMS`.
    local_threshold: Duration = Duration::from_millis(15) => get copy, set copy, traced {
        "localThresholdMS" => value!(FROM_0, local_threshold),
    }

    /// how long an operation waits for a server, by default 30 s: `serverSelectionTimeoutMS`.
    ///
    /// Zero is to select from what is known already. In the single-threaded mode, this has no
    /// effect with [`server_selection_try_once`](Self::server_selection_try_once).
    server_selection_timeout: Duration = Duration::from_secs(30) => get copy, set copy {
        "serverSelectionTimeoutMS" => value!(FROM_0, server_selection_timeout),
    }

    /// whether an operation scans the servers once at most before it fails, by default so; it
    /// counts in the single-threaded mode only.
    server_selection_try_once: Option<bool> = None => get own, set some<bool>, traced {
        "serverSelectionTryOnce" => value!(BOOLEAN, server_selection_try_once),
    }

    /// how servers are monitored, as configured: `serverMonitoringMode`.
    monitoring_mode: MonitoringMode = MonitoringMode::Auto => get copy, set copy, traced {
        "serverMonitoringMode" => value!(Allowed::any("auto, stream or poll"), monitoring_mode),
    }

    /// whether a server that is Unknown is checked before heartbeatFrequencyMS has passed if
    /// something hints that it is back, by default not; it counts outside the single-threaded mode
    /// only.
    ///
    /// Hints are a connection that was refused, which says that the machine is there and the server
    /// will be; a reply of another member that is news and names the server; and an operation that
    /// has found its connection broken. There are 500 ms and up to a fourth more between two
    /// checks of a server, and as an outage lasts, an eighth of its length, up to
    /// heartbeatFrequencyMS. A server that restarts is used again a few hundred milliseconds after
    /// it listens, in place of 5 s on average with the default frequency. Each client asks a
    /// machine whose server is down for that many connections more: some 30 in the first minute.
    eager_checks: bool = false => get copy, set copy, traced {}

    /// the Stable API that every command declares.
    server_api: Option<ServerApi> = None => get copy, set some<ServerApi>, traced {}

    /// the message that carries the first hello, where there is a choice.
    opening_hello: OpeningHello = OpeningHello::OpMsg => get own, set copy, traced {}

    /// the application's name, which servers log: `appName`.
    app_name: Option<String> = None => get own, set into<String> {
        "appName" => value!(TEXT, app_name)
            .only("at most 128 bytes long", |name| name.len() <= MAX_APPLICATION_NAME_LEN),
    }

    /// the limit for connecting and for a check, by default 10 s; zero lifts it:
    /// `connectTimeoutMS`.
    connect_timeout: Duration = Duration::from_secs(10) => get own, set copy, traced {
        "connectTimeoutMS" => value!(FROM_0, connect_timeout),
    }

    /// how long sending or receiving for an operation may take; zero, the default, is for ever:
    /// `socketTimeoutMS`, deprecated in favour of `timeoutMS`.
    socket_timeout: Duration = Duration::ZERO => get own, set copy {
        "socketTimeoutMS" => value!(FROM_0, socket_timeout),
    }

    /// whether TLS is used; if nothing says so, it is with [`OptionsBuilder::tls_options`] and with
    /// [`OptionsBuilder::srv`].
    tls: Option<bool> = None => get own, set some<bool>, transport {
        "tls" => meaning::TLS,
        "ssl" => meaning::SSL,
    }

    /// how TLS is used, unless it is not.
    tls_options: Option<TlsOptions> = None => get own, set into<TlsOptions>, transport {
        "tlsCAFile" => value!(TEXT, tls: ca_file),
        "tlsCertificateKeyFile" => value!(TEXT, tls: certificate_key_file),
        "tlsCertificateKeyFilePassword" =>
            value!(TEXT, tls: certificate_key_file_password).in_form(Form::Secret),
        "tlsInsecure" => meaning::TLS_INSECURE,
        "tlsAllowInvalidCertificates" => value!(BOOLEAN, tls: allow_invalid_certificates),
        "tlsAllowInvalidHostnames" => value!(BOOLEAN, tls: allow_invalid_hostnames),
        "tlsDisableCertificateRevocationCheck" =>
            value!(BOOLEAN, tls: disable_certificate_revocation_check),
        "tlsDisableOCSPEndpointCheck" => value!(BOOLEAN, tls: disable_ocsp_endpoint_check),
    }

    /// the proxy that every connection goes through.
    proxy: Option<ProxyOptions> = None
        => get part<ProxyOptions>, set into<ProxyOptions>, transport {
        "proxyHost" => value!(TEXT, proxy: host).in_form(Form::OrEmpty),
        "proxyPort" => value!(PORT, proxy: port),
        "proxyUsername" => value!(TEXT, proxy: username),
        "proxyPassword" => value!(TEXT, proxy: password).in_form(Form::Secret),
    }

    /// the patience of TCP sockets with a peer that falls silent.
    tcp: TcpOptions = TcpOptions::default() => get copy, set copy, transport {}

    /// the size and patience of each server's pool.
    pool: PoolOptions = PoolOptions::default() => get whole, set whole {
        "maxPoolSize" => value!(FROM_0, pool.max_pool_size),
        "minPoolSize" => value!(FROM_0, pool.min_pool_size),
        "maxConnecting" => value!(FROM_1, pool.max_connecting),
        "maxIdleTimeMS" => value!(FROM_0, pool.max_idle_time),
        "waitQueueTimeoutMS" => value!(FROM_1, pool.wait_queue_timeout),
    }

    /// the user's name, which asks for authentication.
    username: Option<String> = None => get own, set into<String> {}

    /// the user's password.
    password: Option<Secret> = None => get own, set into<Secret> {}

    /// the database that the connection string names; that alone asks for no authentication.
    database: Option<String> = None => get text, set into<String> {}

    /// the database that users are kept in, if one was named, by default
    /// [`database`](Self::database): `authSource`. A [`credential`](Options::credential) has the
    /// one that is used.
    auth_source: Option<String> = None => get text, set into<String> {
        "authSource" => value!(TEXT, auth_source).in_form(Form::OrEmpty),
    }

    /// how the client proves who it is, by default a SCRAM agreed on with the server:
    /// `authMechanism`.
    auth_mechanism: Option<AuthMechanism> = None => get own, set some<AuthMechanism> {
        "authMechanism" => value!(
            Allowed::any(
                "one of SCRAM-SHA-1, SCRAM-SHA-256, MONGODB-X509, PLAIN, GSSAPI, MONGODB-AWS and \
                 MONGODB-OIDC",
            ),
            auth_mechanism
        ),
    }

    /// what the mechanism needs besides: `authMechanismProperties`.
    auth_mechanism_properties: BTreeMap<String, Secret> = BTreeMap::new() => get own, set own {
        "authMechanismProperties" => meaning::AUTH_MECHANISM_PROPERTIES,
    }

    /// that a callback obtains the tokens of OpenID Connect, so that the property `ENVIRONMENT` is
    /// neither needed nor allowed.
    oidc_callback: bool = false => get own, set copy {}

    /// that a callback obtains the tokens of OpenID Connect with the help of a person, which may
    /// take five minutes, and which servers may be shown such a token. No other property of the
    /// mechanism is allowed then.
    oidc_human_callback: Option<AllowedHosts> = None
        => get part<AllowedHosts>, set into<AllowedHosts> {}

    /// the most iterations of SCRAM that a server may ask for, by default 100,000, and never below
    /// 4,096: `maxScramIterations`.
    ///
    /// A peer that only pretends to be the server can keep the client busy for as long as they
    /// take, which is some 50 ms by default. A server that asks for more needs more here.
    max_scram_iterations: u32 = 100_000 => get copy, set copy {
        "maxScramIterations" => value!(FROM_4096, max_scram_iterations),
    }

    /// whether the mechanism PLAIN may be used without TLS.
    plain_without_tls: bool = false => get copy, set own {}

    /// which servers reads may use, by default the primary: `readPreference`,
    /// `readPreferenceTags`, `maxStalenessSeconds`.
    read_preference: ReadPreference = ReadPreference::default() => get whole, set whole {
        "readPreference" => meaning::READ_MODE,
        "readPreferenceTags" => meaning::TAG_SET,
        "maxStalenessSeconds" => meaning::MAX_STALENESS,
    }

    /// which data reads may see, by default what the server's default is: `readConcernLevel`.
    read_concern_level: Option<String> = None => get text, set into<String> {
        "readConcernLevel" => value!(TEXT, read_concern_level),
    }

    /// what makes a write successful, by default what the server's default is: `w`, `journal`,
    /// `wTimeoutMS`.
    write_concern: WriteConcern = WriteConcern::default() => get whole, set whole {
        "w" => meaning::ACKNOWLEDGMENT,
        "journal" => value!(BOOLEAN, write_concern.journal),
        "wTimeoutMS" => value!(LONG, write_concern.timeout),
        // What wTimeoutMS was once called.
        "wtimeout" => meaning::OLD_WRITE_TIMEOUT,
    }

    /// whether reads are retried, by default they are: `retryReads`.
    retry_reads: bool = true => get copy, set copy {
        "retryReads" => value!(BOOLEAN, retry_reads),
    }

    /// whether writes are retried, by default they are: `retryWrites`.
    retry_writes: bool = true => get copy, set copy {
        "retryWrites" => value!(BOOLEAN, retry_writes),
    }

    /// how often a command is retried that an overloaded server refused, by default 2:
    /// `maxAdaptiveRetries`.
    max_adaptive_retries: u32 = 2 => get copy, set copy {
        "maxAdaptiveRetries" => value!(FROM_0, max_adaptive_retries),
    }

    /// whether such a retry avoids that server, by default not: `enableOverloadRetargeting`.
    overload_retargeting: bool = false => get copy, set copy {
        "enableOverloadRetargeting" => value!(BOOLEAN, overload_retargeting),
    }

    /// how long an operation may take with all its retries, zero for ever: `timeoutMS`.
    ///
    /// Nothing is another thing than zero: the older time-outs hold then.
    timeout: Option<Duration> = None => get copy, set some<Duration> {
        "timeoutMS" => value!(FROM_0, timeout),
    }

    /// the compressors to offer, the preferred one first, by default none: `compressors`.
    compressors: Vec<Compressor> = Vec::new() => get own, set own {
        "compressors" => meaning::COMPRESSORS,
    }

    /// how hard zlib tries, from 0 to 9, or -1, the default, for its own default:
    /// `zlibCompressionLevel`.
    zlib_compression_level: i32 = -1 => get copy, set copy {
        "zlibCompressionLevel" => value!(ZLIB_LEVEL, zlib_compression_level),
    }
}
