//! The results of writes (CRUD, "Write Results"; Bulk Write, "Result").
//!
//! A write that asks for no acknowledgment has results, too, in which `acknowledged` is false and
//! every count is 0: nothing is known of it.
//!
//! Serialised, fields have the names of the specifications, and indexes are texts, as the names of
//! fields are.

use std::collections::BTreeMap;

use bson::{Bson, RawDocumentBuf};
use serde::{Serialize, Serializer};

/// The result of `insert_one`.
#[derive(Clone, Debug, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct InsertOneResult {
    /// False if the write concern asks for no acknowledgment.
    pub acknowledged: bool,
    /// The document's `_id`, which the client has made if there was none.
    pub inserted_id: Bson,
}

/// The result of `insert_many`.
#[derive(Clone, Debug, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct InsertManyResult {
    /// False if the write concern asks for no acknowledgment.
    pub acknowledged: bool,
    /// The `_id` of each document, by its index.
    #[serde(serialize_with = "indexed")]
    pub inserted_ids: BTreeMap<usize, Bson>,
}

/// The result of `update_one`, `update_many` and `replace_one`.
#[derive(Clone, Debug, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct UpdateResult {
    /// False if the write concern asks for no acknowledgment; then all else says nothing.
    pub acknowledged: bool,
    /// The number of documents that the filter matched.
    pub matched_count: u64,
    /// The number of documents that are different now.
    pub modified_count: u64,
    /// The number of documents that were inserted, as none matched: 0 or 1.
    pub upserted_count: u64,
    /// The `_id` of the document that was inserted, as none matched.
    pub upserted_id: Option<Bson>,
}

/// The result of `delete_one` and `delete_many`.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct DeleteResult {
    /// False if the write concern asks for no acknowledgment; then all else says nothing.
    pub acknowledged: bool,
    /// The number of documents that were deleted.
    pub deleted_count: u64,
}

/// The result of a write whose write concern was not met, as it would have been returned otherwise.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum WriteResult {
    /// That of `insert_one`.
    InsertOne(InsertOneResult),
    /// That of `update_one`, `update_many` and `replace_one`.
    Update(UpdateResult),
    /// That of `delete_one` and `delete_many`.
    Delete(DeleteResult),
    /// The document that `find_one_and_delete`, `find_one_and_replace` or `find_one_and_update`
    /// returns, if there is one.
    FindOneAnd(Option<RawDocumentBuf>),
    /// The names of the indexes that `create_index` or `create_indexes` has created.
    CreateIndexes(Vec<String>),
}

/// The result of a bulk of writes to one collection.
#[derive(Clone, Debug, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct BulkWriteResult {
    /// False if the write concern asks for no acknowledgment; then the counts say nothing.
    pub acknowledged: bool,
    /// The number of documents that were inserted.
    pub inserted_count: u64,
    /// The `_id` of each document that was inserted, by the index of its write.
    #[serde(serialize_with = "indexed")]
    pub inserted_ids: BTreeMap<usize, Bson>,
    /// The number of documents that the filters of updates and replacements matched.
    pub matched_count: u64,
    /// The number of documents that updates and replacements changed.
    pub modified_count: u64,
    /// The number of documents that were deleted.
    pub deleted_count: u64,
    /// The number of documents that updates and replacements inserted.
    pub upserted_count: u64,
    /// Their `_id`, by the index of the write.
    #[serde(serialize_with = "indexed")]
    pub upserted_ids: BTreeMap<usize, Bson>,
}

/// The result of a bulk of writes to several collections.
#[derive(Clone, Debug, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ClientBulkWriteResult {
    /// False if the write concern asks for no acknowledgment; then the counts say nothing.
    pub acknowledged: bool,
    /// The number of documents that were inserted.
    pub inserted_count: u64,
    /// The number of documents that updates and replacements inserted.
    pub upserted_count: u64,
    /// The number of documents that the filters of updates and replacements matched.
    pub matched_count: u64,
    /// The number of documents that updates and replacements changed.
    pub modified_count: u64,
    /// The number of documents that were deleted.
    pub deleted_count: u64,
    /// The result of each write that was done; `None` unless verbose results were asked for.
    pub verbose: Option<VerboseResults>,
}

