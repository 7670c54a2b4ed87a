//! The faults that a client cannot help, as they are its servers' or its runtime's doing.

use std::time::Duration;

use super::Heartbeats;
use crate::sim::checks::Checks;

impl Checks {
    /// Servers stream a reply only when it is time or there is news: what is more is the client's
    /// doing.
    pub(in crate::sim) const fn trust_servers(&mut self) {
        self.heartbeats.orderly = true;
    }

    /// Servers stream whatever they like, also what answers a question before it arrives.
    pub(in crate::sim) fn distrust_servers(&mut self) {
        self.heartbeats.orderly = false;
        self.round_trips.disbelieve();
    }

    /// Allows that deadlines are late by so much, because the alarm rings late.
    pub(in crate::sim) fn alarms_may_be_late(&mut self, late: Duration) {
        self.heartbeats.late = late;
        self.reads_late();
    }

    /// A reply that is read when something else is overdue, for instance because the process was
    /// stopped, counts as one that came when that was due, however long the network takes.
    pub(in crate::sim) fn reads_late(&mut self) {
        self.round_trips.disbelieve();
    }
}

impl Heartbeats {
    /// Trusts servers.
    #[cfg(test)]
    pub(super) const fn trust_servers(&mut self) {
        self.orderly = true;
    }
}
