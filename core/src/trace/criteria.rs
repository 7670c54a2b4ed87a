//! The criteria of operations, as JSON and back, and the answers of their predicates.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::LineError;
use crate::config::{ReadMode, ReadPreference, TagSet};
use crate::selection::Criteria;

/// The criteria of an operation.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Needs {
    /// Without one, a server that takes writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    read: Option<Read>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<i32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    deprioritized: Vec<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    predicate: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    member: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Read {
    mode: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tag_sets: Vec<TagSet>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_staleness: Option<Duration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hedge: Option<bool>,
}

impl From<&Criteria> for Needs {
    fn from(criteria: &Criteria) -> Self {
        let read = criteria.read_preference().map(|preference| Read {
            mode: preference.mode().name().to_owned(),
            tag_sets: preference.tag_sets().to_vec(),
            max_staleness: preference.max_staleness(),
            hedge: preference.hedge(),
        });
        Self {
            read,
            since: criteria.since(),
            deprioritized: criteria.deprioritized().iter().map(ToString::to_string).collect(),
            predicate: criteria.has_predicate(),
            member: criteria.member().map(ToString::to_string),
        }
    }
}

impl Needs {
    /// Returns what was needed; predicates answer as recorded.
    pub(super) fn criteria(self, answers: &Answers) -> Result<Criteria, LineError> {
        let mut criteria = match (self.read, self.since) {
            (None, _) => Criteria::write(),
            (Some(read), None) => Criteria::read(read.preference()?),
            (Some(read), Some(version)) => Criteria::read_since(read.preference()?, version),
        };
        let addresses: Result<Vec<_>, _> =
            self.deprioritized.iter().map(|address| address.parse()).collect();
        let addresses = addresses.map_err(|error| LineError::malformed("an address", &error))?;
        criteria = criteria.deprioritize(addresses);
        if let Some(member) = self.member {
            let member = member.parse();
            criteria = criteria.at(member.map_err(|e| LineError::malformed("an address", &e))?);
        }
        Ok(match self.predicate {
            true => answers.repeat_for(criteria),
            false => criteria,
        })
    }
}

impl Read {
    fn preference(self) -> Result<ReadPreference, LineError> {
        let malformed = |reason: &dyn ToString| LineError::malformed("the read preference", reason);
        let mode = ReadMode::from_name(&self.mode).ok_or_else(|| malformed(&self.mode))?;
        let mut preference = ReadPreference::new(mode);
        if !self.tag_sets.is_empty() {
            preference =
                preference.with_tag_sets(self.tag_sets).map_err(|error| malformed(&error))?;
        }
        if let Some(most) = self.max_staleness {
            preference = preference.with_max_staleness(most).map_err(|error| malformed(&error))?;
        }
        if let Some(hedge) = self.hedge {
            preference = preference.with_hedge(hedge).map_err(|error| malformed(&error))?;
        }
        Ok(preference)
    }
}

/// The answer of a predicate of the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PredicateResult {
    Yes,
    No,
    /// It panicked.
    Panic,
}

impl fmt::Display for PredicateResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Panic => "panic",
        })
    }
}

impl std::str::FromStr for PredicateResult {
    type Err = LineError;

    fn from_str(text: &str) -> Result<Self, LineError> {
        match text {
            "yes" => Ok(Self::Yes),
            "no" => Ok(Self::No),
            "panic" => Ok(Self::Panic),
            _ => Err(LineError::malformed("an answer", &"yes, no and panic are known")),
        }
    }
}

/// The answers of predicates while a machine is called, in order: noted down, or still to be given.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers(Arc<Mutex<VecDeque<PredicateResult>>>);

impl Answers {
    fn queue(&self) -> MutexGuard<'_, VecDeque<PredicateResult>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes all that was said, or not said.
    pub(super) fn take(&self) -> VecDeque<PredicateResult> {
        std::mem::take(&mut *self.queue())
    }

    /// Gives what is to be said.
    pub(super) fn give(&self, answers: impl IntoIterator<Item = PredicateResult>) {
        *self.queue() = answers.into_iter().collect();
    }

    /// Returns the same criteria, whose predicate's answers are noted down.
    pub(super) fn listen_to(&self, criteria: &Criteria) -> Criteria {
        let Some(predicate) = criteria.predicate().cloned() else { return criteria.clone() };
        let answers = self.clone();
        criteria.clone().with_predicate(move |server| {
            let said = catch_unwind(AssertUnwindSafe(|| predicate(server)));
            answers.queue().push_back(match said {
                Ok(true) => PredicateResult::Yes,
                Ok(false) => PredicateResult::No,
                Err(_) => PredicateResult::Panic,
            });
            said.unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    /// Returns the same criteria, with a predicate that answers as recorded; if it is asked more
    /// often than that, it says no.
    fn repeat_for(&self, criteria: Criteria) -> Criteria {
        let answers = self.clone();
        criteria.with_predicate(move |_| {
            let answer = answers.queue().pop_front();
            match answer {
                Some(PredicateResult::Yes) => true,
                Some(PredicateResult::No) | None => false,
                Some(PredicateResult::Panic) => resume_unwind(Box::new("as recorded")),
            }
        })
    }
}
