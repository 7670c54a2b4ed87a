//! Priority takeover: the member that wants to be primary most does not leave it to another.

use std::cmp::Reverse;

use sdam_core::time::Instant;

use super::{Action, Cluster, later};
use crate::options::MemberId;

impl Cluster {
    /// Sets the timer of a takeover if a member that follows the primary has a higher priority.
    ///
    /// As on real servers it waits for an election timeout, give or take, and for one more for each
    /// rank of priority above its own.
    pub(super) fn consider_takeover(&mut self, now: Instant) {
        let challenger = self.challenger();
        if self.takeover.map(|(_, member)| member) == challenger {
            return;
        }
        self.takeover = challenger.and_then(|member| {
            let ranks = self.config.priority_rank(member).saturating_add(1);
            let delay = self.options.election_timeout.saturating_mul(ranks);
            let delay = delay + self.election_offset();
            let free = self.process(member)?.abstains_until;
            Some((later(now.max(free), delay)?, member))
        });
    }

    /// The member runs for election, and the primary, which sees the new term, steps down.
    pub(super) fn take_over(&mut self, now: Instant, member: MemberId, out: &mut Vec<Action>) {
        self.takeover = None;
        if let Some(primary) = self.primary().filter(|_| self.has_majority()) {
            self.demote(now, primary, out);
            self.elect(now, member, out);
        }
    }

    /// Returns the member that wants to be primary most of those that want it more than the one
    /// that is.
    fn challenger(&self) -> Option<MemberId> {
        let primary = self.primary()?;
        let own = self.config.priority(primary);
        self.processes()
            .filter(|(member, process)| self.is_candidate(*member, process))
            .filter(|(_, process)| process.primary == Some(primary))
            .map(|(member, _)| (self.config.priority(member), Reverse(member)))
            .filter(|(priority, _)| *priority > own)
            .max()
            .map(|(_, Reverse(member))| member)
    }
}
