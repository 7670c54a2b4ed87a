//! The latency window, and the choice of the less loaded of two.

use std::time::Duration;

use super::suitable::Class;
use crate::description::{CHUNK_LEN, Servers};

/// The servers of a class that lie in the latency window: a bit for each server.
#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    words: Vec<u64>,
    count: usize,
}

impl Window {
    /// Finds the servers of `class` whose round trip time is at most `threshold` above the shortest.
    pub(super) fn new(servers: &Servers, class: Class, threshold: Duration) -> Self {
        let of_class = servers.iter().filter(|server| class.has(server.server_type));
        let shortest = of_class.filter_map(|server| server.round_trip_time).min();
        let limit = shortest.map_or(Duration::MAX, |shortest| shortest.saturating_add(threshold));
        let (mut words, mut count) = (Vec::with_capacity(servers.len().div_ceil(CHUNK_LEN)), 0);
        for chunk in servers.chunks() {
            let mut word = 0_u64;
            for (bit, server) in chunk.iter().enumerate() {
                let near = server.round_trip_time.is_none_or(|time| time <= limit);
                word |= u64::from(near && class.has(server.server_type)) << bit;
            }
            count += word.count_ones() as usize;
            words.push(word);
        }
        Self { words, count }
    }

    /// Draws two servers and returns the one with the lower load.
    pub(super) fn choose(&self, load: impl Fn(usize) -> u32, random: u64) -> Option<usize> {
        choose(self.count, |rank| self.nth(rank), load, random)
    }

    /// Returns the position of the server that has `rank` others of the window before it.
    fn nth(&self, mut rank: usize) -> usize {
        for (index, &word) in self.words.iter().enumerate() {
            let ones = word.count_ones() as usize;
            if rank < ones {
                let mut word = word;
                (0..rank).for_each(|_| word &= word - 1);
                return index * CHUNK_LEN + word.trailing_zeros() as usize;
            }
            rank -= ones;
        }
        unreachable!("the rank is below the count")
    }
}

/// Draws two of `count` candidates and returns the one with the lower load; `None` of none.
///
/// Server Selection, "Choose two servers at random from the set of suitable servers in the latency
/// window": each half of `random` draws one, and the two are never the same.
pub(super) fn choose(
    count: usize,
    nth: impl Fn(usize) -> usize,
    load: impl Fn(usize) -> u32,
    random: u64,
) -> Option<usize> {
    // Maps 32 random bits to a number below `count`, which is far below 2^32.
    let below = |bits: u64, count: usize| (((bits & 0xffff_ffff) * count as u64) >> 32) as usize;
    match count {
        0 => None,
        1 => Some(nth(0)),
        _ => {
            let first = below(random, count);
            let second = below(random >> 32, count - 1);
            let second = if second >= first { second + 1 } else { second };
            let (first, second) = (nth(first), nth(second));
            Some(if load(second) < load(first) { second } else { first })
        }
    }
}
