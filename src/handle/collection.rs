//! Collections.

use std::marker::PhantomData;
use std::sync::Arc;

use bson::{Document, RawBsonRef, RawDocumentBuf};
use sdam_host::{ClientSession, Runtime};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::cursor::{self, Cursor};
use super::perform::Handle;
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
use crate::command::{Operation, Scope, check_name};
use crate::error::{Error, ReplyError};
use crate::reply::document::read_as;
use crate::results::{
    BulkWriteResult, DeleteResult, InsertManyResult, InsertOneResult, UpdateResult,
};

/// A collection, whose documents the application reads and writes as a type of its own.
///
/// Each operation takes a value that says what it does and how; where nothing but a filter is
/// needed, the filter itself will do.
///
/// Clones and handles with other concerns share servers and connections.
pub struct Collection<R: Runtime, T = Document> {
    handle: Handle<R>,
    database: Arc<str>,
    name: Arc<str>,
    of: PhantomData<fn() -> T>,
}

impl<R: Runtime, T> Collection<R, T> {
    pub(crate) fn new(handle: Handle<R>, database: Arc<str>, name: &str) -> Self {
        Self { handle, database, name: name.into(), of: PhantomData }
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
    pub fn with_type<U>(&self) -> Collection<R, U> {
        let (database, name) = (Arc::clone(&self.database), Arc::clone(&self.name));
        Collection { handle: self.handle.clone(), database, name, of: PhantomData }
    }

    concerns!(handle, ClientSession<R>);

    /// Counts the documents that a filter matches.
    ///
    /// # Errors
    ///
    /// Fails if no server answers in time, or with an error.
    pub async fn count_documents(&self, count: impl Into<CountDocuments>) -> Result<u64, Error> {
        self.run(count.into()).await
    }

    /// Returns the number of documents as the collection's metadata have it.
    ///
    /// # Errors
    ///
    /// Fails if no server answers in time, or with an error.
    pub async fn estimated_document_count(
        &self,
        estimate: EstimatedDocumentCount,
    ) -> Result<u64, Error> {
        self.run(estimate).await
    }

    /// Counts the documents that a filter matches by the command `count`, which is deprecated.
    ///
    /// # Errors
    ///
    /// Fails if no server answers in time, or with an error.
    pub async fn count(&self, count: impl Into<Count>) -> Result<u64, Error> {
        self.run(count.into()).await
    }

    /// Returns the different values of a field.
    ///
    /// # Errors
    ///
    /// Fails if no server answers in time, or with an error.
    pub async fn distinct(&self, distinct: Distinct) -> Result<DistinctValues, Error> {
        self.run(distinct).await
    }

    /// Runs a map-reduce operation, and returns the documents that it makes, `{ _id, value }`; none
    /// if they go into a collection.
    ///
    /// It is sent once, whatever happens.
    ///
    /// # Errors
    ///
    /// Fails if no server answers in time, with an error, if the write concern is not met, and if a
    /// document is not of this type.
    #[deprecated(note = "MongoDB 5.0 deprecates mapReduce; `aggregate` does the same, faster")]
    pub async fn map_reduce<U: DeserializeOwned>(
        &self,
        map_reduce: MapReduce,
    ) -> Result<Vec<U>, Error> {
        let results = self.run(map_reduce).await?;
        let read = |result: Result<RawBsonRef<'_>, bson::error::Error>| {
            let document = result.ok().and_then(RawBsonRef::as_document);
            read_as(document.ok_or(ReplyError { command: "mapReduce", field: "results" })?)
        };
        results.into_iter().map(read).collect()
    }

    /// Explains an operation: by which plan a server would run it. Nothing is written.
    ///
    /// # Errors
    ///
    /// Fails if the operation itself could not be sent, if no server answers in time, or with an
    /// error.
    pub async fn explain<O: Operation + Send>(
        &self,
        explain: Explain<O>,
    ) -> Result<Document, Error> {
        read_as(&self.run(explain).await?)
    }

    /// Runs a pipeline, whose documents are of another type.
    ///
    /// # Errors
    ///
    /// Fails if no server answers in time, or with an error.
    pub async fn aggregate<U: DeserializeOwned>(
        &self,
        aggregate: Aggregate,
    ) -> Result<Cursor<R, U>, Error> {
        Cursor::open(&self.handle, &self.scope()?, aggregate).await
    }

    /// Updates the first document that matches.
    ///
    /// # Errors
    ///
    /// Fails if the update has no operator, if no server answers in time, and if it refuses the
    /// write.
    pub async fn update_one(&self, update: Update) -> Result<UpdateResult, Error> {
        self.run(update.into_operation(false)).await
    }

    /// Updates all documents that match.
    ///
    /// # Errors
    ///
    /// Fails as [`update_one`](Self::update_one) does.
    pub async fn update_many(&self, update: Update) -> Result<UpdateResult, Error> {
        self.run(update.into_operation(true)).await
    }

