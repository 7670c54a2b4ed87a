//! The figures of one run, beside their floors and their goals: what a program with raw sockets
//! takes that does only what it must.
//!
//! Each measurement is a process of its own.

mod goal;
mod idle;
mod measure;
mod select;
mod start;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use sdam_bench::rounds::rounds;
use sdam_bench::table::Spread;
use sdam_bench::{Failure, build_for_libmongoc, name, output, runtime};
use sdam_cluster::{EmbeddedCluster, EmbeddedOptions};
use sdam_conformance::mongod::Server;
use tempfile::TempDir;

use crate::measure::{Competitor, Figure, Measure};

/// The default of heartbeatFrequencyMS.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// Compares what clients cost with the floor, and with the goals.
///
/// Each measurement is a process of its own. Figures are medians of all rounds, with the least and
/// the most; the ratio to the floor is the median of the ratios within rounds. CPU time is that of
/// the process's own clock, CLOCK_PROCESS_CPUTIME_ID, which the scheduler keeps to the nanosecond:
/// it does not round to ticks, however short the window. Memory is private memory in
/// /proc/self/smaps_rollup.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// The number of repetitions of each measurement.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// The measurements, all by default.
    #[arg(long, value_delimiter = ',')]
    measures: Vec<Measure>,
    /// The time, in seconds, for which pings are measured, after half a second to warm up.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// The number of servers that are watched for memory and CPU time; the figure for one is the
    /// difference to a client of 3.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(4..=1000))]
    servers: u16,
    /// The number of heartbeats, ten seconds apart, for which they are watched.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    heartbeats: u32,
    /// A compiler for C; where `pkg-config` does not know libmongoc-1.0, that is left out.
    #[arg(long, default_value = "cc")]
    cc: String,
    /// Takes one measurement of this competitor, once, in this very process, and prints the bare
    /// figures.
    #[arg(long, requires = "uri")]
    only: Option<Competitor>,
    /// The deployment that `--only` uses.
    #[arg(long)]
    uri: Option<String>,
}

fn main() -> Result<(), Failure> {
    let mut arguments = Arguments::parse();
    if arguments.measures.is_empty() {
        arguments.measures = Measure::value_variants().to_vec();
    }
    let measures = &arguments.measures;
    if let (Some(competitor), Some(uri)) = (arguments.only, &arguments.uri) {
        let [measure] = measures[..] else {
            return Err("a process takes one measurement, which --measures has to name".into());
        };
        let figures = measure.take(competitor, uri, &arguments)?;
        println!("{}", figures.iter().map(f64::to_string).collect::<Vec<_>>().join(" "));
        return Ok(());
    }
    let deployments = Deployments::start(&arguments)?;
    let there = |measure: Measure| deployments.competitors(measure);
    let turn = |&measure: &Measure| there(measure).into_iter().map(move |one| (measure, one));
    let turns: Vec<_> = measures.iter().flat_map(turn).collect();
    let samples = rounds(arguments.rounds, &turns, |&(measure, competitor)| {
        deployments.measured(measure, competitor, &arguments)
    })?;
    let mut rest = &samples[..];
    for &measure in measures {
        let own;
        let competitors = there(measure);
        (own, rest) = rest.split_at(competitors.len());
        for (column, figure) in measure.figures().iter().enumerate() {
            print(measure, &competitors, *figure, |row| {
                own[row].iter().map(move |round| round[column])
            });
        }
    }
    Ok(())
}

/// The servers of a run: a real one, and embedded ones in this process.
struct Deployments {
    real: (SocketAddr, Option<Server>),
    few: EmbeddedCluster,
    many: EmbeddedCluster,
    /// The number of servers that are in one and not in the other.
    more: usize,
    /// The program of the driver for C, if there is one.
    libmongoc: Option<Program>,
    _runtime: tokio::runtime::Runtime,
}

/// A program that was built for this run, in a folder that goes with it.
struct Program(TempDir);

/// The number of starts in a round: one takes a millisecond, and finds the machine as it is then.
const STARTS: usize = 9;

/// The number of servers in the small deployment.
const FEW: usize = 3;

impl Deployments {
    fn start(arguments: &Arguments) -> Result<Self, Failure> {
        let servers = usize::from(arguments.servers);
        let built = Program::build(&arguments.cc);
        let libmongoc = built.inspect_err(|error| eprintln!("libmongoc is left out: {error}")).ok();
        let runtime = runtime(1)?;
        let start =
            |count| runtime.block_on(EmbeddedCluster::start(EmbeddedOptions::sharded(count)));
        let (few, many) = (start(FEW)?, start(servers)?);
        let real = sdam_bench::server(None)?;
        Ok(Self { real, few, many, more: servers - FEW, libmongoc, _runtime: runtime })
    }

