//! The error of a selection that found no server, which says why.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::verdict::Verdict;
use crate::config::ServerAddress;
use crate::description::{Removal, TopologyType, millis};
use crate::failure::{Failure, Stage};
use crate::process::Forked;
use crate::selection::{Criteria, Explanation, Reason};
use crate::text::seconds;

/// The reason why no server was found for an operation.
///
/// Its text is one paragraph for a person, with the likely cause first; programs read the fields.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct SelectionError {
    /// The likely cause.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// Further findings, which may be causes as well.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<Verdict>,
    /// The criteria, in words.
    pub criteria: Arc<str>,
    /// True if only a primary would do, or what stands in for one: the operation writes, or reads
    /// with the mode `primary`.
    #[serde(skip)]
    pub needs_primary: bool,
    /// The time that the operation waited.
    #[serde(rename = "waitedMS", serialize_with = "millis")]
    pub waited: Duration,
    /// The option that has limited that time, if one has: serverSelectionTimeoutMS or timeoutMS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limited_by: Option<&'static str>,
    /// The type of the deployment at the time.
    pub topology_type: TopologyType,
    /// The reason why each server was not picked.
    #[serde(flatten)]
    pub explanation: Explanation,
    /// The failures of those servers whose last check failed.
    pub troubles: Vec<Trouble>,
    /// The checks in progress of servers that are Unknown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
    /// The reason why the last server was removed, if the topology has lost all of them and no
    /// server has answered since that stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub emptied: Option<Removal>,
}

impl SelectionError {
    /// The error of an operation in a process that was forked off from the client's, where nothing
    /// would ever answer it; it has waited for nothing.
    pub fn forked(forked: Forked, criteria: &Criteria, topology_type: TopologyType) -> Self {
        Self {
            verdict: Verdict::Forked(forked),
            also: Vec::new(),
            criteria: criteria.to_string().into(),
            needs_primary: false,
            waited: Duration::ZERO,
            limited_by: None,
            topology_type,
            explanation: Explanation { servers: Vec::new() },
            troubles: Vec::new(),
            checks: Vec::new(),
            emptied: None,
        }
    }
}

/// A check that is in progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Check {
    /// The server.
    pub address: ServerAddress,
    /// The stage that the check has reached.
    pub stage: Stage,
    /// For how long it has been in progress.
    #[serde(rename = "lastsMS", serialize_with = "millis")]
    pub lasts: Duration,
}

/// The failure of a server whose checks fail.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Trouble {
    /// The server.
    pub address: ServerAddress,
    /// The reason why its last check failed: how far it came, and the cause.
    pub failure: Failure,
    /// For how long its checks have been failing.
    #[serde(rename = "sinceMS", serialize_with = "millis")]
    pub since: Duration,
    /// The number of checks that have failed in a row.
    pub attempts: u32,
    /// True if a check of the server has ever succeeded since it joined.
    pub has_answered: bool,
    /// The time when the next one begins, or in the single-threaded mode may begin; `None` if one
    /// is in progress.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "optional_millis")]
    pub next: Option<Duration>,
}

fn optional_millis<S: serde::Serializer>(
    duration: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    millis(&duration.unwrap_or_default(), serializer)
}

impl fmt::Display for SelectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let likely = self.verdict.sentence();
        // What servers there are has no part in it.
        if let Verdict::Closed | Verdict::Forked(_) = &self.verdict {
            return write!(f, "{likely}.");
        }
        write!(f, "no server was found for {}", self.criteria)?;
        if !self.waited.is_zero() {
            write!(f, " within {}", seconds(self.waited))?;
            self.limited_by.map_or(Ok(()), |option| write!(f, " ({option})"))?;
        }
        write!(f, ": {likely}. The topology is {}", self.topology_type)?;
        let mut separator = "; ";
        for server in &self.explanation.servers {
            let trouble = self.troubles.iter().find(|trouble| trouble.address == server.address);
            let check = self.checks.iter().find(|check| check.address == server.address);
            write!(f, "{separator}{} is ", server.address)?;
            match (&server.reason, trouble, check) {
                (_, Some(trouble), _) => write!(f, "Unknown, {trouble}")?,
                (Reason::Unknown, None, Some(check)) => write!(f, "{check}")?,
                (Reason::Unknown, None, None) => f.write_str("not checked yet")?,
                (reason, None, _) => write!(f, "{}, {reason}", server.server_type)?,
            }
            separator = ", ";
        }
        if self.explanation.servers.is_empty() {
            f.write_str(" without servers")?;
        }
        let is_told = matches!(
            self.verdict,
            Verdict::NoServersLeft { removal: Some(_) } | Verdict::NotAReplicaSet { .. }
        );
        if let Some(cause) = self.emptied.as_ref().filter(|_| !is_told) {
            write!(f, "; the last server was removed because {cause}")?;
        }
        f.write_str(".")?;
        self.also.iter().try_for_each(|verdict| write!(f, " Also: {}.", verdict.sentence()))
    }
}

/// The end of a sentence that begins with the server.
impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (lasts, stage) = (seconds(self.lasts), self.stage.words());
        write!(f, "being checked, for {lasts} so far (stage: {stage})")
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} failed", self.failure, plural(self.attempts, "check"))?;
        write!(f, ", for {}", seconds(self.since))?;
        match self.next {
            Some(next) => write!(f, ", the next one in {})", seconds(next)),
            None => f.write_str(", one in progress)"),
        }
    }
}

impl std::error::Error for SelectionError {}

fn plural(count: u32, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        _ => format!("{count} {noun}s"),
    }
}
