//! `count`, `distinct` and the lists of what is there.
//!
//! Nothing is stored, so that no database and no collection is listed; a command on one by name
//! finds in it what `find` does.

use bson::{RawArrayBuf, RawBson, RawDocument, RawDocumentBuf, rawdoc};
use sdam_core::bson;

use super::cursor;
use super::cursor::DOCUMENTS;
use crate::options::ServerVersion;
use crate::wire::{CommandError, integer};

/// Answers a `count`, of which the filter means nothing.
///
/// # Errors
///
/// Fails as real servers do if a number of documents is none, or the name is none.
pub(super) fn count(command: &RawDocument) -> Result<RawDocumentBuf, CommandError> {
    check_name(command, "count")?;
    let limit = match command.get("limit").ok().flatten() {
        None => None,
        // One that is negative is meant to be one batch, and so it is anyway.
        Some(limit) => Some(integer(limit).ok_or_else(not_whole)?.saturating_abs()),
    };
    let skipped = cursor::count(command, "skip")?;
    let counted = cursor::part(0..DOCUMENTS, skipped, limit.filter(|limit| *limit > 0));
    let count = i32::try_from(counted.end - counted.start).unwrap_or(i32::MAX);
    Ok(rawdoc! { "n": count, "ok": 1.0 })
}

/// Answers a `distinct`: the documents have nothing but an `_id`.
///
/// # Errors
///
/// Fails as real servers do if the name or the key is none.
pub(super) fn distinct(command: &RawDocument) -> Result<RawDocumentBuf, CommandError> {
    check_name(command, "distinct")?;
    let key = command.get_str("key").map_err(|_| CommandError::coded(14, "key is a text"))?;
    let ids = if key == "_id" { 0..DOCUMENTS } else { 0..0 };
    let values: RawArrayBuf = ids.map(RawBson::Int64).collect();
    Ok(rawdoc! { "values": values, "ok": 1.0 })
}

/// Answers a `listDatabases`.
pub(super) fn databases(version: ServerVersion, command: &RawDocument) -> RawDocumentBuf {
    match command.get_bool("nameOnly") {
        Ok(true) => rawdoc! { "databases": [], "ok": 1.0 },
        _ if version < ServerVersion::V5_0 => {
            rawdoc! { "databases": [], "totalSize": 0.0, "ok": 1.0 }
        }
        _ => rawdoc! { "databases": [], "totalSize": 0_i64, "totalSizeMb": 0_i64, "ok": 1.0 },
    }
}

/// Answers a `listCollections`.
///
/// # Errors
///
/// Fails as real servers do if the name of the database is too long.
pub(super) fn collections(database: &str) -> Result<RawDocumentBuf, CommandError> {
    Ok(cursor::whole(&cursor::joined(database, "$cmd.listCollections")?, []))
}

/// Checks that a command names a collection.
fn check_name(command: &RawDocument, field: &str) -> Result<(), CommandError> {
    let wrong = |_| CommandError::coded(73, "the name of a collection is a text");
    command.get_str(field).map(drop).map_err(wrong)
}

fn not_whole() -> CommandError {
    CommandError::coded(14, "limit is not a whole number")
}
