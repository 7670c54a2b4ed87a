//! One seed: what is drawn from it is simulated, and judged.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use sdam_core::time::Instant;

use super::applications;
use super::checks::Violation;
use super::client::Client;
use super::coverage::Tally;
use super::fault::FaultKind;
use super::plan::Plan;
use super::random::Random;
use super::reduction::{Reduction, ReductionError};
use super::revocation;
use super::scenario::Scenario;
use super::shrink::Outline;
use super::trace::Observed;
use super::world::World;

/// The events of one simulation, or of several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// The number of times that something happened.
    pub steps: u64,
    /// The virtual time of all clients together.
    pub client_time: Duration,
    /// The number of operations that have begun.
    pub begun: u64,
    /// The number of operations that have succeeded.
    pub operations: u64,
    /// The number of documents, or of transactions, that a majority of the members has
    /// acknowledged, or of files, or of changes that streams have handed out.
    pub documents: u64,
    /// The number of times that a pool was cleared.
    pub clears: u64,
    /// The number of times that a view was judged before all faults had ended.
    pub verdicts: u64,
    /// The signs of incidents.
    pub signs: Tally,
    /// The number of faults that began, by kind.
    pub faults: BTreeMap<FaultKind, u64>,
}

impl Statistics {
    /// Adds those of another simulation.
    pub fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.client_time += other.client_time;
        self.begun += other.begun;
        self.operations += other.operations;
        self.documents += other.documents;
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
    /// The counts of the run.
    pub statistics: Statistics,
    /// A number that two runs share if all their actions were the same.
    pub digest: u64,
}

/// The part of clients that a simulation is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Part {
    /// Monitors, pools, and operations of the clients themselves.
    #[default]
    Clients,
    /// Applications that use collections, cursors, bulk writes and sessions, of clients that may
    /// share their monitors.
    Applications,
    /// Applications that use transactions.
    Transactions,
    /// Applications that read change streams.
    Changes,
    /// Applications that keep files in a bucket of GridFS.
    Files,
    /// Connections to servers whose certificates may be revoked.
    Revocation,
}

impl Part {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Clients,
        Self::Applications,
        Self::Transactions,
        Self::Changes,
        Self::Files,
        Self::Revocation,
    ];

    /// Returns its name, by which it is run.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Clients => "clients",
            Self::Applications => "applications",
            Self::Transactions => "transactions",
            Self::Changes => "changes",
            Self::Files => "files",
            Self::Revocation => "revocation",
        }
    }
}

/// A simulation: a seed, of a scenario if it is one, less what is left out.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Case {
    /// The part of clients that it is about; scenarios are about the first one.
    pub part: Part,
    /// The scenario, unless everything is drawn.
    pub scenario: Option<&'static Scenario>,
    /// The seed.
    pub seed: u64,
    /// The parts that are left out.
    pub reduction: Reduction,
}

/// A simulation in which something happened that must not.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Failure {
    /// The case that was simulated.
    pub case: Case,
    /// After how much virtual time.
    pub at: Duration,
    /// After how many steps.
    pub steps: u64,
    /// The client to which it happened.
    pub client: usize,
    /// The violation.
    pub violation: Violation,
    /// The last actions of the client.
    pub trace: Vec<String>,
}

/// The options of the runner that simulate it.
impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { part, scenario, seed, reduction } = self;
        write!(f, "--seeds 1 --from {seed}")?;
        if *part != Part::default() {
            write!(f, " --part {}", part.name())?;
        }
        scenario.map_or(Ok(()), |scenario| write!(f, " --scenario {}", scenario.name))?;
        match reduction.is_none() {
            true => Ok(()),
            false => write!(f, " --only {reduction}"),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { case, at, client, violation, trace, .. } = self;
        if let Some(scenario) = case.scenario {
            write!(f, "{}, ", scenario.name)?;
        }
        if case.part != Part::default() {
            write!(f, "{}, ", case.part.name())?;
        }
        let (seed, seconds) = (case.seed, at.as_secs_f64());
        writeln!(f, "seed {seed}: client {client} after {seconds:.6} s: {violation}")?;
        for line in trace {
            writeln!(f, "  {line}")?;
        }
        write!(f, "again: cargo run -p sdam-simulation --features runner -- sim {case}")
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
    Case { seed, ..Case::default() }.run()
}

impl Case {
    /// Simulates it.
    ///
    /// # Errors
    ///
    /// As [`run`]; and if the scenario demands something else that is not met.
    pub fn run(&self) -> Result<Run, Box<Failure>> {
        self.simulate(Observed::Nothing, Duration::MAX).map_err(|failure| {
            // The same seed takes the same steps, and this time they are written down.
            let observed = Observed::Steps(failure.client);
            self.simulate(observed, Duration::MAX).err().unwrap_or(failure)
        })
    }

    /// Fails if what is to be left out is not there.
    ///
    /// # Errors
    ///
    /// Names a fault or a client that this seed does not draw.
    pub fn check(&self) -> Result<(), ReductionError> {
        self.reduction.check(&self.outline())
    }

