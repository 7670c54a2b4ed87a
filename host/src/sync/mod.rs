//! The primitives by which threads and tasks wait for each other: locks, wakers under locks, turns,
//! and cancellation.
//!
//! Locks and atomics are those of std, or under `--cfg sdam_shuttle` those of a scheduler that
//! tries how threads may interleave. `Arc` and the swap of the view are not among them: nothing
//! comes between their steps.
//!
//! A woken task may call back at once, on this very thread, so no waker is cloned, woken or dropped
//! under a lock.

pub(crate) mod channel;

use std::any::Any;
use std::collections::BTreeMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;

use crate::process::Process;
use crate::sync::atomic::{AtomicBool, Ordering};

#[cfg(all(test, sdam_shuttle))]
pub(crate) use shuttle::sync::{Mutex, MutexGuard, atomic};
#[cfg(not(all(test, sdam_shuttle)))]
pub(crate) use std::sync::{Mutex, MutexGuard, atomic};

/// Returns what `ready` finds, or keeps the task in mind in a `place` of the same state.
pub(crate) fn poll_locked<S, T>(
    mutex: &Mutex<S>,
    cx: &Context<'_>,
    mut ready: impl FnMut(&mut S) -> Option<T>,
    place: impl Fn(&mut S) -> &mut Option<Waker>,
) -> Poll<T> {
    let mut clone: Option<Waker> = None;
    loop {
        let mut state = lock(mutex);
        if let Some(done) = ready(&mut state) {
            drop(state);
            return Poll::Ready(done);
        }
        let place = place(&mut state);
        if place.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
            drop(state);
            return Poll::Pending;
        }
        if let Some(waker) = clone.take() {
            let earlier = place.replace(waker);
            drop(state);
            drop(earlier);
            return Poll::Pending;
        }
        drop(state);
        clone = Some(cx.waker().clone());
    }
}

/// The first panic of several calls, all of which are made: those who are woken may be tasks that
/// are polled at once. It goes on when this is dropped, unless the thread panics already.
#[derive(Default)]
pub(crate) struct FirstPanic(Option<Box<dyn Any + Send>>);

impl FirstPanic {
    /// Makes a call.
    pub(crate) fn call(&mut self, call: impl FnOnce()) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(call)) {
            self.0.get_or_insert(panic);
        }
    }

    /// Wakes all.
    pub(crate) fn wake_all(&mut self, wakers: impl IntoIterator<Item = Waker>) {
        wakers.into_iter().for_each(|waker| self.call(|| waker.wake()));
    }
}

impl Drop for FirstPanic {
    fn drop(&mut self) {
        // A second panic that leaves a destructor would end the process.
        if let Some(panic) = self.0.take().filter(|_| !thread::panicking()) {
            resume_unwind(panic);
        }
    }
}

/// Wakes all, even if one of them panics.
pub(crate) fn wake_all(wakers: impl IntoIterator<Item = Waker>) {
    FirstPanic::default().wake_all(wakers);
}

/// A state for whose changes several tasks wait, each known by its last waker.
#[derive(Debug, Default)]
pub(crate) struct Gate<S>(Mutex<GateState<S>>);

#[derive(Debug, Default)]
pub(crate) struct GateState<S> {
    pub(crate) inner: S,
    last: u64,
    waiting: BTreeMap<u64, Option<Waker>>,
}

/// The place of one that may wait at a gate.
#[derive(Debug)]
pub(crate) struct Place(u64);

impl<S> GateState<S> {
    /// Returns how many there are who may wait.
    pub(crate) fn places(&self) -> usize {
        self.waiting.len()
    }

    /// Returns whom to wake, once the lock is free.
    #[must_use = "the task that waits is to be woken"]
    pub(crate) fn take_wakers(&mut self) -> Vec<Waker> {
        self.waiting.values_mut().filter_map(Option::take).collect()
    }
}

