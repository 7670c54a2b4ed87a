//! `sdam lint`: the promises of servers that drivers rely on, kept or broken.
//!
//! `probe` holds conversations with one server over connections of its own (`connection`), which
//! take any message (`request`), and keeps what comes as plain values (`evidence`); `rules` judge
//! those, each beside the place where it is written (`rule`), `judge` asks them all, and `report`
//! prints what they say.

mod connection;
mod evidence;
mod judge;
#[cfg(test)]
mod page;
mod probe;
mod report;
mod request;
mod rule;
mod rules;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use sdam_core::config::{Options, ServerAddress};
use sdam_core::description::TopologyDescription;
use sdam_core::failure::Failure;
use sdam_tokio::Topology;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};

use self::connection::Dialer;
use self::evidence::number;
use self::judge::Judgement;
use self::probe::{Probe, Scope};
use self::report::{Counts, Linted};
use self::rule::Rule;
use crate::color::ColorChoice;
use crate::findings::named;
use crate::preparation::{self, Preparation, PreparationError};
use crate::printer::Printer;
use crate::shutdown::{End, Shutdown};
use crate::status::is_settled;
use crate::target::Target;
use crate::{complain, duration};

/// The part of the time that finding the servers may take.
const DISCOVERY: u32 = 3;

/// The time that dropping what was written may take after a signal, or when the time of `--for` is
/// over.
const CLEAN_UP: Duration = Duration::from_secs(4);

/// Examples and exit codes.
const MORE: &str = "\
Examples:
  sdam lint 'mongodb://gateway.example/?directConnection=true'
  sdam lint --uri-file staging.uri --write --step-down
  sdam lint --uri-file staging.uri --json --allow connection-id
  sdam lint --list

Exit codes:
  0    no rule of severity error is broken
  1    one is, or a server cannot be asked
  2    the arguments, the connection string or a file are invalid
  130  SIGINT came before it was done (143: SIGTERM)";

/// Finds out whether servers keep the promises that drivers rely on: hello, topologyVersion,
/// streams, messages, errors, sessions.
///
/// Each server of the deployment is asked, over connections of its own; with directConnection, the
/// one. Nothing is written, and no primary steps down, unless an argument allows that. What was not
/// tried is reported, and counts for nothing.
#[derive(Debug, clap::Args)]
#[command(after_long_help = MORE)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    /// The time that all of it may take: a whole number and ms, s, m or h, as in 30s or 2m
    #[arg(long = "for", value_name = "DURATION", default_value = "60s")]
    #[arg(value_parser = duration::parse)]
    limit: Duration,
    /// Try what needs writes too, in a collection of the database sdam_lint, which is dropped then
    #[arg(long)]
    write: bool,
    /// Step the primary down, and see what connections and streams see of it
    #[arg(long)]
    step_down: bool,
    /// Let a connection be idle for this time, which has to be less than that of --for
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    idle: Option<Duration>,
    /// Count what breaks this rule, and do not complain; may be repeated
    #[arg(long, value_name = "RULE", value_parser = named::<&Rule>)]
    allow: Vec<&'static Rule>,
    /// Print every rule, and ask no server
    #[arg(long)]
    list: bool,
    /// Print lines of JSON, as LINT.md describes them
    #[arg(long)]
    json: bool,
}

/// The reason why a deployment was not found to keep its promises.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LintError {
    /// It cannot begin.
    #[error(transparent)]
    Preparation(#[from] PreparationError),
    /// There is no way to a server that would be the same twice.
    #[error(
        "a load balancer leads each connection to another server: name one of those, with \
         directConnection=true and without loadBalanced"
    )]
    LoadBalanced,
    /// A connection would not be idle for so long.
    #[error("--idle has to be less than the time of --for, {}", duration::precise(*limit))]
    IdleTooLong {
        /// The time of `--for`.
        limit: Duration,
    },
    /// Connections cannot be opened.
    #[error("cannot connect to any server: {0}")]
    Dialer(Failure),
    /// Servers could not be asked.
    #[error("{failed} of {of} servers could not be asked everything")]
    NotAsked {
        /// Their number.
        failed: usize,
        /// The number of all.
        of: usize,
    },
    /// Promises are broken.
    #[error("{0} rule{s} of severity error broken", s = if *.0 == 1 { "" } else { "s" })]
    Found(usize),
    /// Nothing more can be printed.
    #[error("cannot write: {0}")]
    Output(io::Error),
}

