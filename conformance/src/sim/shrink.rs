//! Shrinking: a simulation that fails is reduced while it still fails in the same way.

use std::fmt;
use std::time::Duration;

use super::checks::Violation;
use super::run::{Case, Failure};
use super::trace::Observed;
use crate::minimize::minimize;

/// How many simulations a shrinking takes at most.
const MAX_RUNS: usize = 2_000;

/// How large a simulation that fails is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Size {
    /// How many faults there are.
    pub faults: usize,
    /// How many clients there are, besides those that are forked off.
    pub clients: usize,
    /// How many times something happens until it fails.
    pub steps: u64,
    /// After how much virtual time it fails.
    pub time: Duration,
}

/// What a failing simulation was reduced to.
#[derive(Debug)]
#[non_exhaustive]
pub struct Shrunk {
    /// What the whole simulation fails with.
    pub original: Failure,
    /// What the reduced one fails with.
    pub failure: Failure,
    /// The size of the whole simulation.
    pub before: Size,
    /// The size of the reduced one.
    pub after: Size,
    /// The faults that are left, in words.
    pub faults: Vec<String>,
    /// How many simulations it took.
    pub runs: usize,
}

/// Reduces a simulation that fails while it still fails in the same way: with a violation of the
/// same check or, where it panics, with a message that begins alike. `None` if it does not fail.
///
/// Faults go first, then clients; then the time in which operations begin gets short, and each
/// fault that is left, as long as that takes no more steps.
pub fn shrink(case: &Case) -> Option<Shrunk> {
    let original = *case.run().err()?;
    let mut search = Search::new(case, original.clone());
    let before = search.size();
    loop {
        let best = search.best.clone();
        search.drop_faults();
        search.drop_clients();
        search.shorten_work();
        search.shorten_faults();
        search.calm_sooner();
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

/// The smallest simulation so far that fails.
struct Search {
    best: Failure,
    clients: Vec<usize>,
    faults: Vec<usize>,
    runs: usize,
}

impl Search {
    fn new(case: &Case, best: Failure) -> Self {
        let (plan, _) = case.plan();
        let clients = 0..plan.clients.len();
        let faults = 0..plan.faults.len();
        Self {
            best,
            clients: clients.filter(|it| plan.reduction.has_client(*it)).collect(),
            faults: faults.filter(|it| plan.reduction.has_fault(*it)).collect(),
            runs: 1,
        }
    }

    fn size(&self) -> Size {
        let Failure { steps, at: time, .. } = self.best;
        Size { faults: self.faults.len(), clients: self.clients.len(), steps, time }
    }

    /// Simulates the best case with a change, which is kept if it still fails, within as many steps
    /// if that is asked for.
    fn attempt(&mut self, in_fewer_steps: bool, change: impl FnOnce(&mut Case)) -> bool {
        let mut case = self.best.case.clone();
        change(&mut case);
        if self.runs >= MAX_RUNS || case.reduction == self.best.case.reduction {
            return false;
        }
        self.runs += 1;
        let Err(failure) = case.simulate(Observed::Nothing) else { return false };
        let counts = is_alike(&failure.violation, &self.best.violation)
            && (!in_fewer_steps || failure.steps <= self.best.steps);
        if counts {
            self.best = *failure;
        }
        counts
    }

    fn drop_faults(&mut self) {
        let all = self.faults.clone();
        self.faults = minimize(&all, |some| {
            self.attempt(false, |case| {
                case.reduction.faults = Some(some.to_vec());
                case.reduction.lasting.retain(|fault, _| some.contains(fault));
            })
        });
    }

    fn drop_clients(&mut self) {
        let all = self.clients.clone();
        self.clients = minimize(&all, |some| {
            self.attempt(false, |case| case.reduction.clients = Some(some.to_vec()))
        });
    }

    /// Operations begin in no more time than necessary: none at all, or else from as late as
    /// possible until as soon as possible.
    fn shorten_work(&mut self) {
        let failed = u64::try_from(self.best.at.as_millis()).unwrap_or(u64::MAX).saturating_add(1);
        let (from, to) = self.best.case.reduction.work.unwrap_or((0, failed));
        let to = to.min(failed);
        if self.attempt(true, |case| case.reduction.work = Some((0, 0))) {
            return;
        }
        let latest = bisect(from, to, |from| {
            self.attempt(true, |case| case.reduction.work = Some((from, to)))
        });
        bisect(to, latest, |to| {
            self.attempt(true, |case| case.reduction.work = Some((latest, to)))
        });
    }

    /// Each fault lasts no longer than necessary.
    fn shorten_faults(&mut self) {
        for fault in self.faults.clone() {
            let lasts = self.best.case.plan().0.faults[fault].lasts();
            bisect(u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX), 0, |millis| {
                self.attempt(true, |case| {
                    case.reduction.lasting.insert(fault, millis);
                })
            });
        }
    }

    /// What has to come right does so from the end of the last fault.
    fn calm_sooner(&mut self) {
        let plan = self.best.case.plan().0;
        let last = self.faults.iter().map(|fault| plan.faults[*fault].ends.since_origin()).max();
        let last = last.unwrap_or_default().as_millis().saturating_add(1);
        let calm = u64::try_from(last).unwrap_or(u64::MAX);
        if Duration::from_millis(calm) < plan.calm.since_origin() {
            self.attempt(true, |case| case.reduction.calm = Some(calm));
        }
    }

    /// Tells the faults that are left.
    fn remaining(&self) -> Vec<String> {
        let (plan, _) = self.best.case.plan();
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
