//! The log messages of events.

use std::num::NonZeroU64;

use serde::Serialize;

use super::component::Component;
use super::extended_json::extended_json;
use super::form::{self, Form};
use super::message::LogMessage;
use crate::command::{CommandEvent, MonitoredCommand};
use crate::config::{PoolOptions, ServerAddress};
use crate::pool::{CheckOutError, CloseReason, PoolEvent};
use crate::topology::{Event, EventKind, MonitoringConnection};

impl LogMessage {
    /// Returns the message about an event, with documents of at most `longest` code points; `None`
    /// of events that the specifications have no message for.
    pub fn of_event(event: &Event, longest: usize) -> Option<Self> {
        Some(match &event.kind {
            EventKind::Pool { address, event, .. } => of_pool(address, event),
            EventKind::Command { address, command, event, .. } => {
                of_command(address, command, event, longest)
            }
            kind => of_topology(kind, longest)?.shown("topologyId", &event.topology),
        })
    }

    /// Returns the warning that so many messages are missing here, as they came faster than they
    /// were written; it is logged under a component whose messages may be among them. It is of no
    /// specification.
    pub fn lost(component: Component, count: NonZeroU64) -> Self {
        let count = i64::try_from(count.get()).unwrap_or(i64::MAX);
        Self::new(form::lost(component)).number("lost", count)
    }
}

/// Returns a description as its text in messages: JSON, as events have it.
pub(super) fn description(description: &impl Serialize) -> String {
    serde_json::to_string(description).unwrap_or_default()
}

fn of_topology(kind: &EventKind, longest: usize) -> Option<LogMessage> {
    let server = |form, address| LogMessage::new(form).server(address);
    Some(match kind {
        EventKind::TopologyOpening => LogMessage::new(&form::STARTING_TOPOLOGY),
        EventKind::TopologyClosed => LogMessage::new(&form::STOPPED_TOPOLOGY),
        EventKind::TopologyDescriptionChanged { previous, new } => {
            LogMessage::new(&form::TOPOLOGY_CHANGED)
                .text("previousDescription", description(previous))
                .text("newDescription", description(new))
        }
        EventKind::ServerOpening { address, .. } => server(&form::STARTING_SERVER, address),
        EventKind::ServerClosed { address, .. } => server(&form::STOPPED_SERVER, address),
        EventKind::ServerHeartbeatStarted { address, awaited, connection, .. } => {
            of_heartbeat(&form::HEARTBEAT_STARTED, address, *awaited, connection)
        }
        EventKind::ServerHeartbeatSucceeded {
            address,
            awaited,
            connection,
            duration,
            reply,
            ..
        } => of_heartbeat(&form::HEARTBEAT_SUCCEEDED, address, *awaited, connection)
            .duration(*duration)
            .text("reply", extended_json(reply, longest)),
        EventKind::ServerHeartbeatFailed {
            address,
            awaited,
            connection,
            duration,
            failure,
            ..
        } => of_heartbeat(&form::HEARTBEAT_FAILED, address, *awaited, connection)
            .duration(*duration)
            .shown("failure", failure),
        // The description of a server is in that of the topology; the others are not specified.
        _ => return None,
    })
}

fn of_heartbeat(
    form: &'static Form,
    address: &ServerAddress,
    awaited: bool,
    connection: &MonitoringConnection,
) -> LogMessage {
    let driver_id = i64::try_from(connection.driver_connection_id).unwrap_or(i64::MAX);
    let message = LogMessage::new(form)
        .server(address)
        .boolean("awaited", awaited)
        .number("driverConnectionId", driver_id);
    match connection.server_connection_id {
        Some(id) => message.number("serverConnectionId", id),
        None => message,
    }
}

