//! The driving of an engine by threads that wait, and the turns of several callers.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

use super::{Engine, EngineMode};
use crate::block_on::{block_on, block_on_until};

/// The turn to drive; the caller that has it drives for all who wait.
#[derive(Default)]
pub(super) struct EngineMutex(Mutex<DriveState>);

#[derive(Default)]
struct DriveState {
    taken: bool,
    /// Those who were not called yet; each is there once.
    waiting: VecDeque<Arc<Caller>>,
}

/// A thread that waits for a future.
struct Caller {
    engine: Weak<Engine>,
    thread: Thread,
    /// True if its future is to be polled.
    woken: AtomicBool,
    /// True if the turn was free when somebody looked last.
    called: AtomicBool,
}

/// A caller's place in the queue, or its turn; left when dropped, also by a panic.
struct Place<'a> {
    turns: &'a EngineMutex,
    caller: &'a Arc<Caller>,
    has_turn: bool,
}

impl Engine {
    /// Has this thread wait for a future, and drive the tasks if callers do.
    pub(crate) fn wait<T>(self: &Arc<Self>, future: impl Future<Output = T>) -> T {
        match self.mode {
            EngineMode::Thread => block_on(future),
            // It has the turn already, and one of the tasks calls.
            EngineMode::Callers if self.is_current() => self.block_on(future),
            EngineMode::Callers => self.take_turns(future),
        }
    }

    /// As [`wait`](Self::wait), but drops the future at `end`.
    pub(crate) fn wait_until<T>(
        self: &Arc<Self>,
        future: impl Future<Output = T>,
        end: Option<Instant>,
    ) -> Option<T> {
        if self.mode == EngineMode::Thread && !self.is_current() {
            return block_on_until(future, end);
        }
        let (mut future, mut sleep) = (pin!(future), pin!(self.sleep_until(end)));
        self.wait(std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => sleep.as_mut().poll(cx).map(|()| None),
        }))
    }

    /// Runs tasks on this thread until `future` is ready, which is polled in between.
    pub(crate) fn block_on<T>(self: &Arc<Self>, future: impl Future<Output = T>) -> T {
        let caller = Caller::new(self);
        let (waker, mut future) = (Waker::from(Arc::clone(&caller)), pin!(future));
        let mut fired = Vec::new();
        loop {
            if let Some(output) = caller.poll(future.as_mut(), &waker) {
                return output;
            }
            self.turn(&mut fired, &caller.woken);
        }
    }

    /// As [`block_on`](Self::block_on), where other threads may do the same. No caller has the turn
    /// while a future is polled, which may block: others would miss their deadlines.
    fn take_turns<T>(self: &Arc<Self>, future: impl Future<Output = T>) -> T {
        let caller = Caller::new(self);
        let (waker, mut future) = (Waker::from(Arc::clone(&caller)), pin!(future));
        let mut fired = Vec::new();
        let mut place = Place { turns: &self.turns, caller: &caller, has_turn: false };
        let mut turned = false;
        loop {
            if let Some(output) = caller.poll(future.as_mut(), &waker) {
                // Callers that wait for no task, as their connections are there, would never run
                // those without a waiter.
                if !turned && self.has_ready() && place.take() {
                    self.turn(&mut fired, &AtomicBool::new(true));
                }
                return output;
            }
            if !place.take() {
                caller.park();
                continue;
            }
            while !caller.woken.load(Ordering::Acquire) {
                self.turn(&mut fired, &caller.woken);
                turned = true;
            }
            place.leave();
        }
    }
}

impl EngineMutex {
    fn lock(&self) -> MutexGuard<'_, DriveState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place<'_> {
    /// Takes the turn if it is free, or else waits to be called.
    fn take(&mut self) -> bool {
        let mut state = self.turns.lock();
        self.has_turn = !std::mem::replace(&mut state.taken, true);
        let is_waiting = state.waiting.iter().any(|caller| Arc::ptr_eq(caller, self.caller));
        match (self.has_turn, is_waiting) {
            (true, true) => state.waiting.retain(|caller| !Arc::ptr_eq(caller, self.caller)),
            (false, false) => state.waiting.push_back(Arc::clone(self.caller)),
            _ => {}
        }
        self.has_turn
    }

    /// Gives the turn back, or stops to wait for it; if it is free then, the next one is called,
    /// for this one may have been called and not have come.
    fn leave(&mut self) {
        let mut state = self.turns.lock();
        if std::mem::take(&mut self.has_turn) {
            state.taken = false;
        } else {
            state.waiting.retain(|caller| !Arc::ptr_eq(caller, self.caller));
        }
        let next = if state.taken { None } else { state.waiting.pop_front() };
        drop(state);
        if let Some(next) = next {
            next.called.store(true, Ordering::Release);
            next.thread.unpark();
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Caller {
    fn new(engine: &Arc<Engine>) -> Arc<Self> {
        let (woken, called) = (AtomicBool::new(true), AtomicBool::new(false));
        Arc::new(Self { engine: Arc::downgrade(engine), thread: thread::current(), woken, called })
    }

    /// Polls its future if that was woken.
    fn poll<T>(
        &self,
        future: std::pin::Pin<&mut impl Future<Output = T>>,
        waker: &Waker,
    ) -> Option<T> {
        if !self.woken.swap(false, Ordering::AcqRel) {
            return None;
        }
        match future.poll(&mut Context::from_waker(waker)) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    /// Waits until its future is woken, or it is called.
    fn park(&self) {
        while !self.woken.load(Ordering::Acquire) && !self.called.swap(false, Ordering::AcqRel) {
            thread::park();
        }
    }
}

impl Wake for Caller {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
        if let Some(engine) = self.engine.upgrade() {
            engine.rouse(engine.lock());
        }
    }
}
