//! The suites of connection strings: what parses, with which warnings, and what comes out.

mod disclosure;
mod values;

use bson::{Bson, Document};
use sdam_core::config::{Credential, Options, OptionsBuilder, Secret, ServerAddress};
use serde::Deserialize;

use super::difference::{Differences, Expected};
use super::format::{CaseError, parse};
use super::report::{CaseReport, Verdict};
use values::{same, shown, value_of};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File<C> {
    tests: Vec<C>,
}

/// A case of Connection String, URI Options, or Read and Write Concern. `null` is no expectation.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Case {
    description: String,
    uri: String,
    valid: bool,
    warning: Option<bool>,
    hosts: Option<Vec<Host>>,
    auth: Option<Auth>,
    options: Option<Document>,
    read_concern: Option<Document>,
    write_concern: Option<Document>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Host {
    r#type: String,
    host: String,
    port: Option<u16>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Auth {
    username: Option<String>,
    password: Option<String>,
    db: Option<String>,
}

/// A case of Authentication. Here `null` is an expectation.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CredentialCase {
    description: String,
    uri: String,
    valid: bool,
    #[serde(default)]
    credential: Expected<ExpectedCredential>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectedCredential {
    #[serde(default)]
    username: Expected<String>,
    #[serde(default)]
    password: Expected<String>,
    #[serde(default)]
    source: Expected<String>,
    #[serde(default)]
    mechanism: Expected<String>,
    #[serde(default)]
    mechanism_properties: Expected<Document>,
}

/// A case that a newer rule has overtaken, by its connection string, and that rule.
struct Superseded {
    uri: &'static str,
    reason: &'static str,
}

const AWS: &str = "since September 2025 the credentials of MONGODB-AWS come from the environment \
    or a provider, never from the connection string; other cases of this file say so";

const SUPERSEDED: &[Superseded] = &[
    Superseded {
        uri: "mongodb://user%21%40%23%24%25%5E%26%2A%28%29_%2B:\
              pass%21%40%23%24%25%5E%26%2A%28%29_%2B@localhost/?authMechanism=MONGODB-AWS",
        reason: AWS,
    },
    Superseded {
        uri: "mongodb://user:password@localhost/?authMechanism=MONGODB-AWS\
              &authMechanismProperties=AWS_SESSION_TOKEN:token%21%40%23%24%25%5E%26%2A%28%29_%2B",
        reason: AWS,
    },
    Superseded {
        uri: "mongodb://localhost/?wtimeoutMS=-500",
        reason: "URI Options has the same case and expects a warning, as for every bad value",
    },
];

/// Reports a case, unless a newer rule has overtaken it.
fn report(description: String, uri: &str, compare: impl FnOnce(&mut Differences)) -> CaseReport {
    if let Some(superseded) = SUPERSEDED.iter().find(|superseded| superseded.uri == uri) {
        let verdict = Verdict::Skipped { reason: superseded.reason.to_owned() };
        return CaseReport { name: description, verdict };
    }
    let mut differences = Differences::default();
    compare(&mut differences);
    CaseReport::new(description, differences)
}

/// Compares whether a connection string is valid, and then what it says.
fn judge(
    uri: &str,
    valid: bool,
    differences: &mut Differences,
    compare: impl FnOnce(&Options, &mut Differences),
) {
    // What counts in the single-threaded mode only would be warned of otherwise.
    let single_threaded = uri.contains("serverSelectionTryOnce");
    let builder = Options::builder().single_threaded(single_threaded).uri(uri);
    match (builder.and_then(OptionsBuilder::build), valid) {
        (Ok(options), true) => compare(&options, differences),
        (Err(_), false) => {}
        (Ok(options), false) => differences.differs("the result", "an error", options),
        (Err(error), true) => differences.differs("the result", "options", error),
    }
}

/// Runs a file of Connection String, URI Options, or Read and Write Concern.
pub(super) fn run_connection_strings(text: &str) -> Result<Vec<CaseReport>, CaseError> {
    // A file of its own kind has no expectation but that nothing of the password is shown.
    if let Ok(file) = parse::<File<disclosure::Case>>(text) {
        return Ok(file.tests.into_iter().map(disclosure::run).collect());
    }
    let file: File<Case> = parse(text)?;
    let run = |case: Case| {
        let (description, uri) = (case.description.clone(), case.uri.clone());
        report(description, &uri, |differences| {
            judge(&uri, case.valid, differences, |options, differences| {
                case.compare(options, differences);
            });
        })
    };
    Ok(file.tests.into_iter().map(run).collect())
}

/// Runs a file of Authentication.
pub(super) fn run_credentials(text: &str) -> Result<Vec<CaseReport>, CaseError> {
    let file: File<CredentialCase> = parse(text)?;
    let run = |case: CredentialCase| {
        report(case.description, &case.uri, |differences| {
            judge(&case.uri, case.valid, differences, |options, differences| {
                match (&case.credential, options.credential()) {
                    (Expected::Anything, _) | (Expected::Unset, None) => {}
                    (Expected::Unset, Some(_)) => {
                        differences.differs("credential", "none", "a credential");
                    }
                    (Expected::Exactly(_), None) => {
                        differences.differs("credential", "a credential", "none");
                    }
                    (Expected::Exactly(expected), Some(credential)) => {
                        expected.compare(credential, differences);
                    }
                }
            });
        })
    };
    Ok(file.tests.into_iter().map(run).collect())
}

impl Case {
    fn compare(&self, options: &Options, differences: &mut Differences) {
        if let Some(warning) = self.warning
            && warning == options.warnings().is_empty()
        {
            let expected = if warning { "at least one" } else { "none" };
            let warnings: Vec<_> = options.warnings().iter().map(ToString::to_string).collect();
            let found = if warnings.is_empty() { "none".to_owned() } else { warnings.join("; ") };
            differences.differs("warnings", expected, found);
        }
        if let Some(hosts) = &self.hosts {
            let expected: Vec<String> = hosts.iter().map(Host::to_string).collect();
            let found: Vec<String> = options.seeds().iter().map(host_of).collect();
            differences.text("hosts", &expected.join(", "), &found.join(", "));
        }
        if let Some(auth) = &self.auth {
            differences.within("auth", |differences| auth.compare(options, differences));
        }
        let documents = [
            ("options", "", &self.options),
            ("readConcern", "readConcern", &self.read_concern),
            ("writeConcern", "", &self.write_concern),
        ];
        for (place, prefix, document) in documents {
            for (key, expected) in document.iter().flatten() {
                let field = format!("{prefix}{key}").to_ascii_lowercase();
                differences.within(place, |differences| match value_of(options, &field) {
                    None => differences.differs(key, expected, "an option unknown to this runner"),
                    Some(found) if same(expected, &found) => {}
                    Some(found) => differences.differs(key, shown(expected), shown(&found)),
                });
            }
        }
        self.compare_unset_concerns(options, differences);
    }

    /// Options that a concern does not contain must not be sent.
    fn compare_unset_concerns(&self, options: &Options, differences: &mut Differences) {
        let documents = [
            ("readConcern", &self.read_concern, &[("level", "readconcernlevel")][..]),
            (
                "writeConcern",
                &self.write_concern,
                &[("w", "w"), ("wtimeoutMS", "wtimeoutms"), ("journal", "journal")],
            ),
        ];
        for (place, document, fields) in documents {
            let Some(document) = document else { continue };
            for (key, field) in fields.iter().filter(|(key, _)| !document.contains_key(key)) {
                match value_of(options, field) {
                    None | Some(Bson::Null) => {}
                    Some(found) => differences
                        .within(place, |differences| differences.differs(key, "unset", found)),
                }
            }
        }
    }
}

impl std::fmt::Display for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.r#type.as_str() {
            "unix" => write!(f, "unix {}", self.host),
            kind => write!(f, "{kind} {} port {}", self.host, self.port.unwrap_or(27017)),
        }
    }
}

