//! The printed output: a line for each event, for people or as JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::time::Duration;

use sdam_cluster::{ClientName, ClusterEvent};
use serde::Serialize;

use super::step::Name;
use crate::text::escaped;

/// Something to tell of.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "camelCase")]
pub(super) enum News {
    /// The deployment accepts connections.
    Ready { uri: String, members: BTreeMap<Name, String> },
    /// A server has started.
    Started { member: Name },
    /// A server is down.
    Ended { member: Name },
    /// A member has become primary.
    Elected { member: Name, term: i64 },
    /// A primary has become a secondary.
    SteppedDown { member: Name },
    /// A client that was not seen before has said hello.
    Greeted { member: Name, driver: Option<String>, application: Option<String> },
    /// A step was taken.
    Done { step: String },
    /// A step was not taken, or not understood.
    Refused { step: String, reason: String },
    /// The state of the members.
    Members { members: BTreeMap<Name, String> },
    /// Events that came too fast.
    Lost { count: u64 },
    /// The list of steps.
    Help { text: String },
}

impl News {
    /// Puts an event of the deployment into words.
    pub(super) fn of(event: ClusterEvent) -> Option<Self> {
        Some(match event {
            ClusterEvent::Started { member } => Self::Started { member: Name::of(member) },
            ClusterEvent::Ended { member } => Self::Ended { member: Name::of(member) },
            ClusterEvent::Elected { member, term } => {
                Self::Elected { member: Name::of(member), term }
            }
            ClusterEvent::SteppedDown { member } => Self::SteppedDown { member: Name::of(member) },
            ClusterEvent::Greeted { member, client: ClientName { driver, application, .. } } => {
                let safe = |text: Option<String>| text.map(|text| escaped(&text).into_owned());
                let member = Name::of(member);
                Self::Greeted { member, driver: safe(driver), application: safe(application) }
            }
            _ => return None,
        })
    }
}

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready { uri, .. } => f.write_str(uri),
            Self::Started { member } => write!(f, "{member} has started"),
            Self::Ended { member } => write!(f, "{member} is down"),
            Self::Elected { member, term } => write!(f, "{member} is primary, in term {term}"),
            Self::SteppedDown { member } => write!(f, "{member} has stepped down"),
            Self::Greeted { member, driver, application } => {
                let driver = driver.as_deref().unwrap_or("a client without a name");
                write!(f, "{driver} has said hello to {member}")?;
                match application {
                    Some(application) => write!(f, ", for {application}"),
                    None => Ok(()),
                }
            }
            Self::Done { step } => write!(f, "> {step}"),
            Self::Refused { step, reason } => write!(f, "> {step}: {reason}"),
            Self::Members { members } => {
                let lines = members.iter().map(|(name, what)| format!("{name} {what}"));
                f.write_str(&lines.collect::<Vec<_>>().join(", "))
            }
            Self::Lost { count } => write!(f, "{count} events came too fast to be told"),
            Self::Help { text } => f.write_str(text),
        }
    }
}

/// An object: its time first.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Timed<'a> {
    elapsed_ms: f64,
    #[serde(flatten)]
    news: &'a News,
}

/// Prints news.
#[derive(Debug)]
pub(super) struct Report<W> {
    out: W,
    json: bool,
    /// Where a line ends; a terminal that reads single keys wants to be told to go left, too.
    end: &'static str,
}

impl<W: Write> Report<W> {
    /// Prints to `out`.
    pub(super) const fn new(out: W, json: bool, is_raw: bool) -> Self {
        let end = if is_raw { "\r\n" } else { "\n" };
        Self { out, json, end }
    }

    /// Prints what has happened so long after the start.
    pub(super) fn tell(&mut self, elapsed: Duration, news: &News) -> io::Result<()> {
        let (end, seconds) = (self.end, elapsed.as_secs_f64());
        match news {
            _ if self.json => {
                let timed = Timed { elapsed_ms: elapsed.as_secs_f64() * 1e3, news };
                let object = serde_json::to_string(&timed)?;
                write!(self.out, "{object}{end}")?;
            }
            // A script reads the first line.
            News::Ready { members, .. } => {
                let members = members.iter().map(|(name, address)| format!("{name} is {address}"));
                let members = members.collect::<Vec<_>>().join(", ");
                write!(self.out, "{news}{end}{seconds:>8.2}s  {members}{end}")?;
            }
            news => {
                let text = news.to_string();
                write!(self.out, "{seconds:>8.2}s  {}{end}", escaped(&text))?;
            }
        }
        self.out.flush()
    }
}
