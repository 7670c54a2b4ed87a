//! Selecting a server.

use std::sync::Arc;

use bson::RawDocumentBuf;

use super::server::Server;
use super::wait::Wait;
use super::{CheckedOut, Host, Runtime};
use sdam_core::description::{ServerDescription, ServerType, TopologyType};
use sdam_core::pool::CheckOutError;
use sdam_core::selection::{Criteria, SelectionError, read_preference_argument};
use sdam_core::time::Instant;

/// A server that was selected: what for, what was known of it then, and where its connections come
/// from.
#[derive(Debug)]
pub struct Selected<R: Runtime> {
    server: Arc<Server<R>>,
    description: Arc<ServerDescription>,
    topology_type: TopologyType,
    /// `None` if the application has named the server.
    criteria: Option<Arc<Criteria>>,
    deadline: Option<Instant>,
}

/// The reason why a server was selected, which loans take along.
#[derive(Debug)]
pub(super) struct Selection {
    criteria: Arc<Criteria>,
    topology_type: TopologyType,
    server_type: ServerType,
}

impl Selection {
    /// Returns the `$readPreference` of whatever is sent to the server.
    pub(super) fn read_preference(&self) -> Option<RawDocumentBuf> {
        let preference = self.criteria.read_preference();
        read_preference_argument(self.topology_type, self.server_type, preference)
    }
}

impl<R: Runtime> Clone for Selected<R> {
    fn clone(&self) -> Self {
        let (server, description) = (Arc::clone(&self.server), Arc::clone(&self.description));
        Self { server, description, criteria: self.criteria.clone(), ..*self }
    }
}

impl<R: Runtime> Selected<R> {
    /// Returns the server and its pool.
    pub const fn server(&self) -> &Arc<Server<R>> {
        &self.server
    }

    /// Returns what was known of the server when it was selected.
    pub const fn description(&self) -> &Arc<ServerDescription> {
        &self.description
    }

    /// Returns what the deployment was when the server was selected.
    pub const fn topology_type(&self) -> TopologyType {
        self.topology_type
    }

    /// Checks out a connection to the server, by the deadline of the selection.
    ///
    /// Commands over it carry the read preference that the server was selected with.
    ///
    /// Cancelling the wait is safe at any point.
    ///
    /// # Errors
    ///
    /// Fails as [`Server::check_out`] does.
    pub async fn check_out(&self) -> Result<CheckedOut<R>, Box<CheckOutError>> {
        self.check_out_by(self.deadline).await
    }

    pub(super) async fn check_out_by(
        &self,
        deadline: Option<Instant>,
    ) -> Result<CheckedOut<R>, Box<CheckOutError>> {
        self.server.check_out_for(self.selection(), deadline).await
    }

    fn selection(&self) -> Option<Selection> {
        self.criteria.clone().map(|criteria| Selection {
            criteria,
            topology_type: self.topology_type,
            server_type: self.description.server_type,
        })
    }

    /// Establishes a connection of its own to this very server, whatever its role, arbiters
    /// included; it belongs to no pool, and what it finds says nothing to the topology.
    ///
    /// # Errors
    ///
    /// Fails if the connection cannot be established, and at the deadline.
    pub async fn connect(&self) -> Result<CheckedOut<R>, Box<CheckOutError>> {
        self.server.unless_forked()?;
        self.server.aside().check_out_for(self.selection(), self.deadline).await
    }
}

impl<R: Runtime> Host<R> {
    /// Selects a server, waiting only if there is none in the view of now, and until `deadline` at
    /// most.
    ///
    /// In the single-threaded mode, it waits for a scan of the servers whenever one is due, which
    /// the caller's thread has to drive: see [`OptionsBuilder::single_threaded`].
    ///
    /// [`OptionsBuilder::single_threaded`]: sdam_core::config::OptionsBuilder::single_threaded
    ///
    /// Of two that are drawn among the suitable ones, the one with fewer operations is taken.
    /// Cancelling the wait leaves nothing behind.
    ///
    /// # Errors
    ///
    /// Fails when the deadline has passed, at once if waiting cannot help, and when the client is
    /// closed; the error says why there was no server.
    pub async fn select(
        &self,
        criteria: &Arc<Criteria>,
        deadline: Option<Instant>,
    ) -> Result<Selected<R>, Box<SelectionError>> {
        self.unless_forked(criteria)?;
        if self.options().is_single_threaded() {
            // "Before each operation, the client checks if heartbeatFrequencyMS has passed"
            Wait::new(self, Arc::clone(criteria), deadline).await?;
        }
        loop {
            if let Some(selected) = self.try_select(criteria) {
                return Ok(selected);
            }
            Wait::new(self, Arc::clone(criteria), deadline).await?;
        }
    }

    /// Says why an operation would find no server now, without waiting and without asking for
    /// checks; `None` if it would find one.
    ///
    /// # Panics
    ///
    /// Panics if the application's predicate does.
    pub fn diagnose(&self, criteria: &Criteria) -> Option<Box<SelectionError>> {
        if let Err(forked) = self.unless_forked(criteria) {
            return Some(forked);
        }
        // A copy, so that a predicate is not called under the lock.
        let topology = self.with_driver(|driver| driver.topology.get().clone());
        topology.diagnose(self.shared.runtime.now(), criteria)
    }

    /// Refuses a process that was forked off: nobody would ever answer.
    fn unless_forked(&self, criteria: &Criteria) -> Result<(), Box<SelectionError>> {
        self.shared.process.check().map_err(|forked| {
            let topology_type = self.view.load().snapshot.description().topology_type;
            Box::new(SelectionError::forked(forked, criteria, topology_type))
        })
    }

    /// Selects a server from the view of now, which takes no lock.
    fn try_select(&self, criteria: &Arc<Criteria>) -> Option<Selected<R>> {
        let view = self.view.load();
        let servers = &view.servers;
        let load = |index: usize| servers.get(index).map_or(0, |server| server.operation_count());
        // The machine has the better error, so that a refusal is left to it too.
        let chosen = view.snapshot.select(criteria, load, self.shared.random_bits()).ok()??;
        let description = view.snapshot.description();
        Some(Selected {
            server: Arc::clone(servers.get(chosen)?),
            description: Arc::clone(&description.servers()[chosen]),
            topology_type: description.topology_type,
            criteria: Some(Arc::clone(criteria)),
            deadline: None,
        })
    }

    /// Returns every server of the deployment, those included that are never selected. As nothing
    /// was selected, commands to them may be answered in any role, see [`CheckedOut::command`].
    pub fn members(&self) -> Vec<Selected<R>> {
        let view = self.view.load();
        let description = view.snapshot.description();
        let known = description.servers().iter().zip(view.servers.iter());
        known
            .map(|(description_of, server)| Selected {
                server: Arc::clone(server),
                description: Arc::clone(description_of),
                topology_type: description.topology_type,
                criteria: None,
                deadline: None,
            })
            .collect()
    }
}

impl<R: Runtime> Selected<R> {
    /// Sets by when connections are to be checked out at the latest; loans take it over.
    #[must_use]
    pub fn by(mut self, deadline: Option<Instant>) -> Self {
        self.deadline = deadline;
        self
    }
}
