//! The figures of one run, beside their floors: what a program with raw sockets takes that does
//! only what it must.
//!
//! Each measurement is a process of its own, and rounds are interleaved. Pings are measured by the
//! bench of that name.

mod idle;
mod select;
mod start;
mod threads;

use std::net::SocketAddr;
use std::process::Command;

use clap::{Parser, ValueEnum};
use sdam_bench::Failure;
use sdam_bench::table::Spread;
use sdam_cluster::{EmbeddedCluster, EmbeddedOptions};

/// Compares with the floor what clients cost besides their pings.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// The number of repetitions of each measurement.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// The measurements, all by default.
    #[arg(long, value_delimiter = ',')]
    measures: Vec<Measure>,
    /// The number of servers that are watched for memory and CPU time, besides 3.
    #[arg(long, default_value_t = 100)]
    servers: usize,
    /// The time, in seconds, for which they are watched.
    #[arg(long, default_value_t = 30)]
    idle: u64,
    /// Measures this competitor, once, in this very process, and prints the bare figures.
    #[arg(long, requires = "uri")]
    only: Option<Competitor>,
    /// The deployment that `--only` uses.
    #[arg(long)]
    uri: Option<String>,
}

/// The measurements, in the order of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Measure {
    /// Selecting a server through the public client, in nanoseconds.
    Select,
    /// The time from the creation of a client to the reply to its first ping, in milliseconds.
    Start,
    /// Private memory in KiB, and CPU time in milliseconds a minute, of one monitored server.
    Idle,
    /// The threads of 50 clients.
    Threads,
}

/// Those who are compared, in the order of the rows; the first is the floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Competitor {
    /// Raw sockets of the standard library, one thread, and what the protocol demands.
    Floor,
    /// This library under tokio.
    Sdam,
    /// This library without a runtime.
    SdamBlocking,
    /// The official driver.
    Mongodb,
    /// The official driver's API for threads.
    MongodbSync,
}

impl Competitor {
    fn name(self) -> String {
        self.to_possible_value().expect("no variant is skipped").get_name().to_owned()
    }
}

impl Measure {
    fn name(self) -> String {
        self.to_possible_value().expect("no variant is skipped").get_name().to_owned()
    }

    /// Returns the columns.
    const fn figures(self) -> &'static [&'static str] {
        match self {
            Self::Select => &["ns a selection"],
            Self::Start => &["ms to the first ping"],
            Self::Idle => &["KiB a server", "CPU ms a minute"],
            Self::Threads => &["threads of 50 clients"],
        }
    }

    /// Measures one competitor in this process; returns a number for each column, or for idle
    /// ones what is to be divided by the number of servers.
    fn take(self, competitor: Competitor, uri: &str, idle: u64) -> Result<Vec<f64>, Failure> {
        match self {
            Self::Select => Ok(vec![select::nanoseconds(competitor, uri)?]),
            Self::Start => Ok(vec![start::milliseconds(competitor, uri)?]),
            Self::Idle => idle::usage(competitor, uri, idle),
            Self::Threads => Ok(vec![threads::count(competitor, uri)?]),
        }
    }

    /// Returns who can be compared.
    fn competitors(self) -> &'static [Competitor] {
        match self {
            // The official driver does not select for its applications.
            Self::Select => &[Competitor::Floor, Competitor::Sdam, Competitor::SdamBlocking],
            Self::Start | Self::Idle | Self::Threads => Competitor::value_variants(),
        }
    }
}

