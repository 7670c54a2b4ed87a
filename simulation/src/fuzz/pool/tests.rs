//! Random pools and steps, as a fuzzer without feedback would try them.

use proptest::collection::vec;
use proptest::prelude::{Strategy, any, prop_assert_eq, proptest};

use super::{CONFIG_LEN, play, pool};

/// An input whose steps do not lie far apart.
fn inputs(steps: usize) -> impl Strategy<Value = Vec<u8>> {
    let steps = vec((0_u8..20, any::<u8>(), 0_u8..12), 1..steps);
    (vec(any::<u8>(), CONFIG_LEN), steps).prop_map(|(mut bytes, steps)| {
        bytes.extend(steps.into_iter().flat_map(|(kind, choice, millis)| [kind, choice, millis]));
        bytes
    })
}

proptest! {
    #[test]
    fn the_pool_does_what_it_may_and_loses_nothing(bytes in inputs(120)) {
        pool(&bytes);
    }

    /// Law 4: the same inputs at the same moments, the same actions.
    #[test]
    fn a_pool_is_deterministic(bytes in inputs(40)) {
        let run = || format!("{:?}", play(&bytes).map(|model| model.pool));
        prop_assert_eq!(run(), run());
    }
}
