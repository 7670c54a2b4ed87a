//! The client, as far as operations are about no database.

use std::sync::Arc;

use bson::Document;
use sdam_blocking::Blocking;
use sdam_core::session::{SessionError, SessionOptions};

use super::ClientSession;
use super::database::Database;
use crate::command::client_bulk_write::ClientBulkWrite;
use crate::command::databases::ListDatabases;
use crate::handle::{Client as Futures, Concerns, Handle, concerns};
use crate::results::ClientBulkWriteResult;

/// A client with typed operations, each of which has its thread wait.
///
/// It is what [`Client`](crate::driver::Client) is for runtimes with futures, and may be used by many
/// threads, and in processes that are forked off.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Shared,
}

/// The part that all handles have.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) client: sdam_blocking::Topology,
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
    pub fn new(client: sdam_blocking::Topology) -> Self {
        let Handle { concerns, session, .. } = Handle::new(client.host_client());
        Self { shared: Shared { client, concerns, session } }
    }

    /// Returns the deployment below: it selects servers, checks out connections, runs commands, and
    /// shows what happens.
    pub const fn topology(&self) -> &sdam_blocking::Topology {
        &self.shared.client
    }

    concerns!(shared, ClientSession);

    /// As [`Client::start_session`](crate::driver::Client::start_session).
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

    waiting! {
        Client {
            fn list_databases(list: ListDatabases) -> Vec<Document>;
            fn list_database_names(list: ListDatabases) -> Vec<String>;
            fn bulk_write(bulk: ClientBulkWrite) -> ClientBulkWriteResult;
        }
    }

    const fn over(&self, shared: Shared) -> Self {
        Self { shared }
    }

    fn futures(&self) -> Futures<Blocking> {
        Futures::of(self.shared.handle())
    }
}
