//! The text form of a client's actions, for a trace.

use sdam_core::topology::{Action, EventKind};

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
