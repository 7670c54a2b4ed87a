//! `sdam watch`: what a deployment is, and what happens to it, as it happens.
//!
//! The map: `story` puts events into words; `plain` and `json` print lines, and `writes` what they
//! say without an event; `model` is what `screen` draws; `feed` is where events come from, and
//! `balancer` asks those that no monitor does.

mod balancer;
mod feed;
mod json;
mod model;
mod plain;
mod screen;
mod story;
#[cfg(test)]
mod tests;
mod writes;

use std::io::{self, IsTerminal};
use std::time::Duration;

use sdam_core::config::{ReadMode, ReadPreference};
use sdam_core::id::TopologyId;
use sdam_core::selection::Criteria;
use sdam_core::time::Instant;
use sdam_core::topology::{Event, EventKind};
use sdam_tokio::Topology;

use self::balancer::Balancer;
use self::feed::{Arrival, Feed};
use self::json::Json;
pub(crate) use self::model::{State, bars, worst_within};
use self::plain::Plain;
#[cfg(test)]
pub(crate) use self::story::Diagnose;
use self::story::Story;
pub(crate) use self::story::{Tone, clause};
use self::writes::Writes;
use crate::color::ColorChoice;
use crate::complain;
use crate::duration::precise;
use crate::embedded;
use crate::preparation::{self, Observation, Preparation, PreparationError};
use crate::shutdown::{End, Shutdown};

/// Examples and exit codes.
const MORE: &str = "\
Examples:
  sdam watch
  sdam watch 'mongodb://db1.example,db2.example/?replicaSet=rs0'
  SDAM_URI='mongodb+srv://me:secret@cluster0.example.net' sdam watch
  sdam watch --uri-file production.uri --json --for 10m > events.jsonl

Exit codes:
  0    --for is over and a server was available at some time, or it was stopped
  1    no server was available in all the time of --for, or nothing can be watched
  2    the arguments or the connection string are invalid
  130  SIGINT came before any server was known (143: SIGTERM)";

/// Watches a deployment: what it is now, and what happens to it.
///
/// On a terminal it draws a screen, which q or Ctrl-C leaves and ? explains; elsewhere it prints a
/// line for each event. Without a connection string it starts a demonstration deployment inside
/// itself, a replica set whose primary is killed again and again.
#[derive(Debug, clap::Args)]
#[command(after_long_help = MORE)]
pub(crate) struct Args {
    #[command(flatten)]
    observation: Observation,
    /// Print one JSON object for each event, as EVENTS.md describes them
    #[arg(long)]
    json: bool,
    /// Print lines even on a terminal
    #[arg(long, conflicts_with = "json")]
    plain: bool,
    /// Show the heartbeats that begin and succeed too, as --json always does
    #[arg(long)]
    heartbeats: bool,
}

/// The reason why nothing can be watched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WatchError {
    /// It cannot begin.
    #[error(transparent)]
    Preparation(#[from] PreparationError),
    /// Nothing more can be printed.
    #[error("cannot write: {0}")]
    Output(io::Error),
    /// The time was up, and no server has been available.
    #[error("no server was found in {}: {cause}", precise(*limit))]
    NothingFound {
        /// The time that it was watched.
        limit: Duration,
        /// The likely cause.
        cause: String,
    },
}

impl WatchError {
    /// Returns 2 for what the user can write differently, else 1.
    pub(crate) const fn exit_code(&self) -> u8 {
        match self {
            Self::Preparation(error) => error.exit_code(),
            Self::Output(_) | Self::NothingFound { .. } => 1,
        }
    }
}

/// The time between two looks at whether writes find a server.
const LOOK: Duration = Duration::from_millis(500);

/// Takes notice of events, one after the other.
trait Report {
    /// Something has happened.
    fn event(&mut self, event: &Event) -> io::Result<()>;

    /// Before `next` happened, `count` events were dropped.
    fn dropped(&mut self, count: u64, next: &Event) -> io::Result<()>;
}

