//! The checks that must hold after every step of a client.
//!
//! - [`heartbeats`]: every heartbeat that started ends, one at a time, with the pauses demanded.
//! - [`chain`]: events come in order, and each begins where the last one ended.
//! - [`view`]: what is published may be published.
//! - [`pool_model`]: pools count right, serve in order, and hand nothing out from before a clear.
//! - [`observer`]: what there is to be seen of incidents, which breaks no rule.
//! - [`rescans`]: DNS is asked again when it is time to, and what fails there changes nothing.
//! - [`round_trips`]: round trip times are those of the network.
//! - [`scans`]: single-threaded clients check servers one by one, when an operation needs it.
//! - [`wakeups`]: no client wakes more often than it has reason to.

mod chain;
mod heartbeats;
mod observer;
mod pool_model;
mod rescans;
mod round_trips;
mod scans;
#[cfg(test)]
mod tests;
mod view;
mod wakeups;

use std::sync::Arc;
use std::time::Duration;

use sdam_core::config::{Options, ServerAddress};
use sdam_core::id::ServerId;
use sdam_core::pool::PoolEvent;
use sdam_core::selection::Snapshot;
use sdam_core::time::Instant;
use sdam_core::topology::{Action, Event, EventKind};

pub(super) use pool_model::PoolModel;
pub(super) use scans::COOLDOWN;
pub(super) use view::ELECTION_ID_FIRST;
pub(super) use wakeups::limit as most_wake_ups;

use chain::Chain;
use heartbeats::Heartbeats;
use observer::Observer;
use rescans::Rescans;
use round_trips::RoundTrips;
use scans::Scans;
use view::Views;
use wakeups::WakeUps;

use super::coverage::{Sign, Tally};

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation {
    /// The check that fails.
    pub check: &'static str,
    /// The finding in its place.
    pub detail: String,
}

impl Violation {
    /// The check that fails where something panics.
    pub(super) const PANIC: &str = "nothing panics";

    pub(super) fn new(check: &'static str, detail: impl Into<String>) -> Self {
        Self { check, detail: detail.into() }
    }

    /// Makes one of a panic, with its message.
    pub(super) fn of_panic(panic: &(dyn std::any::Any + Send)) -> Self {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Self::new(Self::PANIC, text.unwrap_or("?"))
    }
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.check, self.detail)
    }
}

/// The finding of a check.
pub(super) type Finding = Result<(), Violation>;

/// Fails a check unless `holds`.
pub(super) fn ensure(holds: bool, check: &'static str, detail: impl FnOnce() -> String) -> Finding {
    if holds { Ok(()) } else { Err(Violation::new(check, detail())) }
}

/// All that is checked of one client.
#[derive(Debug)]
pub(crate) struct Checks {
    violation: Option<Violation>,
    heartbeats: Heartbeats,
    /// True if servers are monitored, which a load balancer is not.
    monitored: bool,
    /// Those of a single-threaded client.
    scans: Option<Scans>,
    chain: Chain,
    views: Views,
    wake_ups: WakeUps,
    round_trips: RoundTrips,
    rescans: Rescans,
    observer: Observer,
    /// The number of actions that others than the far ends of links learn of.
    news: u64,
    /// The number of times that a pool was cleared.
    clears: u64,
    /// Folds in every action, to find out whether two runs are the same.
    digest: u64,
}

impl Checks {
    /// Begins with a client. Of the servers at `addresses` it is known how far away they are, and
    /// whether that is `steady`.
    pub(crate) fn new(
        client: usize,
        options: &Options,
        addresses: Arc<[ServerAddress]>,
        latencies: Vec<Duration>,
        steady: bool,
    ) -> Self {
        let threshold = options.local_threshold();
        Self {
            violation: None,
            heartbeats: Heartbeats::new(options),
            monitored: !options.load_balanced(),
            scans: options.is_single_threaded().then(Scans::default),
            chain: Chain::default(),
            views: Views::default(),
            wake_ups: WakeUps::default(),
            round_trips: RoundTrips::new(addresses, latencies, threshold, steady),
            rescans: Rescans::new(options),
            observer: Observer::default(),
            news: 0,
            clears: 0,
            digest: 0xcbf2_9ce4_8422_2325 ^ client as u64,
        }
    }

