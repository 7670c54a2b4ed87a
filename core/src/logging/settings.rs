//! The settings of the log that the environment has, for programs that collect no log by
//! themselves.

use std::path::PathBuf;

use super::MAX_DOCUMENT_LENGTH;
use super::component::{Component, Severity, UnknownSeverity};

/// The variable with the least severity of the messages of all components.
const ALL: &str = "MONGODB_LOG_ALL";
/// The variable that says where messages go.
const PATH: &str = "MONGODB_LOG_PATH";
/// The variable with the maximum length of documents.
const LENGTH: &str = "MONGODB_LOG_MAX_DOCUMENT_LENGTH";

/// The settings of the log: which messages of each component, how much of documents, and where to
/// (Logging, "Implementation requirements").
///
/// ```
/// use sdam_core::logging::{Component, LogDestination, LogSettings, Severity};
///
/// let environment = |name: &str| match name {
///     "MONGODB_LOG_ALL" => Some("info".to_owned()),
///     "MONGODB_LOG_COMMAND" => Some("off".to_owned()),
///     "MONGODB_LOG_PATH" => Some("/var/log/app/mongodb.log".to_owned()),
///     _ => None,
/// };
/// let (settings, invalid) = LogSettings::from_variables(environment);
/// assert!(invalid.is_empty());
/// assert!(settings.wants(Component::Topology, Severity::Informational));
/// assert!(!settings.wants(Component::Topology, Severity::Debug));
/// assert!(!settings.wants(Component::Command, Severity::Error));
/// assert_eq!(settings.destination, LogDestination::File("/var/log/app/mongodb.log".into()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogSettings {
    /// The least severity of the messages of each component, in the order of [`Component::ALL`];
    /// `None` if there are to be none.
    least: [Option<Severity>; Component::ALL.len()],
    /// The maximum length of documents in messages, in code points.
    pub max_document_length: usize,
    /// The place that messages go to.
    pub destination: LogDestination,
}

/// The place that log messages go to (Logging, "Configurable Log Destination").
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogDestination {
    /// Standard output.
    Stdout,
    /// Standard error.
    #[default]
    Stderr,
    /// A file, at whose end they are added.
    File(PathBuf),
}

/// A variable of the environment that is passed over, as its value is none of those that it may
/// have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidLogSetting {
    /// The severity of one component, or of all.
    #[error("{variable} is ignored: {error}")]
    Severity {
        /// The variable.
        variable: &'static str,
        /// The reason.
        error: UnknownSeverity,
    },
    /// The maximum length of documents.
    #[error("{LENGTH} is ignored: {0:?} is no number of characters")]
    Length(String),
}

impl Default for LogSettings {
    /// Returns settings with which nothing is logged.
    fn default() -> Self {
        Self {
            least: [None; Component::ALL.len()],
            max_document_length: MAX_DOCUMENT_LENGTH,
            destination: LogDestination::default(),
        }
    }
}

impl LogSettings {
    /// Reads the settings from variables, which `get` returns by their names; also lists the ones
    /// that are passed over, as they are invalid. An empty variable counts as absent.
    pub fn from_variables(get: impl Fn(&str) -> Option<String>) -> (Self, Vec<InvalidLogSetting>) {
        let get = |name: &str| get(name).filter(|value| !value.is_empty());
        let (mut settings, mut invalid) = (Self::default(), Vec::new());
        let all = severity(ALL, &get, &mut invalid).flatten();
        for (least, component) in settings.least.iter_mut().zip(Component::ALL) {
            *least = severity(component.variable(), &get, &mut invalid).unwrap_or(all);
        }
        if let Some(text) = get(LENGTH) {
            match text.parse() {
                Ok(length) => settings.max_document_length = length,
                Err(_) => invalid.push(InvalidLogSetting::Length(text)),
            }
        }
        settings.destination = match get(PATH) {
            None => LogDestination::Stderr,
            Some(name) if name.eq_ignore_ascii_case("stderr") => LogDestination::Stderr,
            Some(name) if name.eq_ignore_ascii_case("stdout") => LogDestination::Stdout,
            Some(path) => LogDestination::File(path.into()),
        };
        (settings, invalid)
    }

    /// Returns these settings with messages of a component from that severity on, or none.
    #[must_use]
    pub const fn with_severity(mut self, component: Component, least: Option<Severity>) -> Self {
        self.least[component as usize] = least;
        self
    }

