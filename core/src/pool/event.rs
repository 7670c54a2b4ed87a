//! The events of Connection Monitoring and Pooling ("Connection Pool Monitoring").

use std::time::Duration;

use bson::oid::ObjectId;
use serde::Serialize;

use super::{CheckOut, CheckOutError, CloseReason, Stages};
use crate::config::PoolOptions;
use crate::failure::Failure;
use crate::id::ConnectionId;
use crate::operation::OperationError;

/// Something that happened to a pool or one of its connections.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum PoolEvent {
    /// A pool was created; it is paused.
    PoolCreated {
        /// The options of the pool.
        #[serde(skip)]
        options: PoolOptions,
    },
    /// A pool may be used.
    PoolReady,
    /// The connections of a pool are of no use any more, and it is paused; or, behind a load
    /// balancer, those to one service.
    PoolCleared {
        /// Behind a load balancer, the service.
        #[serde(rename = "serviceId", serialize_with = "crate::id::service_id")]
        service: Option<ObjectId>,
        /// True if connections in use are interrupted.
        interrupt_in_use_connections: bool,
        /// The cause.
        cause: Failure,
    },
    /// A pool was closed, because its server left or the client closed.
    PoolClosed,
    /// A connection begins to be established.
    ConnectionCreated {
        /// The connection.
        #[serde(rename = "connectionId")]
        connection: ConnectionId,
    },
    /// A connection is established.
    ConnectionReady {
        /// The connection.
        #[serde(rename = "connectionId")]
        connection: ConnectionId,
        /// The time that that took.
        #[serde(rename = "durationMS", serialize_with = "crate::description::millis")]
        duration: Duration,
        /// The time that each of its stages took.
        #[serde(skip)]
        stages: Stages,
    },
    /// A connection was closed.
    ConnectionClosed {
        /// The connection.
        #[serde(rename = "connectionId")]
        connection: ConnectionId,
        /// The reason.
        reason: CloseReason,
        /// The error, if that is the reason.
        #[serde(skip)]
        error: Option<Box<OperationError>>,
    },
    /// An operation asks for a connection.
    ConnectionCheckOutStarted,
    /// An operation gets no connection.
    ConnectionCheckOutFailed {
        /// The cause.
        #[serde(serialize_with = "check_out_error", rename = "reason")]
        error: Box<CheckOutError>,
        /// The time that it had waited.
        #[serde(rename = "durationMS", serialize_with = "crate::description::millis")]
        duration: Duration,
    },
    /// An operation gets a connection.
    ConnectionCheckedOut {
        /// The connection.
        #[serde(rename = "connectionId")]
        connection: ConnectionId,
        /// The time that it had waited.
        #[serde(rename = "durationMS", serialize_with = "crate::description::millis")]
        duration: Duration,
    },
    /// An operation returns its connection.
    ConnectionCheckedIn {
        /// The connection.
        #[serde(rename = "connectionId")]
        connection: ConnectionId,
    },
}

impl PoolEvent {
    /// Lists the events of a check-out that has found an available connection at once.
    pub const fn of_check_out(check_out: &CheckOut) -> [Self; 2] {
        let connection = check_out.connection;
        let checked_out = Self::ConnectionCheckedOut { connection, duration: Duration::ZERO };
        [Self::ConnectionCheckOutStarted, checked_out]
    }

    /// Returns whether it reports a check-out or a check-in that goes well, as each operation has
    /// one.
    pub const fn is_of_check_out(&self) -> bool {
        matches!(
            self,
            Self::ConnectionCheckOutStarted
                | Self::ConnectionCheckedOut { .. }
                | Self::ConnectionCheckedIn { .. }
        )
    }

    /// Returns the name, as in JSON: a label for metrics, which stays as it is.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::PoolCreated { .. } => "poolCreated",
            Self::PoolReady => "poolReady",
            Self::PoolCleared { .. } => "poolCleared",
            Self::PoolClosed => "poolClosed",
            Self::ConnectionCreated { .. } => "connectionCreated",
            Self::ConnectionReady { .. } => "connectionReady",
            Self::ConnectionClosed { .. } => "connectionClosed",
            Self::ConnectionCheckOutStarted => "connectionCheckOutStarted",
            Self::ConnectionCheckOutFailed { .. } => "connectionCheckOutFailed",
            Self::ConnectionCheckedOut { .. } => "connectionCheckedOut",
            Self::ConnectionCheckedIn { .. } => "connectionCheckedIn",
        }
    }
}

fn check_out_error<S: serde::Serializer>(
    error: &CheckOutError,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(error.reason())
}
