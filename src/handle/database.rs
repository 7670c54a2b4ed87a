//! Databases.

use std::sync::Arc;

use bson::Document;
use sdam_host::{ClientSession, Runtime};
use serde::de::DeserializeOwned;

use super::collection::Collection;
use super::cursor::{self, Cursor};
use super::perform::Handle;
use crate::command::aggregate::Aggregate;
use crate::command::collections::{CreateCollection, ListCollections};
use crate::command::databases::DropDatabase;
use crate::command::run::{RunCommand, RunCursorCommand};
use crate::error::Error;
use crate::reply::document::read_as;
use crate::reply::readable::readable;

/// A database: it makes collections, lists and creates them, and runs commands.
pub struct Database<R: Runtime> {
    handle: Handle<R>,
    name: Arc<str>,
}

impl<R: Runtime> Database<R> {
    pub(crate) fn new(handle: Handle<R>, name: &str) -> Self {
        Self { handle, name: name.into() }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    concerns!(handle, ClientSession<R>);

    /// Returns a collection whose documents are of a type of the application's; nothing is sent.
    pub fn collection<T>(&self, name: &str) -> Collection<R, T> {
        Collection::new(self.handle.clone(), Arc::clone(&self.name), name)
    }

    /// Runs a command as it is written, with no concern of this handle and never twice, on the
    /// primary unless it says otherwise (Run Command).
    ///
    /// # Errors
    ///
    /// Fails if no server answers in time, or with an error; an error of a write concern is in the
    /// reply.
    pub async fn run_command(&self, command: impl Into<RunCommand>) -> Result<Document, Error> {
        let mut command = command.into();
        let reply = self.handle.run(&self.scope()?, &mut command).await?.outcome;
        // Servers cut messages within a character, which is no reason to lose what else they say.
        read_as(&reply).or_else(|error| read_as(&readable(&reply)).map_err(|_: Error| error))
    }

    /// Runs a command that opens a cursor, as it is written.
    ///
    /// # Errors
    ///
    /// Fails as [`run_command`](Self::run_command) does, and if the reply has no cursor.
    pub async fn run_cursor_command<T: DeserializeOwned>(
        &self,
        command: impl Into<RunCursorCommand>,
    ) -> Result<Cursor<R, T>, Error> {
        Cursor::open(&self.handle, &self.scope()?, command.into()).await
    }

    /// Runs a pipeline that begins without a collection, as `$currentOp` does.
    ///
    /// # Errors
    ///
    /// Fails if no server answers in time, or with an error.
    pub async fn aggregate<T: DeserializeOwned>(
        &self,
        aggregate: Aggregate,
    ) -> Result<Cursor<R, T>, Error> {
        Cursor::open(&self.handle, &self.scope()?, aggregate).await
    }

    /// Lists the collections, each with its options.
    ///
    /// # Errors
    ///
    /// Fails if no server answers in time, or with an error.
    pub async fn list_collections(
        &self,
        list: ListCollections,
    ) -> Result<Cursor<R, Document>, Error> {
        Cursor::open(&self.handle, &self.scope()?, list).await
    }

    /// Lists the names of the collections.
    ///
    /// # Errors
    ///
    /// Fails if no server answers in time, or with an error.
    pub async fn list_collection_names(&self, list: ListCollections) -> Result<Vec<String>, Error> {
        cursor::names(&self.handle, &self.scope()?, list.names()).await
    }

    /// Creates a collection, or a view; writing to a collection creates it, too.
    ///
    /// # Errors
    ///
    /// Fails if there is one of that name, and if no server answers in time, or with an error.
    pub async fn create_collection(
        &self,
        create: impl Into<CreateCollection>,
    ) -> Result<(), Error> {
        let created = self.handle.run(&self.scope()?, &mut create.into()).await;
        created.map(|response| response.outcome)
    }

    /// Drops the database with all its collections.
    ///
    /// # Errors
    ///
    /// Fails if no server answers in time, or with an error.
    pub async fn drop(&self, mut drop: DropDatabase) -> Result<(), Error> {
        let dropped = self.handle.run(&self.scope()?, &mut drop).await;
        dropped.map(|response| response.outcome)
    }

    fn over(&self, handle: Handle<R>) -> Self {
        Self { handle, name: Arc::clone(&self.name) }
    }

    fn scope(&self) -> Result<crate::command::Scope, Error> {
        Ok(self.handle.scope(&self.name, &"".into())?)
    }
}

impl<R: Runtime> Clone for Database<R> {
    fn clone(&self) -> Self {
        Self { handle: self.handle.clone(), name: Arc::clone(&self.name) }
    }
}

impl<R: Runtime> std::fmt::Debug for Database<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").field("name", &self.name).finish_non_exhaustive()
    }
}