    /// Replaces the first document that matches.
    ///
    /// # Errors
    ///
    /// Fails if the replacement begins with an operator, if no server answers in time, and if it
    /// refuses the write.
    pub async fn replace_one(&self, replace: Replace) -> Result<UpdateResult, Error> {
        self.run(replace.into_operation()).await
    }

    /// Deletes the first document that matches.
    ///
    /// # Errors
    ///
    /// Fails if no server answers in time, and if it refuses the write.
    pub async fn delete_one(&self, delete: impl Into<Delete>) -> Result<DeleteResult, Error> {
        self.run(delete.into().into_operation(false)).await
    }

    /// Deletes all documents that match.
    ///
    /// # Errors
    ///
    /// Fails if no server answers in time, and if it refuses the write.
    pub async fn delete_many(&self, delete: impl Into<Delete>) -> Result<DeleteResult, Error> {
        self.run(delete.into().into_operation(true)).await
    }

    /// Does many writes, in as few commands as their kinds, number and length allow.
    ///
    /// # Errors
    ///
    /// Fails if an argument is invalid, before anything is sent; if no server answers in time, or
    /// with an error; and if it refuses any of the writes, with [`Error::BulkWrite`], which has
    /// the partial result.
    pub async fn bulk_write(&self, bulk: BulkWrite) -> Result<BulkWriteResult, Error> {
        self.run(bulk).await
    }

    /// Drops the collection; it is no error if there is none.
    ///
    /// # Errors
    ///
    /// Fails if no server answers in time, or with an error.
    pub async fn drop(&self, drop: DropCollection) -> Result<(), Error> {
        self.run(drop).await
    }

    /// Gives the collection a new name; this handle keeps the old one.
    ///
    /// # Errors
    ///
    /// Fails if no server answers in time, or with an error.
    pub async fn rename(&self, rename: RenameCollection) -> Result<(), Error> {
        self.run(rename).await
    }

    /// Changes options of the collection.
    ///
    /// # Errors
    ///
    /// Fails if no server answers in time, or with an error.
    pub async fn modify_collection(&self, modify: ModifyCollection) -> Result<(), Error> {
        self.run(modify).await
    }

    /// Creates an index, and returns its name.
    ///
    /// # Errors
    ///
    /// Fails if no server answers in time, or with an error.
    pub async fn create_index(&self, create: impl Into<CreateIndexes>) -> Result<String, Error> {
        let names = self.create_indexes(create.into()).await?;
        Ok(names.into_iter().next().unwrap_or_default())
    }

    /// Creates indexes, and returns their names.
    ///
    /// # Errors
    ///
    /// Fails if there are none, if no server answers in time, or with an error.
    pub async fn create_indexes(&self, create: CreateIndexes) -> Result<Vec<String>, Error> {
        self.run(create).await
    }

    /// Drops an index.
    ///
    /// # Errors
    ///
    /// Fails if its name is `*`, if no server answers in time, or with an error, as where there is
    /// no such index.
    pub async fn drop_index(&self, drop: impl Into<DropIndexes>) -> Result<(), Error> {
        self.run(drop.into()).await
    }

    /// Drops all indexes but that of `_id`.
    ///
    /// # Errors
    ///
    /// Fails if no server answers in time, or with an error.
    pub async fn drop_indexes(&self, drop: DropIndexes) -> Result<(), Error> {
        self.run(drop).await
    }

    /// Lists the indexes; none if there is no such collection.
    ///
    /// # Errors
    ///
    /// Fails if no server answers in time, or with an error.
    pub async fn list_indexes(&self, list: ListIndexes) -> Result<Cursor<R, Document>, Error> {
        Cursor::open(&self.handle, &self.scope()?, list).await
    }

    /// Lists the names of the indexes.
    ///
    /// # Errors
    ///
    /// Fails if no server answers in time, or with an error.
    pub async fn list_index_names(&self, list: ListIndexes) -> Result<Vec<String>, Error> {
        cursor::names(&self.handle, &self.scope()?, list).await
    }

    /// Creates indexes for searches, and returns their names.
    ///
    /// # Errors
    ///
    /// Fails if no server answers in time, or with an error.
    pub async fn create_search_indexes(
        &self,
        create: CreateSearchIndexes,
    ) -> Result<Vec<String>, Error> {
        self.run(create).await
    }

    /// Drops an index for searches; it is no error if there is none.
    ///
    /// # Errors
    ///
    /// Fails if no server answers in time, or with an error.
    pub async fn drop_search_index(&self, drop: DropSearchIndex) -> Result<(), Error> {
        self.run(drop).await
    }

    /// Gives an index for searches another definition.
    ///
    /// # Errors
    ///
    /// Fails if no server answers in time, or with an error.
    pub async fn update_search_index(&self, update: UpdateSearchIndex) -> Result<(), Error> {
        self.run(update).await
    }

