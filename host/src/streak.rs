//! Fairness: a task that always finds something to do lets others have their turn nevertheless.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll};

/// How often a task may go on without a wait: a peer that sends without pause would otherwise keep
/// it going for ever, and all others of the same thread from their deadlines.
const LIMIT: u32 = 16;

/// How often a task has gone on without a wait.
#[derive(Debug, Default)]
pub(super) struct Streak(u32);

impl Streak {
    /// Takes the next step, unless others are to have their turn first: then the task is woken.
    pub(super) fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        step: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        if self.0 == LIMIT {
            self.0 = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let outcome = step(cx);
        self.0 = if outcome.is_ready() { self.0 + 1 } else { 0 };
        outcome
    }

    /// As [`poll`](Self::poll), for a step that is a future.
    pub(super) async fn step<T>(&mut self, step: impl Future<Output = T>) -> T {
        let mut step = pin!(step);
        std::future::poll_fn(|cx| self.poll(cx, |cx| step.as_mut().poll(cx))).await
    }
}
