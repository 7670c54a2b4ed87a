//! `sdam watch`: what a deployment is, and what happens to it, as it happens.
//!
//! The map: `story` puts events into words, with `misfit` for why servers leave; `plain` and
//! `json` print lines; `board` is what `screen` draws; `feed` is where events come from,
//! and `ending` says when it is over.

mod board;
mod ending;
mod feed;
mod json;
mod misfit;
mod plain;
#[cfg(test)]
mod scene;
mod screen;
mod story;
#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal};
use std::time::Duration;

use sdam_core::address_map::{AddressMap, AddressMapError};
use sdam_core::event::Event;
use sdam_core::options::{Options, OptionsError, PoolOptions};
use sdam_core::time::Instant;
use sdam_tokio::{Client, ClientError};
use tokio::runtime;

pub(crate) use self::ending::Ending;
use self::feed::{Arrival, Feed};
use self::json::Json;
pub(crate) use self::json::rfc_3339;
use self::plain::Plain;
use self::story::Story;
use crate::embedded::{self, EmbeddedError};
use crate::{complain, duration};

/// Watches a deployment: what it is now, and what happens to it.
///
/// On a terminal it draws a screen, which q, Esc or Ctrl-C leaves; elsewhere it prints a line for
/// each event.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The connection string, mongodb://…; without it, an embedded deployment is started
    uri: Option<String>,
    /// Print one JSON object for each event, as EVENTS.md describes them
    #[arg(long)]
    json: bool,
    /// Print lines even on a terminal
    #[arg(long, conflicts_with = "json")]
    plain: bool,
    /// Show the heartbeats that begin and succeed too, as --json always does
    #[arg(long)]
    heartbeats: bool,
    /// End after this time: a whole number and ms, s, m or h, as in 500ms or 30s
    #[arg(long = "for", value_name = "DURATION", value_parser = duration::parse)]
    limit: Option<Duration>,
    /// Dial TO for the server that advertises FROM; may be repeated, and the first that matches
    /// counts. As in --map db1.internal:27017=127.0.0.1:30001, or --map '*.internal=*.example.com'
    ///
    /// FROM is HOST, for any port, or HOST:PORT, with * for any run of characters. TO is HOST, for
    /// the same port, HOST:PORT or the path of a socket; * in HOST is what the first * matched.
    /// Servers are still shown, and told apart, by the addresses they advertise.
    #[arg(long, value_name = "FROM=TO")]
    map: Vec<String>,
}

/// Why nothing can be watched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WatchError {
    /// The connection string cannot be used.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// What servers are to be dialled as is not clear.
    #[error("--map: {0}")]
    Map(#[from] AddressMapError),
    /// There is no embedded deployment.
    #[error(transparent)]
    Embedded(#[from] EmbeddedError),
    /// The client could not be created.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The runtime could not be started, or cannot receive signals.
    #[error("cannot start: {0}")]
    Start(#[source] io::Error),
    /// Nothing more can be printed.
    #[error("cannot write: {0}")]
    Output(#[source] io::Error),
}

impl WatchError {
    /// Returns 2 for what the user can write differently, else 1.
    pub(crate) const fn exit_code(&self) -> u8 {
        match self {
            Self::Options(_) | Self::Map(_) => 2,
            Self::Embedded(_) | Self::Client(_) | Self::Start(_) | Self::Output(_) => 1,
        }
    }
}

/// Takes notice of events, one after the other.
trait Report {
    /// Something has happened.
    fn event(&mut self, event: &Event) -> io::Result<()>;

    /// Before `next` happened, `count` events were dropped.
    fn dropped(&mut self, count: u64, next: &Event) -> io::Result<()>;
}

/// Watches until the user, a signal or the time limit ends it.
pub(crate) fn run(args: Args) -> Result<(), WatchError> {
    // Output blocks this thread when nobody reads it; the client lives on another one, so that its
    // heartbeats do not wait too.
    let runtime = runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(WatchError::Start)?;
    let result = runtime.block_on(watch(args));
    runtime.shutdown_background();
    match result {
        // Whoever read has seen enough.
        Err(WatchError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

async fn watch(args: Args) -> Result<(), WatchError> {
    let rules: Result<Vec<_>, _> = args.map.iter().map(|rule| rule.parse()).collect();
    let map = AddressMap::new(rules?)?;
    let (_deployment, uri, banner) = match args.uri {
        Some(uri) => (None, uri, None),
        None => {
            let (deployment, uri) = embedded::start().await?;
            (Some(deployment), uri, Some(embedded::BANNER))
        }
    };
    let options = Options::builder()
        .uri(&uri)?
        .environment(sdam_tokio::environment())
        .address_map(map)
        // Whoever watches uses no connections.
        .pool(PoolOptions::default())
        .build()?;
    for warning in options.warnings() {
        complain(&format_args!("warning: {warning}"));
    }
    let mut ending = Ending::arrange(args.limit).map_err(WatchError::Start)?;
    let (client, events) = tokio::select! {
        connected = Client::builder(options).connect_with_events() => connected?,
        () = ending.reached() => return Ok(()),
    };
    let view = client.view();
    let seeds = view.servers().iter().map(|server| server.address.to_string());
    let seeds = story::listed(seeds, " ");
    let mut feed = Feed::new(events);
    let story = Story::new(args.heartbeats);
    let mut report: Box<dyn Report> = if args.json {
        if let Some(banner) = banner {
            complain(&banner);
        }
        Box::new(Json::new(io::stdout(), client.clone()))
    } else if !args.plain && is_screen() {
        let title = [Some(&*seeds), banner].into_iter().flatten();
        let title = title.collect::<Vec<_>>().join(" · ");
        let story = screen::show(&client, &mut feed, &mut ending, story, &title)
            .await
            .map_err(WatchError::Output)?;
        client.close().await;
        Box::new(Plain::new(io::stdout(), story))
    } else {
        let mut plain = Plain::new(io::stdout(), story);
        let since = json::rfc_3339(client.wall_clock(Instant::ZERO));
        let watching = format!("watching {seeds} since {since}");
        for line in banner.into_iter().chain([&*watching]) {
            plain.headline(line).map_err(WatchError::Output)?;
        }
        Box::new(plain)
    };
    follow(&client, &mut feed, &mut ending, &mut *report).await
}

/// Returns whether standard output can be drawn on.
fn is_screen() -> bool {
    io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Reports every event, and closes the client when it is time; returns after the last event.
async fn follow(
    client: &Client,
    feed: &mut Feed,
    ending: &mut Ending,
    report: &mut dyn Report,
) -> Result<(), WatchError> {
    let mut closing = false;
    loop {
        let arrival = tokio::select! {
            arrival = feed.next() => arrival,
            () = ending.reached(), if !closing => {
                client.close().await;
                closing = true;
                continue;
            }
        };
        let Some(Arrival { event, dropped }) = arrival else {
            return Ok(());
        };
        if dropped > 0 {
            report.dropped(dropped, &event).map_err(WatchError::Output)?;
        }
        report.event(&event).map_err(WatchError::Output)?;
    }
}
