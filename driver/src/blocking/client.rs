//! The client, as far as operations are about no database.

use std::sync::Arc;
use std::time::Duration;

use bson::Document;
use sdam_blocking::Blocking;
use sdam_core::config::{ReadConcern, ReadPreference, WriteConcern};
use sdam_core::session::{SessionError, SessionOptions};

use super::ClientSession;
use super::database::Database;
use crate::command::client_bulk_write::ClientBulkWrite;
use crate::command::databases::ListDatabases;
use crate::error::Error;
use crate::handle::{Client as Futures, Concerns, Handle};
use crate::results::ClientBulkWriteResult;

/// A client with typed operations, each of which has its thread wait.
///
/// It is what [`Client`](crate::Client) is for runtimes with futures, and may be used by many
/// threads, and in processes that are forked off.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Shared,
}

/// The part that all handles have.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) client: sdam_blocking::Client,
    concerns: Arc<Concerns>,
    session: Option<ClientSession>,
}

impl Shared {
    /// Returns the handle of this process.
    pub(super) fn handle(&self) -> Handle<Blocking> {
        Handle {
            client: self.client.host_client(),
            concerns: Arc::clone(&self.concerns),
            session: self.session.clone(),
        }
    }

    /// Returns the same with other concerns.
    pub(super) fn with(&self, change: impl FnOnce(&mut Concerns)) -> Self {
        let mut concerns = (*self.concerns).clone();
        change(&mut concerns);
        Self { concerns: Arc::new(concerns), ..self.clone() }
    }

    /// Returns the same with a session.
    pub(super) fn with_session(&self, session: &ClientSession) -> Self {
        Self { session: Some(session.clone()), ..self.clone() }
    }

    /// Has this thread wait for an operation.
    pub(super) fn wait<T>(&self, operation: impl Future<Output = T>) -> T {
        self.client.wait(operation)
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("concerns", &self.concerns).finish_non_exhaustive()
    }
}

impl Client {
    /// Adds typed operations to a client.
    pub fn new(client: sdam_blocking::Client) -> Self {
        let Handle { concerns, session, .. } = Handle::new(client.host_client());
        Self { shared: Shared { client, concerns, session } }
    }

    /// Returns the client below.
    pub const fn client(&self) -> &sdam_blocking::Client {
        &self.shared.client
    }

    /// Returns a handle whose reads may use other servers.
    #[must_use]
    pub fn with_read_preference(&self, preference: ReadPreference) -> Self {
        Self { shared: self.shared.with(|concerns| concerns.read_preference = preference) }
    }

    /// Returns a handle whose reads see other data.
    #[must_use]
    pub fn with_read_concern(&self, concern: ReadConcern) -> Self {
        Self { shared: self.shared.with(|concerns| concerns.read_concern = concern) }
    }

    /// Returns a handle whose writes succeed under another condition.
    #[must_use]
    pub fn with_write_concern(&self, concern: WriteConcern) -> Self {
        Self { shared: self.shared.with(|concerns| concerns.write_concern = concern) }
    }

    /// As [`Client::with_timeout`](crate::Client::with_timeout).
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        Self { shared: self.shared.with(|concerns| concerns.timeout = Some(timeout)) }
    }

    /// As [`Client::with_session`](crate::Client::with_session).
    #[must_use]
    pub fn with_session(&self, session: &ClientSession) -> Self {
        Self { shared: self.shared.with_session(session) }
    }

    /// As [`Client::start_session`](crate::Client::start_session).
    ///
    /// # Errors
    ///
    /// Fails as that does.
    pub fn start_session(&self, options: SessionOptions) -> Result<ClientSession, SessionError> {
        self.shared.client.host_client().start_session(options)
    }

    /// Returns a database; nothing is sent.
    pub fn database(&self, name: &str) -> Database {
        Database::new(self.shared.clone(), name)
    }

    /// As [`Client::list_databases`](crate::Client::list_databases).
    ///
    /// # Errors
    ///
    /// Fails as that does.
    pub fn list_databases(&self, list: ListDatabases) -> Result<Vec<Document>, Error> {
        self.shared.wait(self.futures().list_databases(list))
    }

    /// As [`Client::list_database_names`](crate::Client::list_database_names).
    ///
    /// # Errors
    ///
    /// Fails as that does.
    pub fn list_database_names(&self, list: ListDatabases) -> Result<Vec<String>, Error> {
        self.shared.wait(self.futures().list_database_names(list))
    }

    /// As [`Client::bulk_write`](crate::Client::bulk_write).
    ///
    /// # Errors
    ///
    /// Fails as that does.
    pub fn bulk_write(&self, bulk: ClientBulkWrite) -> Result<ClientBulkWriteResult, Error> {
        self.shared.wait(self.futures().bulk_write(bulk))
    }

    fn futures(&self) -> Futures<Blocking> {
        Futures::of(self.shared.handle())
    }
}
