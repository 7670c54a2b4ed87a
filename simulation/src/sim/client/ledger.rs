//! The notes about a client while its machines work: all that checks judge it by.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Debug;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sdam_core::config::{MIN_HEARTBEAT_FREQUENCY, Options, PoolOptions, ServerAddress};
use sdam_core::description::TopologyDescription;
use sdam_core::diagnosis::SelectionError;
use sdam_core::dns::DnsError;
use sdam_core::dns::srv::SrvRecord;
use sdam_core::failure::{Cause, Failure};
use sdam_core::id::{LinkId, ServerId, TopologyId, WaiterId};
use sdam_core::operation::{CommandError, StateChange};
use sdam_core::selection::{Criteria, Snapshot};
use sdam_core::time::Instant;
use sdam_core::topology::inherited_options;
use sdam_core::topology::{Event, EventKind};
use sdam_host::{PoolStep, TopologyStep};

use super::documents::Documents;
use super::operation::{GaveUp, Look, Operation, OperationId, Phase};
use super::reports::Report;
use crate::sim::checks::{Checks, PoolModel, Violation, most_wake_ups};
use crate::sim::coverage::Sign;
use crate::sim::plan::ClientPlan;
use crate::sim::runtime::{Clock, Observer};
use crate::sim::trace::Trace;

/// WriteConcernFailed: too few members have what was written.
const WRITE_CONCERN_FAILED: i32 = 64;

/// The judgement of an input that is due when all that it brings about is done.
#[derive(Debug)]
pub(super) enum Pending {
    None,
    /// Something has come on a link: what had been done before, and how many operations waited; and
    /// if the link only measures round trips, how much there had been to send to others.
    Link {
        link: LinkId,
        bytes: usize,
        done: u64,
        waiting: usize,
        news: Option<u64>,
    },
    /// A lookup has ended.
    Lookup(Arc<Snapshot>, Result<Vec<SrvRecord>, DnsError>),
    /// An operation has failed.
    Report(Box<Report>),
    /// An operation that takes its time waits at last.
    Hesitation(WaiterId),
}

/// The violation, the selection that gave up, and the process that was forked off.
type Findings = (Option<Violation>, Option<GaveUp>, Option<(Arc<Options>, u64)>);

/// An operation that waits, what for, and since when.
type Wait = (OperationId, Arc<Criteria>, Instant);

/// A server and its pool.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) pool_model: PoolModel,
    pub(super) address: ServerAddress,
    pub(super) joined: Instant,
    pub(super) left: bool,
    /// The time when it last answered an operation with a state change, unless that was stale.
    pub(super) refused: Option<(Instant, StateChange)>,
    /// The time when the pool is due.
    pub(super) deadline: Option<Instant>,
    /// True if what is being done is due, and nothing was done so far.
    pub(super) rings_idly: bool,
    /// True if a connection was just asked for.
    pub(super) is_asked: bool,
}

