//! The alarm of a client: one timer, and what it is like while it rings early, late, or twice.

use std::time::Duration;

use sdam_core::time::Instant;

use crate::sim::random::Random;

/// The greatest delay of an alarm.
pub(super) const LATEST: Duration = Duration::from_millis(250);

/// The one timer of a client.
#[derive(Debug)]
pub(super) struct Alarm {
    /// The time for which it was last set, unless it has rung since.
    told: Option<Instant>,
    /// The time when it rings.
    rings: Option<Instant>,
    /// The time when it rings once more for nothing.
    again: Option<Instant>,
    /// Decides how wrong it is, while it is.
    disturbed: Option<Random>,
    /// True if it ever was.
    may_be_late: bool,
}

impl Alarm {
    /// Creates one that rings at that time.
    pub(super) const fn at(deadline: Option<Instant>) -> Self {
        Self { told: deadline, rings: deadline, again: None, disturbed: None, may_be_late: false }
    }

    /// Sets the time when it rings, in place of the one before.
    pub(super) fn set(&mut self, now: Instant, deadline: Option<Instant>) {
        self.told = deadline;
        self.rings = deadline.map(|due| self.ringing(now, due));
    }

    /// Returns when it rings next.
    pub(super) fn next(&self) -> Option<Instant> {
        self.rings.into_iter().chain(self.again).min()
    }

    /// From now on it may ring early, late, or twice.
    pub(super) const fn disturb(&mut self, bits: u64) {
        self.disturbed = Some(Random::new(bits));
        self.may_be_late = true;
    }

    /// From now on it rings when it is set to.
    pub(super) const fn mend(&mut self) {
        self.disturbed = None;
    }

    /// Returns how late it may ring.
    pub(super) const fn bearable(&self) -> Duration {
        if self.may_be_late { LATEST } else { Duration::ZERO }
    }

    /// Returns when it rings that is to ring at that time, which may be over while one that rings
    /// late is waited for: then at once, or no later than it might have been set to before.
    fn ringing(&mut self, now: Instant, due: Instant) -> Instant {
        let in_time = due.max(now);
        let Some(random) = &mut self.disturbed else { return in_time };
        let late = now.max(due + random.between(Duration::ZERO, LATEST));
        match random.below(4) {
            0 => now + random.between(Duration::ZERO, in_time - now),
            1 => late,
            2 => {
                self.again = Some(late);
                in_time
            }
            _ => in_time,
        }
    }

    /// It rings, or somebody looks at the clock anyway; returns whether that is late because it is
    /// disturbed.
    pub(super) fn rang(&mut self, now: Instant) -> bool {
        let late = self.told.take().is_some_and(|due| due < now);
        self.rings.take_if(|rings| *rings <= now);
        self.again.take_if(|again| *again <= now);
        late && self.may_be_late
    }
}

#[cfg(test)]
mod tests {
    use super::{Alarm, Duration, Instant, LATEST, Random};

    const NOW: Instant = Instant::from_millis(1_000);
    const DUE: Instant = Instant::from_millis(2_000);

    #[test]
    fn an_alarm_that_is_disturbed_rings_early_and_late_and_twice() {
        let (mut early, mut late, mut twice) = (0, 0, 0);
        for seed in 0..100 {
            let disturbed = Some(Random::new(seed));
            let mut alarm = Alarm { disturbed, ..Alarm::at(None) };
            alarm.set(NOW, Some(DUE));
            let rings = alarm.next().unwrap();
            assert!((NOW..=DUE + LATEST).contains(&rings), "{rings:?}");
            early += u32::from(rings < DUE);
            late += u32::from(rings > DUE);
            twice += u32::from(alarm.again.is_some_and(|again| again >= rings));
        }
        assert!(early > 10 && late > 10 && twice > 10, "{early} {late} {twice}");
        assert!(LATEST > Duration::ZERO);
    }

    /// An alarm may be set to a deadline that is overdue because the last ring was late (found by
    /// seeds 1007376, 1011180 and 4017448).
    #[test]
    fn an_alarm_that_is_told_what_is_overdue_rings_neither_in_the_past_nor_later_than_any() {
        let by = |time: Duration| DUE + time;
        for overdue in [LATEST / 2, LATEST, LATEST * 2].map(by) {
            let mut alarm = Alarm::at(None);
            alarm.set(overdue, Some(DUE));
            assert_eq!(alarm.next(), Some(overdue));
            for seed in 0..100 {
                let disturbed = Some(Random::new(seed));
                let mut alarm = Alarm { disturbed, ..Alarm::at(None) };
                alarm.set(overdue, Some(DUE));
                let rings = alarm.next().unwrap();
                assert!((overdue..=overdue.max(DUE + LATEST)).contains(&rings), "{rings:?}");
            }
        }
    }
}