    /// Returns whether messages of that component and severity are to be logged.
    pub fn wants(&self, component: Component, severity: Severity) -> bool {
        self.least[component as usize].is_some_and(|least| severity <= least)
    }

    /// Returns whether nothing is to be logged.
    pub fn is_off(&self) -> bool {
        self.least.iter().all(Option::is_none)
    }
}

/// Reads a severity: `None` if the variable is not there or invalid, and within it `None` for off.
fn severity(
    variable: &'static str,
    get: &impl Fn(&str) -> Option<String>,
    invalid: &mut Vec<InvalidLogSetting>,
) -> Option<Option<Severity>> {
    let text = get(variable)?;
    if text.eq_ignore_ascii_case("off") {
        return Some(None);
    }
    match text.parse() {
        Ok(severity) => Some(Some(severity)),
        Err(error) => {
            invalid.push(InvalidLogSetting::Severity { variable, error });
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{InvalidLogSetting, LogDestination, LogSettings};
    use crate::logging::{Component, Severity};

    fn settings(variables: &[(&str, &str)]) -> (LogSettings, Vec<InvalidLogSetting>) {
        LogSettings::from_variables(|name| {
            let (_, value) = variables.iter().find(|(variable, _)| *variable == name)?;
            Some((*value).to_owned())
        })
    }

    /// Logging, "Per-Component Configuration of Log Levels": "The default is to not log anything."
    #[test]
    fn nothing_is_logged_unless_asked_for() {
        let (settings, invalid) = settings(&[]);
        assert!(settings.is_off() && invalid.is_empty());
        assert_eq!(settings.max_document_length, 1000);
        assert_eq!(settings, LogSettings::default());
    }

    /// Logging, "Per-Component Configuration of Log Levels": "the component variable(s) MUST take
    /// precedence", and values are "case-insensitive".
    #[test]
    fn the_variable_of_a_component_goes_before_that_of_all() {
        let (settings, _) =
            settings(&[("MONGODB_LOG_ALL", "DEBUG"), ("MONGODB_LOG_CONNECTION", "Off")]);
        assert!(settings.wants(Component::Command, Severity::Debug));
        assert!(!settings.wants(Component::Command, Severity::Trace));
        assert!(!settings.wants(Component::Connection, Severity::Emergency));
    }

    /// Logging, "Per-Component Configuration of Log Levels": "If a variable is set to an invalid
    /// value, it MUST be treated as if it were not specified at all".
    #[test]
    fn invalid_values_are_passed_over_and_told() {
        let (settings, invalid) = settings(&[
            ("MONGODB_LOG_ALL", "warn"),
            ("MONGODB_LOG_TOPOLOGY", "verbose"),
            ("MONGODB_LOG_MAX_DOCUMENT_LENGTH", "-1"),
        ]);
        assert!(settings.wants(Component::Topology, Severity::Warning));
        assert_eq!(settings.max_document_length, 1000);
        let told: Vec<_> = invalid.iter().map(ToString::to_string).collect();
        assert!(told[0].starts_with("MONGODB_LOG_TOPOLOGY is ignored: \"verbose\""), "{told:?}");
        assert!(told[1].contains("MAX_DOCUMENT_LENGTH") && told[1].contains("\"-1\""), "{told:?}");
    }

    #[test]
    fn an_empty_variable_is_as_good_as_none() {
        let (found, invalid) = settings(&[
            ("MONGODB_LOG_ALL", ""),
            ("MONGODB_LOG_TOPOLOGY", ""),
            ("MONGODB_LOG_MAX_DOCUMENT_LENGTH", ""),
            ("MONGODB_LOG_PATH", ""),
        ]);
        assert_eq!((found, invalid), settings(&[]));
    }

    /// Logging, "Configurable Log Destination": "If the value is \"stdout\" (case-insensitive), log
    /// to stdout".
    #[test]
    fn messages_go_where_the_path_says() {
        let destination = |path| settings(&[("MONGODB_LOG_PATH", path)]).0.destination;
        assert_eq!(destination("StdOut"), LogDestination::Stdout);
        assert_eq!(destination("STDERR"), LogDestination::Stderr);
        assert_eq!(destination("log.txt"), LogDestination::File("log.txt".into()));
        assert_eq!(settings(&[]).0.destination, LogDestination::Stderr);
    }
}
