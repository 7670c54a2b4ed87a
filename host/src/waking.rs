//! Waiting under a lock. Wakers are cloned, woken and dropped only while it is free: each of that
//! may run code of the application, and that may come back at once.

use std::collections::BTreeMap;
use std::task::{Context, Poll, Waker};

use super::lock;
use super::sync::{Mutex, MutexGuard};

/// Returns what `ready` finds, or keeps the task in mind in a `place` of the same state.
pub(super) fn poll_locked<S, T>(
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

/// A state for whose changes several tasks wait, each known by its last waker.
#[derive(Debug, Default)]
pub(super) struct Gate<S>(Mutex<State<S>>);

#[derive(Debug, Default)]
pub(super) struct State<S> {
    pub(super) inner: S,
    last: u64,
    waiting: BTreeMap<u64, Option<Waker>>,
}

/// The place of one that may wait at a gate.
#[derive(Debug)]
pub(super) struct Place(u64);

impl<S> State<S> {
    /// Returns how many there are who may wait.
    pub(super) fn places(&self) -> usize {
        self.waiting.len()
    }

    /// Returns whom to wake, once the lock is free.
    #[must_use = "whoever waits is to be woken"]
    pub(super) fn take_wakers(&mut self) -> Vec<Waker> {
        self.waiting.values_mut().filter_map(Option::take).collect()
    }
}

impl<S> Gate<S> {
    pub(super) fn lock(&self) -> MutexGuard<'_, State<S>> {
        lock(&self.0)
    }

    /// Changes the state, and wakes all who wait if `act` says that they have something to see.
    pub(super) fn change(&self, act: impl FnOnce(&mut S) -> bool) {
        let mut state = self.lock();
        let wakers = if act(&mut state.inner) { state.take_wakers() } else { Vec::new() };
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Gives a place, which is to be [left](Self::leave).
    pub(super) fn enter(&self) -> Place {
        let mut state = self.lock();
        state.last += 1;
        let key = state.last;
        state.waiting.insert(key, None);
        Place(key)
    }

    /// Gives a place up.
    pub(super) fn leave(&self, place: &Place) {
        let waker = self.lock().waiting.remove(&place.0);
        drop(waker);
    }

    pub(super) fn poll<T>(
        &self,
        place: &Place,
        cx: &Context<'_>,
        mut ready: impl FnMut(&mut State<S>) -> Option<T>,
    ) -> Poll<T> {
        poll_locked(&self.0, cx, &mut ready, |state| state.waiting.entry(place.0).or_default())
    }

    /// Waits until `ready` finds something.
    pub(super) async fn wait<T>(&self, mut ready: impl FnMut(&mut S) -> Option<T>) -> T {
        let waits = Waits(self, self.enter());
        std::future::poll_fn(|cx| self.poll(&waits.1, cx, |state| ready(&mut state.inner))).await
    }
}

/// Somebody waits.
struct Waits<'a, S>(&'a Gate<S>, Place);

impl<S> Drop for Waits<'_, S> {
    fn drop(&mut self) {
        self.0.leave(&self.1);
    }
}