impl Server {
    pub(super) const fn new(options: PoolOptions, address: ServerAddress, joined: Instant) -> Self {
        Self {
            pool_model: PoolModel::new(options),
            address,
            joined,
            left: false,
            refused: None,
            deadline: Some(Instant::ZERO),
            rings_idly: false,
            is_asked: false,
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.pool_model.is_ready()
    }

    /// Returns whether nothing of it is left.
    pub(super) fn is_over(&self) -> bool {
        self.pool_model.is_empty()
    }
}

/// All that is noted of one client.
#[derive(Debug)]
pub(in crate::sim) struct Ledger {
    clock: Arc<Clock>,
    pub(super) topology: TopologyId,
    pub(in crate::sim) plan: ClientPlan,
    pub(in crate::sim) options: Arc<Options>,
    pub(in crate::sim) checks: Checks,
    pub(in crate::sim) trace: Trace,
    pub(super) view: Arc<Snapshot>,
    /// The links that are open.
    pub(super) links: BTreeSet<LinkId>,
    pub(super) servers: BTreeMap<ServerId, Server>,
    /// The operations that wait for a server, and since when.
    pub(super) selecting: BTreeMap<WaiterId, (Arc<Criteria>, Instant)>,
    pub(super) operations: BTreeMap<OperationId, Operation>,
    pub(in crate::sim) documents: Documents,
    /// The number of actions of the topology.
    pub(super) actions: u64,
    pub(super) pending: Pending,
    /// The time when the topology is due.
    pub(super) deadline: Option<Instant>,
    pub(super) closed: bool,
    /// True if its process is to fork, and with which options it has.
    pub(in crate::sim) forks: Option<u64>,
    pub(in crate::sim) forked: Option<(Arc<Options>, u64)>,
    /// The time when an operation last reported to the topology an error that was not stale.
    pub(super) reported: Instant,
    /// A selection that has given up.
    pub(super) gave_up: Option<GaveUp>,
    pub(super) look: Look,
    /// The number of operations that have begun, and how many have succeeded.
    pub(in crate::sim) begun: u64,
    pub(in crate::sim) succeeded: u64,
    /// True if an operation that is looking for a server pretends to find none.
    pub(super) hesitating: Option<Arc<AtomicBool>>,
    /// The events for subscribers, if there are any.
    pub(super) told: Option<VecDeque<Event>>,
    /// True if subscribers receive nothing any more.
    told_all: bool,
}

/// The ledger, which the machines write in, and the world reads.
#[derive(Clone, Debug)]
pub(in crate::sim) struct Shared(Arc<Mutex<Ledger>>);

impl Shared {
    pub(super) fn new(ledger: Ledger) -> Self {
        Self(Arc::new(Mutex::new(ledger)))
    }

    pub(in crate::sim) fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Shared {
    fn topology(&self, step: TopologyStep<'_>) {
        self.lock().topology(&step);
    }

    fn pool<C: Debug>(&self, server: ServerId, step: PoolStep<'_, C>) {
        self.lock().pool(server, &step);
    }
}

impl Ledger {
    pub(super) fn new(
        clock: Arc<Clock>,
        plan: ClientPlan,
        (checks, documents): (Checks, Documents),
        trace: Trace,
        (topology, view): (TopologyId, Arc<Snapshot>),
    ) -> Self {
        Self {
            clock,
            topology,
            options: Arc::clone(&plan.options),
            plan,
            checks,
            trace,
            view,
            links: BTreeSet::new(),
            servers: BTreeMap::new(),
            selecting: BTreeMap::new(),
            operations: BTreeMap::new(),
            documents,
            actions: 0,
            pending: Pending::None,
            deadline: Some(Instant::ZERO),
            closed: false,
            forks: None,
            forked: None,
            reported: Instant::ZERO,
            gave_up: None,
            look: Look::None,
            begun: 0,
            succeeded: 0,
            hesitating: None,
            told: None,
            told_all: false,
        }
    }

    /// Takes what is to be judged, or done, when a step is over.
    pub(in crate::sim) fn take_findings(&mut self) -> Findings {
        (self.checks.take_violation(), self.gave_up.take(), self.forked.take())
    }

    pub(super) fn now(&self) -> Instant {
        self.clock.now()
    }

    pub(in crate::sim) fn view(&self) -> &Arc<TopologyDescription> {
        self.view.description()
    }

    /// Returns how many operations have succeeded, and how many have begun.
    pub(in crate::sim) const fn operations_counted(&self) -> (u64, u64) {
        (self.succeeded, self.begun)
    }

    /// Returns which servers have more batches for operations, and who waits for a server: what
    /// for, and since when it has been without a connection.
    pub(in crate::sim) fn waits_and_cursors(&self) -> (Vec<ServerId>, Vec<Wait>) {
        let cursors = self.operations.values().filter_map(Operation::cursor_server).collect();
        let waits = self.operations.iter().filter_map(|(id, operation)| {
            let since = self.waiting_since(operation)?;
            Some((*id, Arc::clone(&operation.criteria), since))
        });
        (cursors, waits.collect())
    }

    /// Returns whether operations wait for a server.
    pub(in crate::sim) fn has_waiters(&self) -> bool {
        !self.selecting.is_empty()
    }

    /// Returns since when the view has named the server at this address, if it does.
    pub(in crate::sim) fn member_since(&self, address: &ServerAddress) -> Option<Instant> {
        let known = self.view().server(address)?;
        self.servers.get(&known.id).map(|server| server.joined)
    }

