//! The workload of a client: operations that select a server, check out a connection, exchange a
//! message, and return the connection, with deadlines and cancellations.

use std::sync::Arc;
use std::time::Duration;

use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::id::{ConnectionId, ServerId, WaiterId};
use sdam_core::operation::CommandError;
use sdam_core::pool::{self, CheckOutError, Lease};
use sdam_core::selection::{Criteria, ReadMode, ReadPreference, SelectionError};
use sdam_core::time::Instant;
use sdam_core::topology;

use super::{Client, pools::Task};
use crate::sim::network::{Network, Packet, StreamId};
use crate::sim::request::{Kind, request};
use crate::sim::world::Event;

/// How often an operation may begin anew at one instant.
const MAX_ATTEMPTS: u32 = 20;

/// An operation of one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::sim) struct OperationId(u64);

/// When an operation is to be looked at again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sim) enum Timer {
    /// Its time is up.
    Expire,
    /// The application drops it.
    Cancel,
    /// The application has used the connection for long enough.
    Return,
}

/// An operation, and how far it has come.
#[derive(Debug)]
pub(in crate::sim) struct Operation {
    pub(in crate::sim) criteria: Arc<Criteria>,
    kind: Kind,
    pub(super) deadline: Instant,
    /// How long the connection is kept after the reply.
    pub(super) hold: Duration,
    /// How often it has begun anew at that instant.
    attempts: (Instant, u32),
    /// Whether it was tried again after an error.
    retried: bool,
    pub(super) state: State,
}

#[derive(Debug)]
pub(super) enum State {
    Idle,
    Selecting { waiter: WaiterId, since: Instant },
    CheckingOut { server: ServerId, waiter: WaiterId, newest: Option<ConnectionId> },
    Exchanging { server: ServerId, lease: Lease, stream: StreamId, request: i32 },
    Holding { server: ServerId, lease: Lease, stream: StreamId },
}

impl Operation {
    /// Returns since when it waits for a server, if it does.
    pub(in crate::sim) const fn selecting_since(&self) -> Option<Instant> {
        match self.state {
            State::Selecting { since, .. } => Some(since),
            _ => None,
        }
    }

    pub(super) fn has_on_loan(&self, id: ServerId, connection: ConnectionId) -> bool {
        match &self.state {
            State::Exchanging { server, lease, .. } | State::Holding { server, lease, .. } => {
                *server == id && lease.connection == connection
            }
            _ => false,
        }
    }
}

impl Client {
    pub(in crate::sim) fn has_operation(&self, id: OperationId) -> bool {
        self.operations.contains_key(&id)
    }

    /// The application begins an operation, or several at once.
    pub(super) fn operate(&mut self, network: &mut Network) {
        if self.closed || self.now >= self.plan.workload_ends {
            return;
        }
        let interval = self.plan.interval;
        let next = self.random.between(interval / 2, interval * 3 / 2);
        network.plan(next, Event::Operate { client: self.index });
        let burst = if self.random.percent(5) { 1 + self.random.below(20) } else { 1 };
        for _ in 0..burst {
            self.begin(network);
        }
    }

    fn begin(&mut self, network: &mut Network) {
        let modes = [
            ReadMode::Primary,
            ReadMode::PrimaryPreferred,
            ReadMode::Secondary,
            ReadMode::SecondaryPreferred,
            ReadMode::Nearest,
        ];
        let (kind, criteria) = match self.random.percent(50) && self.now < self.plan.writes_end {
            true => (Kind::Write, Criteria::write()),
            false => {
                let mode = self.random.pick(&modes);
                (Kind::Read(mode), Criteria::read(ReadPreference::new(mode)))
            }
        };
        self.begun += 1;
        self.waiters += 1;
        let id = OperationId(self.waiters);
        let patience = self.random.between(self.plan.patience / 4, self.plan.patience);
        let hold = match self.random.percent(30) {
            true => self.random.millis(0, 300),
            false => Duration::ZERO,
        };
        let operation = Operation {
            criteria: Arc::new(criteria),
            kind,
            deadline: self.now + patience,
            hold,
            attempts: (self.now, 0),
            retried: false,
            state: State::Idle,
        };
        self.operations.insert(id, operation);
        let client = self.index;
        let expire = Event::OperationTimer { client, operation: id, timer: Timer::Expire };
        network.plan(patience, expire);
        if self.random.percent(self.plan.cancelled_percent) {
            let after = self.random.between(Duration::ZERO, patience / 4);
            let cancel = Event::OperationTimer { client, operation: id, timer: Timer::Cancel };
            network.plan(after, cancel);
        }
        self.select(network, id);
    }

