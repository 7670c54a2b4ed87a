//! The workload of a client: operations that select a server, check out a connection, exchange a
//! message, and return the connection, with deadlines and cancellations.

use std::sync::Arc;
use std::time::Duration;

use sdam_core::config::{ReadMode, ReadPreference};
use sdam_core::description::{ServerType, TopologyType};
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::id::{ConnectionId, ServerId, WaiterId};
use sdam_core::pool::{self, CheckOutError, Lease};
use sdam_core::selection::Criteria;
use sdam_core::time::Instant;

use super::cursors::Cursor;
use super::idle::IdleCheck;
use super::{Client, pools::Task};
use crate::sim::network::{Network, StreamId};
use crate::sim::random::Random;
use crate::sim::request::{Kind, get_more, request};
use crate::sim::witness::Sign;
use crate::sim::world::Event;

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
    /// The application wants the next batch.
    More,
    /// The connection that was idle has had its time to answer.
    Pinged(i32),
    /// It has looked for a server in vain, and waits from now on.
    Wait,
}

/// An operation, and how far it has come.
#[derive(Debug)]
pub(in crate::sim) struct Operation {
    pub(in crate::sim) criteria: Arc<Criteria>,
    pub(super) kind: Kind,
    pub(super) deadline: Instant,
    /// What the deployment and the server chosen for it were then.
    pub(super) chosen: Option<(TopologyType, ServerType)>,
    pub(super) careless: bool,
    /// How long the connection is kept after the reply.
    pub(super) hold: Duration,
    /// How often it has looked for a server since then, for a second.
    pub(super) attempts: (Instant, u32),
    /// Whether it takes its time between looking for a server and waiting for one.
    pub(super) hesitates: bool,
    /// Whether it was tried again after an error.
    pub(super) retried: bool,
    /// Whether all connections were out when it was.
    pub(super) met_all_out: bool,
    /// Since when it has had no connection.
    pub(super) wants_since: Instant,
    pub(super) idle_check: IdleCheck,
    pub(super) cursor: Cursor,
    pub(super) state: State,
}

#[derive(Debug)]
pub(super) enum State {
    Idle,
    /// It has looked for a server in vain, and does not wait yet: other threads work meanwhile.
    Looking,
    Selecting {
        waiter: WaiterId,
        since: Instant,
    },
    CheckingOut {
        server: ServerId,
        waiter: WaiterId,
        newest: Option<ConnectionId>,
    },
    Exchanging {
        server: ServerId,
        lease: Lease,
        stream: StreamId,
        request: i32,
    },
    Holding {
        server: ServerId,
        lease: Lease,
        stream: StreamId,
    },
    /// The application has a batch, and is going to want another one; behind a load balancer it
    /// has the connection, too.
    Resting {
        server: ServerId,
        loan: Option<(Lease, StreamId)>,
    },
}

impl Operation {
    /// Returns since when it has been without a connection, if it waits for a server; not every
    /// server that it was woken for may have had one.
    pub(in crate::sim) const fn waiting_since(&self) -> Option<Instant> {
        match self.state {
            State::Selecting { .. } => Some(self.wants_since),
            _ => None,
        }
    }

    /// Returns since when it waits to be told of a server, if it does.
    pub(in crate::sim) const fn selecting_since(&self) -> Option<Instant> {
        match self.state {
            State::Selecting { since, .. } => Some(since),
            _ => None,
        }
    }

    /// Returns whether it still has this connection, and its reply.
    pub(super) fn holds(&self, own: StreamId) -> bool {
        matches!(self.state, State::Holding { stream, .. } if stream == own)
    }

    /// Returns whether its caller waits for it.
    pub(super) const fn waits(&self) -> bool {
        !matches!(self.state, State::Holding { .. } | State::Resting { .. })
    }