    /// Lists the indexes for searches.
    ///
    /// # Errors
    ///
    /// Fails if no server answers in time, or with an error.
    pub async fn list_search_indexes(
        &self,
        list: ListSearchIndexes,
    ) -> Result<Cursor<R, Document>, Error> {
        Cursor::open(&self.handle, &self.scope()?, list).await
    }

    fn over(&self, handle: Handle<R>) -> Self {
        Self { handle, ..self.clone() }
    }

    async fn run<O: Operation + Send>(&self, mut operation: O) -> Result<O::Output, Error> {
        Ok(self.handle.run(&self.scope()?, &mut operation).await?.outcome)
    }

    /// Returns what operations are about, unless the collection has no name that a server takes.
    fn scope(&self) -> Result<Scope, Error> {
        check_name(&self.name)?;
        Ok(self.handle.scope(&self.database, &self.name)?)
    }
}

impl<R: Runtime, T: Serialize> Collection<R, T> {
    /// Inserts a document, with an `_id` if it has none.
    ///
    /// # Errors
    ///
    /// Fails if the document cannot be written as BSON, if no server answers in time, and if it
    /// refuses the write.
    pub async fn insert_one(
        &self,
        insert: impl Into<InsertOne<T>>,
    ) -> Result<InsertOneResult, Error> {
        self.run(insert.into()).await
    }

    /// Inserts documents, each with an `_id` if it has none, in as few commands as their number and
    /// length allow.
    ///
    /// # Errors
    ///
    /// Fails if there are none, if one cannot be written as BSON, if no server answers in time, or
    /// with an error; and if it refuses any of them, with [`Error::BulkWrite`], which has the
    /// partial result.
    pub async fn insert_many(
        &self,
        insert: impl Into<InsertMany<T>>,
    ) -> Result<InsertManyResult, Error> {
        self.run(insert.into()).await
    }
}

impl<R: Runtime, T: DeserializeOwned> Collection<R, T> {
    /// Looks for documents.
    ///
    /// # Errors
    ///
    /// Fails if no server answers in time, or with an error.
    pub async fn find(&self, find: impl Into<Find>) -> Result<Cursor<R, T>, Error> {
        Cursor::open(&self.handle, &self.scope()?, find.into()).await
    }

    /// Returns the first document that matches, if any does.
    ///
    /// # Errors
    ///
    /// Fails if no server answers in time, or with an error, and if the document is of another
    /// type.
    pub async fn find_one(&self, find: impl Into<FindOne>) -> Result<Option<T>, Error> {
        read_any(self.run(find.into()).await?)
    }

    /// Deletes the first document that matches, and returns it.
    ///
    /// `None` says that none matches, or that the write is not acknowledged: with `w: 0` the server
    /// says nothing of the document.
    ///
    /// # Errors
    ///
    /// Fails as [`find_one`](Self::find_one) does.
    pub async fn find_one_and_delete(
        &self,
        delete: impl Into<FindOneAndDelete>,
    ) -> Result<Option<T>, Error> {
        read_any(self.run(delete.into()).await?)
    }

    /// Replaces the first document that matches, and returns it: as it was, unless it is to be
    /// returned as it is then.
    ///
    /// `None` says that none matches, or that the write is not acknowledged: with `w: 0` the server
    /// says nothing of the document.
    ///
    /// # Errors
    ///
    /// Fails as [`find_one`](Self::find_one) does, and if the replacement begins with an operator.
    pub async fn find_one_and_replace(
        &self,
        replace: FindOneAndReplace,
    ) -> Result<Option<T>, Error> {
        read_any(self.run(replace).await?)
    }

    /// Updates the first document that matches, and returns it: as it was, unless it is to be
    /// returned as it is then.
    ///
    /// `None` says that none matches, or that the write is not acknowledged: with `w: 0` the server
    /// says nothing of the document.
    ///
    /// # Errors
    ///
    /// Fails as [`find_one`](Self::find_one) does, and if the update has no operator.
    pub async fn find_one_and_update(&self, update: FindOneAndUpdate) -> Result<Option<T>, Error> {
        read_any(self.run(update).await?)
    }
}

fn read_any<T: DeserializeOwned>(document: Option<RawDocumentBuf>) -> Result<Option<T>, Error> {
    document.map(|document| read_as(&document)).transpose()
}

/// Reads many.
pub(crate) fn read_all(documents: &[RawDocumentBuf]) -> Result<Vec<Document>, Error> {
    documents.iter().map(|document| read_as(document)).collect()
}

impl<R: Runtime, T> Clone for Collection<R, T> {
    fn clone(&self) -> Self {
        self.with_type()
    }
}

impl<R: Runtime, T> std::fmt::Debug for Collection<R, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Collection").field("namespace", &self.namespace()).finish_non_exhaustive()
    }
}