impl<S> Gate<S> {
    pub(crate) fn lock(&self) -> MutexGuard<'_, GateState<S>> {
        lock(&self.0)
    }

    /// Changes the state, and wakes all who wait if `act` says that they have something to see.
    pub(crate) fn change(&self, act: impl FnOnce(&mut S) -> bool) {
        let mut state = self.lock();
        let wakers = if act(&mut state.inner) { state.take_wakers() } else { Vec::new() };
        drop(state);
        wake_all(wakers);
    }

    /// Gives a place, which is to be [left](Self::leave).
    pub(crate) fn enter(&self) -> Place {
        let mut state = self.lock();
        state.last += 1;
        let key = state.last;
        state.waiting.insert(key, None);
        Place(key)
    }

    /// Gives a place up.
    pub(crate) fn leave(&self, place: &Place) {
        let waker = self.lock().waiting.remove(&place.0);
        drop(waker);
    }

    pub(crate) fn poll<T>(
        &self,
        place: &Place,
        cx: &Context<'_>,
        mut ready: impl FnMut(&mut GateState<S>) -> Option<T>,
    ) -> Poll<T> {
        poll_locked(&self.0, cx, &mut ready, |state| state.waiting.entry(place.0).or_default())
    }

    /// Waits until `ready` finds something.
    pub(crate) async fn wait<T>(&self, mut ready: impl FnMut(&mut S) -> Option<T>) -> T {
        let waits = Waits(self, self.enter());
        std::future::poll_fn(|cx| self.poll(&waits.1, cx, |state| ready(&mut state.inner))).await
    }
}

/// A wait at a gate, which its end leaves.
struct Waits<'a, S>(&'a Gate<S>, Place);

impl<S> Drop for Waits<'_, S> {
    fn drop(&mut self) {
        self.0.leave(&self.1);
    }
}

/// A turn that one task at a time has.
#[derive(Default)]
pub(crate) struct AsyncMutex {
    taken: Gate<bool>,
}

/// A turn, until it is dropped, wherever that is: on a thread for what blocks, for example.
pub(crate) struct AsyncMutexGuard(Arc<AsyncMutex>);

impl AsyncMutex {
    /// Waits for the turn.
    pub(crate) async fn take(self: &Arc<Self>) -> AsyncMutexGuard {
        let is_free = |taken: &mut bool| (!std::mem::replace(taken, true)).then_some(());
        self.taken.wait(is_free).await;
        AsyncMutexGuard(Arc::clone(self))
    }
}

impl Drop for AsyncMutexGuard {
    fn drop(&mut self) {
        // All are woken: the first may have been dropped.
        self.0.taken.change(|taken| {
            *taken = false;
            true
        });
    }
}

/// The number of tasks of a client that are still running.
#[derive(Debug)]
pub(crate) struct Activity {
    running: Gate<usize>,
    process: Process,
}

/// One of them; dropped when it ends.
#[derive(Debug)]
pub(crate) struct Running(Arc<Activity>);

impl Activity {
    pub(crate) fn new(process: Process) -> Self {
        Self { running: Gate::default(), process }
    }

    pub(crate) fn begin(self: &Arc<Self>) -> Running {
        self.running.lock().inner += 1;
        Running(Arc::clone(self))
    }

    /// Returns whether anything runs.
    pub(crate) fn is_running(&self) -> bool {
        self.running.lock().inner > 0
    }

    /// Waits until nothing runs.
    pub(crate) async fn idle(&self) {
        self.running.wait(|running| (*running == 0).then_some(())).await;
    }
}

impl Running {
    /// Returns the process that the task runs in.
    pub(crate) fn process(&self) -> Process {
        self.0.process
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.0.process.is_current() {
            return;
        }
        self.0.running.change(|running| {
            *running -= 1;
            *running == 0
        });
    }
}

/// Makes the thread go on that a blocking socket holds; see
/// [`Socket::interrupter`](crate::Socket::interrupter).
pub type Interrupter = Box<dyn Fn() + Send + Sync>;

/// Interrupts the user of a connection, once.
pub(crate) struct CancellationToken {
    canceled: AtomicBool,
    /// True if the client itself has ended the use.
    has_ended: AtomicBool,
    waker: Mutex<Option<Waker>>,
    /// Reaches a thread that a blocking socket holds, which no waker does.
    interrupter: Option<Interrupter>,
}