fn main() -> Result<(), Failure> {
    let arguments = Arguments::parse();
    let measures = match &*arguments.measures {
        [] => Measure::value_variants(),
        chosen => chosen,
    };
    if let (Some(competitor), Some(uri), [measure]) = (arguments.only, &arguments.uri, measures) {
        let figures = measure.take(competitor, uri, arguments.idle)?;
        println!("{}", figures.iter().map(f64::to_string).collect::<Vec<_>>().join(" "));
        return Ok(());
    }
    let mut samples: Vec<Vec<Vec<Vec<f64>>>> =
        measures.iter().map(|measure| vec![Vec::new(); measure.competitors().len()]).collect();
    let deployments = Deployments::start(measures, arguments.servers)?;
    for round in 1..=arguments.rounds {
        eprintln!("round {round} of {}", arguments.rounds);
        for (measure, samples) in measures.iter().zip(&mut samples) {
            for (competitor, samples) in measure.competitors().iter().zip(samples) {
                samples.push(deployments.measured(*measure, *competitor, arguments.idle)?);
            }
        }
    }
    for (measure, samples) in measures.iter().zip(&samples) {
        print(*measure, samples);
    }
    Ok(())
}

/// The servers of a run: a real one, and embedded ones in this process.
struct Deployments {
    real: (SocketAddr, Option<sdam_conformance::mongod::Server>),
    few: EmbeddedCluster,
    many: EmbeddedCluster,
    servers: usize,
    _runtime: tokio::runtime::Runtime,
}

/// The number of servers in the small deployment.
const FEW: usize = 3;

impl Deployments {
    fn start(measures: &[Measure], servers: usize) -> Result<Self, Failure> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build()?;
        let start =
            |count| runtime.block_on(EmbeddedCluster::start(EmbeddedOptions::sharded(count)));
        let servers = if measures.contains(&Measure::Idle) { servers } else { FEW + 1 };
        let (few, many) = (start(FEW)?, start(servers)?);
        Ok(Self { real: sdam_bench::server(None)?, few, many, servers, _runtime: runtime })
    }

    /// Measures in a process of its own; of what is for each server, what one more costs.
    fn measured(
        &self,
        measure: Measure,
        competitor: Competitor,
        idle: u64,
    ) -> Result<Vec<f64>, Failure> {
        if measure != Measure::Idle {
            let uri = format!("mongodb://{}/?directConnection=true", self.real.0);
            return child(measure, competitor, &uri, idle);
        }
        let few = child(measure, competitor, &self.few.uri(), idle)?;
        let many = child(measure, competitor, &self.many.uri(), idle)?;
        let more = (self.servers - FEW) as f64;
        Ok(many.iter().zip(&few).map(|(many, few)| (many - few) / more).collect())
    }
}

fn child(
    measure: Measure,
    competitor: Competitor,
    uri: &str,
    idle: u64,
) -> Result<Vec<f64>, Failure> {
    let mut child = Command::new(std::env::current_exe()?);
    child.args(["--measures", &measure.name(), "--only", &competitor.name(), "--uri", uri]);
    child.args(["--idle", &idle.to_string()]);
    let output = child.stderr(std::process::Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("{child:?} ended with {}", output.status).into());
    }
    let line = String::from_utf8(output.stdout)?;
    Ok(line.split_whitespace().map(str::parse).collect::<Result<_, _>>()?)
}

/// A figure up to this is nothing.
const NOTHING: f64 = 0.05;

/// Prints a row for each competitor: the median of each figure, the least and the most, and the
/// median ratio to the floor within rounds.
fn print(measure: Measure, samples: &[Vec<Vec<f64>>]) {
    for (column, figure) in measure.figures().iter().enumerate() {
        println!("\n{:<14} {figure:>22} {:>19} {:>12}", "", "min..max", "to the floor");
        for (competitor, own) in measure.competitors().iter().zip(samples) {
            let of = |round: &Vec<f64>| round[column];
            let spread = Spread::of(own.iter().map(of));
            let ratio = own.iter().zip(&samples[0]).map(|(own, floor)| of(own) / of(floor));
            // A floor that keeps nothing is none to divide by.
            let ratio = match Spread::of(samples[0].iter().map(of)).median {
                ..=NOTHING => "-".to_owned(),
                _ => format!("{:.2}", Spread::of(ratio).median),
            };
            println!(
                "{:<14} {:>22.2} {:>19} {ratio:>12}",
                competitor.name(),
                spread.median,
                format!("{:.2}..{:.2}", spread.min, spread.max),
            );
        }
    }
}
