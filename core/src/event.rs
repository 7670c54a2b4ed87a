//! What happened: the events of the SDAM Logging and Monitoring specification, and of Connection
//! Monitoring and Pooling.

use std::num::NonZeroI64;
use std::sync::Arc;
use std::time::Duration;

use bson::oid::ObjectId;
use serde::Serialize;

use crate::config::{PoolOptions, ServerAddress};
use crate::description::{Change, ServerDescription, TopologyDescription};
use crate::dns::srv::SrvError;
use crate::failure::Failure;
pub use crate::hello::MAX_EVENT_REPLY_LEN;
use crate::hello::ReplyDocument;
use crate::id::{ConnectionId, LinkId, ServerId, TopologyId};
use crate::pool::{CheckOutError, CloseReason, Stages};
use crate::time::Instant;

/// Something that happened to a topology or one of its pools, with the moment it happened.
///
/// Events come in the order in which their causes were processed ("Event Order and Concurrency").
/// Serialised, an event is one flat object with its kind under `event`, in camel case, and without
/// times, whose form is the reader's choice.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// The topology, as unique as the seed of its machine.
    #[serde(rename = "topologyId", serialize_with = "topology_id")]
    pub topology: TopologyId,
    /// When it happened.
    #[serde(skip)]
    pub at: Instant,
    /// What happened.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// What happened.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum EventKind {
    /// The topology begins; always the first event.
    TopologyOpening,
    /// The description of the topology is not the same any more.
    TopologyDescriptionChanged {
        /// What was known before.
        #[serde(rename = "previousDescription")]
        previous: Arc<TopologyDescription>,
        /// What is known now.
        #[serde(rename = "newDescription")]
        new: Arc<TopologyDescription>,
    },
    /// The topology has ended; always the last event.
    TopologyClosed,
    /// A server joined, and will be monitored.
    ServerOpening {
        /// The server's membership.
        #[serde(rename = "serverId")]
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
    },
    /// The description of a server is not the same any more.
    ServerDescriptionChanged {
        /// What was known before.
        #[serde(rename = "previousDescription")]
        previous: Arc<ServerDescription>,
        /// What is known now.
        #[serde(rename = "newDescription")]
        new: Arc<ServerDescription>,
    },
    /// A server left, and is monitored no more.
    ServerClosed {
        /// The server's membership.
        #[serde(rename = "serverId")]
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
    },
    /// A check begins: hello is about to be sent, the stream about to be opened, or the next reply
    /// of a stream of replies awaited.
    ServerHeartbeatStarted {
        /// The server's membership.
        #[serde(rename = "serverId")]
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
        /// Whether the server replies only when its state changes or a time has passed.
        awaited: bool,
        /// Which of its monitoring connections the server is asked over.
        #[serde(flatten)]
        connection: MonitoringConnection,
    },
    /// A check has ended well.
    ServerHeartbeatSucceeded {
        /// The server's membership.
        #[serde(rename = "serverId")]
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
        /// Whether the server replied only when its state changed or a time had passed.
        awaited: bool,
        /// Which of its monitoring connections the server has replied over.
        #[serde(flatten)]
        connection: MonitoringConnection,
        /// From hello to its reply; a sample of the round trip time unless `awaited`.
        #[serde(rename = "durationMS", serialize_with = "crate::description::millis")]
        duration: Duration,
        /// The reply; of one that is longer than [`MAX_EVENT_REPLY_LEN`], the fields that fit in.
        #[serde(skip)]
        reply: ReplyDocument,
    },
    /// A check has failed, or was abandoned.
    ServerHeartbeatFailed {
        /// The server's membership.
        #[serde(rename = "serverId")]
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
        /// Whether the server was to reply only when its state changed or a time had passed.
        awaited: bool,
        /// Which of its monitoring connections the server was asked over.
        #[serde(flatten)]
        connection: MonitoringConnection,
        /// From the start of the check to its failure.
        #[serde(rename = "durationMS", serialize_with = "crate::description::millis")]
        duration: Duration,
        /// Why.
        failure: Failure,
    },
    /// DNS names a host of the deployment that may not be used; it is passed over (Polling SRV
    /// Records).
    SrvHostRefused {
        /// Which, and why.
        #[serde(serialize_with = "as_text")]
        error: SrvError,
    },
    /// A lookup of the deployment's hosts brought none that can be used; the servers known so far
    /// stay (Polling SRV Records).
    SrvRescanFailed {
        /// Why.
        #[serde(serialize_with = "as_text")]
        error: SrvError,
    },
    /// A pool was created; it is paused.
    PoolCreated {
        /// The server's membership.
        #[serde(rename = "serverId")]
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
        /// The options of the pool.
        #[serde(skip)]
        options: PoolOptions,
    },
    /// A pool may be used.
    PoolReady {
        /// The server's membership.
        #[serde(rename = "serverId")]
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
    },
    /// The connections of a pool are of no use any more, and it is paused; or, behind a load
    /// balancer, those to one service.
    PoolCleared {
        /// The server's membership.
        #[serde(rename = "serverId")]
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
        /// Behind a load balancer, the service.
        #[serde(rename = "serviceId", serialize_with = "service_id")]
        service: Option<ObjectId>,
        /// Whether connections in use are interrupted.
        interrupt_in_use_connections: bool,
        /// What was found to be wrong.
        cause: Failure,
    },
    /// A pool was closed, because its server left or the client closed.
    PoolClosed {
        /// The server's membership.
        #[serde(rename = "serverId")]
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
    },
    /// A connection begins to be established.
    ConnectionCreated {
        /// The server's membership.
        #[serde(rename = "serverId")]
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
        /// The connection.
        #[serde(rename = "connectionId")]
        connection: ConnectionId,
    },
    /// A connection is established.
    ConnectionReady {
        /// The server's membership.
        #[serde(rename = "serverId")]
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
        /// The connection.
        #[serde(rename = "connectionId")]
        connection: ConnectionId,
        /// How long that took.
        #[serde(rename = "durationMS", serialize_with = "crate::description::millis")]
        duration: Duration,
        /// How long each of its stages took.
        #[serde(skip)]
        stages: Stages,
    },
    /// A connection was closed.
    ConnectionClosed {
        /// The server's membership.
        #[serde(rename = "serverId")]
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
        /// The connection.
        #[serde(rename = "connectionId")]
        connection: ConnectionId,
        /// Why.
        reason: CloseReason,
    },
    /// An operation asks for a connection.
    ConnectionCheckOutStarted {
        /// The server's membership.
        #[serde(rename = "serverId")]
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
    },
    /// An operation gets no connection.
    ConnectionCheckOutFailed {
        /// The server's membership.
        #[serde(rename = "serverId")]
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
        /// Why.
        #[serde(serialize_with = "check_out_error", rename = "reason")]
        error: Box<CheckOutError>,
        /// How long it had waited.
        #[serde(rename = "durationMS", serialize_with = "crate::description::millis")]
        duration: Duration,
    },
    /// An operation gets a connection.
    ConnectionCheckedOut {
        /// The server's membership.
        #[serde(rename = "serverId")]
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
        /// The connection.
        #[serde(rename = "connectionId")]
        connection: ConnectionId,
        /// How long it had waited.
        #[serde(rename = "durationMS", serialize_with = "crate::description::millis")]
        duration: Duration,
    },
    /// An operation returns its connection.
    ConnectionCheckedIn {
        /// The server's membership.
        #[serde(rename = "serverId")]
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
        /// The connection.
        #[serde(rename = "connectionId")]
        connection: ConnectionId,
    },
}

