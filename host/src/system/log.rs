//! The destinations of log messages: collectors of `tracing`, and where the environment says.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};

use bson::DateTime;
use sdam_core::logging::{Component, LogDestination, LogMessage, LogSettings, LogValue, Severity};
use tracing::{Dispatch, Level};

use crate::sync::{Mutex, lock};

/// The places that the messages of one client go to.
#[derive(Debug)]
pub(crate) struct LogSink {
    settings: LogSettings,
    /// The output for the messages that the settings want.
    output: Option<Output>,
    /// The subscriber of the thread that has made the client, for all of its messages.
    collector: Dispatch,
    /// The components whose messages it wanted then, in the order of [`Component::ALL`].
    collected: [bool; Component::ALL.len()],
}

#[derive(Debug)]
enum Output {
    Stdout,
    Stderr,
    File(Mutex<File>),
}

impl LogSink {
    /// Opens the destinations of messages; `None` if there are none.
    pub(crate) fn new(settings: LogSettings) -> Option<Self> {
        let collected = Component::ALL.map(is_collected);
        if settings.is_off() && collected == [false; Component::ALL.len()] {
            return None;
        }
        let output = (!settings.is_off()).then(|| Output::open(&settings.destination));
        let collector = tracing::dispatcher::get_default(Dispatch::clone);
        Some(Self { settings, output, collector, collected })
    }

    /// Returns whether messages of a component are wanted, at the least severity that the
    /// specifications use or above.
    pub(crate) fn wants(&self, component: Component) -> bool {
        self.collected[component as usize]
            || Severity::ALL.iter().any(|severity| self.settings.wants(component, *severity))
    }

    /// Returns the maximum length of documents in messages, in code points.
    pub(crate) const fn longest_document(&self) -> usize {
        self.settings.max_document_length
    }

    /// Writes a message about something that was at that time; what cannot be written is lost, as
    /// there is nowhere to report it.
    pub(crate) fn write(&self, message: &LogMessage, date: DateTime) {
        if let Some(output) = &self.output
            && self.settings.wants(message.component(), message.severity())
        {
            let mut line = message.line(date);
            line.push('\n');
            _ = output.write(line.as_bytes());
        }
        if self.collected[message.component() as usize] {
            let time = date.try_to_rfc3339_string().unwrap_or_default();
            tracing::dispatcher::with_default(&self.collector, || collect(message, &time));
        }
    }
}

impl Output {
    /// Opens a file at whose end lines are added; standard error in place of one that cannot be
    /// opened (Logging, "Configurable Log Destination").
    fn open(destination: &LogDestination) -> Self {
        match destination {
            LogDestination::Stdout => Self::Stdout,
            LogDestination::File(path) => {
                match OpenOptions::new().append(true).create(true).open(path) {
                    Ok(file) => Self::File(Mutex::new(file)),
                    Err(error) => {
                        let path = path.display();
                        tracing::warn!(
                            target: "sdam",
                            "the log goes to standard error, as {path} cannot be opened: {error}"
                        );
                        Self::Stderr
                    }
                }
            }
            // Also what this version does not know.
            _ => Self::Stderr,
        }
    }

    fn write(&self, line: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout => io::stdout().lock().write_all(line),
            Self::Stderr => io::stderr().lock().write_all(line),
            Self::File(file) => lock(file).write_all(line),
        }
    }
}

/// Returns whether the subscriber of this thread wants the messages of a component.
fn is_collected(component: Component) -> bool {
    match component {
        Component::Command => tracing::enabled!(target: "mongodb::command", Level::DEBUG),
        Component::Topology => tracing::enabled!(target: "mongodb::topology", Level::DEBUG),
        // One of its messages is of a higher level.
        Component::ServerSelection => {
            tracing::enabled!(target: "mongodb::server_selection", Level::INFO)
        }
        Component::Connection => tracing::enabled!(target: "mongodb::connection", Level::DEBUG),
        _ => false,
    }
}

/// Hands a message to the subscriber of this thread, with the fields that it has: targets, levels
/// and names are constants there. A subscriber has its own time, that of writing.
fn collect(message: &LogMessage, time: &str) {
    macro_rules! event {
        ($target:literal, $level:expr, $($kind:ident $($field:ident)+;)+) => {
            tracing::event!(
                target: $target,
                $level,
                time,
                $($($field = $kind(message, stringify!($field)),)+)+
                message = message.message()
            )
        };
    }
    match (message.component(), message.severity()) {
        (Component::Command, Severity::Warning) => {
            event!("mongodb::command", Level::WARN, integer lost;);
        }
        (Component::Topology, Severity::Warning) => {
            event!("mongodb::topology", Level::WARN, integer lost;);
        }
        (Component::Connection, Severity::Warning) => {
            event!("mongodb::connection", Level::WARN, integer lost;);
        }
        (Component::Command, _) => event!(
            "mongodb::command", Level::DEBUG,
            text commandName databaseName command reply failure serverHost serviceId;
            integer requestId operationId driverConnectionId serverConnectionId serverPort;
            double durationMS;
        ),
        (Component::Topology, _) => event!(
            "mongodb::topology", Level::DEBUG,
            text topologyId serverHost reply failure previousDescription newDescription;
            integer driverConnectionId serverConnectionId serverPort;
            double durationMS;
            boolean awaited;
        ),
        (Component::Connection, _) => event!(
            "mongodb::connection", Level::DEBUG,
            text serverHost serviceId reason error;
            integer serverPort driverConnectionId maxIdleTimeMS minPoolSize maxPoolSize
                maxConnecting waitQueueTimeoutMS;
            double durationMS;
        ),
        (_, Severity::Informational) => event!(
            "mongodb::server_selection", Level::INFO,
            text selector operation topologyDescription;
            integer operationId remainingTimeMS;
        ),
        _ => event!(
            "mongodb::server_selection", Level::DEBUG,
            text selector operation topologyDescription serverHost failure;
            integer operationId serverPort;
        ),
    }
}

fn text<'a>(message: &'a LogMessage, name: &str) -> Option<&'a str> {
    match message.get(name) {
        Some(LogValue::Text(text)) => Some(text),
        _ => None,
    }
}

fn integer(message: &LogMessage, name: &str) -> Option<i64> {
    match message.get(name) {
        Some(LogValue::Integer(number)) => Some(*number),
        _ => None,
    }
}

fn double(message: &LogMessage, name: &str) -> Option<f64> {
    match message.get(name) {
        Some(LogValue::Double(number)) => Some(*number),
        _ => None,
    }
}

fn boolean(message: &LogMessage, name: &str) -> Option<bool> {
    match message.get(name) {
        Some(LogValue::Boolean(value)) => Some(*value),
        _ => None,
    }
}
