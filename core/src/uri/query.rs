//! The options of a connection string.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{UriError, decode};
use crate::metadata::MAX_APPLICATION_NAME_LEN;
use crate::options::{MonitoringMode, OptionsBuilder, Warning};

/// How much of an option's text an error or a warning quotes, in bytes.
const MAX_QUOTED_LEN: usize = 64;

/// What an option means here.
#[derive(Clone, Copy)]
enum Meaning {
    AppName,
    ReplicaSet,
    MonitoringMode,
    Boolean(fn(OptionsBuilder, bool) -> OptionsBuilder),
    /// A 32-bit number of milliseconds, from the given one upwards.
    Milliseconds(u32, fn(OptionsBuilder, Duration) -> OptionsBuilder),
    /// Nothing: it concerns commands, pools or authentication.
    Elsewhere,
    /// As [`Meaning::Elsewhere`], and the values of repetitions form a list.
    ListElsewhere,
    /// As [`Meaning::Elsewhere`], and the value may hold a secret.
    SecretElsewhere,
    /// Only `false` can be ignored without danger.
    Tls,
    Unsupported,
    NeedsSrv,
}

use Meaning::{
    Boolean, Elsewhere, ListElsewhere, Milliseconds, NeedsSrv, SecretElsewhere, Tls, Unsupported,
};

/// URI Options, "List of specified options", and what Client Backpressure and Client Side
/// Operations Timeout added.
const OPTIONS: &[(&str, Meaning)] = &[
    ("appName", Meaning::AppName),
    ("authMechanism", Elsewhere),
    ("authMechanismProperties", SecretElsewhere),
    ("authSource", Elsewhere),
    ("compressors", Elsewhere),
    ("connectTimeoutMS", Milliseconds(0, OptionsBuilder::connect_timeout)),
    ("directConnection", Boolean(OptionsBuilder::direct_connection)),
    ("enableOverloadRetargeting", Elsewhere),
    ("heartbeatFrequencyMS", Milliseconds(500, OptionsBuilder::heartbeat_frequency)),
    ("journal", Elsewhere),
    ("loadBalanced", Boolean(OptionsBuilder::load_balanced)),
    ("localThresholdMS", Milliseconds(0, OptionsBuilder::local_threshold)),
    ("maxAdaptiveRetries", Elsewhere),
    ("maxConnecting", Elsewhere),
    ("maxIdleTimeMS", Elsewhere),
    ("maxPoolSize", Elsewhere),
    ("maxStalenessSeconds", Elsewhere),
    ("minPoolSize", Elsewhere),
    ("proxyHost", Unsupported),
    ("proxyPassword", Unsupported),
    ("proxyPort", Unsupported),
    ("proxyUsername", Unsupported),
    ("readConcernLevel", Elsewhere),
    ("readPreference", Elsewhere),
    ("readPreferenceTags", ListElsewhere),
    ("replicaSet", Meaning::ReplicaSet),
    ("retryReads", Elsewhere),
    ("retryWrites", Elsewhere),
    ("serverMonitoringMode", Meaning::MonitoringMode),
    ("serverSelectionTimeoutMS", Milliseconds(0, OptionsBuilder::server_selection_timeout)),
    ("socketTimeoutMS", Elsewhere),
    ("srvMaxHosts", NeedsSrv),
    ("srvServiceName", NeedsSrv),
    ("ssl", Tls),
    ("timeoutMS", Elsewhere),
    ("tls", Tls),
    ("tlsAllowInvalidCertificates", Unsupported),
    ("tlsAllowInvalidHostnames", Unsupported),
    ("tlsCAFile", Unsupported),
    ("tlsCertificateKeyFile", Unsupported),
    ("tlsCertificateKeyFilePassword", Unsupported),
    ("tlsDisableCertificateRevocationCheck", Unsupported),
    ("tlsDisableOCSPEndpointCheck", Unsupported),
    ("tlsInsecure", Unsupported),
    ("w", Elsewhere),
    ("waitQueueTimeoutMS", Elsewhere),
    ("wTimeoutMS", Elsewhere),
    ("zlibCompressionLevel", Elsewhere),
];

/// Returns whether there is an `@` outside the values.
pub(super) fn has_at_sign_in_name(query: &str) -> bool {
    let name = |pair: &str| pair.split('=').next().is_some_and(|name| name.contains('@'));
    query.split('&').any(name)
}

