//! The primary: starts, kills, step-downs, elections, and how the members hear of them.

use std::time::Duration;

use bson::oid::ObjectId;
use sdam_core::bson;
use sdam_core::time::Instant;

use super::{Action, Cluster, ClusterEvent, Member, OpTime, Process, Role};
use crate::options::{Deployment, MemberId};

/// The interval at which an idle primary writes an entry into the oplog, as real servers do.
pub(crate) const NOOP_INTERVAL: Duration = Duration::from_secs(10);

/// For how many election timeouts a primary that was asked to step down does not take over again:
/// real ones for 60 s, where an election timeout is 10 s.
const ABSTENTION: u32 = 6;

/// Returns `delay` after `now`, or `None` where time ends before that.
pub(crate) fn later(now: Instant, delay: Duration) -> Option<Instant> {
    Some(now + delay).filter(|at| *at > now)
}

impl Cluster {
    /// Returns the member that is primary, if there is one.
    pub fn primary(&self) -> Option<MemberId> {
        self.elected().map(|(member, _)| member)
    }

    /// Returns the election term: how many primaries there have been.
    pub const fn term(&self) -> i64 {
        self.term
    }

    /// Starts all members; the first election need not wait for a timeout.
    pub(super) fn begin(&mut self, now: Instant, out: &mut Vec<Action>) {
        for index in 0..self.members.len() {
            self.start(now, MemberId(index), out);
        }
        if self.options.deployment.has_set() {
            self.election_at = self.shortly(now);
        }
    }

    /// Starts the process of a member that is down.
    pub(super) fn start(&mut self, now: Instant, member: MemberId, out: &mut Vec<Action>) {
        if self.members.get(member.0).is_none_or(|it| it.process.is_some()) {
            return;
        }
        let process_id = self.new_process_id(now);
        let Member { version, config, .. } = &self.members[member.0];
        let role = Role::configured(config.as_ref().and_then(|config| config.get(member)));
        let mut process = Process::new(*version, now, process_id, role, self.next_news(now));
        if !self.options.deployment.has_set() {
            let is_mongos = self.options.deployment.has_mongos();
            process.role = if is_mongos { Role::Mongos } else { Role::Standalone };
            process.learns_at = None;
        } else if role == Role::Startup {
            process.synced_at = self.sync_end(now, member);
        }
        if self.options.deployment == Deployment::LoadBalanced {
            process.service_id = Some(self.new_process_id(now));
        }
        self.members[member.0].process = Some(process);
        self.revision += 1;
        out.push(Action::Listen { member });
        self.review(now);
    }

    /// Ends the process of a member that is up, and with it its connections.
    pub(super) fn kill(&mut self, now: Instant, member: MemberId, out: &mut Vec<Action>) {
        if self.process(member).is_none() {
            return;
        }
        self.catch_up(now);
        let was_primary = self.primary() == Some(member);
        self.members[member.0].process = None;
        self.forget_transactions(member);
        self.revision += 1;
        out.push(Action::Unlisten { member });
        self.close_all(member, out);
        if was_primary {
            self.forget_unheard(member);
            self.spread_news(now);
        }
        self.review(now);
    }

    /// Makes a primary a secondary at once, if `member` is one, as it was asked to be.
    pub(crate) fn step_down(&mut self, now: Instant, member: MemberId, out: &mut Vec<Action>) {
        if self.primary() == Some(member) {
            self.leave_office(now, member, out);
            let abstention = self.options.election_timeout * ABSTENTION;
            let process = self.process_mut(member).expect("a primary runs");
            process.abstains_until = now + abstention;
        } else if self.is_stale_primary(member) {
            self.retire(now, member, out);
        }
    }

    /// The primary becomes a secondary, and another is elected soon if it can be.
    fn leave_office(&mut self, now: Instant, member: MemberId, out: &mut Vec<Action>) {
        self.demote(now, member, out);
        self.stood_down = Some(member);
        self.election_at = match self.has_majority() {
            true => self.shortly(now),
            false => None,
        };
        self.spread_news(now);
    }

