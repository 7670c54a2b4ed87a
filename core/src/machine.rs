//! The one abstraction of core: a deterministic state machine, and the laws it obeys.

use crate::time::{Instant, Time};

/// A deterministic state machine: no I/O, no clock, no randomness of its own.
///
/// # Laws
///
/// 1. `now` never goes back, in neither of its fields; `handle` is `tick(now)` and then the input.
/// 2. After either call [`deadline`](Self::deadline) is `None` or later than `now.judged`.
/// 3. A `tick` before the deadline changes nothing and emits nothing; a new machine is due at
///    once, at [`Time::ZERO`].
/// 4. Same state, same `now`, same input: same actions.
/// 5. Every input is legal at every moment; an unknown or dead id is ignored, and nonsense from a
///    peer is a fact about that peer.
/// 6. Splitting the bytes received at one instant differently changes nothing.
///
/// [`Lawful`] asserts the first three on every call; the others are property tests.
pub trait Machine {
    /// The type of inputs.
    type Input<'a>;
    /// The type of actions.
    type Action;

    /// Ticks to `now`, applies `input`, and appends to `out` what must be done, in order.
    fn handle(&mut self, now: Time, input: Self::Input<'_>, out: &mut Vec<Self::Action>);

    /// Advances to `now`, firing every deadline that has passed.
    fn tick(&mut self, now: Time, out: &mut Vec<Self::Action>);

    /// Returns when `tick` is next due; after `tick(now)` this is `None` or later than
    /// `now.judged`.
    fn deadline(&self) -> Option<Instant>;
}

/// A machine whose laws are asserted on every call: for tests, simulation and fuzzing.
///
/// # Panics
///
/// [`Machine::handle`] and [`Machine::tick`] panic when the machine or its caller breaks a law.
#[derive(Clone, Debug)]
pub struct Lawful<M> {
    machine: M,
    now: Time,
}

impl<M: Machine> Lawful<M> {
    /// Wraps a new machine.
    ///
    /// # Panics
    ///
    /// Panics if the machine is not due at once (law 3).
    pub fn new(machine: M) -> Self {
        assert_eq!(machine.deadline(), Some(Instant::ZERO), "law 3: a new machine is due at once");
        Self { machine, now: Time::ZERO }
    }

    /// Returns the machine itself.
    pub const fn get(&self) -> &M {
        &self.machine
    }

    /// Returns the machine itself, for what it offers besides inputs.
    pub const fn get_mut(&mut self) -> &mut M {
        &mut self.machine
    }

    fn advance(&mut self, now: Time, out: &mut Vec<M::Action>) {
        assert_eq!(self.now.max(now), now, "law 1: time went back");
        assert!(now.judged <= now.clock, "nothing is judged before it happens: {now:?}");
        self.now = now;
        let due = self.machine.deadline().is_some_and(|deadline| deadline <= now.judged);
        let (before, deadline) = (out.len(), self.machine.deadline());
        self.machine.tick(now, out);
        if !due {
            assert_eq!(out.len(), before, "law 3: a tick before the deadline emitted something");
            assert_eq!(
                self.machine.deadline(),
                deadline,
                "law 3: a tick before the deadline moved the deadline"
            );
        }
        self.check_deadline(now);
    }

    fn check_deadline(&self, now: Time) {
        if let Some(deadline) = self.machine.deadline() {
            assert!(deadline > now.judged, "law 2: at {now:?} the deadline is still {deadline:?}");
        }
    }
}

impl<M: Machine> Machine for Lawful<M> {
    type Input<'a> = M::Input<'a>;
    type Action = M::Action;

    fn handle(&mut self, now: Time, input: Self::Input<'_>, out: &mut Vec<Self::Action>) {
        self.advance(now, out);
        self.machine.handle(now, input, out);
        self.check_deadline(now);
    }

    fn tick(&mut self, now: Time, out: &mut Vec<Self::Action>) {
        self.advance(now, out);
    }

    fn deadline(&self) -> Option<Instant> {
        self.machine.deadline()
    }
}

#[cfg(test)]
mod tests {
    use super::{Lawful, Machine, Time};
    use crate::time::Instant;

    /// Breaks the law that the test chooses.
    struct Outlaw {
        deadline: Option<Instant>,
        talks: bool,
    }

    impl Machine for Outlaw {
        type Input<'a> = ();
        type Action = ();

        fn handle(&mut self, _: Time, (): (), _: &mut Vec<()>) {}

        fn tick(&mut self, _: Time, out: &mut Vec<()>) {
            if self.talks {
                out.push(());
            }
        }

        fn deadline(&self) -> Option<Instant> {
            self.deadline
        }
    }

    fn outlaw(deadline: Option<Instant>, talks: bool) -> Lawful<Outlaw> {
        let mut lawful = Lawful::new(Outlaw { deadline: Some(Instant::ZERO), talks });
        lawful.machine.deadline = deadline;
        lawful
    }

    #[test]
    #[should_panic(expected = "law 1")]
    fn time_may_not_go_back() {
        let mut lawful = outlaw(None, false);
        lawful.tick(Instant::from_millis(2).into(), &mut Vec::new());
        lawful.tick(Instant::from_millis(1).into(), &mut Vec::new());
    }

    #[test]
    #[should_panic(expected = "law 2")]
    fn a_deadline_may_not_stay_in_the_past() {
        outlaw(Some(Instant::ZERO), false).tick(Instant::from_millis(1).into(), &mut Vec::new());
    }

    #[test]
    #[should_panic(expected = "law 3")]
    fn an_early_tick_may_not_emit() {
        outlaw(Some(Instant::from_millis(9)), true).tick(Time::ZERO, &mut Vec::new());
    }

    #[test]
    #[should_panic(expected = "law 3")]
    fn a_new_machine_must_be_due() {
        Lawful::new(Outlaw { deadline: None, talks: false });
    }
}
