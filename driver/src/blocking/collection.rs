//! Collections.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use bson::Document;
use sdam_blocking::Blocking;
use sdam_core::config::{ReadConcern, ReadPreference, WriteConcern};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::ClientSession;
use super::client::Shared;
use super::cursor::Cursor;
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
use crate::handle::Collection as Futures;
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

    /// Returns a handle whose reads may use other servers.
    #[must_use]
    pub fn with_read_preference(&self, preference: ReadPreference) -> Self {
        let shared = self.shared.with(|concerns| concerns.read_preference = preference);
        Self { shared, ..self.clone() }
    }

    /// Returns a handle whose reads see other data.
    #[must_use]
    pub fn with_read_concern(&self, concern: ReadConcern) -> Self {
        let shared = self.shared.with(|concerns| concerns.read_concern = concern);
        Self { shared, ..self.clone() }
    }

    /// Returns a handle whose writes succeed under another condition.
    #[must_use]
    pub fn with_write_concern(&self, concern: WriteConcern) -> Self {
        let shared = self.shared.with(|concerns| concerns.write_concern = concern);
        Self { shared, ..self.clone() }
    }

    /// As [`Collection::with_timeout`](crate::Collection::with_timeout).
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        let shared = self.shared.with(|concerns| concerns.timeout = Some(timeout));
        Self { shared, ..self.clone() }
    }

    /// As [`Collection::with_session`](crate::Collection::with_session).
    #[must_use]
    pub fn with_session(&self, session: &ClientSession) -> Self {
        Self { shared: self.shared.with_session(session), ..self.clone() }
    }

    /// As [`Collection::count_documents`](crate::Collection::count_documents).
    ///
    /// # Errors
    ///
    /// Fails as that does.
    pub fn count_documents(&self, count: impl Into<CountDocuments>) -> Result<u64, Error> {
        self.shared.wait(self.futures().count_documents(count))
    }

    /// As [`Collection::estimated_document_count`](crate::Collection::estimated_document_count).
    ///
    /// # Errors
    ///
    /// Fails as that does.
    pub fn estimated_document_count(&self, estimate: EstimatedDocumentCount) -> Result<u64, Error> {
        self.shared.wait(self.futures().estimated_document_count(estimate))
    }

    /// As [`Collection::count`](crate::Collection::count).
    ///
    /// # Errors
    ///
    /// Fails as that does.
    pub fn count(&self, count: impl Into<Count>) -> Result<u64, Error> {
        self.shared.wait(self.futures().count(count))
    }

    /// As [`Collection::distinct`](crate::Collection::distinct).
    ///
    /// # Errors
    ///
    /// Fails as that does.
    pub fn distinct(&self, distinct: Distinct) -> Result<DistinctValues, Error> {
        self.shared.wait(self.futures().distinct(distinct))
    }

    /// As [`Collection::map_reduce`](crate::Collection::map_reduce).
    ///
    /// # Errors
    ///
    /// Fails as that does.
    #[deprecated(note = "MongoDB 5.0 deprecates mapReduce; `aggregate` does the same, faster")]
    pub fn map_reduce<U: DeserializeOwned>(&self, map_reduce: MapReduce) -> Result<Vec<U>, Error> {
        #[expect(deprecated, reason = "both are")]
        self.shared.wait(self.futures().map_reduce(map_reduce))
    }

    /// As [`Collection::explain`](crate::Collection::explain).
    ///
    /// # Errors
    ///
    /// Fails as that does.
    pub fn explain<O: Operation + Send>(&self, explain: Explain<O>) -> Result<Document, Error> {
        self.shared.wait(self.futures().explain(explain))
    }

    /// As [`Collection::aggregate`](crate::Collection::aggregate).
    ///
    /// # Errors
    ///
    /// Fails as that does.
    pub fn aggregate<U: DeserializeOwned>(&self, aggregate: Aggregate) -> Result<Cursor<U>, Error> {
        self.shared
            .wait(self.futures().aggregate(aggregate))
            .map(|cursor| Cursor::new(cursor, &self.shared))
    }

    /// As [`Collection::update_one`](crate::Collection::update_one).
    ///
    /// # Errors
    ///
    /// Fails as that does.
    pub fn update_one(&self, update: Update) -> Result<UpdateResult, Error> {
        self.shared.wait(self.futures().update_one(update))
    }

    /// As [`Collection::update_many`](crate::Collection::update_many).
    ///
    /// # Errors
    ///
    /// Fails as that does.
    pub fn update_many(&self, update: Update) -> Result<UpdateResult, Error> {
        self.shared.wait(self.futures().update_many(update))
    }

    /// As [`Collection::replace_one`](crate::Collection::replace_one).
    ///
    /// # Errors
    ///
    /// Fails as that does.
    pub fn replace_one(&self, replace: Replace) -> Result<UpdateResult, Error> {
        self.shared.wait(self.futures().replace_one(replace))
    }

    /// As [`Collection::delete_one`](crate::Collection::delete_one).
    ///
    /// # Errors
    ///
    /// Fails as that does.
    pub fn delete_one(&self, delete: impl Into<Delete>) -> Result<DeleteResult, Error> {
        self.shared.wait(self.futures().delete_one(delete))
    }

    /// As [`Collection::delete_many`](crate::Collection::delete_many).
    ///
    /// # Errors
    ///
    /// Fails as that does.
    pub fn delete_many(&self, delete: impl Into<Delete>) -> Result<DeleteResult, Error> {
        self.shared.wait(self.futures().delete_many(delete))
    }

    /// As [`Collection::bulk_write`](crate::Collection::bulk_write).
    ///
    /// # Errors
    ///
    /// Fails as that does.
    pub fn bulk_write(&self, bulk: BulkWrite) -> Result<BulkWriteResult, Error> {
        self.shared.wait(self.futures().bulk_write(bulk))
    }

    /// As [`Collection::drop`](crate::Collection::drop).
    ///
    /// # Errors
    ///
    /// Fails as that does.
    pub fn drop(&self, drop: DropCollection) -> Result<(), Error> {
        self.shared.wait(self.futures().drop(drop))
    }

    /// As [`Collection::rename`](crate::Collection::rename).
    ///
    /// # Errors
    ///
    /// Fails as that does.
    pub fn rename(&self, rename: RenameCollection) -> Result<(), Error> {
        self.shared.wait(self.futures().rename(rename))
    }

    /// As [`Collection::modify_collection`](crate::Collection::modify_collection).
    ///
    /// # Errors
    ///
    /// Fails as that does.
    pub fn modify_collection(&self, modify: ModifyCollection) -> Result<(), Error> {
        self.shared.wait(self.futures().modify_collection(modify))
    }

    /// As [`Collection::create_index`](crate::Collection::create_index).
    ///
    /// # Errors
    ///
    /// Fails as that does.
    pub fn create_index(&self, create: impl Into<CreateIndexes>) -> Result<String, Error> {
        self.shared.wait(self.futures().create_index(create))
    }

    /// As [`Collection::create_indexes`](crate::Collection::create_indexes).
    ///
    /// # Errors
    ///
    /// Fails as that does.
    pub fn create_indexes(&self, create: CreateIndexes) -> Result<Vec<String>, Error> {
        self.shared.wait(self.futures().create_indexes(create))
    }

    /// As [`Collection::drop_index`](crate::Collection::drop_index).
    ///
    /// # Errors
    ///
    /// Fails as that does.
    pub fn drop_index(&self, drop: impl Into<DropIndexes>) -> Result<(), Error> {
        self.shared.wait(self.futures().drop_index(drop))
    }

    /// As [`Collection::drop_indexes`](crate::Collection::drop_indexes).
    ///
    /// # Errors
    ///
    /// Fails as that does.
    pub fn drop_indexes(&self, drop: DropIndexes) -> Result<(), Error> {
        self.shared.wait(self.futures().drop_indexes(drop))
    }

    /// As [`Collection::list_indexes`](crate::Collection::list_indexes).
    ///
    /// # Errors
    ///
    /// Fails as that does.
    pub fn list_indexes(&self, list: ListIndexes) -> Result<Cursor<Document>, Error> {
        self.shared
            .wait(self.futures().list_indexes(list))
            .map(|cursor| Cursor::new(cursor, &self.shared))
    }

    /// As [`Collection::list_index_names`](crate::Collection::list_index_names).
    ///
    /// # Errors
    ///
    /// Fails as that does.
    pub fn list_index_names(&self, list: ListIndexes) -> Result<Vec<String>, Error> {
        self.shared.wait(self.futures().list_index_names(list))
    }

    /// As [`Collection::create_search_indexes`](crate::Collection::create_search_indexes).
    ///
    /// # Errors
    ///
    /// Fails as that does.
    pub fn create_search_indexes(&self, create: CreateSearchIndexes) -> Result<Vec<String>, Error> {
        self.shared.wait(self.futures().create_search_indexes(create))
    }

    /// As [`Collection::drop_search_index`](crate::Collection::drop_search_index).
    ///
    /// # Errors
    ///
    /// Fails as that does.
    pub fn drop_search_index(&self, drop: DropSearchIndex) -> Result<(), Error> {
        self.shared.wait(self.futures().drop_search_index(drop))
    }

    /// As [`Collection::update_search_index`](crate::Collection::update_search_index).
    ///
    /// # Errors
    ///
    /// Fails as that does.
    pub fn update_search_index(&self, update: UpdateSearchIndex) -> Result<(), Error> {
        self.shared.wait(self.futures().update_search_index(update))
    }

    /// As [`Collection::list_search_indexes`](crate::Collection::list_search_indexes).
    ///
    /// # Errors
    ///
    /// Fails as that does.
    pub fn list_search_indexes(&self, list: ListSearchIndexes) -> Result<Cursor<Document>, Error> {
        self.shared
            .wait(self.futures().list_search_indexes(list))
            .map(|cursor| Cursor::new(cursor, &self.shared))
    }

    fn futures(&self) -> Futures<Blocking, T> {
        Futures::new(self.shared.handle(), Arc::clone(&self.database), &self.name)
    }
}

