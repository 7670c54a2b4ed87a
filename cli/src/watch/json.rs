//! One JSON object for each event; `EVENTS.md` is its schema.

use std::io::{self, Write};
use std::time::SystemTime;

use sdam_core::description::Change;
use sdam_core::time::Instant;
use sdam_core::topology::Event;
use sdam_tokio::Topology;
use serde::Serialize;

use super::Report;
use crate::duration::rfc_3339;
use crate::text::ascii_controls;

/// A translation from the time of an event to that of the wall clock.
pub(super) trait WallClock {
    /// Returns when it was `at`.
    fn wall_clock(&self, at: Instant) -> SystemTime;
}

impl WallClock for Topology {
    fn wall_clock(&self, at: Instant) -> SystemTime {
        Self::wall_clock(self, at)
    }
}

/// Prints each event as one JSON object.
#[derive(Debug)]
pub(super) struct Json<W, C> {
    out: W,
    clock: C,
}

/// An object: its times first.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Timed<T> {
    elapsed_ms: f64,
    time: String,
    #[serde(flatten)]
    what: T,
}

#[derive(Serialize)]
struct Happened<'a> {
    #[serde(flatten)]
    event: &'a Event,
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<Vec<Change>>,
}

/// Events were dropped before this one; no event of the specification.
#[derive(Serialize)]
#[serde(tag = "event", rename = "eventsDropped")]
struct Dropped {
    count: u64,
}

impl<W: Write, C: WallClock> Json<W, C> {
    /// Prints to `out`.
    pub(super) const fn new(out: W, clock: C) -> Self {
        Self { out, clock }
    }

    fn print(&mut self, at: Instant, what: impl Serialize) -> io::Result<()> {
        let object = serde_json::to_string(&Timed {
            elapsed_ms: at.since_origin().as_nanos() as f64 / 1e6,
            time: rfc_3339(self.clock.wall_clock(at)),
            what,
        })?;
        writeln!(self.out, "{}", ascii_controls(object))?;
        self.out.flush()
    }
}

impl<W: Write, C: WallClock> Report for Json<W, C> {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        let changes = event.kind.changes();
        self.print(event.at, Happened { event, changes })
    }

    fn dropped(&mut self, count: u64, next: &Event) -> io::Result<()> {
        self.print(next.at, Dropped { count })
    }
}
