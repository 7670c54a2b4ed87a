//! The client, as far as operations are about no database.

use std::sync::Arc;
use std::time::Duration;

use bson::Document;
use sdam_blocking::Blocking;
use sdam_blocking::driver::DriverTopology as _;
use sdam_core::config::Options;
use sdam_host::driver::{DriverTopology as _, ThreadSession as _};

use super::database::Database;
use super::threads::Threads;
use super::{ClientBuilder, ClientSession};
use crate::change_stream::ChangeStreamEvent;
use crate::command::action::Action;
use crate::command::client_bulk_write::ClientBulkWrite;
use crate::command::databases::ListDatabases;
use crate::command::views::{Changes, Each, Names, View};
use crate::command::watch::Watch;
use crate::error::{CommitToken, Error};
use crate::generic;
use crate::handle::actions::actions_of_clients;
use crate::handle::awaiting::Place;
use crate::handle::recover_commit::RecoverCommit;
use crate::handle::shutdown::Shutdown;
use crate::handle::start_session::StartSession;
use crate::handle::{Concerns, DatabaseOptions, Handle, concerns};
use crate::results::DatabaseSpecification;

/// A client with typed operations, each of which has its thread wait.
///
/// It is what [`Client`](crate::generic::Client) is for runtimes with futures, and may be used by
/// many threads, and in processes that are forked off.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Shared,
}

/// The part that all handles have.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) client: sdam_blocking::Topology,
    pub(crate) concerns: Arc<Concerns>,
    session: Option<generic::ClientSession<Blocking>>,
}

impl Shared {
    /// Returns the handle of this process.
    pub(crate) fn handle(&self) -> Handle<Blocking> {
        Handle {
            client: self.client.host_topology(),
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
        Self { session: Some(session.session().clone()), ..self.clone() }
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

    /// Creates a client of what a connection string or [`Options`] describe, after the servers of
    /// `mongodb+srv://` were looked up in DNS; discovery begins in the background.
    ///
    /// # Errors
    ///
    /// Fails if the connection string is malformed, if DNS gives no hosts or options that can be
    /// used, and as [`with_options`](Self::with_options) does.
    pub fn connect<O>(options: O) -> Result<Self, Error>
    where
        O: TryInto<Options, Error: Into<sdam_host::Error>>,
    {
        Ok(sdam_blocking::Topology::connect(options)?.into())
    }

    /// As [`connect`](Self::connect), with a connection string.
    ///
    /// # Errors
    ///
    /// Fails as [`connect`](Self::connect) does.
    pub fn with_uri_str(uri: impl AsRef<str>) -> Result<Self, Error> {
        Self::connect(uri.as_ref())
    }

    /// Creates a client; discovery begins in the background, and nothing is waited for.
    ///
    /// # Errors
    ///
    /// Fails if servers are still to be looked up in DNS, if the options cannot be followed, and
    /// if the operating system gives no thread or no random seed. Files that the options name are
    /// read later: what is wrong with them is a failure of every server.
    pub fn with_options(options: Options) -> Result<Self, Error> {
        Self::builder(options).build()
    }

    /// Starts to create a client that differs from what [`connect`](Self::connect) creates.
    pub fn builder(options: Options) -> ClientBuilder {
        ClientBuilder::new(options)
    }

    /// Returns the deployment below: it selects servers, checks out connections, runs commands, and
    /// shows what happens.
    pub const fn topology(&self) -> &sdam_blocking::Topology {
        &self.shared.client
    }

    concerns!(shared, ClientSession);

    /// Waits until the pool of each server that holds data has `minPoolSize` connections, see
    /// [`Topology::warm_connection_pool`](sdam_host::Topology::warm_connection_pool).
    pub fn warm_connection_pool(&self) {
        self.topology().warm_connection_pool();
    }

    /// Closes the client for all its clones, and waits until none of its tasks runs any more.
    ///
    /// Before that, servers close the cursors that were dropped, and forget the sessions that were
    /// used, if one is known to be there, for a second each at most;
    /// [`Topology::close`](sdam_blocking::Topology::close) takes another limit of all that.
    ///
    /// Dropping the last clone closes a client, too, and waits for nothing.
    pub fn close(&self) {
        self.topology().close(Duration::MAX);
    }

    /// Closes the client as [`close`](Self::close) does, once it is run; it has an option for those
    /// who cannot wait.
    pub fn shutdown(self) -> Shutdown<sdam_blocking::Topology> {
        Shutdown::new(self.shared.client)
    }

    /// Starts a session of the application's, as
    /// [`Client::start_session`](crate::generic::Client::start_session) does.
    ///
    /// # Errors
    ///
    /// Fails if the options exclude each other.
    pub fn start_session(&self) -> StartSession<Threads<'_>> {
        StartSession::new(Threads::new(&self.shared, Place::Deployment))
    }

    /// Asks what became of a transaction whose commit has come to no known end, as
    /// [`Client::recover_commit`](crate::generic::Client::recover_commit) does.
    ///
    /// # Errors
    ///
    /// Fails with errors that say nothing of the transaction, as if the user may not commit.
    pub fn recover_commit(&self, token: CommitToken) -> RecoverCommit<Threads<'_>> {
        RecoverCommit::new(Threads::new(&self.shared, Place::Deployment), token)
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

/// A client over a deployment that is known already: they share servers and connections.
impl From<sdam_blocking::Topology> for Client {
    fn from(topology: sdam_blocking::Topology) -> Self {
        let Handle { concerns, session, .. } = Handle::new(topology.host_topology());
        Self::of(Shared { client: topology, concerns, session })
    }
}
