//! The client, as far as operations are about no database.

use bson::{Document, RawDocumentBuf};
use sdam_core::session::{SessionError, SessionOptions};
use sdam_host::{ClientSession, Runtime};

use super::collection::read_all;
use super::database::Database;
use super::perform::Handle;
use crate::command::client_bulk_write::ClientBulkWrite;
use crate::command::databases::{Databases, ListDatabases};
use crate::error::Error;
use crate::results::ClientBulkWriteResult;

/// A client with typed operations: it makes databases, lists them, and writes to several
/// collections at once.
///
/// It shares servers and connections with the client that it is made of. Its concerns, and those of
/// the databases and collections made of it, are those of the options, until a handle with others
/// is made.
pub struct Client<R: Runtime> {
    handle: Handle<R>,
}

impl<R: Runtime> Client<R> {
    /// Adds typed operations to a client.
    pub fn new(client: sdam_host::Client<R>) -> Self {
        Self { handle: Handle::new(client) }
    }

    pub(crate) const fn of(handle: Handle<R>) -> Self {
        Self { handle }
    }

    const fn over(&self, handle: Handle<R>) -> Self {
        Self::of(handle)
    }

    /// Returns the client below.
    pub const fn client(&self) -> &sdam_host::Client<R> {
        &self.handle.client
    }

    concerns!(handle, ClientSession<R>);

    /// Starts a session of the application's.
    ///
    /// Servers may have forgotten one that is not used for a minute after it was started (Driver
    /// Sessions, "startSession").
    ///
    /// # Errors
    ///
    /// Fails if the options exclude each other.
    pub fn start_session(&self, options: SessionOptions) -> Result<ClientSession<R>, SessionError> {
        self.handle.client.start_session(options)
    }

    /// Returns a database; nothing is sent.
    pub fn database(&self, name: &str) -> Database<R> {
        Database::new(self.handle.clone(), name)
    }

    /// Lists the databases: `name`, `sizeOnDisk` and `empty` of each.
    ///
    /// # Errors
    ///
    /// Fails if no server answers in time, or with an error.
    pub async fn list_databases(&self, list: ListDatabases) -> Result<Vec<Document>, Error> {
        let scope = self.handle.scope(&"admin".into(), &"".into())?;
        let found: Vec<RawDocumentBuf> =
            self.handle.run(&scope, &mut Databases::whole(list)).await?.outcome;
        read_all(&found)
    }

    /// Lists the names of the databases.
    ///
    /// # Errors
    ///
    /// Fails if no server answers in time, or with an error.
    pub async fn list_database_names(&self, list: ListDatabases) -> Result<Vec<String>, Error> {
        let scope = self.handle.scope(&"admin".into(), &"".into())?;
        Ok(self.handle.run(&scope, &mut Databases::names(list)).await?.outcome)
    }

    /// Writes to several collections, in as few commands as their number and length allow (MongoDB
    /// 8.0).
    ///
    /// # Errors
    ///
    /// Fails if an argument is invalid, before anything is sent; if no server answers in time, or
    /// with an error; and if it refuses any of the writes, with [`Error::ClientBulkWrite`], which
    /// has the partial result.
    pub async fn bulk_write(
        &self,
        mut bulk: ClientBulkWrite,
    ) -> Result<ClientBulkWriteResult, Error> {
        let scope = self.handle.scope(&"admin".into(), &"".into())?;
        Ok(self.handle.run(&scope, &mut bulk).await?.outcome)
    }
}

impl<R: Runtime> Clone for Client<R> {
    fn clone(&self) -> Self {
        Self { handle: self.handle.clone() }
    }
}

impl<R: Runtime> std::fmt::Debug for Client<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("concerns", &self.handle.concerns).finish_non_exhaustive()
    }
}
