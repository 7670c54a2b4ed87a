//! Metrics of operations and of the commands that they send.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::definition::{self, Definition, ERROR, OPERATION, SYSTEM};
use super::family::{Families, Labels};
use super::histogram::Histogram;
use super::{MAX_ERRORS, MAX_OPERATIONS, OTHER};
use crate::command::CommandEvent;
use crate::operation::OperationError;

/// The maximum length of a command's name that can be a label; longer ones are none.
const MAX_NAME_LEN: usize = 64;

/// The names of commands that are distinguished.
#[derive(Clone, Debug)]
pub(super) struct Names {
    known: BTreeSet<Arc<str>>,
    /// The name of all others.
    other: Arc<str>,
}

/// The times that operations took, or the commands that they sent, by name and outcome.
#[derive(Clone, Debug, Default)]
pub(super) struct Operations {
    /// Sorted by name: a look for one is all that counting takes.
    outcomes: Vec<(Arc<str>, Outcomes)>,
}

/// The times that commands of one name took.
#[derive(Clone, Debug)]
struct Outcomes {
    succeeded: Histogram,
    failed: BTreeMap<ErrorType, Histogram>,
}

/// The cause of a failure, as far as labels distinguish causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ErrorType {
    /// The cause has this name.
    Named(&'static str),
    /// The server has replied with this number.
    Code(i32),
}

impl Default for Names {
    fn default() -> Self {
        Self { known: BTreeSet::new(), other: OTHER.into() }
    }
}

impl Names {
    /// Returns the label for the name of a command.
    pub(super) fn label(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.known.get(name) {
            return Arc::clone(known);
        }
        if self.known.len() >= MAX_OPERATIONS || !is_label(name) {
            return Arc::clone(&self.other);
        }
        let name: Arc<str> = name.into();
        self.known.insert(Arc::clone(&name));
        name
    }
}

/// Returns whether a command's name can be a label of its own.
fn is_label(name: &str) -> bool {
    name != OTHER
        && (1..=MAX_NAME_LEN).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

impl Operations {
    /// Counts a command that has ended.
    pub(super) fn note(&mut self, name: &str, event: &CommandEvent) {
        match event {
            CommandEvent::CommandStarted { .. } => {}
            CommandEvent::CommandSucceeded { duration, .. } => self.observe(name, *duration, None),
            CommandEvent::CommandFailed { duration, failure } => {
                self.observe(name, *duration, Some((&**failure).into()));
            }
        }
    }

    /// Counts one that took this time.
    pub(super) fn observe(&mut self, name: &str, time: Duration, error: Option<ErrorType>) {
        let outcomes = self.outcomes(name);
        match error {
            None => outcomes.succeeded.observe(time),
            Some(error) => outcomes.of(error).observe(time),
        }
    }

    /// Adds what others have counted, by names that are distinguished.
    pub(super) fn add(&mut self, others: Self, names: &mut Names) {
        for (name, others) in others.outcomes {
            let outcomes = self.outcomes(&names.label(&name));
            outcomes.succeeded.add(&others.succeeded);
            for (error, times) in others.failed {
                outcomes.of(error).add(&times);
            }
        }
    }

    /// Returns the outcomes of commands of a name, of which a limited number is distinguished.
    fn outcomes(&mut self, name: &str) -> &mut Outcomes {
        let place = match self.place(name) {
            Err(place) if self.has_room_for(name) => {
                self.outcomes.insert(place, (name.into(), Outcomes::new()));
                place
            }
            Err(_) => self.others(),
            Ok(place) => place,
        };
        &mut self.outcomes[place].1
    }

    /// Returns the place of those that are not distinguished.
    fn others(&mut self) -> usize {
        self.place(OTHER).unwrap_or_else(|place| {
            self.outcomes.insert(place, (OTHER.into(), Outcomes::new()));
            place
        })
    }

    /// Returns the place of a name, or the one where it would be.
    fn place(&self, name: &str) -> Result<usize, usize> {
        self.outcomes.binary_search_by(|(known, _)| (**known).cmp(name))
    }

    fn has_room_for(&self, name: &str) -> bool {
        let others = usize::from(self.place(OTHER).is_ok());
        self.outcomes.len() - others < MAX_OPERATIONS && is_label(name)
    }

    /// Adds the metrics of those that a server with these labels was sent.
    pub(super) fn collect(
        &self,
        definition: &'static Definition,
        server: &Labels,
        out: &mut Families,
    ) {
        for (name, outcomes) in &self.outcomes {
            let own = [(OPERATION, name.to_string()), (SYSTEM, "mongodb".to_owned())];
            outcomes.collect(definition, &[&own, &server[..]].concat(), out);
        }
    }
}

impl Outcomes {
    fn new() -> Self {
        let succeeded = Histogram::new(&definition::OPERATION_DURATION);
        Self { succeeded, failed: BTreeMap::new() }
    }

    /// Returns the times of those that have failed with this error, of which a limited number is
    /// distinguished.
    fn of(&mut self, error: ErrorType) -> &mut Histogram {
        let is_told_apart = self.failed.len() < MAX_ERRORS || self.failed.contains_key(&error);
        let error = if is_told_apart { error } else { ErrorType::Named(OTHER) };
        let times = || Histogram::new(&definition::OPERATION_DURATION);
        self.failed.entry(error).or_insert_with(times)
    }

    fn collect(&self, definition: &'static Definition, labels: &Labels, out: &mut Families) {
        if self.succeeded.count() > 0 {
            out.distribution(definition, labels, self.succeeded.distribution());
        }
        for (error, times) in &self.failed {
            let labels = [&labels[..], &[(ERROR, error.text())]].concat();
            out.distribution(definition, &labels, times.distribution());
        }
    }
}

impl From<&OperationError> for ErrorType {
    fn from(error: &OperationError) -> Self {
        match error {
            OperationError::Stream(failure) => Self::Named(failure.cause.name()),
            OperationError::Reply { error, .. } => {
                error.code.map_or(Self::Named(OTHER), Self::Code)
            }
            OperationError::Invalid(_) => Self::Named("invalid"),
        }
    }
}

impl ErrorType {
    fn text(self) -> String {
        match self {
            Self::Named(name) => name.to_owned(),
            Self::Code(code) => code.to_string(),
        }
    }
}
