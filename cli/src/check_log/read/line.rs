//! One line: what it says, and of whom.

use sdam_core::address::ServerAddress;
use serde_json::{Map, Value};

use super::super::record::{Found, What};
use super::{description, reply};

/// Why a line that should say something of a topology does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum LineError {
    #[error("it is no JSON object")]
    Json,
    #[error(
        "it names no server: there is neither serverHost nor address nor connectionId, or it is \
         no address"
    )]
    Address,
}

/// The kinds of messages and events: the message of the log, and the event.
const KINDS: [(&str, &str, Kind); 9] = [
    ("starting topology monitoring", "topologyOpening", Kind::TopologyOpening),
    ("stopped topology monitoring", "topologyClosed", Kind::TopologyClosed),
    ("topology description changed", "topologyDescriptionChanged", Kind::TopologyChanged),
    ("starting server monitoring", "serverOpening", Kind::ServerOpening),
    ("stopped server monitoring", "serverClosed", Kind::ServerClosed),
    ("server description changed", "serverDescriptionChanged", Kind::ServerChanged),
    ("server heartbeat started", "serverHeartbeatStarted", Kind::Started),
    ("server heartbeat succeeded", "serverHeartbeatSucceeded", Kind::Succeeded),
    ("server heartbeat failed", "serverHeartbeatFailed", Kind::Failed),
];

#[derive(Clone, Copy, Debug)]
enum Kind {
    TopologyOpening,
    TopologyClosed,
    TopologyChanged,
    ServerOpening,
    ServerClosed,
    ServerChanged,
    Started,
    Succeeded,
    Failed,
}

/// Reads an object; a logger may have put the driver's message into its own as a text.
pub(super) fn object(text: &str) -> Result<Map<String, Value>, LineError> {
    let mut object: Map<String, Value> = serde_json::from_str(text).map_err(|_| LineError::Json)?;
    if let Some(inner) = message(&object).filter(|text| text.starts_with('{'))
        && let Ok(inner) = serde_json::from_str::<Map<String, Value>>(inner)
    {
        object.extend(inner);
    }
    Ok(object)
}

fn message(object: &Map<String, Value>) -> Option<&str> {
    object.get("message").or_else(|| object.get("msg"))?.as_str()
}

/// Says what happened; `None` if that is not about topologies.
pub(super) fn what(object: &Map<String, Value>) -> Result<Option<What>, LineError> {
    let Some(kind) = kind(object) else { return Ok(None) };
    let address = || address(object).ok_or(LineError::Address);
    let topology = |name: &str| object.get(name).and_then(description::topology).map(Box::new);
    let server = |name: &str| object.get(name).and_then(description::server).map(Box::new);
    let awaited = object.get("awaited").and_then(Value::as_bool);
    Ok(Some(match kind {
        Kind::TopologyOpening => What::TopologyOpening,
        Kind::TopologyClosed => What::TopologyClosed,
        Kind::TopologyChanged => What::TopologyChanged {
            previous: topology("previousDescription"),
            new: topology("newDescription"),
        },
        Kind::ServerOpening => What::ServerOpening { address: address()? },
        Kind::ServerClosed => What::ServerClosed { address: address()? },
        Kind::ServerChanged => What::ServerChanged {
            address: address()?,
            previous: server("previousDescription"),
            new: server("newDescription"),
        },
        Kind::Started => What::Started { address: address()?, awaited },
        Kind::Succeeded | Kind::Failed => {
            let found = match kind {
                Kind::Failed => Found::Failure(failure(object)),
                _ => match object.get("reply").and_then(reply::read) {
                    Some(reply) => Found::Reply(reply),
                    None => Found::UnseenReply,
                },
            };
            What::Ended { address: address()?, found, awaited }
        }
    }))
}

fn kind(object: &Map<String, Value>) -> Option<Kind> {
    let message = message(object).map(str::to_lowercase);
    let event = object.get("event").or_else(|| object.get("name")).and_then(Value::as_str);
    let mut kinds = KINDS.into_iter();
    let found =
        kinds.find(|(words, name, _)| message.as_deref() == Some(words) || event == Some(name));
    found.map(|(_, _, kind)| kind)
}

/// Reads the server: a host and its port, or both in one text.
fn address(object: &Map<String, Value>) -> Option<ServerAddress> {
    if let Some(host) = object.get("serverHost").and_then(Value::as_str) {
        let port = object.get("serverPort").and_then(|port| match port {
            Value::Number(number) => number.as_u64(),
            Value::String(text) => text.parse().ok(),
            _ => None,
        });
        return match port {
            Some(port) if host.contains(':') => format!("[{host}]:{port}").parse().ok(),
            Some(port) => format!("{host}:{port}").parse().ok(),
            None => host.parse().ok(),
        };
    }
    let described = || object.get("newDescription")?.get("address");
    let address = object.get("address").or_else(|| object.get("connectionId"));
    address.or_else(described)?.as_str()?.parse().ok()
}

/// Says in a few words why a heartbeat has failed.
fn failure(object: &Map<String, Value>) -> String {
    let said = match object.get("failure") {
        None | Some(Value::Null) => "for a reason that is not told".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => match value.get("detail").or_else(|| value.get("message")) {
            Some(Value::String(text)) => text.clone(),
            _ => value.to_string(),
        },
    };
    crate::text::shortened(&said, 200).into_owned()
}
