//! An alarm that belongs to no runtime: a thread that wakes a task in time.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::task::Waker;
use std::thread;
use std::time::Instant;

/// A thread that wakes a task in time; it ends when this is dropped.
pub(super) struct Alarm(Sender<(Instant, Waker)>);

impl Alarm {
    pub(super) fn start() -> Self {
        let (sender, receiver) = channel();
        thread::spawn(move || ring(&receiver));
        Self(sender)
    }

    /// Wakes a task just after `at`, in place of whatever was to be woken before.
    pub(super) fn set(&self, at: Instant, waker: &Waker) {
        // The thread ends after this does.
        let _ = self.0.send((at, waker.clone()));
    }
}

fn ring(receiver: &Receiver<(Instant, Waker)>) {
    let mut next = receiver.recv().ok();
    while let Some((at, waker)) = next.take() {
        // Deadlines count as passed only when their moment is over.
        let left =
            at.saturating_duration_since(Instant::now()) + std::time::Duration::from_millis(1);
        next = match receiver.recv_timeout(left) {
            Ok(other) => Some(other),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => {
                waker.wake();
                receiver.recv().ok()
            }
        };
    }
}
