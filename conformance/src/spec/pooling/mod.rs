//! Connection Monitoring and Pooling, in the format of its folder `cmap-format`.
//!
//! Both styles are run in virtual time: a connection of style `unit` is established after a
//! millisecond, and one of style `integration` as the case's fail point has it.

mod case;
mod events;
mod play;
mod thread;

use bson::Bson;

use case::{Case, ExpectedError};
use play::{Ending, Play};
pub(super) use thread::PlayError;
use thread::ThreadError;

use super::difference::Differences;
use super::format::{CaseError, parse};
use super::report::CaseReport;

/// The folder of the suite.
pub(super) const FOLDER: &str = "connection-monitoring-and-pooling/tests/cmap-format";

/// The fields that are not compared, and why.
pub(super) const NOT_COMPARED: &str = "backgroundThreadIntervalMS, as the pool does at once what \
    is due; and runOn, as no server takes part";

/// Runs a file, which is one case.
pub(super) fn run(text: &str) -> Result<Vec<CaseReport>, CaseError> {
    let case: Case = parse(text)?;
    let name = case.description.clone();
    let mut differences = Differences::default();
    let ignored: Vec<String> = case.ignore.clone();
    let (expected, error) = (case.events.clone(), case.error.clone());
    let Ending { events, error: found } = Play::new(case)?.run()?;
    compare_errors(error.as_ref(), found.as_ref(), &mut differences);
    let mut found = events.iter().filter(|event| !ignored.iter().any(|name| *name == event.name));
    for (number, expected) in (1..).zip(&expected) {
        let place = format!("event {number}");
        let wanted = Bson::Document(expected.clone());
        match found.next().map(events::PoolObservation::to_document).map(Bson::Document) {
            Some(found) if events::matches(&wanted, Some(&found)) => {}
            Some(found) => differences.differs(&place, &wanted, &found),
            None => differences.differs(&place, &wanted, "no more events"),
        }
    }
    Ok(vec![CaseReport::new(name, differences)])
}

fn compare_errors(
    expected: Option<&ExpectedError>,
    found: Option<&ThreadError>,
    differences: &mut Differences,
) {
    match (expected, found) {
        (None, None) => {}
        (None, Some(found)) => differences.differs("error", "none", found),
        (Some(expected), None) => differences.differs("error", &expected.kind, "none"),
        (Some(expected), Some(found)) => {
            differences.text("error, type", &expected.kind, found.kind());
            let message = found.to_string();
            // The specification's sentence begins ours, which says more.
            if !message.starts_with(&expected.message) {
                differences.differs("error, message", &expected.message, message);
            }
        }
    }
}