    /// Returns when this server last answered an operation with a state change, and with which.
    pub(in crate::sim) fn refused_by(
        &self,
        address: &ServerAddress,
    ) -> Option<(Instant, StateChange)> {
        let known = self.view().server(address)?;
        self.servers.get(&known.id).and_then(|server| server.refused)
    }

    /// Returns since when an operation has been without a connection, if it waits for a server; not
    /// every server that it was woken for may have had one.
    fn waiting_since(&self, operation: &Operation) -> Option<Instant> {
        let mut waiting = self.selecting.values();
        let waits = waiting.any(|(criteria, _)| Arc::ptr_eq(criteria, &operation.criteria));
        waits.then_some(operation.wants_since)
    }

    pub(in crate::sim) const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Notes what subscribers are to receive: nothing after the topology's last event.
    pub(super) fn emit(&mut self, event: &Event) {
        if let Some(told) = self.told.as_mut().filter(|_| !self.told_all) {
            told.push_back(event.clone());
        }
        self.told_all |= matches!(event.kind, EventKind::TopologyClosed);
    }

    /// Returns when something is due next.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let pools = self.servers.values().filter_map(|server| server.deadline);
        self.deadline.into_iter().chain(pools).min()
    }

    /// Looks at what has become of a step of the client, which is over.
    pub(super) fn settle(&mut self, (slots, links): (usize, usize)) {
        let (now, wanted) = (self.now(), self.has_waiters());
        self.checks.after_step(now, self.deadline, self.closed, &self.view, wanted);
        self.servers.retain(|_, server| !(server.left && server.is_over()));
        let pending: usize = self.servers.values().map(|server| server.pool_model.pending()).sum();
        if pending > slots || self.links.len() > links {
            let open = self.links.len();
            let what = || {
                format!(
                    "{pending} connections are pending, and {slots} of them in the making; \
                         {open} links are open, and {links} of them in use"
                )
            };
            self.checks.fail("a task that waits for a stream waits for another task's work", what);
        }
    }

    /// Returns whether something has not ended.
    pub(in crate::sim) fn has_remains(&self) -> bool {
        !(self.operations.is_empty()
            && self.links.is_empty()
            && self.servers.values().all(Server::is_over))
    }

    /// Says what has not ended: nothing, once the client was closed.
    pub(in crate::sim) fn remains(&self) -> String {
        let pools = self.servers.values().filter(|server| !server.is_over()).count();
        let (operations, links) = (self.operations.len(), self.links.len());
        format!("{operations} operations, {links} links, {pools} pools")
    }

    /// An operation begins.
    pub(super) fn begin(&mut self, id: OperationId, criteria: &Criteria, patience: Duration) {
        let now = self.now();
        self.begun += 1;
        let operation = Operation {
            criteria: Arc::new(criteria.clone()),
            deadline: now + patience,
            phase: Phase::Selecting,
            wants_since: now,
            selecting_since: None,
            attempts: (now, 0),
            cursor: None,
            is_retried: false,
        };
        self.operations.insert(id, operation);
    }

    /// An operation looks for a server; once more than it has reason to is a busy loop.
    pub(super) fn looks(&mut self, id: OperationId) {
        let now = self.now();
        let servers = u32::try_from(self.view().servers().len()).unwrap_or(u32::MAX);
        let Some(operation) = self.operations.get_mut(&id) else { return };
        let (since, attempts) = operation.attempts;
        operation.attempts = match now - since < Duration::from_secs(1) {
            true => (since, attempts + 1),
            false => (now, 0),
        };
        // One that was found, and had no connection in the end, is not found again before a check,
        // or a pause.
        if operation.attempts.1 > most_wake_ups(servers) {
            self.checks.fail("no busy loop", || format!("{id:?} selects on and on"));
        }
    }

    /// An operation waits for a server.
    pub(super) fn waits(&mut self, criteria: &Arc<Criteria>) {
        let now = self.now();
        let mut operations = self.operations.iter_mut();
        let own = operations.find(|(_, it)| Arc::ptr_eq(&it.criteria, criteria));
        let id = own.map(|(id, operation)| {
            operation.selecting_since = Some(now);
            // One that is sent again has had a connection.
            if operation.is_retried {
                operation.wants_since = now;
            }
            *id
        });
        id.into_iter().for_each(|id| self.looks(id));
    }

