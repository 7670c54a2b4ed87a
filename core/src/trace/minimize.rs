//! Delta debugging: of many things that have an effect together, the few that suffice.

/// Returns some of the items, in their order, with which `has_effect` still holds, so few that it
/// does not hold without any one of them.
///
/// It is taken to hold with all of them. Larger parts are tried first, the last ones first among
/// those of one size, as what comes late is the likeliest to matter to nothing. To stop early,
/// return `false` from then on.
///
/// ```
/// use sdam_core::trace::minimize;
///
/// let few = minimize(&[1, 2, 3, 4, 5, 6], |some| some.contains(&2) && some.contains(&5));
/// assert_eq!(few, [2, 5]);
/// ```
pub fn minimize<T: Clone>(items: &[T], mut has_effect: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let mut kept = items.to_vec();
    if kept.is_empty() || has_effect(&[]) {
        return Vec::new();
    }
    let mut size = kept.len().div_ceil(2);
    loop {
        let before = kept.len();
        let mut end = kept.len();
        while end > 0 {
            let start = end.saturating_sub(size);
            let without = [&kept[..start], &kept[end..]].concat();
            // Without any it was tried at first.
            if !without.is_empty() && has_effect(&without) {
                kept = without;
            }
            end = start;
        }
        match size {
            1 if kept.len() == before => return kept,
            1 => {}
            _ => size = size.div_ceil(2),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::minimize;

    #[test]
    fn what_is_left_has_the_effect_and_nothing_of_it_can_be_spared() {
        let items: Vec<u32> = (0..100).collect();
        for wanted in [vec![], vec![0], vec![99], vec![3, 50, 51, 98], (0..100).collect()] {
            let holds = |some: &[u32]| wanted.iter().all(|it| some.contains(it));
            assert_eq!(minimize(&items, holds), wanted);
        }
    }

    #[test]
    fn few_attempts_find_one_of_many() {
        let items: Vec<u32> = (0..1000).collect();
        let mut attempts = 0;
        let found = minimize(&items, |some| {
            attempts += 1;
            some.contains(&700)
        });
        assert_eq!(found, [700]);
        assert!(attempts < 40, "{attempts} attempts");
    }
}
