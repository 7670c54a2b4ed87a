//! The pools of a client.

use std::collections::BTreeMap;

use sdam_core::config::ServerAddress;
use sdam_core::failure::{Cause, Failure};
use sdam_core::id::{ConnectionId, ServerId, WaiterId};
use sdam_core::machine::{Lawful, Machine};
use sdam_core::operation::{OperationError, OperationFailure, StateChange};
use sdam_core::pool::{Action, CheckOutError, Input, Lease, Pool, PoolConfig};
use sdam_core::selection::SelectionError;
use sdam_core::time::Instant;
use sdam_core::topology::{Event, EventKind};
use sdam_core::wire::Frames;

use super::establishing::Establishing;
use super::{Client, OperationId};
use crate::sim::checks::Ledger;
use crate::sim::network::{Network, StreamId};
use crate::sim::witness::Sign;

/// A server and its pool.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) pool: Lawful<Pool<StreamId>>,
    pub(super) ledger: Ledger,
    pub(super) address: ServerAddress,
    pub(super) joined: Instant,
    pub(super) left: bool,
    /// When an operation was last told by it what it is not, or does, unless that was stale.
    pub(super) refused: Option<(Instant, StateChange)>,
    /// How many operations wait for one of its connections, or have one.
    pub(super) load: u32,
    pub(super) waiting: BTreeMap<WaiterId, OperationId>,
    pub(super) establishing: BTreeMap<ConnectionId, Establishing>,
}

impl Server {
    pub(super) fn is_ready(&self) -> bool {
        self.ledger.is_ready()
    }

    /// Returns whether nothing of it is left.
    pub(super) fn is_over(&self) -> bool {
        self.pool.get().counts().total() == 0
            && self.waiting.is_empty()
            && self.establishing.is_empty()
    }
}

/// A connection of a pool.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) frames: Frames,
    pub(super) max_wire_version: i32,
    /// Whether nobody has logged in, although the client would have.
    pub(super) anonymous: bool,
    /// The peer has closed it.
    pub(super) dead: bool,
    /// Who has it on loan.
    pub(super) operation: Option<OperationId>,
    /// When it was last used.
    pub(super) used: Instant,
}

/// What is done when no machine runs: the host does it when a lock is free again.
#[derive(Debug)]
pub(super) enum Task {
    /// An operation is to look again for a server, or to give up.
    Woken(OperationId, Result<(), Box<SelectionError>>),
    /// An operation has got a connection, or none.
    Delivered(OperationId, ServerId, Result<(Lease, StreamId), Box<CheckOutError>>),
    Establish(ServerId, ConnectionId),
    NotEstablished(ServerId, ConnectionId, OperationFailure),
    Interrupted(OperationId),
}

impl Client {
    pub(super) fn join(&mut self, network: &mut Network, id: ServerId, address: ServerAddress) {
        let options = self.options.pool().clone();
        let pool = Pool::new(PoolConfig {
            address: address.clone(),
            options: options.clone(),
            connect_timeout: self.options.connect_timeout(),
            load_balanced: self.options.load_balanced(),
        });
        let server = Server {
            pool: Lawful::new(pool),
            ledger: Ledger::new(options),
            address,
            joined: self.now,
            left: false,
            refused: None,
            load: 0,
            waiting: BTreeMap::new(),
            establishing: BTreeMap::new(),
        };
        self.servers.insert(id, server);
        self.tick_pool(network, id);
    }

    pub(super) fn leave(&mut self, network: &mut Network, id: ServerId) {
        let open = self.links.keys().filter(|link| link.server() == id).count();
        if open > 0 {
            self.checks.fail("nothing of a removed server", || format!("{open} links of {id}"));
        }
        self.tell_pool(network, id, Input::Close);
        if let Some(server) = self.servers.get_mut(&id) {
            server.left = true;
        }
    }

    pub(super) fn tick_pool(&mut self, network: &mut Network, id: ServerId) {
        let now = self.now;
        self.run_pool(network, id, |pool, out| pool.tick(now.into(), out));
    }

    /// The alarm of a pool has rung.
    pub(super) fn ring_pool(&mut self, network: &mut Network, id: ServerId) {
        let done = self.pool_actions_done;
        self.tick_pool(network, id);
        if self.pool_actions_done == done {
            let what = || format!("that of {id} does nothing");
            self.checks.fail("alarms of pools ring for a reason", what);
        }
    }

    pub(super) fn tell_pool(
        &mut self,
        network: &mut Network,
        id: ServerId,
        input: Input<StreamId>,
    ) {
        let Some(server) = self.servers.get(&id) else { return };
        let now = self.not_yet_due(server.pool.deadline());
        // What is due comes before an input, in the ledger too.
        if server.pool.deadline().is_some_and(|due| due <= now.judged) {
            self.tick_pool(network, id);
        }
        if let Some(server) = self.servers.get_mut(&id) {
            if let Input::Abandon { waiter } = &input
                && server.ledger.is_queued(*waiter)
            {
                self.checks.abandons(id);
            }
            server.ledger.input(self.now, &input);
        }
        self.run_pool(network, id, |pool, out| pool.handle(now, input, out));
    }

