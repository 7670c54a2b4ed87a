//! One operation's wait for a server.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::driver::News;
use super::mailbox::Mailbox;
use super::sync::atomic::Ordering;
use super::{Host, Runtime};
use sdam_core::id::WaiterId;
use sdam_core::selection::{Criteria, SelectionError};
use sdam_core::time::Instant;
use sdam_core::topology::Input;

/// Whether to look again, or why there is no server.
pub(super) type Answer = Result<(), Box<SelectionError>>;

/// One operation's wait for a server; dropping it ends the wait.
pub(super) struct Wait<'a, R: Runtime> {
    host: &'a Host<R>,
    waiter: WaiterId,
    answer: Arc<Mailbox<Answer>>,
}

impl<'a, R: Runtime> Wait<'a, R> {
    pub(super) fn new(
        host: &'a Host<R>,
        criteria: Arc<Criteria>,
        deadline: Option<Instant>,
    ) -> Self {
        let waiter = WaiterId(host.next_waiter.fetch_add(1, Ordering::Relaxed));
        let answer = Arc::new(Mailbox::new(1));
        host.with_driver(|driver| driver.waiters.insert(waiter, Arc::clone(&answer)));
        host.handle(Input::Wait { waiter, criteria, deadline });
        Self { host, waiter, answer }
    }
}

impl<R: Runtime> Future for Wait<'_, R> {
    type Output = Answer;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        // The mailbox is never closed, so it yields the answer and nothing else.
        self.answer.poll_next(cx).map(|answer| answer.unwrap_or(Ok(())))
    }
}

impl<R: Runtime> Drop for Wait<'_, R> {
    fn drop(&mut self) {
        if !self.host.shared.process.is_current() {
            return;
        }
        // Whoever is woken may drop this under the very lock.
        self.host.note(News::Abandoned(self.waiter));
        self.host.catch_up();
    }
}
