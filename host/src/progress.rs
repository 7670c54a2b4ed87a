//! How far a stream or a connection has come that is being opened.

use std::sync::Weak;

use super::server::Server;
use super::{Host, Runtime};
use sdam_core::failure::Stage;
use sdam_core::id::{ConnectionId, LinkId};
use sdam_core::{pool, topology};

/// Tells how far opening a stream, or establishing a connection, has come.
///
/// It keeps no client alive.
pub struct Progress<R: Runtime> {
    of: Of<R>,
}

enum Of<R: Runtime> {
    Link { host: Weak<Host<R>>, link: LinkId },
    Connection { server: Weak<Server<R>>, connection: ConnectionId },
}

impl<R: Runtime> Progress<R> {
    pub(super) const fn of_link(host: Weak<Host<R>>, link: LinkId) -> Self {
        Self { of: Of::Link { host, link } }
    }

    pub(super) const fn of_connection(server: Weak<Server<R>>, connection: ConnectionId) -> Self {
        Self { of: Of::Connection { server, connection } }
    }

    /// Reports that a stage begins, or goes on; time-outs and errors tell it, and events how long
    /// it took.
    pub fn reached(&self, stage: Stage) {
        match &self.of {
            Of::Link { host, link } => {
                if let Some(host) = host.upgrade() {
                    host.handle(topology::Input::Reached { link: *link, stage });
                }
            }
            Of::Connection { server, connection } => {
                if let Some(server) = server.upgrade() {
                    server.handle(pool::Input::Reached { connection: *connection, stage });
                }
            }
        }
    }
}

impl<R: Runtime> Clone for Progress<R> {
    fn clone(&self) -> Self {
        match &self.of {
            Of::Link { host, link } => Self::of_link(Weak::clone(host), *link),
            Of::Connection { server, connection } => {
                Self::of_connection(Weak::clone(server), *connection)
            }
        }
    }
}

impl<R: Runtime> std::fmt::Debug for Progress<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("Progress");
        match &self.of {
            Of::Link { link, .. } => debug.field("link", link),
            Of::Connection { connection, .. } => debug.field("connection", connection),
        };
        debug.finish_non_exhaustive()
    }
}
