//! The time of a simulation, and the limit of what happens at one instant: whatever goes round
//! there would do so for ever, as no time passes unless the simulation goes on.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use bson::DateTime;
use sdam_core::time::Instant;

use super::executor::{Kind, TaskId};

/// The most steps at one instant, and how many more for each client. A client takes some ten when
/// all begin together.
const MOST_STEPS: u64 = 1_000_000;
const MOST_STEPS_OF_CLIENT: u64 = 1_000;

/// Something that a simulation does at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sim) enum Step {
    /// Something happens that was planned.
    Event,
    /// The timer of the deployment.
    Deployment,
    /// Clients are rung.
    Alarm,
    /// A task is polled: of this client, if clients have numbers.
    Poll(Option<usize>, Kind, TaskId),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Event => f.write_str("a planned event"),
            Self::Deployment => f.write_str("a timer of the deployment"),
            Self::Alarm => f.write_str("the alarm of a client"),
            Self::Poll(_, Kind::Application(_), task) => {
                write!(f, "task {task} of an application")
            }
            Self::Poll(Some(client), kind, task) => {
                write!(f, "task {task} of client {client} ({kind:?})")
            }
            Self::Poll(None, kind, task) => write!(f, "task {task} ({kind:?})"),
        }
    }
}

/// The time of a simulation, which all that is simulated shares.
#[derive(Debug)]
pub(in crate::sim) struct Clock {
    now: AtomicU64,
    /// The milliseconds from 1970 to its beginning by the wall clock.
    wall_epoch_millis: i64,
    /// The number of steps at the present instant, and the most there may be.
    steps: AtomicU64,
    most: AtomicU64,
    last: Mutex<Step>,
}

impl Clock {
    /// Begins where the wall clock of a deployment does.
    pub(in crate::sim) fn new(wall_epoch_millis: i64) -> Self {
        Self {
            now: AtomicU64::new(0),
            wall_epoch_millis,
            steps: AtomicU64::new(0),
            most: AtomicU64::new(MOST_STEPS),
            last: Mutex::new(Step::Event),
        }
    }

    /// Another client has this time.
    pub(in crate::sim) fn shared(&self) {
        self.most.fetch_add(MOST_STEPS_OF_CLIENT, Ordering::Relaxed);
    }

    /// Looks at the clock, which counts as a step: a task that goes round looks again and again.
    ///
    /// # Panics
    ///
    /// Panics as [`step`](Self::step) does.
    pub(in crate::sim) fn now(&self) -> Instant {
        self.count();
        self.time()
    }

    /// Returns the time by the wall clock, to the millisecond.
    pub(in crate::sim) fn wall(&self) -> DateTime {
        let passed = i64::try_from(self.now().since_origin().as_millis()).unwrap_or(i64::MAX);
        DateTime::from_millis(self.wall_epoch_millis.saturating_add(passed))
    }

    fn time(&self) -> Instant {
        Instant::from_nanos(self.now.load(Ordering::Relaxed))
    }

    pub(in crate::sim) fn set(&self, now: Instant) {
        if self.now.swap(now.as_nanos(), Ordering::Relaxed) != now.as_nanos() {
            self.steps.store(0, Ordering::Relaxed);
        }
    }

    /// Counts a step.
    ///
    /// # Panics
    ///
    /// Panics, once, if so much happens at an instant that something goes round.
    pub(in crate::sim) fn step(&self, step: Step) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = step;
        self.count();
    }

    fn count(&self) {
        let steps = self.steps.fetch_add(1, Ordering::Relaxed) + 1;
        if steps == self.most.load(Ordering::Relaxed) {
            let seconds = self.time().since_origin().as_secs_f64();
            let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
            panic!("time stands still at {seconds:.6} s after {steps} steps; the last is {last}");
        }
    }
}
