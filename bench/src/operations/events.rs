//! Changes of a collection: the documents that were inserted, where they begin, and how many of
//! their events were read.

use bson::{Timestamp, doc};
use sdam::blocking::Database;
use sdam_bench::Failure;
use sdam_bench::idle::Usage;
use serde::{Deserialize, Serialize};

/// The name of the collection whose changes are read.
pub(crate) const CHANGED: &str = "changed";

/// The number of documents that are inserted at once.
const CHUNK: i32 = 50_000;

/// The number of times that memory is looked at while all events are read.
const LOOKS: i32 = 10;

/// A small document.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Small {
    #[serde(rename = "_id")]
    id: i32,
    n: i32,
}

/// Inserts so many documents; returns the time before the first one.
pub(crate) fn fill(database: &Database, count: i32) -> Result<Timestamp, Failure> {
    let reply = database.run_command(doc! { "ping": 1 }).run()?;
    let before = reply.get_timestamp("operationTime")?;
    let changed = database.collection::<Small>(CHANGED);
    for first in (0..count).step_by(CHUNK as usize) {
        let documents = first..count.min(first.saturating_add(CHUNK));
        changed.insert_many(documents.map(|id| Small { id, n: -id })).run()?;
    }
    Ok(before)
}

/// The events of one stream, which is followed by another one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Events {
    /// The time at which a stream begins.
    pub(crate) begun: Timestamp,
    count: i32,
    read: i32,
    /// True if memory is looked at.
    shows_memory: bool,
}

impl Events {
    pub(crate) const fn new(begun: Timestamp, count: i32, shows_memory: bool) -> Self {
        Self { begun, count, read: 0, shows_memory }
    }

    /// Counts an event; returns whether it was the last one.
    pub(crate) fn count(&mut self) -> Result<bool, Failure> {
        self.read += 1;
        if self.shows_memory && self.read % (self.count / LOOKS).max(1) == 0 {
            eprintln!("{} events: {} KiB", self.read, Usage::now()?.private);
        }
        if self.read == self.count {
            self.read = 0;
        }
        Ok(self.read == 0)
    }
}

/// Writes a time for the command line.
pub(crate) fn text(time: Timestamp) -> String {
    format!("{}.{}", time.time, time.increment)
}

/// Reads what [`text`] has written.
pub(crate) fn parse(text: &str) -> Result<Timestamp, String> {
    let (time, increment) = text.split_once('.').ok_or("write it as SECONDS.INCREMENT")?;
    let number = |text: &str| text.parse().map_err(|error| format!("{text}: {error}"));
    Ok(Timestamp { time: number(time)?, increment: number(increment)? })
}

#[cfg(test)]
mod tests {
    use bson::Timestamp;

    use super::{parse, text};

    #[test]
    fn a_time_is_read_as_it_was_written() {
        let time = Timestamp { time: 1_700_000_000, increment: 7 };
        assert_eq!(parse(&text(time)), Ok(time));
        assert!(parse("7").is_err() && parse("a.b").is_err());
    }
}
