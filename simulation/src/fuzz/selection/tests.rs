//! Random deployments and operations, as a fuzzer without feedback would try them.

use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any, proptest};

use super::selection;

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Server Selection, "Read preference" with tag sets and "Latency window": what is selected is
    /// what the rules say, applied one after the other.
    #[test]
    fn operations_get_what_the_rules_allow(bytes in vec(any::<u8>(), 100..1500)) {
        selection(&bytes);
    }
}
