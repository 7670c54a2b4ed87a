//! Shrinking: a simulation that fails is reduced while it still fails in the same way.

use std::fmt;
use std::time::Duration;

use super::checks::Violation;
use super::fault::Fault;
use super::reduction::Reduction;
use super::run::{Case, Failure};
use super::schedule::{Schedule, millis};
use super::trace::Observed;
use sdam_core::time::Instant;
use sdam_core::trace::minimize;

/// The number of simulations that a shrinking takes at most.
const MAX_RUNS: usize = 2_000;

/// The number of earlier times that are tried at once, and how many milliseconds are between two at
/// least.
const TRIES: u64 = 16;
const FINEST: u64 = 10;

/// The parts of a simulation that can be left out.
#[derive(Clone, Debug)]
pub(super) struct Outline {
    pub(super) clients: usize,
    pub(super) faults: Vec<Fault>,
    /// The time when all faults have ended.
    pub(super) calm: Instant,
}

/// The size of a simulation that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Size {
    /// The number of faults that there are.
    pub faults: usize,
    /// The number of clients that there are, besides those that are forked off.
    pub clients: usize,
    /// The number of times that something happens until it fails.
    pub steps: u64,
    /// After how much virtual time it fails.
    pub time: Duration,
}

/// The reduced form of a failing simulation.
#[derive(Debug)]
#[non_exhaustive]
pub struct Shrunk {
    /// The failure of the whole simulation.
    pub original: Failure,
    /// The failure of the reduced one.
    pub failure: Failure,
    /// The size of the whole simulation.
    pub before: Size,
    /// The size of the reduced one.
    pub after: Size,
    /// The faults that are left, in words.
    pub faults: Vec<String>,
    /// The number of simulations that it took.
    pub runs: usize,
}

/// Reduces a simulation that fails while it still fails in the same way: with a violation of the
/// same check or, where it panics, with a message that begins alike. `None` if it does not fail.
///
/// Faults go first, then clients. Then time is taken out in which nothing needs to happen; and at
/// last the time in which operations begin gets short, and each fault that is left. All of it is
/// repeated until nothing gets smaller any more.
pub fn shrink(case: &Case) -> Option<Shrunk> {
    let original = *case.run().err()?;
    let mut search = Search::new(case, original.clone());
    let before = search.size();
    loop {
        let best = search.best.clone();
        // What comes late goes first, so that nothing else of the same kind fails later instead.
        for by in [By::NoLater, By::AnyTime] {
            search.drop_faults(by);
            search.drop_clients(by);
        }
        search.close_sooner();
        // While faults last long and operations are many, those can come sooner and still meet.
        search.take_out_time();
        search.shorten_work();
        search.shorten_faults();
        if search.best.case.reduction == best.case.reduction || search.runs >= MAX_RUNS {
            break;
        }
    }
    let after = search.size();
    let failure = search.best.case.run().err().map_or(search.best.clone(), |again| *again);
    let faults = search.remaining();
    Some(Shrunk { original, failure, before, after, faults, runs: search.runs })
}

/// Returns whether two simulations fail in the same way.
fn is_alike(one: &Violation, other: &Violation) -> bool {
    // A panic begins with what has broken: `law 2: …`, `index out of bounds: …`.
    let beginning = |it: &Violation| it.detail.split(':').next().map(str::to_owned);
    one.check == other.check
        && (one.check != Violation::PANIC || beginning(one) == beginning(other))
}

/// The condition under which another simulation that fails counts as a smaller one.
#[derive(Clone, Copy, Debug)]
enum By {
    AnyTime,
    NoLater,
    Sooner,
}

/// The smallest simulation so far that fails.
struct Search {
    best: Failure,
    clients: Vec<usize>,
    faults: Vec<usize>,
    runs: usize,
}

impl Search {
    fn new(case: &Case, best: Failure) -> Self {
        let (plan, reduction) = (case.outline(), &case.reduction);
        let (clients, faults) = (0..plan.clients, 0..plan.faults.len());
        Self {
            best,
            clients: clients.filter(|it| reduction.has_client(*it)).collect(),
            faults: faults.filter(|it| reduction.has_fault(*it)).collect(),
            runs: 1,
        }
    }

    fn size(&self) -> Size {
        let Failure { steps, at: time, .. } = self.best;
        Size { faults: self.faults.len(), clients: self.clients.len(), steps, time }
    }

    /// Simulates the best case with another reduction, which is kept if it still fails, and not
    /// too late.
    fn attempt(&mut self, by: By, change: impl FnOnce(&mut Reduction)) -> bool {
        let mut case = self.best.case.clone();
        change(&mut case.reduction);
        if self.runs >= MAX_RUNS || case.reduction == self.best.case.reduction {
            return false;
        }
        self.runs += 1;
        let latest = match by {
            By::AnyTime => Duration::MAX,
            By::NoLater => self.best.at,
            By::Sooner => self.best.at.saturating_sub(Duration::from_nanos(1)),
        };
        let Err(failure) = case.simulate(Observed::Nothing, latest) else { return false };
        let counts = failure.at <= latest && is_alike(&failure.violation, &self.best.violation);
        if counts {
            self.best = *failure;
        }
        counts
    }

