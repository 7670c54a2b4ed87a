//! `sdam exporter`: what a deployment is, and what has happened to it, as metrics that Prometheus
//! reads over HTTP.
//!
//! `http` is the protocol; this file has what is served by it.

mod http;
#[cfg(test)]
mod page;
#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sdam_core::metrics::{Exposition, Metrics};
use sdam_core::topology::Topics;
use sdam_host::Events;
use sdam_tokio::Topology;
use tokio::net::TcpListener;

use self::http::Page;
use crate::output;
use crate::preparation::{self, Observation, Preparation, PreparationError};

/// Examples and exit codes.
const MORE: &str = "\
Examples:
  sdam exporter --uri-file production.uri
  SDAM_URI='mongodb+srv://me:secret@cluster0.example.net' sdam exporter --listen 0.0.0.0:9216

Exit codes:
  0    --for is over, or it was stopped
  1    it cannot listen, or the hosts cannot be looked up
  2    the arguments or the connection string are invalid
  130  SIGINT came before the hosts were looked up (143: SIGTERM)";

/// Serves metrics of a deployment to Prometheus: servers, primaries, elections, checks.
///
/// They are at /metrics, over HTTP and without a password, and EXPORTER.md describes them. No
/// server needs to be available, neither at the beginning nor later.
#[derive(Debug, clap::Args)]
#[command(after_long_help = MORE)]
pub(crate) struct Args {
    #[command(flatten)]
    observation: Observation,
    /// Listen at this address
    ///
    /// Anyone who reaches it can read which servers there are, and their states.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9216")]
    listen: SocketAddr,
}

/// The events that are counted: the pools are unused here.
const TOPICS: Topics = Topics::TOPOLOGY.with(Topics::SERVERS).with(Topics::HEARTBEATS);

/// The reason why nothing is served, or no more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExporterError {
    /// It cannot begin.
    #[error(transparent)]
    Preparation(#[from] PreparationError),
    /// Cannot listen on the address.
    #[error("--listen {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The reason.
        error: io::Error,
    },
    /// The address cannot be printed.
    #[error("cannot write: {0}")]
    Output(io::Error),
}

impl ExporterError {
    /// Returns 2 for what the user can write differently, else 1.
    pub(crate) const fn exit_code(&self) -> u8 {
        match self {
            Self::Preparation(error) => error.exit_code(),
            Self::Listen { .. } | Self::Output(_) => 1,
        }
    }
}

/// Serves until a signal or the time limit ends it.
pub(crate) fn run(args: &Args) -> Result<(), ExporterError> {
    preparation::run(export(args))
}

async fn export(args: &Args) -> Result<(), ExporterError> {
    let (mut preparation, _) = Preparation::through(&args.observation, None)?;
    let refused = |error| ExporterError::Listen { address: args.listen, error };
    let listener = TcpListener::bind(args.listen).await.map_err(refused)?;
    let address = listener.local_addr().map_err(refused)?;
    let builder = Topology::builder(preparation.options.clone()).topics(TOPICS);
    let connecting = builder.connect_with_events();
    let (client, events) = preparation.connected(connecting).await?;
    let announced = announce(&mut io::stdout(), address);
    output::unless_gone(announced).map_err(ExporterError::Output)?;
    let metrics = Arc::new(Mutex::new(Metrics::new()));
    let page: Page = {
        let (client, metrics) = (client.clone(), Arc::clone(&metrics));
        Arc::new(move || page(&client, &metrics))
    };
    tokio::select! {
        () = follow(events, &metrics) => {}
        () = http::serve(listener, page) => {}
        () = preparation.shutdown.reached() => {}
    }
    client.close().await;
    Ok(())
}

/// Prints where it is, as soon as that can be read.
fn announce(out: &mut dyn io::Write, address: SocketAddr) -> io::Result<()> {
    writeln!(out, "serving http://{address}/metrics")?;
    out.flush()
}

/// Takes notice of every event.
async fn follow(mut events: Events, metrics: &Mutex<Metrics>) {
    while let Some(event) = events.next().await {
        let mut metrics = lock(metrics);
        metrics.note_dropped(events.dropped());
        metrics.note(&event);
    }
}

/// Returns what is to be read now.
fn page(client: &Topology, metrics: &Mutex<Metrics>) -> String {
    let now = client.now();
    let mut metrics = lock(metrics);
    metrics.see(now, &client.view());
    Exposition::new(&metrics.snapshot(now)).to_string()
}

fn lock(metrics: &Mutex<Metrics>) -> MutexGuard<'_, Metrics> {
    metrics.lock().unwrap_or_else(PoisonError::into_inner)
}
