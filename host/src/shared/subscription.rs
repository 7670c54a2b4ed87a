//! Subscriptions: to events, and to the view.

#[cfg(feature = "stream")]
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use sdam_core::description::TopologyDescription;
use sdam_core::topology::Event;

use crate::process::Own;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::channel::Channel;
use crate::sync::{Mutex, lock};

/// The number of unread events of a subscriber after which the oldest are dropped.
pub const EVENT_LIMIT: usize = 4096;

/// The subscribers.
///
/// Its lock is the innermost of all: topology and pools tell their events under their own, and
/// wake those who wait for them afterwards.
#[derive(Debug)]
pub(crate) struct Subscribers<T> {
    /// Their number, as a hint that costs no lock.
    count: AtomicUsize,
    state: Mutex<State<T>>,
}

#[derive(Debug)]
struct State<T> {
    channels: Vec<Arc<Channel<T>>>,
    /// True if the last item has been told, so that nothing will follow.
    closed: bool,
}

impl<T> Default for Subscribers<T> {
    fn default() -> Self {
        let state = State { channels: Vec::new(), closed: false };
        Self { count: AtomicUsize::new(0), state: Mutex::new(state) }
    }
}

impl<T: Clone> Subscribers<T> {
    /// Returns whether there may be anyone to be told.
    pub(crate) fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Adds one who may fall behind by `limit` items, and begins with `first`.
    pub(crate) fn subscribe(self: &Arc<Self>, limit: usize, first: Option<T>) -> Subscription<T> {
        let channel = Arc::new(Channel::new(limit));
        first.into_iter().for_each(|first| channel.push(first));
        let mut state = lock(&self.state);
        match state.closed {
            true => channel.close(),
            false => state.channels.push(Arc::clone(&channel)),
        }
        self.count.store(state.channels.len(), Ordering::Relaxed);
        drop(state);
        Subscription { channel, subscribers: Arc::downgrade(self) }
    }

    /// Returns how many are kept.
    #[cfg(test)]
    pub(crate) fn listed(&self) -> usize {
        lock(&self.state).channels.len()
    }

    /// Gives an item to all subscribers, who are then to be woken.
    pub(crate) fn put(&self, item: &T, wakers: &mut Vec<Waker>) {
        let state = lock(&self.state);
        wakers.extend(state.channels.iter().filter_map(|channel| channel.put(item.clone())));
    }

    /// Ends all subscriptions after the last item, those included that begin later; subscribers are
    /// then to be woken.
    pub(crate) fn close(&self, last: Option<&T>, wakers: &mut Vec<Waker>) {
        let mut state = lock(&self.state);
        state.closed = true;
        let channels = std::mem::take(&mut state.channels);
        self.count.store(0, Ordering::Relaxed);
        drop(state);
        for channel in &channels {
            wakers.extend(last.and_then(|last| channel.put(last.clone())));
            wakers.extend(channel.end());
        }
    }
}

/// One subscription; dropping it ends it.
#[derive(Debug)]
pub(crate) struct Subscription<T> {
    pub(crate) channel: Arc<Channel<T>>,
    subscribers: Weak<Subscribers<T>>,
}

impl<T> Subscription<T> {
    /// Subscribes to nothing.
    pub(crate) fn none() -> Self {
        Self { channel: Arc::new(Channel::new(0)), subscribers: Weak::new() }
    }
}

impl<T> Drop for Subscription<T> {
    fn drop(&mut self) {
        let Some(subscribers) = self.subscribers.upgrade() else { return };
        let mut state = lock(&subscribers.state);
        // Not the last reference, which would drop a waker under the lock.
        state.channels.retain(|channel| !Arc::ptr_eq(channel, &self.channel));
        subscribers.count.store(state.channels.len(), Ordering::Relaxed);
    }
}

/// Events in the order in which they happened; ends after the last one, and at once in a process
/// that was forked off.
///
/// With the feature `stream` it is a `Stream`, for the combinators of other crates.
#[derive(Debug)]
pub struct Events(pub(crate) Own<Subscription<Event>>);

impl Events {
    /// Waits for the next event; `None` once the client is closed and all were read.
    ///
    /// Cancelling the wait loses nothing.
    pub async fn next(&mut self) -> Option<Event> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Returns the next event, or arranges for a wake-up when there is one.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        match self.0.ours() {
            Some(events) => events.channel.poll_next(cx),
            None => Poll::Ready(None),
        }
    }

    /// Returns the next event if there is one already.
    pub fn try_next(&mut self) -> Option<Event> {
        self.0.ours()?.channel.try_next()
    }

    /// Returns how many events were dropped because more than [`EVENT_LIMIT`] were unread.
    ///
    /// [`EVENT_LIMIT`]: crate::shared::subscription::EVENT_LIMIT
    pub fn dropped(&self) -> u64 {
        self.0.ours().map_or(0, |events| events.channel.dropped())
    }
}

#[cfg(feature = "stream")]
impl futures_core::Stream for Events {
    type Item = Event;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        Self::poll_next(self.get_mut(), cx)
    }
}

/// Views of a topology, the latest one first; ends when the client is closed, and at once in a
/// process that was forked off.
///
/// With the feature `stream` it is a `Stream`, for the combinators of other crates.
#[derive(Debug)]
pub struct Views(pub(crate) Own<Subscription<Arc<TopologyDescription>>>);

impl Views {
    /// Waits for a view that was not seen yet; `None` once the client is closed.
    ///
    /// Cancelling the wait loses nothing.
    pub async fn next(&mut self) -> Option<Arc<TopologyDescription>> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Returns a view that was not seen yet, or arranges for a wake-up when there is one.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Arc<TopologyDescription>>> {
        match self.0.ours() {
            Some(views) => views.channel.poll_next(cx),
            None => Poll::Ready(None),
        }
    }
}

#[cfg(feature = "stream")]
impl futures_core::Stream for Views {
    type Item = Arc<TopologyDescription>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Self::poll_next(self.get_mut(), cx)
    }
}
