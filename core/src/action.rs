//! What a topology asks of the world.

use std::sync::Arc;

use crate::address::ServerAddress;
use crate::description::TopologyDescription;
use crate::event::Event;
use crate::id::LinkId;

/// What a topology asks of the world; to be performed in order, and without blocking.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Action {
    /// Open a byte stream to `address`, and report [`Opened`](crate::topology::Input::Opened) or
    /// [`Closed`](crate::topology::Input::Closed).
    Open {
        /// The stream's name from now on.
        link: LinkId,
        /// Where it leads.
        address: ServerAddress,
    },
    /// Write these bytes after those already sent.
    Send {
        /// The stream.
        link: LinkId,
        /// What to write.
        bytes: Vec<u8>,
    },
    /// Drop the stream, in whatever state it is; nothing more is expected from it.
    Close {
        /// The stream.
        link: LinkId,
    },
    /// Make this the view that everyone reads.
    Publish {
        /// What is known now.
        description: Arc<TopologyDescription>,
    },
    /// Tell the subscribers; never call user code from here.
    Emit {
        /// What happened.
        event: Event,
    },
}
