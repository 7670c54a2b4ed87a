//! An error that an operation met, as a connection pool would report it.

use bson::RawDocumentBuf;
use sdam_core::failure::{Cause, Failure, Stage as Step};
use sdam_core::id::Generation;
use sdam_core::operation::{CommandError, OperationError, OperationFailure};
use sdam_core::topology::Input;
use serde::Deserialize;

use super::super::format::{Address, CaseError};
use sdam_core::harness::{Harness, HarnessError};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ApplicationError {
    address: Address,
    /// The generation of the connection; the pool's current one if absent.
    generation: Option<u32>,
    max_wire_version: i32,
    when: When,
    #[serde(rename = "type")]
    kind: Kind,
    response: Option<bson::Document>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
enum When {
    BeforeHandshakeCompletes,
    AfterHandshakeCompletes,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Kind {
    Command,
    Network,
    Timeout,
}

impl ApplicationError {
    /// Feeds it to the client; what labels the error has is for the client to say.
    pub(super) fn feed(&self, stage: &mut Harness) -> Result<(), CaseError> {
        let address = &self.address.0;
        let Some(server) = stage.view().server(address).map(|server| server.id) else {
            return Err(HarnessError::NoSuchServer(address.clone()).into());
        };
        let Some(error) = self.error()? else {
            return Ok(());
        };
        let generation = self.generation.unwrap_or_else(|| stage.generation(address));
        let failure =
            OperationFailure::new(Generation::new(generation), self.max_wire_version, error);
        stage.input(Input::OperationFailed { server, failure });
        Ok(())
    }

    /// Returns what went wrong, or `None` if the reply is that of a command that succeeded.
    fn error(&self) -> Result<Option<OperationError>, CaseError> {
        let step = match self.when {
            When::BeforeHandshakeCompletes => Step::Hello,
            When::AfterHandshakeCompletes => Step::Operate,
        };
        let stream = |cause, detail: &str| {
            Ok(Some(OperationError::Stream(Failure::new(step, cause, detail))))
        };
        match (self.kind, &self.response) {
            (Kind::Network, None) => stream(Cause::Closed, "the server closed the connection"),
            (Kind::Timeout, None) => stream(Cause::Timeout, "no reply within the time allowed"),
            (Kind::Command, Some(response)) => {
                let reply = RawDocumentBuf::try_from(response).map_err(CaseError::Format)?;
                let error = CommandError::in_reply(&reply);
                Ok(error.map(|error| OperationError::Reply { stage: step, error }))
            }
            (kind, _) => Err(CaseError::Value {
                field: "response",
                found: if self.response.is_some() { "present" } else { "absent" }.to_owned(),
                allowed: match kind {
                    Kind::Command => "an error of type command needs one",
                    Kind::Network | Kind::Timeout => "only an error of type command has one",
                },
            }),
        }
    }
}
