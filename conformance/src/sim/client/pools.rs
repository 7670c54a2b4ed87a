//! The pools of a client, and how their connections are established.

use std::collections::BTreeMap;

use sdam_core::address::ServerAddress;
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::handshake::{Handshake, Opening, Progress};
use sdam_core::id::{ConnectionId, ServerId, WaiterId};
use sdam_core::machine::{Lawful, Machine};
use sdam_core::operation::{OperationError, OperationFailure};
use sdam_core::pool::{
    Action, CheckOutError, Established, Generation, Input, Lease, Pool, PoolConfig,
};
use sdam_core::selection::SelectionError;
use sdam_core::time::Instant;
use sdam_core::wire::Frames;

use super::words::failure_of;
use super::{Client, OperationId, Use};
use crate::sim::checks::Ledger;
use crate::sim::network::{Network, Packet, StreamId};

/// A server and its pool.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) pool: Lawful<Pool<StreamId>>,
    pub(super) ledger: Ledger,
    pub(super) address: ServerAddress,
    pub(super) joined: Instant,
    pub(super) left: bool,
    /// How many operations wait for one of its connections, or have one.
    pub(super) load: u32,
    pub(super) waiting: BTreeMap<WaiterId, OperationId>,
    establishing: BTreeMap<ConnectionId, Establishing>,
}

#[derive(Clone, Copy, Debug)]
struct Establishing {
    generation: Generation,
    max_wire_version: i32,
    stream: Option<StreamId>,
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

/// The opening conversation of a connection that is being established.
#[derive(Debug)]
pub(super) struct Attempt {
    handshake: Option<Handshake>,
}

/// A connection of a pool.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) frames: Frames,
    pub(super) max_wire_version: i32,
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
            topology: self.topology.get().id(),
            server: id,
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
        self.run_pool(network, id, |pool, out| pool.tick(now, out));
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
        if server.pool.deadline().is_some_and(|due| due <= now) {
            self.tick_pool(network, id);
        }
        if let Some(server) = self.servers.get_mut(&id) {
            server.pool.get_mut().set_clock(self.now);
            server.ledger.input(&input);
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
        self.settle_pool(id);
    }

    /// Compares the pool's own figures with those of its ledger.
    pub(super) fn settle_pool(&mut self, id: ServerId) {
        let Some(server) = self.servers.get(&id) else { return };
        if let Err(detail) = server.ledger.compare(server.pool.get().counts()) {
            self.checks.fail("pool arithmetic", || format!("{id}: {detail}"));
        }
    }

