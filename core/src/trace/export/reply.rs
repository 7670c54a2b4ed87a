//! The answers of servers, as far as descriptions are made of them.

use crate::hello::REPLY_FIELDS;
use crate::wire::Frames;
use bson::{Bson, Document};
use serde_json::{Map, Value};

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

/// Reads a message that a trace shows as bytes only.
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
    let document = Document::try_from(body).ok()?;
    Some(Bson::Document(document).into_canonical_extjson())
}
