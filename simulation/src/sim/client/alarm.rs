//! The alarm of a client: one timer, which is told when to ring only if it does not know it yet, as
//! the host tells its runtime; and what it is like while it rings early, late, or twice.

use std::time::Duration;

use sdam_core::time::Instant;

use super::Client;
use crate::sim::random::Random;

/// How late an alarm may ring.
const LATEST: Duration = Duration::from_millis(250);

/// The one timer of a client.
#[derive(Debug)]
pub(super) struct Alarm {
    /// What it was last told; `None` since it has rung, for then it may have forgotten it, be it
    /// that it has rung too early.
    told: Option<Option<Instant>>,
    /// When it rings.
    rings: Option<Instant>,
    /// When it rings once more for nothing.
    again: Option<Instant>,
    /// Decides how wrong it is, while it is.
    disturbed: Option<Random>,
    /// Whether it ever was.
    may_be_late: bool,
}

impl Alarm {
    /// Creates one that rings at that time.
    pub(super) const fn at(deadline: Option<Instant>) -> Self {
        let told = Some(deadline);
        Self { told, rings: deadline, again: None, disturbed: None, may_be_late: false }
    }

    /// Tells it when to ring, if it does not know that; returns when it does.
    fn tell(&mut self, now: Instant, deadline: Option<Instant>) -> Option<Instant> {
        if self.told != Some(deadline) {
            self.told = Some(deadline);
            self.rings = deadline.map(|due| self.ringing(now, due));
        }
        self.rings.into_iter().chain(self.again).min()
    }

    /// Returns when it rings that is to ring at that time, which may be over while one that rings
    /// late is waited for: then at once, or no later than it might have been told before.
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

    /// Returns how late it may ring.
    pub(super) const fn bearable(&self) -> Duration {
        if self.may_be_late { LATEST } else { Duration::ZERO }
    }

    /// It rings.
    fn rang(&mut self, now: Instant) {
        self.told = None;
        self.rings.take_if(|rings| *rings <= now);
        self.again.take_if(|again| *again <= now);
    }
}

impl Client {
    /// From now on its alarm may ring early, late, or twice.
    pub(in crate::sim) fn disturb_alarm(&mut self, bits: u64) {
        self.alarm.disturbed = Some(Random::new(bits));
        self.alarm.may_be_late = true;
        self.checks.alarms_may_be_late(LATEST);
    }

    /// What the alarm is told from now on it does.
    pub(in crate::sim) fn mend_alarm(&mut self) {
        self.alarm.disturbed = None;
    }

    /// The alarm has rung, or somebody looks at the clock anyway.
    pub(super) fn alarm_rang(&mut self, now: Instant) {
        let late = self.alarm.told.flatten().is_some_and(|due| due < now);
        if late && self.alarm.may_be_late {
            self.running_since = now;
        }
        self.alarm.rang(now);
    }

    /// Tells the alarm what is due next.
    pub(super) fn set_alarm(&mut self) {
        let due = self.next_deadline();
        self.deadline = self.alarm.tell(self.now, due);
        self.judge_alarm(due);
    }

    /// The alarm rings when something is due, or a little later if it is disturbed.
    pub(super) fn judge_alarm(&mut self, due: Option<Instant>) {
        let Some(due) = due else { return };
        if self.deadline.is_none_or(|rings| rings > due.max(self.now) + self.alarm.bearable()) {
            let alarm = &self.alarm;
            let what = || format!("something is due at {due:?}, and it does not ring: {alarm:?}");
            self.checks.fail("the alarm rings when something is due", what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Alarm, Duration, Instant, LATEST, Random};

    const NOW: Instant = Instant::from_millis(1_000);
    const DUE: Instant = Instant::from_millis(2_000);

    #[test]
    fn an_alarm_that_has_rung_is_told_the_same_deadline_once_more() {
        let mut alarm = Alarm::at(None);
        assert_eq!(alarm.tell(NOW, Some(DUE)), Some(DUE));
        alarm.rings = Some(NOW);
        assert_eq!(alarm.tell(NOW, Some(DUE)), Some(NOW), "it was told that already");
        alarm.rang(NOW);
        assert_eq!(alarm.tell(NOW, Some(DUE)), Some(DUE));
        alarm.rang(DUE);
        assert_eq!(alarm.tell(DUE, None), None);
    }

    #[test]
    fn an_alarm_that_is_disturbed_rings_early_and_late_and_twice() {
        let (mut early, mut late, mut twice) = (0, 0, 0);
        for seed in 0..100 {
            let disturbed = Some(Random::new(seed));
            let mut alarm = Alarm { disturbed, ..Alarm::at(None) };
            let rings = alarm.tell(NOW, Some(DUE)).unwrap();
            assert!((NOW..=DUE + LATEST).contains(&rings), "{rings:?}");
            early += u32::from(rings < DUE);
            late += u32::from(rings > DUE);
            twice += u32::from(alarm.again.is_some_and(|again| again >= rings));
        }
        assert!(early > 10 && late > 10 && twice > 10, "{early} {late} {twice}");
        assert!(LATEST > Duration::ZERO);
    }

    /// What is overdue because the last ring was late is told to an alarm, too (found by seeds
    /// 1007376, 1011180 and 4017448).
    #[test]
    fn an_alarm_that_is_told_what_is_overdue_rings_neither_in_the_past_nor_later_than_any() {
        let by = |time: Duration| DUE + time;
        for overdue in [LATEST / 2, LATEST, LATEST * 2].map(by) {
            assert_eq!(Alarm::at(None).tell(overdue, Some(DUE)), Some(overdue));
            for seed in 0..100 {
                let disturbed = Some(Random::new(seed));
                let mut alarm = Alarm { disturbed, ..Alarm::at(None) };
                let rings = alarm.tell(overdue, Some(DUE)).unwrap();
                assert!((overdue..=overdue.max(DUE + LATEST)).contains(&rings), "{rings:?}");
            }
        }
    }
}
