//! The events of the SDAM Logging and Monitoring specification, with those of pools among them.

use std::num::NonZeroI64;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::command::{CommandEvent, MonitoredCommand};
use crate::config::ServerAddress;
use crate::description::{Change, ServerDescription, TopologyDescription};
use crate::diagnosis::Verdict;
use crate::dns::srv::SrvError;
use crate::failure::Failure;
use crate::id::{LinkId, ServerId, TopologyId};
use crate::pool::PoolEvent;
use crate::time::Instant;
use crate::wire::ReplyDocument;

/// Something that happened to a topology or one of its pools, with the moment it happened.
///
/// Events come in the order in which their causes were processed ("Event Order and Concurrency").
/// Serialised, an event is one flat object with its kind under `event`, in camel case, and without
/// times, whose form is the reader's choice.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Event {
    /// The topology, as unique as the seed of its machine.
    #[serde(rename = "topologyId", serialize_with = "topology_id")]
    pub topology: TopologyId,
    /// The time when it happened.
    #[serde(skip)]
    pub at: Instant,
    /// The kind of the event, with its particulars.
    #[serde(flatten)]
    pub kind: EventKind,
}

impl Event {
    /// Says what has happened in this topology, and when.
    pub const fn new(topology: TopologyId, at: Instant, kind: EventKind) -> Self {
        Self { topology, at, kind }
    }
}

/// The kind of an event, with its particulars.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum EventKind {
    /// The topology begins; always the first event.
    TopologyOpening,
    /// The description of the topology is not the same any more.
    TopologyDescriptionChanged {
        /// The previous description.
        #[serde(rename = "previousDescription")]
        previous: Arc<TopologyDescription>,
        /// The new description.
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
        /// The previous description.
        #[serde(rename = "previousDescription")]
        previous: Arc<ServerDescription>,
        /// The new description.
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
        /// True if the server replies only when its state changes or a time has passed.
        awaited: bool,
        /// The monitoring connection over which the server is asked.
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
        /// True if the server replied only when its state changed or a time had passed.
        awaited: bool,
        /// The monitoring connection over which the server has replied.
        #[serde(flatten)]
        connection: MonitoringConnection,
        /// From hello to its reply; a sample of the round trip time unless `awaited`.
        #[serde(rename = "durationMS", serialize_with = "crate::description::millis")]
        duration: Duration,
        /// The reply; of one that is longer than
        /// [`MAX_EVENT_REPLY_LEN`](crate::wire::MAX_EVENT_REPLY_LEN), the fields that fit in.
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
        /// True if the server was to reply only when its state changed or a time had passed.
        awaited: bool,
        /// The monitoring connection over which the server was asked.
        #[serde(flatten)]
        connection: MonitoringConnection,
        /// From the start of the check to its failure.
        #[serde(rename = "durationMS", serialize_with = "crate::description::millis")]
        duration: Duration,
        /// The cause.
        failure: Failure,
    },
    /// DNS names a host of the deployment that may not be used; it is passed over (Polling SRV
    /// Records).
    SrvHostRefused {
        /// The host, and the reason.
        #[serde(serialize_with = "as_text")]
        error: SrvError,
    },
    /// A lookup of the deployment's hosts brought none that can be used; the servers known so far
    /// stay (Polling SRV Records).
    SrvRescanFailed {
        /// The cause.
        #[serde(serialize_with = "as_text")]
        error: SrvError,
    },
    /// Something was found out that explains failures, or will cause some; no event of the
    /// specifications.
    Diagnosed {
        /// The likely cause.
        #[serde(flatten, serialize_with = "in_words")]
        verdict: Verdict,
    },
    /// Something happened to the pool of a server (Connection Monitoring and Pooling).
    #[serde(untagged)]
    Pool {
        /// The server's membership.
        #[serde(rename = "serverId")]
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
        /// The event.
        #[serde(flatten)]
        event: PoolEvent,
    },
    /// Something happened to a command of the application (Command Logging and Monitoring).
    #[serde(untagged)]
    Command {
        /// The membership of the server that the command is sent to.
        #[serde(rename = "serverId")]
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
        /// The command.
        #[serde(flatten)]
        command: Arc<MonitoredCommand>,
        /// The event.
        #[serde(flatten)]
        event: CommandEvent,
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
    /// The server's name for it, as its replies to hello say; `None` before the first, or if they
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

fn in_words<S: serde::Serializer>(verdict: &Verdict, serializer: S) -> Result<S::Ok, S::Error> {
    verdict.finding().serialize(serializer)
}

fn as_text<S: serde::Serializer>(error: &SrvError, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(error)
}

impl EventKind {
    /// Returns the name, as in JSON: a label for metrics, which stays as it is. An event
    /// of a pool has the name of [that](PoolEvent::name), one of a command of
    /// [that](CommandEvent::name).
    pub const fn name(&self) -> &'static str {
        match self {
            Self::TopologyOpening => "topologyOpening",
            Self::TopologyDescriptionChanged { .. } => "topologyDescriptionChanged",
            Self::TopologyClosed => "topologyClosed",
            Self::ServerOpening { .. } => "serverOpening",
            Self::ServerDescriptionChanged { .. } => "serverDescriptionChanged",
            Self::ServerClosed { .. } => "serverClosed",
            Self::ServerHeartbeatStarted { .. } => "serverHeartbeatStarted",
            Self::ServerHeartbeatSucceeded { .. } => "serverHeartbeatSucceeded",
            Self::ServerHeartbeatFailed { .. } => "serverHeartbeatFailed",
            Self::SrvHostRefused { .. } => "srvHostRefused",
            Self::SrvRescanFailed { .. } => "srvRescanFailed",
            Self::Diagnosed { .. } => "diagnosed",
            Self::Pool { event, .. } => event.name(),
            Self::Command { event, .. } => event.name(),
        }
    }

    /// Lists what has changed, for the two events that report a change; `None` for the others.
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
            | Self::Diagnosed { .. }
            | Self::Pool { .. }
            | Self::Command { .. } => None,
        }
    }
}

fn topology_id<S: serde::Serializer>(id: &TopologyId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}
