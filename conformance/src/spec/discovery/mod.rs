//! The suites of Server Discovery And Monitoring: phases of hello replies and of errors that
//! operations met, each with the state or the events that must follow.

mod application_error;
mod events;
mod outcome;

use bson::RawDocumentBuf;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::difference::Differences;
use super::format::{Address, CaseError, parse};
use super::report::CaseReport;
use application_error::ApplicationError;
use events::ExpectedEvents;
use outcome::ExpectedState;
use sdam_core::harness::{CheckOutcome, Harness};

/// A case whose phases end with an expectation of type `E`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case<E> {
    description: String,
    uri: String,
    phases: Vec<Phase<E>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Phase<E> {
    description: Option<String>,
    #[serde(default)]
    responses: Vec<(Address, bson::Document)>,
    /// Fed after the responses.
    #[serde(default)]
    application_errors: Vec<ApplicationError>,
    outcome: E,
}

/// The expectation of a phase.
trait Expectation: DeserializeOwned {
    /// Compares it with what the client shows.
    fn compare(&self, fixture: &mut Harness, differences: &mut Differences);
}

/// Runs a case whose phases end with a description of the topology.
pub(super) fn run_states(text: &str) -> Result<Vec<CaseReport>, CaseError> {
    run::<ExpectedState>(text)
}

/// Runs a case whose phases end with the events that the phase emitted.
pub(super) fn run_events(text: &str) -> Result<Vec<CaseReport>, CaseError> {
    run::<ExpectedEvents>(text)
}

fn run<E: Expectation>(text: &str) -> Result<Vec<CaseReport>, CaseError> {
    let case: Case<E> = parse(text)?;
    let mut fixture = Harness::new(&case.uri, None)?;
    let mut differences = Differences::default();
    for (index, phase) in case.phases.iter().enumerate() {
        for (address, reply) in &phase.responses {
            feed(&mut fixture, address, reply)?;
        }
        for error in &phase.application_errors {
            error.feed(&mut fixture)?;
        }
        let place = match &phase.description {
            Some(description) => format!("phase {} ({description})", index + 1),
            None => format!("phase {}", index + 1),
        };
        differences.within(place, |differences| phase.outcome.compare(&mut fixture, differences));
    }
    Ok(vec![CaseReport::new(case.description, differences)])
}

/// Lets a server answer; an empty reply stands for a network error.
fn feed(fixture: &mut Harness, address: &Address, reply: &bson::Document) -> Result<(), CaseError> {
    if reply.is_empty() {
        return Ok(fixture.answer(&address.0, CheckOutcome::NetworkError)?);
    }
    let reply = RawDocumentBuf::try_from(reply).map_err(CaseError::Format)?;
    Ok(fixture.answer(&address.0, CheckOutcome::Reply(&reply))?)
}
