//! `sdam footprint`: what the monitors of a fleet of clients cost the servers.

mod model;

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::time::Duration;

use sdam_cluster::{MAX_MEMBERS, MAX_MONGOS};
use sdam_core::config::{MIN_HEARTBEAT_FREQUENCY, MonitoringMode};
use serde::Serialize;

use self::model::{Cost, Question, Rates, cost};
use crate::{duration, output};

/// Examples and exit codes.
const MORE: &str = "\
Examples:
  sdam footprint --processes 500 --clients 2
  sdam footprint --processes 500 --clients 40 --shared
  sdam footprint --processes 10000 --mode poll --heartbeat 30s
  sdam footprint --processes 200 --members 8 --sharded --pool 20 --json

Exit codes:
  0  it is printed
  1  it cannot be printed
  2  the arguments make no sense";

/// Says what a fleet of clients costs the servers that they monitor: sockets, hellos, bytes.
///
/// It is counted in virtual time, with the client's own monitors against a model of the
/// deployment, and multiplied. FOOTPRINT.md says how that compares with real servers.
#[derive(Debug, clap::Args)]
#[command(after_long_help = MORE)]
pub(crate) struct Args {
    /// The number of processes
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    processes: u32,
    /// The number of clients in each process
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    clients: u32,
    /// The clients of each process share one set of monitors, by a registry
    #[arg(long)]
    shared: bool,
    /// The number of members of the replica set, from 1 to 7, or of mongos, from 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    members: u16,
    /// The members are mongos
    #[arg(long)]
    sharded: bool,
    /// The value of heartbeatFrequencyMS: a whole number and ms, s, m or h, at least 500ms
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = heartbeat)]
    heartbeat: Duration,
    /// The value of serverMonitoringMode: without it, both are printed
    #[arg(long, value_name = "MODE", value_enum)]
    mode: Option<Mode>,
    /// The number of pooled connections that each client has to each member, besides
    #[arg(long, value_name = "N", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pool: u32,
    /// Print one JSON object, as FOOTPRINT.md describes it
    #[arg(long)]
    json: bool,
}

/// A way to monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Mode {
    /// Servers send news as they happen
    Stream,
    /// Servers are asked again and again
    Poll,
}

/// The reason why nothing was printed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FootprintError {
    /// The model has no such replica set.
    #[error(
        "--members {0}: a replica set has from 1 to {MAX_MEMBERS} members here; for mongos, add \
         --sharded"
    )]
    Members(u16),
    /// It cannot be printed.
    #[error("cannot write: {0}")]
    Output(io::Error),
}

impl FootprintError {
    pub(crate) const fn exit_code(&self) -> u8 {
        match self {
            Self::Members(_) => 2,
            Self::Output(_) => 1,
        }
    }
}

/// The answer, as it is printed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Footprint {
    processes: u32,
    clients_per_process: u32,
    shared: bool,
    members: u16,
    sharded: bool,
    #[serde(rename = "heartbeatFrequencyMS")]
    heartbeat_frequency_ms: u64,
    pooled_connections_per_client_and_member: u32,
    modes: Vec<OfMode>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct OfMode {
    mode: &'static str,
    each_member: Load,
    all_members: Load,
}

/// The load of one member, on average, or of all.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Load {
    sockets: f64,
    #[serde(flatten)]
    steady: Rates,
    start: Start,
}

/// The cost of all processes that start.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Start {
    requests: f64,
    hellos: f64,
    bytes_in: f64,
    bytes_out: f64,
}

/// Prints what a fleet costs.
pub(crate) fn run(args: &Args) -> Result<(), FootprintError> {
    let most = if args.sharded { MAX_MONGOS } else { MAX_MEMBERS };
    if usize::from(args.members) > most {
        return Err(FootprintError::Members(args.members));
    }
    let found = footprint(args);
    let text = match args.json {
        true => serde_json::to_string(&found).expect("names and numbers are JSON") + "\n",
        false => table(&found),
    };
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    output::unless_gone(written).map_err(FootprintError::Output)
}

