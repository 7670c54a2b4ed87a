//! The end of a client.

use std::future::IntoFuture;
use std::pin::Pin;
#[cfg(feature = "blocking")]
use std::time::Duration;

use sdam_host::{Runtime, Topology};

/// The end of a client, see [`Client::shutdown`](crate::generic::Client::shutdown). `T` is the
/// topology below it.
#[derive(Debug)]
#[must_use = "an action does nothing until it is awaited, or run by a thread"]
pub struct Shutdown<T> {
    topology: T,
    is_immediate: bool,
}

impl<T> Shutdown<T> {
    pub(crate) const fn new(topology: T) -> Self {
        Self { topology, is_immediate: false }
    }

    /// Sets whether nothing is waited for: servers are then not asked to close the client's cursors
    /// and to forget its sessions. False by default.
    pub fn immediate(mut self, immediate: bool) -> Self {
        self.is_immediate = immediate;
        self
    }
}

impl<R: Runtime> IntoFuture for Shutdown<Topology<R>> {
    type Output = ();
    type IntoFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            match self.is_immediate {
                true => self.topology.close_now(),
                false => self.topology.close().await,
            }
        })
    }
}

#[cfg(feature = "blocking")]
impl Shutdown<sdam_blocking::Topology> {
    /// Shuts the client down.
    pub fn run(self) {
        self.topology.close(if self.is_immediate { Duration::ZERO } else { Duration::MAX });
    }
}
