//! The pace at which a cursor asks for batches: a server that has nothing is not asked as fast as
//! it can say so.

use std::time::Duration;

use sdam_core::time::Instant;

/// The time between two getMore when the answer to the first was an empty batch; it doubles with
/// each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(1);

/// The longest time between two getMore for the sake of empty batches.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// The time that servers wait for new documents where the cursor leaves it to them.
pub(super) const DEFAULT_AWAIT_TIME: Duration = Duration::from_secs(1);

/// The empty batches that a cursor has had in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Pace {
    asked: Instant,
    empty: u32,
}

impl Pace {
    /// A getMore is sent.
    pub(crate) const fn asks(&mut self, now: Instant) {
        self.asked = now;
    }

    /// Its reply has come.
    pub(crate) const fn receives(&mut self, is_empty: bool) {
        self.empty = if is_empty { self.empty.saturating_add(1) } else { 0 };
    }

    /// Returns when the next getMore may be sent, `None` if that is at once. A server that awaits
    /// documents takes `await_time` before it says that there are none, `None` for its own; then no
    /// time is lost.
    pub(crate) fn next(&self, awaits: bool, await_time: Option<Duration>) -> Option<Instant> {
        let doublings = self.empty.checked_sub(1)?;
        let pause = 1_u32
            .checked_shl(doublings)
            .map_or(LONGEST_PAUSE, |times| FIRST_PAUSE.saturating_mul(times).min(LONGEST_PAUSE));
        let most = match awaits {
            true => await_time.unwrap_or(DEFAULT_AWAIT_TIME),
            false => LONGEST_PAUSE,
        };
        Some(self.asked + pause.min(most))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sdam_core::time::Instant;

    use super::Pace;

    const fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    #[test]
    fn pauses_grow_with_empty_batches_and_end_with_a_document() {
        let mut pace = Pace::default();
        pace.asks(at(1000));
        assert_eq!(pace.next(false, None), None, "the first batch may be empty by intent");
        let mut pauses = Vec::new();
        for _ in 0..40 {
            pace.receives(true);
            let next = pace.next(false, None).unwrap();
            pauses.push((next - at(1000)).as_millis());
        }
        assert_eq!(pauses[..11], [1, 2, 4, 8, 16, 32, 64, 128, 256, 500, 500]);
        assert_eq!(pauses.last(), Some(&500));
        pace.receives(false);
        assert_eq!(pace.next(false, None), None);
    }

    /// Between the beginnings of two getMore, so that a server which has waited for documents loses
    /// no time.
    #[test]
    fn a_cursor_that_awaits_pauses_for_its_own_time_at_most() {
        let mut pace = Pace::default();
        pace.asks(at(0));
        (0..40).for_each(|_| pace.receives(true));
        assert_eq!(pace.next(true, Some(Duration::from_millis(20))), Some(at(20)));
        assert_eq!(pace.next(true, None), Some(at(500)));
    }
}
