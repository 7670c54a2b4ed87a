//! One seed: what is drawn from it is simulated, and judged.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::checks::Violation;
use super::fault::FaultKind;
use super::plan::Plan;
use super::random::Random;
use super::scenario::Scenario;
use super::witness::Tally;
use super::world::World;

/// What happened in one simulation, or in several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// How many times something happened.
    pub steps: u64,
    /// The virtual time of all clients together.
    pub client_time: Duration,
    /// How many operations have begun.
    pub begun: u64,
    /// How many operations have succeeded.
    pub operations: u64,
    /// How many times a pool was cleared.
    pub clears: u64,
    /// How many times a view was judged before all faults had ended.
    pub verdicts: u64,
    /// What was seen of incidents.
    pub signs: Tally,
    /// How many faults began, by kind.
    pub faults: BTreeMap<FaultKind, u64>,
}

impl Statistics {
    /// Adds those of another simulation.
    pub fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.client_time += other.client_time;
        self.begun += other.begun;
        self.operations += other.operations;
        self.clears += other.clears;
        self.verdicts += other.verdicts;
        self.signs += &other.signs;
        for (kind, count) in &other.faults {
            *self.faults.entry(*kind).or_default() += count;
        }
    }
}

/// A simulation in which everything went as it must.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Run {
    /// What happened.
    pub statistics: Statistics,
    /// A number that two runs share if all their actions were the same.
    pub digest: u64,
}

/// A simulation in which something happened that must not.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Failure {
    /// The scenario, unless everything was drawn.
    pub scenario: Option<&'static str>,
    /// The seed.
    pub seed: u64,
    /// After how much virtual time.
    pub at: Duration,
    /// The client to which it happened.
    pub client: usize,
    /// What it was.
    pub violation: Violation,
    /// What the client did last.
    pub trace: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scenario, seed, at, client, violation, trace } = self;
        if let Some(scenario) = scenario {
            write!(f, "{scenario}, ")?;
        }
        writeln!(f, "seed {seed}: client {client} after {:.6} s: {violation}", at.as_secs_f64())?;
        for line in trace {
            writeln!(f, "  {line}")?;
        }
        write!(f, "again: cargo run -p sdam-conformance -- sim --seeds 1 --from {seed}")?;
        scenario.map_or(Ok(()), |scenario| write!(f, " --scenario {scenario}"))
    }
}

impl std::error::Error for Failure {}

/// Simulates what a seed draws.
///
/// # Errors
///
/// Says what happened that must not, with the last steps of the client that it happened to; for
/// those the simulation is run again.
pub fn run(seed: u64) -> Result<Run, Box<Failure>> {
    run_twice(None, seed)
}

/// Simulates a scenario, in which a seed draws only what the scenario leaves open.
///
/// # Errors
///
/// As [`run`]; and if the scenario demands something else that is not met.
pub fn run_scenario(scenario: &'static Scenario, seed: u64) -> Result<Run, Box<Failure>> {
    run_twice(Some(scenario), seed)
}

fn run_twice(scenario: Option<&'static Scenario>, seed: u64) -> Result<Run, Box<Failure>> {
    simulate(scenario, seed, None).map_err(|failure| {
        // The same seed takes the same steps, and this time they are written down.
        simulate(scenario, seed, Some(failure.client)).err().unwrap_or(failure)
    })
}

fn simulate(
    scenario: Option<&'static Scenario>,
    seed: u64,
    traced: Option<usize>,
) -> Result<Run, Box<Failure>> {
    let mut random = Random::new(seed);
    let plan = match scenario {
        Some(scenario) => scenario.plan(&mut random),
        None => Plan::draw(&mut random),
    };
    let mut world = World::new(plan, random, traced);
    let outcome = catch_unwind(AssertUnwindSafe(|| world.run()));
    let at = world.network.now.since_origin();
    let (client, violation) = match outcome {
        Ok(Ok(())) => {
            let run = world.summary();
            match scenario.map_or(Ok(()), |it| it.judge(&run.statistics, &world.clients)) {
                Ok(()) => return Ok(run),
                Err(violation) => (0, violation),
            }
        }
        Ok(Err(broken)) => broken,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            (traced.unwrap_or(0), Violation::new("nothing panics", text.unwrap_or("?")))
        }
    };
    let trace = world.clients.swap_remove(client).trace.into_lines();
    let scenario = scenario.map(|scenario| scenario.name);
    Err(Box::new(Failure { scenario, seed, at, client, violation, trace }))
}

impl World {
    fn summary(&mut self) -> Run {
        let now = self.network.now;
        self.statistics.client_time = self.clients.iter().map(|client| now - client.born).sum();
        self.statistics.begun = self.clients.iter().map(|client| client.begun).sum();
        self.statistics.operations = self.clients.iter().map(|client| client.succeeded).sum();
        self.statistics.clears = self.clients.iter().map(|client| client.checks.clears()).sum();
        self.clients.iter().for_each(|it| self.statistics.signs += it.checks.signs());
        self.statistics.signs += self.truth.signs();
        let digests = self.clients.iter().map(|client| client.checks.digest());
        let digest = digests.fold(self.statistics.steps, |all, one| all.rotate_left(7) ^ one);
        Run { statistics: self.statistics.clone(), digest }
    }
}
