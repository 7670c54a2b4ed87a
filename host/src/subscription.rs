//! Subscriptions: to what happens, and to the view.

use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use super::driver::Driver;
use super::mailbox::Mailbox;
use super::process::Own;
use super::sync::Mutex;
use super::sync::atomic::{AtomicUsize, Ordering};
use super::{EVENT_LIMIT, Host, Runtime, lock};
use sdam_core::description::TopologyDescription;
use sdam_core::topology::Event;

impl<R: Runtime> Host<R> {
    /// Subscribes to the events from now on; in a process that was forked off there are none.
    pub fn subscribe(&self) -> Events {
        let process = self.shared.process;
        Events(Own::new(
            match process.is_current() {
                true => self.shared.events.subscribe(EVENT_LIMIT, None),
                false => Subscription::none(),
            },
            process,
        ))
    }

    /// Subscribes to the view: the one of now first, and then each that differs from the one before
    /// in what events tell about, the latest only if there are several. In a process that
    /// was forked off there is none.
    pub fn watch(&self) -> Views {
        let process = self.shared.process;
        // Under the lock, so that no view is published in between.
        let subscribe = |_: &mut Driver<R>| self.shared.views.subscribe(1, Some(self.view()));
        Views(Own::new(
            match process.is_current() {
                true => self.with_driver(subscribe),
                false => Subscription::none(),
            },
            process,
        ))
    }
}

/// Who is told of what happens.
///
/// Its lock is the innermost of all: topology and pools tell their events under their own, and
/// wake those who wait for them afterwards.
#[derive(Debug)]
pub(super) struct Subscribers<T> {
    /// How many there are, as a hint that costs no lock.
    count: AtomicUsize,
    state: Mutex<State<T>>,
}

#[derive(Debug)]
struct State<T> {
    mailboxes: Vec<Arc<Mailbox<T>>>,
    /// Whether the last item has been told, so that nothing will follow.
    closed: bool,
}

impl<T> Default for Subscribers<T> {
    fn default() -> Self {
        let state = State { mailboxes: Vec::new(), closed: false };
        Self { count: AtomicUsize::new(0), state: Mutex::new(state) }
    }
}

impl<T: Clone> Subscribers<T> {
    /// Returns whether there may be anyone to be told.
    pub(super) fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Adds one who may fall behind by `limit` items, and begins with `first`.
    pub(super) fn subscribe(self: &Arc<Self>, limit: usize, first: Option<T>) -> Subscription<T> {
        let mailbox = Arc::new(Mailbox::new(limit));
        first.into_iter().for_each(|first| mailbox.push(first));
        let mut state = lock(&self.state);
        match state.closed {
            true => mailbox.close(),
            false => state.mailboxes.push(Arc::clone(&mailbox)),
        }
        self.count.store(state.mailboxes.len(), Ordering::Relaxed);
        drop(state);
        Subscription { mailbox, subscribers: Arc::downgrade(self) }
    }

    /// Returns how many are kept.
    #[cfg(test)]
    pub(super) fn listed(&self) -> usize {
        lock(&self.state).mailboxes.len()
    }

    /// Gives an item to all subscribers, who are then to be woken.
    pub(super) fn put(&self, item: &T, wakers: &mut Vec<Waker>) {
        let state = lock(&self.state);
        wakers.extend(state.mailboxes.iter().filter_map(|mailbox| mailbox.put(item.clone())));
    }

    /// Ends all subscriptions after the last item, those included that begin later; subscribers are
    /// then to be woken.
    pub(super) fn close(&self, last: Option<&T>, wakers: &mut Vec<Waker>) {
        let mut state = lock(&self.state);
        state.closed = true;
        let mailboxes = std::mem::take(&mut state.mailboxes);
        self.count.store(0, Ordering::Relaxed);
        drop(state);
        for mailbox in &mailboxes {
            wakers.extend(last.and_then(|last| mailbox.put(last.clone())));
            wakers.extend(mailbox.end());
        }
    }
}

/// One subscription; dropping it ends it.
#[derive(Debug)]
pub(super) struct Subscription<T> {
    pub(super) mailbox: Arc<Mailbox<T>>,
    subscribers: Weak<Subscribers<T>>,
}

impl<T> Subscription<T> {
    /// Subscribes to nothing.
    pub(super) fn none() -> Self {
        Self { mailbox: Arc::new(Mailbox::new(0)), subscribers: Weak::new() }
    }
}

impl<T> Drop for Subscription<T> {
    fn drop(&mut self) {
        let Some(subscribers) = self.subscribers.upgrade() else { return };
        let mut state = lock(&subscribers.state);
        // Not the last reference, which would drop a waker under the lock.
        state.mailboxes.retain(|mailbox| !Arc::ptr_eq(mailbox, &self.mailbox));
        subscribers.count.store(state.mailboxes.len(), Ordering::Relaxed);
    }
}

/// Events in the order in which they happened; ends after the last one, and at once in a process
/// that was forked off.
#[derive(Debug)]
pub struct Events(pub(super) Own<Subscription<Event>>);

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
            Some(events) => events.mailbox.poll_next(cx),
            None => Poll::Ready(None),
        }
    }

    /// Returns the next event if there is one already.
    pub fn try_next(&mut self) -> Option<Event> {
        self.0.ours()?.mailbox.try_next()
    }

    /// Returns how many events were dropped because more than [`EVENT_LIMIT`] were unread.
    ///
    /// [`EVENT_LIMIT`]: super::EVENT_LIMIT
    pub fn dropped(&self) -> u64 {
        self.0.ours().map_or(0, |events| events.mailbox.dropped())
    }
}

/// Views of a topology, the latest one first; ends when the client is closed, and at once in a
/// process that was forked off.
#[derive(Debug)]
pub struct Views(pub(super) Own<Subscription<Arc<TopologyDescription>>>);

impl Views {
    /// Waits for a view that was not seen yet; `None` once the client is closed.
    ///
    /// Cancelling the wait loses nothing.
    pub async fn next(&mut self) -> Option<Arc<TopologyDescription>> {
        let views = self.0.ours()?;
        std::future::poll_fn(|cx| views.mailbox.poll_next(cx)).await
    }
}
