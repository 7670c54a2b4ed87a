//! The cost of a `ping` for the client: competitors side by side against one real mongod.
//!
//! Every measurement is a process of its own, so that CPU time is the competitor's alone.

mod strace;

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use sdam_bench::ping::Competitor;
use sdam_bench::rounds::rounds;
use sdam_bench::{Failure, name, sampled, server, table};

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
    let (address, _server) = server(arguments.address)?;
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

fn compare(address: SocketAddr, arguments: &Arguments) -> Result<(), Failure> {
    let competitors = match &*arguments.competitors {
        [] => Competitor::value_variants(),
        chosen => chosen,
    };
    let turn = |&tasks: &usize| competitors.iter().map(move |competitor| (tasks, *competitor));
    let turns: Vec<_> = arguments.tasks.iter().flat_map(turn).collect();
    let samples = rounds(arguments.rounds, &turns, |&(tasks, competitor)| {
        sampled(&mut child(competitor, address, tasks, arguments.seconds)?)
    })?;
    let names: Vec<String> = competitors.iter().map(name).collect();
    for (tasks, samples) in arguments.tasks.iter().zip(samples.chunks(names.len())) {
        table::print(&format!("tasks: {tasks}, pings"), &names, samples);
    }
    if arguments.strace {
        for &tasks in &arguments.tasks {
            println!("\ntasks: {tasks}, system calls per ping");
            for &competitor in competitors {
                let child = child(competitor, address, tasks, arguments.seconds)?;
                println!("{:<12} {}", name(&competitor), strace::calls_per_ping(&child)?);
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
    child.args(["--only", &name(&competitor), "--address", &address.to_string()]);
    child.args(["--tasks", &tasks.to_string(), "--seconds", &seconds.to_string()]);
    Ok(child)
}
