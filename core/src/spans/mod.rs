//! Spans: operations and the commands within them, as values for whoever traces an application.
//!
//! Implements the OpenTelemetry specification of drivers: the names and the attributes of spans.
//! Who begins and ends them when is up to the host; [`SpanSettings`] are those of the environment.

mod about;
mod command;
mod settings;
mod span;
#[cfg(test)]
mod tests;

pub use settings::{InvalidSpanSetting, SpanSettings};
pub use span::{Attribute, AttributeValue, Exception, SpanEnd, SpanStart};
