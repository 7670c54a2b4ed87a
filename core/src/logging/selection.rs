//! The messages about the selection of a server.

use std::time::Duration;

use super::event::description;
use super::form::{self, Form};
use super::message::LogMessage;
use crate::config::ServerAddress;
use crate::description::TopologyDescription;
use crate::diagnosis::SelectionError;
use crate::selection::Criteria;

/// A server selection to be logged (Server Selection, "Logging").
#[derive(Clone, Copy, Debug)]
pub struct SelectionLog<'a> {
    operation: &'a str,
    operation_id: Option<i64>,
    criteria: &'a Criteria,
}

impl<'a> SelectionLog<'a> {
    /// Takes the name of the operation, which is its command's name if it is for a command, and the
    /// criteria of its server.
    pub const fn new(
        operation: &'a str,
        operation_id: Option<i64>,
        criteria: &'a Criteria,
    ) -> Self {
        Self { operation, operation_id, criteria }
    }

    /// Returns the message that a selection begins.
    pub fn started(self, description: &TopologyDescription) -> LogMessage {
        self.message(&form::SELECTION_STARTED, description)
    }

    /// Returns the message that no server is suitable yet, with the time that is left if it is
    /// limited; once in a selection.
    pub fn waiting(
        self,
        description: &TopologyDescription,
        remaining: Option<Duration>,
    ) -> LogMessage {
        let message = self.message(&form::SELECTION_WAITING, description);
        match remaining {
            Some(remaining) => message.millis("remainingTimeMS", remaining),
            None => message,
        }
    }

    /// Returns the message that this server was selected.
    pub fn succeeded(
        self,
        description: &TopologyDescription,
        server: &ServerAddress,
    ) -> LogMessage {
        self.message(&form::SELECTION_SUCCEEDED, description).server(server)
    }

    /// Returns the message that no server was found; of the error only what the description does
    /// not say.
    pub fn failed(self, description: &TopologyDescription, error: &SelectionError) -> LogMessage {
        let failure = error.verdict.sentence();
        self.message(&form::SELECTION_FAILED, description).text("failure", failure)
    }

    fn message(self, form: &'static Form, topology: &TopologyDescription) -> LogMessage {
        let message = LogMessage::new(form).shown("selector", self.criteria);
        let message = match self.operation_id {
            Some(id) => message.number("operationId", id),
            None => message,
        };
        message.text("operation", self.operation).text("topologyDescription", description(topology))
    }
}
