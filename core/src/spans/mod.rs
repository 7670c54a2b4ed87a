//! Spans: operations and the commands within them, as values for tracers of an application.
//!
//! Implements the OpenTelemetry specification of drivers: the names and the attributes of spans.
//! The host begins and ends them; [`SpanSettings`] are those of the environment.

mod about;
mod command;
mod settings;
mod span;
#[cfg(test)]
mod tests;

pub use settings::{InvalidSpanSetting, SpanSettings};
pub use span::{Attribute, AttributeValue, Exception, SpanEnd, SpanStart};