    /// Takes its office from the primary.
    pub(super) fn demote(&mut self, now: Instant, member: MemberId, out: &mut Vec<Action>) {
        self.catch_up(now);
        self.takeover = None;
        self.retire(now, member, out);
    }

    /// Makes a primary a secondary, whether the others still follow it or not.
    pub(super) fn retire(&mut self, now: Instant, member: MemberId, out: &mut Vec<Action>) {
        let process = self.process_mut(member).expect("a primary runs");
        process.role = Role::Secondary;
        process.primary = None;
        self.lose_transactions(member);
        self.data_is_new = true;
        out.push(Action::Publish { event: ClusterEvent::SteppedDown { member } });
        self.bump(now, member, out);
    }

    /// The election timer has run out: elects a primary, or takes its office from one that has
    /// lost the majority.
    pub(super) fn hold_election(&mut self, now: Instant, out: &mut Vec<Action>) {
        self.election_at = None;
        match (self.primary(), self.candidate()) {
            (Some(primary), _) => self.leave_office(now, primary, out),
            (None, Some(winner)) => self.elect(now, winner, out),
            (None, None) => self.review(now),
        }
    }

    /// The member hears from the others; a starting one that has data has caught up by then.
    pub(super) fn learn(&mut self, now: Instant, member: MemberId, out: &mut Vec<Action>) {
        if self.members[member.0].cut_off {
            return self.give_up_others(now, member, out);
        }
        if self.is_stale_primary(member) {
            self.retire(now, member, out);
        }
        let (primary, next) = (self.primary(), self.next_news(now));
        let adopted = self.adopt(now, member, out);
        let has_data = self.members[member.0].has_data;
        let Some(process) = self.process_mut(member) else {
            return;
        };
        process.learns_at = None;
        if adopted {
            process.learns_at = next;
            self.bump(now, member, out);
            self.review(now);
        } else if process.role == Role::Startup && has_data {
            process.role = Role::Secondary;
            process.learns_at = next;
            self.bump(now, member, out);
        } else if process.primary != primary && process.role != Role::Unconfigured {
            process.primary = primary;
            self.bump(now, member, out);
            self.consider_takeover(now);
        }
        self.admit_newly_added(now, out);
    }

    /// Returns the last entry in the oplog of `member`.
    pub(crate) fn last_write(&self, now: Instant, member: MemberId) -> OpTime {
        match self.newest_write(now) {
            Some((primary, newest)) if self.members[member.0].follows(primary) => newest,
            _ => self.members[member.0].applied,
        }
    }

    pub(super) fn elect(&mut self, now: Instant, member: MemberId, out: &mut Vec<Action>) {
        self.term += 1;
        self.stood_down = None;
        self.election_at = None;
        self.catch_up_data(member);
        self.data_is_new = true;
        let term = self.term;
        let process = self.process_mut(member).expect("a candidate runs");
        process.role = Role::Primary { since: now, term };
        process.primary = Some(member);
        process.learns_at = None;
        out.push(Action::Publish { event: ClusterEvent::Elected { member, term } });
        self.begin_term(now, member);
        self.spread_news(now);
        self.bump(now, member, out);
        self.admit_newly_added(now, out);
        self.consider_takeover(now);
    }

    /// Draws a winner among the electable secondaries with the newest oplog; who has just stepped
    /// down wins only if there is no other, and chooses those who want it most.
    fn candidate(&mut self) -> Option<MemberId> {
        let secondaries: Vec<MemberId> = self
            .processes()
            .filter(|(member, process)| self.is_candidate(*member, process))
            .map(|(member, _)| member)
            .collect();
        let applied = |member: &MemberId| {
            let member = &self.members[member.0];
            (member.data.last(), member.applied)
        };
        let newest = secondaries.iter().map(applied).max()?;
        let up_to_date = secondaries.iter().filter(|it| applied(it) == newest);
        let mut candidates: Vec<MemberId> = up_to_date.copied().collect();
        if candidates.len() > 1 {
            candidates.retain(|member| Some(*member) != self.stood_down);
        }
        if self.stood_down.is_some() {
            let most = candidates.iter().map(|it| self.config.priority(*it)).max();
            candidates.retain(|it| Some(self.config.priority(*it)) == most);
        }
        let count = u64::try_from(candidates.len()).expect("at most MAX_MEMBERS");
        let drawn = self.rng.next_u64() % count;
        candidates.get(usize::try_from(drawn).ok()?).copied()
    }

