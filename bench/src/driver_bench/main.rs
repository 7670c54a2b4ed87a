//! DriverBench, the chapter "Performance Benchmarking" of the specifications: the throughput of
//! this library beside the official drivers for Rust, Python, Node.js and C, and a program of raw
//! sockets.
//!
//! Every driver is a process of its own in each task, and they take turns, an iteration each: what
//! disturbs one disturbs the others.

mod competitor;
mod data;
mod deployments;
mod json;
mod process;
mod report;
mod score;
mod setting;
mod steps;
mod task;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use sdam_bench::{Failure, name};
use tempfile::TempDir;

use crate::competitor::{Competitor, Words};
use crate::data::Data;
use crate::deployments::Deployments;
use crate::process::{Limits, Process, Start};
use crate::report::Row;
use crate::score::Timings;
use crate::setting::Setting;
use crate::task::Task;

/// The folder beside the project that has the data of the chapter.
const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/benchmark-data");

/// Measures drivers by the tasks of DriverBench.
#[derive(Parser)]
#[command(version)]
pub(crate) struct Arguments {
    /// A server to use instead of one of its own: no TLS, no password. Its database `perftest` is
    /// dropped. Bulk writes of the client are done in an embedded deployment all the same.
    #[arg(long)]
    address: Option<SocketAddr>,
    /// The folder that has the data of the chapter: its archives, or what is in them.
    #[arg(long, default_value = DATA)]
    data: PathBuf,
    /// The tasks, all by default.
    #[arg(long = "task", value_delimiter = ',')]
    tasks: Vec<Task>,
    /// The drivers, all by default.
    #[arg(long = "competitor", value_delimiter = ',')]
    competitors: Vec<Competitor>,
    /// The time that the iterations of a driver take together, at least; five times of it end a
    /// task that has fewer iterations.
    #[arg(long, default_value_t = 60.0)]
    seconds: f64,
    /// The number of iterations, at least.
    #[arg(long, default_value_t = 100)]
    iterations: usize,
    /// The number of iterations before those that are measured.
    #[arg(long, default_value_t = 1)]
    warm_up: usize,
    /// The number of files that are read or written at once.
    #[arg(long, default_value_t = 4)]
    workers: usize,
    /// A Python that has `pymongo`.
    #[arg(long, default_value = "python3")]
    pymongo: String,
    /// A Node.js that finds the package `mongodb`, in `NODE_PATH` for instance.
    #[arg(long, default_value = "node")]
    node: String,
    /// A compiler for C; `pkg-config` has to know libmongoc-1.0.
    #[arg(long, default_value = "cc")]
    cc: String,
    /// Does a task of this one in this very process, an iteration for each line of the input.
    #[arg(long, requires_all = ["address", "scratch"])]
    only: Option<Competitor>,
    /// The folder for what `--only` writes; what is there is removed.
    #[arg(long)]
    scratch: Option<PathBuf>,
}

fn main() -> Result<(), Failure> {
    let mut arguments = Arguments::parse();
    if let (Some(only), Some(address), [task]) =
        (arguments.only, arguments.address, arguments.tasks.as_slice())
    {
        let (data, scratch) = (arguments.data, arguments.scratch.unwrap_or_default());
        let workers = arguments.workers;
        return only.serve(Setting { task: *task, address, data, scratch, workers });
    }
    if arguments.tasks.is_empty() {
        arguments.tasks = Task::value_variants().to_vec();
    }
    if arguments.competitors.is_empty() {
        arguments.competitors = Competitor::value_variants().to_vec();
    }
    compare(&arguments)
}

/// A driver that is there, and the command of its program if that is another one.
struct Entrant {
    competitor: Competitor,
    program: Option<Words>,
}

/// The means of a run.
struct Run<'a> {
    arguments: &'a Arguments,
    deployments: Deployments,
    data: Data,
    scratch: TempDir,
    entrants: Vec<Entrant>,
    limits: Limits,
}

