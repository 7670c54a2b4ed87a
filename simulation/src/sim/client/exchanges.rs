//! How exchanges end: by a reply, an error, a deadline, an interruption, or because nobody wants
//! the reply any more.

use bson::RawDocument;
use sdam_core::bson;
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::id::ServerId;
use sdam_core::machine::Machine;
use sdam_core::operation::{CommandError, OperationError, OperationFailure};
use sdam_core::pool::{self, Lease};
use sdam_core::topology;

use super::cursors::Cursor;
use super::operations::{OperationId, State, Timer};
use super::{Client, Connection};
use crate::sim::network::{Network, Packet, StreamId};
use crate::sim::witness::Sign;
use crate::sim::world::Event;

/// Unauthorized.
const UNAUTHORIZED: i32 = 13;

/// WriteConcernFailed: too few members have what was written.
const WRITE_CONCERN_FAILED: i32 = 64;

/// CursorNotFound.
const CURSOR_NOT_FOUND: i32 = 43;

/// NotPrimaryNoSecondaryOk.
pub(super) const NO_SECONDARY_OK: i32 = 13435;

/// What a reply says.
#[derive(Debug)]
pub(super) struct Reply {
    error: Option<CommandError>,
    /// The cursor that has more.
    cursor: Option<i64>,
}

impl Reply {
    fn read(body: &RawDocument) -> Self {
        let cursor = body.get_document("cursor").and_then(|cursor| cursor.get_i64("id"));
        Self { error: CommandError::in_reply(body), cursor: cursor.ok().filter(|id| *id != 0) }
    }
}

