//! The steps of a client's machines, and what they are judged by.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sdam_core::config::ServerAddress;
use sdam_core::description::ServerType;
use sdam_core::id::{LinkId, ServerId};
use sdam_core::machine::Machine;
use sdam_core::operation::{OperationError, OperationFailure};
use sdam_core::pool::{self, Pool, PoolEvent};
use sdam_core::time::Instant;
use sdam_core::topology::{Action, Event, EventKind, Input, Topology};
use sdam_host::{PoolStep, TopologyStep};

use super::formatting::{brief, names_mechanism};
use super::ledger::{Ledger, Pending, Server};
use super::operation::NO_SECONDARY_OK;
use super::reports::{Report, is_refused_login, is_to_blame, told_by_server};
use crate::sim::coverage::Sign;

/// The number of waiting operations that are a burst.
const BURST: usize = 10;

/// The shortest reply to hello.
const REPLY: usize = 100;

/// Returns how much may be done because of so many replies: each ends a check, begins another one,
/// and changes a view, and each may have other servers join, leave, and be checked.
const fn most_actions(replies: usize, servers: usize) -> u64 {
    const OF_REPLY: usize = 16;
    const OF_SERVER: usize = 10;
    (replies * (OF_REPLY + OF_SERVER * servers)) as u64
}

impl Ledger {
    /// Notes a step of the topology.
    pub(super) fn topology(&mut self, step: &TopologyStep<'_>) {
        match *step {
            TopologyStep::Input { at, input } => {
                self.judge_time(at);
                self.pending = self.input(input);
            }
            TopologyStep::Tick { at, due } => {
                self.judge_time(at);
                self.trace.step(at, || "tick".to_owned());
                if due.is_some_and(|due| due <= at) {
                    self.checks.woken(self.now());
                }
            }
            TopologyStep::Action(action) => self.action(action),
            TopologyStep::Done(topology) => self.done(topology),
        }
    }

    /// No deadline is judged before its time.
    pub(super) fn judge_time(&mut self, at: Instant) {
        let now = self.now();
        if at > now {
            let what = || format!("those until {at:?} are, at {now:?}");
            self.checks.fail("no deadline is judged before its time", what);
        }
    }

    /// The topology is about to take an input; returns what it will be judged by.
    fn input(&mut self, input: &Input<'_>) -> Pending {
        let now = self.now();
        self.trace.step(now, || {
            let words = match input {
                Input::Received { link, bytes } => format!("Received {link} {} bytes", bytes.len()),
                input => format!("{input:?}"),
            };
            words.chars().take(160).collect()
        });
        match input {
            Input::Opened { link } => self.came_on(*link, None),
            Input::Received { link, bytes } => self.came_on(*link, Some(bytes.len())),
            Input::Closed { link, .. } => {
                let pending = self.came_on(*link, None);
                if matches!(pending, Pending::Link { news: Some(_), .. }) {
                    self.checks.note(Sign::MeasuringBroken);
                }
                self.links.remove(link);
                pending
            }
            Input::Wait { waiter, criteria, .. } => {
                self.selecting.insert(*waiter, (Arc::clone(criteria), now));
                self.waits(criteria);
                match self.hesitating.take() {
                    Some(pretends) => {
                        pretends.store(false, Ordering::Relaxed);
                        Pending::Hesitation(*waiter)
                    }
                    None => Pending::None,
                }
            }
            Input::Abandon { waiter } => {
                self.selecting.remove(waiter);
                Pending::None
            }
            Input::Resolved { records } => {
                self.checks.resolving();
                Pending::Lookup(Arc::clone(&self.view), records.clone())
            }
            Input::OperationFailed { server, failure } => self.begin_report(*server, failure),
            _ => Pending::None,
        }
    }

    /// Something has come on a link; if that one only measures round trips, nothing but its own
    /// stream may be affected.
    fn came_on(&self, link: LinkId, bytes: Option<usize>) -> Pending {
        let news = self.measures(link).then(|| self.checks.news());
        let (done, waiting) = (self.actions, self.selecting.len());
        Pending::Link { link, bytes: bytes.unwrap_or(usize::MAX), done, waiting, news }
    }

