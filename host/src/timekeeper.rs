//! Keeps the time of a host: rings at the deadlines that the host has asked its runtime for.

use std::future::{Future, pending};
use std::sync::{Arc, Weak};

use super::activity::Running;
use super::before::before;
use super::mailbox::Mailbox;
use super::process::{Own, Process};
use super::streak::Streak;
use super::{Host, Runtime};
use sdam_core::time::Instant;

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
    /// Rings the host at each deadline; ends when the client is closed, or when the host is
    /// dropped, which it does not prevent.
    ///
    /// What `sleep_until` returns may end too early, which costs a ring, or late. If this is
    /// dropped, because the runtime has ended, the client is closed: without it nobody's deadline
    /// would be met.
    pub fn run<R: Runtime, T: Future>(
        self,
        host: Weak<Host<R>>,
        sleep_until: impl Fn(Instant) -> T,
    ) -> impl Future<Output = ()> {
        // Here already, as the task may be dropped before it is polled for the first time.
        let running = host.upgrade().map(|host| host.shared.activity.begin());
        let host = CloseOnDrop { host, _running: running };
        Own::new(Box::pin(async move { self.keep(&host, sleep_until).await }), Process::current())
    }

    async fn keep<R: Runtime, T: Future>(
        &self,
        host: &CloseOnDrop<R>,
        sleep_until: impl Fn(Instant) -> T,
    ) {
        let (mut deadline, mut streak) = (None, Streak::default());
        loop {
            let due = async {
                match deadline {
                    Some(deadline) => sleep_until(deadline).await,
                    None => pending().await,
                }
            };
            let latest = std::future::poll_fn(|cx| self.0.poll_next(cx));
            let told = streak.step(before(due, latest)).await;
            let Some(host) = host.host.upgrade() else { return };
            match told {
                Some(None) => return,
                Some(Some(None)) if host.shared.alarm.is_closed() => return,
                Some(Some(latest)) => deadline = latest,
                // Whatever the ring means, the host says next when it is due.
                None => {
                    deadline = None;
                    host.ring();
                }
            }
        }
    }
}

/// Closes a client whose runtime has ended.
struct CloseOnDrop<R: Runtime> {
    host: Weak<Host<R>>,
    /// Ends with the task.
    _running: Option<Running>,
}

impl<R: Runtime> Drop for CloseOnDrop<R> {
    fn drop(&mut self) {
        if let Some(host) = self.host.upgrade() {
            host.close();
        }
    }
}
