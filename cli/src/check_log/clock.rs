//! The time that passes in a log, not counting that in which its process was stopped.

use std::time::Duration;

use super::record::Record;

/// The delay with which concurrent steps may be logged.
pub(super) const REORDERING: Duration = Duration::from_secs(1);

/// The number of lines of a topology that may come before that in a log without times.
pub(super) const REORDERED_RECORDS: usize = 50;

/// The number of lines of a topology that must have come since, however long that took.
pub(super) const FEWEST_RECORDS: usize = 6;

/// The time that servers may be left alone, and checks may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) heartbeat_frequency: Duration,
    pub(super) connect_timeout: Duration,
}

/// The delay of a check by other reasons: other processes, and names with several addresses.
const MARGIN: Duration = Duration::from_secs(2);

impl Limits {
    /// Returns how long after one step of a server's monitor the next has to come.
    pub(super) fn longest_silence(&self) -> Duration {
        self.heartbeat_frequency.saturating_add(self.connect_timeout).saturating_add(MARGIN)
    }
}

/// A clock that goes by the times of a log, and stands still while nothing at all is logged for
/// longer than monitors are silent: a process that was stopped is not late.
#[derive(Debug, Default)]
pub(super) struct Clock {
    last: Option<Duration>,
    awake: Duration,
}

impl Clock {
    /// Goes on to a record, and returns how long the log has been awake, if its lines have times.
    pub(super) fn advance(&mut self, record: &Record, limits: &Limits) -> Option<Duration> {
        let now = record.at?;
        let passed = now.saturating_sub(self.last.unwrap_or(now));
        self.last = Some(now);
        let longest = limits.heartbeat_frequency.saturating_add(MARGIN);
        self.awake = self.awake.saturating_add(passed.min(longest));
        Some(self.awake)
    }
}
