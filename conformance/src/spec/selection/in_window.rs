//! The share of selections for each server of the latency window, given the load of each.

use std::collections::BTreeMap;

use sdam_core::config::{ReadMode, ReadPreference};
use sdam_core::rng::Rng;
use sdam_core::selection::Criteria;
use serde::Deserialize;

use super::super::difference::Differences;
use super::super::format::{Address, CaseError, list, parse};
use super::super::report::CaseReport;
use super::deployment::Deployment;

/// The maximum number of selections of a case; the suite asks for up to ten thousand.
const MAX_ITERATIONS: u32 = 1_000_000;

/// Any will do; with this one a run is the same every time.
const SEED: u64 = 1;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    description: String,
    topology_description: Deployment,
    mocked_topology_state: Vec<Load>,
    iterations: u32,
    outcome: Outcome,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Load {
    address: Address,
    operation_count: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Outcome {
    tolerance: f64,
    expected_frequencies: BTreeMap<Address, f64>,
}

/// Runs a case: selects for reads with mode nearest, while the counts stay as they are.
pub(in crate::spec) fn run_in_window(text: &str) -> Result<Vec<CaseReport>, CaseError> {
    let case: Case = parse(text)?;
    if !(1..=MAX_ITERATIONS).contains(&case.iterations) {
        return Err(CaseError::Value {
            field: "iterations",
            found: case.iterations.to_string(),
            allowed: "from 1 to a million is allowed",
        });
    }
    let fixture = case.topology_description.show(None)?;
    let (snapshot, servers) = (fixture.snapshot(), fixture.view().servers());
    let mut differences = Differences::default();
    let known = list(servers.iter().map(|server| &server.address));
    let loaded = list(case.mocked_topology_state.iter().map(|load| &load.address));
    differences.text("servers whose operations are counted", &known, &loaded);
    let loads: Vec<u32> = servers
        .iter()
        .map(|server| {
            let mut loads = case.mocked_topology_state.iter();
            let load = loads.find(|load| load.address.0 == server.address);
            load.map_or(0, |load| load.operation_count)
        })
        .collect();
    let criteria = Criteria::read(ReadPreference::new(ReadMode::Nearest));
    let (mut rng, mut counts) = (Rng::new(SEED), BTreeMap::new());
    for _ in 0..case.iterations {
        match snapshot.select(&criteria, |index| loads[index], rng.next_u64()) {
            Ok(Some(index)) => {
                *counts.entry(Address(servers[index].address.clone())).or_insert(0) += 1;
            }
            Ok(None) => differences.differs("a selection", "a server", "none"),
            Err(refusal) => differences.differs("a selection", "a server", refusal),
        }
    }
    for (address, &expected) in &case.outcome.expected_frequencies {
        let count: u32 = counts.get(address).copied().unwrap_or(0);
        let found = f64::from(count) / f64::from(case.iterations);
        let exact = expected == 0.0 || expected == 1.0;
        let tolerance = if exact { 0.0 } else { case.outcome.tolerance };
        let is_close = (found - expected).abs() <= tolerance;
        if !is_close {
            let expected = format!("{expected} (give or take {tolerance})");
            differences.differs(&format!("frequency of {address}"), expected, found);
        }
    }
    Ok(vec![CaseReport::new(case.description, differences)])
}
