//! A server that an application uses: one that was selected, or one that it has named.

use std::sync::Arc;

use bson::RawDocumentBuf;
use sdam_core::config::ServerAddress;
use sdam_core::description::{ServerDescription, ServerType, TopologyType};
use sdam_core::id::ServerId;
use sdam_core::pool::{CheckOutError, Counts};
use sdam_core::selection::{Criteria, read_preference_argument};
use sdam_core::time::Instant;

use crate::error::Error;
use crate::machines::View;
use crate::machines::runtime::Runtime;
use crate::machines::server::Server;
use crate::operations::checked_out::CheckedOut;

/// A server that was selected: what for, what was known of it then, and its pool of connections.
///
/// [`Topology::member`](crate::Topology::member) returns one that the application has named
/// instead.
///
/// It may be kept for as long as one likes: once the server has left the deployment, its pool is
/// closed, and says so.
pub struct SelectedServer<R: Runtime> {
    /// The view that it was selected from: one reference for all that is in it.
    view: Arc<View<R>>,
    /// Its place in the view.
    index: usize,
    /// `None` if the application has named the server.
    pub(crate) criteria: Option<Arc<Criteria>>,
    pub(crate) deadline: Option<Instant>,
    /// The number that the log has given the operation it was selected for; 0 if there is no log.
    pub(crate) number: i64,
}

/// The reason why a server was selected, which check-outs take along.
#[derive(Debug)]
pub(crate) struct Selection {
    criteria: Arc<Criteria>,
    /// True if the read preference of the criteria counted.
    has_preference: bool,
    topology_type: TopologyType,
    server_type: ServerType,
}

impl Selection {
    /// Returns the `$readPreference` of whatever is sent to the server.
    pub(crate) fn read_preference(&self) -> Option<RawDocumentBuf> {
        let preference = self.criteria.read_preference().filter(|_| self.has_preference);
        read_preference_argument(self.topology_type, self.server_type, preference)
    }
}

impl<R: Runtime> SelectedServer<R> {
    /// Takes a server of a view by its place, which must be one.
    pub(crate) fn new(view: Arc<View<R>>, index: usize, criteria: Option<Arc<Criteria>>) -> Self {
        Self { view, index, criteria, deadline: None, number: 0 }
    }

    pub(crate) fn server(&self) -> &Arc<Server<R>> {
        &self.view.servers[self.index]
    }

    /// Returns the runtime of the client.
    pub fn runtime(&self) -> &R {
        &self.server().shared().runtime
    }

    /// Returns the address that the server advertises.
    pub fn address(&self) -> &ServerAddress {
        self.server().address()
    }

    /// Returns the server's membership, which is another one when it has left and come back.
    pub fn id(&self) -> ServerId {
        self.server().id()
    }

    /// Returns what was known of the server when it was selected.
    pub fn description(&self) -> &Arc<ServerDescription> {
        &self.view.snapshot.description().servers()[self.index]
    }

    /// Returns what the deployment was when the server was selected.
    pub fn topology_type(&self) -> TopologyType {
        self.view.snapshot.description().topology_type
    }

    /// Returns how many connections the server's pool has now, and how many operations wait for
    /// one; in a process that was forked off, none.
    pub fn counts(&self) -> Counts {
        self.server().counts()
    }

    /// Returns how many operations wait for a connection of the pool or have one now: what
    /// selection compares as `operationCount`.
    pub fn operation_count(&self) -> u32 {
        self.server().operation_count()
    }

    /// Sets by when connections are to be checked out at the latest; check-outs take it over.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Option<Instant>) -> Self {
        self.deadline = deadline;
        self
    }

    /// Checks out a connection to the server: an idle one at once, or else the next that becomes
    /// available, by the deadline of the selection.
    ///
    /// Commands over it carry the read preference that the server was selected with; if it was
    /// named and not selected, they may be answered in any role, see [`CheckedOut::command`].
    ///
    /// Cancelling the wait is safe at any point.
    ///
    /// # Errors
    ///
    /// Fails when the pool is paused or closed, when the connection that is established for this
    /// operation fails, and at the deadline, or without one after waitQueueTimeoutMS; in the
    /// single-threaded mode also if the connection has been idle for 5 s and is found dead, see
    /// [`CheckOutError::IdleConnection`].
    pub async fn check_out(&self) -> Result<CheckedOut<R>, Error> {
        self.numbered(self.server().check_out(self.selection(), self.deadline).await)
    }

    /// Gives the commands of a check-out the number that the log has given the selection.
    fn numbered(
        &self,
        checked_out: Result<CheckedOut<R>, Box<CheckOutError>>,
    ) -> Result<CheckedOut<R>, Error> {
        let mut checked_out = checked_out.map_err(|error| self.server().check_out_error(*error))?;
        if self.number != 0 {
            checked_out.number = self.number;
        }
        Ok(checked_out)
    }

    /// Establishes a connection of its own to this very server, whatever its role, arbiters
    /// included; it belongs to no pool, and what it finds says nothing to the topology.
    ///
    /// # Errors
    ///
    /// Fails if the connection cannot be established, and at the deadline.
    pub async fn connect(&self) -> Result<CheckedOut<R>, Error> {
        self.server().unless_forked()?;
        self.numbered(self.server().aside().check_out(self.selection(), self.deadline).await)
    }

    pub(crate) fn selection(&self) -> Option<Selection> {
        let known = self.view.snapshot.description();
        self.criteria.clone().map(|criteria| Selection {
            has_preference: criteria.preference_in(known).is_some(),
            criteria,
            topology_type: self.topology_type(),
            server_type: self.description().server_type,
        })
    }
}

impl<R: Runtime> Clone for SelectedServer<R> {
    fn clone(&self) -> Self {
        Self { view: Arc::clone(&self.view), criteria: self.criteria.clone(), ..*self }
    }
}

impl<R: Runtime> std::fmt::Debug for SelectedServer<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SelectedServer")
            .field("server", self.server())
            .field("description", self.description())
            .field("topology_type", &self.topology_type())
            .field("criteria", &self.criteria)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}