impl From<io::Error> for LintError {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl LintError {
    /// Returns 2 for what the user can write differently, else 1.
    pub(crate) const fn exit_code(&self) -> u8 {
        match self {
            Self::Preparation(error) => error.exit_code(),
            Self::LoadBalanced | Self::IdleTooLong { .. } => 2,
            Self::Dialer(_) | Self::NotAsked { .. } | Self::Found(_) | Self::Output(_) => 1,
        }
    }
}

/// Asks, judges and prints.
pub(crate) fn run(args: &Args, color: ColorChoice) -> Result<(), LintError> {
    if args.list {
        return Ok(Printer::report(color, |out| report::list(args.json, out))?);
    }
    preparation::run(lint(args, color))
}

async fn lint(args: &Args, color: ColorChoice) -> Result<(), LintError> {
    if args.idle.is_some_and(|idle| idle >= args.limit) {
        return Err(LintError::IdleTooLong { limit: args.limit });
    }
    let mut preparation = Preparation::of_named(&args.target, args.limit)?;
    if preparation.options.load_balanced() {
        return Err(LintError::LoadBalanced);
    }
    let connecting = Topology::builder(preparation.options.clone()).connect();
    let client = preparation.connected(connecting).await?;
    let mut shutdown = preparation.shutdown;
    shutdown.allow_clean_up(CLEAN_UP);
    let (options, servers) = discover(&client, args.limit / DISCOVERY, &mut shutdown).await;
    client.close().await;
    let dialer = Arc::new(Dialer::new(options).map_err(LintError::Dialer)?);
    let Args { write, step_down, idle, .. } = *args;
    let scope = Scope { write, step_down, idle };
    let (stop, stopped) = watch::channel(false);
    let mut probes = Vec::new();
    for server in servers {
        let probe = Probe::new(Arc::clone(&dialer), server.clone(), scope, stopped.clone());
        probes.push((server, probe.map_err(LintError::Dialer)?, None));
    }
    let mut asking = begin(&probes);
    let all = async {
        join(&mut asking, &mut probes).await;
        step_primary_down(&mut probes).await;
    };
    if shutdown.or(all).await.is_none() {
        stop.send_replace(true);
        // A probe that has written cleans up.
        let _ = tokio::time::timeout(CLEAN_UP, join(&mut asking, &mut probes)).await;
    }
    for (server, probe, _) in &probes {
        if let Some(name) = probe.left_behind() {
            complain(&format_args!("the collection {name} may be left on {server}: drop it"));
        }
    }
    if let Some(End::Signal(signal)) = shutdown.end() {
        let before = "everything was asked";
        return Err(PreparationError::Interrupted { signal, before }.into());
    }
    let linted: Vec<_> = probes.into_iter().map(|it| judged(it, &args.allow)).collect();
    conclude(args, color, &linted)
}

/// Waits until each server has answered or failed, and returns what there is to connect with, and
/// whom to ask.
async fn discover(
    client: &Topology,
    limit: Duration,
    shutdown: &mut Shutdown,
) -> (Arc<Options>, Vec<ServerAddress>) {
    let mut views = client.watch_topology();
    let settled = async {
        while let Some(view) = views.next().await {
            if is_settled(&view) {
                break;
            }
        }
    };
    // A server that has not been found by then is asked nevertheless.
    let _ = shutdown.or(tokio::time::timeout(limit, settled)).await;
    let options = Arc::clone(client.options());
    let servers = servers(&client.view(), &options);
    (options, servers)
}

/// Returns the servers of a deployment; the seeds if it has none.
fn servers(view: &TopologyDescription, options: &Options) -> Vec<ServerAddress> {
    let servers: Vec<_> = view.servers().iter().map(|server| server.address.clone()).collect();
    match servers.is_empty() {
        true => options.seeds().to_vec(),
        false => servers,
    }
}

/// A server, who asks it, and what became of that; `None` until all is asked.
type Asked = (ServerAddress, Probe, Option<Result<(), Failure>>);

/// The questions to every server, with its index.
type Asking = JoinSet<(usize, Option<Result<(), Failure>>)>;

/// Begins to ask all servers at once.
fn begin(probes: &[Asked]) -> Asking {
    let mut asking = JoinSet::new();
    for (index, (_, probe, _)) in probes.iter().enumerate() {
        let probe = probe.clone();
        asking.spawn(async move { (index, probe.ask().await) });
    }
    asking
}

/// Waits until all are asked.
///
/// # Panics
///
/// Panics as a question does.
async fn join(asking: &mut Asking, probes: &mut [Asked]) {
    while let Some(ended) = asking.join_next().await {
        match ended.map_err(JoinError::try_into_panic) {
            Ok((index, outcome)) => probes[index].2 = outcome,
            Err(Ok(panic)) => std::panic::resume_unwind(panic),
            Err(Err(_)) => unreachable!("no task cancels them"),
        }
    }
}

/// Steps the primary down.
async fn step_primary_down(probes: &mut [Asked]) {
    // A server that is still to be asked has not answered everything.
    let take = |it: &mut Asked| it.2.take_if(|ended| ended.is_ok()).is_some();
    let waiting: Vec<_> = probes.iter_mut().map(take).collect();
    for ((_, probe, ended), is_waiting) in probes.iter_mut().zip(waiting) {
        if is_waiting {
            *ended = Some(probe.step_down().await);
        }
    }
}

fn judged((server, probe, ended): Asked, allowed: &[&'static Rule]) -> Linted {
    let evidence = probe.evidence();
    let kind = evidence.kind().ok().map(|kind| {
        let version = evidence.hello().ok().and_then(|it| it.get("maxWireVersion"));
        (kind, version.and_then(number))
    });
    let judgement = Judgement::of(&evidence, allowed);
    let error = match ended {
        Some(ended) => ended.err().map(|failure| failure.to_string()),
        None => Some("the time of --for was over before everything was asked".to_owned()),
    };
    Linted { server, kind, error, judgement }
}

fn conclude(args: &Args, color: ColorChoice, linted: &[Linted]) -> Result<(), LintError> {
    Printer::report(color, |out| match args.json {
        true => report::json(linted, out),
        false => report::text(linted, out),
    })?;
    let Counts { servers: of, failed_servers: failed, errors, .. } = Counts::of(linted);
    match (errors, failed) {
        (0, 0) => Ok(()),
        (0, failed) => Err(LintError::NotAsked { failed, of }),
        (errors, _) => Err(LintError::Found(errors)),
    }
}
