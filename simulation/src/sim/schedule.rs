//! The begin and end of each event, to the millisecond, so that time can be taken out.

use std::collections::BTreeMap;
use std::time::Duration;

use sdam_core::time::Instant;

use super::reduction::Reduction;
use super::run::Case;

/// The begin and end of what is left of a simulation.
pub(super) struct Schedule {
    faults: BTreeMap<usize, (u64, u64)>,
    /// The time when operations begin, if that is not as drawn.
    work: Option<(u64, u64)>,
    calm: u64,
    close: Option<u64>,
}

impl Schedule {
    /// Returns when these faults begin and end, and all else.
    pub(super) fn of(case: &Case, faults: &[usize]) -> Self {
        let plan = case.outline();
        // Nothing ends before it does.
        let ends = |ends: Instant| millis(ends.since_origin() + Duration::from_nanos(999_999));
        let during = |fault: &usize| {
            let during = &plan.faults[*fault];
            (*fault, (millis(during.begins.since_origin()), ends(during.ends)))
        };
        let (work, close) = (case.reduction.work, case.reduction.close);
        Self { faults: faults.iter().map(during).collect(), work, calm: ends(plan.calm), close }
    }

    /// Returns when all faults are over.
    pub(super) const fn calm(&self) -> u64 {
        self.calm
    }

    /// Returns the first time after that one at which something begins or ends.
    pub(super) fn next_after(&self, time: u64) -> Option<u64> {
        let pairs = self.faults.values().chain(&self.work);
        let times = pairs.flat_map(|(from, to)| [*from, *to]).chain([self.calm]).chain(self.close);
        times.filter(|it| *it > time).min()
    }

    /// Moves whatever begins or ends at a time or later, so that this time becomes an earlier one.
    pub(super) fn hasten(&self, time: u64, earlier: u64, reduction: &mut Reduction) {
        let moved = |it: u64| if it < time { it } else { it - (time - earlier) };
        for (fault, (begins, ends)) in &self.faults {
            if *begins >= time {
                reduction.beginning.insert(*fault, moved(*begins));
            } else if *ends >= time {
                reduction.lasting.insert(*fault, moved(*ends) - begins);
            }
        }
        reduction.work = self.work.map(|(from, to)| (moved(from), moved(to)));
        reduction.close = self.close.map(moved);
        if self.calm >= time {
            reduction.calm = Some(moved(self.calm));
        }
    }
}

/// Returns how many whole milliseconds that is.
pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::{Reduction, Schedule};

    #[test]
    fn time_that_is_taken_out_is_missing_everywhere() {
        let schedule = Schedule {
            faults: [(0, (100, 900)), (3, (100, 300)), (7, (700, 800))].into(),
            work: Some((0, 650)),
            calm: 950,
            close: None,
        };
        assert_eq!(schedule.next_after(300), Some(650));
        let mut reduction = Reduction::default();
        schedule.hasten(650, 350, &mut reduction);
        let expected = "beginning=7:400/lasting=0:500/work=0-350/calm=650";
        assert_eq!(reduction.to_string(), expected);
    }
}