    /// All that an input, or the time, has brought about was done.
    fn done(&mut self, topology: &Topology) {
        self.deadline = topology.deadline();
        match std::mem::replace(&mut self.pending, Pending::None) {
            Pending::None => {}
            Pending::Link { link, bytes, done, waiting, news } => {
                if bytes < usize::MAX {
                    let done = (self.actions - done).saturating_sub(waiting as u64);
                    self.judge_work(link, bytes, done);
                }
                if news.is_some_and(|news| self.checks.news() > news) {
                    let what = || format!("what came on {link} does");
                    self.checks.fail("measuring round trips changes nothing", what);
                }
            }
            Pending::Lookup(before, answer) => {
                let (now, view) = (self.now(), Arc::clone(&self.view));
                self.checks.resolved(now, &answer, (&before, &view));
            }
            Pending::Report(report) => self.end_report(&report),
            Pending::Hesitation(waiter) => {
                if !self.selecting.contains_key(&waiter) {
                    self.checks.note(Sign::PublishedMeanwhile);
                }
            }
        }
    }

    /// Judges how much was done because of so many bytes, but for who had been waiting.
    pub(super) fn judge_work(&mut self, link: LinkId, bytes: usize, done: u64) {
        let limit = most_actions(bytes / REPLY + 1, self.plan.addresses.len());
        if done > limit {
            let what = || format!("{done} actions, {limit} at most, for {bytes} bytes on {link}");
            self.checks.fail("bounded work for what comes", what);
        }
    }

    /// An action is about to be performed.
    fn action(&mut self, action: &Action) {
        let now = self.now();
        self.actions += 1;
        self.trace.step(now, || format!("   {}", brief(action)));
        let Self { checks, servers, .. } = self;
        checks.action(now, action, |server| servers.get(&server).map(Server::is_ready));
        self.fork_in_the_middle();
        match action {
            Action::Open { link, .. } => {
                self.links.insert(*link);
                self.note_measuring(*link);
            }
            Action::Send { link, bytes } => {
                if self.options.credential().is_some() && names_mechanism(bytes) {
                    self.checks.fail("monitors never log in", || format!("{link} begins to"));
                }
                self.note_measuring(*link);
            }
            Action::Close { link } => drop(self.links.remove(link)),
            Action::Join { server, address } => {
                let joined = Server::new(self.options.pool().clone(), address.clone(), now);
                self.servers.insert(*server, joined);
            }
            Action::Leave { server } => self.leave(*server),
            Action::Publish { snapshot } => self.view = Arc::clone(snapshot),
            Action::Wake { waiter, .. } => drop(self.selecting.remove(waiter)),
            Action::Emit { event } => self.emit(event),
            Action::Resolve { .. } | Action::Pool { .. } => {}
        }
    }

    /// Returns whether a link is the second one of its server, which only measures round trips.
    fn measures(&self, link: LinkId) -> bool {
        let older = self.links.range(..link).next_back();
        older.is_some_and(|older| older.server() == link.server())
    }

    fn note_measuring(&mut self, link: LinkId) {
        if self.measures(link) {
            self.checks.measures(link.server(), self.now());
        }
    }

    pub(super) fn leave(&mut self, id: ServerId) {
        let open = self.links.iter().filter(|link| link.server() == id).count();
        if open > 0 {
            self.checks.fail("nothing of a removed server", || format!("{open} links of {id}"));
        }
        if let Some(server) = self.servers.get_mut(&id) {
            server.left = true;
        }
    }

