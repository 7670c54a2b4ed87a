//! The cost of a monitored server for a client: private memory and threads, side by side.
//!
//! Every client is a process of its own, and watches a given number of servers: mongos of the
//! embedded deployment, which run in this process. The figure for one server is the difference
//! between a client of many and a client of few.
//!
//! With `--servers`, one process watches that many on one thread, and what it takes while nothing
//! happens is measured.

mod crowd;
mod idle;

use std::process::Command;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use sdam_bench::idle::Usage;
use sdam_bench::rounds::rounds;
use sdam_bench::watch::Watcher;
use sdam_bench::{Failure, name, output, runtime};
use sdam_cluster::{EmbeddedCluster, EmbeddedOptions};

/// The time that a client that knows all servers is left alone before it is measured: streams
/// begin, and what discovery needed is given back.
const SETTLE: Duration = Duration::from_secs(3);

/// Measures what a monitored server costs a client.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// The number of servers that the large deployment has; the figure is the difference to the
    /// small one.
    #[arg(long, default_value_t = 500)]
    many: usize,
    /// The number of servers that the small deployment has.
    #[arg(long, default_value_t = 3)]
    few: usize,
    /// The number of repetitions of each measurement.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Measures this one, once, in this very process, and prints the bare figures.
    #[arg(long, requires = "uri")]
    only: Option<Watcher>,
    /// The deployment that `--only` watches.
    #[arg(long)]
    uri: Option<String>,
    /// Watches so many servers on one thread instead, and measures CPU time and memory while
    /// nothing happens.
    #[arg(long, conflicts_with_all = ["only", "serve"])]
    servers: Option<usize>,
    /// The seconds that this is measured for.
    #[arg(long, default_value_t = 60)]
    idle: u64,
    /// The monitoring mode of those clients: `auto`, `stream` or `poll`.
    #[arg(long, default_value = "auto")]
    mode: String,
    /// Serves so many servers, prints where, and ends with its input.
    #[arg(long)]
    serve: Option<usize>,
}

fn main() -> Result<(), Failure> {
    let arguments = Arguments::parse();
    if let Some(count) = arguments.serve {
        return crowd::serve(count);
    }
    if let Some(servers) = arguments.servers {
        let window = Duration::from_secs(arguments.idle);
        return idle::measure(servers, &arguments.mode, window);
    }
    if let (Some(watcher), Some(uri)) = (arguments.only, &arguments.uri) {
        let _client = watcher.watch(uri)?;
        std::thread::sleep(SETTLE);
        let Usage { private, threads } = Usage::now()?;
        println!("{private} {threads}");
        return Ok(());
    }
    if arguments.many <= arguments.few {
        return Err(format!("--many {} must exceed --few {}", arguments.many, arguments.few).into());
    }
    let runtime = runtime(1)?;
    let watchers = Watcher::value_variants();
    let mut samples = rounds(arguments.rounds, watchers, |watcher| {
        let measure = |count| measured(&runtime, *watcher, count);
        Ok((measure(arguments.few)?, measure(arguments.many)?))
    })?;
    println!(
        "{:<14} {:>12} {:>12} {:>22} {:>9} {:>9}",
        "", "KiB, few", "KiB, many", "KiB a server, min..max", "threads", "threads"
    );
    for (watcher, rounds) in watchers.iter().zip(&mut samples) {
        print(*watcher, rounds, (arguments.many - arguments.few) as f64);
    }
    Ok(())
}

/// Prints the round in the middle, by the figure for one server, and the range of that.
fn print(watcher: Watcher, rounds: &mut [(Usage, Usage)], more: f64) {
    let each = |(few, many): &(Usage, Usage)| (many.private as f64 - few.private as f64) / more;
    rounds.sort_by(|a, b| each(a).total_cmp(&each(b)));
    let (Some(least), Some(most)) = (rounds.first().map(each), rounds.last().map(each)) else {
        return;
    };
    let middle = rounds[rounds.len() / 2];
    let (few, many) = middle;
    println!(
        "{:<14} {:>12} {:>12} {:>22} {:>9} {:>9}",
        name(&watcher),
        few.private,
        many.private,
        format!("{:.1}, {least:.1}..{most:.1}", each(&middle)),
        few.threads,
        many.threads,
    );
}

/// Starts a deployment, and a process that watches it.
fn measured(
    runtime: &tokio::runtime::Runtime,
    watcher: Watcher,
    count: usize,
) -> Result<Usage, Failure> {
    let start = EmbeddedCluster::start(EmbeddedOptions::sharded(count));
    let cluster = runtime.block_on(start)?;
    let mut child = Command::new(std::env::current_exe()?);
    child.args(["--only", &name(&watcher), "--uri", &cluster.uri()]);
    let line = output(&mut child)?;
    let (private, threads) = line.trim().split_once(' ').ok_or("a client ended without figures")?;
    Ok(Usage { private: private.parse()?, threads: threads.parse()? })
}
