//! Servers that are suitable for an operation, and those of them in the latency window.

use std::collections::BTreeSet;

use sdam_core::config::ServerAddress;
use sdam_core::rng::Rng;
use sdam_core::selection::{Criteria, Reason, Refusal, Snapshot};
use serde::Deserialize;

use super::super::difference::Differences;
use super::super::format::{CaseError, list, parse};
use super::super::report::CaseReport;
use super::deployment::{Deployment, Server};
use super::milliseconds;
use super::read_preference::ReadPreferenceDocument;

/// The number of selections that show every server of the latency window: of ten servers one
/// is left out with a chance of less than one in 10^11, and the draws are always the same.
const SELECTIONS: u64 = 256;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerSelectionCase {
    topology_description: Deployment,
    operation: Operation,
    read_preference: ReadPreferenceDocument,
    #[serde(default)]
    deprioritized_servers: Vec<Server>,
    suitable_servers: Vec<Server>,
    in_latency_window: Vec<Server>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Operation {
    Read,
    Write,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MaxStalenessCase {
    #[serde(rename = "heartbeatFrequencyMS")]
    heartbeat_frequency: Option<f64>,
    topology_description: Deployment,
    read_preference: ReadPreferenceDocument,
    #[serde(default)]
    error: bool,
    suitable_servers: Option<Vec<Server>>,
    in_latency_window: Option<Vec<Server>>,
}

/// The expected result of a selection: suitable servers and those in the window, or an error.
enum Expected<'a> {
    Servers { suitable: &'a [Server], in_window: &'a [Server] },
    Error,
}

/// Runs a case of Server Selection.
pub(in crate::spec) fn run_server_selection(text: &str) -> Result<Vec<CaseReport>, CaseError> {
    let case: ServerSelectionCase = parse(text)?;
    let fixture = case.topology_description.show(None)?;
    let (suitable, in_window) = (&case.suitable_servers, &case.in_latency_window);
    let expected = Expected::Servers { suitable, in_window };
    let criteria = match case.operation {
        Operation::Write => Ok(Criteria::write()),
        Operation::Read => case.read_preference.build()?.map(Criteria::read),
    };
    let deprioritized = case.deprioritized_servers.into_iter().map(|server| server.address.0);
    let criteria = criteria.map(|criteria| criteria.deprioritize(deprioritized));
    let differences = match criteria {
        Ok(criteria) => compare(fixture.snapshot(), &criteria, &expected),
        Err(refusal) => refused(refusal, &expected),
    };
    Ok(vec![CaseReport::new("", differences)])
}

/// Runs a case of Max Staleness, which is always about a read.
pub(in crate::spec) fn run_max_staleness(text: &str) -> Result<Vec<CaseReport>, CaseError> {
    let case: MaxStalenessCase = parse(text)?;
    let heartbeat = match case.heartbeat_frequency {
        Some(millis) => Some(milliseconds("heartbeatFrequencyMS", millis)?),
        None => None,
    };
    let fixture = case.topology_description.show(heartbeat)?;
    let expected = match (case.error, &case.suitable_servers, &case.in_latency_window) {
        (true, None, None) => Expected::Error,
        (false, Some(suitable), Some(in_window)) => Expected::Servers { suitable, in_window },
        _ => {
            return Err(CaseError::Value {
                field: "error",
                found: case.error.to_string(),
                allowed: "a case has either error: true or both lists of servers",
            });
        }
    };
    let differences = match case.read_preference.build()?.map(Criteria::read) {
        Ok(criteria) => compare(fixture.snapshot(), &criteria, &expected),
        Err(refusal) => refused(refusal, &expected),
    };
    Ok(vec![CaseReport::new("", differences)])
}

/// The client has refused the read preference before there was anything to select from.
fn refused(refusal: impl std::fmt::Display, expected: &Expected<'_>) -> Differences {
    let mut differences = Differences::default();
    if let Expected::Servers { suitable, .. } = expected {
        let expected = list(suitable.iter().map(|server| &server.address));
        differences.differs("suitable servers", expected, format!("an error: {refusal}"));
    }
    differences
}

fn compare(snapshot: &Snapshot, criteria: &Criteria, expected: &Expected<'_>) -> Differences {
    let mut differences = Differences::default();
    let found = select(snapshot, criteria);
    let (suitable, in_window) = match (expected, &found) {
        (Expected::Error, Err(Refusal::MaxStaleness { .. })) => return differences,
        (Expected::Error, Err(other)) => {
            differences.differs("error", "an invalid read preference", other);
            return differences;
        }
        (Expected::Error, Ok(found)) => {
            let found = format!("a choice from: {}", list(found));
            differences.differs("error", "an invalid read preference", found);
            return differences;
        }
        (Expected::Servers { .. }, Err(error)) => return refused(error, expected),
        (Expected::Servers { suitable, in_window }, Ok(_)) => (suitable, in_window),
    };
    let addresses = |servers: &[Server]| list(servers.iter().map(|server| &server.address));
    let explained = |include: fn(&Reason) -> bool| {
        let servers = snapshot.explain(criteria).servers.into_iter();
        let servers = servers.filter(|server| include(&server.reason));
        list(servers.map(|server| server.address))
    };
    differences.text("suitable servers", &addresses(suitable), &explained(Reason::is_suitable));
    let in_window = addresses(in_window);
    let is_in_window = |reason: &Reason| matches!(reason, Reason::InWindow);
    differences.text("in latency window", &in_window, &explained(is_in_window));
    // What is selected, and not only what is said of it.
    if let Ok(found) = found {
        differences.text("selected", &in_window, &list(found));
    }
    differences
}

/// Selects so often that every server which can be selected is.
fn select(snapshot: &Snapshot, criteria: &Criteria) -> Result<BTreeSet<ServerAddress>, Refusal> {
    let (mut rng, mut selected) = (Rng::new(1), BTreeSet::new());
    for _ in 0..SELECTIONS {
        if let Some(index) = snapshot.select(criteria, |_| 0, rng.next_u64())? {
            selected.insert(snapshot.description().servers()[index].address.clone());
        }
    }
    Ok(selected)
}
