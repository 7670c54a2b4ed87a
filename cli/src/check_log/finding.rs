//! The findings in a log, and the counts made on the way.

use std::time::Duration;

use serde::Serialize;

use super::record::Record;
use super::rule::Rule;
use crate::findings::{Allowed, Breach};

/// A rule that is broken, what was to be expected, and what was found.
pub(super) type Broken = Breach<Rule>;

/// A step that breaks a rule.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    /// The line of the step; of one that is stuck, that where it stands still.
    pub(super) line: usize,
    /// The time when that was written, since the earliest of the log.
    pub(super) at: Option<Duration>,
    /// The number of the topology.
    pub(super) topology: usize,
    pub(super) broken: Broken,
}

impl Finding {
    /// Describes what is wrong with a line of a topology.
    pub(super) const fn of(record: &Record, topology: usize, broken: Broken) -> Self {
        Self { line: record.line, at: record.at, topology, broken }
    }
}

/// The counts of a log's contents.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Counts {
    pub(super) lines: usize,
    pub(super) passed_over: usize,
    pub(super) unreadable: usize,
    pub(super) topologies: usize,
    pub(super) heartbeats: usize,
    pub(super) failed_heartbeats: usize,
    pub(super) description_changes: usize,
    /// Changes that were explained by the error of an operation.
    pub(super) operation_errors: usize,
    /// Changes that could not be compared with ours.
    pub(super) not_compared: usize,
    /// The line of the first of those, and why.
    #[serde(skip)]
    pub(super) first_not_compared: Option<(usize, &'static str)>,
    /// Changes of what is known of single servers.
    #[serde(skip)]
    pub(super) server_changes: usize,
    /// Those whose description could not be read, and the line of the first.
    #[serde(skip)]
    pub(super) unread_servers: (usize, Option<usize>),
    /// True if descriptions say why servers are Unknown, so that the rules about that were checked.
    pub(super) tells_errors: bool,
    /// True if lines have the time when they were written, so that the rules about time were
    /// checked.
    pub(super) timed: bool,
    /// The findings that are allowed, by rule.
    pub(super) allowed: Allowed,
}

impl Counts {
    /// Counts a change that cannot be compared.
    pub(super) fn not_compared(&mut self, line: usize, reason: &'static str) {
        self.not_compared += 1;
        self.first_not_compared.get_or_insert((line, reason));
    }

    /// Counts a change of what is known of a server; of one that cannot be read, this is the line.
    pub(super) fn server_changed(&mut self, unread: Option<usize>) {
        self.server_changes += 1;
        let (count, first) = &mut self.unread_servers;
        *count += usize::from(unread.is_some());
        *first = first.or(unread);
    }

    /// Returns how many changes could not be compared, of how many, the line of the first of them,
    /// and why. Where no topology is described, servers are all that there is to compare.
    pub(super) fn missing(&self) -> Option<(usize, usize, usize, &'static str)> {
        if self.description_changes == 0 {
            let (count, first) = self.unread_servers;
            return first.map(|line| (count, self.server_changes, line, "its form is not known"));
        }
        let (line, reason) = self.first_not_compared?;
        Some((self.not_compared, self.description_changes, line, reason))
    }

    /// Returns whether most changes could not be compared: that nothing was found says little then.
    pub(super) fn is_blind(&self) -> bool {
        self.missing().is_some_and(|(count, of, ..)| count * 2 > of)
    }
}
