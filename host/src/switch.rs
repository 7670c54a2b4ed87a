//! What interrupts whoever uses a connection.

use std::task::{Context, Waker};

use super::sync::Mutex;
use super::sync::atomic::{AtomicBool, Ordering};
use super::waking::poll_locked;
use super::{Interrupter, lock};

/// Interrupts whoever uses a connection, once.
pub(super) struct Switch {
    thrown: AtomicBool,
    waker: Mutex<Option<Waker>>,
    /// Reaches a thread that a blocking socket holds, which no waker does.
    interrupter: Option<Interrupter>,
}

impl Switch {
    pub(super) fn new(interrupter: Option<Interrupter>) -> Self {
        Self { thrown: AtomicBool::new(false), waker: Mutex::default(), interrupter }
    }

    /// Returns who is to be woken.
    #[must_use = "whoever waits is to be woken"]
    pub(super) fn throw(&self) -> Option<Waker> {
        self.thrown.store(true, Ordering::Release);
        if let Some(interrupt) = &self.interrupter {
            interrupt();
        }
        lock(&self.waker).take()
    }

    /// Returns whether it can reach a thread that a blocking socket holds.
    pub(super) const fn interrupts(&self) -> bool {
        self.interrupter.is_some()
    }

    pub(super) fn is_thrown(&self) -> bool {
        self.thrown.load(Ordering::Acquire)
    }

    /// Keeps no task in mind any more.
    pub(super) fn forget(&self) {
        let waker = lock(&self.waker).take();
        drop(waker);
    }

    /// Returns whether it was thrown; if not, `waker` is woken when it is.
    pub(super) fn is_thrown_or_wake(&self, waker: &Waker) -> bool {
        // The lock orders this with `throw`: either the flag is seen here, or the waker there.
        let is_thrown = |_: &mut Option<Waker>| self.is_thrown().then_some(());
        poll_locked(&self.waker, &Context::from_waker(waker), is_thrown, |waker| waker).is_ready()
    }
}
