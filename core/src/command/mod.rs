//! Command monitoring: what an application's commands and their outcomes are, as events.
//!
//! Implements the events of the Command Logging and Monitoring specification; their documents are
//! as "Security" there asks for.

mod event;
mod sensitive;

pub use event::{CommandEvent, MonitoredCommand};
pub use sensitive::is_sensitive;
