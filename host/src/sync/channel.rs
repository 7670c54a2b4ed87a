//! A queue with one reader, which waits with a waker.

use std::any::Any;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use sdam_core::id::WaiterId;

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, lock, poll_locked};

/// A value that a reader drops once it has done all that there is to do.
pub(crate) type Barrier = Arc<dyn Any + Send + Sync>;

/// A queue with one reader; when it is full, the oldest item makes room.
#[derive(Debug)]
pub(crate) struct Channel<T> {
    limit: usize,
    state: Mutex<ChannelState<T>>,
}

#[derive(Debug)]
struct ChannelState<T> {
    items: VecDeque<T>,
    closed: bool,
    waker: Option<Waker>,
    barrier: Option<Barrier>,
}

impl<T> Channel<T> {
    pub(crate) const fn new(limit: usize) -> Self {
        let items = VecDeque::new();
        let state = ChannelState { items, closed: false, waker: None, barrier: None };
        Self { limit, state: Mutex::new(state) }
    }

    /// Adds an item, unless the channel is closed.
    pub(crate) fn push(&self, item: T) {
        self.put(item).into_iter().for_each(Waker::wake);
    }

    /// As [`push`](Self::push), but leaves it to the caller to wake the reader.
    #[must_use = "the reader is to be woken"]
    pub(crate) fn put(&self, item: T) -> Option<Waker> {
        let mut oldest = None;
        let mut state = lock(&self.state);
        if state.closed {
            return None;
        }
        if state.items.len() == self.limit {
            oldest = state.items.pop_front();
        }
        state.items.push_back(item);
        let waker = state.waker.take();
        drop(state);
        drop(oldest);
        waker
    }

    /// Ends the channel: what is in it can still be read.
    pub(crate) fn close(&self) {
        self.end().into_iter().for_each(Waker::wake);
    }

    /// As [`close`](Self::close), but leaves it to the caller to wake the reader.
    #[must_use = "the reader is to be woken"]
    pub(crate) fn end(&self) -> Option<Waker> {
        let mut state = lock(&self.state);
        state.closed = true;
        state.waker.take()
    }

    /// Returns the next item, `None` if there will be none, or arranges for a wake-up.
    pub(crate) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let next = |state: &mut ChannelState<T>| match state.items.pop_front() {
            Some(item) => Some(Some(item)),
            None => state.closed.then_some(None),
        };
        poll_locked(&self.state, cx, next, |state| &mut state.waker)
    }

    /// Wakes the reader, which lets go of `barrier` once it has done all that there is to do; if
    /// the channel is closed, `barrier` is let go of at once.
    pub(crate) fn barrier(&self, barrier: Barrier) {
        let mut state = lock(&self.state);
        if state.closed {
            return;
        }
        let (earlier, waker) = (state.barrier.replace(barrier), state.waker.take());
        drop(state);
        drop(earlier);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Does the reader's work, which waits for the channel among other things. A barrier is let go
    /// of when the work has to wait, and returned when it has ended. Work that only lets others
    /// have their turn, and is woken at once, has not come to its end.
    pub(crate) async fn read_by<T2>(
        &self,
        mut work: Pin<&mut impl Future<Output = T2>>,
    ) -> (T2, Option<Barrier>) {
        std::future::poll_fn(|cx| {
            let barrier = lock(&self.state).barrier.take();
            let Some(barrier) = barrier else {
                return work.as_mut().poll(cx).map(|done| (done, None));
            };
            let noted = Arc::new(Noted(cx.waker().clone(), AtomicBool::new(false)));
            let waker = Waker::from(Arc::clone(&noted));
            match work.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(done) => return Poll::Ready((done, Some(barrier))),
                Poll::Pending if noted.1.load(Ordering::Acquire) => self.put_back(barrier),
                Poll::Pending => drop(barrier),
            }
            Poll::Pending
        })
        .await
    }

    /// Keeps a barrier for the next poll, unless another has come that does as well.
    fn put_back(&self, barrier: Barrier) {
        let mut state = lock(&self.state);
        let mut superfluous = Some(barrier);
        if !state.closed && state.barrier.is_none() {
            state.barrier = superfluous.take();
        }
        drop(state);
        drop(superfluous);
    }

    /// Closes the channel because its reader is gone; returns a barrier that it has not let go of.
    pub(crate) fn leave(&self) -> Option<Barrier> {
        let mut state = lock(&self.state);
        state.closed = true;
        let (barrier, waker) = (state.barrier.take(), state.waker.take());
        drop(state);
        drop(waker);
        barrier
    }

    pub(crate) fn try_next(&self) -> Option<T> {
        lock(&self.state).items.pop_front()
    }
}

/// A machine behind its lock, which answers those who wait: the topology selections, a pool those
/// who check out.
pub(crate) trait Answers {
    /// The answer to a waiter, given once.
    type Answer;

    /// Ends a wait, answered or given up; an answer that is still in the channel has no receiver.
    fn give_up(&self, waiter: WaiterId, answer: &Channel<Self::Answer>);
}

/// One operation's wait for an answer; dropping it ends the wait.
pub(crate) struct Wait<'a, A: Answers> {
    of: &'a A,
    waiter: WaiterId,
    answer: Arc<Channel<A::Answer>>,
}

impl<'a, A: Answers> Wait<'a, A> {
    pub(crate) fn new(of: &'a A, waiter: WaiterId) -> Self {
        Self { of, waiter, answer: Arc::new(Channel::new(1)) }
    }

    /// Returns where the answer is to go.
    pub(crate) const fn answer(&self) -> &Arc<Channel<A::Answer>> {
        &self.answer
    }
}

impl<A: Answers> Future for Wait<'_, A> {
    type Output = A::Answer;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<A::Answer> {
        match self.answer.poll_next(cx) {
            Poll::Ready(Some(answer)) => Poll::Ready(answer),
            // The channel is never closed.
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }
}

impl<A: Answers> Drop for Wait<'_, A> {
    fn drop(&mut self) {
        self.of.give_up(self.waiter, &self.answer);
    }
}

/// A task's waker, and whether it was woken.
struct Noted(Waker, AtomicBool);

impl Wake for Noted {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.1.store(true, Ordering::Release);
        self.0.wake_by_ref();
    }
}
