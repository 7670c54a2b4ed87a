//! Connections on loan.

use std::sync::Arc;

use bson::{RawDocument, RawDocumentBuf};

use super::check_out::Operation;
use super::connection::{Connection, malformed};
use super::exchange::{Origin, Received, Reply, digest};
use super::request::Request;
use super::select::Selection;
use super::server::Server;
use super::{Runtime, Shared};
use sdam_core::description::TopologyType;
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::handshake::Agreement;
use sdam_core::id::ConnectionId;
use sdam_core::operation::{CommandError, InvalidCommand, OperationError, OperationFailure};
use sdam_core::pool::{Input, Lease, Purpose};
use sdam_core::selection::read_preference_argument;
use sdam_core::time::Instant;
use sdam_core::wire::{Flags, Message};

/// A connection on loan, until it is dropped.
///
/// It runs one exchange at a time. Dropped between exchanges, it returns to its pool; dropped in
/// the middle of one, be it because the future of an exchange was dropped, its connection is
/// closed, for nobody could tell whose reply came next. Nothing waits, blocks or needs a runtime
/// for that.
#[must_use = "a loan that is dropped returns at once"]
pub struct CheckedOut<R: Runtime> {
    operation: Operation<R>,
    /// What the server was selected for; `None` if the application has named it.
    selection: Option<Selection>,
    lease: Lease,
    /// Present until dropped.
    connection: Option<Box<Connection<R::Socket>>>,
    pub(super) state: State,
    /// Whether the raw message that was sent last may have several replies.
    pub(super) takes_several: bool,
    pub(super) deadline: Option<Instant>,
}

/// How far the exchange has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// There is none.
    Idle,
    /// A message is being sent, or its reply awaited.
    Awaiting(i32),
    /// The client proves once more who it is.
    Authenticating,
    /// Raw messages were exchanged, and what came of it is still to be reported.
    Unreported,
    /// The connection is of no more use.
    Broken,
}

impl<R: Runtime> CheckedOut<R> {
    pub(super) fn new(
        (operation, selection): (Operation<R>, Option<Selection>),
        lease: Lease,
        connection: Box<Connection<R::Socket>>,
        deadline: Option<Instant>,
    ) -> Self {
        let (connection, state) = (Some(connection), State::Idle);
        Self { operation, selection, lease, connection, state, takes_several: false, deadline }
    }

    /// Returns the server that the connection leads to.
    pub const fn server(&self) -> &Arc<Server<R>> {
        &self.operation.0
    }

    /// Returns the connection's number in its pool.
    pub const fn connection_id(&self) -> ConnectionId {
        self.lease.connection
    }

    /// Returns what client and server agreed on when the connection was established.
    ///
    /// # Panics
    ///
    /// Never.
    pub fn agreement(&self) -> &Agreement {
        &self.connection.as_ref().expect("a loan has its connection until it is dropped").agreement
    }

