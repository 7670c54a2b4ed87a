//! Databases.

use std::sync::Arc;
use std::time::Duration;

use bson::Document;
use sdam_blocking::Blocking;
use sdam_core::config::{ReadConcern, ReadPreference, WriteConcern};
use serde::de::DeserializeOwned;

use super::ClientSession;
use super::client::Shared;
use super::collection::Collection;
use super::cursor::Cursor;
use crate::command::aggregate::Aggregate;
use crate::command::collections::{CreateCollection, ListCollections};
use crate::command::databases::DropDatabase;
use crate::command::run::{RunCommand, RunCursorCommand};
use crate::error::Error;
use crate::handle::Database as Futures;

/// A database, each operation of which has its thread wait.
#[derive(Clone, Debug)]
pub struct Database {
    shared: Shared,
    name: Arc<str>,
}

impl Database {
    pub(super) fn new(shared: Shared, name: &str) -> Self {
        Self { shared, name: name.into() }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a handle whose reads may use other servers.
    #[must_use]
    pub fn with_read_preference(&self, preference: ReadPreference) -> Self {
        let shared = self.shared.with(|concerns| concerns.read_preference = preference);
        Self { shared, name: Arc::clone(&self.name) }
    }

    /// Returns a handle whose reads see other data.
    #[must_use]
    pub fn with_read_concern(&self, concern: ReadConcern) -> Self {
        let shared = self.shared.with(|concerns| concerns.read_concern = concern);
        Self { shared, name: Arc::clone(&self.name) }
    }

    /// Returns a handle whose writes succeed under another condition.
    #[must_use]
    pub fn with_write_concern(&self, concern: WriteConcern) -> Self {
        let shared = self.shared.with(|concerns| concerns.write_concern = concern);
        Self { shared, name: Arc::clone(&self.name) }
    }

    /// As [`Database::with_timeout`](crate::Database::with_timeout).
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        let shared = self.shared.with(|concerns| concerns.timeout = Some(timeout));
        Self { shared, name: Arc::clone(&self.name) }
    }

    /// As [`Database::with_session`](crate::Database::with_session).
    #[must_use]
    pub fn with_session(&self, session: &ClientSession) -> Self {
        Self { shared: self.shared.with_session(session), name: Arc::clone(&self.name) }
    }

    /// Returns a collection whose documents are of a type of the application's; nothing is sent.
    pub fn collection<T>(&self, name: &str) -> Collection<T> {
        Collection::new(self.shared.clone(), Arc::clone(&self.name), name)
    }

    /// As [`Database::run_command`](crate::Database::run_command).
    ///
    /// # Errors
    ///
    /// Fails as that does.
    pub fn run_command(&self, command: impl Into<RunCommand>) -> Result<Document, Error> {
        self.shared.wait(self.futures().run_command(command))
    }

    /// As [`Database::run_cursor_command`](crate::Database::run_cursor_command).
    ///
    /// # Errors
    ///
    /// Fails as that does.
    pub fn run_cursor_command<T: DeserializeOwned>(
        &self,
        command: impl Into<RunCursorCommand>,
    ) -> Result<Cursor<T>, Error> {
        self.shared
            .wait(self.futures().run_cursor_command(command))
            .map(|cursor| Cursor::new(cursor, &self.shared))
    }

    /// As [`Database::aggregate`](crate::Database::aggregate).
    ///
    /// # Errors
    ///
    /// Fails as that does.
    pub fn aggregate<T: DeserializeOwned>(&self, aggregate: Aggregate) -> Result<Cursor<T>, Error> {
        self.shared
            .wait(self.futures().aggregate(aggregate))
            .map(|cursor| Cursor::new(cursor, &self.shared))
    }

    /// As [`Database::list_collections`](crate::Database::list_collections).
    ///
    /// # Errors
    ///
    /// Fails as that does.
    pub fn list_collections(&self, list: ListCollections) -> Result<Cursor<Document>, Error> {
        self.shared
            .wait(self.futures().list_collections(list))
            .map(|cursor| Cursor::new(cursor, &self.shared))
    }

    /// As [`Database::list_collection_names`](crate::Database::list_collection_names).
    ///
    /// # Errors
    ///
    /// Fails as that does.
    pub fn list_collection_names(&self, list: ListCollections) -> Result<Vec<String>, Error> {
        self.shared.wait(self.futures().list_collection_names(list))
    }

    /// As [`Database::create_collection`](crate::Database::create_collection).
    ///
    /// # Errors
    ///
    /// Fails as that does.
    pub fn create_collection(&self, create: impl Into<CreateCollection>) -> Result<(), Error> {
        self.shared.wait(self.futures().create_collection(create))
    }

    /// As [`Database::drop`](crate::Database::drop).
    ///
    /// # Errors
    ///
    /// Fails as that does.
    pub fn drop(&self, drop: DropDatabase) -> Result<(), Error> {
        self.shared.wait(self.futures().drop(drop))
    }

    fn futures(&self) -> Futures<Blocking> {
        Futures::new(self.shared.handle(), &self.name)
    }
}