    /// Returns those who can be compared and are there.
    fn competitors(&self, measure: Measure) -> Vec<Competitor> {
        let is_there = |one: &Competitor| *one != Competitor::Libmongoc || self.libmongoc.is_some();
        measure.competitors().iter().copied().filter(is_there).collect()
    }

    /// Measures in processes of their own; of what is for each server, what one more costs.
    fn measured(
        &self,
        measure: Measure,
        competitor: Competitor,
        arguments: &Arguments,
    ) -> Result<Vec<f64>, Failure> {
        let real = format!("mongodb://{}/?directConnection=true", self.real.0);
        let take = |uri: &str| match (&self.libmongoc, competitor) {
            (Some(program), Competitor::Libmongoc) => {
                figures(measure, Command::new(program.path()).arg(uri))
            }
            _ => child(measure, competitor, uri, arguments),
        };
        match measure {
            Measure::Idle => {
                let (few, many) = (take(&self.few.uri())?, take(&self.many.uri())?);
                let more = self.more as f64;
                Ok(many.iter().zip(&few).map(|(many, few)| (many - few) / more).collect())
            }
            Measure::Start => {
                let starts = (0..STARTS).map(|_| take(&real)).collect::<Result<Vec<_>, _>>()?;
                Ok(vec![Spread::of(starts.into_iter().flatten()).median])
            }
            Measure::Ping1
            | Measure::Ping16
            | Measure::Ping64
            | Measure::Select
            | Measure::Threads => take(&real),
        }
    }
}

impl Program {
    fn build(cc: &str) -> Result<Self, Failure> {
        let program = Self(TempDir::new()?);
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/floor/libmongoc.c");
        build_for_libmongoc(cc, source.as_ref(), &program.path())?;
        Ok(program)
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("libmongoc")
    }
}

/// Takes one measurement in a process of its own.
fn child(
    measure: Measure,
    competitor: Competitor,
    uri: &str,
    arguments: &Arguments,
) -> Result<Vec<f64>, Failure> {
    let mut child = Command::new(std::env::current_exe()?);
    child.args(["--measures", &name(&measure), "--only", &name(&competitor), "--uri", uri]);
    child.args(["--seconds", &arguments.seconds.to_string()]);
    child.args(["--heartbeats", &arguments.heartbeats.to_string()]);
    figures(measure, &mut child)
}

/// Runs a process that prints the figures of a measurement.
fn figures(measure: Measure, process: &mut Command) -> Result<Vec<f64>, Failure> {
    let line = output(process)?;
    let figures: Vec<f64> = line.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    match figures.iter().all(|figure| figure.is_finite())
        && figures.len() == measure.figures().len()
    {
        true => Ok(figures),
        false => Err(format!("{line:?} is no measurement").into()),
    }
}

/// Prints a row for each competitor: the median of a figure, the least and the most, the ratio to
/// the floor, and the goal; `rounds` are the figures of a row.
fn print<I: Iterator<Item = f64>>(
    measure: Measure,
    competitors: &[Competitor],
    figure: Figure,
    rounds: impl Fn(usize) -> I,
) {
    let (range, ratio) = ("min..max", "to the floor");
    println!("\n{:<14} {:>22} {range:>19} {ratio:>12}  goal", name(&measure), figure.name);
    for (row, &competitor) in competitors.iter().enumerate() {
        let floor = measure.floor(competitor);
        let floor = competitors.iter().position(|one| *one == floor).unwrap_or(row);
        let spread = Spread::of(rounds(row));
        let ratio = Spread::of_ratios(rounds(row), rounds(floor)).median;
        let (goal, verdict) = match figure.goal(competitor) {
            Some(goal) if goal.is_met(spread.median, ratio) => (goal.to_string(), "met"),
            Some(goal) => (goal.to_string(), "missed"),
            None => (String::new(), ""),
        };
        let line = format!(
            "{:<14} {:>22} {:>19} {:>12}  {goal:<10} {verdict}",
            name(&competitor),
            shown(spread.median),
            format!("{}..{}", shown(spread.min), shown(spread.max)),
            if figure.has_floor { format!("{ratio:.2}") } else { "-".to_owned() },
        );
        println!("{}", line.trim_end());
    }
}

/// Writes a figure with three digits and more.
fn shown(figure: f64) -> String {
    let digits = match figure.abs() {
        100.0.. => 0,
        10.0.. => 1,
        1.0.. => 2,
        _ => 3,
    };
    format!("{figure:.digits$}")
}
