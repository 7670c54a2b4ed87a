//! Times that this process did not run: stopped, starved, or on a machine that slept.

use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, clock_gettime};
use tokio::time::{Instant, sleep};

use crate::doctor::evidence::Pause;
use crate::duration::rfc_3339;

/// The time between two looks at the clocks.
const TICK: Duration = Duration::from_millis(50);

/// The shortest gap that is one: whatever is busy makes shorter ones.
const SHORTEST: Duration = Duration::from_secs(2);

/// The clock that goes on while the machine sleeps.
#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::Monotonic;

/// One look at the clocks.
#[derive(Clone, Copy, Debug)]
struct Look {
    /// The time by the clock that cannot be set.
    steady: Duration,
    /// The time by the wall clock, for people.
    wall: SystemTime,
}

impl Look {
    fn now() -> Self {
        let steady = Duration::try_from(clock_gettime(CLOCK)).unwrap_or_default();
        Self { steady, wall: SystemTime::now() }
    }

    /// Returns for how long the process did not run since, if it is worth a word.
    fn gap(self, later: Self) -> Option<Duration> {
        let gap = later.steady.saturating_sub(self.steady).saturating_sub(TICK);
        (gap >= SHORTEST).then_some(gap)
    }
}

/// Looks at the clocks until it is dropped, and notes each gap.
pub(in crate::doctor) async fn watch(begun: Instant, note: impl Fn(Pause)) {
    loop {
        let before = Look::now();
        sleep(TICK).await;
        let after = Look::now();
        if let Some(length) = before.gap(after) {
            let (from, to) = (rfc_3339(before.wall), rfc_3339(after.wall));
            note(Pause { from, to, length, ended: begun.elapsed() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wall_clock_that_is_set_is_no_pause() {
        let before = Look::now();
        let hour = Duration::from_secs(3600);
        let set = Look { steady: before.steady + TICK, wall: before.wall + hour };
        assert_eq!(before.gap(set), None);
        let stopped = Look { steady: before.steady + TICK + SHORTEST, wall: before.wall - hour };
        assert_eq!(before.gap(stopped), Some(SHORTEST));
    }
}
