//! A call on a thread of its own, as a runtime may block the thread on which it is polled.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;

/// The result of a call that is under way on another thread.
pub(super) struct Aside<T>(Arc<Mutex<State<T>>>);

struct State<T> {
    result: Option<T>,
    waker: Option<Waker>,
}

impl<T: Send + 'static> Aside<T> {
    /// Begins the call.
    pub(super) fn begin(call: impl FnOnce() -> T + Send + 'static) -> Self {
        let state = Arc::new(Mutex::new(State { result: None, waker: None }));
        let theirs = Arc::clone(&state);
        thread::spawn(move || {
            let result = call();
            let mut state = lock(&theirs);
            state.result = Some(result);
            let waker = state.waker.take();
            drop(state);
            waker.into_iter().for_each(Waker::wake);
        });
        Self(state)
    }

    /// Returns the result, or arranges for a wake-up when there is one.
    pub(super) fn poll(&self, cx: &Context<'_>) -> Poll<T> {
        let mut state = lock(&self.0);
        match state.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

fn lock<T>(state: &Mutex<State<T>>) -> MutexGuard<'_, State<T>> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
