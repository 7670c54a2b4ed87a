//! Sessions of threads.

use std::ops::Deref;

use sdam_blocking::Blocking;
use sdam_blocking::driver::DriverTopology as _;
use sdam_host::driver::ThreadSession;
use sdam_host::{CallbackError, EndTransaction, StartTransaction};

use crate::generic;

/// A session, as [`ClientSession`](generic::ClientSession) is; the commits and aborts of its
/// transactions have a thread wait.
#[derive(Clone, Debug)]
pub struct ClientSession {
    session: generic::ClientSession<Blocking>,
    client: sdam_blocking::Topology,
}

impl ClientSession {
    pub(super) const fn new(
        session: generic::ClientSession<Blocking>,
        client: sdam_blocking::Topology,
    ) -> Self {
        Self { session, client }
    }

    /// Starts a transaction, see [`ClientSession`](generic::ClientSession::start_transaction) of
    /// futures; `run` starts it, and `and_run` runs it as a whole.
    ///
    /// ```no_run
    /// use sdam::blocking::{Client, Collection};
    /// use sdam::bson::{Document, doc};
    ///
    /// # fn main() -> sdam::Result<()> {
    /// let client = Client::connect("mongodb://localhost/?replicaSet=rs")?;
    /// let books: Collection<Document> = client.database("app").collection("books");
    /// let session = client.start_session().run()?;
    /// session.with_transaction(|session| {
    ///     books.insert_one(doc! { "title": "Kim" }).session(session).run()?;
    ///     books.delete_one(doc! { "title": "Emma" }).session(session).run()
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn start_transaction(&self) -> StartTransaction<&Self> {
        self.session.start_transaction().on(self)
    }

    /// Runs a transaction as a whole with the session's options, see
    /// [`StartTransaction::and_run`], which says what the callback must and must not do.
    ///
    /// # Errors
    ///
    /// Fails as [`StartTransaction::and_run`] does.
    pub fn with_transaction<T, E: CallbackError>(
        &self,
        callback: impl FnMut(&Self) -> Result<T, E>,
    ) -> Result<T, E> {
        self.start_transaction().and_run(callback)
    }

    /// Commits the transaction, see
    /// [`ClientSession::commit_transaction`](generic::ClientSession::commit_transaction) of
    /// futures.
    pub fn commit_transaction(&self) -> EndTransaction<&Self> {
        self.session.commit_transaction().on(self)
    }

    /// Aborts the transaction, see
    /// [`ClientSession::abort_transaction`](generic::ClientSession::abort_transaction) of futures.
    pub fn abort_transaction(&self) -> EndTransaction<&Self> {
        self.session.abort_transaction().on(self)
    }
}

impl ThreadSession for ClientSession {
    type Runtime = Blocking;

    fn session(&self) -> &generic::ClientSession<Blocking> {
        &self.session
    }

    fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.client.wait(future)
    }
}

impl Deref for ClientSession {
    type Target = generic::ClientSession<Blocking>;

    fn deref(&self) -> &Self::Target {
        &self.session
    }
}

impl PartialEq for ClientSession {
    fn eq(&self, other: &Self) -> bool {
        self.session == other.session
    }
}

impl Eq for ClientSession {}