impl CancellationToken {
    pub(crate) fn new(interrupter: Option<Interrupter>) -> Self {
        Self {
            canceled: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            waker: Mutex::default(),
            interrupter,
        }
    }

    /// Returns who is to be woken.
    #[must_use = "the task that waits is to be woken"]
    pub(crate) fn cancel(&self) -> Option<Waker> {
        self.canceled.store(true, Ordering::Release);
        if let Some(interrupt) = &self.interrupter {
            interrupt();
        }
        lock(&self.waker).take()
    }

    /// As [`cancel`](Self::cancel), because the client is closed.
    #[must_use = "the task that waits is to be woken"]
    pub(crate) fn end(&self) -> Option<Waker> {
        self.has_ended.store(true, Ordering::Release);
        self.cancel()
    }

    /// Returns whether the client was closed.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Returns whether it can reach a thread that a blocking socket holds.
    pub(crate) const fn interrupts(&self) -> bool {
        self.interrupter.is_some()
    }

    pub(crate) fn is_canceled(&self) -> bool {
        self.canceled.load(Ordering::Acquire)
    }

    /// Keeps no task in mind any more.
    pub(crate) fn forget(&self) {
        let waker = lock(&self.waker).take();
        drop(waker);
    }

    /// Returns whether it was canceled; if not, `waker` is woken when it is.
    pub(crate) fn is_canceled_or_wake(&self, waker: &Waker) -> bool {
        // The lock orders this with `cancel`: either the flag is seen here, or the waker there.
        let is_canceled = |_: &mut Option<Waker>| self.is_canceled().then_some(());
        poll_locked(&self.waker, &Context::from_waker(waker), is_canceled, |waker| waker).is_ready()
    }
}

/// The number of steps that a task may take without a wait: a peer that sends without pause would
/// keep it going for ever, and all others of the same thread from their deadlines.
const LIMIT: u32 = 16;

/// The number of steps that a task has taken without a wait.
#[derive(Debug, Default)]
pub(crate) struct CoopBudget(u32);

impl CoopBudget {
    /// Takes the next step, unless others are to have their turn first: then the task is woken.
    pub(crate) fn poll<T>(
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
    pub(crate) async fn step<T>(&mut self, step: impl Future<Output = T>) -> T {
        let mut step = pin!(step);
        std::future::poll_fn(|cx| self.poll(cx, |cx| step.as_mut().poll(cx))).await
    }
}

/// Waits for `work`, or gives it up with `None` when `end` comes first.
pub(crate) async fn before<T>(end: impl Future, work: impl Future<Output = T>) -> Option<T> {
    let (mut work, mut end) = (pin!(work), pin!(end));
    std::future::poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => end.as_mut().poll(cx).map(|_| None),
    })
    .await
}

/// Locks; no code of the application runs under a lock but predicates, whose panics are caught.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::{Context, Poll, Wake, Waker};

    use super::AsyncMutex;

    #[derive(Default)]
    struct Woken(AtomicU32);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn whoever_still_waits_gets_the_turn_when_others_have_given_up() {
        let (mutex, woken) = (Arc::new(AsyncMutex::default()), Arc::new(Woken::default()));
        let mut first = Context::from_waker(Waker::noop());
        let waker = Waker::from(Arc::clone(&woken));
        let mut last = Context::from_waker(&waker);
        let Poll::Ready(turn) = pin!(mutex.take()).poll(&mut first) else { panic!("free") };
        let mut waits = pin!(mutex.take());
        {
            let mut given_up = pin!(mutex.take());
            assert!(given_up.as_mut().poll(&mut first).is_pending());
            assert!(waits.as_mut().poll(&mut last).is_pending());
            assert!(waits.as_mut().poll(&mut last).is_pending());
        }
        drop(turn);
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        let Poll::Ready(_turn) = waits.as_mut().poll(&mut last) else { panic!("free again") };
        assert!(pin!(mutex.take()).poll(&mut first).is_pending());
    }
}
