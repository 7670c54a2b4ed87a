//! The contents of a report as plain data: lanes of servers, primaries, verdicts, operations and
//! events over time, whatever they were read from.

mod builder;
mod headline;
mod secrets;
mod tally;
#[cfg(test)]
mod tests;
mod thinned;

use sdam_core::diagnosis::Verdict;
use sdam_core::time::Instant;
use serde::{Serialize, Serializer};

pub(super) use self::builder::Builder;
pub(super) use self::headline::{Headline, lasting, seconds};
pub(super) use self::secrets::without_secrets;
pub(super) use self::tally::Tally;
use crate::watch::{State, Tone};

/// All that a report shows. Serialised, times are milliseconds since the beginning.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    /// The file that it was read from.
    pub(super) origin: Origin,
    /// The time when it ends.
    #[serde(rename = "endMS", serialize_with = "millis")]
    pub(super) end: Instant,
    /// The summary, to be seen at first sight.
    pub(super) headline: Headline,
    /// The primaries, and the times without one; empty if the deployment is no replica set.
    pub(super) primaries: Vec<Reign>,
    /// The verdicts on writes.
    pub(super) writes: Vec<Judgement>,
    /// The verdicts on reads that take any server.
    pub(super) reads: Vec<Judgement>,
    /// The servers, in the order of their addresses.
    pub(super) lanes: Vec<Lane>,
    /// The operations that had to wait for a server.
    pub(super) waits: Vec<Wait>,
    /// The errors of operations that say something of a server.
    pub(super) errors: Vec<Mark>,
    /// The events in words: a table or lines show them.
    #[serde(skip)]
    pub(super) events: Vec<Event>,
    /// The things that are missing, and why.
    #[serde(skip)]
    pub(super) notes: Vec<String>,
}

/// The place where the contents of a report were read.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Origin {
    /// The name of the file, or of what was recorded.
    pub(super) name: String,
    /// The deployment: the name of its set, or its seeds.
    pub(super) deployment: String,
    /// The time by the wall clock at the beginning, as RFC 3339 writes it, if it is known.
    pub(super) began: Option<String>,
    /// The number of its lines.
    pub(super) lines: usize,
}

impl Origin {
    /// Says where it was read, and how much.
    pub(super) fn text(&self) -> String {
        let Self { name, lines, .. } = self;
        match lines {
            1 => format!("{name}: 1 line"),
            lines => format!("{name}: {lines} lines"),
        }
    }
}

/// The time for which a server was primary, or none was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Reign {
    #[serde(rename = "fromMS", serialize_with = "millis")]
    pub(super) from: Instant,
    #[serde(rename = "toMS", serialize_with = "millis")]
    pub(super) to: Instant,
    pub(super) line: usize,
    /// The primary; `None` while there is none.
    pub(super) primary: Option<String>,
    /// The fate of the one before.
    pub(super) reason: Option<String>,
}

/// The time for which operations would have found a server, or failed for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Judgement {
    #[serde(rename = "fromMS", serialize_with = "millis")]
    pub(super) from: Instant,
    #[serde(rename = "toMS", serialize_with = "millis")]
    pub(super) to: Instant,
    pub(super) line: usize,
    /// The cause for which they would have failed, if so.
    pub(super) fault: Option<Fault>,
}

/// The likely cause why operations would have failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Fault {
    /// The kind of the cause.
    pub(super) verdict: &'static str,
    /// The cause in a clause, at the end of its time.
    pub(super) cause: String,
    /// The thing to do about it, and a line to copy if there is one.
    pub(super) advice: String,
    pub(super) copy: Option<String>,
    /// The error that an operation would have got then, if that is known.
    pub(super) quoted: Option<String>,
    /// True if it goes without saying: no server had answered yet, or the client was closed.
    #[serde(rename = "expected")]
    pub(super) is_expected: bool,
}

