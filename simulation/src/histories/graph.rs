//! The dependencies between transactions, and the cycles among them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Anomaly, CycleKind, Dependency};

/// The transactions that come before others.
#[derive(Clone, Debug, Default)]
pub(super) struct Graph(BTreeMap<usize, Vec<(Dependency, usize)>>);

impl Dependency {
    const fn is_of_writes(self) -> bool {
        matches!(self, Self::Writes(_))
    }

    const fn is_of_information(self) -> bool {
        matches!(self, Self::Writes(_) | Self::Reads(_))
    }
}

impl Graph {
    /// Adds that one transaction comes before another; none comes before itself.
    pub(super) fn add(&mut self, before: usize, dependency: Dependency, after: usize) {
        let edges = self.0.entry(before).or_default();
        if before != after && !edges.contains(&(dependency, after)) {
            edges.push((dependency, after));
        }
    }

    /// Returns the first cycle that isolation forbids: one of writes, one of information, or one
    /// with a single transaction that misses something.
    pub(super) fn check(&self) -> Result<(), Anomaly> {
        let (of_writes, of_information) = (Dependency::is_of_writes, Dependency::is_of_information);
        self.find(CycleKind::Writes, of_writes, of_writes)?;
        self.find(CycleKind::Information, of_information, of_information)?;
        self.find(CycleKind::Single, |it| !of_information(it), of_information)
    }

    /// Looks for a cycle whose first step is of one kind, and the others are of another.
    fn find(
        &self,
        kind: CycleKind,
        is_first: impl Fn(Dependency) -> bool,
        is_other: impl Fn(Dependency) -> bool,
    ) -> Result<(), Anomaly> {
        for (before, edges) in &self.0 {
            for (dependency, after) in edges.iter().filter(|(dependency, _)| is_first(*dependency))
            {
                if let Some(back) = self.path(*after, *before, &is_other) {
                    let steps = std::iter::once((*before, *dependency)).chain(back).collect();
                    return Err(Anomaly::Cycle { kind, steps });
                }
            }
        }
        Ok(())
    }

    /// Returns a shortest path.
    fn path(
        &self,
        from: usize,
        to: usize,
        is_allowed: impl Fn(Dependency) -> bool,
    ) -> Option<Vec<(usize, Dependency)>> {
        let (mut reached, mut queue) = (BTreeMap::new(), VecDeque::from([from]));
        let mut known = BTreeSet::from([from]);
        while let Some(at) = queue.pop_front() {
            let edges = self.0.get(&at).into_iter().flatten();
            for (dependency, next) in edges.filter(|(dependency, _)| is_allowed(*dependency)) {
                if known.insert(*next) {
                    reached.insert(*next, (at, *dependency));
                    queue.push_back(*next);
                }
            }
        }
        let mut steps = VecDeque::new();
        let mut at = to;
        while at != from {
            let step @ (before, _) = *reached.get(&at)?;
            steps.push_front(step);
            at = before;
        }
        Some(steps.into())
    }
}