fn compare(arguments: &Arguments) -> Result<(), Failure> {
    let scratch = TempDir::new()?;
    let programs = TempDir::new()?;
    let least = Duration::try_from_secs_f64(arguments.seconds)?;
    let limits = Limits {
        warm_up: arguments.warm_up,
        iterations: arguments.iterations,
        least,
        most: least * 5,
    };
    let run = Run {
        arguments,
        deployments: Deployments::start(arguments.address)?,
        data: Data::open(&arguments.data)?,
        scratch,
        entrants: entrants(arguments, programs.path()),
        limits,
    };
    let load = report::load();
    let rows = arguments.tasks.iter().map(|task| run.measure(*task));
    let rows = rows.collect::<Result<Vec<_>, _>>()?;
    let competitors: Vec<_> = run.entrants.iter().map(|entrant| entrant.competitor).collect();
    report::print(&competitors, &rows);
    report::print_circumstances(arguments, &rows, &load);
    Ok(())
}

/// Returns the drivers that are there, and says which are not.
fn entrants(arguments: &Arguments, programs: &Path) -> Vec<Entrant> {
    let mut entrants = Vec::new();
    for &competitor in &arguments.competitors {
        let Some(foreign) = competitor.foreign() else {
            entrants.push(Entrant { competitor, program: None });
            continue;
        };
        let found = foreign
            .command(arguments, programs)
            .and_then(|program| Ok((program.version()?, program)));
        match found {
            Ok((version, program)) => {
                eprintln!("{version}");
                entrants.push(Entrant { competitor, program: Some(program) });
            }
            Err(error) => eprintln!("{} is left out: {error}", name(&competitor)),
        }
    }
    entrants
}

impl Run<'_> {
    /// Measures all drivers in one task.
    fn measure(&self, task: Task) -> Result<Row, Failure> {
        eprintln!("{}", name(&task));
        let workers = self.arguments.workers;
        self.deployments.fill(task, self.data.folder(), workers)?;
        let mut processes = Vec::new();
        for entrant in &self.entrants {
            match Process::start(&mut self.command(entrant, task)?)? {
                Start::Ready(process) => processes.push(Some(process)),
                Start::Without(reason) => {
                    eprintln!("  {} has no {reason}", name(&entrant.competitor));
                    processes.push(None);
                }
            }
        }
        self.take_turns(&mut processes)?;
        let timings = processes.into_iter().map(|process| process.map(Process::end).transpose());
        let timings = timings.collect::<Result<Vec<Option<Timings>>, _>>()?;
        self.deployments.empty(task)?;
        data::empty(self.scratch.path())?;
        Ok(Row { task, timings })
    }

    /// Has each process do an iteration in each round until it has done enough; the other way
    /// around in every second round.
    fn take_turns(&self, processes: &mut [Option<Process>]) -> Result<(), Failure> {
        let mut active: Vec<&mut Process> = processes.iter_mut().flatten().collect();
        while !active.is_empty() {
            let mut left = Vec::new();
            for process in active {
                if process.iterate(&self.limits)? {
                    left.push(process);
                }
            }
            left.reverse();
            active = left;
        }
        Ok(())
    }

    /// Returns the command of a driver's process.
    fn command(&self, entrant: &Entrant, task: Task) -> Result<Command, Failure> {
        let mut command = match &entrant.program {
            Some(program) => program.process()?,
            None => {
                let mut own = Command::new(std::env::current_exe()?);
                own.args(["--only", &name(&entrant.competitor)]);
                own
            }
        };
        command.args(["--task", &name(&task)]);
        command.args(["--address", &self.deployments.address(task).to_string()]);
        command.arg("--data").arg(self.data.folder());
        command.arg("--scratch").arg(self.scratch.path());
        command.args(["--workers", &self.arguments.workers.to_string()]);
        Ok(command)
    }
}
