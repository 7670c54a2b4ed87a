//! The search: breadth first, each world once.

use std::fmt;
use std::num::NonZero;
use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sdam_core::config::Options;

use super::known::{Known, Spent};
use super::step::WorldStep;
use super::walk::{Found, Map, Node, Walker, Wrong, guard, path};
use super::world::World;
use crate::sim::Violation;

/// More worlds than are remembered: some 100 bytes each.
const MOST_STATES: usize = 50_000_000;

/// The number of worlds that one walk visits.
const WALK: usize = 256;

/// The number of walks that there are before what they have found is put together.
const WALKS: usize = 64;

/// The limits of a search.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// The number of faults that there are on a path at most, up to [`Limits::MOST`].
    pub faults: u8,
    /// The number of steps that a path has at most.
    pub steps: u8,
    /// The number of steps that are out of turn at most, up to [`Limits::MOST`]; without a number,
    /// all may be. In turn is what arrives on the oldest link, and if nothing is under way the next
    /// timer.
    pub delays: Option<u8>,
    /// The time to stop, complete or not.
    pub time: Option<Duration>,
    /// True if servers stream what is new, or clients poll.
    pub streaming: bool,
}

impl Limits {
    /// More faults, or steps out of turn, are not counted.
    pub const MOST: u8 = Spent::MOST;

    /// Allows so many faults and steps, in any order, for as long as it takes, with servers that
    /// are polled.
    pub const fn new(faults: u8, steps: u8) -> Self {
        Self { faults, steps, delays: None, time: None, streaming: false }
    }

    /// Replaces [`faults`](Self::faults).
    #[must_use]
    pub const fn with_faults(mut self, faults: u8) -> Self {
        self.faults = faults;
        self
    }

    /// Replaces [`delays`](Self::delays).
    #[must_use]
    pub const fn with_delays(mut self, delays: Option<u8>) -> Self {
        self.delays = delays;
        self
    }

    /// Replaces [`time`](Self::time).
    #[must_use]
    pub const fn with_time(mut self, time: Option<Duration>) -> Self {
        self.time = time;
        self
    }

    /// Replaces [`streaming`](Self::streaming).
    #[must_use]
    pub const fn with_streaming(mut self, streaming: bool) -> Self {
        self.streaming = streaming;
        self
    }

    /// Returns what is spent after a step, `None` if that would be too much; `next` is the step
    /// that would be in turn.
    pub(super) fn spend(&self, spent: Spent, step: WorldStep, next: WorldStep) -> Option<Spent> {
        let is_fault = matches!(step, WorldStep::Fault(_));
        let is_late = matches!(step, WorldStep::Arrive(_) | WorldStep::Time) && step != next;
        let faults = spent.faults + u8::from(is_fault);
        let delays = spent.delays + u8::from(is_late && self.delays.is_some());
        let most_delays = self.delays.unwrap_or_default().min(Self::MOST);
        let is_allowed = faults <= self.faults.min(Self::MOST) && delays <= most_delays;
        is_allowed.then_some(Spent { faults, delays })
    }
}

/// The result of a search.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The limits that it was given.
    pub limits: Limits,
    /// The number of different worlds that there are.
    pub states: u64,
    /// The number of steps that led from one world to another.
    pub transitions: u64,
    /// The number of them that led to a world that was known.
    pub merged: u64,
    /// Up to how many steps all worlds were explored.
    pub depth: u8,
    /// The time that it took.
    pub took: Duration,
    /// The violation, and the steps that led to it.
    pub violation: Option<(Violation, Vec<String>)>,
}

impl Report {
    /// Returns whether every path within the limits was taken.
    pub const fn is_complete(&self) -> bool {
        self.depth == self.limits.steps && self.violation.is_none()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limits, states, transitions, merged, depth, took, .. } = self;
        write!(
            f,
            "{} faults, {depth} of {} steps{}, {}: {states} states, {transitions} transitions, \
             {merged} merged, in {:.1} s",
            limits.faults,
            limits.steps,
            limits.delays.map_or_else(String::new, |delays| format!(", {delays} out of turn")),
            if limits.streaming { "streaming" } else { "polling" },
            took.as_secs_f64()
        )?;
        let Some((violation, path)) = &self.violation else { return Ok(()) };
        write!(f, "\n{violation}")?;
        path.iter().enumerate().try_for_each(|(index, step)| write!(f, "\n{:4} {step}", index + 1))
    }
}

struct Search {
    report: Report,
    began: Instant,
    roots: Vec<World>,
    nodes: Vec<Node>,
    known: Known,
    /// One for each thread.
    walkers: Vec<Walker>,
}

