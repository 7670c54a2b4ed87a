//! Reads the options of a connection string or a TXT record, and judges how they go together.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Duration;

use super::meaning::{Meaning, OPTIONS, Outcome, integer};
use super::{MAX_URI_LEN, UriError, decode};
use crate::config::options::Settings;
use crate::config::{
    OptionsError, ProxyOptions, ReadMode, ReadPreference, Secret, TagSet, Warning,
};

/// How much of an option's text an error or a warning quotes, in bytes.
const MAX_QUOTED_LEN: usize = 64;

/// The options that a TXT record may set (Initial DNS Seedlist Discovery, "Default Connection
/// String Options").
const TXT_OPTIONS: [&str; 3] = ["authSource", "replicaSet", "loadBalanced"];

/// URI Options, "Conflicting TLS options": no two of a row may appear, whatever their values.
const TLS_CONFLICTS: [(&str, &[&str]); 3] = [
    (
        "tlsInsecure",
        &[
            "tlsAllowInvalidCertificates",
            "tlsAllowInvalidHostnames",
            "tlsDisableOCSPEndpointCheck",
            "tlsDisableCertificateRevocationCheck",
        ],
    ),
    (
        "tlsAllowInvalidCertificates",
        &["tlsDisableOCSPEndpointCheck", "tlsDisableCertificateRevocationCheck"],
    ),
    ("tlsDisableOCSPEndpointCheck", &["tlsDisableCertificateRevocationCheck"]),
];

/// The options read so far.
pub(super) struct Query<'a> {
    pub(super) settings: &'a mut Settings,
    warnings: &'a mut Vec<Warning>,
    seen: BTreeSet<&'static str>,
    tls: Option<bool>,
    // These make sense only together, so they wait for each other.
    pub(super) proxy: ProxyParts,
    pub(super) read_mode: Option<ReadMode>,
    pub(super) tag_sets: Option<Vec<TagSet>>,
    pub(super) max_staleness: Option<Option<Duration>>,
    pub(super) old_write_timeout: Option<Duration>,
}

#[derive(Default)]
pub(super) struct ProxyParts {
    pub(super) host: Option<String>,
    pub(super) port: Option<u16>,
    pub(super) username: Option<String>,
    pub(super) password: Option<Secret>,
}

/// Returns whether there is an `@` outside the values.
pub(super) fn has_at_sign_in_name(query: &str) -> bool {
    let name = |pair: &str| pair.split('=').next().is_some_and(|name| name.contains('@'));
    query.split('&').any(name)
}

/// Sets what the options say; quotes none of their texts if they are `ambiguous`.
pub(super) fn apply(
    text: &str,
    ambiguous: bool,
    settings: &mut Settings,
    warnings: &mut Vec<Warning>,
) -> Result<(), OptionsError> {
    let mut query = Query::new(settings, warnings);
    for pair in Pairs::new(text, ambiguous) {
        let Pair { shown, known, value } = pair?;
        match known {
            Some((option, meaning)) => query.read(option, meaning, value)?,
            None => query.warnings.push(Warning::UnknownOption { option: shown }),
        }
    }
    query.finish()
}

/// Sets what a TXT record says, where the settings are silent.
pub(crate) fn apply_txt(
    text: &str,
    settings: &mut Settings,
    warnings: &mut Vec<Warning>,
) -> Result<(), OptionsError> {
    if text.len() > MAX_URI_LEN {
        return Err(OptionsError::Txt(UriError::TooLong(text.len())));
    }
    let (auth_source, replica_set) = (settings.auth_source.clone(), settings.replica_set.clone());
    let load_balanced = settings.load_balanced;
    let mut query = Query::new(settings, warnings);
    for pair in Pairs::new(text, false) {
        let Pair { shown, known, value } = pair.map_err(OptionsError::Txt)?;
        match known {
            Some((option, meaning)) if TXT_OPTIONS.contains(&option) => {
                query.read(option, meaning, value).map_err(|error| match error {
                    OptionsError::Uri(error) => OptionsError::Txt(error),
                    error => error,
                })?;
            }
            _ => return Err(OptionsError::TxtOption { option: shown }),
        }
    }
    settings.auth_source = auth_source.or_else(|| settings.auth_source.take());
    settings.replica_set = replica_set.or_else(|| settings.replica_set.take());
    settings.load_balanced = load_balanced.or(settings.load_balanced);
    Ok(())
}

