//! Subscriptions: to events, and to the view.

#[cfg(feature = "stream")]
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use arc_swap::ArcSwap;
use atomic_waker::AtomicWaker;
use concurrent_queue::ConcurrentQueue;
use sdam_core::description::TopologyDescription;
use sdam_core::topology::{Event, EventKind, Topics};

use crate::process::Own;
use crate::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use crate::sync::{FirstPanic, Mutex, lock};

/// The number of unread events of a subscriber after which the oldest are dropped.
pub const EVENT_LIMIT: usize = 4096;

/// The bytes of documents in unread events of a subscriber after which the oldest events are
/// dropped; more than the longest command with its reply.
pub const EVENT_BYTES_LIMIT: usize = 64 << 20;

/// An item that subscribers receive.
pub(crate) trait Item: Clone {
    /// Returns how many bytes of documents it keeps alive.
    fn weight(&self) -> usize {
        0
    }

    /// Returns whether nothing follows.
    fn is_last(&self) -> bool {
        false
    }
}

impl Item for Event {
    fn weight(&self) -> usize {
        match &self.kind {
            EventKind::Command { event, .. } => event.documents_len(),
            _ => 0,
        }
    }

    fn is_last(&self) -> bool {
        matches!(self.kind, EventKind::TopologyClosed)
    }
}

impl Item for Arc<TopologyDescription> {}

/// The subscribers.
///
/// Publishing takes no lock and allocates nothing: topology and pools publish their events under
/// their own locks, and wake the tasks that wait for them afterwards.
#[derive(Debug)]
pub(crate) struct Subscribers<T> {
    /// The topics that any of them wants, as bits.
    wanted: AtomicU8,
    listeners: ArcSwap<Vec<Arc<Listener<T>>>>,
    /// True if the last item has been published, so that nothing will follow; locked to change the
    /// list.
    closed: Mutex<bool>,
}

impl<T> Default for Subscribers<T> {
    fn default() -> Self {
        let (wanted, listeners) = (AtomicU8::new(0), ArcSwap::default());
        Self { wanted, listeners, closed: Mutex::new(false) }
    }
}

impl<T> Subscribers<T> {
    /// Returns whether a topic may have subscribers.
    pub(crate) fn wants(&self, topic: Topics) -> bool {
        self.wanted.load(Ordering::Relaxed) & topic.bits() != 0
    }

    /// Wakes the tasks that wait for a topic, after it was published and without a lock.
    pub(crate) fn wake(&self, topics: Topics) {
        let (listeners, mut panic) = (self.listeners.load(), FirstPanic::default());
        for listener in listeners.iter() {
            if listener.topics.bits() & topics.bits() != 0 {
                panic.call(|| listener.waker.wake());
            }
        }
    }

    /// Returns how many are kept.
    #[cfg(test)]
    pub(crate) fn listed(&self) -> usize {
        self.listeners.load().len()
    }

    /// Replaces the list, under the lock.
    fn list(&self, listeners: Vec<Arc<Listener<T>>>) -> Arc<Vec<Arc<Listener<T>>>> {
        let wanted = listeners.iter().fold(0, |bits, listener| bits | listener.topics.bits());
        self.wanted.store(wanted, Ordering::Relaxed);
        self.listeners.swap(Arc::new(listeners))
    }
}

impl<T: Item> Subscribers<T> {
    /// Adds one who may fall behind by `limit` items, and begins with `first`.
    pub(crate) fn subscribe(
        self: &Arc<Self>,
        topics: Topics,
        limit: usize,
        first: Option<T>,
    ) -> Subscription<T> {
        let listener = Arc::new(Listener::new(topics, limit));
        first.into_iter().for_each(|first| listener.put(first));
        let closed = lock(&self.closed);
        if *closed {
            listener.closed.store(true, Ordering::Release);
        } else {
            let mut listeners = Vec::clone(&self.listeners.load());
            listeners.push(Arc::clone(&listener));
            self.list(listeners);
        }
        drop(closed);
        Subscription { listener, subscribers: Arc::downgrade(self), ended: false }
    }

    /// Gives an item to all who want to hear of the topic, who are then to be
    /// [woken](Self::wake).
    pub(crate) fn put(&self, topic: Topics, item: T) {
        let listeners = self.listeners.load();
        let mut wanting = listeners.iter().filter(|listener| listener.topics.contains(topic));
        let Some(mut listener) = wanting.next() else { return };
        for next in wanting {
            listener.put(item.clone());
            listener = next;
        }
        listener.put(item);
    }

    /// Ends all subscriptions after the last item, those included that begin later; subscribers are
    /// then to be woken.
    pub(crate) fn close(&self, topic: Topics, last: Option<&T>, wakers: &mut Vec<Waker>) {
        let mut closed = lock(&self.closed);
        *closed = true;
        let listeners = self.list(Vec::new());
        drop(closed);
        for listener in listeners.iter() {
            if listener.topics.contains(topic) {
                last.into_iter().for_each(|last| listener.put(last.clone()));
            }
            listener.closed.store(true, Ordering::Release);
            wakers.extend(listener.waker.take());
        }
    }
}