fn host_of(seed: &ServerAddress) -> String {
    let host = seed.host();
    match seed.port() {
        None => format!("unix {host}"),
        Some(port) => {
            let kind = match host.parse() {
                Ok(std::net::IpAddr::V4(_)) => "ipv4",
                Ok(std::net::IpAddr::V6(_)) => "ip_literal",
                Err(_) => "hostname",
            };
            format!("{kind} {host} port {port}")
        }
    }
}

impl Auth {
    fn compare(&self, options: &Options, differences: &mut Differences) {
        let credential = options.credential();
        let username = credential.and_then(|credential| credential.username.as_deref());
        let password = credential.and_then(|credential| credential.password.as_ref());
        let fields = [
            ("username", &self.username, username),
            ("password", &self.password, password.map(Secret::expose)),
            ("db", &self.db, options.database()),
        ];
        for (field, expected, found) in fields {
            if let Some(expected) = expected {
                differences.text(field, expected, found.unwrap_or("unset"));
            }
        }
    }
}

impl ExpectedCredential {
    fn compare(&self, credential: &Credential, differences: &mut Differences) {
        let password = credential.password.as_ref().map(|password| password.expose().to_owned());
        let mechanism = credential.mechanism.map(|mechanism| mechanism.name().to_owned());
        differences.expect("username", &self.username, credential.username.as_ref());
        differences.expect("password", &self.password, password.as_ref());
        differences.expect("source", &self.source, Some(&credential.source));
        differences.expect("mechanism", &self.mechanism, mechanism.as_ref());
        let properties = &credential.mechanism_properties;
        match &self.mechanism_properties {
            Expected::Anything => {}
            Expected::Unset if properties.is_empty() => {}
            Expected::Unset => differences.differs("mechanism_properties", "unset", "some"),
            Expected::Exactly(expected) => {
                for (name, value) in expected {
                    let found = properties.get(name).map_or("unset", Secret::expose);
                    differences.text(name, value.as_str().unwrap_or("a text"), found);
                }
            }
        }
    }
}
