//! The transactions of a server as it counts them.

use std::time::Duration;

use serde::Serialize;

use crate::duration::{millis, optional_millis};

/// The transactions of a server, and what bears upon them.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::doctor) struct Transactions {
    /// The counts since the server was started: `serverStatus`.
    pub(in crate::doctor) counted: Option<Counted>,
    /// The counts of the time of a second look, if there was a reason for one.
    pub(in crate::doctor) lately: Option<Counted>,
    /// `transactionLifetimeLimitSeconds`.
    #[serde(rename = "limitMS", serialize_with = "optional_millis")]
    pub(in crate::doctor) limit: Option<Duration>,
    /// Those that are open, and in which no command runs: `$currentOp`.
    pub(in crate::doctor) idle: Vec<IdleTransaction>,
    /// The number of those that were aborted for their lifetime in the last hour: `getLog`.
    pub(in crate::doctor) expired: u64,
}

/// The counts of a server in a length of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::doctor) struct Counted {
    /// The length of time.
    #[serde(rename = "timeMS", serialize_with = "millis")]
    pub(in crate::doctor) time: Duration,
    /// The transactions that are open, whatever the time.
    pub(in crate::doctor) open: u64,
    /// The transactions that were committed.
    pub(in crate::doctor) committed: u64,
    /// The transactions that were aborted.
    pub(in crate::doctor) aborted: u64,
    /// The times that a write outside of transactions was tried again.
    pub(in crate::doctor) conflicts: u64,
    /// The commands that write, and have failed as a whole.
    pub(in crate::doctor) failed_writes: u64,
    /// The commits.
    pub(in crate::doctor) commits: u64,
    /// The commits that have failed.
    pub(in crate::doctor) failed_commits: u64,
}

impl Counted {
    /// Returns what was counted after `earlier`.
    pub(in crate::doctor) fn since(self, earlier: Self) -> Self {
        Self {
            time: self.time.saturating_sub(earlier.time),
            open: self.open,
            committed: self.committed.saturating_sub(earlier.committed),
            aborted: self.aborted.saturating_sub(earlier.aborted),
            conflicts: self.conflicts.saturating_sub(earlier.conflicts),
            failed_writes: self.failed_writes.saturating_sub(earlier.failed_writes),
            commits: self.commits.saturating_sub(earlier.commits),
            failed_commits: self.failed_commits.saturating_sub(earlier.failed_commits),
        }
    }

    /// Returns the number of transactions that have ended.
    pub(in crate::doctor) const fn ended(self) -> u64 {
        self.committed.saturating_add(self.aborted)
    }
}

/// A transaction that is open, and in which no command runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::doctor) struct IdleTransaction {
    /// The address of the client, and what that says of itself.
    pub(in crate::doctor) owner: String,
    /// The time for which it is open.
    #[serde(rename = "openMS", serialize_with = "millis")]
    pub(in crate::doctor) open: Duration,
    /// The time since its last command.
    #[serde(rename = "unusedMS", serialize_with = "millis")]
    pub(in crate::doctor) unused: Duration,
}
