//! Operations that wait for a server: woken when one is suitable, and always answered.
//!
//! Implements "Multi-threaded or asynchronous server selection" from the point where an operation
//! has found nothing in the view it read. What differs for a single-threaded client is in `scan`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use serde::Serialize;

use super::evidence::Evidence;
use super::history::History;
use super::{Action, Lifecycle, Topology};
use crate::description::{ServerDescription, ServerType, TopologyType};
use crate::diagnosis::{Check, SelectionError, Trouble, Verdict};
use crate::id::{ServerId, WaiterId};
use crate::selection::Criteria;
use crate::time::{Instant, Time};

/// True if to look again, or why there is no server.
pub(super) type SelectionResult = Result<(), Box<SelectionError>>;

/// An operation that waits.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Waiter {
    #[serde(skip)]
    criteria: Arc<Criteria>,
    since: Instant,
    deadline: Option<Instant>,
}

impl Waiter {
    /// Returns whether the operation cannot wait until `then`.
    pub(super) fn is_out_of_time(&self, then: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= then)
    }
}

/// True if an operation that finds no server may look again later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chance {
    Another,
    Last,
}

impl Topology {
    /// Lets an operation wait, unless it can be answered at once: the view may have changed since
    /// the operation read it.
    pub(super) fn wait(
        &mut self,
        id: WaiterId,
        criteria: Arc<Criteria>,
        deadline: Option<Instant>,
        out: &mut Vec<Action>,
    ) {
        self.abandon(id);
        let waiter = Waiter { criteria, since: self.now.clock, deadline };
        let outcome = match self.scans() {
            true => self.select_before_scan(&waiter),
            false => self.answer_in_time(&waiter),
        };
        if let Some(outcome) = outcome {
            out.push(Action::Wake { waiter: id, outcome });
            return;
        }
        self.waiter_timers.extend(deadline.map(|deadline| (deadline, id)));
        self.waiters.insert(id, waiter);
        self.attend(out);
        self.request_checks(out);
    }

    /// The operation does not wait any more.
    pub(super) fn abandon(&mut self, id: WaiterId) {
        if let Some(deadline) = self.waiters.remove(&id).and_then(|waiter| waiter.deadline) {
            self.waiter_timers.remove(&(deadline, id));
        }
        if !self.is_attended() {
            self.leave_alone();
        }
    }

    /// Wakes every operation that the new view has an answer for, unless all wait for the end of a
    /// scan.
    pub(super) fn wake_waiters(&mut self, out: &mut Vec<Action>) {
        if self.scans() {
            return;
        }
        let answered: Vec<_> = self
            .waiters
            .iter()
            .filter_map(|(id, waiter)| Some((*id, self.answer_in_time(waiter)?)))
            .collect();
        for (waiter, outcome) in answered {
            self.abandon(waiter);
            out.push(Action::Wake { waiter, outcome });
        }
    }

    /// Answers every operation that has waited long enough.
    pub(super) fn time_out_waiters(&mut self, out: &mut Vec<Action>) {
        while let Some(&(deadline, waiter)) = self.waiter_timers.first()
            && deadline <= self.now.judged
        {
            let waiting = self.waiters.get(&waiter);
            let outcome = waiting.and_then(|waiter| self.answer(waiter, Chance::Last));
            self.abandon(waiter);
            out.extend(outcome.map(|outcome| Action::Wake { waiter, outcome }));
        }
    }

    /// Says whether there is a server for an operation, or why there will be none in time; `None`
    /// if it must wait.
    ///
    /// If the application's predicate panics, the operation is to look again, and to panic where
    /// that harms nothing else.
    pub(super) fn answer(&self, waiter: &Waiter, chance: Chance) -> Option<SelectionResult> {
        let judged = catch_unwind(AssertUnwindSafe(|| self.judge(waiter, chance, self.now)));
        judged.unwrap_or(Some(Ok(())))
    }

