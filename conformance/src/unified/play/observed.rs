//! Events as documents whose fields have the format's names.

use bson::{Bson, Document, doc};
use sdam_core::command::{CommandEvent, MonitoredCommand};
use sdam_core::pool::PoolEvent;
use sdam_core::topology::EventKind as CoreEvent;

use crate::unified::format::EventKind;

/// An event that a client has reported.
#[derive(Clone, Debug)]
pub struct Observed {
    /// Its kind.
    pub kind: EventKind,
    /// Its fields.
    pub fields: Document,
}

impl Observed {
    /// Translates an event; `None` for those that the format does not have.
    pub fn of(event: &CoreEvent) -> Option<Self> {
        let (kind, fields) = match event {
            CoreEvent::TopologyOpening => (EventKind::TopologyOpening, doc! {}),
            CoreEvent::TopologyClosed => (EventKind::TopologyClosed, doc! {}),
            CoreEvent::TopologyDescriptionChanged { previous, new } => {
                let (previous, new) = (previous.topology_type.name(), new.topology_type.name());
                (EventKind::TopologyChanged, changed(previous, new))
            }
            CoreEvent::ServerDescriptionChanged { previous, new } => {
                let (previous, new) = (previous.server_type.name(), new.server_type.name());
                (EventKind::ServerChanged, changed(previous, new))
            }
            CoreEvent::ServerHeartbeatStarted { awaited, .. } => {
                (EventKind::HeartbeatStarted, doc! { "awaited": *awaited })
            }
            CoreEvent::ServerHeartbeatSucceeded { awaited, .. } => {
                (EventKind::HeartbeatSucceeded, doc! { "awaited": *awaited })
            }
            CoreEvent::ServerHeartbeatFailed { awaited, .. } => {
                (EventKind::HeartbeatFailed, doc! { "awaited": *awaited })
            }
            CoreEvent::Pool { event, .. } => return of_pool(event),
            CoreEvent::Command { command, event, .. } => return of_command(command, event),
            _ => return None,
        };
        Some(Self { kind, fields })
    }
}

fn changed(previous: &str, new: &str) -> Document {
    doc! { "previousDescription": { "type": previous }, "newDescription": { "type": new } }
}

fn of_command(command: &MonitoredCommand, event: &CommandEvent) -> Option<Observed> {
    let mut fields = doc! {
        "commandName": &command.command_name,
        "databaseName": &command.database_name,
    };
    let server = command.server_connection_id.map(Bson::Int64);
    let service = command.service_id.map(Bson::ObjectId);
    fields.extend(server.map(|id| ("serverConnectionId".to_owned(), id)));
    fields.extend(service.map(|id| ("serviceId".to_owned(), id)));
    let (kind, document) = match event {
        CommandEvent::CommandStarted { command } => {
            (EventKind::CommandStarted, Some(("command", Document::try_from(&**command))))
        }
        CommandEvent::CommandSucceeded { reply, .. } => {
            (EventKind::CommandSucceeded, Some(("reply", Document::try_from(&**reply))))
        }
        CommandEvent::CommandFailed { .. } => (EventKind::CommandFailed, None),
        _ => return None,
    };
    if let Some((name, document)) = document {
        // What is no BSON at all is a value that nothing matches.
        fields.insert(name, document.map_or(Bson::Undefined, Bson::Document));
    }
    Some(Observed { kind, fields })
}

fn of_pool(event: &PoolEvent) -> Option<Observed> {
    let (kind, fields) = match event {
        PoolEvent::PoolCreated { .. } => (EventKind::PoolCreated, doc! {}),
        PoolEvent::PoolReady => (EventKind::PoolReady, doc! {}),
        PoolEvent::PoolCleared { service, interrupt_in_use_connections, .. } => {
            let interrupt = *interrupt_in_use_connections;
            let mut fields = doc! { "interruptInUseConnections": interrupt };
            fields.extend(service.map(|service| ("serviceId".to_owned(), Bson::ObjectId(service))));
            (EventKind::PoolCleared, fields)
        }
        PoolEvent::PoolClosed => (EventKind::PoolClosed, doc! {}),
        PoolEvent::ConnectionCreated { .. } => (EventKind::ConnectionCreated, doc! {}),
        PoolEvent::ConnectionReady { .. } => (EventKind::ConnectionReady, doc! {}),
        PoolEvent::ConnectionClosed { reason, .. } => {
            (EventKind::ConnectionClosed, doc! { "reason": reason.name() })
        }
        PoolEvent::ConnectionCheckOutStarted => (EventKind::CheckOutStarted, doc! {}),
        PoolEvent::ConnectionCheckOutFailed { error, .. } => {
            (EventKind::CheckOutFailed, doc! { "reason": error.reason() })
        }
        PoolEvent::ConnectionCheckedOut { .. } => (EventKind::CheckedOut, doc! {}),
        PoolEvent::ConnectionCheckedIn { .. } => (EventKind::CheckedIn, doc! {}),
        _ => return None,
    };
    Some(Observed { kind, fields })
}