    /// Notes a step of a pool.
    pub(super) fn pool<C: Debug>(&mut self, id: ServerId, step: &PoolStep<'_, C>) {
        let now = self.now();
        let Some(server) = self.servers.get_mut(&id) else { return };
        match *step {
            PoolStep::Tick { at, due } => {
                server.rings_idly = due.is_some_and(|due| due <= at);
                self.judge_time(at);
            }
            PoolStep::Input(input) => self.pool_input(id, input),
            PoolStep::Action(action) => self.pool_action(id, action),
            PoolStep::Done(pool) => {
                server.deadline = pool.deadline();
                if std::mem::take(&mut server.rings_idly) {
                    let what = || format!("that of {id} does nothing");
                    self.checks.fail("alarms of pools ring for a reason", what);
                }
                if let Err((check, detail)) = server.pool_model.cleared() {
                    self.checks.fail(check, || format!("{id}: {detail}"));
                }
                self.settle_pool(id, pool);
            }
            PoolStep::CheckedOut(check_out, pool) => {
                if let Err((check, detail)) = server.pool_model.checked_out(now, check_out) {
                    self.checks.fail(check, || detail);
                }
                self.settle_pool(id, pool);
            }
            PoolStep::CheckedIn(check_out, pool) => {
                if let Err((check, detail)) = server.pool_model.kept(now, check_out) {
                    self.checks.fail(check, || format!("{id}: {detail}"));
                }
                self.settle_pool(id, pool);
            }
            PoolStep::Published(at, event) => {
                if self.told.is_none() {
                    let what = || format!("{id} emits {event:?}");
                    self.checks.fail("pools without subscribers publish nothing", what);
                }
                self.pool_tells(id, at, event.clone());
            }
        }
    }

    fn pool_input<C>(&mut self, id: ServerId, input: &pool::Input<C>) {
        let now = self.now();
        let Some(server) = self.servers.get_mut(&id) else { return };
        match input {
            pool::Input::CheckOut { .. } => {
                server.is_asked = true;
                // A caller that finds an idle connection gets it, with or without subscribers.
                if server.pool_model.may_lend(now) {
                    let what = || format!("that of {id} is asked, and has a connection");
                    self.checks.fail("pools that have a connection lend it at once", what);
                }
            }
            pool::Input::Established { outcome: Err(error), .. } if error.is_overload() => {
                self.checks.note(Sign::TurnedAway);
            }
            _ => {}
        }
        server.pool_model.input(now, input);
    }

    fn pool_action<C: Debug>(&mut self, id: ServerId, action: &pool::Action<C>) {
        let now = self.now();
        self.trace.step(now, || {
            format!("   {id} {}", format!("{action:?}").chars().take(110).collect::<String>())
        });
        let Some(server) = self.servers.get_mut(&id) else { return };
        server.rings_idly = false;
        if let Err((check, detail)) = server.pool_model.action(now, action) {
            self.checks.fail(check, || format!("{id}: {detail}"));
        }
        if let pool::Action::Emit { at, event } = action {
            self.pool_tells(id, *at, event.clone());
        }
    }

    fn pool_tells(&mut self, id: ServerId, at: Instant, event: PoolEvent) {
        let Some(server) = self.servers.get(&id) else { return };
        let kind = EventKind::Pool { server: id, address: server.address.clone(), event };
        let event = Event::new(self.topology, at, kind);
        self.checks.event(&event);
        self.emit(&event);
    }

    /// Compares the pool's own figures with those of its model.
    fn settle_pool<C>(&mut self, id: ServerId, pool: &Pool<C>) {
        let now = self.now();
        let Some(server) = self.servers.get_mut(&id) else { return };
        server.pool_model.settled(now);
        let counts = pool.counts();
        if let Err(detail) = server.pool_model.compare(counts) {
            self.checks.fail("pool arithmetic", || format!("{id}: {detail}"));
        }
        let is_cold = counts.total() == counts.pending && counts.pending > 1;
        if std::mem::take(&mut server.is_asked) && counts.waiting >= BURST && is_cold {
            self.checks.note(Sign::ColdBurst);
        }
    }

    /// Everybody is to be alive: monitors, and pools.
    /// What is due may be done a little later.
    pub(super) fn audit(&mut self, now: Instant, running_since: Instant, late: Duration) {
        self.checks.audit(now);
        // A single-threaded client does nothing between two operations.
        if self.options.is_single_threaded() {
            return;
        }
        for (id, server) in &self.servers {
            if let Err((check, detail)) = server.pool_model.audit(now, (running_since, late)) {
                self.checks.fail(check, || format!("{id}: {detail}"));
            }
        }
    }

