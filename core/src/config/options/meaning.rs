//! The options of connection strings that set more, or other things, than one value.

use std::time::Duration;

use super::query::Query;
use super::value::{
    BOOLEAN, FROM_0, FROM_MINUS_1, Form, LONG, Meaning, OptionValue as _, Outcome, Secrets,
    boolean, number, read,
};
use super::{Settings, TlsOptions, suffix};
use crate::config::{Acknowledgment, ReadMode, Secret, TagSet};
use crate::wire::Compressor;

/// The properties of mechanisms that are no secrets.
const OPEN_PROPERTIES: [&str; 6] = [
    "CANONICALIZE_HOST_NAME",
    "ENVIRONMENT",
    "SERVICE_HOST",
    "SERVICE_NAME",
    "SERVICE_REALM",
    "TOKEN_RESOURCE",
];

pub(super) const TLS: Meaning =
    Meaning::new(BOOLEAN.text, read_tls, print_tls).in_form(Form::Repeated);

/// The other name of `tls`.
pub(super) const SSL: Meaning =
    Meaning::new(BOOLEAN.text, read_tls, nothing).in_form(Form::Repeated);

pub(super) const TLS_INSECURE: Meaning = Meaning::new(BOOLEAN.text, read_tls_insecure, nothing);

pub(super) const AUTH_MECHANISM_PROPERTIES: Meaning =
    Meaning::new("a name:value pair", read_properties, print_properties).in_form(Form::Secret);

pub(super) const COMPRESSORS: Meaning =
    Meaning::new("snappy, zlib or zstd", read_compressors, |settings, _| {
        let names: Vec<_> = settings.compressors.iter().map(|one| one.name()).collect();
        vec![names.join(",")]
    });

pub(super) const READ_MODE: Meaning = Meaning::new(
    "primary, primaryPreferred, secondary, secondaryPreferred or nearest",
    |query, text| {
        query.read_mode = ReadMode::from_name(text);
        Outcome::set_if(query.read_mode.is_some())
    },
    |settings, _| {
        let mode = settings.read_preference.mode();
        Some(mode)
            .filter(|mode| *mode != ReadMode::Primary)
            .iter()
            .map(ToString::to_string)
            .collect()
    },
);

pub(super) const TAG_SET: Meaning =
    Meaning::new("a list of name:value pairs", read_tag_set, |settings, _| {
        let pairs = |tags: &TagSet| {
            let pairs = tags.iter().map(|(name, value)| format!("{name}:{value}"));
            pairs.collect::<Vec<_>>().join(",")
        };
        settings.read_preference.tag_sets().iter().map(pairs).collect()
    })
    .in_form(Form::Repeated);

/// URI Options asks for 90 at least, but by Max Staleness a smaller one is valid here, and an error
/// of every selection: what is too small depends on the deployment, and to ignore it would allow
/// reads that are staler than any the application wants.
pub(super) const MAX_STALENESS: Meaning = Meaning::new(
    FROM_MINUS_1.text,
    |query, text| {
        query.max_staleness = match number(text, FROM_MINUS_1) {
            None | Some(0) => return Outcome::NotAllowed,
            Some(-1) => Some(None),
            Some(seconds) => Some(Some(Duration::from_secs(seconds.unsigned_abs()))),
        };
        Outcome::Set
    },
    |settings, _| {
        let most = settings.read_preference.max_staleness();
        most.iter().map(|most| most.as_secs().to_string()).collect()
    },
);

pub(super) const ACKNOWLEDGMENT: Meaning = Meaning::new(
    "a whole number from 0 to 2147483647, or a name",
    read_acknowledgment,
    |settings, _| match &settings.write_concern.w {
        None => Vec::new(),
        Some(Acknowledgment::Servers(number)) => vec![number.to_string()],
        Some(Acknowledgment::Named(name)) => vec![name.clone()],
    },
);

pub(super) const ALLOWED_HOSTS_SUFFIX: Meaning = Meaning::new(
    "a domain name",
    |query, text| {
        let srv = query.settings.srv.as_mut().unwrap_or(&mut query.unused_srv);
        srv.allowed_hosts_suffix = Some(suffix::normal(text));
        Outcome::Set
    },
    |settings, _| {
        let suffix = settings.srv.as_ref().and_then(|srv| srv.allowed_hosts_suffix.as_ref());
        suffix.iter().map(ToString::to_string).collect()
    },
)
.in_form(Form::OrEmpty);

/// The name that `wTimeoutMS` once had.
pub(super) const OLD_WRITE_TIMEOUT: Meaning =
    Meaning::new(LONG.text, |query, text| read(&mut query.old_write_timeout, text, LONG), nothing);

/// Prints nothing of what is printed by another name.
fn nothing(_: &Settings, _: Secrets) -> Vec<String> {
    Vec::new()
}

/// Every instance of `tls` and `ssl` counts, and one that cannot be understood counts as `true`:
/// silently to talk in the clear would be the greater harm.
fn read_tls(query: &mut Query<'_>, text: &str) -> Outcome {
    let enabled = boolean(text).unwrap_or(true);
    query.tls.insert(enabled);
    query.settings.tls = Some(enabled);
    read(&mut true, text, BOOLEAN)
}

fn print_tls(settings: &Settings, _: Secrets) -> Vec<String> {
    let (used, implied) = (settings.tls_options.is_some(), settings.srv.is_some());
    (used != implied).then(|| used.to_string()).into_iter().collect()
}

fn read_tls_insecure(query: &mut Query<'_>, text: &str) -> Outcome {
    let TlsOptions { allow_invalid_certificates, allow_invalid_hostnames, .. } =
        query.settings.tls_options.get_or_insert_default();
    read(allow_invalid_hostnames, text, BOOLEAN);
    read(allow_invalid_certificates, text, BOOLEAN)
}

/// Connection String, "Values": "The key is everything up to the first colon sign".
fn read_properties(query: &mut Query<'_>, text: &str) -> Outcome {
    query.settings.auth_mechanism_properties.clear();
    let mut outcome = Outcome::Set;
    for pair in text.split(',') {
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

fn print_properties(settings: &Settings, secrets: Secrets) -> Vec<String> {
    let pair = |(name, value): (&String, &Secret)| {
        let is_open = OPEN_PROPERTIES.contains(&name.as_str());
        format!("{name}:{}", if is_open { value.expose() } else { secrets.show(value) })
    };
    let pairs: Vec<String> = settings.auth_mechanism_properties.iter().map(pair).collect();
    vec![pairs.join(",")]
}

/// Wire Compression, "compressors": unknown ones yield a warning and are left out.
fn read_compressors(query: &mut Query<'_>, text: &str) -> Outcome {
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

fn read_tag_set(query: &mut Query<'_>, text: &str) -> Outcome {
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

/// A number that cannot be is not ignored, and no name: the writes would be less safe than asked.
fn read_acknowledgment(query: &mut Query<'_>, text: &str) -> Outcome {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    query.settings.write_concern.w = match u32::read(text, FROM_0) {
        Some(number) => Some(Acknowledgment::Servers(number)),
        None if is_number => return Outcome::NotAllowed,
        None => Some(Acknowledgment::Named(text.to_owned())),
    };
    Outcome::Set
}
