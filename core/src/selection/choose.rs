//! The latency window, and the choice of the less loaded of two.

use std::time::Duration;

use super::suitable::Class;
use crate::description::{ServerDescription, Servers};

/// The longest round trip time in a latency window: the shortest one of the servers it is for, and
/// localThresholdMS (Server Selection, "Filtering suitable servers based on the latency window").
#[derive(Clone, Copy, Debug)]
pub(super) struct LatencyLimit(Duration);

impl LatencyLimit {
    /// Finds the limit among these servers. A server that was not measured yet is in any window.
    pub(super) fn of<'a>(
        servers: impl Iterator<Item = &'a ServerDescription>,
        threshold: Duration,
    ) -> Self {
        Self::above(servers.filter_map(|server| server.round_trip_time).min(), threshold)
    }

    fn above(shortest: Option<Duration>, threshold: Duration) -> Self {
        Self(shortest.map_or(Duration::MAX, |time| time.saturating_add(threshold)))
    }

    /// Returns whether a server is in the window.
    pub(super) fn admits(self, server: &ServerDescription) -> bool {
        self.excess(server).is_none()
    }

    /// Returns by how much a server is too far away; `None` if it is in the window.
    pub(super) fn excess(self, server: &ServerDescription) -> Option<Duration> {
        server.round_trip_time.filter(|time| *time > self.0).map(|time| time - self.0)
    }
}

/// The servers of a class that lie in the latency window: a bit for each server.
#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    /// The bits of the first servers, which are all of them in most deployments.
    first: u64,
    rest: Vec<u64>,
    count: usize,
    /// The shortest round trip time of the class.
    shortest: Option<Duration>,
}

/// The number of servers that a word has bits for.
const WORD_LEN: usize = 64;

impl Window {
    /// Finds the servers of `class` that are at most `threshold` farther away than the nearest.
    pub(super) fn new(servers: &Servers, class: Class, threshold: Duration) -> Self {
        let of_class = servers.iter().filter(|server| class.has(server.server_type));
        let shortest = of_class.filter_map(|server| server.round_trip_time).min();
        let rest = vec![0; servers.len().div_ceil(WORD_LEN).saturating_sub(1)];
        let mut window = Self { first: 0, rest, count: 0, shortest };
        for (index, server) in servers.iter().enumerate() {
            window.set(index, window.holds(server, class, threshold));
        }
        window
    }

    /// Finds the same after the server at `index` was replaced by another, without looking at the
    /// others if the shortest round trip time is still the same.
    pub(super) fn after(
        &self,
        (index, old): (usize, &ServerDescription),
        servers: &Servers,
        class: Class,
        threshold: Duration,
    ) -> Self {
        let time = |server: &ServerDescription| {
            server.round_trip_time.filter(|_| class.has(server.server_type))
        };
        let (new, old) = (&servers[index], time(old));
        let was_shortest = old.is_some() && old == self.shortest;
        let is_shorter = time(new).is_some_and(|time| self.shortest.is_none_or(|s| time < s));
        if is_shorter || (was_shortest && time(new) != old) {
            return Self::new(servers, class, threshold);
        }
        let mut window = self.clone();
        window.set(index, window.holds(new, class, threshold));
        window
    }

    fn holds(&self, server: &ServerDescription, class: Class, threshold: Duration) -> bool {
        class.has(server.server_type)
            && LatencyLimit::above(self.shortest, threshold).admits(server)
    }

    fn set(&mut self, index: usize, held: bool) {
        let bit = 1 << (index % WORD_LEN);
        let word = match index / WORD_LEN {
            0 => &mut self.first,
            word => &mut self.rest[word - 1],
        };
        self.count = self.count + usize::from(held) - usize::from(*word & bit != 0);
        *word = if held { *word | bit } else { *word & !bit };
    }

    /// Draws two servers and returns the one with the lower load.
    pub(super) fn choose(&self, load: impl Fn(usize) -> u32, random: u64) -> Option<usize> {
        choose(self.count, |rank| self.nth(rank), load, random)
    }

    /// Returns the position of the server that has `rank` others of the window before it.
    fn nth(&self, mut rank: usize) -> usize {
        for (index, &word) in std::iter::once(&self.first).chain(&self.rest).enumerate() {
            let ones = word.count_ones() as usize;
            if rank < ones {
                let mut word = word;
                (0..rank).for_each(|_| word &= word - 1);
                return index * WORD_LEN + word.trailing_zeros() as usize;
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

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    use super::{WORD_LEN, Window, choose};

    /// "Choose two servers at random": each half of the random bits draws one of them.
    #[test]
    fn any_two_may_be_drawn_and_they_are_never_the_same() {
        let mut drawn = BTreeSet::new();
        let third = u64::from(u32::MAX) / 3;
        for (first, second) in (0..3).flat_map(|first| (0..3).map(move |second| (first, second))) {
            let random = (first * third + 1) | (second * third + 1) << 32;
            let asked = RefCell::new(BTreeSet::new());
            let load = |server: usize| {
                asked.borrow_mut().insert(server);
                0
            };
            assert!(choose(3, |rank| rank, load, random).is_some_and(|server| server < 3));
            drawn.insert(asked.into_inner());
        }
        let pairs = [[0, 1], [0, 2], [1, 2]].map(BTreeSet::from);
        assert_eq!(drawn, BTreeSet::from(pairs));
    }

    #[test]
    fn servers_beyond_the_first_64_are_drawn_by_their_rank_too() {
        let mut window = Window { rest: vec![0, 0], ..Window::default() };
        let held = [3, 63, WORD_LEN, WORD_LEN + 7, 2 * WORD_LEN + 63];
        held.iter().for_each(|server| window.set(*server, true));
        let drawn: Vec<usize> = (0..window.count).map(|rank| window.nth(rank)).collect();
        assert_eq!(drawn, held);
    }
}
