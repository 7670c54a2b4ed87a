//! The simulator, from the command line: seeds, what fails reduced, and small worlds.

use std::fs;
use std::io;
use std::panic;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use clap::builder::RangedI64ValueParser;
use clap::{Parser, Subcommand};
use sdam_simulation::sim::{
    Case, Failure, Part, Reduction, ReductionError, SCENARIOS, Scenario, Swarm, shrink,
};
use sdam_simulation::storm::{Report, Storm};
use sdam_simulation::worlds::{self, Limits};

/// The interval at which a simulation reports its progress.
const PROGRESS: Duration = Duration::from_secs(5);

/// Simulates clients of a deployment in virtual time, and finds what must not happen.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Simulate clients, a deployment and a faulty network, one random seed after the other.
    ///
    /// Prints every failure as it happens, with the last steps of its client and the command that
    /// shows it again, and at the end a summary in one line. Exits with 1 if something failed, and
    /// with 2 if a failure cannot be written where it is to be kept.
    Sim {
        /// The number of seeds to simulate.
        #[arg(long, value_name = "N", default_value_t = 1000)]
        seeds: u64,
        /// The first seed; the others follow it. By default the time of day decides.
        #[arg(long, value_name = "SEED")]
        from: Option<u64>,
        /// Simulate this scenario, in which a seed draws only what it leaves open; `all` for each.
        #[arg(long, value_name = "NAME", value_parser = scenarios)]
        scenario: Option<Scenarios>,
        /// Simulate this part of each seed only: `clients` themselves, `applications` that use
        /// collections, cursors, bulk writes and sessions, `transactions`, `changes`, which are
        /// read as streams, or `files` of GridFS.
        #[arg(long, value_name = "PART", value_parser = part, conflicts_with = "scenario")]
        part: Option<Part>,
        /// Stop after so many seconds, however many seeds are left.
        #[arg(long, value_name = "SECONDS")]
        seconds: Option<u64>,
        /// Leave things out, as `shrink` has found out how to: of one seed.
        #[arg(long, value_name = "REDUCTION", requires = "from")]
        only: Option<Reduction>,
        /// Write every failure to a file in this folder, which is made if need be, and beside it
        /// all that its client's topology received and did, as a trace for `sdam replay`.
        #[arg(long, value_name = "FOLDER")]
        keep: Option<PathBuf>,
    },
    /// Reduce a simulation that fails while it still fails in the same way.
    ///
    /// Leaves out faults and clients, has operations begin in less time, and faults last no longer
    /// than they must; and takes out the time in which nothing needs to happen. Prints the last
    /// steps that are left, what was large and is small, and the command that shows it again. Exits
    /// with 2 if the seed does not fail, or if what is left cannot be kept.
    Shrink {
        /// The seed.
        #[arg(long, value_name = "SEED")]
        seed: u64,
        /// The scenario, unless everything is drawn.
        #[arg(long, value_name = "NAME", value_parser = scenario)]
        scenario: Option<&'static Scenario>,
        /// The part of the seed.
        #[arg(long, value_name = "PART", value_parser = part, default_value = "clients")]
        #[arg(conflicts_with = "scenario")]
        part: Part,
        /// Begin with this left out.
        #[arg(long, value_name = "REDUCTION")]
        only: Option<Reduction>,
        /// Write what is left to a file in this folder, which is made if need be, and beside it a
        /// trace for `sdam replay`.
        #[arg(long, value_name = "FOLDER")]
        keep: Option<PathBuf>,
    },
    /// Take every path through a small world: messages, timers and faults in every order.
    ///
    /// Begins without faults, then allows one more each time, and prints for each number what was
    /// explored, with clients that poll and with clients that listen. Exits with 1 if something
    /// failed, and prints a shortest path to it.
    Worlds {
        /// The number of faults that a path may have.
        #[arg(long, value_name = "K", default_value_t = 2, value_parser = countable())]
        faults: u8,
        /// The number of steps that a path has.
        #[arg(long, value_name = "M", default_value_t = 10)]
        steps: u8,
        /// The number of steps that may be out of turn: other than the oldest arrival, or the next
        /// timer if nothing is under way. Any number unless this is given, with which paths can be
        /// longer.
        #[arg(long, value_name = "D", value_parser = countable())]
        delays: Option<u8>,
        /// Stop after so many seconds, however much is left.
        #[arg(long, value_name = "SECONDS")]
        seconds: Option<u64>,
    },
    /// Have one member restart under thousands of clients, which all come back at once.
    ///
    /// Prints a row for clients with default options and a member that sheds load when they say
    /// hello, and one for each thing that can be otherwise: how long it takes until half of the
    /// clients, nearly all and all have read again, and what that costs. The times are virtual.
    Storm {
        /// The number of clients.
        #[arg(long, value_name = "N", default_value_t = 10_000)]
        #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
        clients: u32,
        /// The number of tasks of each client that read.
        #[arg(long, value_name = "N", default_value_t = 4)]
        #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
        tasks: u32,
        /// The seed.
        #[arg(long, value_name = "SEED", default_value_t = 1)]
        seed: u64,
    },
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Sim { seeds, from, seconds, scenario, part, only, keep } => {
            let from = from.unwrap_or_else(seed_of_the_clock);
            let limit = seconds.map(Duration::from_secs);
            let scenarios = scenario.map_or_else(|| vec![None], |chosen| chosen.0);
            let scenarios = (&*scenarios, part);
            let swarm = match only {
                None => sim(scenarios, (from, seeds), limit, keep.as_deref()),
                Some(only) => sim_one(scenarios, (from, seeds), only, keep.as_deref()),
            };
            conclude(swarm.map(|all_went_well| ExitCode::from(u8::from(!all_went_well))))
        }
        Command::Shrink { seed, scenario, part, only, keep } => {
            let case = Case::default()
                .with_part(part)
                .with_scenario(scenario)
                .with_seed(seed)
                .with_reduction(only.unwrap_or_default());
            conclude(shrunk(&case, keep.as_deref()).map(|()| ExitCode::SUCCESS))
        }
        Command::Worlds { faults, steps, delays, seconds } => {
            let time = seconds.map(Duration::from_secs);
            let limits = Limits::new(faults, steps).with_delays(delays).with_time(time);
            ExitCode::from(u8::from(!explore(limits)))
        }
        Command::Storm { clients, tasks, seed } => {
            storms(&Storm::new(clients).with_tasks(tasks).with_seed(seed));
            ExitCode::SUCCESS
        }
    }
}

