//! How a client puts things: failures of streams as a runtime does, actions for a trace, and what
//! of it has not ended.

use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::topology::{Action, EventKind};

use super::Client;
use super::pools::Server;
use crate::sim::network::Packet;

/// Says why a stream has ended, as a runtime would.
pub(super) fn failure_of(packet: &Packet, stage: Stage) -> Failure {
    match packet {
        Packet::Refused => Failure::new(Stage::Connect, Cause::Refused, "connection refused"),
        Packet::NotResolved => Failure::new(Stage::Resolve, Cause::NotResolved, "no such host"),
        _ => Failure::new(stage, Cause::Closed, "the server closed the connection"),
    }
}

/// An action in one line that is not too long.
pub(super) fn brief(action: &Action) -> String {
    match action {
        Action::Send { link, bytes } => format!("Send {link} {} bytes", bytes.len()),
        Action::Publish { snapshot } => {
            let description = snapshot.description();
            let servers = description.servers().iter();
            let servers: Vec<String> =
                servers.map(|it| format!("{}={}", it.address, it.server_type)).collect();
            format!("Publish {} {}", description.topology_type, servers.join(" "))
        }
        Action::Emit { event } => match &event.kind {
            EventKind::ServerHeartbeatStarted { server, awaited, .. } => {
                format!("HeartbeatStarted {server} awaited={awaited}")
            }
            EventKind::ServerHeartbeatSucceeded { server, .. } => {
                format!("HeartbeatSucceeded {server}")
            }
            EventKind::ServerHeartbeatFailed { server, failure, .. } => {
                format!("HeartbeatFailed {server}: {failure}")
            }
            kind => format!("{kind:?}").chars().take(60).collect(),
        },
        Action::Wake { waiter, outcome } => {
            format!("Wake {waiter:?} {}", if outcome.is_ok() { "ok" } else { "error" })
        }
        other => format!("{other:?}").chars().take(160).collect(),
    }
}

/// Returns whether a message says anything of logging in: `saslStart`, `saslSupportedMechs`.
pub(super) fn names_mechanism(bytes: &[u8]) -> bool {
    bytes.windows(4).any(|word| word == b"sasl")
}

impl Client {
    /// Returns whether something has not ended.
    pub(in crate::sim) fn has_remains(&self) -> bool {
        !(self.operations.is_empty()
            && self.links.is_empty()
            && self.attempts.is_empty()
            && self.connections.is_empty()
            && self.servers.values().all(Server::is_over))
    }

    /// Says what has not ended: nothing, once the client was closed.
    pub(in crate::sim) fn remains(&self) -> String {
        let pools = self.servers.values().filter(|server| !server.is_over()).count();
        format!(
            "{} operations, {} links, {} attempts, {} connections, {pools} pools",
            self.operations.len(),
            self.links.len(),
            self.attempts.len(),
            self.connections.len()
        )
    }
}
