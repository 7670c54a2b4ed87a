//! Partitions of the members' own network: one is cut off from the others, and clients still reach
//! all of them.

use sdam_core::time::Instant;

use super::{Action, Cluster, Role, later};
use crate::options::MemberId;

impl Cluster {
    /// Cuts a member off from the others. They miss it after the election timeout; a primary
    /// notices half of that later, so that for a while there are two of them.
    pub(super) fn cut(&mut self, now: Instant, member: MemberId) {
        let known = self.members.get(member.0).filter(|it| !it.cut_off);
        if !self.options.deployment.has_set() || known.is_none() || self.config.voters() < 2 {
            return;
        }
        self.catch_up(now);
        let timeout = self.options.election_timeout;
        let was_primary = self.primary() == Some(member);
        self.members[member.0].cut_off = true;
        if was_primary {
            self.forget_unheard(member);
        }
        if let Some(process) = self.process_mut(member) {
            process.learns_at = match process.role {
                Role::Startup => process.learns_at,
                Role::Primary { .. } => later(now, timeout * 3 / 2),
                _ => later(now, timeout),
            };
        }
        self.revision += 1;
        self.review(now);
    }

    /// Connects a member with the others again. A primary that was not replaced goes on; one that
    /// was hears of it soon.
    pub(super) fn heal(&mut self, now: Instant, member: MemberId) {
        if self.members.get(member.0).is_none_or(|it| !it.cut_off) {
            return;
        }
        self.members[member.0].cut_off = false;
        self.revision += 1;
        let (next, goes_on) = (self.next_news(now), self.primary() == Some(member));
        let own = self.members[member.0].config.clone();
        if let Some(own) = own.filter(|it| goes_on && it.version > self.config.version) {
            // The change that it alone had heard of holds after all.
            self.config = own;
        }
        if let Some(process) = self.process_mut(member) {
            process.learns_at = next.filter(|_| !goes_on);
        }
        if goes_on {
            self.spread_news(now);
        }
        self.review(now);
    }

    /// Returns whether one member reaches another, if both run.
    pub(crate) fn reaches(&self, from: MemberId, to: MemberId) -> bool {
        from == to || !(self.members[from.0].cut_off || self.members[to.0].cut_off)
    }

    /// Returns whether the member believes to be primary but has lost the others, or was replaced.
    pub(super) fn is_stale_primary(&self, member: MemberId) -> bool {
        let role = self.process(member).map(|process| process.role);
        matches!(role, Some(Role::Primary { .. })) && self.primary() != Some(member)
    }

    /// A member that is cut off has not heard from the others for so long that it gives them up;
    /// one that has just started follows no primary.
    pub(super) fn give_up_others(&mut self, now: Instant, id: MemberId, out: &mut Vec<Action>) {
        let has_data = self.members[id.0].has_data;
        let Some(process) = self.process_mut(id) else {
            return;
        };
        process.learns_at = None;
        match process.role {
            Role::Primary { .. } => return self.retire(now, id, out),
            Role::Startup if has_data => process.role = Role::Secondary,
            _ if process.primary.is_some() => process.primary = None,
            _ => return,
        }
        self.bump(now, id, out);
    }
}