    /// Notes what does not hold; the first one counts.
    pub(super) fn fail(&mut self, check: &'static str, detail: impl FnOnce() -> String) {
        self.violation.get_or_insert_with(|| Violation::new(check, detail()));
    }

    fn judge(&mut self, finding: Finding) {
        if let Err(violation) = finding {
            self.violation.get_or_insert(violation);
        }
    }

    pub(crate) const fn take_violation(&mut self) -> Option<Violation> {
        self.violation.take()
    }

    pub(crate) const fn digest(&self) -> u64 {
        self.digest
    }

    pub(super) const fn clears(&self) -> u64 {
        self.clears
    }

    /// Returns what was seen of incidents.
    pub(super) const fn signs(&self) -> &Tally {
        &self.observer.signs
    }

    /// Notes what was seen of an incident.
    pub(super) const fn note(&mut self, sign: Sign) {
        self.observer.signs.note(sign);
    }

    /// Returns how many checks were abandoned.
    pub(super) const fn abandoned(&self) -> u64 {
        self.observer.abandoned
    }

    /// Returns whether a server is being checked.
    pub(super) fn is_checking(&self, server: ServerId) -> bool {
        self.heartbeats.is_checking(server)
    }

    pub(super) const fn news(&self) -> u64 {
        self.news
    }

    /// A link that measures round trips is being opened or used.
    pub(crate) fn measures(&mut self, server: ServerId, now: Instant) {
        self.heartbeats.measures(server, now);
    }

    fn fold(&mut self, bits: u64) {
        self.digest = (self.digest ^ bits).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
    }

    /// The process was stopped for longer than a check may take.
    pub(super) fn paused_for_long(&mut self) {
        self.observer.paused_for_long();
    }

    /// The process goes on after a freeze, in which it could do nothing.
    pub(crate) fn resumed(&mut self, now: Instant) {
        self.heartbeats.resumed(now);
    }

    /// The topology's alarm has rung.
    pub(crate) fn woken(&mut self, now: Instant) {
        self.wake_ups.woken(now);
    }

    /// An application that wants one of the nearest servers has chosen one.
    pub(super) fn chosen(&mut self, view: &Snapshot, index: usize) {
        if self.round_trips.tells_apart(view) {
            self.note(Sign::ToldApart);
        }
        let finding = self.round_trips.chosen(view, index);
        self.judge(finding);
    }

    /// An action of the topology is about to be performed; `is_ready` knows the pools there are.
    pub(crate) fn action(
        &mut self,
        now: Instant,
        action: &Action,
        is_ready: impl Fn(ServerId) -> Option<bool>,
    ) {
        self.fold(now.as_nanos());
        let is_of_link =
            matches!(action, Action::Open { .. } | Action::Send { .. } | Action::Close { .. });
        self.news += u64::from(!is_of_link);
        let finding = match action {
            Action::Open { link, .. } => {
                self.fold(1);
                let bounded = self.wake_ups.opened(link.server(), now);
                let finding = ensure(self.monitored, "load balancers are not monitored", || {
                    format!("{link} is opened")
                });
                finding.and(bounded).and(self.views.link(*link))
            }
            Action::Send { link, bytes } => {
                self.fold(bytes.len() as u64);
                self.views.link(*link)
            }
            Action::Join { server, address } => {
                self.fold(4);
                if self.monitored {
                    self.heartbeats.joined(*server, address);
                }
                self.views.joined(*server)
            }
            Action::Leave { server } => {
                self.fold(5);
                self.scans.iter_mut().for_each(|scans| scans.left(*server));
                self.views.left(*server).and(self.heartbeats.left(*server))
            }
            Action::Pool { server, .. } => {
                self.fold(6);
                self.views.pool(*server)
            }
            Action::Publish { snapshot } => {
                self.fold(snapshot.description().servers().len() as u64);
                let emptied = self.heartbeats.published(snapshot, now);
                let round_trips = self.round_trips.published(snapshot);
                self.chain.published(snapshot.description());
                self.rescans.published(snapshot.description().topology_type);
                let lost = self.views.losses;
                let views = self.views.published(snapshot.description(), is_ready);
                if self.views.losses > lost {
                    self.note(Sign::ConfigurationLost);
                }
                emptied.and(round_trips).and(views)
            }
            Action::Resolve { .. } => {
                self.scans.iter_mut().for_each(|scans| scans.resolves(true));
                self.rescans.begun(now)
            }
            // On one thread an operation whose time is up in a scan takes what is known.
            Action::Wake { outcome, .. } if outcome.is_err() || self.scans.is_some() => {
                self.wake_ups.excused(now);
                Ok(())
            }
            Action::Emit { event } => return self.event(event),
            _ => Ok(()),
        };
        self.judge(finding);
    }

