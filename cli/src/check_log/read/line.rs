//! One line: what it says, and of whom.

use serde_json::{Map, Value};

use super::super::record::{Found, What};
use super::{address, description, reply};

/// The reason why a line that should say something of a topology does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum LineError {
    #[error("it is no JSON object")]
    Json,
    #[error("it speaks of a topology, and is no JSON object")]
    Text,
    #[error(
        "it names no server: there is neither serverHost nor address nor serverAddress nor \
         connectionId, or it is no address"
    )]
    Address,
    #[error("line has no `message` or `event` field")]
    Event,
}

impl LineError {
    /// Returns whether the line looks like one that says something of a topology.
    pub(super) const fn is_of_topology(self) -> bool {
        !matches!(self, Self::Json)
    }
}

/// The kinds of messages and events: the message of the log, and the event.
const KINDS: [(&str, &str, Kind); 10] = [
    ("starting topology monitoring", "topologyOpening", Kind::TopologyOpening),
    ("stopped topology monitoring", "topologyClosed", Kind::TopologyClosed),
    ("topology description changed", "topologyDescriptionChanged", Kind::TopologyChanged),
    ("starting server monitoring", "serverOpening", Kind::ServerOpening),
    ("stopped server monitoring", "serverClosed", Kind::ServerClosed),
    ("server description changed", "serverDescriptionChanged", Kind::ServerChanged),
    ("server heartbeat started", "serverHeartbeatStarted", Kind::Started),
    ("server heartbeat succeeded", "serverHeartbeatSucceeded", Kind::Succeeded),
    ("server heartbeat failed", "serverHeartbeatFailed", Kind::Failed),
    // Of no specification: what sdam says in its log, and `sdam watch`.
    ("log messages were lost", "eventsDropped", Kind::Lost),
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
    Lost,
}

/// Reads an object. A logger may have put something before it, or the driver's message into its
/// own, as a text in `message` or as an object in `fields`.
pub(super) fn object(text: &str) -> Result<Map<String, Value>, LineError> {
    let read = |text: &str| serde_json::from_str::<Map<String, Value>>(text).ok();
    let behind_prefix = || read(text.get(text.find('{')?..)?);
    let mut object = read(text).or_else(behind_prefix).ok_or_else(|| unread(text))?;
    if let Some(Value::Object(fields)) = object.remove("fields") {
        object.extend(fields);
    }
    if let Some(inner) = message(&object).filter(|text| text.starts_with('{'))
        && let Ok(inner) = serde_json::from_str::<Map<String, Value>>(inner)
    {
        object.extend(inner);
    }
    Ok(object)
}

/// Says of a line that is no object whether it should have been one.
fn unread(text: &str) -> LineError {
    let text = text.to_lowercase();
    let is_named = |(words, event, _): &(&str, &str, Kind)| {
        text.contains(words) || text.contains(&event.to_lowercase())
    };
    match KINDS.iter().any(is_named) {
        true => LineError::Text,
        false => LineError::Json,
    }
}

fn message(object: &Map<String, Value>) -> Option<&str> {
    object.get("message").or_else(|| object.get("msg"))?.as_str()
}

/// Says what happened; `None` if that is not about topologies.
pub(super) fn what(object: &Map<String, Value>) -> Result<Option<What>, LineError> {
    let Some(kind) = kind(object) else {
        return if is_event(object) { Err(LineError::Event) } else { Ok(None) };
    };
    let address = || address::of_line(object).ok_or(LineError::Address);
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
        Kind::Lost => What::Lost,
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

/// Returns whether this has the fields of an event without its name.
fn is_event(object: &Map<String, Value>) -> bool {
    object.contains_key("newDescription")
        || object.contains_key("awaited") && address::of_line(object).is_some()
}

/// Says in a few words why a heartbeat has failed.
fn failure(object: &Map<String, Value>) -> String {
    let said = match object.get("failure") {
        None | Some(Value::Null) => "for a reason that is not given".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => match value.get("detail").or_else(|| value.get("message")) {
            Some(Value::String(text)) => text.clone(),
            _ => value.to_string(),
        },
    };
    crate::text::shortened(&said, 200).into_owned()
}
