//! The traffic of a pool, counted where it happens.

use std::time::Duration;

use super::definition;
use super::histogram::Histogram;
use super::operations::{ErrorType, Operations};
use crate::operation::OperationError;

/// The check-outs of one pool, the commands over its connections and the operations that ended at
/// its server, as counted where they happen: clients are too busy to publish each as an event.
///
/// [`Metrics::add`](super::Metrics::add) takes it in. To do so periodically, put an empty one in
/// its place.
#[derive(Clone, Debug)]
pub struct Traffic {
    pub(super) wait_time: Histogram,
    pub(super) use_time: Histogram,
    pub(super) operations: Operations,
    pub(super) commands: Operations,
}

impl Default for Traffic {
    fn default() -> Self {
        Self {
            wait_time: Histogram::new(&definition::WAIT_TIME),
            use_time: Histogram::new(&definition::USE_TIME),
            operations: Operations::default(),
            commands: Operations::default(),
        }
    }
}

impl Traffic {
    /// Counts a connection that an operation got after it had waited for that time.
    pub fn checked_out(&mut self, waited: Duration) {
        self.wait_time.observe(waited);
    }

    /// Counts a connection that was returned after it had been in use for that time.
    pub fn checked_in(&mut self, used: Duration) {
        self.use_time.observe(used);
    }

    /// Counts a command that has ended, successfully or with an error, after that time.
    pub fn command_ended(&mut self, name: &str, time: Duration, error: Option<&OperationError>) {
        self.commands.observe(name, time, error.map(ErrorType::from));
    }

    /// Counts an operation that has ended, successfully or with an error, after that time: once,
    /// whatever number of commands it has sent.
    pub fn operation_ended(&mut self, name: &str, time: Duration, error: Option<ErrorType>) {
        self.operations.observe(name, time, error);
    }
}
