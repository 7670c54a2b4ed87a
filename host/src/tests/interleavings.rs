//! The interleavings of the threads that use a client: no lost or double wake-up, no deadlock, and
//! no harm in whatever comes after the end.
//!
//! Each test is run under thousands of schedules, the same each time, with a scheduler in the place
//! of threads, locks and atomics; a thread that nothing would ever wake is a deadlock, and fails
//! the test. CONTRIBUTING.md says how to run these tests, which alone can run under `sdam_shuttle`.

mod clients;
mod leaves;
mod recordings;
mod sharing;
mod tokens;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync::Condvar;
use shuttle::{Config, Runner};

use crate::sync::Mutex;
use crate::sync::lock;

/// Runs a scenario under `schedules` random schedules, and under as many that change rarely between
/// threads, but at the worst points.
fn explore(schedules: usize, scenario: impl Fn() + Clone + Send + Sync + 'static) {
    let mut config = Config::new();
    config.stack_size = 1 << 19;
    // That weaker orderings are taken for sequentially consistent ones.
    config.silence_warnings = true;
    let random = RandomScheduler::new_from_seed(1, schedules);
    Runner::new(random, config.clone()).run(scenario.clone());
    Runner::new(PctScheduler::new_from_seed(1, 3, schedules), config).run(scenario);
}

/// A thread that sleeps until it is woken.
#[derive(Default)]
struct Sleeper {
    state: Mutex<Sleep>,
    alarm: Condvar,
}

#[derive(Default)]
struct Sleep {
    woken: bool,
    /// The number of times it was woken.
    wakes: u32,
    /// The number of times it had to wait.
    waits: u32,
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        let mut state = lock(&self.state);
        state.woken = true;
        state.wakes += 1;
        self.alarm.notify_one();
    }
}

impl Sleeper {
    /// Runs a future, which is polled only when it was woken.
    fn run<T>(self: &Arc<Self>, future: impl Future<Output = T>) -> T {
        let (mut future, waker) = (pin!(future), Waker::from(Arc::clone(self)));
        loop {
            if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return done;
            }
            let mut state = lock(&self.state);
            state.waits += 1;
            while !std::mem::take(&mut state.woken) {
                state = self.alarm.wait(state).unwrap();
            }
        }
    }

    /// Runs a future that may be woken once more when it has found what it looked for: each poll
    /// has a waker of its own, which panics if it is woken twice.
    fn run_by_looks<T>(self: &Arc<Self>, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        self.run(poll_fn(|_| {
            let look = Look { sleeper: Arc::clone(self), is_answered: AtomicBool::new(false) };
            future.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::new(look))))
        }))
    }

    /// Panics if it was woken more often than it had asked for.
    fn assert_woken_once_per_wait(&self) {
        let Sleep { wakes, waits, .. } = *lock(&self.state);
        assert!(wakes <= waits, "woken {wakes} times in {waits} waits");
    }
}

/// One poll of a future.
struct Look {
    sleeper: Arc<Sleeper>,
    is_answered: AtomicBool,
}

impl Wake for Look {
    fn wake(self: Arc<Self>) {
        assert!(!self.is_answered.swap(true, Ordering::Relaxed), "woken twice for one look");
        Arc::clone(&self.sleeper).wake();
    }
}

/// Runs a future on this thread, which sleeps until it is woken.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    Arc::<Sleeper>::default().run(future)
}

/// Polls a future once, and drops it.
fn give_up(future: impl Future) {
    let _ = pin!(future).poll(&mut Context::from_waker(Waker::noop()));
}