fn footprint(args: &Args) -> Footprint {
    let modes = match args.mode {
        Some(mode) => vec![mode],
        None => vec![Mode::Stream, Mode::Poll],
    };
    let of_mode = |mode| {
        let (name, mode) = match mode {
            Mode::Stream => ("stream", MonitoringMode::Stream),
            Mode::Poll => ("poll", MonitoringMode::Poll),
        };
        let (members, is_sharded) = (usize::from(args.members), args.sharded);
        let client = cost(Question { members, is_sharded, heartbeat: args.heartbeat, mode });
        let clients = f64::from(args.processes) * f64::from(args.clients);
        let monitoring = if args.shared { f64::from(args.processes) } else { clients };
        let pooled = f64::from(args.pool) * clients;
        OfMode {
            mode: name,
            each_member: load(client, pooled, monitoring, f64::from(args.members)),
            all_members: load(client, pooled * f64::from(args.members), monitoring, 1.0),
        }
    };
    Footprint {
        processes: args.processes,
        clients_per_process: args.clients,
        shared: args.shared,
        members: args.members,
        sharded: args.sharded,
        heartbeat_frequency_ms: u64::try_from(args.heartbeat.as_millis()).unwrap_or(u64::MAX),
        pooled_connections_per_client_and_member: args.pool,
        modes: modes.into_iter().map(of_mode).collect(),
    }
}

/// Divides what so many clients with monitors cost among so many members, which have so many pooled
/// connections each.
#[expect(clippy::cast_precision_loss, reason = "the counts of one client are small")]
fn load(client: Cost, pooled: f64, monitoring: f64, members: f64) -> Load {
    let share = |count: u64| count as f64 * monitoring / members;
    Load {
        sockets: share(client.sockets) + pooled,
        steady: client.steady.times(monitoring / members),
        start: Start {
            requests: share(client.start.requests),
            hellos: share(client.start.hellos),
            bytes_in: share(client.start.bytes_in),
            bytes_out: share(client.start.bytes_out),
        },
    }
}

fn table(found: &Footprint) -> String {
    let Footprint { processes, clients_per_process, members, modes, .. } = found;
    let what = match (found.sharded, members) {
        (true, _) => "mongos",
        (false, 1) => "member of a replica set",
        (false, _) => "members of a replica set",
    };
    let frequency = Duration::from_millis(found.heartbeat_frequency_ms);
    let monitors = if found.shared { " that share monitors" } else { "" };
    let mut text = format!(
        "{processes} processes with {clients_per_process} clients each{monitors}, {members} \
         {what}, heartbeatFrequencyMS {}\n\n{:20}{:>12}{:>12}{:>12}{:>12}\n",
        frequency.as_millis(),
        "",
        "sockets",
        "hellos/s",
        "in/s",
        "out/s",
    );
    for OfMode { mode, each_member, all_members } in modes {
        for (whose, load) in [("each", each_member), ("all", all_members)] {
            let Rates { hellos_per_second, bytes_in_per_second, bytes_out_per_second, .. } =
                load.steady;
            let _ = writeln!(
                text,
                "{:20}{:>12.0}{hellos_per_second:>12.1}{:>12}{:>12}",
                format!("{mode}, {whose}"),
                load.sockets,
                bytes(bytes_in_per_second),
                bytes(bytes_out_per_second),
            );
        }
    }
    text.push('\n');
    for OfMode { mode, each_member: Load { start, .. }, .. } in modes {
        let _ = writeln!(
            text,
            "If all start at once, each answers {:.0} hellos ({mode}): {} in, {} out.",
            start.hellos,
            bytes(start.bytes_in),
            bytes(start.bytes_out),
        );
    }
    text
}

/// Writes a number of bytes as people read them.
fn bytes(count: f64) -> String {
    match count {
        ..1e3 => format!("{count:.0} B"),
        1e3..1e6 => format!("{:.1} kB", count / 1e3),
        1e6..1e9 => format!("{:.1} MB", count / 1e6),
        _ => format!("{:.1} GB", count / 1e9),
    }
}

fn heartbeat(text: &str) -> Result<Duration, String> {
    match duration::parse(text) {
        Ok(time) if time < MIN_HEARTBEAT_FREQUENCY => Err("at least 500ms are needed".to_owned()),
        Ok(time) => Ok(time),
        Err(error) => Err(error.to_string()),
    }
}