    /// The topology is about to receive a failure; one that is stale is to change nothing.
    pub(super) fn begin_report(&mut self, server: ServerId, failure: &OperationFailure) -> Pending {
        let (error, is_stale) = (failure.error.clone(), self.is_stale(server, failure));
        let counts = !is_stale && !self.options.load_balanced();
        if is_refused_login(&error) && counts {
            self.checks.note(Sign::LoginRefused);
        }
        let blamed = (is_to_blame(&error) && counts).then(|| self.knows(server)).flatten();
        if !is_stale {
            self.reported = self.now();
            let change = told_by_server(&error).map(|change| (self.now(), change));
            if let Some(server) = self.servers.get_mut(&server) {
                server.refused = change.or(server.refused);
            }
        }
        Pending::Report(Box::new(Report {
            server,
            before: Arc::clone(&self.view),
            is_stale,
            clears: self.checks.clears(),
            abandoned: self.checks.abandoned(),
            blamed,
            is_checking: self.checks.is_checking(server),
            known: self.complains_of_its_command(server, &error),
            error,
        }))
    }

    /// The topology has received a failure.
    pub(super) fn end_report(&mut self, report: &Report) {
        let Report { server, error, before, is_stale, clears, abandoned, blamed, .. } = report;
        let is_cleared = self.checks.clears() > *clears;
        let changes = is_cleared || !Arc::ptr_eq(before, &self.view);
        if *is_stale && changes {
            self.checks.fail("stale errors change nothing", || format!("one of {server} does"));
        } else if *is_stale {
            self.checks.note(Sign::StaleErrorIgnored);
        }
        if report.known && changes {
            let what = || format!("{server} was known to be a secondary");
            self.checks.fail("a secondary is one still although the command allows none", what);
        }
        let is_abandoned = self.checks.abandoned() > *abandoned;
        if is_abandoned {
            self.checks.note(Sign::CheckAbandoned);
        }
        if let Some(address) = blamed {
            let is_unchecked = is_abandoned || !report.is_checking;
            self.check_blame(address, error, (is_cleared, is_unchecked));
        }
    }

    /// Returns whether a server says that it is no primary, and is known to be a secondary.
    fn complains_of_its_command(&self, server: ServerId, error: &OperationError) -> bool {
        let OperationError::Reply { error, .. } = error else { return false };
        let known =
            self.servers.get(&server).and_then(|it| self.view.description().server(&it.address));
        error.code == Some(NO_SECONDARY_OK)
            && known.is_some_and(|it| it.server_type == ServerType::RsSecondary)
    }

    fn knows(&self, server: ServerId) -> Option<ServerAddress> {
        self.servers.get(&server).map(|known| known.address.clone())
    }

    /// A server whose connections fail is Unknown, its pool is cleared, and a check of it that is
    /// in progress is given up (SDAM, "Network error when reading or writing", "Authentication
    /// errors"; Server Monitoring, "hello or legacy hello Cancellation").
    pub(super) fn check_blame(
        &mut self,
        address: &ServerAddress,
        error: &OperationError,
        (is_cleared, is_unchecked): (bool, bool),
    ) {
        let seen = self.view.description().server(address).map(|it| it.server_type);
        if let Some(seen) = seen.filter(|seen| *seen != ServerType::Unknown) {
            let what = || format!("{address} is a {seen} after {error}");
            self.checks.fail("a server whose connections fail is Unknown", what);
        }
        if !is_cleared {
            let what = || format!("that of {address} is not, after {error}");
            self.checks.fail("a pool whose connections fail is cleared", what);
        }
        if !is_unchecked {
            let what = || format!("that of {address} goes on, after {error}");
            self.checks.fail("a check ends with the connections of its server", what);
        }
    }

    /// Judges by generation and topologyVersion whether a failure is stale.
    fn is_stale(&self, id: ServerId, failure: &OperationFailure) -> bool {
        let Some(server) = self.servers.get(&id) else { return true };
        let of_past = failure.generation.number() < server.pool_model.generation(failure.service);
        let known = self.view.description().server(&server.address);
        let known = known.and_then(|known| known.topology_version);
        let told = match &failure.error {
            OperationError::Reply { error, .. } => error.topology_version,
            _ => None,
        };
        let of_version = known.zip(told).is_some_and(|(known, told)| {
            known.process_id == told.process_id && told.counter <= known.counter
        });
        server.left || of_past || of_version
    }
}
