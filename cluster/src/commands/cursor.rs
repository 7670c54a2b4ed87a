//! `find` and `getMore` over the few documents that every collection seems to have.
//!
//! A cursor is nothing but its number: who issued it, how far it has come, and how far it goes.

use std::ops::Range;
use std::sync::LazyLock;

use bson::oid::ObjectId;
use bson::{RawArrayBuf, RawDocument, RawDocumentBuf, rawdoc};
use sdam_core::bson;

use crate::wire::{CommandError, integer};

/// The number of documents that there are: `{_id: 0}` and so on.
pub(crate) const DOCUMENTS: i64 = 8;

/// The number of bytes that the names of a database and a collection may have, with the dot between
/// them.
const MAX_NAMESPACE_LEN: usize = 255;

/// The bits of a cursor's number that say how far it has come, and those that say how far it goes.
const POSITION: i64 = 0xf;
const END: i64 = 0xf << END_SHIFT;
const END_SHIFT: u32 = 4;

/// All documents: what most clients want.
static ALL: LazyLock<RawArrayBuf> = LazyLock::new(|| documents(0..DOCUMENTS));

fn documents(which: Range<i64>) -> RawArrayBuf {
    which.map(|id| rawdoc! { "_id": id }).collect()
}

/// Answers a `find` with its first batch.
///
/// # Errors
///
/// Fails as real servers do if a number of documents is negative or no number, if the filter is no
/// document, or if the names are too long.
pub(super) fn first(
    process: ObjectId,
    command: &RawDocument,
) -> Result<RawDocumentBuf, CommandError> {
    let namespace = namespace(command, "find")?;
    if let Ok(Some(filter)) = command.get("filter")
        && filter.as_document().is_none()
    {
        return Err(CommandError::coded(14, "filter is a document"));
    }
    // No limit at all is what zero means.
    let limit = count(command, "limit")?.filter(|limit| *limit > 0);
    let rest = part(0..DOCUMENTS, count(command, "skip")?, limit);
    let size = count(command, "batchSize")?;
    let single = command.get_bool("singleBatch").unwrap_or(false);
    Ok(open(process, &namespace, rest, size, single))
}

/// Returns what is left of the documents behind those that are skipped, up to a limit.
pub(super) fn part(all: Range<i64>, skipped: Option<i64>, limit: Option<i64>) -> Range<i64> {
    let start = all.start.saturating_add(skipped.unwrap_or(0)).min(all.end);
    start..start.saturating_add(limit.unwrap_or(DOCUMENTS)).min(all.end)
}

/// Opens a cursor over these documents: answers with the first of them, and says where to get the
/// others, unless there is to be one batch only.
pub(super) fn open(
    process: ObjectId,
    namespace: &str,
    which: Range<i64>,
    size: Option<i64>,
    single: bool,
) -> RawDocumentBuf {
    let end = which.start.saturating_add(size.unwrap_or(DOCUMENTS)).min(which.end);
    let left = if single { which.end..which.end } else { end..which.end };
    batch(process, namespace, "firstBatch", which.start..end, &left)
}

/// Answers a `getMore` with the next batch, or with all that are left if several are wanted.
///
/// # Errors
///
/// Fails as real servers do if there is no such cursor, if the size of a batch is negative, or if
/// the names are too long.
pub(super) fn next(
    process: ObjectId,
    command: &RawDocument,
    all: bool,
) -> Result<Vec<RawDocumentBuf>, CommandError> {
    let id = command.get_i64("getMore").unwrap_or_default();
    let mut left = left_of(id);
    if id != number(process, &left) || left.is_empty() || left.end > DOCUMENTS {
        return Err(CommandError::coded(43, format!("cursor id {id} not found")));
    }
    // Zero means the server's own choice.
    let size = count(command, "batchSize")?.filter(|size| *size > 0).unwrap_or(DOCUMENTS);
    let namespace = namespace(command, "collection")?;
    let mut replies = Vec::new();
    while replies.is_empty() || (all && !left.is_empty()) {
        let given = left.start..left.start.saturating_add(size).min(left.end);
        left.start = given.end;
        replies.push(batch(process, &namespace, "nextBatch", given, &left));
    }
    Ok(replies)
}