/// One option, its value still encoded.
struct Pair<'a> {
    /// How to name the option, known or not.
    shown: String,
    known: Option<(&'static str, Meaning)>,
    value: &'a str,
}

/// Takes options apart: `name=value&name=value`.
struct Pairs<'a> {
    pairs: std::iter::Enumerate<std::str::Split<'a, char>>,
    ambiguous: bool,
    /// An unescaped `&` in a secret makes the rest of it look like options.
    behind_secret: bool,
}

impl<'a> Pairs<'a> {
    fn new(text: &'a str, ambiguous: bool) -> Self {
        let mut pairs = text.split('&').enumerate();
        if text.is_empty() {
            pairs.next();
        }
        Self { pairs, ambiguous, behind_secret: false }
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = Result<Pair<'a>, UriError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (index, pair) = self.pairs.next()?;
        let shown = |text: &str| match self.ambiguous || self.behind_secret {
            true => format!("option {}", index + 1),
            false => format!("option {:?}", &text[..text.floor_char_boundary(MAX_QUOTED_LEN)]),
        };
        let (name, value) = match pair.split_once('=') {
            Some((name, value)) if !name.is_empty() => (name, value),
            _ => return Some(Err(UriError::OptionForm { option: shown(pair) })),
        };
        let known = OPTIONS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).copied();
        let pair = Pair { shown: shown(name), known, value };
        if let Some((_, meaning)) = known {
            self.behind_secret = matches!(meaning, Meaning::Secret(_));
        }
        Some(Ok(pair))
    }
}

impl<'a> Query<'a> {
    fn new(settings: &'a mut Settings, warnings: &'a mut Vec<Warning>) -> Self {
        Self {
            settings,
            warnings,
            seen: BTreeSet::new(),
            tls: None,
            proxy: ProxyParts::default(),
            read_mode: None,
            tag_sets: None,
            max_staleness: None,
            old_write_timeout: None,
        }
    }

    /// Sets what one option says, or leaves a warning.
    fn read(
        &mut self,
        option: &'static str,
        meaning: Meaning,
        value: &str,
    ) -> Result<(), OptionsError> {
        let value = decode(value).ok_or(UriError::Escape { option })?;
        let may_repeat = matches!(meaning, Meaning::List(..) | Meaning::Tls);
        if !self.seen.insert(option) && !may_repeat {
            if option.starts_with("proxy") {
                return Err(UriError::Repeated { option }.into());
            }
            self.warnings.push(Warning::RepeatedOption { option });
            return Ok(());
        }
        if option == "wtimeout" {
            let replacement = "wTimeoutMS";
            self.warnings.push(Warning::DeprecatedOption { option, replacement });
        }
        if let Meaning::Tls = meaning {
            return self.read_tls(option, &value);
        }
        let warning = match self.set(option, meaning, value) {
            Some(Warning::InvalidValue { option: "w", .. }) => {
                return Err(UriError::Acknowledgment.into());
            }
            warning => warning,
        };
        self.warnings.extend(warning);
        Ok(())
    }

    fn set(
        &mut self,
        option: &'static str,
        meaning: Meaning,
        value: Cow<'_, str>,
    ) -> Option<Warning> {
        // Connection String, "Values": an option with an empty value is ignored.
        if value.is_empty() && !matches!(meaning, Meaning::TextOrEmpty(..) | Meaning::List(..)) {
            return Some(Warning::EmptyValue { option });
        }
        let (outcome, allowed) = match meaning {
            Meaning::Boolean(set) => {
                let Some((value, spelling)) = boolean(&value) else {
                    return Some(not_boolean(option));
                };
                set(self.settings, value);
                return spelling.warning(option, value);
            }
            Meaning::Milliseconds(least, set) => {
                let allowed = match least {
                    0 => "a whole number from 0 to 2147483647",
                    1 => "a whole number from 1 to 2147483647",
                    _ => "a whole number from 500 to 2147483647",
                };
                let number = integer(&value, least, i32::MAX);
                let time = number.map(|n| Duration::from_millis(n.unsigned_abs().into()));
                (time.map(|time| set(self.settings, time)).into(), allowed)
            }
            Meaning::Integer(least, most, allowed, set) => {
                let number = integer(&value, least, most);
                (number.map(|number| set(self.settings, number)).into(), allowed)
            }
            Meaning::Text(set) | Meaning::TextOrEmpty(set) => {
                set(self, value.into_owned());
                return None;
            }
            Meaning::Value(allowed, set) | Meaning::List(allowed, set) => {
                (set(self, &value), allowed)
            }
            Meaning::Secret(set) => (set(self, &value.into_owned().into()), "a name:value pair"),
            Meaning::Tls => return None,
        };
        match outcome {
            Outcome::Set => None,
            Outcome::SetInPart => Some(Warning::InvalidElement { option, allowed }),
            Outcome::NotAllowed => Some(Warning::InvalidValue { option, allowed }),
        }
    }

