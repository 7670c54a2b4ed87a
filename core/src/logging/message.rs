//! A message of the log.

use std::fmt;
use std::time::Duration;

use bson::DateTime;
use bson::oid::ObjectId;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::component::{Component, Severity};
use super::form::Form;
use crate::config::ServerAddress;

/// A message of the log: its component, severity and fields, which have the names of the
/// specifications (Logging, "Standard Naming in Structured Log Messages").
///
/// Its text, by `Display`, is the unstructured form; serialised, it is one flat object. Fields that
/// have no value are left out of both.
#[derive(Clone, Debug, PartialEq)]
pub struct LogMessage {
    form: &'static Form,
    fields: Vec<(&'static str, LogValue)>,
}

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum LogValue {
    /// True or false.
    Boolean(bool),
    /// A number, such as a port or a connection.
    Integer(i64),
    /// A number that is not whole, such as a duration in milliseconds.
    Double(f64),
    /// A text: a name, a document in extended JSON, an error.
    Text(String),
}

impl LogMessage {
    pub(super) const fn new(form: &'static Form) -> Self {
        Self { form, fields: Vec::new() }
    }

    /// Returns the component that it belongs to.
    pub const fn component(&self) -> Component {
        self.form.component
    }

    /// Returns its severity.
    pub const fn severity(&self) -> Severity {
        self.form.severity
    }

    /// Returns the message itself, which the specifications give: what the field `message` is.
    pub const fn message(&self) -> &'static str {
        self.form.message
    }

    /// Lists the other fields.
    pub fn fields(&self) -> &[(&'static str, LogValue)] {
        &self.fields
    }

    /// Returns the value of a field other than `message`.
    pub fn get(&self, name: &str) -> Option<&LogValue> {
        self.fields.iter().find(|(field, _)| *field == name).map(|(_, value)| value)
    }

    /// Returns it as a line of JSON, without an end of line: `time`, `level`, `component`,
    /// `message` and the fields.
    ///
    /// ```
    /// use sdam_core::bson::DateTime;
    /// use sdam_core::description::TopologyDescription;
    /// use sdam_core::logging::SelectionLog;
    /// use sdam_core::selection::Criteria;
    ///
    /// let criteria = Criteria::write();
    /// let log = SelectionLog::new("insert", Some(7), &criteria);
    /// let line = log.started(&TopologyDescription::default()).line(DateTime::from_millis(0));
    /// let start = r#"{"time":"1970-01-01T00:00:00Z","level":"debug","component":"#;
    /// assert!(line.starts_with(start));
    /// ```
    pub fn line(&self, time: DateTime) -> String {
        let time = time.try_to_rfc3339_string().unwrap_or_default();
        let line = Line {
            time,
            level: self.severity().name(),
            component: self.component().name(),
            message: self,
        };
        // Names are texts, and nothing fails.
        serde_json::to_string(&line).unwrap_or_default()
    }

    pub(super) fn text(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.fields.push((name, LogValue::Text(value.into())));
        self
    }

    pub(super) fn shown(self, name: &'static str, value: &impl ToString) -> Self {
        self.text(name, value.to_string())
    }

    pub(super) fn number(mut self, name: &'static str, value: impl Into<i64>) -> Self {
        self.fields.push((name, LogValue::Integer(value.into())));
        self
    }

    pub(super) fn boolean(mut self, name: &'static str, value: bool) -> Self {
        self.fields.push((name, LogValue::Boolean(value)));
        self
    }

    /// Adds a duration in milliseconds, with those parts of them that a clock shows.
    pub(super) fn duration(mut self, value: Duration) -> Self {
        let micros = Duration::from_micros(value.subsec_micros().into());
        let value = Duration::from_secs(value.as_secs()) + micros;
        // Of an integer number of microseconds, so that no digit follows that was not measured.
        let millis = (value.as_secs_f64() * 1e6).round() / 1e3;
        self.fields.push(("durationMS", LogValue::Double(millis)));
        self
    }

    /// Adds a duration in whole milliseconds.
    pub(super) fn millis(self, name: &'static str, value: Duration) -> Self {
        self.number(name, i64::try_from(value.as_millis()).unwrap_or(i64::MAX))
    }

    /// Adds `serverHost` and, but for Unix domain sockets, `serverPort`.
    pub(super) fn server(self, address: &ServerAddress) -> Self {
        let message = self.text("serverHost", address.host());
        match address.port() {
            Some(port) => message.number("serverPort", port),
            None => message,
        }
    }

    pub(super) fn service(self, service: Option<ObjectId>) -> Self {
        match service {
            Some(service) => self.text("serviceId", service.to_hex()),
            None => self,
        }
    }
}

/// A message as a line of a file.
#[derive(Serialize)]
struct Line<'a> {
    time: String,
    level: &'static str,
    component: &'static str,
    #[serde(flatten)]
    message: &'a LogMessage,
}

impl fmt::Display for LogValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boolean(value) => value.fmt(f),
            Self::Integer(value) => value.fmt(f),
            Self::Double(value) => value.fmt(f),
            Self::Text(value) => value.fmt(f),
        }
    }
}

impl fmt::Display for LogMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in self.form.text {
            let Some((before, rest)) = part.split_once('{') else {
                f.write_str(part)?;
                continue;
            };
            let (name, after) = rest.split_once('}').unwrap_or((rest, ""));
            if let Some(value) = self.get(name) {
                write!(f, "{before}{value}{after}")?;
            }
        }
        Ok(())
    }
}

impl Serialize for LogMessage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.fields.len() + 1))?;
        map.serialize_entry("message", self.message())?;
        self.fields.iter().try_for_each(|(name, value)| map.serialize_entry(name, value))?;
        map.end()
    }
}