    /// Selects a server from the view, or waits for another view.
    fn select(&mut self, network: &mut Network, id: OperationId) {
        let Some(operation) = self.operations.get_mut(&id) else { return };
        operation.state = State::Idle;
        let (at, attempts) = operation.attempts;
        operation.attempts = (self.now, if at == self.now { attempts + 1 } else { 0 });
        if operation.attempts.1 > MAX_ATTEMPTS {
            return self.checks.fail("no busy loop", || format!("{id:?} selects on and on"));
        }
        let (criteria, deadline) = (Arc::clone(&operation.criteria), operation.deadline);
        let (servers, known) = (self.view.description().servers(), &self.servers);
        let load = |index: usize| known.get(&servers[index].id).map_or(0, |server| server.load);
        match self.view.select(&criteria, load, self.random.bits()) {
            Ok(Some(index)) => {
                if operation.kind == Kind::Read(ReadMode::Nearest) && !operation.retried {
                    self.checks.chosen(&self.view, index);
                }
                let server = servers[index].id;
                match self.servers.get_mut(&server) {
                    Some(chosen) => chosen.load += 1,
                    None => {
                        let what = || format!("{server} is selected and has no pool");
                        return self.checks.fail("views name servers with pools", what);
                    }
                }
                self.check_out(network, id, server, None);
            }
            Ok(None) | Err(_) => {
                let waiter = self.next_waiter();
                self.selecting.insert(waiter, id);
                let since = self.now;
                if let Some(operation) = self.operations.get_mut(&id) {
                    operation.state = State::Selecting { waiter, since };
                }
                self.checks.waits(self.now);
                let deadline = Some(deadline);
                self.tell(network, topology::Input::Wait { waiter, criteria, deadline });
            }
        }
    }

    pub(super) fn woken(
        &mut self,
        network: &mut Network,
        id: OperationId,
        outcome: Result<(), Box<SelectionError>>,
    ) {
        let Some(operation) = self.operations.get(&id) else { return };
        let deadline = operation.deadline;
        match outcome {
            Ok(()) => self.select(network, id),
            Err(error) => {
                if self.now < deadline && !self.closed {
                    let what = || format!("{id:?} gives up before its deadline: {error}");
                    self.checks.fail("selections wait until their deadline", what);
                }
                self.operations.remove(&id);
            }
        }
    }

    /// Checks out a connection of a server whose load counts the operation already.
    fn check_out(
        &mut self,
        network: &mut Network,
        id: OperationId,
        server: ServerId,
        newest: Option<ConnectionId>,
    ) {
        let now = self.now;
        let waiter = self.next_waiter();
        let Some(operation) = self.operations.get_mut(&id) else { return };
        operation.state = State::CheckingOut { server, waiter, newest };
        let deadline = Some(operation.deadline);
        let Some(chosen) = self.servers.get_mut(&server) else { return };
        if self.plan.shortcuts
            && let Some((lease, stream)) = chosen.pool.get_mut().try_check_out(now)
        {
            if let Err((check, detail)) = chosen.ledger.lent(now, &lease) {
                self.checks.fail(check, || detail);
            }
            self.tasks.push_back(Task::Delivered(id, server, Ok((lease, stream))));
            return self.settle_pool(server);
        }
        chosen.waiting.insert(waiter, id);
        self.tell_pool(network, server, pool::Input::CheckOut { waiter, deadline });
    }

