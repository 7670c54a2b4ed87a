//! Time as a number: core never reads a clock.

use std::ops::{Add, Sub};
use std::time::Duration;

use serde::Serialize;

/// Monotonic nanoseconds since an origin that the runtime chose.
///
/// Arithmetic saturates, so that no input can make it overflow.
///
/// ```
/// use sdam_core::time::Instant;
/// use std::time::Duration;
///
/// let start = Instant::from_millis(500);
/// assert_eq!(start + Duration::from_secs(1), Instant::from_millis(1500));
/// assert_eq!(Instant::ZERO - start, Duration::ZERO);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
pub struct Instant(u64);

impl Instant {
    /// The origin: no instant is earlier.
    pub const ZERO: Self = Self(0);

    /// Returns the instant `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the instant `millis` milliseconds after the origin.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Returns how many nanoseconds lie between the origin and this instant.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns how long after the origin this instant is.
    pub const fn since_origin(self) -> Duration {
        Duration::from_nanos(self.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }
}

impl Sub for Instant {
    type Output = Duration;

    /// The time from `earlier` to `self`, zero if `earlier` is the later one.
    fn sub(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// The time of a call to a machine: up to when deadlines are judged, and what the clock shows.
///
/// Both are the same, and an [`Instant`] will do, unless deadlines that have passed are not judged
/// yet: until then, what comes counts as in time.
///
/// ```
/// use sdam_core::time::{Instant, Time};
///
/// let (deadline, clock) = (Instant::from_millis(10), Instant::from_millis(70));
/// let in_time = Time::before(Some(deadline), clock);
/// assert!(in_time.judged < deadline && in_time.clock == clock);
/// assert_eq!(Time::before(None, clock), clock.into());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Time {
    /// The last moment whose deadlines count as passed.
    pub judged: Instant,
    /// The time of the clock: this one, or later. What begins, begins then, and has all of its
    /// time.
    pub clock: Instant,
}

impl Time {
    /// The origin.
    pub const ZERO: Self = Self { judged: Instant::ZERO, clock: Instant::ZERO };

    /// Returns the time that the clock shows to a machine whose `deadline` is not judged yet,
    /// however long it has passed.
    pub fn before(deadline: Option<Instant>, clock: Instant) -> Self {
        let last = deadline.map(|due| Instant(due.0.saturating_sub(1)));
        Self { judged: last.map_or(clock, |last| clock.min(last)), clock }
    }

    /// Returns the later of both, field by field.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { judged: self.judged.max(other.judged), clock: self.clock.max(other.clock) }
    }
}

impl From<Instant> for Time {
    /// The usual case: every deadline is judged that has passed.
    fn from(now: Instant) -> Self {
        Self { judged: now, clock: now }
    }
}

impl std::fmt::Debug for Instant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.since_origin())
    }
}
