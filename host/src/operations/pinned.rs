//! Pinning: the server, or the very connection, that what follows goes to. A cursor is pinned to
//! the server that it is open at, and to a connection behind a load balancer or while its batches
//! are streamed; commands to which there is no reply keep their order over one connection.
//!
//! Implements "Connection Pinning" of Load Balancer Support.

use std::sync::Arc;

use sdam_core::config::ServerAddress;
use sdam_core::description::ServerType;
use sdam_core::pool::Purpose;
use sdam_core::selection::Criteria;

use crate::machines::runtime::Runtime;
use crate::operations::checked_out::CheckedOut;
use crate::operations::request::Target;

/// The first version of the protocol in which mongos streams the batches of a cursor: that of 7.1.
const WIRE_VERSION_OF_STREAMS_OF_MONGOS: i32 = 22;

/// A server for the operations that follow, over one connection where that is required.
///
/// Dropping it checks that connection in.
pub struct Pinned<R: Runtime> {
    server: ServerAddress,
    /// The selection of the server, whose read preference later commands may have to repeat.
    criteria: Arc<Criteria>,
    connection: Option<CheckedOut<R>>,
    /// True if the server may send one batch after the other over the connection.
    is_streamed: bool,
}

impl<R: Runtime> Pinned<R> {
    /// Pins what follows to a server.
    pub(crate) const fn to_server(server: ServerAddress, criteria: Arc<Criteria>) -> Self {
        Self { server, criteria, connection: None, is_streamed: false }
    }

    /// Pins what follows to a connection.
    pub(crate) fn to_connection(connection: CheckedOut<R>, criteria: Arc<Criteria>) -> Self {
        let server = connection.server().clone();
        Self { server, criteria, connection: Some(connection), is_streamed: false }
    }

    /// Pins a cursor that was opened over a connection: to that behind a load balancer, or if the
    /// cursor is read in a stream of replies, and else to its server, whose connection goes back.
    pub(crate) fn to_origin(
        connection: CheckedOut<R>,
        criteria: Arc<Criteria>,
        exhausts: bool,
    ) -> Self {
        let description = connection.connection_description();
        let is_balanced = description.service.is_some();
        // "Drivers MAY fallback to a non-exhaust cursor".
        let streams = description.server_type != ServerType::Mongos
            || description.max_wire_version >= WIRE_VERSION_OF_STREAMS_OF_MONGOS;
        let is_streamed = exhausts && streams && !is_balanced;
        if !is_streamed && !is_balanced {
            return Self::to_server(connection.server().clone(), criteria);
        }
        connection.pin(Purpose::Cursor);
        Self { is_streamed, ..Self::to_connection(connection, criteria) }
    }

    /// Pins the session of a transaction: to the connection that its first command goes over behind
    /// a load balancer, or else to its mongos (Transactions, "Mongos Pinning").
    pub(crate) fn of_transaction(
        checked_out: &mut Option<CheckedOut<R>>,
        server: &ServerAddress,
        criteria: Arc<Criteria>,
    ) -> Self {
        let is_balanced = |it: &CheckedOut<R>| it.connection_description().service.is_some();
        match checked_out.take_if(|it| is_balanced(it)) {
            Some(connection) => {
                connection.pin(Purpose::Transaction);
                Self::to_connection(connection, criteria)
            }
            None => Self::to_server(server.clone(), criteria),
        }
    }

    /// Returns the connection, if there is no way but that.
    pub(crate) const fn connection(&self) -> Option<&CheckedOut<R>> {
        self.connection.as_ref()
    }

    /// As [`connection`](Self::connection), to be used.
    pub(crate) const fn connection_mut(&mut self) -> Option<&mut CheckedOut<R>> {
        self.connection.as_mut()
    }

    /// Returns the rule by which the server was selected.
    pub(crate) const fn criteria(&self) -> &Arc<Criteria> {
        &self.criteria
    }

    /// Returns whether what follows can go there: not over a connection that has failed.
    pub(crate) fn is_usable(&self) -> bool {
        self.connection.as_ref().is_none_or(CheckedOut::is_idle)
    }

    /// Returns the address of the server.
    pub const fn server(&self) -> &ServerAddress {
        &self.server
    }

    /// Returns where the next command goes.
    pub fn target(&mut self) -> Target<'_, R> {
        match (&mut self.connection, self.is_streamed) {
            (Some(connection), true) => Target::Stream(connection),
            (Some(connection), false) => Target::Connection(connection),
            (None, _) => Target::Member(&self.server, Arc::clone(&self.criteria)),
        }
    }

    /// Returns whether there is no way but the connection.
    pub const fn needs_connection(&self) -> bool {
        self.connection.is_some() && !self.is_streamed
    }

    /// Closes the connection if further batches come over it without being asked for; the server is
    /// then to be reached over another one.
    #[must_use]
    pub fn without_stream(self) -> Self {
        match self.connection.as_ref().is_some_and(CheckedOut::is_streaming) {
            true => Self::to_server(self.server, self.criteria),
            false => self,
        }
    }

    /// Returns another way to the server, unless there is none but the connection.
    pub fn other(&self) -> Option<Self> {
        let other = || Self::to_server(self.server.clone(), Arc::clone(&self.criteria));
        (!self.needs_connection()).then(other)
    }
}

impl<R: Runtime> std::fmt::Debug for Pinned<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pinned")
            .field("server", &self.server)
            .field("connection", &self.connection)
            .field("is_streamed", &self.is_streamed)
            .finish_non_exhaustive()
    }
}
