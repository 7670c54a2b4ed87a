//! The random numbers of a simulation: everything random in it comes from one seed.

use std::time::Duration;

use sdam_core::rng::Rng;

/// A stream of draws that a seed determines.
#[derive(Clone, Debug)]
pub(super) struct Random(Rng);

impl Random {
    pub(super) const fn new(seed: u64) -> Self {
        Self(Rng::new(seed))
    }

    /// Begins another stream, which does not depend on how much is drawn from this one later.
    pub(super) fn fork(&mut self) -> Self {
        Self::new(self.bits())
    }

    pub(super) fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Draws a number below `limit`; 0 if that is 0.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.bits() % limit.max(1)
    }

    /// Draws an index into a list of that length.
    pub(super) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or_default()
    }

    pub(super) fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    pub(super) fn pick<T: Copy>(&mut self, choice: &[T]) -> T {
        choice[self.index(choice.len())]
    }

    /// Draws a duration from `least` to less than `most`.
    pub(super) fn between(&mut self, least: Duration, most: Duration) -> Duration {
        let range = u64::try_from(most.saturating_sub(least).as_nanos()).unwrap_or(u64::MAX);
        least + Duration::from_nanos(self.below(range))
    }

    /// Draws a duration from `least` to less than `most` milliseconds.
    pub(super) fn millis(&mut self, least: u64, most: u64) -> Duration {
        self.between(Duration::from_millis(least), Duration::from_millis(most))
    }
}
