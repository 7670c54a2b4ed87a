//! How many tasks of a client are still running.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::lock;
use super::sync::Mutex;

/// How many tasks of a client are still running.
#[derive(Debug, Default)]
pub(super) struct Activity(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    running: usize,
    waiting: Vec<Waker>,
}

/// One of them; dropped when it ends.
#[derive(Debug)]
pub(super) struct Running(Arc<Activity>);

impl Activity {
    pub(super) fn begin(self: &Arc<Self>) -> Running {
        lock(&self.0).running += 1;
        Running(Arc::clone(self))
    }

    /// Ready once nothing runs.
    pub(super) fn poll_idle(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = lock(&self.0);
        if state.running == 0 {
            return Poll::Ready(());
        }
        if !state.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            state.waiting.push(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut state = lock(&self.0.0);
        state.running -= 1;
        if state.running == 0 {
            let waiting = std::mem::take(&mut state.waiting);
            drop(state);
            waiting.into_iter().for_each(Waker::wake);
        }
    }
}
