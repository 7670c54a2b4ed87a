//! `find` and `getMore` over the few documents that every collection seems to have.
//!
//! A cursor is nothing but its number: who issued it, and how far it has come.

use std::ops::Range;
use std::sync::LazyLock;

use bson::oid::ObjectId;
use bson::{RawArrayBuf, RawDocument, RawDocumentBuf, rawdoc};
use sdam_core::bson;

use super::command_error::CommandError;
use super::protocol::integer;

/// How many documents there are: `{_id: 0}` and so on.
const DOCUMENTS: i64 = 8;

/// The bits of a cursor's number that say how far it has come.
const POSITION: i64 = 0xff;

/// All documents: what most clients want.
static ALL: LazyLock<RawArrayBuf> = LazyLock::new(|| documents(0..DOCUMENTS));

fn documents(which: Range<i64>) -> RawArrayBuf {
    which.map(|id| rawdoc! { "_id": id }).collect()
}

/// Answers a `find` with its first batch.
pub(super) fn first(process: ObjectId, command: &RawDocument) -> RawDocumentBuf {
    let collection = command.get_str("find").unwrap_or_default();
    batch(process, command, collection, 0, true).0
}

/// Answers a `getMore` with the next batch, or with all that are left if several are wanted.
pub(super) fn next(
    process: ObjectId,
    command: &RawDocument,
    all: bool,
) -> Result<Vec<RawDocumentBuf>, CommandError> {
    let id = command.get_i64("getMore").unwrap_or_default();
    let mut position = id & POSITION;
    if id != number(process, position) || position >= DOCUMENTS {
        return Err(CommandError::coded(43, format!("cursor id {id} not found")));
    }
    let collection = command.get_str("collection").unwrap_or_default();
    let mut replies = Vec::new();
    while replies.is_empty() || (all && position < DOCUMENTS) {
        let (reply, end) = batch(process, command, collection, position, false);
        replies.push(reply);
        position = end;
    }
    Ok(replies)
}

/// Returns a batch that begins at `position`, and where it ends.
fn batch(
    process: ObjectId,
    command: &RawDocument,
    collection: &str,
    position: i64,
    is_first: bool,
) -> (RawDocumentBuf, i64) {
    let size = command.get("batchSize").ok().flatten().and_then(integer).unwrap_or(DOCUMENTS);
    // In a getMore zero means the server's own choice.
    let size = if size == 0 && !is_first { DOCUMENTS } else { size.clamp(0, DOCUMENTS) };
    let end = (position + size).min(DOCUMENTS);
    let documents = match (position, end) {
        (0, DOCUMENTS) => ALL.clone(),
        _ => documents(position..end),
    };
    let id = if end < DOCUMENTS { number(process, end) } else { 0 };
    let namespace = format!("{}.{collection}", command.get_str("$db").unwrap_or_default());
    let name = if is_first { "firstBatch" } else { "nextBatch" };
    let name = <&bson::raw::CStr>::try_from(name).expect("there is no NUL in it");
    let mut cursor = rawdoc! { "id": id, "ns": namespace };
    cursor.append(name, documents);
    (rawdoc! { "cursor": cursor, "ok": 1.0 }, end)
}

/// Numbers a cursor of this process: positive, not zero, and no other process's.
fn number(process: ObjectId, position: i64) -> i64 {
    let [.., a, b, c, d, e, f, g, h] = process.bytes();
    let own = i64::from_be_bytes([a, b, c, d, e, f, g, h]) & i64::MAX & !POSITION;
    own | (1 << 62) | position
}
