//! Replies to hello as logs show them: in extended JSON, or in what JSON.stringify makes of them.

use sdam_core::bson::{Bson, Document, RawDocumentBuf};
use sdam_core::hello::REPLY_FIELDS;
use serde_json::{Map, Value, json};

/// Reads the reply of a heartbeat: an object, or a text of one; `None` if it is neither or was cut.
pub(super) fn read(value: &Value) -> Option<RawDocumentBuf> {
    match value {
        Value::Object(reply) => document(reply),
        Value::String(text) => document(&serde_json::from_str(text).ok()?),
        _ => None,
    }
}

/// Makes a document of hello's fields in an object.
pub(in super::super) fn document(reply: &Map<String, Value>) -> Option<RawDocumentBuf> {
    // What a log has cut from the end takes this field with it.
    reply.get("ok")?;
    let mut document = Document::new();
    for name in REPLY_FIELDS {
        if let Some(value) = reply.get(name).filter(|value| !value.is_null()) {
            document.insert(name, Bson::try_from(plain(name, value)).ok()?);
        }
    }
    RawDocumentBuf::try_from(&document).ok()
}

/// Returns a value in extended JSON, which an ObjectId or a long integer may not be.
fn plain(name: &str, value: &Value) -> Value {
    match (name, value) {
        ("electionId" | "processId", Value::String(hex)) => json!({ "$oid": hex }),
        ("counter" | "setVersion", Value::Object(object)) if object.contains_key("low") => {
            long(object).map_or_else(|| value.clone(), Value::from)
        }
        ("topologyVersion", Value::Object(object)) => {
            let fields = object.iter().map(|(name, value)| (name.clone(), plain(name, value)));
            Value::Object(fields.collect())
        }
        _ => value.clone(),
    }
}

/// Reads the halves of a Long as JSON.stringify shows it.
fn long(object: &Map<String, Value>) -> Option<i64> {
    let half = |name: &str| object.get(name)?.as_i64();
    let (low, high) = (half("low")?, half("high")?);
    Some((i64::from(i32::try_from(high).ok()?) << 32) | (low & 0xffff_ffff))
}