    fn perform_pool(&mut self, network: &mut Network, id: ServerId, action: Action<StreamId>) {
        self.trace.step(self.now, || {
            format!("   {id} {}", format!("{action:?}").chars().take(110).collect::<String>())
        });
        let Some(server) = self.servers.get_mut(&id) else { return };
        if let Err((check, detail)) = server.ledger.action(self.now, &action) {
            self.checks.fail(check, || format!("{id}: {detail}"));
            return;
        }
        match action {
            Action::Establish { connection, generation } => {
                let attempt = Establishing { generation, max_wire_version: 0, stream: None };
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
            Action::Emit { event } => self.checks.event(&event),
            other => self.checks.fail("known actions", || format!("{other:?}")),
        }
    }

    fn abort(
        &mut self,
        network: &mut Network,
        id: ServerId,
        connection: ConnectionId,
    ) -> Option<Establishing> {
        let attempt = self.servers.get_mut(&id)?.establishing.remove(&connection)?;
        if let Some(stream) = attempt.stream {
            self.hang_up(network, stream);
        }
        Some(attempt)
    }

    pub(super) fn work(&mut self, network: &mut Network, task: Task) {
        match task {
            Task::Woken(operation, outcome) => self.woken(network, operation, outcome),
            Task::Delivered(operation, server, outcome) => {
                self.delivered(network, operation, server, outcome);
            }
            Task::Establish(server, connection) => self.establish(network, server, connection),
            Task::NotEstablished(server, connection, failure) => {
                let error = failure.error.clone();
                self.tell_pool(network, server, Input::Failing { connection });
                self.report(network, server, failure);
                let outcome = Err(error);
                self.tell_pool(network, server, Input::Established { connection, outcome });
            }
            Task::Interrupted(operation) => self.interrupted(network, operation),
        }
    }

    fn establish(&mut self, network: &mut Network, id: ServerId, connection: ConnectionId) {
        let address = match self.servers.get(&id) {
            Some(server) if server.establishing.contains_key(&connection) => server.address.clone(),
            _ => return,
        };
        let Some(member) = self.member_at(&address) else { return };
        let stream = network.open(self.index, member);
        self.uses.insert(stream, Use::Attempt(id, connection));
        self.attempts.insert(stream, Attempt { handshake: None });
        if let Some(attempt) =
            self.servers.get_mut(&id).and_then(|it| it.establishing.get_mut(&connection))
        {
            attempt.stream = Some(stream);
        }
        self.tell_pool(network, id, Input::Reached { connection, stage: Stage::Connect });
    }

    pub(super) fn arrived_at_attempt(
        &mut self,
        network: &mut Network,
        stream: StreamId,
        (id, connection): (ServerId, ConnectionId),
        packet: Packet,
    ) {
        let Some(attempt) = self.attempts.get_mut(&stream) else { return };
        let opened = matches!(packet, Packet::SynAck);
        let result = match packet {
            Packet::Syn | Packet::SynAck => {
                let opening = Opening {
                    client: self.topology.get().client_metadata().clone(),
                    nonce: [7; 24],
                    remembered: Default::default(),
                    encrypted: false,
                };
                let mut out = Vec::new();
                let handshake = Handshake::start(&self.options, opening, &mut out);
                self.send(network, stream, out);
                handshake.map(|handshake| {
                    let attempt = self.attempts.get_mut(&stream).expect("it was just there");
                    attempt.handshake = Some(handshake);
                    None
                })
            }
            Packet::Bytes(bytes) => {
                let Some(handshake) = &mut attempt.handshake else { return };
                handshake.receive(&bytes, &mut Vec::new()).map(|progress| match progress {
                    Progress::Done(agreement) => Some(agreement.max_wire_version),
                    Progress::Reading | Progress::Asking(_) => None,
                })
            }
            Packet::Refused | Packet::NotResolved | Packet::Fin => {
                let stage = match attempt.handshake {
                    Some(_) => Stage::Hello,
                    None => Stage::Connect,
                };
                Err(OperationError::Stream(failure_of(&packet, stage)))
            }
        };
        match result {
            Ok(None) if opened => {
                self.tell_pool(network, id, Input::Reached { connection, stage: Stage::Hello });
            }
            Ok(None) => {}
            Ok(Some(max_wire_version)) => {
                self.established(network, stream, (id, connection), max_wire_version);
            }
            Err(error) => {
                if let Some(attempt) = self.abort(network, id, connection) {
                    let failure = attempt.failure(error);
                    self.tasks.push_back(Task::NotEstablished(id, connection, failure));
                }
            }
        }
    }

    fn established(
        &mut self,
        network: &mut Network,
        stream: StreamId,
        (id, connection): (ServerId, ConnectionId),
        max_wire_version: i32,
    ) {
        self.attempts.remove(&stream);
        if let Some(server) = self.servers.get_mut(&id) {
            server.establishing.remove(&connection);
        }
        let (frames, dead, operation) = (Frames::new(), false, None);
        let made = Connection { frames, max_wire_version, dead, operation, used: self.now };
        self.connections.insert(stream, made);
        self.uses.insert(stream, Use::Pooled(id));
        let outcome = Ok(Established { connection: stream, service: None });
        self.tell_pool(network, id, Input::Established { connection, outcome });
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
            server.ledger.kept(lease.connection);
            return self.settle_pool(id);
        }
        let connection = reusable.then_some(stream);
        self.tell_pool(network, id, Input::CheckIn { lease, connection });
    }
}

impl Establishing {
    const fn failure(self, error: OperationError) -> OperationFailure {
        let Self { generation, max_wire_version, .. } = self;
        OperationFailure { generation, service: None, max_wire_version, error }
    }
}