    pub(super) fn delivered(
        &mut self,
        network: &mut Network,
        id: OperationId,
        server: ServerId,
        outcome: Result<(Lease, StreamId), Box<CheckOutError>>,
    ) {
        let Some(operation) = self.operations.get_mut(&id) else {
            return self.checks.fail("nothing is delivered in vain", || format!("{id:?}"));
        };
        let State::CheckingOut { newest, .. } = operation.state else {
            return self.checks.fail("nothing is delivered in vain", || format!("{id:?}"));
        };
        match outcome {
            Ok((lease, stream)) => {
                let dead = self.connections.get(&stream).is_none_or(|it| it.dead);
                let is_new = newest.is_some_and(|newest| lease.connection > newest);
                if dead && !is_new {
                    let newest = newest
                        .or_else(|| self.servers.get(&server).map(|it| it.pool.get().newest()));
                    self.check_in(network, server, (lease, stream), false);
                    if let Some(server) = self.servers.get_mut(&server) {
                        server.load += 1;
                    }
                    return self.check_out(network, id, server, newest);
                }
                self.exchange(network, id, server, (lease, stream));
            }
            Err(error) => {
                if let Some(server) = self.servers.get_mut(&server) {
                    server.load = server.load.saturating_sub(1);
                }
                self.got_none(network, id, server, &error);
            }
        }
    }

    fn got_none(
        &mut self,
        network: &mut Network,
        id: OperationId,
        server: ServerId,
        error: &CheckOutError,
    ) {
        let Some(operation) = self.operations.get_mut(&id) else { return };
        match error {
            CheckOutError::Timeout { .. } if self.now < operation.deadline => {
                let what = || format!("{id:?} gives up before its deadline: {error}");
                self.checks.fail("check-outs wait until their deadline", what);
            }
            CheckOutError::PoolCleared { .. }
            | CheckOutError::NotReady { .. }
            | CheckOutError::PoolClosed { .. }
                if self.now < operation.deadline && !self.closed =>
            {
                return self.select(network, id);
            }
            // As a retry does, it avoids the server that failed.
            CheckOutError::Establishing { .. }
                if self.plan.retries && !operation.retried && self.now < operation.deadline =>
            {
                operation.retried = true;
                if let Some(server) = self.servers.get(&server) {
                    let criteria = (*operation.criteria).clone();
                    let avoided = [server.address.clone()];
                    operation.criteria = Arc::new(criteria.deprioritize(avoided));
                }
                return self.select(network, id);
            }
            _ => {}
        }
        self.operations.remove(&id);
    }

    fn exchange(
        &mut self,
        network: &mut Network,
        id: OperationId,
        server: ServerId,
        (lease, stream): (Lease, StreamId),
    ) {
        self.waiters += 1;
        let number = i32::try_from(self.waiters % (1 << 30)).unwrap_or(1);
        let Some(operation) = self.operations.get_mut(&id) else { return };
        operation.state = State::Exchanging { server, lease, stream, request: number };
        let bytes = request(operation.kind, number, self.plan.direct.is_some());
        let Some(connection) = self.connections.get_mut(&stream) else { return };
        connection.operation = Some(id);
        if connection.dead {
            let failure = Failure::new(Stage::Operate, Cause::Closed, "the server closed it");
            return self.broken(network, id, failure);
        }
        self.send(network, stream, bytes);
    }

    pub(super) fn arrived_at_connection(
        &mut self,
        network: &mut Network,
        stream: StreamId,
        id: ServerId,
        packet: Packet,
    ) {
        let Some(connection) = self.connections.get_mut(&stream) else { return };
        let operation = connection.operation;
        match packet {
            Packet::Bytes(bytes) => {
                connection.frames.extend(&bytes);
                match connection.frames.next() {
                    Ok(None) => {}
                    Ok(Some(message)) => {
                        let reply = message.op_msg().map(|it| CommandError::in_reply(it.body));
                        let to = message.header().response_to;
                        match (operation, reply) {
                            (Some(operation), Ok(error)) => {
                                self.replied(network, operation, to, error);
                            }
                            (_, reply) => {
                                let what = || format!("{id} sent {to} {reply:?} unasked");
                                self.checks.fail("replies match requests", what);
                            }
                        }
                    }
                    Err(error) => self.checks.fail("bytes arrive as sent", || error.to_string()),
                }
            }
            _ => {
                connection.dead = true;
                let exchanging = operation
                    .and_then(|id| self.operations.get(&id))
                    .is_some_and(|it| matches!(it.state, State::Exchanging { .. }));
                if let Some(operation) = operation.filter(|_| exchanging) {
                    let failure =
                        Failure::new(Stage::Operate, Cause::Closed, "the server closed it");
                    self.broken(network, operation, failure);
                }
            }
        }
    }
}
