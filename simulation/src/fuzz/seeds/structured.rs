//! Seeds of targets that read bytes as decisions: drawn at random, as they cannot be written by
//! hand.

use sdam_core::rng::Rng;

use super::Seed;

/// The number of seeds that a target has, and how long they are.
const COUNT: u64 = 24;
const LENGTHS: [usize; 4] = [40, 120, 400, 1000];

pub(in crate::fuzz) fn topology() -> Vec<Seed> {
    drawn(1)
}

pub(in crate::fuzz) fn selection() -> Vec<Seed> {
    drawn(2)
}

pub(in crate::fuzz) fn pool() -> Vec<Seed> {
    let mut seeds = drawn(3);
    // Steps that do not lie far apart, of the kinds that there are.
    for seed in seeds.iter_mut().skip(8) {
        for step in seed.bytes[8..].chunks_exact_mut(3) {
            step[0] %= 20;
            step[2] %= 12;
        }
    }
    seeds
}

pub(in crate::fuzz) fn operations() -> Vec<Seed> {
    drawn(4)
}

pub(in crate::fuzz) fn chunks() -> Vec<Seed> {
    drawn(5)
}

fn drawn(stream: u64) -> Vec<Seed> {
    (0..COUNT)
        .zip(LENGTHS.into_iter().cycle())
        .map(|(number, length)| {
            let mut rng = Rng::new(stream << 32 | number);
            let bytes = std::iter::repeat_with(|| rng.next_u64().to_le_bytes()).flatten();
            Seed::new(format!("drawn-{number:02}"), bytes.take(length).collect::<Vec<u8>>())
        })
        .collect()
}
