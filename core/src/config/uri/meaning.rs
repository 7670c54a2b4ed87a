//! The options that a connection string may have, and what each of them sets.

use std::time::Duration;

use super::query::Query;
use crate::config::metadata::MAX_APPLICATION_NAME_LEN;
use crate::config::options::Settings;
use crate::config::{
    Acknowledgment, AuthMechanism, MonitoringMode, ReadMode, Secret, TagSet, TlsOptions,
};
use crate::wire::Compressor;

/// What an option sets, by the type of its value.
#[derive(Clone, Copy)]
pub(super) enum Meaning {
    Boolean(fn(&mut Settings, bool)),
    /// `tls` or its alias: every instance counts.
    Tls,
    /// A 32-bit number of milliseconds, from the given one upwards.
    Milliseconds(i32, fn(&mut Settings, Duration)),
    /// A 32-bit number from the first to the second, and how to say so.
    Integer(i32, i32, &'static str, fn(&mut Settings, i32)),
    /// Any text that is not empty.
    Text(fn(&mut Query<'_>, String)),
    /// Any text; an empty one is not ignored.
    TextOrEmpty(fn(&mut Query<'_>, String)),
    /// What is allowed, and how it is understood.
    Value(&'static str, SetValue),
    /// The same, but repetitions form a list, and an empty text is not ignored.
    List(&'static str, SetValue),
    /// A text that is never shown.
    Secret(fn(&mut Query<'_>, &Secret) -> Outcome),
}

type SetValue = fn(&mut Query<'_>, &str) -> Outcome;

/// What became of a value.
pub(super) enum Outcome {
    Set,
    /// Some elements of a list are not allowed.
    SetInPart,
    NotAllowed,
}

impl Outcome {
    fn set_if(allowed: bool) -> Self {
        if allowed { Self::Set } else { Self::NotAllowed }
    }
}

use Meaning::{Boolean, Integer, List, Milliseconds, Text, TextOrEmpty, Value};

/// The greatest number of URI Options: "All integer options are 32-bit".
const MOST: i32 = i32::MAX;
const FROM_0: &str = "a whole number from 0 to 2147483647";
const FROM_1: &str = "a whole number from 1 to 2147483647";

/// URI Options, "List of specified options", and what Client Backpressure and Client Side
/// Operations Timeout added.
pub(super) const OPTIONS: &[(&str, Meaning)] = &[
    ("appName", Value("at most 128 bytes long", app_name)),
    (
        "authMechanism",
        Value(
            "one of SCRAM-SHA-1, SCRAM-SHA-256, MONGODB-X509, PLAIN, GSSAPI, MONGODB-AWS and \
             MONGODB-OIDC",
            auth_mechanism,
        ),
    ),
    ("authMechanismProperties", Meaning::Secret(auth_mechanism_properties)),
    ("authSource", TextOrEmpty(|query, text| query.settings.auth_source = Some(text))),
    ("compressors", Value("snappy, zlib or zstd", compressors)),
    ("connectTimeoutMS", Milliseconds(0, |s, time| s.connect_timeout = time)),
    ("directConnection", Boolean(|s, value| s.direct_connection = value)),
    ("enableOverloadRetargeting", Boolean(|s, value| s.overload_retargeting = value)),
    ("heartbeatFrequencyMS", Milliseconds(500, |s, time| s.heartbeat_frequency = Some(time))),
    ("journal", Boolean(|s, value| s.write_concern.journal = Some(value))),
    ("loadBalanced", Boolean(|s, value| s.load_balanced = Some(value))),
    ("localThresholdMS", Milliseconds(0, |s, time| s.local_threshold = time)),
    ("maxAdaptiveRetries", Integer(0, MOST, FROM_0, |s, n| s.max_adaptive_retries = unsigned(n))),
    ("maxConnecting", Integer(1, MOST, FROM_1, |s, n| s.pool.max_connecting = unsigned(n))),
    ("maxIdleTimeMS", Milliseconds(0, |s, time| s.pool.max_idle_time = time)),
    ("maxPoolSize", Integer(0, MOST, FROM_0, |s, n| s.pool.max_pool_size = unsigned(n))),
    ("maxStalenessSeconds", Value("-1 or a whole number from 1 to 2147483647", max_staleness)),
    ("minPoolSize", Integer(0, MOST, FROM_0, |s, n| s.pool.min_pool_size = unsigned(n))),
    ("proxyHost", TextOrEmpty(|query, text| query.proxy.host = Some(text))),
    (
        "proxyPassword",
        Meaning::Secret(|query, text| {
            query.proxy.password = Some(text.clone());
            Outcome::Set
        }),
    ),
    (
        "proxyPort",
        Value("a whole number from 1 to 65535", |query, text| {
            query.proxy.port = integer(text, 1, 65535).and_then(|port| u16::try_from(port).ok());
            Outcome::set_if(query.proxy.port.is_some())
        }),
    ),
    ("proxyUsername", Text(|query, text| query.proxy.username = Some(text))),
    ("readConcernLevel", Text(|query, text| query.settings.read_concern_level = Some(text))),
    (
        "readPreference",
        Value(
            "primary, primaryPreferred, secondary, secondaryPreferred or nearest",
            |query, text| {
                query.read_mode = ReadMode::from_name(text);
                Outcome::set_if(query.read_mode.is_some())
            },
        ),
    ),
    ("readPreferenceTags", List("a list of name:value pairs", tag_set)),
    // An empty name is a mistake, not a wish for the default: it is refused.
    ("replicaSet", TextOrEmpty(|query, text| query.settings.replica_set = Some(text.into()))),
    ("retryReads", Boolean(|s, value| s.retry_reads = value)),
    ("retryWrites", Boolean(|s, value| s.retry_writes = value)),
    ("serverMonitoringMode", Value("auto, stream or poll", monitoring_mode)),
    ("serverSelectionTimeoutMS", Milliseconds(0, |s, time| s.server_selection_timeout = time)),
    ("serverSelectionTryOnce", Boolean(|s, once| s.server_selection_try_once = Some(once))),
    ("socketTimeoutMS", Milliseconds(0, |s, time| s.socket_timeout = time)),
    (
        "srvMaxHosts",
        Integer(0, MOST, FROM_0, |s, n| {
            if let Some(srv) = &mut s.srv {
                srv.max_hosts = usize::try_from(n).unwrap_or(0);
            }
        }),
    ),
    (
        "srvServiceName",
        Value("1 to 62 letters, digits and single hyphens between them", srv_service_name),
    ),
    ("ssl", Meaning::Tls),
    ("timeoutMS", Milliseconds(0, |s, time| s.timeout = Some(time))),
    ("tls", Meaning::Tls),
    ("tlsAllowInvalidCertificates", Boolean(|s, v| tls(s).allow_invalid_certificates = v)),
    ("tlsAllowInvalidHostnames", Boolean(|s, v| tls(s).allow_invalid_hostnames = v)),
    ("tlsCAFile", Text(|query, text| tls(query.settings).ca_file = Some(text))),
    (
        "tlsCertificateKeyFile",
        Text(|query, text| tls(query.settings).certificate_key_file = Some(text)),
    ),
    (
        "tlsCertificateKeyFilePassword",
        Meaning::Secret(|query, text| {
            let password = Some(text.clone());
            tls(query.settings).certificate_key_file_password = password;
            Outcome::Set
        }),
    ),
    (
        "tlsDisableCertificateRevocationCheck",
        Boolean(|s, v| tls(s).disable_certificate_revocation_check = v),
    ),
    ("tlsDisableOCSPEndpointCheck", Boolean(|s, v| tls(s).disable_ocsp_endpoint_check = v)),
    (
        "tlsInsecure",
        Boolean(|s, insecure| {
            tls(s).allow_invalid_certificates = insecure;
            tls(s).allow_invalid_hostnames = insecure;
        }),
    ),
    ("w", Value("a whole number from 0 to 2147483647, or a name", acknowledgment)),
    ("waitQueueTimeoutMS", Milliseconds(1, |s, time| s.pool.wait_queue_timeout = Some(time))),
    (
        "wTimeoutMS",
        Value("a whole number from 0 to 9223372036854775807", |query, text| {
            let timeout = long_milliseconds(text);
            query.settings.write_concern.timeout = timeout.or(query.settings.write_concern.timeout);
            Outcome::set_if(timeout.is_some())
        }),
    ),
    // What wTimeoutMS was once called.
    (
        "wtimeout",
        Value("a whole number from 0 to 9223372036854775807", |query, text| {
            query.old_write_timeout = long_milliseconds(text);
            Outcome::set_if(query.old_write_timeout.is_some())
        }),
    ),
    (
        "zlibCompressionLevel",
        Integer(-1, 9, "a whole number from -1 to 9", |s, level| s.zlib_compression_level = level),
    ),
];

fn unsigned(number: i32) -> u32 {
    number.unsigned_abs()
}

/// Returns a number if it is one from `least` to `most`, without a plus sign.
pub(super) fn integer(text: &str, least: i32, most: i32) -> Option<i32> {
    let number = text.parse().ok().filter(|_| !text.starts_with('+'))?;
    (least..=most).contains(&number).then_some(number)
}

/// wTimeoutMS is a "non-negative 64-bit integer".
fn long_milliseconds(text: &str) -> Option<Duration> {
    let number = text.parse::<i64>().ok().filter(|_| !text.starts_with('+'))?;
    u64::try_from(number).ok().map(Duration::from_millis)
}

fn tls(settings: &mut Settings) -> &mut TlsOptions {
    settings.tls_options.get_or_insert_default()
}

fn app_name(query: &mut Query<'_>, text: &str) -> Outcome {
    let fits = text.len() <= MAX_APPLICATION_NAME_LEN;
    if fits {
        query.settings.app_name = Some(text.to_owned());
    }
    Outcome::set_if(fits)
}

fn auth_mechanism(query: &mut Query<'_>, text: &str) -> Outcome {
    let mechanism = AuthMechanism::from_name(text);
    query.settings.auth_mechanism = mechanism.or(query.settings.auth_mechanism);
    Outcome::set_if(mechanism.is_some())
}

/// Connection String, "Values": "The key is everything up to the first colon sign".
fn auth_mechanism_properties(query: &mut Query<'_>, text: &Secret) -> Outcome {
    query.settings.auth_mechanism_properties.clear();
    let mut outcome = Outcome::Set;
    for pair in text.expose().split(',') {
        match pair.split_once(':') {
            Some((name, value)) if !name.is_empty() => {
                let properties = &mut query.settings.auth_mechanism_properties;
                properties.insert(name.to_owned(), value.into());
            }
            _ => outcome = Outcome::SetInPart,
        }
    }
    outcome
}

/// Wire Compression, "compressors": unknown ones yield a warning and are left out.
fn compressors(query: &mut Query<'_>, text: &str) -> Outcome {
    let mut outcome = Outcome::Set;
    query.settings.compressors.clear();
    for name in text.split(',') {
        match Compressor::from_name(name) {
            None => outcome = Outcome::SetInPart,
            Some(known) if query.settings.compressors.contains(&known) => {}
            Some(known) => query.settings.compressors.push(known),
        }
    }
    outcome
}

/// URI Options asks for 90 at least, but by Max Staleness a smaller one is valid here, and an error
/// of every selection: what is too small depends on the deployment, and to ignore it would allow
/// reads that are staler than any the application wants.
fn max_staleness(query: &mut Query<'_>, text: &str) -> Outcome {
    query.max_staleness = match integer(text, -1, MOST) {
        Some(-1) => Some(None),
        Some(seconds) if seconds > 0 => Some(Some(Duration::from_secs(unsigned(seconds).into()))),
        _ => return Outcome::NotAllowed,
    };
    Outcome::Set
}

fn tag_set(query: &mut Query<'_>, text: &str) -> Outcome {
    let mut tags = TagSet::new();
    for pair in text.split(',').filter(|_| !text.is_empty()) {
        match pair.split_once(':') {
            Some((name, value)) if !name.is_empty() => {
                tags.insert(name.to_owned(), value.to_owned());
            }
            _ => return Outcome::NotAllowed,
        }
    }
    query.tag_sets.get_or_insert_default().push(tags);
    Outcome::Set
}

fn monitoring_mode(query: &mut Query<'_>, text: &str) -> Outcome {
    let modes = [MonitoringMode::Auto, MonitoringMode::Stream, MonitoringMode::Poll];
    let mode = modes.into_iter().find(|mode| mode.name() == text);
    query.settings.monitoring_mode = mode.unwrap_or(query.settings.monitoring_mode);
    Outcome::set_if(mode.is_some())
}

fn srv_service_name(query: &mut Query<'_>, text: &str) -> Outcome {
    let allowed = crate::config::options::is_service_name(text);
    if let Some(srv) = query.settings.srv.as_mut().filter(|_| allowed) {
        srv.service_name = text.into();
    }
    Outcome::set_if(allowed)
}

/// A number that cannot be is not ignored, and no name: the writes would be less safe than asked.
fn acknowledgment(query: &mut Query<'_>, text: &str) -> Outcome {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    query.settings.write_concern.w = match integer(text, 0, MOST) {
        Some(number) => Some(Acknowledgment::Servers(unsigned(number))),
        None if is_number => return Outcome::NotAllowed,
        None => Some(Acknowledgment::Named(text.to_owned())),
    };
    Outcome::Set
}
