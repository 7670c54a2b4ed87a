//! The search: breadth first, each world once.

use std::collections::HashSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sdam_core::options::Options;

use super::laws::Finding;
use super::step::Step;
use super::world::World;
use crate::sim::Violation;

/// More worlds than are remembered: some 60 bytes each.
const MOST_STATES: usize = 100_000_000;

/// How far a search goes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How many faults there are on a path at most.
    pub faults: u8,
    /// How many steps a path has at most.
    pub steps: u8,
    /// When to stop, complete or not.
    pub time: Option<Duration>,
    /// Whether servers stream what is new, or clients poll.
    pub streaming: bool,
}

/// What a search has found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// How far it was to go.
    pub limits: Limits,
    /// How many different worlds there are.
    pub states: u64,
    /// How many steps led from one world to another.
    pub transitions: u64,
    /// How many of them led to a world that was known.
    pub merged: u64,
    /// How many worlds came to rest at the end of a path.
    pub settled: u64,
    /// Up to how many steps all worlds were explored.
    pub depth: u8,
    /// How long it took.
    pub took: Duration,
    /// What must not be, and how it came about.
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
        let Self { limits, states, transitions, merged, settled, depth, took, .. } = self;
        write!(
            f,
            "{} faults, {depth} of {} steps, {}: {states} states, {transitions} transitions, \
             {merged} merged, {settled} settled, in {:.1} s",
            limits.faults,
            limits.steps,
            if limits.streaming { "streaming" } else { "polling" },
            took.as_secs_f64()
        )?;
        let Some((violation, path)) = &self.violation else { return Ok(()) };
        write!(f, "\n{violation}")?;
        path.iter().enumerate().try_for_each(|(index, step)| write!(f, "\n{:4} {step}", index + 1))
    }
}

/// How a world is reached.
#[derive(Clone, Copy)]
struct Node {
    /// The world before it, or which of the beginnings this is.
    from: u32,
    step: Option<Step>,
    faults: u8,
}

/// A world in which something does not hold, and how it was reached.
type Found = (Violation, usize, Option<Step>);

struct Search {
    report: Report,
    began: Instant,
    roots: Vec<World>,
    nodes: Vec<Node>,
    known: HashSet<u128>,
    text: String,
}

/// Takes every path within the limits.
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
        settled: 0,
        depth: 0,
        took: Duration::ZERO,
        violation: None,
    };
    let mut search = Search {
        report,
        began: Instant::now(),
        roots: Vec::new(),
        nodes: Vec::new(),
        known: HashSet::new(),
        text: String::new(),
    };
    let found = search.begin(&options).and_then(|()| search.run());
    search.report.violation = found.err().map(|(violation, node, last)| {
        let told = if search.nodes.is_empty() { Vec::new() } else { search.tell(node) };
        (violation, told.into_iter().chain(last.map(|step| step.to_string())).collect())
    });
    search.report.took = search.began.elapsed();
    search.report
}

impl Search {
    /// Two beginnings: a client that knows nothing, and one that knows everything.
    fn begin(&mut self, options: &Arc<Options>) -> Result<(), Found> {
        let mut settled = World::new(options).map_err(|violation| (violation, 0, None))?;
        self.roots.push(settled.clone());
        settled.settle().map_err(|violation| (violation, 0, None))?;
        self.roots.push(settled);
        for (from, root) in (0..).zip(self.roots.clone()) {
            self.note(&root, Node { from, step: None, faults: 0 });
        }
        Ok(())
    }

    /// Remembers a world, unless it is known with as many faults.
    fn note(&mut self, world: &World, node: Node) {
        let digest = world.digest(&mut self.text) ^ (u128::from(node.faults) << 120);
        if self.known.insert(digest) {
            self.report.states += 1;
            self.nodes.push(node);
        } else {
            self.report.merged += 1;
        }
    }

    fn run(&mut self) -> Result<(), Found> {
        let mut layer = 0..self.nodes.len();
        for depth in 1..=self.report.limits.steps {
            for index in layer.clone() {
                self.expand(index, depth == self.report.limits.steps)?;
                let is_late = self.report.limits.time.is_some_and(|it| self.began.elapsed() >= it);
                if is_late || self.nodes.len() >= MOST_STATES {
                    return Ok(());
                }
            }
            self.report.depth = depth;
            layer = layer.end..self.nodes.len();
        }
        Ok(())
    }

    /// Takes every step from a world; at the end of a path, lets what comes of it come to rest.
    fn expand(&mut self, index: usize, is_last: bool) -> Result<(), Found> {
        let (world, _) = self.path(index);
        let faults = self.nodes[index].faults;
        for step in world.steps(faults < self.report.limits.faults) {
            let mut next = world.clone();
            guard(|| next.take(step)).map_err(|violation| (violation, index, Some(step)))?;
            self.report.transitions += 1;
            let faults = faults + u8::from(matches!(step, Step::Fault(_)));
            let from = u32::try_from(index).unwrap_or(u32::MAX);
            let before = self.nodes.len();
            self.note(&next, Node { from, step: Some(step), faults });
            if is_last && self.nodes.len() > before {
                guard(|| next.settle().and_then(|()| next.shut_down()))
                    .map_err(|violation| (violation, index, Some(step)))?;
                self.report.settled += 1;
            }
        }
        Ok(())
    }

    /// Tells how a world was reached.
    fn tell(&self, index: usize) -> Vec<String> {
        let mut node = self.nodes[index];
        while node.step.is_some() {
            node = self.nodes[node.from as usize];
        }
        let known = if node.from == 0 { "nothing" } else { "everything" };
        let steps = self.path(index).1.into_iter().map(|step| step.to_string());
        std::iter::once(format!("a client knows {known}")).chain(steps).collect()
    }

    /// Goes the way to a world again: to remember the way takes less than to remember the world.
    fn path(&self, index: usize) -> (World, Vec<Step>) {
        let (mut node, mut steps) = (self.nodes[index], Vec::new());
        while let Some(step) = node.step {
            steps.push(step);
            node = self.nodes[node.from as usize];
        }
        steps.reverse();
        let mut world = self.roots[node.from as usize].clone();
        for step in &steps {
            // It went well the first time.
            let _ = world.take(*step);
        }
        (world, steps)
    }
}

/// Takes a panic, by which a law of machines makes itself heard, for a violation.
fn guard(act: impl FnOnce() -> Finding) -> Finding {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let detail = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
        Err(Violation { check: "machines do not panic", detail: detail.unwrap_or_default() })
    })
}
