//! The virtual clock, its timers, and the connections that are ready.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Wake, Waker};
use std::time::Duration;

use super::{Shared, lock};

/// The time that has passed, and who wants to be woken.
#[derive(Default)]
pub(super) struct Clock {
    pub(super) now: Duration,
    timers: BTreeMap<(Duration, u64), Waker>,
    last: u64,
}

impl Clock {
    /// Returns the time of the next timer.
    pub(super) fn next(&self) -> Option<Duration> {
        self.timers.first_key_value().map(|((at, _), _)| *at)
    }

    /// Sets the time, and returns who is to be woken.
    pub(super) fn advance(&mut self, now: Duration) -> Vec<Waker> {
        self.now = now;
        let later = self.timers.split_off(&(now, u64::MAX));
        std::mem::replace(&mut self.timers, later).into_values().collect()
    }

    fn set(&mut self, at: Duration, waker: Waker) {
        self.last += 1;
        self.timers.insert((at, self.last), waker);
    }
}

/// Waits for some time.
pub(super) async fn sleep(world: Shared, time: Duration) {
    let mut until = None;
    poll_fn(|cx| {
        let clock = &mut lock(&world).clock;
        let until = *until.get_or_insert(clock.now + time);
        if clock.now >= until {
            return Poll::Ready(());
        }
        clock.set(until, cx.waker().clone());
        Poll::Pending
    })
    .await;
}

/// The connections that are ready.
#[derive(Default)]
pub(super) struct Wakes(Mutex<BTreeSet<usize>>);

impl Wakes {
    pub(super) fn wake(&self, id: usize) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
    }

    pub(super) fn take(&self) -> Vec<usize> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
            .into_iter()
            .collect()
    }

    pub(super) fn waker(self: &Arc<Self>, id: usize) -> Waker {
        Waker::from(Arc::new(Handle { wakes: Arc::clone(self), id }))
    }
}

struct Handle {
    wakes: Arc<Wakes>,
    id: usize,
}

impl Wake for Handle {
    fn wake(self: Arc<Self>) {
        self.wakes.wake(self.id);
    }
}
