//! Messages of the wire protocol as JSON that reads well, and back.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bson::{Bson, RawBsonRef, RawDocument, RawDocumentBuf};
use serde_json::{Map, Number, Value, json};

use super::LineError;
use crate::wire::{
    Flags, Frames, MAX_MESSAGE_LEN, Message, ReplyFlags, op_code, write_op_msg, write_op_query,
    write_op_reply,
};

/// The maximum length of a message that is shown as JSON, in bytes, and its maximum depth.
const MAX_READABLE_LEN: usize = 1 << 16;
const MAX_DEPTH: usize = 32;

/// The maximum length of such JSON, in bytes: no element takes sixteen times as much.
const MAX_OBJECT_LEN: usize = 16 * MAX_READABLE_LEN;

/// The maximum length of a message around its document, in bytes.
const MAX_ENVELOPE_LEN: usize = 64;

const MORE_TO_COME: &str = "moreToCome";
const EXHAUST_ALLOWED: &str = "exhaustAllowed";
const QUERY_FAILURE: &str = "queryFailure";
const AWAIT_CAPABLE: &str = "awaitCapable";

/// Writes bytes of a link: an object for a message that reads back as the same bytes, else a text
/// of base64. Signatures of `$clusterTime` are zero in both.
pub(super) fn to_json(bytes: &[u8]) -> Value {
    let message = whole(bytes);
    let readable = message.as_ref().filter(|_| bytes.len() <= MAX_READABLE_LEN).and_then(readable);
    if let Some(mut object) = readable
        && from_json(&object).is_ok_and(|again| again == bytes)
    {
        for kind in ["msg", "reply"] {
            object.get_mut(kind).into_iter().for_each(unsign);
        }
        return object;
    }
    let mut bytes = bytes.to_vec();
    if let Some(signature) = message.as_ref().and_then(signature) {
        bytes[signature].fill(0);
    }
    STANDARD.encode(bytes).into()
}

/// Reads the text of a message, and appends its bytes; a number stands for none.
pub(super) fn read(json: &str, bytes: &mut Vec<u8>) -> Result<(), LineError> {
    // What is long is base64.
    if !json.starts_with('"') && json.len() > MAX_OBJECT_LEN {
        let reason = format!("it has {} bytes; at most {MAX_OBJECT_LEN} are read", json.len());
        return Err(LineError::malformed("a message", &reason));
    }
    let value: Value =
        serde_json::from_str(json).map_err(|error| LineError::malformed("a message", &error))?;
    if !value.is_number() {
        bytes.extend(from_json(&value)?);
    }
    Ok(())
}

/// Reads what [`to_json`] wrote.
pub(super) fn from_json(value: &Value) -> Result<Vec<u8>, LineError> {
    let malformed = |reason: &str| LineError::malformed("a message", &reason);
    let object = match value {
        Value::String(text) => {
            return STANDARD.decode(text).map_err(|error| malformed(&error.to_string()));
        }
        Value::Object(object) => object,
        _ => return Err(malformed("it is neither an object nor a text of base64")),
    };
    let number = |name: &str| {
        let number = object.get(name).and_then(Value::as_i64);
        number.and_then(|number| i32::try_from(number).ok()).ok_or_else(|| malformed(name))
    };
    let flag = |name: &str| object.get(name) == Some(&Value::Bool(true));
    let (id, to, mut bytes) = (number("id")?, number("to")?, Vec::new());
    if let Some(body) = object.get("msg") {
        let mut flags = Flags::NONE;
        for (name, flag_of) in
            [(MORE_TO_COME, Flags::MORE_TO_COME), (EXHAUST_ALLOWED, Flags::EXHAUST_ALLOWED)]
        {
            flags = if flag(name) { flags.with(flag_of) } else { flags };
        }
        write_op_msg(&mut bytes, id, to, flags, &document(body)?);
    } else if let Some(body) = object.get("reply") {
        let flags = match (flag(QUERY_FAILURE), flag(AWAIT_CAPABLE)) {
            (true, _) => ReplyFlags::QUERY_FAILURE,
            (false, true) => ReplyFlags::AWAIT_CAPABLE,
            (false, false) => ReplyFlags::NONE,
        };
        write_op_reply(&mut bytes, id, to, flags, &document(body)?);
    } else if let Some(body) = object.get("query") {
        write_op_query(&mut bytes, id, "admin", &document(body)?);
    } else {
        return Err(malformed("there is none of msg, reply and query"));
    }
    Ok(bytes)
}

