//! The rules by subject. Judges are functions of evidence, and know no server.

pub(super) mod commands;
pub(super) mod hello;
pub(super) mod logins;
pub(super) mod members;
pub(super) mod messages;
pub(super) mod sessions;
pub(super) mod step_down;
pub(super) mod streaming;
pub(super) mod versions;
pub(super) mod writes;

use sdam_core::bson::{Bson, Document};

use super::evidence::{Evidence, Judged, Topic, broken, not_tried, type_name};

const OP_MSG: &str = "OP_MSG";
const HANDSHAKE: &str = "MongoDB Handshake";
const SDAM: &str = "Server Discovery And Monitoring";
const MONITORING: &str = "Server Monitoring";
const COMPRESSION: &str = "Wire Compression in Drivers";
const SELECTION: &str = "Server Selection";
const STALENESS: &str = "Max Staleness";
const AUTHENTICATION: &str = "Authentication";
const CURSORS: &str = "Find, getMore and killCursors commands";
const SESSIONS: &str = "Sessions";
const CAUSAL: &str = "Causal Consistency";
const RETRYABLE_WRITES: &str = "Retryable Writes";
const TRANSACTIONS: &str = "Transactions";
const WRITES: &str = "Write Commands";
const POOLING: &str = "Connection Monitoring and Pooling";
const SURVIVAL: &str = "Connections Survive Primary Step Down Tests";

/// Expects a field of this type in a document, which is named by `words`.
fn field<'a>(
    words: &str,
    document: &'a Document,
    name: &str,
    expected: &str,
    fits: impl FnOnce(&Bson) -> bool,
) -> Result<&'a Bson, super::evidence::Objection> {
    match document.get(name) {
        Some(value) if fits(value) => Ok(value),
        other => {
            let found = match other {
                Some(value) => format!("{} is {}, {value}", name, type_name(Some(value))),
                None => format!("{name} is missing"),
            };
            broken(format!("{expected} {name} in the reply to {words}"), found)
        }
    }
}

/// Judges each reply to hello; there must be one.
fn each_hello(evidence: &Evidence, mut judge: impl FnMut(Topic, &Document) -> Judged) -> Judged {
    let hellos = evidence.hellos();
    if hellos.is_empty() {
        return not_tried("no hello was answered");
    }
    hellos.into_iter().try_for_each(|(topic, document)| judge(topic, document))
}

/// Returns whether a document has a field, where one that is null counts as absent: as clients read
/// what a server says of itself.
fn has(document: &Document, name: &str) -> bool {
    document.get(name).is_some_and(|value| *value != Bson::Null)
}

/// Expects that an optional field, where it is, has a type.
fn if_there(
    words: &str,
    document: &Document,
    name: &str,
    expected: &str,
    fits: impl FnOnce(&Bson) -> bool,
) -> Judged {
    match document.contains_key(name) {
        true => field(words, document, name, expected, fits).map(|_| ()),
        false => Ok(()),
    }
}

const fn is_int32(value: &Bson) -> bool {
    matches!(value, Bson::Int32(_))
}

const fn is_text(value: &Bson) -> bool {
    matches!(value, Bson::String(_))
}

const fn is_truth(value: &Bson) -> bool {
    matches!(value, Bson::Boolean(_))
}

fn is_texts(value: &Bson) -> bool {
    value.as_array().is_some_and(|array| array.iter().all(is_text))
}
