//! Subscriptions: to what happens, and to the view.

use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use super::mailbox::Mailbox;
use super::process::Own;
use super::sync::Mutex;
use super::sync::atomic::{AtomicUsize, Ordering};
use super::{EVENT_LIMIT, lock};
use crate::description::TopologyDescription;
use crate::event::{Event, EventKind};

/// Who is told of what happens.
///
/// Its lock is the innermost of all: topology and pools tell their events under their own.
#[derive(Debug, Default)]
pub(super) struct Subscribers {
    /// How many there are, as a hint that costs no lock.
    count: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    mailboxes: Vec<Weak<Mailbox<Event>>>,
    /// Whether the last event has been told, so that nothing will follow.
    closed: bool,
}

impl Subscribers {
    /// Returns whether there may be anyone to be told.
    pub(super) fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    pub(super) fn subscribe(&self) -> Arc<Mailbox<Event>> {
        let mailbox = Arc::new(Mailbox::new(EVENT_LIMIT));
        let mut state = lock(&self.state);
        match state.closed {
            true => mailbox.close(),
            false => state.mailboxes.push(Arc::downgrade(&mailbox)),
        }
        self.count.store(state.mailboxes.len(), Ordering::Relaxed);
        mailbox
    }

    pub(super) fn tell(&self, event: &Event) {
        let mut wakers = Vec::new();
        self.put(event, &mut wakers);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// As [`tell`](Self::tell), but leaves it to the caller to wake the subscribers.
    pub(super) fn put(&self, event: &Event, wakers: &mut Vec<Waker>) {
        let mut state = lock(&self.state);
        if state.closed {
            return;
        }
        deliver(&mut state.mailboxes, event, wakers);
        if matches!(event.kind, EventKind::TopologyClosed) {
            state.closed = true;
            close_all(&mut state.mailboxes, wakers);
        }
        self.count.store(state.mailboxes.len(), Ordering::Relaxed);
    }
}

/// Events in the order in which they happened; ends after the last one, and at once in a process
/// that was forked off.
#[derive(Debug)]
pub struct Events(pub(super) Own<Arc<Mailbox<Event>>>);

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
            Some(mailbox) => mailbox.poll_next(cx),
            None => Poll::Ready(None),
        }
    }

    /// Returns the next event if there is one already.
    pub fn try_next(&mut self) -> Option<Event> {
        self.0.ours()?.try_next()
    }

    /// Returns how many events were dropped because more than [`EVENT_LIMIT`] were unread.
    pub fn dropped(&self) -> u64 {
        self.0.ours().map_or(0, |mailbox| mailbox.dropped())
    }
}

/// Views of a topology, the latest one first; ends when the client is closed, and at once in a
/// process that was forked off.
#[derive(Debug)]
pub struct Views(pub(super) Own<Arc<Mailbox<Arc<TopologyDescription>>>>);

impl Views {
    /// Waits for a view that was not seen yet; `None` once the client is closed.
    ///
    /// Cancelling the wait loses nothing.
    pub async fn next(&mut self) -> Option<Arc<TopologyDescription>> {
        let mailbox = self.0.ours()?;
        std::future::poll_fn(|cx| mailbox.poll_next(cx)).await
    }
}

/// Gives an item to all subscribers, who are then to be woken.
pub(super) fn deliver<T: Clone>(
    subscribers: &mut Vec<Weak<Mailbox<T>>>,
    item: &T,
    wakers: &mut Vec<Waker>,
) {
    subscribers.retain(|subscriber| match subscriber.upgrade() {
        Some(mailbox) => {
            wakers.extend(mailbox.put(item.clone()));
            true
        }
        None => false,
    });
}

/// Ends the mailboxes of all subscribers, who are then to be woken.
pub(super) fn close_all<T>(subscribers: &mut Vec<Weak<Mailbox<T>>>, wakers: &mut Vec<Waker>) {
    for mailbox in subscribers.drain(..).filter_map(|subscriber| subscriber.upgrade()) {
        wakers.extend(mailbox.end());
    }
}