    pub(super) fn event(&mut self, event: &Event) {
        self.observer.event(event, self.heartbeats.is_wanted());
        self.rescans.event(event);
        let finding = match &event.kind {
            EventKind::ServerHeartbeatStarted { server, awaited, .. } => {
                self.fold(7);
                let known = self.views.is_member(*server);
                let member = ensure(known, "nothing of a removed server", || {
                    format!("a check of {server} starts")
                });
                let started = member.and(self.heartbeats.started(*server, *awaited, event.at));
                let scans = self.scans.as_mut();
                started.and(scans.map_or(Ok(()), |scans| scans.started(*server, event.at)))
            }
            EventKind::ServerHeartbeatSucceeded { server, .. } => {
                self.fold(8);
                self.scans.iter_mut().for_each(|scans| scans.ended(*server, None, event.at));
                self.heartbeats.ended(*server, None, event.at)
            }
            EventKind::ServerHeartbeatFailed { server, failure, .. } => {
                self.fold(9);
                let failure = Some(failure);
                self.scans.iter_mut().for_each(|scans| scans.ended(*server, failure, event.at));
                self.heartbeats.ended(*server, failure, event.at)
            }
            kind => {
                self.fold(10);
                if let EventKind::ServerDescriptionChanged { new, .. } = kind {
                    self.heartbeats.changed(new, event.at);
                }
                self.clears += u64::from(matches!(
                    kind,
                    EventKind::Pool { event: PoolEvent::PoolCleared { .. }, .. }
                ));
                self.chain.event(kind)
            }
        };
        self.judge(finding);
    }

    /// A step is over, and everything it brought about is done.
    pub(crate) fn after_step(
        &mut self,
        now: Instant,
        deadline: Option<Instant>,
        closed: bool,
        view: &Snapshot,
        wanted: bool,
    ) {
        let servers = view.description().servers().len();
        self.heartbeats.wanted(wanted && self.scans.is_none(), now);
        let finding =
            self.wake_ups.judge(now, servers).and_then(|()| self.heartbeats.after_step(now));
        let told = self.chain.after_step();
        self.judge(finding.and(told));
        if closed {
            return;
        }
        if !self.monitored {
            let finding = ensure(deadline.is_none() && !wanted, "load balancers suit all", || {
                format!("somebody waits: {wanted}, and the next deadline is {deadline:?}")
            });
            self.judge(finding);
        } else if let Some(scans) = &self.scans {
            let finding = scans.after_step(now, deadline, wanted);
            self.judge(finding);
        } else {
            let finding = ensure(deadline.is_some(), "monitors never all stop", || {
                "nothing is due while the client is open".to_owned()
            });
            let rescans = self.rescans.after_step(deadline);
            self.judge(finding.and(self.heartbeats.begins_again(now)).and(rescans));
        }
    }

    /// Every check-out of a connection and every return has an event.
    pub(super) const fn lends_aloud(&mut self) {
        self.chain.lends_aloud();
    }

    /// Everything has ended.
    pub(super) fn ended(&self) -> Finding {
        self.chain.ended()
    }

    /// Returns whether a single-threaded client may have ended a scan of so many servers since.
    pub(super) fn has_scanned(&self, since: Instant, now: Instant, servers: usize) -> bool {
        self.scans.as_ref().is_some_and(|scans| scans.has_scanned(since, now, servers))
    }

    /// Every server's monitor is to check it often enough, whatever happens.
    pub(crate) fn audit(&mut self, now: Instant) {
        if self.scans.is_none() {
            let finding = self.heartbeats.audit(now).and(self.heartbeats.begins_again(now));
            self.judge(finding);
        }
    }

    /// The client was closed.
    pub(crate) fn closed(&mut self, deadline: Option<Instant>, links: usize) {
        let finding = ensure(deadline.is_none() && links == 0, "a closed client rests", || {
            format!("{links} links are open, and {deadline:?} is the deadline")
        });
        let finding = finding.and(self.heartbeats.over()).and(self.chain.over());
        self.judge(finding);
    }
}
