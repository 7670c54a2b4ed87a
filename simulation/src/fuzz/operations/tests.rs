//! Random operations, as a fuzzer without feedback would try them.

use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any, proptest};

use super::operations;

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn operations_are_sent_as_the_rules_allow(bytes in vec(any::<u8>(), 20..600)) {
        operations(&bytes);
    }
}