/// Takes bytes that are exactly one message for that.
fn whole(bytes: &[u8]) -> Option<Message> {
    let mut frames = Frames::new();
    frames.extend(bytes);
    let message = frames.next().ok()??;
    frames.is_empty().then_some(message)
}

/// Shows a message, as far as its kind is known; what is lost shows when it is read back.
fn readable(message: &Message) -> Option<Value> {
    let header = message.header();
    let mut object = Map::new();
    object.insert("id".to_owned(), header.request_id.into());
    object.insert("to".to_owned(), header.response_to.into());
    let (kind, body, flags) = match header.op_code {
        op_code::OP_MSG => {
            let message = message.op_msg().ok()?;
            let more = message.flags.contains(Flags::MORE_TO_COME).then_some(MORE_TO_COME);
            let exhaust = message.flags.contains(Flags::EXHAUST_ALLOWED).then_some(EXHAUST_ALLOWED);
            ("msg", message.body, [more, exhaust])
        }
        op_code::OP_REPLY => {
            let reply = message.op_reply().ok()?;
            let failure = reply.flags.query_failed().then_some(QUERY_FAILURE);
            let capable = reply.flags.await_capable().then_some(AWAIT_CAPABLE);
            ("reply", reply.document, [failure, capable])
        }
        _ => ("query", message.op_query().ok()?.query, [None, None]),
    };
    for flag in flags.into_iter().flatten() {
        object.insert(flag.to_owned(), true.into());
    }
    object.insert(kind.to_owned(), object_of(body, 0)?);
    Some(object.into())
}

fn object_of(document: &RawDocument, depth: usize) -> Option<Value> {
    let mut object = Map::new();
    for element in document {
        let (name, value) = element.ok()?;
        object.insert(name.as_str().to_owned(), value_of(value, depth)?);
    }
    Some(object.into())
}

/// Shows a value in extended JSON: as plainly as its type allows.
fn value_of(value: RawBsonRef<'_>, depth: usize) -> Option<Value> {
    if depth > MAX_DEPTH {
        return None;
    }
    Some(match value {
        RawBsonRef::Document(document) => object_of(document, depth + 1)?,
        RawBsonRef::Array(array) => {
            let values = array.into_iter().map(|value| value_of(value.ok()?, depth + 1));
            Value::Array(values.collect::<Option<_>>()?)
        }
        RawBsonRef::Int32(number) => number.into(),
        RawBsonRef::Double(number) if number.is_finite() => Number::from_f64(number)?.into(),
        RawBsonRef::JavaScriptCodeWithScope(_) => return None,
        RawBsonRef::Int64(number) => Bson::Int64(number).into_canonical_extjson(),
        value => Bson::try_from(value).ok()?.into_relaxed_extjson(),
    })
}

fn document(value: &Value) -> Result<RawDocumentBuf, LineError> {
    let malformed = |error: &dyn ToString| LineError::malformed("a document", error);
    match Bson::try_from(value.clone()).map_err(|error| malformed(&error))? {
        Bson::Document(document) => {
            let raw = RawDocumentBuf::try_from(&document).map_err(|error| malformed(&error))?;
            // Whatever writes a message counts on its length.
            match raw.as_bytes().len() > MAX_MESSAGE_LEN - MAX_ENVELOPE_LEN {
                true => Err(malformed(&"it is too long for a message")),
                false => Ok(raw),
            }
        }
        _ => Err(malformed(&"it is no object")),
    }
}

/// Takes the signature out of the `$clusterTime` of a reply.
fn unsign(reply: &mut Value) {
    let signature = reply.get_mut("$clusterTime").and_then(|time| time.get_mut("signature"));
    let Some(hash) = signature.and_then(|signature| signature.get_mut("hash")) else { return };
    let length = hash
        .get("$binary")
        .and_then(|binary| STANDARD.decode(binary.get("base64")?.as_str()?).ok())
        .map_or(0, |bytes| bytes.len());
    *hash = json!({ "$binary": { "base64": STANDARD.encode(vec![0; length]), "subType": "00" } });
}

/// Finds the bytes of that signature.
fn signature(message: &Message) -> Option<std::ops::Range<usize>> {
    let body = match message.header().op_code {
        op_code::OP_MSG => message.op_msg().ok()?.body,
        _ => message.op_reply().ok()?.document,
    };
    let time = body.get_document("$clusterTime").ok()?;
    let hash = time.get_document("signature").ok()?.get_binary("hash").ok()?;
    let start = (hash.bytes.as_ptr() as usize).checked_sub(message.bytes().as_ptr() as usize)?;
    Some(start..start + hash.bytes.len())
}
