//! The events that are reported.

use std::collections::BTreeMap;
use std::fmt;

use sdam_cluster::{ClientName, ClusterEvent};
use serde::Serialize;

use super::step::Name;
use crate::news;
use crate::text::escaped;

/// Something to report.
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
            ClusterEvent::SaidHello { member, client: ClientName { driver, application, .. } } => {
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
            Self::Lost { count } => write!(f, "{count} events came too fast to be reported"),
            Self::Help { text } => f.write_str(text),
        }
    }
}

impl news::News for News {
    fn first_line(&self) -> Option<String> {
        matches!(self, Self::Ready { .. }).then(|| self.to_string())
    }

    fn lines(&self) -> Vec<String> {
        match self {
            Self::Ready { members, .. } => {
                let members = members.iter().map(|(name, address)| format!("{name} is {address}"));
                vec![members.collect::<Vec<_>>().join(", ")]
            }
            news => vec![news.to_string()],
        }
    }
}