    /// Returns when an exchange is to end at the latest; without one, socketTimeoutMS counts.
    pub const fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Sets when exchanges are to end at the latest; at first it is the deadline of the check-out.
    pub const fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }

    /// Says that the loan is needed for more than one operation, which the error of a time-out
    /// behind a load balancer tells (Load Balancer Support, "Connection Pinning").
    pub fn pin(&self, purpose: Purpose) {
        self.server().handle(Input::Pin { lease: self.lease, purpose });
    }

    /// Runs a command on a database, and returns its reply.
    ///
    /// Attached to a copy of it are `$db`; the read preference that its server was selected with,
    /// as `$readPreference`, where that server wants to be told; the server API version of the
    /// options; and `$clusterTime`, once a server has told one. To a server that was not selected
    /// but named, as [`Client::members`] does, commands say `primaryPreferred`, so that it answers
    /// whatever its role. What is attached takes the place of a field of the same name in the
    /// command: do not rely on such fields.
    ///
    /// The topology is told what an error says of the server before this returns. If the server
    /// wants the client to log in once more, as with MONGODB-OIDC when a token has expired, that is
    /// done, and the command sent again.
    ///
    /// [`Client::members`]: super::Client::members
    ///
    /// # Errors
    ///
    /// Fails if the command cannot be sent as it is, if the stream fails or the deadline passes,
    /// which closes the connection, and if the server replies with an error.
    pub async fn command(
        &mut self,
        database: &str,
        command: &RawDocument,
    ) -> Result<Reply, OperationError> {
        self.exchange(&Request::new(database, command)).await
    }

    /// As [`command`](Self::command), with document sequences, each a name and its documents: the
    /// `documents` of an insert, for one.
    ///
    /// # Errors
    ///
    /// Fails as [`command`](Self::command) does, and if two sequences have the same name, or one
    /// has NUL in its name.
    pub async fn command_with_sequences(
        &mut self,
        database: &str,
        command: &RawDocument,
        sequences: &[(&str, &[&RawDocument])],
    ) -> Result<Reply, OperationError> {
        self.exchange(&Request { database, command, sequences }).await
    }

    pub(super) async fn exchange_once(
        &mut self,
        request: &Request<'_>,
    ) -> Result<Result<Reply, CommandError>, OperationError> {
        let id = self.send(request, Flags::NONE).await?;
        let message = self.receive().await?;
        let received = self.digest(&message, id)?;
        if received.more.is_some() {
            self.state = State::Broken;
            let detail = "the server announces more replies than were asked for";
            let failure = Failure::new(Stage::Operate, Cause::Malformed, detail);
            return Err(self.broken(failure));
        }
        self.state = State::Idle;
        Ok(received.reply)
    }

    /// Sends a command to which the server gives no reply, as for unacknowledged writes.
    ///
    /// The command itself must say so to the server, with `writeConcern: { w: 0 }`.
    ///
    /// # Errors
    ///
    /// Fails if the command cannot be sent; what the server makes of it is not known.
    pub async fn command_unacknowledged(
        &mut self,
        database: &str,
        command: &RawDocument,
    ) -> Result<(), OperationError> {
        self.send(&Request::new(database, command), Flags::MORE_TO_COME).await?;
        self.state = State::Idle;
        Ok(())
    }

    pub(super) async fn send(
        &mut self,
        request: &Request<'_>,
        flags: Flags,
    ) -> Result<i32, OperationError> {
        self.begin()?;
        let shared = Arc::clone(self.shared());
        let deadline = shared.limit_unless_passed(self.deadline)?;
        let read_preference = self.read_preference();
        let attached = (&*shared.options, &shared.clock);
        let id = self.connection().write(request, read_preference.as_deref(), flags, attached)?;
        self.state = State::Awaiting(id);
        let sent = self.connection().send(deadline).await;
        sent.map_err(|failure| self.broken(failure))?;
        Ok(id)
    }

    /// Returns what commands say of whom they are meant for.
    fn read_preference(&self) -> Option<RawDocumentBuf> {
        match &self.selection {
            Some(selection) => selection.read_preference(),
            // "To ensure that any server type can handle the request": whoever names a server means
            // it, as whoever connects to it directly does.
            None => {
                let (topology, server) = (TopologyType::Single, self.agreement().server_type);
                read_preference_argument(topology, server, None)
            }
        }
    }

    /// Refuses to begin an exchange while there is one, or in a process that was forked off.
    pub(super) fn begin(&self) -> Result<(), InvalidCommand> {
        self.shared().process.check()?;
        match self.state {
            State::Idle => Ok(()),
            State::Awaiting(_) | State::Authenticating => Err(InvalidCommand::Busy),
            State::Unreported => Err(InvalidCommand::Unreported),
            State::Broken => Err(InvalidCommand::Broken),
        }
    }

    pub(super) async fn receive(&mut self) -> Result<Message, OperationError> {
        let deadline = self.shared().limit(self.deadline);
        let connection = self.connection();
        let message = match connection.receive(deadline).await {
            Ok(message) => connection.decompressor.decompress(message).map_err(malformed),
            Err(failure) => Err(failure),
        };
        message.map_err(|failure| self.broken(failure))
    }

    pub(super) fn digest(
        &mut self,
        message: &Message,
        id: i32,
    ) -> Result<Received, OperationError> {
        let (server, connection) = (self.server().address().clone(), self.connection_id());
        let received = digest(message, id, &self.shared().clock, Origin { server, connection });
        received.map_err(|failure| self.broken(failure))
    }

    /// Tells the topology what a reply says of the server.
    pub(super) fn conclude(
        &self,
        reply: Result<Reply, CommandError>,
    ) -> Result<Reply, OperationError> {
        let error = match &reply {
            Ok(reply) => reply.write_concern_error(),
            Err(error) => Some(error),
        };
        if let Some(error) = error.filter(|error| error.state_change().is_some()) {
            let (stage, error) = (Stage::Operate, error.clone());
            self.tell(OperationError::Reply { stage, error });
        }
        reply.map_err(|error| OperationError::Reply { stage: Stage::Operate, error })
    }

    /// The connection is of no more use; the topology is told why.
    pub(super) fn broken(&mut self, failure: Failure) -> OperationError {
        self.state = State::Broken;
        let error = OperationError::Stream(failure);
        self.tell(error.clone());
        error
    }

    pub(super) fn tell(&self, error: OperationError) {
        let Lease { generation, service, .. } = self.lease;
        let max_wire_version = self.agreement().max_wire_version;
        let failure = OperationFailure { generation, service, max_wire_version, error };
        self.server().operation_failed(failure);
    }

    pub(super) fn connection(&mut self) -> &mut Connection<R::Socket> {
        self.connection.as_mut().expect("a loan has its connection until it is dropped")
    }

    pub(super) fn shared(&self) -> &Arc<Shared<R>> {
        self.operation.0.shared()
    }
}

impl<R: Runtime> Drop for CheckedOut<R> {
    fn drop(&mut self) {
        let connection = self.connection.take();
        if !self.shared().process.is_current() {
            // Closing it would take it from those that the parent waits for.
            return std::mem::forget(connection);
        }
        let connection = connection.filter(|_| self.state == State::Idle);
        self.server().check_in(self.lease, connection);
    }
}

impl<R: Runtime> std::fmt::Debug for CheckedOut<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CheckedOut")
            .field("server", self.server())
            .field("lease", &self.lease)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}