impl Client {
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
                        let reply = message.op_msg().map(|it| Reply::read(it.body));
                        let to = message.header().response_to;
                        match (operation, reply) {
                            (Some(operation), Ok(reply)) => {
                                self.replied(network, operation, to, reply);
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

    /// The server has replied, perhaps with an error.
    pub(super) fn replied(
        &mut self,
        network: &mut Network,
        id: OperationId,
        to: i32,
        Reply { error, cursor }: Reply,
    ) {
        let Some(operation) = self.operations.get_mut(&id) else { return };
        let State::Exchanging { server, lease, stream, request } = operation.state else {
            return self.checks.fail("replies match requests", || format!("{id:?} asked nothing"));
        };
        if to != request {
            let what = || format!("{id:?} asked {request}, and {to} is answered");
            return self.checks.fail("replies match requests", what);
        }
        operation.state = State::Holding { server, lease, stream };
        if operation.idle_check.ended() {
            // Be it an error: the server has answered.
            return self.exchange(network, id, server, (lease, stream));
        }
        let is_meant = operation.may_read_from_secondaries();
        if let Some(error) = error.as_ref().filter(|it| it.code == Some(NO_SECONDARY_OK))
            && is_meant
        {
            // Server Selection, "Read operations": "to ensure that any suitable server can handle
            // the request".
            let what = || format!("{id:?} was sent to {server}, and fails with {error}");
            self.checks.fail("a secondary is told that it is meant", what);
        }
        let (hold, reads) = (operation.hold, operation.cursor);
        let met_all_out = operation.met_all_out;
        match error {
            Some(error) if error.state_change().is_some() => {
                let error = OperationError::Reply { stage: Stage::Operate, error };
                self.report_error(network, server, (lease, stream), error);
                let still_holds = self.operations.get(&id).is_some_and(|it| it.holds(stream));
                if still_holds && self.may_retry(id) {
                    self.check_in(network, server, (lease, stream), true);
                    return self.retry(network, id, server);
                }
            }
            // Its process has ended, and another one knows nothing of it.
            Some(error)
                if error.code == Some(CURSOR_NOT_FOUND)
                    && matches!(reads, Cursor::Open { .. })
                    && self.plan.loses_cursors => {}
            // A name that leads elsewhere may lead to an arbiter, where nobody can log in.
            Some(error)
                if error.code == Some(UNAUTHORIZED)
                    && self.connections.get(&stream).is_some_and(|it| it.anonymous) => {}
            // Since 5.0 writes wait for a majority, which may be down, cut off, or not in sync yet.
            Some(error) if error.code == Some(WRITE_CONCERN_FAILED) => {}
            Some(error) if !self.plan.faulty => {
                let what = || format!("{id:?} fails with {error}");
                self.checks.fail("commands succeed", what);
            }
            Some(_) => {}
            None => {
                self.succeeded += u64::from(!matches!(reads, Cursor::Open { .. }));
                if met_all_out {
                    self.checks.note(Sign::RetriedWithAllOut);
                }
                if let Some(cursor) = cursor.filter(|_| reads != Cursor::None) {
                    return self.rest(network, id, cursor, (server, lease, stream));
                }
            }
        }
        if hold.is_zero() {
            return self.give_back(network, id);
        }
        let client = self.index;
        let event = Event::OperationTimer { client, operation: id, timer: Timer::Return };
        network.plan(hold, event);
    }

    /// Tells the topology what went wrong.
    fn report_error(
        &mut self,
        network: &mut Network,
        server: ServerId,
        (lease, stream): (Lease, StreamId),
        error: OperationError,
    ) {
        let max_wire_version = self
            .connections
            .get(&stream)
            .map_or(0, |connection: &Connection| connection.max_wire_version);
        let Lease { generation, service, .. } = lease;
        let failure = OperationFailure { generation, service, max_wire_version, error };
        self.report(network, server, failure);
    }

    /// The operation ends, and its connection is returned.
    fn give_back(&mut self, network: &mut Network, id: OperationId) {
        if let Some(operation) = self.operations.remove(&id)
            && let State::Holding { server, lease, stream } = operation.state
        {
            self.check_in(network, server, (lease, stream), true);
        }
    }

    /// The exchange fails, and its connection is of no more use.
    pub(super) fn broken(&mut self, network: &mut Network, id: OperationId, failure: Failure) {
        let Some(mut operation) = self.operations.remove(&id) else { return };
        let State::Exchanging { server, lease, stream, .. } = operation.state else { return };
        self.report_error(network, server, (lease, stream), OperationError::Stream(failure));
        self.check_in(network, server, (lease, stream), false);
        if operation.idle_check.failed() && self.now < operation.deadline && !self.closed {
            // "attempt once more to select a server"
            operation.state = State::Idle;
            self.operations.insert(id, operation);
            return self.select(network, id);
        }
        operation.state = State::Idle;
        self.operations.insert(id, operation);
        match self.may_retry(id) {
            true => self.retry(network, id, server),
            false => drop(self.operations.remove(&id)),
        }
    }

    /// The pool wants its connection back at once.
    pub(super) fn interrupted(&mut self, network: &mut Network, id: OperationId) {
        let Some(operation) = self.operations.get(&id) else { return };
        match operation.state {
            State::Exchanging { .. } => {
                let detail = "the server's monitor found that it does not answer";
                let failure = Failure::new(Stage::Operate, Cause::Interrupted, detail);
                self.broken(network, id, failure);
            }
            State::Holding { .. } => self.give_back(network, id),
            State::Resting { .. } => self.cancel(network, id),
            _ => {}
        }
    }

    pub(super) fn operation_timer(&mut self, network: &mut Network, id: OperationId, timer: Timer) {
        let Some(operation) = self.operations.get(&id) else { return };
        match (timer, &operation.state) {
            (Timer::Return, State::Holding { .. }) => self.give_back(network, id),
            (Timer::Wait, State::Looking) => self.wait_at_last(network, id),
            (Timer::Expire, State::Exchanging { .. }) => {
                if self.plan.patience < self.options.heartbeat_frequency() {
                    self.checks.note(Sign::NoReplyInTime);
                }
                let detail = "no reply by the operation's deadline";
                let failure = Failure::new(Stage::Operate, Cause::Timeout, detail);
                self.broken(network, id, failure);
            }
            (Timer::Expire, State::CheckingOut { .. })
                if self.options.pool().wait_queue_timeout.is_some() =>
            {
                self.cancel(network, id);
            }
            (Timer::Expire, State::Selecting { .. } | State::CheckingOut { .. }) => {
                self.expire(network, id);
            }
            (Timer::Pinged(asked), State::Exchanging { request, .. }) if asked == *request => {
                self.ping_timed_out(network, id);
            }
            (Timer::More, State::Resting { .. }) => self.read_more(network, id),
            (Timer::Expire, State::Resting { .. }) => self.cancel(network, id),
            (Timer::Cancel, _) => self.cancel(network, id),
            _ => {}
        }
    }

    /// The machines are to have answered who waits by its deadline.
    fn expire(&mut self, network: &mut Network, id: OperationId) {
        let now = self.now;
        self.run(network, |topology, _, out| topology.tick(now.into(), out));
        let servers: Vec<ServerId> = self.servers.keys().copied().collect();
        servers.into_iter().for_each(|server| self.tick_pool(network, server));
        while let Some(task) = self.tasks.pop_front() {
            self.work(network, task);
        }
        let Some(operation) = self.operations.get(&id) else { return };
        let waits = matches!(operation.state, State::Selecting { .. } | State::CheckingOut { .. });
        if waits && operation.deadline <= now {
            let what = || format!("{id:?} is left waiting");
            self.checks.fail("who waits is answered by the deadline", what);
        }
    }

    fn cancel(&mut self, network: &mut Network, id: OperationId) {
        let Some(operation) = self.operations.remove(&id) else { return };
        match operation.state {
            State::Idle | State::Looking => {}
            State::Selecting { waiter, .. } => {
                self.selecting.remove(&waiter);
                self.tell(network, topology::Input::Abandon { waiter });
            }
            State::CheckingOut { server, waiter, .. } => {
                if let Some(server) = self.servers.get_mut(&server) {
                    server.waiting.remove(&waiter);
                    server.load = server.load.saturating_sub(1);
                }
                self.note_cancelled(server);
                self.tell_pool(network, server, pool::Input::Abandon { waiter });
            }
            State::Exchanging { server, lease, stream, .. } => {
                self.check_in(network, server, (lease, stream), false);
            }
            State::Holding { server, lease, stream }
            | State::Resting { server, loan: Some((lease, stream)) } => {
                self.check_in(network, server, (lease, stream), true);
            }
            State::Resting { loan: None, .. } => {}
        }
    }
}
