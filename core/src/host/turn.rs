//! One after another: whoever has the turn does what only one may do at a time.

use std::sync::Mutex;
use std::task::{Poll, Waker};

use super::lock;

/// A turn that one task at a time has.
#[derive(Default)]
pub(super) struct Turns {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    taken: bool,
    /// Those who wait; they are few, as connections that are being established are.
    waiting: Vec<Waker>,
}

/// A turn, until it is dropped.
pub(super) struct Turn<'a>(&'a Turns);

impl Turns {
    /// Waits for the turn.
    pub(super) async fn take(&self) -> Turn<'_> {
        std::future::poll_fn(|cx| {
            let mut state = lock(&self.state);
            if !std::mem::replace(&mut state.taken, true) {
                return Poll::Ready(Turn(self));
            }
            if !state.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                state.waiting.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let waiting = {
            let mut state = lock(&self.0.state);
            state.taken = false;
            std::mem::take(&mut state.waiting)
        };
        // All of them: the first may have been dropped.
        waiting.into_iter().for_each(Waker::wake);
    }
}