    /// Returns whether the view names this server as the primary.
    pub(super) fn sees_primary(&self, server: ServerId) -> bool {
        self.view().primary().is_some_and(|primary| primary.id == server)
    }

    /// A selection ends without a server.
    pub(super) fn gives_up(&mut self, id: OperationId, error: &SelectionError) {
        let now = self.now();
        let Some(operation) = self.operations.get(&id) else { return };
        let Some(since) = operation.selecting_since else { return };
        // "min(serverSelectionTimeoutMS, remaining timeoutMS)": a client that does everything
        // itself knows both, and counts the first since the attempt began, however often it looks.
        let deadline = match operation.phase {
            Phase::Running => {
                let begun = operation.wants_since;
                operation.deadline.min(begun + self.options.server_selection_timeout())
            }
            _ => operation.deadline,
        };
        if now >= deadline || self.closed {
            return;
        }
        let single = self.options.is_single_threaded();
        // "if [...] the target scan time would exceed the maximum time": no scan may begin within
        // 500 ms of the last one; an operation's own limit holds in any mode.
        if single && now + MIN_HEARTBEAT_FREQUENCY >= deadline {
            return;
        }
        // "If serverSelectionTryOnce is true and the last scan time is newer than the selection
        // start time"
        let servers = self.view().servers().len();
        let may = single
            && self.options.server_selection_try_once()
            && self.checks.has_scanned(since, now, servers);
        if !may {
            let what = || format!("{id:?} gives up before its deadline: {error}");
            self.checks.fail("selections wait until their deadline", what);
        }
        // Another operation may have reported an error meanwhile, which is the reason.
        if self.reported < since {
            self.gave_up = Some(GaveUp { criteria: Arc::clone(&operation.criteria), since });
        }
    }

    /// The server has replied with an error, for which there may be an excuse.
    pub(super) fn judge_error(&mut self, id: OperationId, error: &CommandError, is_excused: bool) {
        // Since 5.0 writes wait for a majority, which may be down, cut off, or not in sync yet.
        let slow = error.code == Some(WRITE_CONCERN_FAILED);
        let changed = error.state_change().is_some();
        if !(is_excused || slow || changed || self.plan.faulty) {
            self.checks.fail("commands succeed", || format!("{id:?} fails with {error}"));
        }
    }

    /// The stream has failed.
    pub(super) fn judge_failure(&mut self, id: OperationId, failure: &Failure) {
        if failure.cause == Cause::Timeout
            && self.plan.patience < self.options.heartbeat_frequency()
        {
            self.checks.note(Sign::NoReplyInTime);
        }
        let announces = failure.detail.contains("announces another one");
        if failure.cause == Cause::Malformed && !announces {
            self.checks.fail("replies match requests", || format!("{id:?}: {failure}"));
        }
    }

    /// No operation waits beyond its deadline, except while no thread looks at the clock.
    pub(super) fn check_deadlines(&mut self, running_since: Instant, late: Duration) {
        let now = self.now();
        // "If timeoutMS is set, waitQueueTimeoutMS is ignored", and otherwise begins at check-out.
        let in_queue = self.options.pool().wait_queue_timeout.unwrap_or_default();
        let waits_for_ever = |(_, it): &(&OperationId, &Operation)| {
            let longer = if it.phase == Phase::CheckingOut { in_queue } else { Duration::ZERO };
            it.waits() && now > it.deadline.max(running_since) + longer + late
        };
        let found = self.operations.iter().find(waits_for_ever);
        if let Some((id, operation)) = found {
            let detail = format!("{id:?} is left waiting: {operation:?}");
            self.checks.fail("who waits is answered by the deadline", || detail);
        }
    }

    /// The process forks now, if it is to: of what its machine demands some is done.
    pub(super) fn fork_in_the_middle(&mut self) {
        if let Some(bits) = self.forks.take().filter(|_| !self.is_closed()) {
            let options = inherited_options(&self.options, self.view());
            self.forked = Some((options, bits));
            self.checks.note(Sign::ForkedInTheMiddle);
            if self.has_waiters() {
                self.checks.note(Sign::ForkedWhileWanted);
            }
        }
    }
}
