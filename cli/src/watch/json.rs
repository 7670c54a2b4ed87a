//! One JSON object for each event; `EVENTS.md` is its schema.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::SystemTime;

use jiff::Timestamp;
use sdam_core::description::Change;
use sdam_core::time::Instant;
use sdam_core::topology::Event;
use sdam_tokio::Client;
use serde::Serialize;

use super::Report;
use crate::text::is_unsafe;

/// A translation from the time of an event to that of the wall clock.
pub(super) trait WallClock {
    /// Returns when it was `at`.
    fn wall_clock(&self, at: Instant) -> SystemTime;
}

impl WallClock for Client {
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

/// Writes a time as RFC 3339 does, in UTC and with milliseconds.
pub(crate) fn rfc_3339(time: SystemTime) -> String {
    // A clock beyond the year 9999 is not worth an error.
    let time = Timestamp::try_from(time).unwrap_or(Timestamp::MAX);
    format!("{time:.3}")
}

/// Escapes what serde_json may leave as it is, but a terminal obeys; it only occurs inside strings.
pub(crate) fn ascii_controls(object: String) -> String {
    if !object.contains(is_unsafe) {
        return object;
    }
    let mut escaped = String::with_capacity(object.len() + 16);
    for c in object.chars() {
        match is_unsafe(c) {
            // All of them are in the basic plane, so that one escape suffices.
            true => write!(escaped, "\\u{:04x}", u32::from(c)).expect("writing to memory"),
            false => escaped.push(c),
        }
    }
    escaped
}
