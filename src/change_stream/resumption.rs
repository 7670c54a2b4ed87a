//! The pace at which a change stream begins again: a server that fails each getMore at once is not
//! asked as fast as it can say so.
//!
//! Implements "Resume Process" of Change Streams: a stream whose aggregate has succeeded "MUST
//! ensure that following resume attempts can succeed", without end.

use std::time::Duration;

use sdam_core::backoff::{jitter, longest_pause};

/// The attempts at beginning again that were made in a row, with no batch in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Resumption {
    attempts: u32,
}

impl Resumption {
    /// Begins an attempt; returns how long it waits, `None` if that is not at all. `random` is 64
    /// random bits: many streams that have lost the same server do not come back at once.
    pub(crate) fn begins(&mut self, random: u64) -> Option<Duration> {
        let earlier = self.attempts;
        self.attempts = earlier.saturating_add(1);
        let exponent = earlier.checked_sub(1)?;
        // Half of the pause is always there.
        Some(longest_pause(exponent).mul_f64(0.5 + jitter(random) / 2.0))
    }

    /// Takes note that a batch has come: the next error is the first again.
    pub(crate) const fn succeeds(&mut self) {
        self.attempts = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Resumption;

    /// `BACKOFF_MAX`.
    const LONGEST_PAUSE: Duration = Duration::from_millis(500);

    /// "Resume Process": one attempt for each error, at once; where no attempt leads to a batch,
    /// each waits longer than the one before, and none is the last.
    #[test]
    fn pauses_grow_while_no_attempt_leads_to_a_batch() {
        let mut resumption = Resumption::default();
        assert_eq!(resumption.begins(u64::MAX), None, "the first error");
        let pauses: Vec<_> = (0..100).filter_map(|_| resumption.begins(u64::MAX)).collect();
        assert_eq!(pauses.len(), 100);
        assert_eq!(pauses[0].as_micros(), 5_000, "BACKOFF_INITIAL");
        assert!(pauses[..12].is_sorted_by(|one, next| one < next), "{pauses:?}");
        assert!(pauses[12..].iter().all(|pause| *pause >= LONGEST_PAUSE * 99 / 100));
        assert!(resumption.begins(0) >= Some(LONGEST_PAUSE / 2), "there always is one");
        resumption.succeeds();
        assert_eq!(resumption.begins(0), None);
        assert_eq!(resumption.begins(0), Some(Duration::from_micros(2_500)));
    }
}
