//! The results of writes (CRUD, "Write Results"; Bulk Write, "Result").
//!
//! A write that asks for no acknowledgment has results, too, in which `acknowledged` is false and
//! every count is 0: nothing is known of it.

use std::collections::BTreeMap;

use bson::{Bson, RawDocumentBuf};

pub use crate::specifications::{
    CollectionSpecification, CollectionSpecificationInfo, CollectionType, DatabaseSpecification,
};

/// The result of `insert_one`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct InsertOneResult {
    /// False if the write concern asks for no acknowledgment.
    pub acknowledged: bool,
    /// The document's `_id`, which the client has made if there was none.
    pub inserted_id: Bson,
}

/// The result of `insert_many`.
#[derive(Clone, Debug, PartialEq, Default)]
#[non_exhaustive]
pub struct InsertManyResult {
    /// False if the write concern asks for no acknowledgment.
    pub acknowledged: bool,
    /// The `_id` of each document, by its index.
    pub inserted_ids: BTreeMap<usize, Bson>,
}

/// The result of `update_one`, `update_many` and `replace_one`.
#[derive(Clone, Debug, PartialEq, Default)]
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
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct DeleteResult {
    /// False if the write concern asks for no acknowledgment; then all else says nothing.
    pub acknowledged: bool,
    /// The number of documents that were deleted.
    pub deleted_count: u64,
}

/// The result of a write whose write concern was not met, as it would have been returned otherwise.
#[derive(Clone, Debug, PartialEq)]
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
#[derive(Clone, Debug, PartialEq, Default)]
#[non_exhaustive]
pub struct BulkWriteResult {
    /// False if the write concern asks for no acknowledgment; then the counts say nothing.
    pub acknowledged: bool,
    /// The number of documents that were inserted.
    pub inserted_count: u64,
    /// The `_id` of each document that was inserted, by the index of its write.
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
    pub upserted_ids: BTreeMap<usize, Bson>,
}

/// The result of a bulk of writes to several collections.
#[derive(Clone, Debug, PartialEq, Default)]
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
#[derive(Clone, Debug, PartialEq, Default)]
#[non_exhaustive]
pub struct VerboseResults {
    /// The results of insertions.
    pub insert_results: BTreeMap<usize, ClientInsertResult>,
    /// The results of updates and replacements.
    pub update_results: BTreeMap<usize, ClientUpdateResult>,
    /// The results of deletions.
    pub delete_results: BTreeMap<usize, ClientDeleteResult>,
}

/// The result of an insertion in a bulk of writes to several collections.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ClientInsertResult {
    /// The document's `_id`, which the client has made if there was none.
    pub inserted_id: Bson,
}

/// The result of an update or a replacement in a bulk of writes to several collections.
#[derive(Clone, Debug, PartialEq)]
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
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientDeleteResult {
    /// The number of documents that were deleted.
    pub deleted_count: u64,
}
