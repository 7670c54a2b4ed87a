//! The connections of a monitor that were closed while they waited for news, after about the same
//! time each: as by a proxy or a firewall that closes what is idle.

use std::time::Duration;

/// The difference between two times that count as the same.
const TOLERANCE: Duration = Duration::from_millis(250);

/// The connections of a monitor that were closed in a row while they waited for news, after about
/// the same time each: what looks for idle connections every so often closes them after once to
/// twice that time. None has lasted longer in between.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct IdleCutoff {
    times: u32,
    /// The shortest time that one of them has lasted, in milliseconds: a monitor is to be small.
    shortest: u32,
    /// The longest such time.
    longest: u32,
}

impl IdleCutoff {
    /// A connection was closed that had been waiting for so long.
    pub(super) fn closed(&mut self, lasted: Duration) {
        let lasted = u32::try_from(lasted.as_millis()).unwrap_or(u32::MAX);
        let times = self.times.saturating_add(1);
        let run =
            Self { times, shortest: self.shortest.min(lasted), longest: self.longest.max(lasted) };
        *self = match self.times > 0 && run.is_alike() {
            true => run,
            false => Self { times: 1, shortest: lasted, longest: lasted },
        };
    }

    /// News came to a connection that had been waiting for so long: nothing closes it sooner.
    pub(super) fn survived(&mut self, lasted: Duration) {
        if lasted > self.longest() + TOLERANCE {
            *self = Self::default();
        }
    }

    fn is_alike(self) -> bool {
        let (shortest, longest) = (self.shortest(), self.longest());
        longest <= shortest * 2 || longest - shortest <= TOLERANCE
    }

    /// Returns how many there were in a row.
    pub(crate) const fn times(self) -> u32 {
        self.times
    }

    /// Returns the shortest time that one of them has lasted.
    pub(crate) const fn shortest(self) -> Duration {
        Duration::from_millis(self.shortest as u64)
    }

    /// Returns the longest time that one of them has lasted.
    pub(crate) const fn longest(self) -> Duration {
        Duration::from_millis(self.longest as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn after(closed: &[u64]) -> IdleCutoff {
        let mut cuts = IdleCutoff::default();
        closed.iter().for_each(|lasted| cuts.closed(ms(*lasted)));
        cuts
    }

    fn seen(cuts: IdleCutoff) -> (u32, Duration, Duration) {
        (cuts.times(), cuts.shortest(), cuts.longest())
    }

    #[test]
    fn closes_after_about_the_same_time_are_counted() {
        assert_eq!(seen(after(&[4000, 4010, 3990, 4240])), (4, ms(3990), ms(4240)));
        assert_eq!(seen(after(&[4000, 4000, 9000])), (1, ms(9000), ms(9000)));
        assert_eq!(seen(after(&[20, 5, 255])), (3, ms(5), ms(255)), "all at once");
        assert_eq!(after(&[20, 5, 256]).times(), 1);
    }

    /// A look every four seconds closes connections that have been idle for four to eight.
    #[test]
    fn closes_of_a_sweep_are_counted() {
        assert_eq!(seen(after(&[5200, 4000, 7900, 8000])), (4, ms(4000), ms(8000)));
        assert_eq!(seen(after(&[5200, 4000, 8001])), (1, ms(8001), ms(8001)));
    }

    #[test]
    fn a_connection_that_lasts_longer_refutes_it() {
        let mut cuts = after(&[4000]);
        cuts.survived(ms(4250));
        assert_eq!(cuts.times(), 1, "that is still about the same time");
        cuts.survived(ms(4251));
        assert_eq!(cuts.times(), 0);
    }
}
