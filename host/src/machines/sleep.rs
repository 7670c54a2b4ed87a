//! Operations that wait for a time, as between two attempts.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, Waker};

use sdam_core::id::WaiterId;
use sdam_core::time::Instant;

use crate::machines::Shared;
use crate::machines::runtime::Runtime;
use crate::sync::channel::{Answers, Channel, Wait};

/// Those who wait for a time, by the time.
#[derive(Debug, Default)]
pub(crate) struct Sleepers {
    last: u64,
    waiting: BTreeMap<(Instant, WaiterId), Arc<Channel<()>>>,
}

impl Sleepers {
    /// Returns when the first is to be woken.
    pub(crate) fn earliest(&self) -> Option<Instant> {
        self.waiting.keys().next().map(|(until, _)| *until)
    }

    /// Returns those whose time has come, to be woken under no lock.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<Waker> {
        let mut due = Vec::new();
        while let Some(first) = self.waiting.first_entry().filter(|first| first.key().0 <= now) {
            due.extend(first.remove().put(()));
        }
        due
    }

    /// Returns all, to be woken under no lock: no deadline will pass any more.
    pub(crate) fn all(&mut self) -> Vec<Waker> {
        let waiting = std::mem::take(&mut self.waiting);
        waiting.into_values().filter_map(|channel| channel.put(())).collect()
    }

    /// Numbers the next one.
    pub(crate) fn number(&mut self) -> WaiterId {
        self.last += 1;
        WaiterId(self.last)
    }

    pub(crate) fn add(&mut self, until: Instant, waiter: WaiterId, channel: Arc<Channel<()>>) {
        self.waiting.insert((until, waiter), channel);
    }

    pub(crate) fn remove(&mut self, until: Instant, waiter: WaiterId) {
        self.waiting.remove(&(until, waiter));
    }
}

/// The wait for one time; dropping it cancels the wait.
struct Sleep<'a, R: Runtime> {
    shared: &'a Shared<R>,
    until: Instant,
}

impl<R: Runtime> Answers for Sleep<'_, R> {
    type Answer = ();

    fn give_up(&self, waiter: WaiterId, _: &Channel<()>) {
        if self.shared.process.is_current() {
            self.shared.alarm.with_sleepers(|sleepers| sleepers.remove(self.until, waiter));
        }
    }
}

/// Waits until a time, or until the client is closed; in a process that was forked off meanwhile,
/// nothing would end the wait.
pub(crate) async fn sleep_until<R: Runtime>(shared: &Shared<R>, until: Instant) {
    let sleep = Sleep { shared, until };
    let waiter = shared.alarm.with_sleepers(Sleepers::number);
    let wait = Wait::new(&sleep, waiter);
    let channel = Arc::clone(wait.answer());
    if shared.alarm.add_sleeper(until, waiter, channel) {
        shared.alarm.arm(&shared.runtime);
        let mut wait = pin!(wait);
        poll_fn(|cx| match shared.process.is_current() {
            true => wait.as_mut().poll(cx),
            false => Poll::Ready(()),
        })
        .await;
    }
}
