//! Metrics of topologies in virtual time, and of pools whose events are made up.

mod limits;
mod operations;
mod pools;
mod real_pools;
mod topologies;

use std::sync::Arc;
use std::time::Duration;

use super::{Exposition, Metrics};
use crate::config::ServerAddress;
use crate::failure::{Cause, Failure, Stage};
use crate::id::{ServerId, TopologyId};
use crate::time::Instant;
use crate::topology::{Event, EventKind};

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

fn address(host: &str) -> ServerAddress {
    host.parse().unwrap()
}

fn failure(cause: Cause) -> Failure {
    Failure::new(Stage::Hello, cause, Arc::from("no matter"))
}

/// Makes an event of a topology.
fn event(millis: u64, kind: EventKind) -> Event {
    Event::new(TopologyId(1), at(millis), kind)
}

fn server_opening(millis: u64, host: &str) -> Event {
    let (server, address) = (ServerId(1), address(host));
    event(millis, EventKind::ServerOpening { server, address })
}

fn server_closed(millis: u64, host: &str) -> Event {
    let (server, address) = (ServerId(1), address(host));
    event(millis, EventKind::ServerClosed { server, address })
}

/// Returns the lines of samples whose names begin so, in Prometheus' format.
fn lines(metrics: &Metrics, millis: u64, beginning: &str) -> Vec<String> {
    let text = Exposition::new(&metrics.snapshot(at(millis))).to_string();
    text.lines().filter(|line| line.starts_with(beginning)).map(str::to_owned).collect()
}

/// Returns the same without buckets.
fn without_buckets(metrics: &Metrics, millis: u64, beginning: &str) -> Vec<String> {
    let mut lines = lines(metrics, millis, beginning);
    lines.retain(|line| !line.contains("_bucket"));
    lines
}

const SECOND: Duration = Duration::from_secs(1);
