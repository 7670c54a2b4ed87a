//! A call that runs in the background of a test: on a thread of its own, as a runtime may block the
//! thread on which it is polled, or as a task of a simulation.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;

/// The result of a call that runs in the background.
pub(super) struct Background<T>(Arc<Mutex<Slot<T>>>);

struct Slot<T> {
    result: Option<T>,
    waker: Option<Waker>,
}

/// The sender of the result of a call.
pub(super) struct Completer<T>(Arc<Mutex<Slot<T>>>);

impl<T> Completer<T> {
    /// Completes the call with a result.
    pub(super) fn complete(self, result: T) {
        let mut slot = lock(&self.0);
        slot.result = Some(result);
        let waker = slot.waker.take();
        drop(slot);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl<T: Send + 'static> Background<T> {
    /// Starts the call on a thread.
    pub(super) fn spawn(call: impl FnOnce() -> T + Send + 'static) -> Self {
        let (background, completer) = Self::pending();
        thread::spawn(move || completer.complete(call()));
        background
    }

    /// Returns a call that is under way, and the sender of its result.
    pub(super) fn pending() -> (Self, Completer<T>) {
        let slot = Arc::new(Mutex::new(Slot { result: None, waker: None }));
        (Self(Arc::clone(&slot)), Completer(slot))
    }

    /// Returns the result, or arranges for a wake-up when there is one.
    pub(super) fn poll(&self, cx: &Context<'_>) -> Poll<T> {
        let mut slot = lock(&self.0);
        match slot.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                slot.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

fn lock<T>(slot: &Mutex<Slot<T>>) -> MutexGuard<'_, Slot<T>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}