/// A monitoring connection, as both sides call it (SDAM Logging and Monitoring,
/// "driverConnectionId", "serverConnectionId").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct MonitoringConnection {
    /// The number of the connection among all that have led to this server for monitoring, from 1.
    pub driver_connection_id: u64,
    /// What the server calls it, as its replies to hello tell; `None` before the first, or if they
    /// do not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_connection_id: Option<NonZeroI64>,
}

impl MonitoringConnection {
    /// Names the connection of a link.
    pub const fn new(link: LinkId, server_connection_id: Option<NonZeroI64>) -> Self {
        Self { driver_connection_id: link.number + 1, server_connection_id }
    }
}

fn service_id<S: serde::Serializer>(
    service: &Option<ObjectId>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match service {
        Some(service) => serializer.collect_str(service),
        None => serializer.serialize_none(),
    }
}

fn check_out_error<S: serde::Serializer>(
    error: &CheckOutError,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(error.reason())
}

fn as_text<S: serde::Serializer>(error: &SrvError, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(error)
}

impl EventKind {
    /// Returns whether this happened to a pool or one of its connections (Connection Monitoring and
    /// Pooling), and not to what is known of the deployment.
    pub const fn is_of_pool(&self) -> bool {
        matches!(
            self,
            Self::PoolCreated { .. }
                | Self::PoolReady { .. }
                | Self::PoolCleared { .. }
                | Self::PoolClosed { .. }
                | Self::ConnectionCreated { .. }
                | Self::ConnectionReady { .. }
                | Self::ConnectionClosed { .. }
                | Self::ConnectionCheckOutStarted { .. }
                | Self::ConnectionCheckOutFailed { .. }
                | Self::ConnectionCheckedOut { .. }
                | Self::ConnectionCheckedIn { .. }
        )
    }

    /// Lists what has changed, for the two events that tell of a change; `None` for the others.
    ///
    /// The list of a topology is empty if only descriptions of its servers have changed.
    pub fn changes(&self) -> Option<Vec<Change>> {
        match self {
            Self::TopologyDescriptionChanged { previous, new } => Some(previous.changes(new)),
            Self::ServerDescriptionChanged { previous, new } => Some(previous.changes(new)),
            Self::TopologyOpening
            | Self::TopologyClosed
            | Self::ServerOpening { .. }
            | Self::ServerClosed { .. }
            | Self::ServerHeartbeatStarted { .. }
            | Self::ServerHeartbeatSucceeded { .. }
            | Self::ServerHeartbeatFailed { .. }
            | Self::SrvHostRefused { .. }
            | Self::SrvRescanFailed { .. }
            | Self::PoolCreated { .. }
            | Self::PoolReady { .. }
            | Self::PoolCleared { .. }
            | Self::PoolClosed { .. }
            | Self::ConnectionCreated { .. }
            | Self::ConnectionReady { .. }
            | Self::ConnectionClosed { .. }
            | Self::ConnectionCheckOutStarted { .. }
            | Self::ConnectionCheckOutFailed { .. }
            | Self::ConnectionCheckedOut { .. }
            | Self::ConnectionCheckedIn { .. } => None,
        }
    }
}

fn topology_id<S: serde::Serializer>(id: &TopologyId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}
