//! The connection pool of one server.
//!
//! Implements the Connection Monitoring and Pooling specification. The topology sends the pool
//! commands: that it may be used, that its connections are of no use any more. The pool establishes
//! connections through its runtime, and hands them out in the order in which they were asked for.

mod command;
mod config;
mod connections;
mod error;
mod establishing;
mod event;
mod generations;
mod machine;
mod pending;
mod queue;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bson::oid::ObjectId;
use serde::Serialize;

pub use command::Command;
pub use config::{Counts, PoolConfig};
pub use error::{CheckOutError, ConnectionsInUse, Obstacle};
pub use event::PoolEvent;
pub(crate) use generations::Generations;
pub use machine::Pool;

use crate::failure::Stage;
use crate::id::{ConnectionId, Generation, WaiterId};
use crate::operation::OperationError;
use crate::time::Instant;

/// An input of a pool.
///
/// The enum is exhaustive on purpose: code that drives, records or replays the machine must know
/// all inputs, so that a new one is a breaking change.
#[derive(Clone, Debug)]
pub enum Input<C> {
    /// The topology's word on the server.
    Command(Command),
    /// An operation needs a connection.
    CheckOut {
        /// The operation.
        waiter: WaiterId,
        /// The time when it fails if there is none; without one, waitQueueTimeoutMS counts.
        deadline: Option<Instant>,
    },
    /// The operation has stopped waiting.
    Abandon {
        /// The operation.
        waiter: WaiterId,
    },
    /// Establishing a connection has come to the next stage, or to the next step of its stage: the
    /// peer has answered, and is asked something else.
    ///
    /// After connectTimeoutMS, and before the pool was ticked to that, this renews the time.
    Reached {
        /// The connection.
        connection: ConnectionId,
        /// The stage that begins, or goes on.
        stage: Stage,
    },
    /// The server is asked for the next step of a login. It has answered what was sent before.
    Asked {
        /// The connection.
        connection: ConnectionId,
    },
    /// The server has answered the last step of a login, and the client works out the next one,
    /// which takes no time of a command: the limit is that of establishing, from now on.
    Answered {
        /// The connection.
        connection: ConnectionId,
    },
    /// A person is asked for what a login needs: the connection has no limit meanwhile
    /// (Authentication, "OIDC Human Callback").
    PersonAsked {
        /// The connection.
        connection: ConnectionId,
    },
    /// The person has answered, or is not waited for any more: the limit is that of establishing,
    /// from now on.
    PersonAnswered {
        /// The connection.
        connection: ConnectionId,
    },
    /// Establishing a connection has failed, and the topology is about to judge why.
    ///
    /// [`Established`](Input::Established) follows with the error. The operation that the
    /// connection was created for fails with that one, also if the pool is cleared because of it in
    /// between.
    Failing {
        /// The connection.
        connection: ConnectionId,
    },
    /// Establishing a connection has ended.
    ///
    /// An error is the topology's business too, which may clear the pool for it: the pool receives
    /// [`Failing`](Input::Failing) first, then the topology the error, then the pool. So the
    /// operation that waits fails with this error, and events come in the specification's order:
    /// pool cleared, connection closed, check-out failed.
    Established {
        /// The connection.
        connection: ConnectionId,
        /// The connection, or why there is none.
        outcome: Result<Established<C>, OperationError>,
    },
    /// A check-out has ended.
    CheckIn {
        /// The check-out.
        check_out: CheckOut,
        /// The connection, or why it is of no more use.
        outcome: Result<C, Box<OperationError>>,
    },
    /// The check-out is needed for more than one operation, which the error of a time-out reports
    /// behind a load balancer.
    Pin {
        /// The check-out.
        check_out: CheckOut,
        /// The purpose.
        purpose: Purpose,
    },
    /// The server has left, or the client is closed.
    Close,
}

/// A connection that is ready for use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Established<C> {
    /// The connection.
    pub connection: C,
    /// Behind a load balancer, the service that it leads to.
    pub service: Option<ObjectId>,
}

impl<C> Established<C> {
    /// Says that this connection is ready, and to which service it leads.
    pub const fn new(connection: C, service: Option<ObjectId>) -> Self {
        Self { connection, service }
    }
}

/// An action that a pool asks for; to be performed in order, and without blocking.
///
/// The enum is exhaustive on purpose: code that performs actions must miss none, so that a new one
/// is a breaking change.
#[derive(Clone, Debug)]
pub enum Action<C> {
    /// Begin to establish a connection, and report [`Established`](Input::Established).
    Establish {
        /// The connection.
        connection: ConnectionId,
        /// The generation that it belongs to, unless its hello names a service.
        generation: Generation,
    },
    /// Give up to establish a connection; nothing more is expected of it.
    Abort {
        /// The connection.
        connection: ConnectionId,
    },
    /// End an operation's wait.
    Deliver {
        /// The operation.
        waiter: WaiterId,
        /// The awaited connection, or the reason why there is none.
        outcome: Result<(CheckOut, C), Box<CheckOutError>>,
    },
    /// The holder of the connection is to stop using it at once, and to check it in.
    Interrupt {
        /// The connection.
        connection: ConnectionId,
    },
    /// Drop the connection, which is of no more use.
    Dispose {
        /// The connection's number.
        id: ConnectionId,
        /// The connection.
        connection: C,
    },
    /// Establishing took longer than connectTimeoutMS, or a command of the handshake longer than
    /// timeoutMS, and is given up, as with `Abort`; but this is said to be the server's fault, so
    /// that the runtime still reports [`Established`](Input::Established) with a time-out, to the
    /// topology too.
    TimedOut {
        /// The connection.
        connection: ConnectionId,
        /// The stage that it had reached.
        stage: Stage,
        /// The option that says how long it may take.
        option: &'static str,
    },
    /// Notify the subscriber; never call user code from here.
    Emit {
        /// The time when it happened.
        at: Instant,
        /// The event.
        event: PoolEvent,
    },
}

/// One check-out of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckOut {
    /// The connection.
    pub connection: ConnectionId,
    /// The generation that the connection belongs to.
    pub generation: Generation,
    /// Behind a load balancer, the service that it leads to.
    pub service: Option<ObjectId>,
    /// The place where the pool keeps what it knows of the connection.
    pub(crate) slot: u32,
    /// Distinguishes the check-out from others of the same connection.
    pub(crate) number: u64,
}

/// The purpose of a check-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Purpose {
    /// One operation.
    #[default]
    Operation,
    /// A cursor, until it is exhausted.
    Cursor,
    /// A transaction, until it ends.
    Transaction,
}

impl Purpose {
    /// Returns the name, as in JSON: a label for metrics, which stays as it is.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Operation => "operation",
            Self::Cursor => "cursor",
            Self::Transaction => "transaction",
        }
    }
}

/// The reason why a connection was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum CloseReason {
    /// The pool was cleared after the connection was created.
    Stale,
    /// It was unused for longer than maxIdleTimeMS.
    Idle,
    /// It failed, or could not be established.
    Error,
    /// The pool was closed.
    PoolClosed,
}

impl CloseReason {
    /// Returns the name, as in JSON: a label for metrics, which stays as it is.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stale => "stale",
            Self::Idle => "idle",
            Self::Error => "error",
            Self::PoolClosed => "poolClosed",
        }
    }
}

/// The time that each stage of establishing a connection took, in order; the last one may not have
/// ended.
pub type Stages = Arc<[(Stage, Duration)]>;