/// Answers a `killCursors`: those of this process count as killed, though nothing is kept of them.
pub(super) fn kill(process: ObjectId, command: &RawDocument) -> RawDocumentBuf {
    let ids = command.get_array("cursors").into_iter().flatten();
    let ids = ids.filter_map(|id| id.ok()?.as_i64());
    let is_own = |id: &i64| *id == number(process, &left_of(*id));
    let (killed, unknown): (Vec<i64>, Vec<i64>) = ids.partition(is_own);
    rawdoc! {
        "cursorsKilled": RawArrayBuf::from_iter(killed),
        "cursorsNotFound": RawArrayBuf::from_iter(unknown),
        "cursorsAlive": [],
        "cursorsUnknown": [],
        "ok": 1.0,
    }
}

/// Returns what a cursor of this number has still to give.
const fn left_of(id: i64) -> Range<i64> {
    (id & POSITION)..((id & END) >> END_SHIFT)
}

/// Reads how many documents are meant, if the command says so.
pub(super) fn count(command: &RawDocument, field: &str) -> Result<Option<i64>, CommandError> {
    let Some(value) = command.get(field).ok().flatten() else {
        return Ok(None);
    };
    match integer(value) {
        Some(count @ 0..) => Ok(Some(count)),
        Some(count) => {
            let reason = format!("{field} is {count}; it is a number from 0 on");
            Err(CommandError::numbered(51024, reason))
        }
        None => Err(CommandError::coded(14, format!("{field} is not a whole number"))),
    }
}

/// Names the collection, which this field has, with its database.
pub(super) fn namespace(command: &RawDocument, field: &str) -> Result<String, CommandError> {
    let (database, collection) = (command.get_str("$db"), command.get_str(field));
    joined(database.unwrap_or_default(), collection.unwrap_or_default())
}

/// Returns the name of a collection with that of its database.
///
/// # Errors
///
/// Fails as real servers do if both are too long.
pub(super) fn joined(database: &str, collection: &str) -> Result<String, CommandError> {
    let length = database.len() + 1 + collection.len();
    if length > MAX_NAMESPACE_LEN {
        let reason =
            format!("a namespace of {length} bytes; at most {MAX_NAMESPACE_LEN} are allowed");
        return Err(CommandError::coded(73, reason));
    }
    Ok(format!("{database}.{collection}"))
}

/// Returns a reply with the documents that are `given`, and a cursor for those that are `left`.
fn batch(
    process: ObjectId,
    namespace: &str,
    name: &str,
    given: Range<i64>,
    left: &Range<i64>,
) -> RawDocumentBuf {
    let documents = if given == (0..DOCUMENTS) { ALL.clone() } else { documents(given) };
    let id = if left.is_empty() { 0 } else { number(process, left) };
    reply(id, namespace, name, documents)
}

/// Returns a reply with all that there is.
pub(super) fn whole(
    namespace: &str,
    documents: impl IntoIterator<Item = RawDocumentBuf>,
) -> RawDocumentBuf {
    reply(0, namespace, "firstBatch", documents.into_iter().collect())
}

fn reply(id: i64, namespace: &str, name: &str, documents: RawArrayBuf) -> RawDocumentBuf {
    let name = <&bson::raw::CStr>::try_from(name).expect("there is no NUL in it");
    let mut cursor = rawdoc! { "id": id, "ns": namespace };
    cursor.append(name, documents);
    rawdoc! { "cursor": cursor, "ok": 1.0 }
}

/// Numbers a cursor of this process: positive, not zero, and no other process's.
fn number(process: ObjectId, left: &Range<i64>) -> i64 {
    let [.., a, b, c, d, e, f, g, h] = process.bytes();
    let own = i64::from_be_bytes([a, b, c, d, e, f, g, h]) & i64::MAX & !(POSITION | END);
    own | (1 << 62) | (left.end << END_SHIFT) | left.start
}