    fn drop_faults(&mut self, by: By) {
        let all = self.faults.clone();
        self.faults = minimize(&all, |some| {
            self.attempt(by, |it| {
                it.faults = Some(some.to_vec());
                it.beginning.retain(|fault, _| some.contains(fault));
                it.lasting.retain(|fault, _| some.contains(fault));
            })
        });
    }

    fn drop_clients(&mut self, by: By) {
        let all = self.clients.clone();
        self.clients =
            minimize(&all, |some| self.attempt(by, |it| it.clients = Some(some.to_vec())));
    }

    /// Operations begin in no more time than necessary: none at all, or else from as late as
    /// possible until as soon as possible.
    fn shorten_work(&mut self) {
        let failed = millis(self.best.at).saturating_add(1);
        let (from, to) = self.best.case.reduction.work.unwrap_or((0, failed));
        let to = to.min(failed);
        if self.attempt(By::NoLater, |it| it.work = Some((0, 0))) {
            return;
        }
        let latest =
            bisect(from, to, |from| self.attempt(By::NoLater, |it| it.work = Some((from, to))));
        bisect(to, latest, |to| self.attempt(By::NoLater, |it| it.work = Some((latest, to))));
    }

    /// Each fault lasts no longer than necessary.
    fn shorten_faults(&mut self) {
        for fault in self.faults.clone() {
            let lasts = millis(self.best.case.outline().faults[fault].lasts());
            bisect(lasts, 0, |lasts| {
                self.attempt(By::NoLater, |it| {
                    it.lasting.insert(fault, lasts);
                })
            });
        }
    }

    /// Clients are closed as soon as possible after all faults, if it fails after that.
    fn close_sooner(&mut self) {
        let calm = Schedule::of(&self.best.case, &[]).calm();
        let failed = millis(self.best.at);
        if calm < failed {
            bisect(failed, calm, |close| self.attempt(By::Sooner, |it| it.close = Some(close)));
        }
    }

    /// Takes out time, wherever that goes: between any two times at which something begins or ends,
    /// as much as possible, so that all that comes later comes sooner.
    fn take_out_time(&mut self) {
        let mut from = 0;
        loop {
            let schedule = Schedule::of(&self.best.case, &self.faults);
            let failed = millis(self.best.at);
            let Some(to) = schedule.next_after(from).filter(|_| from < failed) else { return };
            from = earliest(to, from, |earlier| {
                self.attempt(By::Sooner, |it| schedule.hasten(to, earlier, it))
            });
        }
    }

    /// Lists the faults that are left.
    fn remaining(&self) -> Vec<String> {
        let plan = self.best.case.outline();
        let told =
            self.faults.iter().map(|fault| format!("fault {fault}: {}", plan.faults[*fault]));
        told.collect()
    }
}

/// Goes from a number that will do as far towards another one as will do; returns where it ends.
fn bisect(good: u64, end: u64, mut will_do: impl FnMut(u64) -> bool) -> u64 {
    if good == end || will_do(end) {
        return end;
    }
    let (mut good, mut bad) = (good, end);
    // Finer than that is of no use to anybody.
    while good.abs_diff(bad) > 1 + good.max(bad) / 64 {
        let middle = good.midpoint(bad);
        *(if will_do(middle) { &mut good } else { &mut bad }) = middle;
    }
    good
}

/// Goes from a time that will do towards an earlier one. Where that has to meet something that
/// happens now and then, one time will do and the next will not, so that many are tried.
fn earliest(mut good: u64, end: u64, mut will_do: impl FnMut(u64) -> bool) -> u64 {
    while good > end {
        let step = (good - end).div_ceil(TRIES).max(FINEST);
        let mut earlier = (0..TRIES).map(|index| end + index * step).take_while(|it| *it < good);
        match earlier.find(|it| will_do(*it)) {
            Some(found) => good = found,
            None => break,
        }
    }
    good
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { faults, clients, steps, time } = self;
        let seconds = time.as_secs_f64();
        write!(f, "{faults} faults, {clients} clients, {steps} steps, {seconds:.3} s")
    }
}

impl fmt::Display for Shrunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { failure, before, after, faults, runs, .. } = self;
        writeln!(f, "{failure}")?;
        writeln!(f, "before: {before}")?;
        write!(f, "after:  {after}, in {runs} simulations")?;
        faults.iter().try_for_each(|fault| write!(f, "\n  {fault}"))
    }
}

#[cfg(test)]
#[path = "shrink/tests.rs"]
mod tests;
