//! Log messages: what the specifications want drivers to log, as values.
//!
//! Implements the Logging specification and the messages of Command Logging and Monitoring, SDAM
//! Logging and Monitoring, Connection Monitoring and Pooling, and Server Selection. A message is
//! made of an [event](crate::topology::Event) or of a step of a [selection](SelectionLog); who
//! writes it where is up to the host. [`LogSettings`] are those of the environment.

mod component;
mod event;
mod extended_json;
mod form;
mod message;
mod selection;
mod settings;
#[cfg(test)]
mod tests;

pub use component::{Component, Severity};
pub use extended_json::extended_json;
pub use message::{LogMessage, LogValue};
pub use selection::SelectionLog;
pub use settings::{InvalidLogSetting, LogDestination, LogSettings};

/// The maximum length of a document in a log message unless another one is asked for, in code
/// points (Logging, "Configurable Max Document Length").
pub const MAX_DOCUMENT_LENGTH: usize = 1000;
