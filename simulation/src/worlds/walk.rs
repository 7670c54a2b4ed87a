//! A walk through a part of a layer: each of its worlds is built, checked, and every step taken.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::known::{Known, Spent};
use super::laws::Finding;
use super::rest::Rest;
use super::search::Limits;
use super::step::WorldStep;
use super::world::World;
use crate::sim::Violation;

/// The way by which a world is reached.
#[derive(Clone, Copy)]
pub(super) struct Node {
    /// The world before it, or which of the beginnings this is.
    pub(super) from: u32,
    pub(super) step: Option<WorldStep>,
    pub(super) spent: Spent,
}

/// The state before a layer is walked through.
#[derive(Clone, Copy)]
pub(super) struct Map<'a> {
    pub(super) limits: Limits,
    pub(super) roots: &'a [World],
    pub(super) nodes: &'a [Node],
    pub(super) known: &'a Known,
    /// True if paths go on from this layer.
    pub(super) goes_on: bool,
}

/// The result of a walk.
#[derive(Default)]
pub(super) struct Found {
    /// Worlds that were not known before it, some more than once.
    pub(super) worlds: Vec<(u128, Node)>,
    pub(super) transitions: u64,
    pub(super) merged: u64,
    pub(super) violation: Option<Wrong>,
}

/// A violation, and the world in which or the step after which it holds.
pub(super) type Wrong = (Violation, usize, Option<WorldStep>);

/// Goes from world to world.
#[derive(Default)]
pub(super) struct Walker {
    /// The way to the last world: neighbours have most of theirs in common, so that to go it again
    /// takes few steps, and no memory.
    way: Vec<(usize, World)>,
    rest: Rest,
}

impl Walker {
    /// Visits some worlds of one layer, up to the first violation.
    pub(super) fn walk(&mut self, map: &Map<'_>, worlds: std::ops::Range<usize>) -> Found {
        let mut found = Found::default();
        for index in worlds {
            if let Err((violation, step)) = self.visit(map, index, &mut found) {
                found.violation = Some((violation, index, step));
                break;
            }
        }
        found
    }

    fn visit(
        &mut self,
        map: &Map<'_>,
        index: usize,
        found: &mut Found,
    ) -> Result<(), (Violation, Option<WorldStep>)> {
        self.go_to(map, index);
        let Some((_, world)) = self.way.last() else { return Ok(()) };
        let at_rest = guard(|| self.rest.check(world));
        at_rest.and_then(|()| guard(|| world.clone().shut_down())).map_err(|it| (it, None))?;
        if !map.goes_on {
            return Ok(());
        }
        let next = world.next();
        for step in world.steps() {
            let Some(spent) = map.limits.spend(map.nodes[index].spent, step, next) else {
                continue;
            };
            let mut world = world.clone();
            guard(|| world.take(step)).map_err(|violation| (violation, Some(step)))?;
            found.transitions += 1;
            let digest = world.digest();
            if map.known.contains(digest, spent) {
                found.merged += 1;
                continue;
            }
            let from = u32::try_from(index).unwrap_or(u32::MAX);
            found.worlds.push((digest, Node { from, step: Some(step), spent }));
        }
        Ok(())
    }

    /// Builds a world: from the last one that its way has in common with the way to the world
    /// before.
    fn go_to(&mut self, map: &Map<'_>, index: usize) {
        let mut way = path(map.nodes, index);
        way.reverse();
        let common = way.iter().zip(&self.way).take_while(|(new, (old, _))| **new == *old).count();
        self.way.truncate(common);
        for &index in &way[common..] {
            let node = map.nodes[index];
            let world = match (node.step, self.way.last()) {
                (Some(step), Some((_, before))) => {
                    let mut world = before.clone();
                    // It went well the first time.
                    let _ = world.take(step);
                    world
                }
                _ => map.roots[node.from as usize].clone(),
            };
            self.way.push((index, world));
        }
    }
}

/// Returns a world and those on the way to it, the last first.
pub(super) fn path(nodes: &[Node], index: usize) -> Vec<usize> {
    let before = |index: &usize| {
        let node = nodes[*index];
        node.step.map(|_| node.from as usize)
    };
    std::iter::successors(Some(index), before).collect()
}

/// Takes a panic, by which a law of machines makes itself heard, for a violation.
pub(super) fn guard(act: impl FnOnce() -> Finding) -> Finding {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let detail = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
        Err(Violation { check: "machines do not panic", detail: detail.unwrap_or_default() })
    })
}
