//! A server that an application uses.

use std::sync::Arc;

use sdam_core::config::ServerAddress;
use sdam_core::description::{ServerDescription, TopologyType};
use sdam_core::id::ServerId;
use sdam_core::pool::{CheckOutError, Counts};
use sdam_core::time::Instant;
use sdam_host::{self as host, Error};

use crate::checked_out::CheckedOut;
use crate::engine::Engine;
use crate::process::Own;
use crate::runtime::Blocking;

/// A server that was selected, or that the application has named.
///
/// In a process that was forked off, its pool is the parent's, and not to be asked anything.
#[derive(Debug)]
pub struct SelectedServer(Own<host::SelectedServer<Blocking>, ()>);

impl SelectedServer {
    pub(crate) fn new(selected: host::SelectedServer<Blocking>) -> Self {
        Self(Own::alone(selected))
    }

    pub(crate) const fn of(selected: Own<host::SelectedServer<Blocking>, ()>) -> Self {
        Self(selected)
    }

    /// Returns the address that the server advertises.
    pub fn address(&self) -> &ServerAddress {
        self.0.anyones().address()
    }

    /// Returns the server's membership, which is another one when it has left and come back.
    pub fn id(&self) -> ServerId {
        self.0.anyones().id()
    }

    /// Returns what was known of the server when it was selected.
    pub fn description(&self) -> &Arc<ServerDescription> {
        self.0.anyones().description()
    }

    /// Returns what the deployment was when the server was selected.
    pub fn topology_type(&self) -> TopologyType {
        self.0.anyones().topology_type()
    }

    /// Returns how many connections the server's pool has now, and how many operations wait for
    /// one; in a process that was forked off, none.
    pub fn counts(&self) -> Counts {
        self.0.anyones().counts()
    }

    /// Returns how many operations wait for a connection of the pool or have one now: what
    /// selection compares as `operationCount`.
    pub fn operation_count(&self) -> u32 {
        self.0.anyones().operation_count()
    }

    /// Sets by when connections are to be checked out at the latest; check-outs take it over.
    #[must_use]
    pub fn with_deadline(self, deadline: Option<Instant>) -> Self {
        Self(self.0.map(|selected| selected.with_deadline(deadline)))
    }

    /// Checks out a connection to the server, by the deadline of the selection.
    ///
    /// # Errors
    ///
    /// Fails as [`host::SelectedServer::check_out`] does, and in a process that was forked off.
    pub fn check_out(&self) -> Result<CheckedOut, Error> {
        let (server, engine) = self.ours()?;
        engine.wait(server.check_out()).map(|checked_out| CheckedOut::new(checked_out, engine))
    }

    /// Establishes a connection of its own to this very server, whatever its role, arbiters
    /// included; it belongs to no pool, and what it finds says nothing to the topology.
    ///
    /// # Errors
    ///
    /// Fails as [`host::SelectedServer::connect`] does, and in a process that was forked off.
    pub fn connect(&self) -> Result<CheckedOut, Error> {
        let (server, engine) = self.ours()?;
        engine.wait(server.connect()).map(|checked_out| CheckedOut::new(checked_out, engine))
    }

    /// The pools of its parent are closed to a process that was forked off.
    fn ours(&self) -> Result<(&host::SelectedServer<Blocking>, &Arc<Engine>), Error> {
        match self.0.ours() {
            Some((server, ())) => Ok((server, &server.runtime().reactor().engine)),
            None => {
                let address = self.address().clone();
                Err(CheckOutError::PoolClosed { address }.into())
            }
        }
    }
}

impl Clone for SelectedServer {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}
