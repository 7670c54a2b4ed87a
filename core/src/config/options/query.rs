//! Reads the options of a connection string or a TXT record, and judges how they go together.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Duration;

use super::table::URI_OPTIONS;
use super::value::{Form, Meaning, Outcome, UriOption};
use super::{OptionsError, ProxyOptions, Settings, SrvOptions, Warning};
use crate::config::uri::{MAX_URI_LEN, UriError, decode};
use crate::config::{ReadMode, ReadPreference, Secret, TagSet};
use crate::text::beginning;

/// The maximum length of an option's text in an error or a warning, in bytes.
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
    /// The values of `tls` and `ssl`.
    pub(super) tls: BTreeSet<bool>,
    /// The options of DNS, where there is none; they are refused in the end.
    pub(super) unused_srv: SrvOptions,
    // These make sense only together, so they wait for each other.
    pub(super) proxy: Option<ProxyOptions>,
    pub(super) read_mode: Option<ReadMode>,
    pub(super) tag_sets: Option<Vec<TagSet>>,
    pub(super) max_staleness: Option<Option<Duration>>,
    pub(super) old_write_timeout: Option<Duration>,
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
            Some(option) => query.read(option, value)?,
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
            Some(option) if TXT_OPTIONS.contains(&option.name) => {
                query.read(option, value).map_err(|error| match error {
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
    /// The name of the option, known or not.
    shown: String,
    known: Option<&'static UriOption>,
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
        let position = index + 1;
        let (name, value) = match pair.split_once('=') {
            Some((name, value)) if !name.is_empty() => (name, value),
            // It may be the name of a secret's option, and the secret right behind it.
            _ => return Some(Err(UriError::OptionForm { position })),
        };
        let known = URI_OPTIONS.iter().find(|known| known.name.eq_ignore_ascii_case(name));
        let shown = match self.ambiguous || self.behind_secret || begins_with_secret(name) {
            true => format!("option {position}"),
            false => format!("option {:?}", beginning(name, MAX_QUOTED_LEN)),
        };
        let pair = Pair { shown, known, value };
        if let Some(option) = known {
            self.behind_secret = option.meaning.form == Form::Secret;
        }
        Some(Ok(pair))
    }
}

/// Returns whether a name goes on behind that of an option whose value is never shown, so that the
/// rest of it may be the value.
fn begins_with_secret(name: &str) -> bool {
    let secrets = URI_OPTIONS.iter().filter(|option| option.meaning.form == Form::Secret);
    let begins = |option: &UriOption| {
        let beginning = name.as_bytes().get(..option.name.len());
        beginning.is_some_and(|it| it.eq_ignore_ascii_case(option.name.as_bytes()))
    };
    secrets.into_iter().any(begins)
}

impl<'a> Query<'a> {
    fn new(settings: &'a mut Settings, warnings: &'a mut Vec<Warning>) -> Self {
        Self {
            settings,
            warnings,
            seen: BTreeSet::new(),
            tls: BTreeSet::new(),
            unused_srv: SrvOptions::new(""),
            proxy: None,
            read_mode: None,
            tag_sets: None,
            max_staleness: None,
            old_write_timeout: None,
        }
    }

    /// Sets what one option says, or leaves a warning.
    fn read(&mut self, option: &'static UriOption, value: &str) -> Result<(), OptionsError> {
        let UriOption { name: option, ref meaning } = *option;
        let value = decode(value).ok_or(UriError::Escape { option })?;
        if !self.seen.insert(option) && meaning.form != Form::Repeated {
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
        // Connection String, "Values": an option with an empty value is ignored.
        if value.is_empty() && !meaning.form.may_be_empty() {
            self.warnings.push(Warning::EmptyValue { option });
            return Ok(());
        }
        let allowed = meaning.allowed;
        match self.set(meaning, value) {
            Outcome::Set => {}
            Outcome::SetByOldName(value) => {
                self.warnings.push(Warning::DeprecatedBoolean { option, value });
            }
            Outcome::SetInPart => self.warnings.push(Warning::InvalidElement { option, allowed }),
            Outcome::NotAllowed if option == "w" => return Err(UriError::Acknowledgment.into()),
            Outcome::NotAllowed => self.warnings.push(Warning::InvalidValue { option, allowed }),
        }
        Ok(())
    }

    fn set(&mut self, meaning: &Meaning, value: Cow<'_, str>) -> Outcome {
        if !(meaning.check)(&value) {
            return Outcome::NotAllowed;
        }
        match meaning.form {
            Form::Secret => (meaning.read)(self, Secret::from(value.into_owned()).expose()),
            Form::Once | Form::OrEmpty | Form::Repeated => (meaning.read)(self, &value),
        }
    }

    /// Judges and sets what depends on several options.
    fn finish(mut self) -> Result<(), OptionsError> {
        if self.tls.len() > 1 {
            return Err(OptionsError::TlsContradiction);
        }
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
        let option = self.seen.iter().find(|option| option.starts_with("proxy"));
        if let Some(&option) = option.filter(|_| !self.seen.contains("proxyHost")) {
            return Err(OptionsError::Needs { option, other: "proxyHost" });
        }
        self.settings.proxy = self.proxy.take().or_else(|| self.settings.proxy.take());
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