    pub(super) fn is_candidate(&self, member: MemberId, process: &Process) -> bool {
        let follows = process.role == Role::Secondary && !self.members[member.0].cut_off;
        follows && !process.is_ending() && self.config.priority(member) > 0
    }

    /// Sets the timers of an election and of a takeover if there is something to decide, and stops
    /// them if not.
    pub(super) fn review(&mut self, now: Instant) {
        if !self.options.deployment.has_set() {
            return;
        }
        self.election_at = match self.primary().is_some() == self.has_majority() {
            true => None,
            false => self.election_at.or_else(|| {
                let timeout = self.options.election_timeout;
                let delay = timeout + self.election_offset();
                later(now, delay)
            }),
        };
        self.consider_takeover(now);
    }

    /// Draws how much later than at the election timeout a member runs.
    pub(super) fn election_offset(&mut self) -> Duration {
        drawn(&mut self.rng, self.options.election_timeout * 3 / 20)
    }

    pub(super) fn has_majority(&self) -> bool {
        let configured = self.processes().filter(|(_, it)| it.role != Role::Unconfigured);
        let votes = |it: MemberId| self.config.votes(it) && !self.members[it.0].cut_off;
        configured.filter(|(it, _)| votes(*it)).count() * 2 > self.config.voters()
    }

    fn elected(&self) -> Option<(MemberId, Instant)> {
        self.processes().find_map(|(member, process)| match process.role {
            Role::Primary { since, term } => {
                let is_followed = term == self.term && !self.members[member.0].cut_off;
                is_followed.then_some((member, since))
            }
            _ => None,
        })
    }

    /// The primary, and the last entry it has written; nothing lags behind.
    fn newest_write(&self, now: Instant) -> Option<(MemberId, OpTime)> {
        let (primary, since) = self.elected()?;
        let idle = (now - since).as_nanos() % NOOP_INTERVAL.as_nanos();
        let idle = u64::try_from(idle).expect("less than the interval");
        let at = Instant::from_nanos(now.as_nanos() - idle);
        let term = self.term;
        Some((primary, OpTime { term, at }))
    }

    /// Records how far the members have come, because they are about to lose their primary.
    pub(super) fn catch_up(&mut self, now: Instant) {
        if let Some((primary, newest)) = self.newest_write(now) {
            let followers = self.members.iter_mut().filter(|it| it.follows(primary));
            followers.for_each(|member| member.applied = newest);
        }
    }

    /// Every member but the primary, and those that are cut off, hears soon of a change.
    pub(super) fn spread_news(&mut self, now: Instant) {
        let primary = self.primary();
        for index in 0..self.members.len() {
            let next = self.next_news(now);
            let Member { process, cut_off, .. } = &mut self.members[index];
            let hears = Some(MemberId(index)) != primary && !*cut_off;
            if let Some(process) = process.as_mut().filter(|_| hears) {
                process.learns_at = process.learns_at.or(next);
            }
        }
    }

    pub(super) fn next_news(&mut self, now: Instant) -> Option<Instant> {
        let half = self.options.election_timeout / 40;
        later(now, half + drawn(&mut self.rng, half))
    }

    fn shortly(&mut self, now: Instant) -> Option<Instant> {
        let twentieth = self.options.election_timeout / 20;
        later(now, twentieth * 2 + drawn(&mut self.rng, twentieth))
    }

    /// The standard layout of an ObjectId: a time, a random value, and a counter, here random too.
    fn new_process_id(&mut self, now: Instant) -> ObjectId {
        let seconds = self.wall_millis(now).div_euclid(1000);
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&seconds.to_be_bytes()[4..]);
        bytes[4..].copy_from_slice(&self.rng.next_u64().to_be_bytes());
        ObjectId::from_bytes(bytes)
    }
}

/// Draws a duration less than `limit`.
fn drawn(rng: &mut sdam_core::rng::Rng, limit: Duration) -> Duration {
    let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(rng.next_u64() % limit.max(1))
}
