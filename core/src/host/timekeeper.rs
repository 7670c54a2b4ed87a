//! Keeps the time of a host: rings at the deadlines that the host has asked its runtime for.

use std::future::{Future, pending};
use std::sync::{Arc, Weak};

use super::before::before;
use super::mailbox::Mailbox;
use super::{Host, Runtime};
use crate::time::Instant;

/// Where a runtime puts the deadlines that [`Runtime::alarm`] asks for; dropping it, with the
/// runtime, ends its [`Timekeeper`].
#[derive(Debug)]
pub struct Deadlines(Arc<Mailbox<Option<Instant>>>);

/// Keeps the time of a host, as a task of its runtime.
#[derive(Debug)]
pub struct Timekeeper(Arc<Mailbox<Option<Instant>>>);

impl Deadlines {
    /// Creates both ends; the first deadline is due at once, as the machines of a new host are.
    pub fn new() -> (Self, Timekeeper) {
        let latest = Arc::new(Mailbox::new(1));
        latest.push(Some(Instant::ZERO));
        (Self(Arc::clone(&latest)), Timekeeper(latest))
    }

    /// Replaces the deadline.
    pub fn set(&self, deadline: Option<Instant>) {
        self.0.push(deadline);
    }
}

impl Drop for Deadlines {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Timekeeper {
    /// Rings the host at each deadline; ends when the host is dropped, which it does not prevent.
    ///
    /// `sleep_until` must not end before its time. If this is dropped earlier, because the runtime
    /// has ended, the client is closed: without it nobody's deadline would be met.
    pub fn run<R: Runtime, T: Future>(
        self,
        host: Weak<Host<R>>,
        sleep_until: impl Fn(Instant) -> T,
    ) -> impl Future<Output = ()> {
        // Here already, as the task may be dropped before it is polled for the first time.
        let host = CloseOnDrop(host);
        async move { self.keep(&host, sleep_until).await }
    }

    async fn keep<R: Runtime, T: Future>(
        &self,
        host: &CloseOnDrop<R>,
        sleep_until: impl Fn(Instant) -> T,
    ) {
        let mut deadline = None;
        loop {
            let due = async {
                match deadline {
                    Some(deadline) => sleep_until(deadline).await,
                    None => pending().await,
                }
            };
            let latest = std::future::poll_fn(|cx| self.0.poll_next(cx));
            match before(due, latest).await {
                Some(Some(latest)) => deadline = latest,
                Some(None) => return,
                None => match host.0.upgrade() {
                    Some(host) => host.ring(),
                    None => return,
                },
            }
        }
    }
}

/// Closes a client whose runtime has ended.
struct CloseOnDrop<R: Runtime>(Weak<Host<R>>);

impl<R: Runtime> Drop for CloseOnDrop<R> {
    fn drop(&mut self) {
        if let Some(host) = self.0.upgrade() {
            host.close();
        }
    }
}