/// The reason why there is nothing to simulate or to show.
#[derive(Debug, thiserror::Error)]
enum SimError {
    #[error("a failure cannot be kept: {0}")]
    Keep(io::Error),
    #[error(
        "--only leaves something out of one seed; add --seeds 1, and a scenario other than all"
    )]
    ManySeeds,
    #[error("--only cannot be followed: {0}")]
    Reduction(ReductionError),
    #[error("nothing fails: sim {0}")]
    NothingFails(Box<Case>),
}

impl From<ReductionError> for SimError {
    fn from(error: ReductionError) -> Self {
        Self::Reduction(error)
    }
}

impl From<io::Error> for SimError {
    fn from(error: io::Error) -> Self {
        Self::Keep(error)
    }
}

/// Returns what a command has come to, or says why it has come to nothing.
fn conclude(outcome: Result<ExitCode, SimError>) -> ExitCode {
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::from(2)
    })
}

/// Simulates many seeds; returns whether all went well.
fn sim(
    (scenarios, part): (&[Option<&'static Scenario>], Option<Part>),
    (from, seeds): (u64, u64),
    limit: Option<Duration>,
    folder: Option<&Path>,
) -> Result<bool, SimError> {
    println!("simulating {seeds} seeds from {from}");
    let (began, mut swarm, mut told) = (Instant::now(), Swarm::default(), Instant::now());
    for seed in (0..seeds).map(|index| from.wrapping_add(index)) {
        if limit.is_some_and(|limit| began.elapsed() >= limit) {
            break;
        }
        for scenario in scenarios {
            let failures = match part {
                Some(part) => {
                    let case = Case::default().with_part(part).with_seed(seed);
                    swarm.run_case(&case).map(std::slice::from_ref).unwrap_or_default()
                }
                None => swarm.run(*scenario, seed),
            };
            for failure in failures {
                println!("{failure}");
                folder.map_or(Ok(()), |folder| keep(failure, folder))?;
            }
        }
        if told.elapsed() >= PROGRESS {
            told = Instant::now();
            let runs = seeds.saturating_mul(scenarios.len() as u64);
            println!("{} of {runs} seeds, {} failures", swarm.seeds, swarm.failures.len());
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    let applications = [&swarm.applications, &swarm.transactions, &swarm.changes, &swarm.files];
    let parts = applications.into_iter().chain([&swarm.statistics]);
    let time: Duration = parts.map(|part| part.client_time).sum();
    let rate = time.as_secs_f64() / seconds;
    println!("{swarm}, in {seconds:.1} s ({rate:.0} client-seconds per second)");
    Ok(swarm.failures.is_empty())
}

/// Simulates one seed of which something is left out; returns whether all went well.
fn sim_one(
    (scenarios, part): (&[Option<&'static Scenario>], Option<Part>),
    (seed, seeds): (u64, u64),
    reduction: Reduction,
    folder: Option<&Path>,
) -> Result<bool, SimError> {
    let ([scenario], 1) = (scenarios, seeds) else { return Err(SimError::ManySeeds) };
    let case = Case::default().with_part(part.unwrap_or_default()).with_scenario(*scenario);
    let case = case.with_seed(seed).with_reduction(reduction);
    case.check()?;
    let mut swarm = Swarm::default();
    if let Some(failure) = swarm.run_case(&case) {
        println!("{failure}");
        folder.map_or(Ok(()), |folder| keep(failure, folder))?;
    }
    println!("{swarm}");
    Ok(swarm.failures.is_empty())
}

/// Reduces a simulation that fails, and prints what is left.
fn shrunk(case: &Case, folder: Option<&Path>) -> Result<(), SimError> {
    case.check()?;
    // What panics does so hundreds of times.
    panic::set_hook(Box::new(|_| {}));
    let shrunk = shrink(case).ok_or_else(|| SimError::NothingFails(Box::new(case.clone())))?;
    println!("{shrunk}");
    folder.map_or(Ok(()), |folder| keep(&shrunk.failure, folder))?;
    Ok(())
}

/// Writes down what there is to know of a failure, and what its client's topology received.
fn keep(failure: &Failure, folder: &Path) -> io::Result<()> {
    let Case { part, scenario, seed, reduction, .. } = &failure.case;
    let name = match part {
        Part::Clients => scenario.map_or("swarm", |scenario| scenario.name),
        _ => part.name(),
    };
    let shrunk = if reduction.is_none() { "" } else { "-shrunk" };
    fs::create_dir_all(folder)?;
    let files = [("txt", Some(format!("{failure}\n"))), ("trace", failure.record())];
    for (extension, text) in files {
        let Some(text) = text else { continue };
        let path = folder.join(format!("{name}-{seed}{shrunk}.{extension}"));
        fs::write(&path, text)?;
        println!("kept as {}", path.display());
    }
    Ok(())
}

/// Explores small worlds; returns whether all went well.
fn explore(limits: Limits) -> bool {
    let began = Instant::now();
    for faults in 0..=limits.faults {
        for streaming in [false, true] {
            let time = limits.time.map(|limit| limit.saturating_sub(began.elapsed()));
            let report = worlds::search(
                limits.with_faults(faults).with_time(time).with_streaming(streaming),
            );
            println!("{report}");
            if !report.is_complete() {
                return report.violation.is_none();
            }
        }
    }
    true
}

/// Prints what comes of a storm, and of those it is compared with.
fn storms(storm: &Storm) {
    println!("{}", Report::headline());
    for storm in storm.clone().and_its_like() {
        println!("{}", storm.run());
    }
}

/// Returns a parser of the numbers that a search of worlds can count.
fn countable() -> RangedI64ValueParser<u8> {
    clap::value_parser!(u8).range(0..=i64::from(Limits::MOST))
}

/// The scenarios to simulate, or `None` where everything is drawn.
#[derive(Clone, Debug)]
struct Scenarios(Vec<Option<&'static Scenario>>);

fn scenarios(name: &str) -> Result<Scenarios, String> {
    let chosen: Vec<_> =
        SCENARIOS.iter().filter(|it| name == "all" || it.name == name).map(Some).collect();
    if chosen.is_empty() {
        let names: Vec<&str> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
        return Err(format!("there are: all, {}", names.join(", ")));
    }
    Ok(Scenarios(chosen))
}

fn scenario(name: &str) -> Result<&'static Scenario, String> {
    let names = || SCENARIOS.iter().map(|scenario| scenario.name).collect::<Vec<_>>().join(", ");
    let found = SCENARIOS.iter().find(|scenario| scenario.name == name);
    found.ok_or_else(|| format!("there are: {}", names()))
}

fn part(name: &str) -> Result<Part, String> {
    let found = Part::ALL.into_iter().find(|part| part.name() == name);
    found.ok_or_else(|| format!("there are: {}", Part::ALL.map(Part::name).join(", ")))
}

/// Numbers that were not simulated before.
fn seed_of_the_clock() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or_default() << 16
}