/// A subscriber's unread items; when there are too many, the oldest make room and are counted.
#[derive(Debug)]
pub(crate) struct Listener<T> {
    topics: Topics,
    items: ConcurrentQueue<T>,
    /// The weight of what is unread.
    weight: AtomicUsize,
    dropped: AtomicU64,
    /// True if nothing is added any more.
    closed: AtomicBool,
    waker: AtomicWaker,
}

impl<T> Listener<T> {
    /// Makes room for `limit` items, at least one.
    fn new(topics: Topics, limit: usize) -> Self {
        Self {
            topics,
            items: ConcurrentQueue::bounded(limit.max(1)),
            weight: AtomicUsize::new(0),
            dropped: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        }
    }
}

impl<T: Item> Listener<T> {
    fn put(&self, item: T) {
        if self.closed.load(Ordering::Acquire) {
            return;
        }
        let weight = item.weight();
        if weight > 0 {
            self.weight.fetch_add(weight, Ordering::Relaxed);
            while self.weight.load(Ordering::Relaxed) > EVENT_BYTES_LIMIT {
                let Some(oldest) = self.pop() else { break };
                self.dropped.fetch_add(1, Ordering::Relaxed);
                drop(oldest);
            }
        }
        // The queue itself is never closed.
        if let Ok(Some(oldest)) = self.items.force_push(item) {
            self.weight.fetch_sub(oldest.weight(), Ordering::Relaxed);
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn pop(&self) -> Option<T> {
        let item = self.items.pop().ok()?;
        match item.weight() {
            0 => {}
            weight => _ = self.weight.fetch_sub(weight, Ordering::Relaxed),
        }
        Some(item)
    }

    /// Returns the next item, `None` if there will be none.
    fn poll_once(&self) -> Poll<Option<T>> {
        // First, so that what was added before is seen.
        let closed = self.closed.load(Ordering::Acquire);
        match self.pop() {
            Some(item) => Poll::Ready(Some(item)),
            None if closed => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

/// One subscription; dropping it ends it.
#[derive(Debug)]
pub(crate) struct Subscription<T: Item> {
    listener: Arc<Listener<T>>,
    subscribers: Weak<Subscribers<T>>,
    /// True if the last item was read: what comes later has no reader.
    ended: bool,
}

impl<T: Item> Subscription<T> {
    /// Subscribes to nothing.
    pub(crate) fn none() -> Self {
        let listener = Listener::new(Topics::NONE, 0);
        listener.closed.store(true, Ordering::Release);
        Self { listener: Arc::new(listener), subscribers: Weak::new(), ended: true }
    }

    /// Returns the next item, `None` if there will be none, or arranges for a wake-up.
    pub(crate) fn poll_next(&mut self, cx: &Context<'_>) -> Poll<Option<T>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let mut poll = self.listener.poll_once();
        if poll.is_pending() {
            self.listener.waker.register(cx.waker());
            poll = self.listener.poll_once();
        }
        match &poll {
            Poll::Ready(Some(item)) => self.ended = item.is_last(),
            // It may have ended while the waker was put there.
            Poll::Ready(None) => drop(self.listener.waker.take()),
            Poll::Pending => {}
        }
        poll
    }

    fn try_next(&mut self) -> Option<T> {
        let item = self.listener.pop().filter(|_| !self.ended)?;
        self.ended = item.is_last();
        Some(item)
    }

    /// Returns how many items were dropped unread.
    pub(crate) fn dropped(&self) -> u64 {
        self.listener.dropped.load(Ordering::Relaxed)
    }

    /// Returns whether nothing is added any more to what is unread.
    pub(crate) fn is_closed(&self) -> bool {
        self.listener.closed.load(Ordering::Acquire)
    }
}

impl<T: Item> Drop for Subscription<T> {
    fn drop(&mut self) {
        if let Some(subscribers) = self.subscribers.upgrade() {
            let closed = lock(&subscribers.closed);
            let mut listeners = Vec::clone(&subscribers.listeners.load());
            listeners.retain(|listener| !Arc::ptr_eq(listener, &self.listener));
            subscribers.list(listeners);
            drop(closed);
        }
        // A thread may still be publishing to it, under a lock, and drop it there: without a waker,
        // and without unread items.
        self.listener.closed.store(true, Ordering::Release);
        while self.listener.pop().is_some() {}
        drop(self.listener.waker.take());
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
        match self.0.ours_mut() {
            Some(events) => events.poll_next(cx),
            None => Poll::Ready(None),
        }
    }

    /// Returns the next event if there is one already.
    pub fn try_next(&mut self) -> Option<Event> {
        self.0.ours_mut()?.try_next()
    }

    /// Returns how many events were dropped, the oldest first, because more than [`EVENT_LIMIT`]
    /// were unread, or [`EVENT_BYTES_LIMIT`] of their documents.
    pub fn dropped(&self) -> u64 {
        self.0.ours().map_or(0, Subscription::dropped)
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
        match self.0.ours_mut() {
            Some(views) => views.poll_next(cx),
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
