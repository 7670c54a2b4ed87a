//! Whatever waits for the locks to be free.

use std::any::Any;
use std::sync::Arc;
use std::task::Waker;

use super::server::{Boxed, Server};
use super::{Link, Rescan, Runtime, Shared, Slot};
use sdam_core::config::ServerAddress;
use sdam_core::id::ConnectionId;
use sdam_core::operation::OperationFailure;

/// Whatever waits for the locks to be free: runtimes, those who are woken and what is dropped may
/// come back at once, to the very pool or topology, or end the client.
///
/// It is collected under the locks, and settled by whoever has let go of the outermost.
#[must_use]
pub(super) struct Later<R: Runtime> {
    /// Whether the alarm has something to tell the runtime.
    pub(super) alarm: bool,
    pub(super) links: Vec<(Link<R>, ServerAddress)>,
    pub(super) rescans: Vec<Rescan<R>>,
    pub(super) slots: Vec<(Slot<R>, ServerAddress)>,
    pub(super) failed: Vec<(Arc<Server<R>>, ConnectionId, OperationFailure)>,
    pub(super) wakers: Vec<Waker>,
    pub(super) disposed: Vec<Boxed<R>>,
    dropped: Vec<Arc<dyn Any + Send + Sync>>,
}

impl<R: Runtime> Default for Later<R> {
    fn default() -> Self {
        let (links, rescans, slots, failed) = Default::default();
        let (wakers, disposed, dropped) = Default::default();
        Self { alarm: false, links, rescans, slots, failed, wakers, disposed, dropped }
    }
}

impl<R: Runtime> Later<R> {
    /// Lets go of something that wakers may be in, or what ends with a runtime's call.
    pub(super) fn let_go(&mut self, dropped: Arc<dyn Any + Send + Sync>) {
        self.dropped.push(dropped);
    }

    /// Does it all, without a lock; those who are woken come last, as they may take their time.
    pub(super) fn settle(self, shared: &Shared<R>) {
        let Self { alarm, links, rescans, slots, failed, wakers, disposed, dropped } = self;
        let runtime = &shared.runtime;
        if alarm {
            shared.alarm.tell(runtime);
        }
        drop(disposed);
        links.into_iter().for_each(|(link, address)| runtime.open(link, address));
        rescans.into_iter().for_each(|rescan| runtime.resolve(rescan));
        slots.into_iter().for_each(|(slot, address)| runtime.establish(slot, address));
        for (server, connection, failure) in failed {
            server.note_not_established(connection, failure);
        }
        wakers.into_iter().for_each(Waker::wake);
        drop(dropped);
    }
}
