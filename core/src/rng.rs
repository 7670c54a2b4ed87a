//! The only source of randomness in core: a seeded generator whose stream never changes.

/// SplitMix64 (Steele, Lea and Flood, 2014): small, fast, and the same on every platform.
///
/// It is our own so that a recorded trace replays for ever, whatever a library's next release
/// does. It is not fit for secrets.
///
/// ```
/// use sdam_core::rng::Rng;
///
/// assert_eq!(Rng::new(7).next_u64(), Rng::new(7).next_u64());
/// ```
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The step of the state at a draw; states this far apart begin streams one draw apart.
    pub const INCREMENT: u64 = 0x9e37_79b9_7f4a_7c15;

    /// Starts a stream that `seed` alone determines.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Draws 64 uniformly distributed bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(Self::INCREMENT);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::Rng;

    #[test]
    fn the_stream_is_that_of_the_reference_implementation() {
        let mut rng = Rng::new(1_234_567);
        let drawn = [rng.next_u64(), rng.next_u64(), rng.next_u64()];
        let expected =
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(drawn, expected);
    }
}
