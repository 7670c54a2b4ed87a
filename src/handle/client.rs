//! The client, as far as operations are about no database.

use bson::Document;
use sdam_core::config::Options;
use sdam_host::driver::DriverTopology as _;
use sdam_host::{ClientBuilder, ClientSession, CurrentReactor, Runtime, SocketRuntime};

use super::actions::actions_of_clients;
use super::database::Database;
use super::options::DatabaseOptions;
use super::perform::Handle;
use crate::change_stream::ChangeStreamEvent;
use crate::command::action::Action;
use crate::command::client_bulk_write::ClientBulkWrite;
use crate::command::databases::ListDatabases;
use crate::command::views::{Changes, Each, Names, View};
use crate::command::watch::Watch;
use crate::error::{CommitToken, Error};
use crate::handle::awaiting::{Async, Place};
use crate::handle::recover_commit::RecoverCommit;
use crate::handle::shutdown::Shutdown;
use crate::handle::start_session::StartSession;
use crate::results::DatabaseSpecification;

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
    pub(crate) const fn of(handle: Handle<R>) -> Self {
        Self { handle }
    }

    const fn over(&self, handle: Handle<R>) -> Self {
        Self::of(handle)
    }

    /// Returns the deployment below: it selects servers, checks out connections, runs commands, and
    /// shows what happens.
    pub const fn topology(&self) -> &sdam_host::Topology<R> {
        &self.handle.client
    }

    concerns!(handle, ClientSession<R>);

    /// Waits until the pool of each server that holds data has `minPoolSize` connections, see
    /// [`Topology::warm_connection_pool`](sdam_host::Topology::warm_connection_pool).
    pub async fn warm_connection_pool(&self) {
        self.topology().warm_connection_pool().await;
    }

    /// Closes the client for all its clones, and waits until none of its tasks runs any more, see
    /// [`Topology::close`](sdam_host::Topology::close).
    ///
    /// Before that, servers close the cursors that were dropped, within a second, and forget the
    /// sessions that were used, within another one: it takes two seconds at most. Calls that wait
    /// for a change fail at once. Cursors and change streams that are open are left to their
    /// servers, which keep them for ten minutes: drop or close them before.
    ///
    /// Dropping the last clone closes a client, too, and waits for nothing.
    pub async fn close(&self) {
        self.topology().close().await;
    }

    /// Closes the client as [`close`](Self::close) does, once it is awaited; it has an option for
    /// those who cannot wait.
    pub fn shutdown(self) -> Shutdown<sdam_host::Topology<R>> {
        Shutdown::new(self.handle.client)
    }

    /// Starts a session of the application's.
    ///
    /// Servers may have forgotten one that is not used for a minute after it was started (Driver
    /// Sessions, "startSession").
    ///
    /// # Errors
    ///
    /// Fails if the options exclude each other.
    pub fn start_session(&self) -> StartSession<Async<'_, R>> {
        StartSession::new(Async::new(&self.handle, Place::Deployment))
    }

    /// Asks what became of a transaction whose commit has come to no known end: its
    /// [`Error::commit_token`](crate::error::Error::commit_token), or the token of
    /// [`CommitOutcome::Unknown`](crate::results::CommitOutcome::Unknown), names it.
    ///
    /// Any client of the same user and deployment can ask, also one of another process, within the
    /// half hour for which servers keep the outcome (`localLogicalSessionTimeoutMinutes`). The
    /// question is a commit for the majority of the members: a transaction that is still in
    /// progress is committed by it.
    ///
    /// ```no_run
    /// use sdam::error::CommitToken;
    /// use sdam::results::CommitOutcome;
    ///
    /// # type Outcome = Result<(), Box<dyn std::error::Error>>;
    /// # async fn example(client: sdam::Client, saved: &str) -> Outcome {
    /// let token: CommitToken = saved.parse()?;
    /// match client.recover_commit(token).await? {
    ///     CommitOutcome::Committed => println!("it is done"),
    ///     CommitOutcome::Aborted => println!("run it again"),
    ///     CommitOutcome::Unknown(token) => println!("ask again later: {token}"),
    ///     _ => println!("no server knows any more: look at the data"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails with errors that say nothing of the transaction, as if the user may not commit.
    pub fn recover_commit(&self, token: CommitToken) -> RecoverCommit<Async<'_, R>> {
        RecoverCommit::new(Async::new(&self.handle, Place::Deployment), token)
    }

    /// Returns the database that the connection string names, if it names one.
    pub fn default_database(&self) -> Option<Database<R>> {
        Some(self.database(self.handle.client.host().options().database()?))
    }

    /// Returns a database with concerns of its own; nothing is sent.
    pub fn database_with_options(&self, name: &str, options: DatabaseOptions) -> Database<R> {
        self.over(self.handle.with(|concerns| options.apply(concerns))).database(name)
    }

    /// Returns a database; nothing is sent.
    pub fn database(&self, name: &str) -> Database<R> {
        Database::new(self.handle.clone(), name)
    }

    actions_of_clients!(Async<'_, R>);

    fn act<O, V>(&self, operation: O) -> Action<O, Async<'_, R>, V> {
        Action::new(operation, Async::new(&self.handle, Place::Deployment))
    }
}

/// Clients that find the runtime's sockets, timers and tasks where they are created.
impl<R: CurrentReactor<Setup: Default>> Client<SocketRuntime<R>> {
    /// Creates a client of what a connection string or [`Options`] describe, after the servers were
    /// looked up if they are named in DNS (`mongodb+srv://`); servers are connected to in the
    /// background.
    ///
    /// It is the one constructor that does I/O, for SRV and TXT records alone: it asks the name
    /// servers of `/etc/resolv.conf`; [`builder`](Self::builder) has other ways.
    ///
    /// # Errors
    ///
    /// Fails if the connection string is malformed, if DNS gives no hosts or options that can be
    /// used, and as [`with_options`](Self::with_options) does.
    pub async fn connect<O>(options: O) -> Result<Self, Error>
    where
        O: TryInto<Options, Error: Into<sdam_host::Error>>,
    {
        Ok(sdam_host::Topology::connect(options).await?.into())
    }

    /// As [`connect`](Self::connect), with a connection string.
    ///
    /// # Errors
    ///
    /// Fails as [`connect`](Self::connect) does.
    pub async fn with_uri_str(uri: impl AsRef<str>) -> Result<Self, Error> {
        Self::connect(uri.as_ref()).await
    }

    /// Creates a client; discovery begins in the background, and nothing is waited for.
    ///
    /// What has no effect in the connection string, [`Options::warnings`], is logged through
    /// `tracing` with target `sdam`.
    ///
    /// Servers that are named in DNS (`mongodb+srv://`) must be looked up first, as
    /// [`connect`](Self::connect) does.
    ///
    /// # Errors
    ///
    /// Fails outside the runtime, if the servers are still to be looked up in DNS, if the options
    /// cannot be followed, and if the operating system gives no random seed. Whether any server can
    /// be reached is not known yet. The files that the options name are read when connections are
    /// made: what is wrong with them is a failure of every server.
    pub fn with_options(options: Options) -> Result<Self, Error> {
        Self::builder(options).build()
    }

    /// Starts to create a client that differs from what [`connect`](Self::connect) creates.
    pub fn builder(options: Options) -> ClientBuilder<R, Self> {
        ClientBuilder::with_setup(options, R::Setup::default())
    }
}

/// A client over a deployment that is known already: they share servers and connections.
impl<R: Runtime> From<sdam_host::Topology<R>> for Client<R> {
    fn from(topology: sdam_host::Topology<R>) -> Self {
        Self::of(Handle::new(topology))
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