    /// Returns what can be left out of it.
    pub(super) fn outline(&self) -> Outline {
        match self.part {
            Part::Clients => {
                let (plan, _) = self.plan();
                Outline { clients: plan.clients.len(), faults: plan.faults, calm: plan.calm }
            }
            // Its responders are its faults, and its connections its clients.
            Part::Revocation => Outline { clients: 1, faults: Vec::new(), calm: Instant::ZERO },
            _ => applications::outline(self),
        }
    }

    /// Draws what is simulated, and returns what everything else is drawn from.
    pub(super) fn plan(&self) -> (Plan, Random) {
        let mut random = Random::new(self.seed);
        let mut plan = match self.scenario {
            Some(scenario) => scenario.plan(&mut random),
            None => Plan::draw(&mut random),
        };
        self.reduction.apply(&mut plan);
        (plan, random)
    }

    /// Simulates it once; it need not go on when something has happened later than that.
    pub(super) fn simulate(
        &self,
        observed: Observed,
        latest: Duration,
    ) -> Result<Run, Box<Failure>> {
        match self.part {
            Part::Clients => self.observe(observed, latest).0,
            Part::Revocation => revocation::simulate(self),
            _ => applications::simulate(self, observed, latest),
        }
    }

    fn observe(
        &self,
        observed: Observed,
        latest: Duration,
    ) -> (Result<Run, Box<Failure>>, Option<String>) {
        let (plan, random) = self.plan();
        let mut world = World::new(plan, random, observed);
        let outcome = catch_unwind(AssertUnwindSafe(|| world.run(Instant::ZERO + latest)));
        let (at, steps) = (world.network.now.since_origin(), world.statistics.steps);
        let recording = match observed {
            Observed::Topology(client) => {
                world.clients.get_mut(client).and_then(Client::take_recording)
            }
            _ => None,
        };
        let (client, violation) = match outcome {
            Ok(Ok(())) => {
                let run = world.summary();
                let demanded = |it: &Scenario| it.judge(&run.statistics, &world.clients);
                match self.scenario.filter(|_| world.over).map_or(Ok(()), demanded) {
                    Ok(()) => return (Ok(run), recording),
                    Err(violation) => (world.first(), violation),
                }
            }
            Ok(Err(broken)) => broken,
            Err(panic) => (world.acting, Violation::of_panic(&*panic)),
        };
        let trace = world.clients[client].ledger().trace.take_lines();
        let case = self.clone();
        let failure = Failure { case, at, steps, client, violation, trace };
        (Err(Box::new(failure)), recording)
    }

    /// Simulates it, and returns all that the topology of a client received and did, as a trace
    /// that can be replayed; `None` if there is no such client, or it is left out, and of
    /// applications.
    pub fn record(&self, client: usize) -> Option<String> {
        if self.part != Part::Clients {
            return None;
        }
        self.observe(Observed::Topology(client), Duration::MAX).1
    }

    /// Replaces [`part`](Self::part).
    #[must_use]
    pub const fn with_part(mut self, part: Part) -> Self {
        self.part = part;
        self
    }

    /// Replaces [`scenario`](Self::scenario).
    #[must_use]
    pub fn with_scenario(mut self, scenario: Option<&'static Scenario>) -> Self {
        self.scenario = scenario;
        self
    }

    /// Replaces [`seed`](Self::seed).
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Replaces [`reduction`](Self::reduction).
    #[must_use]
    pub fn with_reduction(mut self, reduction: Reduction) -> Self {
        self.reduction = reduction;
        self
    }
}

impl Failure {
    /// Simulates it once more, and returns all that the topology of the client received and did, as
    /// a trace that can be replayed.
    pub fn record(&self) -> Option<String> {
        self.case.record(self.client)
    }
}

impl World {
    /// Returns a client that is not left out, if there is one.
    fn first(&self) -> usize {
        let mut clients = 0..self.clients.len();
        clients.find(|index| self.plan.reduction.has_client(*index)).unwrap_or(0)
    }

    fn summary(&mut self) -> Run {
        let now = self.network.now;
        self.statistics.client_time = self.clients.iter().map(|client| now - client.born).sum();
        self.statistics.begun = self.clients.iter().map(|client| client.ledger().begun).sum();
        self.statistics.operations =
            self.clients.iter().map(|client| client.ledger().succeeded).sum();
        self.statistics.documents = self
            .clients
            .iter()
            .map(|client| client.ledger().documents.lasting().count() as u64)
            .sum();
        self.statistics.clears =
            self.clients.iter().map(|client| client.ledger().checks.clears()).sum();
        self.clients.iter().for_each(|it| self.statistics.signs += it.ledger().checks.signs());
        self.statistics.signs += self.oracle.signs();
        let digests = self.clients.iter().map(|client| client.ledger().checks.digest());
        let digest = digests.fold(self.statistics.steps, |all, one| all.rotate_left(7) ^ one);
        Run { statistics: self.statistics.clone(), digest }
    }
}