/// The results of single writes, by the index of the write. Only writes that are acknowledged have
/// them.
#[derive(Clone, Debug, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct VerboseResults {
    /// The results of insertions.
    #[serde(serialize_with = "indexed")]
    pub insert_results: BTreeMap<usize, ClientInsertResult>,
    /// The results of updates and replacements.
    #[serde(serialize_with = "indexed")]
    pub update_results: BTreeMap<usize, ClientUpdateResult>,
    /// The results of deletions.
    #[serde(serialize_with = "indexed")]
    pub delete_results: BTreeMap<usize, ClientDeleteResult>,
}

/// The result of an insertion in a bulk of writes to several collections.
#[derive(Clone, Debug, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ClientInsertResult {
    /// The document's `_id`, which the client has made if there was none.
    pub inserted_id: Bson,
}

/// The result of an update or a replacement in a bulk of writes to several collections.
#[derive(Clone, Debug, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ClientUpdateResult {
    /// The number of documents that the filter matched.
    pub matched_count: u64,
    /// The number of documents that are different now.
    pub modified_count: u64,
    /// The `_id` of the document that was inserted, as none matched.
    pub upserted_id: Option<Bson>,
}

/// The result of a deletion in a bulk of writes to several collections.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ClientDeleteResult {
    /// The number of documents that were deleted.
    pub deleted_count: u64,
}

/// Writes values by their indexes. In BSON, as in JSON, keys are texts.
pub(crate) fn indexed<T: Serialize, S: Serializer>(
    values: &BTreeMap<usize, T>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(values.iter().map(|(index, value)| (index.to_string(), value)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bson::{Bson, Document, doc, rawdoc};
    use serde::Serialize;

    use super::{
        BulkWriteResult, ClientBulkWriteResult, ClientDeleteResult, ClientInsertResult,
        InsertOneResult, UpdateResult, VerboseResults, WriteResult,
    };

    fn written(value: &impl Serialize) -> Document {
        bson::serialize_to_document(value).unwrap()
    }

    /// Results are shown to people and to other programs, as JSON and in logs.
    #[test]
    fn results_are_serialised_with_the_names_of_the_specifications() {
        let inserted = InsertOneResult { acknowledged: true, inserted_id: Bson::Int32(7) };
        let expected = doc! { "acknowledged": true, "insertedId": 7 };
        assert_eq!(written(&inserted), expected);
        let result = WriteResult::InsertOne(inserted);
        assert_eq!(written(&result), expected, "as without error");
        let updated = UpdateResult { matched_count: 2, ..UpdateResult::default() };
        let expected = doc! {
            "acknowledged": false, "matchedCount": 2_i64, "modifiedCount": 0_i64,
            "upsertedCount": 0_i64, "upsertedId": null,
        };
        assert_eq!(written(&updated), expected);
        let inserted_ids = BTreeMap::from([(3, Bson::from("x"))]);
        let bulk = BulkWriteResult { inserted_ids, ..BulkWriteResult::default() };
        let document = written(&bulk);
        assert_eq!(document.get_document("insertedIds").unwrap(), &doc! { "3": "x" });
        let insert_results = BTreeMap::from([(0, ClientInsertResult { inserted_id: 1.into() })]);
        let delete_results = BTreeMap::from([(1, ClientDeleteResult { deleted_count: 5 })]);
        let verbose = VerboseResults { insert_results, delete_results, ..Default::default() };
        let bulk = ClientBulkWriteResult { verbose: Some(verbose), ..Default::default() };
        let document = written(&bulk);
        let expected = doc! {
            "insertResults": { "0": { "insertedId": 1 } }, "updateResults": {},
            "deleteResults": { "1": { "deletedCount": 5_i64 } },
        };
        assert_eq!(document.get_document("verbose").unwrap(), &expected);
        let found = WriteResult::FindOneAnd(Some(rawdoc! { "a": 1 }));
        assert_eq!(written(&found), doc! { "a": 1 });
    }
}