/// Sets in `builder` what the options say; quotes none of their texts if they are `ambiguous`.
pub(super) fn apply(
    query: &str,
    ambiguous: bool,
    mut builder: OptionsBuilder,
) -> Result<OptionsBuilder, UriError> {
    if query.is_empty() {
        return Ok(builder);
    }
    let mut seen = BTreeSet::new();
    // An unescaped `&` in a secret makes the rest of it look like options.
    let mut behind_secret = false;
    for (index, pair) in query.split('&').enumerate() {
        let shown = |text| match ambiguous || behind_secret {
            true => format!("option {}", index + 1),
            false => format!("option {:?}", shortened(text)),
        };
        let (name, value) = match pair.split_once('=') {
            Some((name, value)) if !name.is_empty() => (name, value),
            _ => {
                return Err(UriError::OptionForm { option: shown(pair) });
            }
        };
        let same_name = |(known, _): &&(&str, Meaning)| known.eq_ignore_ascii_case(name);
        let Some(&(option, meaning)) = OPTIONS.iter().find(same_name) else {
            builder.warn(Warning::UnknownOption { option: shown(name) });
            continue;
        };
        behind_secret = matches!(meaning, SecretElsewhere);
        let value = decode(value).ok_or(UriError::Escape { option })?;
        let is_list = matches!(meaning, ListElsewhere);
        // Only a repetition of TLS can be the dangerous one.
        if !seen.insert(option) && !is_list && !matches!(meaning, Tls) {
            builder.warn(Warning::RepeatedOption { option });
            continue;
        }
        builder = set(builder, option, meaning, &value)?;
    }
    Ok(builder)
}

/// Sets what one option says, or leaves a warning that it says nothing.
fn set(
    mut builder: OptionsBuilder,
    option: &'static str,
    meaning: Meaning,
    value: &str,
) -> Result<OptionsBuilder, UriError> {
    let invalid = |allowed| Warning::InvalidValue { option, allowed };
    let warning = match meaning {
        Unsupported => return Err(UriError::Unsupported { option }),
        NeedsSrv => return Err(UriError::NeedsSrv { option }),
        ListElsewhere => return Ok(builder),
        // An empty name is a mistake, not a wish for the default: the builder refuses it.
        Meaning::ReplicaSet => return Ok(builder.replica_set(value)),
        // Connection String, "Values": an option with an empty value is ignored.
        _ if value.is_empty() => Warning::EmptyValue { option },
        Elsewhere | SecretElsewhere => return Ok(builder),
        Meaning::AppName if value.len() <= MAX_APPLICATION_NAME_LEN => {
            return Ok(builder.app_name(value));
        }
        Meaning::AppName => invalid("at most 128 bytes long"),
        Meaning::MonitoringMode => match monitoring_mode(value) {
            Some(mode) => return Ok(builder.monitoring_mode(mode)),
            None => invalid("auto, stream or poll"),
        },
        Milliseconds(least, set) => match milliseconds(value, least) {
            Some(duration) => return Ok(set(builder, duration)),
            None if least == 0 => invalid("a whole number from 0 to 2147483647"),
            None => invalid("a whole number from 500 to 2147483647"),
        },
        Boolean(set) => match boolean(value) {
            None => invalid("true or false"),
            Some((value, spelling)) => {
                builder = set(builder, value);
                match spelling {
                    Spelling::Current => return Ok(builder),
                    Spelling::Deprecated => Warning::DeprecatedBoolean { option, value },
                }
            }
        },
        Tls => match boolean(value) {
            Some((false, Spelling::Current)) => return Ok(builder),
            Some((value @ false, _)) => Warning::DeprecatedBoolean { option, value },
            _ => return Err(UriError::Unsupported { option }),
        },
    };
    builder.warn(warning);
    Ok(builder)
}

/// How a boolean was written.
enum Spelling {
    Current,
    Deprecated,
}

/// Connection String, "Values", with the alternatives that it recommends to understand.
fn boolean(value: &str) -> Option<(bool, Spelling)> {
    match value {
        "true" => Some((true, Spelling::Current)),
        "false" => Some((false, Spelling::Current)),
        "1" | "yes" | "y" | "t" => Some((true, Spelling::Deprecated)),
        "0" | "-1" | "no" | "n" | "f" => Some((false, Spelling::Deprecated)),
        _ => None,
    }
}

/// URI Options: all integers have 32 bits, of which the sign is one.
fn milliseconds(value: &str, least: u32) -> Option<Duration> {
    let number = value.parse::<i32>().ok().filter(|_| !value.starts_with('+'))?;
    let number = u32::try_from(number).ok().filter(|number| *number >= least)?;
    Some(Duration::from_millis(number.into()))
}

fn monitoring_mode(value: &str) -> Option<MonitoringMode> {
    match value {
        "auto" => Some(MonitoringMode::Auto),
        "stream" => Some(MonitoringMode::Stream),
        "poll" => Some(MonitoringMode::Poll),
        _ => None,
    }
}

fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_QUOTED_LEN)]
}
