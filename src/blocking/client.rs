//! The client, as far as operations are about no database.

use std::sync::Arc;

use bson::Document;
use sdam_blocking::Blocking;

use super::ClientSession;
use super::database::Database;
use super::threads::Threads;
use crate::action::{Action, Each, Names, Place, StartSession, View};
use crate::command::client_bulk_write::ClientBulkWrite;
use crate::command::databases::ListDatabases;
use crate::handle::actions::actions_of_clients;
use crate::handle::{Concerns, DatabaseOptions, Handle, concerns};

/// A client with typed operations, each of which has its thread wait.
///
/// It is what [`Client`](crate::generic::Client) is for runtimes with futures, and may be used by many
/// threads, and in processes that are forked off.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Shared,
}

/// The part that all handles have.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) client: sdam_blocking::Topology,
    pub(crate) concerns: Arc<Concerns>,
    session: Option<ClientSession>,
}

impl Shared {
    /// Returns the handle of this process.
    pub(crate) fn handle(&self) -> Handle<Blocking> {
        Handle {
            client: self.client.host_client(),
            concerns: Arc::clone(&self.concerns),
            session: self.session.clone(),
        }
    }

    /// Returns the same with other concerns.
    pub(crate) fn with(&self, change: impl FnOnce(&mut Concerns)) -> Self {
        let mut concerns = (*self.concerns).clone();
        change(&mut concerns);
        Self { concerns: Arc::new(concerns), ..self.clone() }
    }

    /// Returns the same with a session.
    pub(crate) fn with_session(&self, session: &ClientSession) -> Self {
        Self { session: Some(session.clone()), ..self.clone() }
    }

    /// Has this thread wait for an operation.
    pub(crate) fn wait<T>(&self, operation: impl Future<Output = T>) -> T {
        self.client.wait(operation)
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("concerns", &self.concerns).finish_non_exhaustive()
    }
}

impl Client {
    pub(super) const fn of(shared: Shared) -> Self {
        Self { shared }
    }

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

    /// Starts a session of the application's, as
    /// [`Client::start_session`](crate::generic::Client::start_session) does.
    ///
    /// # Errors
    ///
    /// Fails if the options exclude each other.
    pub fn start_session(&self) -> StartSession<Threads<'_>> {
        StartSession::new(Threads::new(&self.shared, Place::Deployment))
    }

    /// Returns the database that the connection string names, if it names one.
    pub fn default_database(&self) -> Option<Database> {
        let handle = self.shared.handle();
        Some(self.database(handle.client.host().options().database()?))
    }

    /// Returns a database with concerns of its own; nothing is sent.
    pub fn database_with_options(&self, name: &str, options: DatabaseOptions) -> Database {
        self.over(self.shared.with(|concerns| options.apply(concerns))).database(name)
    }

    /// Returns a database; nothing is sent.
    pub fn database(&self, name: &str) -> Database {
        Database::new(self.shared.clone(), name)
    }

    actions_of_clients!(Threads<'_>);

    fn act<O, V>(&self, operation: O) -> Action<O, Threads<'_>, V> {
        Action::new(operation, Threads::new(&self.shared, Place::Deployment))
    }

    const fn over(&self, shared: Shared) -> Self {
        Self { shared }
    }
}
