//! The commands of a topology to the connection pool of one server.
//!
//! Only the topology starts generations, so that it can judge an error stale without asking a pool
//! (SDAM, "Why ignore errors based on CMAP's generation number?").

use bson::oid::ObjectId;

use crate::failure::Failure;
use crate::id::Generation;

/// A command to the pool of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    /// The server can be used: connections may be made and handed out.
    Ready,
    /// Connections from before generation `to` are of no use; pause until the next `Ready`.
    Clear {
        /// The generation that begins.
        to: Generation,
        /// True if to interrupt connections in use too.
        interrupt: bool,
        /// The cause.
        cause: Failure,
    },
    /// Behind a load balancer, connections to one service are of no use.
    ClearService {
        /// The service.
        service: ObjectId,
        /// The generation that begins for it.
        to: Generation,
        /// The cause.
        cause: Failure,
    },
}
