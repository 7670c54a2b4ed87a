//! Collections.

use std::marker::PhantomData;
use std::sync::Arc;

use bson::Document;
use sdam_blocking::Blocking;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::ClientSession;
use super::client::Shared;
use crate::command::Operation;
use crate::command::aggregate::Aggregate;
use crate::command::bulk_write::BulkWrite;
use crate::command::collections::{DropCollection, ModifyCollection, RenameCollection};
use crate::command::count::{Count, CountDocuments, EstimatedDocumentCount};
use crate::command::delete::Delete;
use crate::command::distinct::{Distinct, DistinctValues};
use crate::command::explain::Explain;
use crate::command::find::{Find, FindOne};
use crate::command::find_and_modify::{FindOneAndDelete, FindOneAndReplace, FindOneAndUpdate};
use crate::command::indexes::{CreateIndexes, DropIndexes, ListIndexes};
use crate::command::insert::{InsertMany, InsertOne};
use crate::command::map_reduce::MapReduce;
use crate::command::search_indexes::{
    CreateSearchIndexes, DropSearchIndex, ListSearchIndexes, UpdateSearchIndex,
};
use crate::command::update::{Replace, Update};
use crate::error::Error;
use crate::handle::{Collection as Futures, concerns};
use crate::results::{
    BulkWriteResult, DeleteResult, InsertManyResult, InsertOneResult, UpdateResult,
};

/// A collection, each operation of which has its thread wait.
pub struct Collection<T = Document> {
    shared: Shared,
    database: Arc<str>,
    name: Arc<str>,
    of: PhantomData<fn() -> T>,
}

impl<T> Collection<T> {
    pub(super) fn new(shared: Shared, database: Arc<str>, name: &str) -> Self {
        Self { shared, database, name: name.into(), of: PhantomData }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name of its database, a dot, and its own.
    pub fn namespace(&self) -> String {
        format!("{}.{}", self.database, self.name)
    }

    /// Returns the same collection with documents of another type.
    pub fn with_type<U>(&self) -> Collection<U> {
        let (database, name) = (Arc::clone(&self.database), Arc::clone(&self.name));
        Collection { shared: self.shared.clone(), database, name, of: PhantomData }
    }

    concerns!(shared, ClientSession);

    waiting! {
        Collection {
            fn count_documents(count: impl Into<CountDocuments>) -> u64;
            fn estimated_document_count(estimate: EstimatedDocumentCount) -> u64;
            fn count(count: impl Into<Count>) -> u64;
            fn distinct(distinct: Distinct) -> DistinctValues;
        }
    }

    /// As [`Collection::map_reduce`](crate::driver::Collection::map_reduce).
    ///
    /// # Errors
    ///
    /// Fails as that does.
    #[deprecated(note = "MongoDB 5.0 deprecates mapReduce; `aggregate` does the same, faster")]
    pub fn map_reduce<U: DeserializeOwned>(&self, map_reduce: MapReduce) -> Result<Vec<U>, Error> {
        #[expect(deprecated, reason = "both are")]
        self.shared.wait(self.futures().map_reduce(map_reduce))
    }

    waiting! {
        Collection {
            fn explain<O: Operation + Send>(explain: Explain<O>) -> Document;
            fn update_one(update: Update) -> UpdateResult;
            fn update_many(update: Update) -> UpdateResult;
            fn replace_one(replace: Replace) -> UpdateResult;
            fn delete_one(delete: impl Into<Delete>) -> DeleteResult;
            fn delete_many(delete: impl Into<Delete>) -> DeleteResult;
            fn bulk_write(bulk: BulkWrite) -> BulkWriteResult;
            fn drop(drop: DropCollection) -> ();
            fn rename(rename: RenameCollection) -> ();
            fn modify_collection(modify: ModifyCollection) -> ();
            fn create_index(create: impl Into<CreateIndexes>) -> String;
            fn create_indexes(create: CreateIndexes) -> Vec<String>;
            fn drop_index(drop: impl Into<DropIndexes>) -> ();
            fn drop_indexes(drop: DropIndexes) -> ();
            fn list_index_names(list: ListIndexes) -> Vec<String>;
            fn create_search_indexes(create: CreateSearchIndexes) -> Vec<String>;
            fn drop_search_index(drop: DropSearchIndex) -> ();
            fn update_search_index(update: UpdateSearchIndex) -> ();
        }
        cursors {
            fn aggregate<U: DeserializeOwned>(aggregate: Aggregate) -> U;
            fn list_indexes(list: ListIndexes) -> Document;
            fn list_search_indexes(list: ListSearchIndexes) -> Document;
        }
    }

    fn over(&self, shared: Shared) -> Self {
        Self { shared, ..self.clone() }
    }

    fn futures(&self) -> Futures<Blocking, T> {
        Futures::new(self.shared.handle(), Arc::clone(&self.database), &self.name)
    }
}

impl<T: Serialize> Collection<T> {
    waiting! {
        Collection {
            fn insert_one(insert: impl Into<InsertOne<T>>) -> InsertOneResult;
            fn insert_many(insert: impl Into<InsertMany<T>>) -> InsertManyResult;
        }
    }
}

impl<T: DeserializeOwned> Collection<T> {
    waiting! {
        Collection {
            fn find_one(find: impl Into<FindOne>) -> Option<T>;
            fn find_one_and_delete(delete: impl Into<FindOneAndDelete>) -> Option<T>;
            fn find_one_and_replace(replace: FindOneAndReplace) -> Option<T>;
            fn find_one_and_update(update: FindOneAndUpdate) -> Option<T>;
        }
        cursors {
            fn find(find: impl Into<Find>) -> T;
        }
    }
}

impl<T> Clone for Collection<T> {
    fn clone(&self) -> Self {
        self.with_type()
    }
}

impl<T> std::fmt::Debug for Collection<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Collection").field("namespace", &self.namespace()).finish_non_exhaustive()
    }
}