/// Takes every path within the limits, on all processors.
///
/// How the work is divided changes nothing in what is found, but for the time that it takes.
///
/// # Panics
///
/// Never, if the options of the small world are valid, which they are.
pub fn search(limits: Limits) -> Report {
    let mode = if limits.streaming { "auto" } else { "poll" };
    let uri = format!("mongodb://a,b,c/?replicaSet=rs&serverMonitoringMode={mode}");
    let options = Arc::new(Options::parse(&uri).expect("the options are valid"));
    let report = Report {
        limits,
        states: 0,
        transitions: 0,
        merged: 0,
        depth: 0,
        took: Duration::ZERO,
        violation: None,
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let mut search = Search {
        report,
        began: Instant::now(),
        roots: Vec::new(),
        nodes: Vec::new(),
        known: Known::default(),
        walkers: (0..threads).map(|_| Walker::default()).collect(),
    };
    let wrong = search.begin(&options).and_then(|()| search.run());
    search.report.violation = wrong.err().map(|(violation, node, last)| {
        let told = if search.nodes.is_empty() { Vec::new() } else { search.input(node) };
        (violation, told.into_iter().chain(last.map(|step| step.to_string())).collect())
    });
    search.report.states = search.known.len() as u64;
    search.report.took = search.began.elapsed();
    search.report
}

impl Search {
    /// Two beginnings: a client that knows nothing, and one that knows everything.
    fn begin(&mut self, options: &Arc<Options>) -> Result<(), Wrong> {
        let mut settled = World::new(options).map_err(|violation| (violation, 0, None))?;
        self.roots.push(settled.clone());
        guard(|| settled.settle()).map_err(|violation| (violation, 0, None))?;
        self.roots.push(settled);
        for (from, root) in (0..).zip(&self.roots) {
            self.known.insert(root.digest(), Spent::default());
            self.nodes.push(Node { from, step: None, spent: Spent::default() });
        }
        Ok(())
    }

    /// Goes on layer by layer; what is wrong before a step is found before what a step does wrong.
    fn run(&mut self) -> Result<(), Wrong> {
        let mut layer = 0..self.nodes.len();
        for depth in 0..=self.report.limits.steps {
            let goes_on = depth < self.report.limits.steps;
            let mut wrong: Option<Wrong> = None;
            for from in layer.clone().step_by(WALK * WALKS) {
                let is_late = self.report.limits.time.is_some_and(|it| self.began.elapsed() >= it);
                if is_late || self.nodes.len() >= MOST_STATES {
                    return wrong.map_or(Ok(()), Err);
                }
                let found = self.visit(from..layer.end.min(from + WALK * WALKS), goes_on);
                self.merge(found, &mut wrong);
            }
            wrong.map_or(Ok(()), Err)?;
            self.report.depth = depth;
            layer = layer.end..self.nodes.len();
        }
        Ok(())
    }

    /// Walks through some worlds on all threads; what was found comes in their order.
    fn visit(&mut self, worlds: Range<usize>, goes_on: bool) -> Vec<Found> {
        let (roots, nodes, known) = (&self.roots, &self.nodes, &self.known);
        let map = Map { limits: self.report.limits, roots, nodes, known, goes_on };
        let (map, walks, next) = (&map, worlds.len().div_ceil(WALK), &AtomicUsize::new(0));
        let work = |walker: &mut Walker| {
            let mut found = Vec::new();
            loop {
                let walk = next.fetch_add(1, Ordering::Relaxed);
                if walk >= walks {
                    return found;
                }
                let from = worlds.start + walk * WALK;
                found.push((walk, walker.walk(map, from..worlds.end.min(from + WALK))));
            }
        };
        let mut found: Vec<(usize, Found)> = thread::scope(|scope| {
            let threads: Vec<_> =
                self.walkers.iter_mut().map(|walker| scope.spawn(|| work(walker))).collect();
            // Neither what a thread has found nor the worlds it did not reach are lost silently.
            let joined =
                threads.into_iter().map(|it| it.join().unwrap_or_else(|it| resume_unwind(it)));
            joined.flatten().collect()
        });
        found.sort_by_key(|(walk, _)| *walk);
        found.into_iter().map(|(_, found)| found).collect()
    }

    /// Remembers the worlds that are news, and what is wrong if its path is the shortest so far.
    fn merge(&mut self, found: Vec<Found>, wrong: &mut Option<Wrong>) {
        for found in found {
            self.report.transitions += found.transitions;
            self.report.merged += found.merged;
            for (digest, node) in found.worlds {
                match self.known.insert(digest, node.spent) {
                    true => self.nodes.push(node),
                    false => self.report.merged += 1,
                }
            }
            if let Some(other) = found.violation
                && wrong.as_ref().is_none_or(|it| it.2.is_some() && other.2.is_none())
            {
                *wrong = Some(other);
            }
        }
    }

    /// Describes how a world was reached.
    fn input(&self, index: usize) -> Vec<String> {
        let way = path(&self.nodes, index);
        let root = way.last().map_or(0, |root| self.nodes[*root].from);
        let known = if root == 0 { "nothing" } else { "everything" };
        let steps = way.iter().rev().filter_map(|index| self.nodes[*index].step);
        let steps = steps.map(|step| step.to_string());
        std::iter::once(format!("a client knows {known}")).chain(steps).collect()
    }
}
