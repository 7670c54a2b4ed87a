//! The answers of servers, as far as descriptions are made of them.

use crate::hello::REPLY_FIELDS;
use crate::wire::{Frames, nesting};
use bson::{Bson, RawBsonRef, RawDocument};
use serde_json::{Map, Value};

/// The number of levels that a field of a reply may have: as those of messages that a trace shows.
const MAX_LEVELS: usize = 32;

/// The messages that a call of a machine brings, in order.
pub(super) struct Replies(std::vec::IntoIter<Value>);

impl Replies {
    /// Reads them from what a trace says of the call; there are none unless something is received.
    pub(super) fn of(words: &str) -> Self {
        let received = words.strip_prefix("received ").and_then(|words| words.split_once(' '));
        let values: Vec<Value> = received
            .and_then(|(_, messages)| serde_json::from_str(messages).ok())
            .unwrap_or_default();
        // A number counts bytes that are recorded later.
        let messages: Vec<Value> = values.into_iter().filter(|it| !it.is_number()).collect();
        Self(messages.into_iter())
    }
}

impl Iterator for Replies {
    type Item = Value;

    /// Takes the next message; `None` also if there is no document in it.
    fn next(&mut self) -> Option<Value> {
        let message = self.0.next()?;
        let document = match &message {
            Value::String(base64) => unreadable(base64),
            message => message.get("msg").or_else(|| message.get("reply")).cloned(),
        };
        let Value::Object(mut document) = document? else { return None };
        let known = |field: &&str| Some((field.to_string(), document.remove(*field)?));
        Some(REPLY_FIELDS.iter().filter_map(known).collect::<Map<_, _>>().into())
    }
}

/// Reads a message that a trace shows as bytes only: the fields that are known, unless one is
/// nested too deeply to be one of those.
fn unreadable(base64: &str) -> Option<Value> {
    use base64::Engine;

    let mut frames = Frames::new();
    frames.extend(&base64::engine::general_purpose::STANDARD.decode(base64).ok()?);
    let message = frames.next().ok()??;
    let body = match (message.op_msg(), message.op_reply()) {
        (Ok(message), _) => message.body,
        (_, Ok(reply)) => reply.document,
        _ => return None,
    };
    let known = body.iter().filter_map(Result::ok).filter_map(|(name, value)| {
        let within = match value {
            RawBsonRef::Document(within) => Some(within),
            RawBsonRef::Array(within) => Some(RawDocument::from_bytes(within.as_bytes()).ok()?),
            RawBsonRef::JavaScriptCodeWithScope(_) => return None,
            _ => None,
        };
        let is_known = REPLY_FIELDS.contains(&name.as_str());
        let is_readable = within.is_none_or(|within| nesting(within, MAX_LEVELS).is_some());
        if !is_known || !is_readable {
            return None;
        }
        let value = Bson::try_from(value).ok()?.into_canonical_extjson();
        Some((name.as_str().to_owned(), value))
    });
    Some(Value::Object(known.collect()))
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use bson::{RawDocumentBuf, rawdoc};

    use super::Replies;
    use crate::wire::{Flags, write_op_msg};

    /// A reply that is nested deeply is why a trace has its bytes only.
    #[test]
    fn a_reply_is_read_without_what_is_nested_deeply() {
        // Levels of fields without names.
        const LEVELS: usize = 100_000;
        let mut bytes = Vec::new();
        for left in (0..LEVELS).rev() {
            bytes.extend(i32::try_from(5 + 7 * left).unwrap().to_le_bytes());
            if left > 0 {
                bytes.extend([3, 0]);
            }
        }
        bytes.extend([0; LEVELS]);
        let deep = RawDocumentBuf::from_bytes(bytes).unwrap();
        let mut reply = rawdoc! { "ok": 1, "setName": "a" };
        reply.append(bson::cstr!("other"), deep.clone());
        reply.append(bson::cstr!("tags"), deep);
        reply.append(bson::cstr!("hosts"), rawdoc! { "hosts": ["a:1"] });
        let mut message = Vec::new();
        write_op_msg(&mut message, 1, 1, Flags::NONE, &reply);
        let words = format!("received 1 [\"{}\"]", STANDARD.encode(message));
        let read = Replies::of(&words).next().unwrap();
        assert_eq!(read.get("setName").unwrap(), "a");
        assert!(read.get("hosts").is_some() && read.get("tags").is_none());
    }
}