/// Watches until the user, a signal or the time limit ends it.
pub(crate) fn run(args: Args, color: ColorChoice) -> Result<(), WatchError> {
    match preparation::run(watch(args, color)) {
        // The reader has seen enough.
        Err(WatchError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

async fn watch(args: Args, color: ColorChoice) -> Result<(), WatchError> {
    let mut preparation = Preparation::new(args.observation).await?;
    let banner = preparation.banner();
    let connecting = Topology::builder(preparation.options.clone()).connect_with_events();
    let (client, events) = preparation.connected(connecting).await?;
    let Preparation { deployment: _deployment, mut shutdown, limit, .. } = preparation;
    let view = client.view();
    let seeds = view.servers().iter().map(|server| server.address.to_string());
    let seeds = story::listed(seeds, " ");
    let balancer = Balancer::ask(&client);
    let mut feed = Feed::new(events);
    let diagnose = {
        let client = client.clone();
        move || client.diagnose(&Criteria::write())
    };
    let story = Story::new(args.heartbeats, Box::new(diagnose));
    let color = color.wants_color(io::stdout().is_terminal());
    let mut cause = None;
    let mut report: Box<dyn Report> = if args.json {
        if let Some(banner) = banner {
            complain(&banner);
        }
        Box::new(Json::new(io::stdout(), client.clone()))
    } else if !args.plain && is_screen() {
        let title = banner.map_or(&*seeds, |_| embedded::TITLE);
        let story = screen::show(&client, &mut feed, &mut shutdown, story, (title, color))
            .await
            .map_err(WatchError::Output)?;
        cause = why_nothing(&client, &balancer);
        client.close().await;
        Box::new(Plain::new(io::stdout(), story, color))
    } else {
        let mut plain = Plain::new(io::stdout(), story, color);
        let since = crate::duration::rfc_3339(client.wall_clock(Instant::ZERO));
        let watching = format!("watching {seeds} since {since}");
        for line in banner.into_iter().chain([&*watching]) {
            plain.headline(line).map_err(WatchError::Output)?;
        }
        Box::new(plain)
    };
    let at_end = follow(&client, &balancer, &mut feed, &mut shutdown, &mut *report).await?;
    match (shutdown.end(), limit, cause.or(at_end)) {
        (Some(End::Time), Some(limit), Some(cause)) if !feed.has_found() => {
            Err(WatchError::NothingFound { limit, cause })
        }
        _ => Ok(()),
    }
}

/// Returns whether standard output can be drawn on.
fn is_screen() -> bool {
    io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Says why not even a read that takes any server would find one; to be called before the client is
/// closed.
fn why_nothing(client: &Topology, balancer: &Balancer) -> Option<String> {
    let any = Criteria::read(ReadPreference::new(ReadMode::Nearest));
    let trouble = balancer.trouble().map(|it| format!("the load balancer does not answer: {it}"));
    trouble.or_else(|| client.diagnose(&any).map(|error| error.verdict.sentence()))
}

/// Reports every event, and closes the client when it is time; returns after the last event, with
/// why no server was available before the client was closed.
async fn follow(
    client: &Topology,
    balancer: &Balancer,
    feed: &mut Feed,
    shutdown: &mut Shutdown,
    report: &mut dyn Report,
) -> Result<Option<String>, WatchError> {
    let (mut closing, mut cause) = (false, None);
    let (mut writes, mut topology): (_, Option<TopologyId>) = (Writes::default(), None);
    let mut looks = tokio::time::interval(LOOK);
    loop {
        let arrival = tokio::select! {
            arrival = feed.next() => arrival,
            _ = looks.tick(), if !closing => {
                let now = client.now();
                let verdict = client.diagnose(&Criteria::write()).map(|error| error.verdict);
                if let (Some(id), Some(verdict)) = (topology, writes.look(now, verdict)) {
                    let event = Event::new(id, now, EventKind::Diagnosed { verdict });
                    report.event(&event).map_err(WatchError::Output)?;
                }
                continue;
            }
            () = shutdown.reached(), if !closing => {
                cause = why_nothing(client, balancer);
                client.close().await;
                closing = true;
                continue;
            }
        };
        let Some(Arrival { event, dropped }) = arrival else {
            return Ok(cause);
        };
        topology = Some(event.topology);
        if dropped > 0 {
            report.dropped(dropped, &event).map_err(WatchError::Output)?;
        }
        report.event(&event).map_err(WatchError::Output)?;
    }
}
