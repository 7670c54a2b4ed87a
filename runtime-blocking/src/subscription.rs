//! Subscriptions: to what happens, and to the view.

use std::future::Future;
use std::sync::Arc;
use std::task::Poll;
use std::time;

use sdam_core::description::TopologyDescription;
use sdam_core::time::Instant;
use sdam_core::topology::Event;
use sdam_host as host;

use crate::process::Own;
use crate::runtime::Blocking;

/// Events in the order in which they happened; ends after the last one.
///
/// As an iterator, it waits for each; in a process that was forked off, it has ended.
pub type Events = Subscription<host::Events>;

/// Views of a topology, the latest one first; ends when that is closed.
///
/// As an iterator, it waits for each; in a process that was forked off, it has ended.
pub type Views = Subscription<host::Views>;

/// A subscription, see [`Events`] and [`Views`].
#[derive(Debug)]
pub struct Subscription<S> {
    source: Own<S>,
    /// The origin of the topology's clock.
    epoch: time::Instant,
}

/// A source that one can subscribe to.
pub trait Source: sealed::Source {
    /// The type of items.
    type Item;

    /// Waits for the next one.
    #[doc(hidden)]
    fn receive(&mut self) -> impl Future<Output = Option<Self::Item>>;
}

mod sealed {
    /// Only this crate knows what one can subscribe to.
    pub trait Source {}
}

impl sealed::Source for host::Events {}

impl Source for host::Events {
    type Item = Event;

    fn receive(&mut self) -> impl Future<Output = Option<Event>> {
        self.next()
    }
}

impl sealed::Source for host::Views {}

impl Source for host::Views {
    type Item = Arc<TopologyDescription>;

    fn receive(&mut self) -> impl Future<Output = Option<Self::Item>> {
        self.next()
    }
}

impl<S: Source> Subscription<S> {
    pub(crate) fn new(source: S, runtime: &Blocking) -> Self {
        let reactor = runtime.reactor();
        Self { source: Own::new(source, &reactor.engine), epoch: reactor.epoch }
    }

    /// Waits for the next one until `deadline`, a time of [`Topology::now`](crate::Topology::now);
    /// `None` if none has come by then, or will come.
    pub fn next_until(&mut self, deadline: Instant) -> Option<S::Item> {
        let end = self.epoch.checked_add(deadline.since_origin());
        let (source, engine) = self.source.ours_mut()?;
        engine.wait_until(source.receive(), end)?
    }

    /// Returns the next one if there is one already.
    pub fn try_next(&mut self) -> Option<S::Item> {
        let receive = self.source.ours_mut()?.0.receive();
        let mut receive = std::pin::pin!(receive);
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        match receive.as_mut().poll(&mut cx) {
            Poll::Ready(item) => item,
            Poll::Pending => None,
        }
    }
}

impl Subscription<host::Events> {
    /// Returns how many events were dropped, the oldest first, because more than
    /// [`EVENT_LIMIT`](sdam_host::EVENT_LIMIT) were unread, or
    /// [`EVENT_BYTES_LIMIT`](sdam_host::EVENT_BYTES_LIMIT) of their documents.
    pub fn dropped(&self) -> u64 {
        self.source.ours().map_or(0, |(events, _)| events.dropped())
    }

    /// Returns the subscription as it is for every runtime that waits with futures; `None` in a
    /// process that was forked off.
    pub fn into_host(self) -> Option<host::Events> {
        self.source.into_ours()
    }
}

impl<S: Source> Iterator for Subscription<S> {
    type Item = S::Item;

    /// Waits for the next one; `None` once the topology is closed and all were read.
    fn next(&mut self) -> Option<S::Item> {
        let (source, engine) = self.source.ours_mut()?;
        engine.wait(source.receive())
    }
}
