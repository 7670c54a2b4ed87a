//! A queue with one reader, which waits with a waker.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use super::lock;

/// A queue with one reader; when it is full, the oldest item makes room and is counted.
#[derive(Debug)]
pub(super) struct Mailbox<T> {
    limit: usize,
    state: Mutex<State<T>>,
}

#[derive(Debug)]
struct State<T> {
    items: VecDeque<T>,
    closed: bool,
    dropped: u64,
    waker: Option<Waker>,
}

impl<T> Mailbox<T> {
    pub(super) const fn new(limit: usize) -> Self {
        let state = State { items: VecDeque::new(), closed: false, dropped: 0, waker: None };
        Self { limit, state: Mutex::new(state) }
    }

    /// Adds an item, unless the mailbox is closed.
    pub(super) fn push(&self, item: T) {
        self.put(item).into_iter().for_each(Waker::wake);
    }

    /// As [`push`](Self::push), but leaves it to the caller to wake the reader.
    #[must_use = "the reader is to be woken"]
    pub(super) fn put(&self, item: T) -> Option<Waker> {
        let mut state = lock(&self.state);
        if state.closed {
            return None;
        }
        if state.items.len() == self.limit {
            state.items.pop_front();
            state.dropped += 1;
        }
        state.items.push_back(item);
        state.waker.take()
    }

    /// Ends the mailbox: what is in it can still be read.
    pub(super) fn close(&self) {
        self.end().into_iter().for_each(Waker::wake);
    }

    /// As [`close`](Self::close), but leaves it to the caller to wake the reader.
    #[must_use = "the reader is to be woken"]
    pub(super) fn end(&self) -> Option<Waker> {
        let mut state = lock(&self.state);
        state.closed = true;
        state.waker.take()
    }

    /// Returns the next item, `None` if there will be none, or arranges for a wake-up.
    pub(super) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut state = lock(&self.state);
        match state.items.pop_front() {
            Some(item) => Poll::Ready(Some(item)),
            None if state.closed => Poll::Ready(None),
            None => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    pub(super) fn try_next(&self) -> Option<T> {
        lock(&self.state).items.pop_front()
    }

    pub(super) fn dropped(&self) -> u64 {
        lock(&self.state).dropped
    }
}
