//! Many seeds, one after the other.

use std::fmt;

use super::run::{Case, Failure, Statistics};
use super::scenario::Scenario;

/// What came of many seeds.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Swarm {
    /// How many seeds were simulated.
    pub seeds: u64,
    /// What happened in those in which all went well.
    pub statistics: Statistics,
    /// The others.
    pub failures: Vec<Failure>,
}

impl Swarm {
    /// Simulates one more seed, of a scenario if one is given; returns its failure, if it fails.
    pub fn run(&mut self, scenario: Option<&'static Scenario>, seed: u64) -> Option<&Failure> {
        self.run_case(&Case { scenario, seed, ..Case::default() })
    }

    /// Simulates one more case; returns its failure, if it fails.
    pub fn run_case(&mut self, case: &Case) -> Option<&Failure> {
        self.seeds += 1;
        match case.run() {
            Ok(run) => {
                self.statistics.add(&run.statistics);
                None
            }
            Err(failure) => {
                self.failures.push(*failure);
                self.failures.last()
            }
        }
    }
}

/// One line: seeds, virtual time, steps, operations, faults by kind, failures.
impl fmt::Display for Swarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Statistics { steps, client_time, operations, faults, .. } = &self.statistics;
        let total: u64 = faults.values().sum();
        write!(
            f,
            "{} seeds, {} client-seconds, {steps} steps, {operations} operations, {total} faults",
            self.seeds,
            client_time.as_secs()
        )?;
        let mut separator = " (";
        for (kind, count) in faults {
            write!(f, "{separator}{kind:?} {count}")?;
            separator = ", ";
        }
        if !faults.is_empty() {
            f.write_str(")")?;
        }
        write!(f, ", {} failures", self.failures.len())
    }
}