impl<T: Serialize> Collection<T> {
    /// As [`Collection::insert_one`](crate::Collection::insert_one).
    ///
    /// # Errors
    ///
    /// Fails as that does.
    pub fn insert_one(&self, insert: impl Into<InsertOne<T>>) -> Result<InsertOneResult, Error> {
        self.shared.wait(self.futures().insert_one(insert))
    }

    /// As [`Collection::insert_many`](crate::Collection::insert_many).
    ///
    /// # Errors
    ///
    /// Fails as that does.
    pub fn insert_many(&self, insert: impl Into<InsertMany<T>>) -> Result<InsertManyResult, Error> {
        self.shared.wait(self.futures().insert_many(insert))
    }
}

impl<T: DeserializeOwned> Collection<T> {
    /// As [`Collection::find`](crate::Collection::find).
    ///
    /// # Errors
    ///
    /// Fails as that does.
    pub fn find(&self, find: impl Into<Find>) -> Result<Cursor<T>, Error> {
        self.shared.wait(self.futures().find(find)).map(|cursor| Cursor::new(cursor, &self.shared))
    }

    /// As [`Collection::find_one`](crate::Collection::find_one).
    ///
    /// # Errors
    ///
    /// Fails as that does.
    pub fn find_one(&self, find: impl Into<FindOne>) -> Result<Option<T>, Error> {
        self.shared.wait(self.futures().find_one(find))
    }

    /// As [`Collection::find_one_and_delete`](crate::Collection::find_one_and_delete).
    ///
    /// # Errors
    ///
    /// Fails as that does.
    pub fn find_one_and_delete(
        &self,
        delete: impl Into<FindOneAndDelete>,
    ) -> Result<Option<T>, Error> {
        self.shared.wait(self.futures().find_one_and_delete(delete))
    }

    /// As [`Collection::find_one_and_replace`](crate::Collection::find_one_and_replace).
    ///
    /// # Errors
    ///
    /// Fails as that does.
    pub fn find_one_and_replace(&self, replace: FindOneAndReplace) -> Result<Option<T>, Error> {
        self.shared.wait(self.futures().find_one_and_replace(replace))
    }

    /// As [`Collection::find_one_and_update`](crate::Collection::find_one_and_update).
    ///
    /// # Errors
    ///
    /// Fails as that does.
    pub fn find_one_and_update(&self, update: FindOneAndUpdate) -> Result<Option<T>, Error> {
        self.shared.wait(self.futures().find_one_and_update(update))
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
