//! The commands by which a bucket is looked at. None but the removal changes anything, and none
//! brings the bytes of files.

use sdam_core::bson::oid::ObjectId;
use sdam_core::bson::{
    RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr, rawdoc,
};

/// The number of chunks in a batch, and of documents of files.
const CHUNKS: i32 = 5000;
pub(super) const FILES: usize = 500;

/// Asks for the indexes of a collection.
pub(super) fn list_indexes(collection: &str) -> RawDocumentBuf {
    rawdoc! { "listIndexes": collection }
}

/// Asks for all chunks, or those of one file, in the order of their files and numbers: the index
/// has that order; without it, the server sorts what is left of them once their bytes are gone.
pub(super) fn chunks(
    collection: &str,
    of: Option<RawBsonRef<'_>>,
    (has_index, has_lengths): (bool, bool),
) -> RawDocumentBuf {
    let is_binary = rawdoc! { "$eq": [{ "$type": "$data" }, "binData"] };
    let length = match has_lengths {
        true => RawBson::Document(rawdoc! { "$binarySize": "$data" }),
        false => RawBson::Null,
    };
    let length = rawdoc! { "$cond": { "if": is_binary, "then": length, "else": -1 } };
    let shown = rawdoc! { "$project": { "files_id": 1, "n": 1, "length": length } };
    let sorted = rawdoc! { "$sort": { "files_id": 1, "n": 1 } };
    let mut stages = RawArrayBuf::new();
    if let Some(id) = of {
        stages.push(rawdoc! { "$match": { "files_id": equal(id) } });
    }
    let (first, second) = if has_index { (sorted, shown) } else { (shown, sorted) };
    stages.push(first);
    stages.push(second);
    rawdoc! {
        "aggregate": collection, "pipeline": stages, "cursor": { "batchSize": CHUNKS },
        "allowDiskUse": true,
    }
}

/// Asks for the documents of files of these `_id`s, or for all of them.
pub(super) fn files(collection: &str, ids: Option<&[RawBson]>) -> RawDocumentBuf {
    let mut filter = RawDocumentBuf::new();
    if let Some(ids) = ids {
        filter.append(cstr!("_id"), rawdoc! { "$in": array(ids) });
    }
    let shown = rawdoc! { "filename": 1, "length": 1, "chunkSize": 1 };
    let batch = i32::try_from(FILES).unwrap_or(i32::MAX);
    rawdoc! { "find": collection, "filter": filter, "projection": shown, "batchSize": batch }
}

/// Asks for the first chunk of each of these files; the index alone answers.
pub(super) fn first_chunks(collection: &str, ids: &[RawBson]) -> RawDocumentBuf {
    let filter = rawdoc! { "files_id": { "$in": array(ids) }, "n": 0 };
    let shown = rawdoc! { "_id": 0, "files_id": 1 };
    rawdoc! { "find": collection, "filter": filter, "projection": shown, "batchSize": CHUNKS }
}

/// Asks for any document of a collection.
pub(super) fn any(collection: &str) -> RawDocumentBuf {
    one(collection, RawDocumentBuf::new(), rawdoc! { "_id": 1 })
}

/// Asks for any chunk of a file.
pub(super) fn any_chunk(collection: &str, id: RawBsonRef<'_>) -> RawDocumentBuf {
    let (filter, shown) = (rawdoc! { "files_id": equal(id) }, rawdoc! { "_id": 1 });
    one(collection, filter, shown)
}

/// Asks for one chunk of a file with its data.
pub(super) fn data(collection: &str, id: RawBsonRef<'_>) -> RawDocumentBuf {
    let (filter, shown) = (rawdoc! { "files_id": equal(id) }, rawdoc! { "data": 1 });
    one(collection, filter, shown)
}

/// Asks for a chunk of a file that is no older than that, or does not say how old it is.
pub(super) fn recent_chunk(
    collection: &str,
    id: RawBsonRef<'_>,
    oldest: ObjectId,
) -> RawDocumentBuf {
    let is_recent = rawdoc! { "$not": { "$lt": oldest } };
    let filter = rawdoc! { "files_id": equal(id), "_id": is_recent };
    one(collection, filter, rawdoc! { "_id": 1 })
}

/// Removes the chunks of a file that are older than that; the server waits so many milliseconds at
/// most for other members to do so, too.
pub(super) fn removal(
    collection: &str,
    id: RawBsonRef<'_>,
    (oldest, wait): (ObjectId, i64),
) -> RawDocumentBuf {
    let filter = rawdoc! { "files_id": equal(id), "_id": { "$lt": oldest } };
    let mut deletes = RawArrayBuf::new();
    deletes.push(rawdoc! { "q": filter, "limit": 0 });
    let concern = rawdoc! { "w": "majority", "wtimeout": wait };
    rawdoc! { "delete": collection, "deletes": deletes, "writeConcern": concern }
}

/// Asks for the next batch of a cursor.
pub(super) fn get_more(cursor: i64, collection: &str) -> RawDocumentBuf {
    rawdoc! { "getMore": cursor, "collection": collection, "batchSize": CHUNKS }
}

fn one(collection: &str, filter: RawDocumentBuf, shown: RawDocumentBuf) -> RawDocumentBuf {
    rawdoc! {
        "find": collection, "filter": filter, "projection": shown, "limit": 1, "singleBatch": true,
    }
}

fn equal(id: RawBsonRef<'_>) -> RawDocumentBuf {
    let mut filter = RawDocumentBuf::new();
    filter.append(cstr!("$eq"), id);
    filter
}

fn array(ids: &[RawBson]) -> RawArrayBuf {
    let mut array = RawArrayBuf::new();
    ids.iter().for_each(|id| array.push(id.as_raw_bson_ref()));
    array
}

/// Returns the documents of a batch.
pub(super) fn batch(reply: &RawDocument) -> Vec<&RawDocument> {
    let cursor = reply.get_document("cursor").ok();
    let batch = cursor
        .and_then(|it| it.get_array("firstBatch").or_else(|_| it.get_array("nextBatch")).ok());
    batch.into_iter().flatten().filter_map(|item| item.ok()?.as_document()).collect()
}

/// Returns the cursor that has more, if one does.
pub(super) fn cursor(reply: &RawDocument) -> Option<i64> {
    let id = reply.get_document("cursor").ok()?.get_i64("id").ok()?;
    (id != 0).then_some(id)
}