    /// The same, where the deadline alone decides whether there is another chance.
    fn answer_in_time(&self, waiter: &Waiter) -> Option<SelectionResult> {
        let chance =
            if waiter.is_out_of_time(self.now.judged) { Chance::Last } else { Chance::Another };
        self.answer(waiter, chance)
    }

    fn judge(&self, waiter: &Waiter, chance: Chance, now: Time) -> Option<SelectionResult> {
        let verdict = match self.snapshot.select(&waiter.criteria, |_| 0, 0) {
            _ if self.state == Lifecycle::Closed => Some(Verdict::Closed),
            Ok(Some(_)) => return Some(Ok(())),
            // The operation looks again, and finds that the server that it needs has left.
            Ok(None) if self.has_left(&waiter.criteria) => return Some(Ok(())),
            Ok(None) if chance == Chance::Another => return None,
            Ok(None) => None,
            Err(refusal) => Some(refusal.into()),
        };
        let waited = now.clock - waiter.since;
        Some(Err(Box::new(self.evidence_at(now).explain(&waiter.criteria, verdict, waited))))
    }

    /// Returns whether the only server that will do is no member any more.
    fn has_left(&self, criteria: &Criteria) -> bool {
        criteria.member().is_some_and(|member| self.description.server(member).is_none())
    }

    /// Gathers what explains at `now` why operations find no server. No check begins sooner because
    /// of that, and nothing of it changes when the topology does.
    pub fn evidence(&self, now: Instant) -> Evidence {
        self.evidence_at(self.now.max(now.into()).clock.into())
    }

    /// Gathers what explains why operations of a client find no server that is closed, although
    /// this topology, which it has shared, goes on.
    pub fn evidence_of_closed(&self) -> Evidence {
        Evidence {
            snapshot: self.empty_snapshot(),
            topology_type: TopologyType::default(),
            is_closed: true,
            options: Arc::clone(&self.options),
            history: History::default(),
            troubles: Vec::new(),
            checks: Vec::new(),
            findings: Vec::new(),
            now: self.now.judged,
        }
    }

    fn evidence_at(&self, now: Time) -> Evidence {
        let servers = self.description.servers();
        let Time { judged, clock } = now;
        Evidence {
            snapshot: Arc::clone(&self.snapshot),
            topology_type: self.description.topology_type,
            is_closed: self.state == Lifecycle::Closed,
            options: Arc::clone(&self.options),
            history: self.history.clone(),
            troubles: servers.iter().filter_map(|server| self.trouble(server, judged)).collect(),
            checks: servers.iter().filter_map(|server| self.check_of(server, clock)).collect(),
            findings: self.findings(clock),
            now: judged,
        }
    }

    /// The failure of a server whose checks fail.
    fn trouble(&self, server: &ServerDescription, now: Instant) -> Option<Trouble> {
        let failure = server.error.clone()?;
        let member = self.members.get(&server.id)?;
        let (since, attempts) = member.failing.unwrap_or((now, 1));
        let next = member.monitor.as_ref().and_then(|monitor| self.next_check(monitor));
        Some(Trouble {
            address: server.address.clone(),
            failure,
            since: now - since,
            attempts,
            has_answered: member.has_answered,
            next: next.map(|next| next - now),
        })
    }

    /// The check in progress of a server that is Unknown.
    fn check_of(&self, server: &ServerDescription, clock: Instant) -> Option<Check> {
        let monitor = self.members.get(&server.id)?.monitor.as_ref()?;
        let (started, stage) = monitor.progress()?;
        (server.server_type == ServerType::Unknown).then(|| Check {
            address: server.address.clone(),
            stage,
            lasts: clock - started,
        })
    }

    /// "Immediate topology check": wakes all monitors, or brings the seeds back sooner.
    pub(super) fn request_checks(&mut self, out: &mut Vec<Action>) {
        self.reseed.request(self.now.judged);
        let ids: Vec<ServerId> = self.members.keys().copied().collect();
        for id in ids {
            self.with_monitor(id, out, |monitor, ctx| monitor.request_check(ctx.now.judged));
        }
    }
}
