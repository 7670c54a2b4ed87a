//! The cost of a `ping` for the client: competitors side by side against one real mongod.
//!
//! Every measurement is a process of its own, so that CPU time is the competitor's alone. Rounds
//! are interleaved, so that a noisy minute is noisy for all of them.

mod competitor;
mod load;
mod sample;
mod strace;
mod table;

use std::error::Error;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::{Parser, ValueEnum};
use sdam_conformance::mongod::{Availability, Config, Server};

use crate::competitor::Competitor;
use crate::sample::Sample;

/// Any error; it ends the run.
type Failure = Box<dyn Error + Send + Sync>;

#[cfg(feature = "allocations")]
#[global_allocator]
static ALLOCATOR: &stats_alloc::StatsAlloc<std::alloc::System> = &stats_alloc::INSTRUMENTED_SYSTEM;

/// Measures what a ping costs the client.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// A server to use instead of a mongod of its own: no TLS, no password.
    #[arg(long)]
    address: Option<SocketAddr>,
    /// The number of tasks that ping at once, each as fast as it can.
    #[arg(long, value_delimiter = ',', default_value = "1,16,64")]
    tasks: Vec<usize>,
    /// The time that one measurement takes, after half a second to warm up.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// The number of repetitions of each measurement.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Counts system calls, too, which needs strace.
    #[arg(long)]
    strace: bool,
    /// Compares these with each other, all by default.
    #[arg(long, value_delimiter = ',')]
    competitors: Vec<Competitor>,
    /// Measures this one, once, in this very process, and prints the bare figures.
    #[arg(long)]
    only: Option<Competitor>,
}

fn main() -> Result<(), Failure> {
    let arguments = Arguments::parse();
    let (address, _server) = match arguments.address {
        Some(address) => (address, None),
        None => {
            let server = start()?;
            (server.address().to_string().parse()?, Some(server))
        }
    };
    match arguments.only {
        Some(competitor) => {
            for &tasks in &arguments.tasks {
                let window = Duration::from_secs(arguments.seconds);
                println!("{}", competitor.measure(address, tasks, window)?);
            }
            Ok(())
        }
        None => compare(address, &arguments),
    }
}

/// Starts the newest mongod there is.
fn start() -> Result<Server, Failure> {
    let availability = Availability::look();
    let binary =
        availability.binaries().last().ok_or_else(|| availability.left_out().join("\n"))?;
    eprintln!("mongod {}", binary.version());
    Ok(Server::start(binary, Config::default())?)
}

fn compare(address: SocketAddr, arguments: &Arguments) -> Result<(), Failure> {
    let competitors = match &*arguments.competitors {
        [] => Competitor::value_variants(),
        chosen => chosen,
    };
    let mut samples = vec![vec![Vec::new(); competitors.len()]; arguments.tasks.len()];
    for round in 1..=arguments.rounds {
        eprintln!("round {round} of {}", arguments.rounds);
        for (&tasks, samples) in arguments.tasks.iter().zip(&mut samples) {
            for (competitor, samples) in competitors.iter().zip(samples) {
                let mut child = child(*competitor, address, tasks, arguments.seconds)?;
                samples.push(sampled(&mut child)?);
            }
        }
    }
    for (&tasks, samples) in arguments.tasks.iter().zip(&samples) {
        table::print(tasks, competitors, samples);
    }
    if arguments.strace {
        for &tasks in &arguments.tasks {
            println!("\ntasks: {tasks}, system calls per ping");
            for &competitor in competitors {
                let child = child(competitor, address, tasks, arguments.seconds)?;
                println!("{:<12} {}", competitor.name(), strace::calls_per_ping(&child)?);
            }
        }
    }
    Ok(())
}

/// Returns a process that measures one competitor.
fn child(
    competitor: Competitor,
    address: SocketAddr,
    tasks: usize,
    seconds: u64,
) -> Result<Command, Failure> {
    let mut child = Command::new(std::env::current_exe()?);
    child.args(["--only", &competitor.name(), "--address", &address.to_string()]);
    child.args(["--tasks", &tasks.to_string(), "--seconds", &seconds.to_string()]);
    Ok(child)
}

/// Runs a process that measures, and reads the figures it prints.
fn sampled(command: &mut Command) -> Result<Sample, Failure> {
    let output = command.stderr(Stdio::inherit()).output()?;
    match output.status.success() {
        true => String::from_utf8_lossy(&output.stdout).parse(),
        false => Err(format!("{command:?} ended with {}", output.status).into()),
    }
}