    pub(super) fn has_on_loan(&self, id: ServerId, connection: ConnectionId) -> bool {
        match &self.state {
            State::Exchanging { server, lease, .. } | State::Holding { server, lease, .. } => {
                *server == id && lease.connection == connection
            }
            State::Resting { server, loan: Some((lease, _)) } => {
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
        let next = self.workload.between(interval / 2, interval * 3 / 2);
        network.plan(next, Event::Operate { client: self.index });
        let burst = if self.workload.percent(5) { 1 + self.workload.below(20) } else { 1 };
        for _ in 0..burst {
            let drawn = self.workload.fork();
            if self.now >= self.plan.workload_begins {
                self.begin(network, drawn);
            }
        }
    }

    /// Numbers an operation.
    pub(super) const fn next_operation(&mut self) -> OperationId {
        self.waiters += 1;
        OperationId(self.waiters)
    }

    /// Numbers a message.
    pub(super) fn next_request(&mut self) -> i32 {
        self.waiters += 1;
        i32::try_from(self.waiters % (1 << 30)).unwrap_or(1)
    }

    fn begin(&mut self, network: &mut Network, mut random: Random) {
        let modes = [
            ReadMode::Primary,
            ReadMode::PrimaryPreferred,
            ReadMode::Secondary,
            ReadMode::SecondaryPreferred,
            ReadMode::Nearest,
        ];
        let (kind, criteria) = match random.percent(50) {
            true => (Kind::Write, Criteria::write()),
            false => {
                let mode = random.pick(&modes);
                (Kind::Read(mode), Criteria::read(ReadPreference::new(mode)))
            }
        };
        let patience = self.patience(&mut random);
        let id = self.next_operation();
        let cancelled = random.percent(self.plan.cancelled_percent);
        let after = random.between(Duration::ZERO, patience / 4);
        self.start(network, id, (kind, criteria), (patience, random));
        if cancelled {
            let client = self.index;
            let cancel = Event::OperationTimer { client, operation: id, timer: Timer::Cancel };
            network.plan(after, cancel);
        }
    }

    /// Begins an operation that may take so long; the rest of it is drawn.
    pub(super) fn start(
        &mut self,
        network: &mut Network,
        id: OperationId,
        (kind, criteria): (Kind, Criteria),
        (patience, mut random): (Duration, Random),
    ) {
        self.begun += 1;
        let hold = match random.percent(30) {
            true => random.millis(0, 300),
            false => Duration::ZERO,
        };
        let reads = matches!(kind, Kind::Read(_));
        let cursor = match reads && random.percent(self.plan.cursor_percent) {
            true => Cursor::Wanted,
            false => Cursor::None,
        };
        let operation = Operation {
            criteria: Arc::new(criteria),
            kind,
            deadline: self.now + patience,
            chosen: None,
            careless: super::meant::is_careless(&mut random),
            hold,
            attempts: (self.now, 0),
            hesitates: self.random.percent(self.plan.hesitating_percent),
            retried: false,
            met_all_out: false,
            wants_since: self.now,
            idle_check: IdleCheck::None,
            cursor,
            state: State::Idle,
        };
        self.operations.insert(id, operation);
        let client = self.index;
        let expire = Event::OperationTimer { client, operation: id, timer: Timer::Expire };
        network.plan(patience, expire);
        self.select(network, id);
    }

    /// Checks out a connection of a server whose load counts the operation already.
    pub(super) fn check_out(
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
        // "If timeoutMS is set, waitQueueTimeoutMS is ignored": whoever has one has no deadline.
        let own = self.options.pool().wait_queue_timeout.is_none();
        let deadline = own.then_some(operation.deadline);
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
        let is_retry = operation.retried;
        self.tell_pool(network, server, pool::Input::CheckOut { waiter, deadline });
        self.note_queue(server, is_retry.then_some(id));
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
                match self.was_idle(stream) {
                    true => self.ping(network, id, server, (lease, stream)),
                    false => self.exchange(network, id, server, (lease, stream)),
                }
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
                self.checks.note(Sign::WaitedInVain);
                if self.options.pool().wait_queue_timeout.is_none() {
                    let what = || format!("{id:?} gives up before its deadline: {error}");
                    self.checks.fail("check-outs wait until their deadline", what);
                }
            }
            CheckOutError::PoolCleared { .. }
            | CheckOutError::NotReady { .. }
            | CheckOutError::PoolClosed { .. }
                if self.now < operation.deadline && !self.closed =>
            {
                return self.select(network, id);
            }
            // As a retry does, it avoids the server that failed.
            CheckOutError::Establishing { .. } if self.may_retry(id) => {
                return self.retry(network, id, server);
            }
            _ => {}
        }
        self.operations.remove(&id);
    }

    pub(super) fn exchange(
        &mut self,
        network: &mut Network,
        id: OperationId,
        server: ServerId,
        loan: (Lease, StreamId),
    ) {
        let number = self.next_request();
        let Some(operation) = self.operations.get(&id) else { return };
        let kind = operation.kind;
        let bytes = match operation.cursor {
            Cursor::None => request(kind, number, operation.read_preference(), false),
            Cursor::Wanted => request(kind, number, operation.read_preference(), true),
            Cursor::Open { server: own, id: cursor, .. } if own == server => {
                get_more(cursor, number)
            }
            Cursor::Open { server: own, .. } => {
                let what = || format!("{id:?} began on {own} and goes on with {server}");
                return self.checks.fail("a cursor stays on its server", what);
            }
        };
        self.ask(network, id, server, loan, (number, bytes));
    }

    /// Sends a request over the connection on loan.
    pub(super) fn ask(
        &mut self,
        network: &mut Network,
        id: OperationId,
        server: ServerId,
        (lease, stream): (Lease, StreamId),
        (number, bytes): (i32, Vec<u8>),
    ) {
        self.limit_exchange(network, id);
        let Some(operation) = self.operations.get_mut(&id) else { return };
        operation.state = State::Exchanging { server, lease, stream, request: number };
        operation.wants_since = self.now;
        if operation.deadline <= self.now {
            // A view that was known already is of use at the deadline, but no reply comes in time.
            let (client, timer) = (self.index, Timer::Expire);
            let expire = Event::OperationTimer { client, operation: id, timer };
            network.plan(Duration::ZERO, expire);
        }
        let Some(connection) = self.connections.get_mut(&stream) else { return };
        connection.operation = Some(id);
        if connection.dead {
            let failure = Failure::new(Stage::Operate, Cause::Closed, "the server closed it");
            return self.broken(network, id, failure);
        }
        self.send(network, stream, bytes);
    }
}