/// The states of one server, and what else is known of it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Lane {
    pub(super) address: String,
    pub(super) spans: Vec<Span>,
    pub(super) checks: Vec<Check>,
    /// The average round trip time whenever it has changed.
    #[serde(rename = "roundTrips")]
    pub(super) round_trips: Vec<RoundTrip>,
    /// The times at which its pool was cleared.
    pub(super) clears: Vec<Mark>,
    /// The sums of all of it, of what is left out too: the table of servers shows them.
    #[serde(skip)]
    pub(super) tally: Tally,
}

/// The time for which a server was in one state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Span {
    #[serde(rename = "fromMS", serialize_with = "millis")]
    pub(super) from: Instant,
    #[serde(rename = "toMS", serialize_with = "millis")]
    pub(super) to: Instant,
    pub(super) line: usize,
    #[serde(serialize_with = "name_of")]
    pub(super) state: State,
    /// The failure that it began with.
    pub(super) error: Option<String>,
}

/// The end of a check.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Check {
    #[serde(rename = "atMS", serialize_with = "millis")]
    pub(super) at: Instant,
    pub(super) line: usize,
    /// The time that it took, if that is known.
    #[serde(rename = "tookMS")]
    pub(super) took: Option<f64>,
    /// True if the server was to answer when its state changes only.
    pub(super) awaited: bool,
    pub(super) failure: Option<String>,
}

/// A round trip time, from this moment on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct RoundTrip {
    #[serde(rename = "atMS", serialize_with = "millis")]
    pub(super) at: Instant,
    #[serde(rename = "tookMS")]
    pub(super) took: f64,
}

/// Something that has happened to a server at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Mark {
    #[serde(rename = "atMS", serialize_with = "millis")]
    pub(super) at: Instant,
    pub(super) line: usize,
    /// The server's address.
    pub(super) subject: String,
    pub(super) text: String,
}

/// An operation that had to wait for a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Wait {
    #[serde(rename = "fromMS", serialize_with = "millis")]
    pub(super) from: Instant,
    #[serde(rename = "toMS", serialize_with = "millis")]
    pub(super) to: Instant,
    pub(super) line: usize,
    #[serde(flatten)]
    pub(super) end: WaitEnd,
}

/// The end of an operation's wait for a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "end", content = "error", rename_all = "camelCase")]
pub(super) enum WaitEnd {
    /// A server was found.
    Found,
    /// It has failed, with this error.
    Failed(String),
    /// It has given up by itself.
    Abandoned,
    /// It goes on.
    Open,
}

/// An event in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) at: Instant,
    pub(super) line: usize,
    pub(super) tone: Tone,
    /// The server's address, or what else it is about.
    pub(super) subject: String,
    pub(super) text: String,
    /// The line itself, which may be cut.
    pub(super) raw: String,
}

impl Event {
    /// Says what has happened; the line itself is added in the end.
    pub(super) fn new(
        (at, line): (Instant, usize),
        tone: Tone,
        subject: &str,
        text: String,
    ) -> Self {
        Self { at, line, tone, subject: subject.to_owned(), text, raw: String::new() }
    }
}

impl Fault {
    /// Puts a verdict into words.
    pub(super) fn new(verdict: &Verdict, quoted: Option<String>) -> Self {
        let is_expected = matches!(
            verdict,
            Verdict::NotCheckedYet | Verdict::NoAnswerYet { .. } | Verdict::Closed
        );
        let (cause, advice) = (verdict.to_string(), verdict.advice());
        let (advice, copy) = (advice.to_string(), advice.line);
        Self { verdict: verdict.name(), cause, advice, copy, quoted, is_expected }
    }
}

/// Returns milliseconds since the beginning, to the microsecond.
pub(super) fn in_millis(at: Instant) -> f64 {
    (at.as_nanos() / 1000) as f64 / 1e3
}

fn millis<S: Serializer>(at: &Instant, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(in_millis(*at))
}

fn name_of<S: Serializer>(state: &State, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(state.name())
}