    /// Every instance of `tls` and `ssl` counts, and one that cannot be understood counts as
    /// `true`: silently to talk in the clear would be the greater harm.
    fn read_tls(&mut self, option: &'static str, value: &str) -> Result<(), OptionsError> {
        let enabled = match boolean(value) {
            Some((enabled, spelling)) => {
                self.warnings.extend(spelling.warning(option, enabled));
                enabled
            }
            None => {
                self.warnings.push(not_boolean(option));
                true
            }
        };
        if self.tls.replace(enabled).is_some_and(|before| before != enabled) {
            return Err(OptionsError::TlsContradiction);
        }
        self.settings.tls = Some(enabled);
        Ok(())
    }

    /// Judges and sets what depends on several options.
    fn finish(mut self) -> Result<(), OptionsError> {
        for (option, others) in TLS_CONFLICTS {
            if let Some(&with) = others.iter().find(|other| self.seen.contains(*other))
                && self.seen.contains(option)
            {
                return Err(OptionsError::Conflict { option, with });
            }
        }
        let is_tls_option = |option: &&str| option.starts_with("tls") && *option != "tls";
        if self.seen.iter().any(is_tls_option) {
            self.settings.tls_options.get_or_insert_default();
        }
        if self.settings.srv.is_none()
            && let Some(&option) = self.seen.iter().find(|option| option.starts_with("srv"))
        {
            return Err(UriError::NeedsSrv { option }.into());
        }
        if let Some(timeout) = self.old_write_timeout.filter(|_| !self.seen.contains("wTimeoutMS"))
        {
            self.settings.write_concern.timeout = Some(timeout);
        }
        self.finish_proxy()?;
        self.finish_read_preference()
    }

    /// SOCKS5 Support, "MongoClient Configuration".
    fn finish_proxy(&mut self) -> Result<(), OptionsError> {
        let parts = std::mem::take(&mut self.proxy);
        let Some(host) = parts.host else {
            let orphan = self.seen.iter().find(|option| option.starts_with("proxy"));
            return match orphan {
                Some(&option) => Err(OptionsError::Needs { option, other: "proxyHost" }),
                None => Ok(()),
            };
        };
        self.settings.proxy = Some(ProxyOptions {
            host,
            port: parts.port.unwrap_or(ProxyOptions::DEFAULT_PORT),
            username: parts.username,
            password: parts.password,
        });
        Ok(())
    }

    fn finish_read_preference(&mut self) -> Result<(), OptionsError> {
        if self.read_mode.is_none() && self.tag_sets.is_none() && self.max_staleness.is_none() {
            return Ok(());
        }
        let before = &self.settings.read_preference;
        let mut preference = ReadPreference::new(self.read_mode.unwrap_or(before.mode()));
        let tag_sets = self.tag_sets.take().unwrap_or_else(|| before.tag_sets().to_vec());
        preference = preference.with_tag_sets(tag_sets)?;
        if let Some(most) = self.max_staleness.unwrap_or(before.max_staleness()) {
            preference = preference.with_max_staleness(most)?;
        }
        if let Some(hedge) = before.hedge() {
            preference = preference.with_hedge(hedge)?;
        }
        self.settings.read_preference = preference;
        Ok(())
    }
}

impl From<Option<()>> for Outcome {
    fn from(set: Option<()>) -> Self {
        set.map_or(Self::NotAllowed, |()| Self::Set)
    }
}

fn not_boolean(option: &'static str) -> Warning {
    Warning::InvalidValue { option, allowed: "true or false" }
}

/// How a boolean was written.
enum Spelling {
    Current,
    Deprecated,
}

impl Spelling {
    fn warning(&self, option: &'static str, value: bool) -> Option<Warning> {
        matches!(self, Self::Deprecated).then_some(Warning::DeprecatedBoolean { option, value })
    }
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
