//! Many seeds, one after the other.

use std::collections::BTreeMap;
use std::fmt;

use super::run::{Case, Failure, Part, Statistics};
use super::scenario::Scenario;

/// The result of many seeds.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Swarm {
    /// The number of seeds that were simulated.
    pub seeds: u64,
    /// The events of those in which all went well.
    pub statistics: Statistics,
    /// The events of applications in those in which all went well.
    pub applications: Statistics,
    /// The events of applications with transactions in those in which all went well.
    pub transactions: Statistics,
    /// The events of applications with change streams in those in which all went well.
    pub changes: Statistics,
    /// The events of applications with files in those in which all went well.
    pub files: Statistics,
    /// The events of connections to servers whose certificates may be revoked in those in which all
    /// went well.
    pub revocation: Statistics,
    /// The number of times that the incidents of scenarios took place, by name.
    pub incidents: BTreeMap<&'static str, Incidence>,
    /// The others.
    pub failures: Vec<Failure>,
}

/// The number of times that an incident took place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Incidence {
    /// In how many simulations of its scenario in which all went well.
    pub simulations: u64,
    /// In how many of them it took place.
    pub took_place: u64,
}

impl Swarm {
    /// Simulates one more seed, of a scenario if one is given, or else in all parts; returns what
    /// fails.
    pub fn run(&mut self, scenario: Option<&'static Scenario>, seed: u64) -> &[Failure] {
        let before = self.failures.len();
        let parts = if scenario.is_some() { 1 } else { Part::ALL.len() };
        for part in Part::ALL.into_iter().take(parts) {
            self.add(&Case { part, scenario, seed, ..Case::default() });
        }
        self.seeds += 1;
        &self.failures[before..]
    }

    /// Simulates one more case; returns its failure, if it fails.
    pub fn run_case(&mut self, case: &Case) -> Option<&Failure> {
        self.seeds += 1;
        self.add(case)
    }

    fn add(&mut self, case: &Case) -> Option<&Failure> {
        match case.run() {
            Ok(run) => {
                if let Some(scenario) = case.scenario {
                    let incidence = self.incidents.entry(scenario.name).or_default();
                    incidence.simulations += 1;
                    incidence.took_place += u64::from(scenario.took_place(&run.statistics));
                }
                match case.part {
                    Part::Clients => self.statistics.add(&run.statistics),
                    Part::Applications => self.applications.add(&run.statistics),
                    Part::Transactions => self.transactions.add(&run.statistics),
                    Part::Changes => self.changes.add(&run.statistics),
                    Part::Files => self.files.add(&run.statistics),
                    Part::Revocation => self.revocation.add(&run.statistics),
                }
                None
            }
            Err(failure) => {
                self.failures.push(*failure);
                self.failures.last()
            }
        }
    }
}

/// Writes the share of each incident, a line each; a line about applications, one about
/// transactions, one about change streams, one about files, and one about revocation; and in the
/// last line seeds, virtual time, steps, operations, faults by kind, failures.
impl fmt::Display for Swarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, Incidence { simulations, took_place }) in &self.incidents {
            writeln!(f, "{name}: the incident took place in {took_place} of {simulations}")?;
        }
        for (part, statistics) in [
            (Part::Applications, &self.applications),
            (Part::Transactions, &self.transactions),
            (Part::Changes, &self.changes),
            (Part::Files, &self.files),
            (Part::Revocation, &self.revocation),
        ] {
            if statistics.steps > 0 {
                write!(f, "{}: ", part.name())?;
                write_counts(f, statistics)?;
                match part {
                    Part::Transactions => {
                        write!(f, ", {} transactions committed", statistics.documents)?;
                    }
                    Part::Changes => write!(f, ", {} changes read", statistics.documents)?,
                    Part::Files => write!(f, ", {} files stored", statistics.documents)?,
                    Part::Revocation => write!(f, ", {} statuses learnt", statistics.documents)?,
                    Part::Clients | Part::Applications => {}
                }
                writeln!(f)?;
            }
        }
        write!(f, "{} seeds, ", self.seeds)?;
        write_counts(f, &self.statistics)?;
        write!(f, ", {} failures", self.failures.len())
    }
}

fn write_counts(f: &mut fmt::Formatter<'_>, statistics: &Statistics) -> fmt::Result {
    let Statistics { steps, client_time, operations, faults, .. } = statistics;
    let (seconds, total) = (client_time.as_secs(), faults.values().sum::<u64>());
    write!(f, "{seconds} client-seconds, {steps} steps, {operations} operations, {total} faults")?;
    let mut separator = " (";
    for (kind, count) in faults {
        write!(f, "{separator}{kind:?} {count}")?;
        separator = ", ";
    }
    if faults.is_empty() { Ok(()) } else { f.write_str(")") }
}