fn of_command(
    address: &ServerAddress,
    command: &MonitoredCommand,
    event: &CommandEvent,
    longest: usize,
) -> LogMessage {
    let form = match event {
        CommandEvent::CommandStarted { .. } => &form::COMMAND_STARTED,
        CommandEvent::CommandSucceeded { .. } => &form::COMMAND_SUCCEEDED,
        CommandEvent::CommandFailed { .. } => &form::COMMAND_FAILED,
    };
    let driver_id = command.driver_connection_id;
    let mut message = LogMessage::new(form)
        .text("commandName", &*command.command_name)
        .text("databaseName", &*command.database_name)
        .number("requestId", command.request_id)
        .number("operationId", command.operation_id)
        .number("driverConnectionId", i64::try_from(driver_id.0).unwrap_or(i64::MAX))
        .server(address)
        .service(command.service_id);
    if let Some(id) = command.server_connection_id {
        message = message.number("serverConnectionId", id);
    }
    match event {
        CommandEvent::CommandStarted { command } => {
            message.text("command", extended_json(command, longest))
        }
        CommandEvent::CommandSucceeded { duration, reply } => {
            message.duration(*duration).text("reply", extended_json(reply, longest))
        }
        CommandEvent::CommandFailed { duration, failure } => {
            message.duration(*duration).shown("failure", failure)
        }
    }
}

fn of_pool(address: &ServerAddress, event: &PoolEvent) -> LogMessage {
    let message = |form| LogMessage::new(form).server(address);
    let connection = |form, id: &crate::id::ConnectionId| {
        message(form).number("driverConnectionId", i64::try_from(id.0).unwrap_or(i64::MAX))
    };
    match event {
        PoolEvent::PoolCreated { options } => created(message(&form::POOL_CREATED), options),
        PoolEvent::PoolReady => message(&form::POOL_READY),
        PoolEvent::PoolCleared { service, cause, .. } => {
            message(&form::POOL_CLEARED).service(*service).shown("error", cause)
        }
        PoolEvent::PoolClosed => message(&form::POOL_CLOSED),
        PoolEvent::ConnectionCreated { connection: id } => {
            connection(&form::CONNECTION_CREATED, id)
        }
        PoolEvent::ConnectionReady { connection: id, duration, .. } => {
            connection(&form::CONNECTION_READY, id).duration(*duration)
        }
        PoolEvent::ConnectionClosed { connection: id, reason, error } => {
            let message =
                connection(&form::CONNECTION_CLOSED, id).text("reason", why_closed(*reason));
            match error {
                Some(error) => message.shown("error", error),
                None => message,
            }
        }
        PoolEvent::ConnectionCheckOutStarted => message(&form::CHECK_OUT_STARTED),
        PoolEvent::ConnectionCheckOutFailed { error, duration } => {
            let message = message(&form::CHECK_OUT_FAILED).text("reason", why_failed(error));
            let message = match (error.reason(), &**error) {
                // Of an operation that was given up the reason is but the nearest there is.
                ("connectionError", _) | (_, CheckOutError::Abandoned { .. }) => {
                    message.shown("error", error)
                }
                _ => message,
            };
            message.duration(*duration)
        }
        PoolEvent::ConnectionCheckedOut { connection: id, duration } => {
            connection(&form::CHECKED_OUT, id).duration(*duration)
        }
        PoolEvent::ConnectionCheckedIn { connection: id } => connection(&form::CHECKED_IN, id),
    }
}

/// Adds the options. Which of them the application has set is not known, and all "specified" ones
/// are wanted ("Pool Created Message"); a pool has all of them but waitQueueTimeoutMS.
fn created(message: LogMessage, options: &PoolOptions) -> LogMessage {
    let message = message
        .millis("maxIdleTimeMS", options.max_idle_time)
        .number("minPoolSize", options.min_pool_size)
        .number("maxPoolSize", options.max_pool_size)
        .number("maxConnecting", options.max_connecting);
    match options.wait_queue_timeout {
        Some(timeout) => message.millis("waitQueueTimeoutMS", timeout),
        None => message,
    }
}

/// Returns why a connection was closed, in the words that MUST be used ("Connection Closed
/// Message").
const fn why_closed(reason: CloseReason) -> &'static str {
    match reason {
        CloseReason::Stale => "Connection became stale because the pool was cleared",
        CloseReason::Idle => {
            "Connection has been available but unused for longer than the configured max idle time"
        }
        CloseReason::Error => "An error occurred while using the connection",
        CloseReason::PoolClosed => "Connection pool was closed",
    }
}

/// Returns why there was no connection, in the words that MUST be used ("Connection Checkout Failed
/// Message").
fn why_failed(error: &CheckOutError) -> &'static str {
    match error.reason() {
        "timeout" => "Wait queue timeout elapsed without a connection becoming available",
        "poolClosed" => "Connection pool was closed",
        _ => "An error occurred while trying to establish a new connection",
    }
}
