//! The actions of a machine, as the words behind `>`; they are compared, and never read back.

use std::fmt::Write;

use serde_json::{Value, json};

use super::input::json as to_json;
use super::redaction::{is_redacted, redact};
use super::{message, time};
use crate::description::ServerDescription;
use crate::failure::Failure;
use crate::pool::Command;
use crate::selection::Snapshot;
use crate::topology::{Action, EventKind};

/// Writes an action.
pub(super) fn written(action: &Action) -> String {
    match action {
        Action::Open { link, address } => format!("open {link} {address}"),
        Action::Send { link, bytes } => {
            let mut message = message::to_json(bytes);
            for kind in ["msg", "query"] {
                // It differs from version to version, and from machine to machine.
                if let Some(client) = message.get_mut(kind).and_then(|body| body.get_mut("client"))
                {
                    *client = "…".into();
                }
            }
            format!("send {link} [{message}]")
        }
        Action::Close { link } => format!("close {link}"),
        Action::Resolve { question } => format!("resolve {question}"),
        Action::Join { server, address } => format!("join {server} {address}"),
        Action::Leave { server } => format!("leave {server}"),
        Action::Pool { server, command } => format!("pool {server} {}", of_pool(command)),
        Action::Publish { snapshot } => format!("publish {}", of_snapshot(snapshot)),
        Action::Wake { waiter, outcome: Ok(()) } => format!("wake w{}", waiter.0),
        Action::Wake { waiter, outcome: Err(error) } => {
            format!("wake w{} {}", waiter.0, redacted(&**error))
        }
        Action::Emit { event } => format!("emit {}", of_event(&event.kind)),
    }
}

/// Serialises what may hold words of others, without those.
pub(super) fn redacted(value: &impl serde::Serialize) -> Value {
    let mut value = serde_json::to_value(value).unwrap_or(Value::Null);
    redact(&mut value);
    value
}

fn of_pool(command: &Command) -> String {
    match command {
        Command::Ready => "ready".to_owned(),
        Command::Clear { to, interrupt, cause } => {
            let interrupting = if *interrupt { ", interrupting" } else { "" };
            format!("clear to {to}{interrupting} {}", redacted(cause))
        }
        Command::ClearService { service, to, cause } => {
            format!("clear service {service} to {to} {}", redacted(cause))
        }
    }
}

/// Returns the facts that no event contains: times, and the age of data. The rest is in the events.
fn of_snapshot(snapshot: &Snapshot) -> String {
    let description = snapshot.description();
    let mut text = description.topology_type.to_string();
    for server in description.servers().iter() {
        let ServerDescription { address, server_type, .. } = &**server;
        let _ = write!(text, " | {address} {server_type}");
        if let Some(average) = server.round_trip_time {
            let (average, least) = (average.as_nanos(), server.min_round_trip_time.as_nanos());
            let _ = write!(text, " rtt {average}/{least} ns");
        }
        if let Some(checked) = server.last_update_time {
            let _ = write!(text, " at {}", time::written(checked));
        }
        if let Some(date) = server.last_write_date {
            let _ = write!(text, " written {} ms", date.timestamp_millis());
        }
    }
    text
}

fn of_event(kind: &EventKind) -> Value {
    match kind {
        EventKind::ServerDescriptionChanged { previous, new } => {
            let mut changes = json!(previous.changes(new));
            for change in changes.as_array_mut().into_iter().flatten() {
                if change["field"] == "error" {
                    change["old"] = of_failure(previous.error.as_ref()).into();
                    change["new"] = of_failure(new.error.as_ref()).into();
                }
            }
            let address = &new.address;
            json!({ "event": "serverDescriptionChanged", "address": address, "changes": changes })
        }
        EventKind::TopologyDescriptionChanged { previous, new } => {
            let changes = previous.changes(new);
            json!({ "event": "topologyDescriptionChanged", "changes": changes })
        }
        kind => redacted(kind),
    }
}

fn of_failure(failure: Option<&Failure>) -> String {
    match failure {
        None => String::new(),
        Some(failure) if is_redacted(failure) => to_json(&redacted(failure)),
        Some(failure) => failure.to_string(),
    }
}
