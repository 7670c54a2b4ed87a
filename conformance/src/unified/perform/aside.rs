//! A call that runs beside the test: on a thread of its own, as a runtime may block the thread on
//! which it is polled, or as a task of a simulation.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;

/// The result of a call that is under way elsewhere.
pub(super) struct Aside<T>(Arc<Mutex<State<T>>>);

struct State<T> {
    result: Option<T>,
    waker: Option<Waker>,
}

/// The other end of a call, which takes its result.
pub(super) struct End<T>(Arc<Mutex<State<T>>>);

impl<T> End<T> {
    /// Completes the call with a result.
    pub(super) fn with(self, result: T) {
        let mut state = lock(&self.0);
        state.result = Some(result);
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl<T: Send + 'static> Aside<T> {
    /// Begins the call on a thread.
    pub(super) fn begin(call: impl FnOnce() -> T + Send + 'static) -> Self {
        let (aside, end) = Self::pending();
        thread::spawn(move || end.with(call()));
        aside
    }

    /// Returns a call that is under way, and the end that takes its result.
    pub(super) fn pending() -> (Self, End<T>) {
        let state = Arc::new(Mutex::new(State { result: None, waker: None }));
        (Self(Arc::clone(&state)), End(state))
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
