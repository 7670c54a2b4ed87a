//! The actions of a topology.

use std::sync::Arc;

use crate::config::ServerAddress;
use crate::diagnosis::SelectionError;
use crate::dns::Question;
use crate::id::{LinkId, ServerId, WaiterId};
use crate::pool;
use crate::selection::Snapshot;
use crate::topology::Event;

/// An action that a topology asks for; to be performed in order, and without blocking.
///
/// The enum is exhaustive on purpose: code that performs actions must miss none, so that a new one
/// is a breaking change.
#[derive(Clone, Debug)]
pub enum Action {
    /// Open a byte stream to `address`, and report [`Opened`](crate::topology::Input::Opened) or
    /// [`Closed`](crate::topology::Input::Closed). An attempt that takes longer than
    /// connectTimeoutMS is given up with [`Close`](Self::Close). TLS and proxies are part of
    /// opening: see [`transport`](crate::transport).
    Open {
        /// The stream's name from now on.
        link: LinkId,
        /// The server that it leads to.
        address: ServerAddress,
    },
    /// Write these bytes, which are plain, after those already sent.
    Send {
        /// The stream.
        link: LinkId,
        /// The bytes to write.
        bytes: Vec<u8>,
    },
    /// Drop the stream, in whatever state it is; nothing more is expected from it.
    Close {
        /// The stream.
        link: LinkId,
    },
    /// Look up the deployment's SRV records again, and report
    /// [`Resolved`](crate::topology::Input::Resolved), whatever comes of it.
    Resolve {
        /// The question to ask.
        question: Question,
    },
    /// Create the pool of a server that joined; it starts paused, in generation 0.
    Join {
        /// The server's membership.
        server: ServerId,
        /// Its address.
        address: ServerAddress,
    },
    /// Close and forget the pool of a server that left.
    Leave {
        /// The server's membership.
        server: ServerId,
    },
    /// Hand a command to that server's pool.
    Pool {
        /// The server's membership.
        server: ServerId,
        /// The command.
        command: pool::Command,
    },
    /// Make this the view that everyone reads.
    Publish {
        /// The new view.
        snapshot: Arc<Snapshot>,
    },
    /// End an operation's wait: it is to look again, or to give up.
    Wake {
        /// The operation.
        waiter: WaiterId,
        /// True if to look again, or why there is no server.
        outcome: Result<(), Box<SelectionError>>,
    },
    /// Notify the subscribers; never call user code from here.
    Emit {
        /// The event.
        event: Event,
    },
}
