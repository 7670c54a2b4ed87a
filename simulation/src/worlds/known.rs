//! Worlds that are known, and with how much of what is limited they were reached.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Of what is limited, how much there was on the way to a world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Spent {
    pub(super) faults: u8,
    /// The number of steps that were out of turn, if these are limited.
    pub(super) delays: u8,
}

impl Spent {
    /// Of each, at most so much can be distinguished.
    pub(super) const MOST: u8 = 7;

    const fn bit(self) -> u64 {
        1 << (self.faults * 8 + self.delays)
    }

    /// The bits of all that is no more than this.
    fn no_more(self) -> u64 {
        let delays = (2_u64 << self.delays) - 1;
        (0..=self.faults).fold(0, |bits, faults| bits | (delays << (faults * 8)))
    }
}

/// The worlds that are known, by their digests.
#[derive(Default)]
pub(super) struct Known(HashMap<u128, u64, Identity>);

impl Known {
    /// Returns how many different worlds are known.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether a world was reached with no more than that: what it leads to is known then,
    /// for as much of what is limited was left, and no fewer steps.
    pub(super) fn contains(&self, world: u128, spent: Spent) -> bool {
        self.0.get(&world).is_some_and(|ways| ways & spent.no_more() != 0)
    }

    /// Remembers a world; returns whether that is news.
    pub(super) fn insert(&mut self, world: u128, spent: Spent) -> bool {
        let ways = self.0.entry(world).or_default();
        let is_news = *ways & spent.no_more() == 0;
        *ways |= spent.bit();
        is_news
    }
}

/// A digest is its own hash.
pub(super) type Identity = BuildHasherDefault<DigestHasher>;

#[derive(Default)]
pub(super) struct DigestHasher(u64);

impl Hasher for DigestHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u128(&mut self, digest: u128) {
        self.0 = digest as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::{Known, Spent};

    #[test]
    fn a_world_is_news_unless_it_was_reached_with_no_more_of_anything() {
        let mut known = Known::default();
        let spent = |faults, delays| Spent { faults, delays };
        assert!(known.insert(1, spent(1, 2)));
        assert!(!known.insert(1, spent(1, 2)) && !known.insert(1, spent(2, 7)));
        assert!(known.insert(1, spent(2, 1)) && known.insert(1, spent(0, 7)));
        assert!(known.contains(1, spent(7, 1)) && !known.contains(1, spent(1, 1)));
        assert!(!known.contains(2, spent(7, 7)));
        assert!(known.insert(1, spent(0, 0)) && !known.insert(1, spent(7, 7)));
        assert_eq!(known.len(), 1);
    }
}