    fn run_pool(
        &mut self,
        network: &mut Network,
        id: ServerId,
        act: impl FnOnce(&mut Lawful<Pool<StreamId>>, &mut Vec<Action<StreamId>>),
    ) {
        let Some(server) = self.servers.get_mut(&id) else { return };
        let mut actions = std::mem::take(&mut self.pool_actions);
        act(&mut server.pool, &mut actions);
        for action in actions.drain(..) {
            self.perform_pool(network, id, action);
        }
        self.pool_actions = actions;
        if let Some(server) = self.servers.get_mut(&id)
            && let Err((check, detail)) = server.ledger.cleared()
        {
            self.checks.fail(check, || format!("{id}: {detail}"));
        }
        self.settle_pool(id);
    }

    /// Everybody is to be alive: monitors, and pools.
    pub(in crate::sim) fn audit(&mut self, now: Instant) {
        self.checks.audit(now);
        // Whoever is single-threaded does nothing between two operations.
        if self.options.is_single_threaded() {
            return;
        }
        let since = (self.running_since, self.alarm.bearable());
        for (id, server) in &self.servers {
            if let Err((check, detail)) = server.ledger.audit(now, since) {
                self.checks.fail(check, || format!("{id}: {detail}"));
            }
        }
    }

    /// Compares the pool's own figures with those of its ledger.
    pub(super) fn settle_pool(&mut self, id: ServerId) {
        let now = self.now;
        let Some(server) = self.servers.get_mut(&id) else { return };
        server.ledger.settled(now);
        if let Err(detail) = server.ledger.compare(server.pool.get().counts()) {
            self.checks.fail("pool arithmetic", || format!("{id}: {detail}"));
        }
    }

    fn perform_pool(&mut self, network: &mut Network, id: ServerId, action: Action<StreamId>) {
        self.trace.step(self.now, || {
            format!("   {id} {}", format!("{action:?}").chars().take(110).collect::<String>())
        });
        self.pool_actions_done += 1;
        let Some(server) = self.servers.get_mut(&id) else { return };
        if let Err((check, detail)) = server.ledger.action(self.now, &action) {
            self.checks.fail(check, || format!("{id}: {detail}"));
            return;
        }
        match action {
            Action::Establish { connection, generation } => {
                let attempt = Establishing::new(generation);
                server.establishing.insert(connection, attempt);
                self.tasks.push_back(Task::Establish(id, connection));
            }
            Action::Abort { connection } => {
                self.abort(network, id, connection);
            }
            Action::TimedOut { connection, stage } => {
                if let Some(attempt) = self.abort(network, id, connection) {
                    let detail = "the connection was not established within connectTimeoutMS";
                    let failure = Failure::new(stage, Cause::Timeout, detail);
                    let failure = attempt.failure(OperationError::Stream(failure));
                    self.tasks.push_back(Task::NotEstablished(id, connection, failure));
                }
            }
            Action::Deliver { waiter, outcome } => {
                if let Some(operation) = server.waiting.remove(&waiter) {
                    self.tasks.push_back(Task::Delivered(operation, id, outcome));
                }
            }
            Action::Interrupt { connection } => {
                let holder = self.operations.iter().find(|(_, it)| it.has_on_loan(id, connection));
                if let Some((operation, _)) = holder {
                    self.tasks.push_back(Task::Interrupted(*operation));
                }
            }
            Action::Dispose { connection, .. } => self.hang_up(network, connection),
            Action::Emit { at, event } => {
                let Some(address) = self.servers.get(&id).map(|it| it.address.clone()) else {
                    return;
                };
                let kind = EventKind::Pool { server: id, address, event };
                let topology = self.topology.get().get().id();
                self.checks.event(&Event { topology, at, kind });
            }
        }
    }

    pub(super) fn work(&mut self, network: &mut Network, task: Task) {
        match task {
            Task::Woken(operation, outcome) => self.woken(network, operation, outcome),
            Task::Delivered(operation, server, outcome) => {
                self.delivered(network, operation, server, outcome);
            }
            Task::Establish(server, connection) => self.establish(network, server, connection),
            Task::NotEstablished(server, connection, failure) => {
                if failure.error.is_overload() {
                    self.checks.note(Sign::TurnedAway);
                }
                let error = failure.error.clone();
                self.tell_pool(network, server, Input::Failing { connection });
                self.report(network, server, failure);
                let outcome = Err(error);
                self.tell_pool(network, server, Input::Established { connection, outcome });
            }
            Task::Interrupted(operation) => self.interrupted(network, operation),
        }
    }

    /// Returns a connection that was on loan, or none if it is of no more use.
    pub(super) fn check_in(
        &mut self,
        network: &mut Network,
        id: ServerId,
        (lease, stream): (Lease, StreamId),
        reusable: bool,
    ) {
        if let Some(connection) = self.connections.get_mut(&stream) {
            connection.operation = None;
            connection.used = self.now;
        }
        if !reusable {
            self.hang_up(network, stream);
        }
        let now = self.now;
        let Some(server) = self.servers.get_mut(&id) else { return };
        server.load = server.load.saturating_sub(1);
        if self.plan.shortcuts
            && reusable
            && server.pool.get_mut().try_check_in(now, lease, stream).is_ok()
        {
            if let Err((check, detail)) = server.ledger.kept(now, &lease) {
                self.checks.fail(check, || format!("{id}: {detail}"));
            }
            return self.settle_pool(id);
        }
        let connection = reusable.then_some(stream);
        self.tell_pool(network, id, Input::CheckIn { lease, connection });
    }
}
