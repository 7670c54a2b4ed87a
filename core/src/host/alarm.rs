//! When the machines of a client are due: the topology, and each pool.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use super::server::Server;
use super::suspension::{Step, Suspension};
use super::sync::Mutex;
use super::{Runtime, lock};
use crate::time::Instant;

/// When the machines of a client are due; the runtime is told the earliest deadline only.
///
/// Its lock is taken inside those of the machines, so that what the runtime was told last is true.
pub(super) struct Alarm<R: Runtime>(Mutex<State<R>>);

struct State<R: Runtime> {
    topology: Option<Instant>,
    pools: BTreeMap<u64, (Instant, Weak<Server<R>>)>,
    order: BTreeSet<(Instant, u64)>,
    /// The deadline that the runtime was last told.
    armed: Option<Instant>,
    /// While deadlines are not judged because the process seems to have been stopped.
    suspension: Option<Suspension>,
    /// The number of the last sweep.
    last_sweep: u64,
}

impl<R: Runtime> Alarm<R> {
    pub(super) fn new() -> Self {
        let (pools, order) = (BTreeMap::new(), BTreeSet::new());
        Self(Mutex::new(State {
            // A new machine is due at once, which a runtime knows.
            topology: Some(Instant::ZERO),
            pools,
            order,
            armed: Some(Instant::ZERO),
            suspension: None,
            last_sweep: 0,
        }))
    }

    /// Says what a ring means.
    pub(super) fn step(&self, runtime: &R, now: Instant) -> Step {
        let mut state = lock(&self.0);
        let (due, sweep) = (state.earliest(), state.last_sweep + 1);
        let step = Suspension::step(&mut state.suspension, now, due, sweep);
        match step {
            Step::Sweep(sweep) => {
                state.last_sweep = sweep;
                state.rearm(runtime);
            }
            Step::Wait => state.rearm(runtime),
            // Once they are judged.
            Step::Judge => {}
        }
        step
    }

    /// What had arrived was read: if that is still waited for, the runtime is to ring.
    pub(super) fn end_sweep(&self, runtime: &R, number: u64) {
        let mut state = lock(&self.0);
        if let Some(Suspension::Swept { sweep, until, .. }) = &mut state.suspension
            && *sweep == number
        {
            *until = runtime.now().min(*until);
            state.rearm(runtime);
        }
    }

    /// Tells the runtime the earliest deadline, if it does not know it yet.
    pub(super) fn rearm(&self, runtime: &R) {
        lock(&self.0).rearm(runtime);
    }

    /// The topology is due at `deadline`.
    pub(super) fn set_topology(&self, runtime: &R, deadline: Option<Instant>) {
        let mut state = lock(&self.0);
        state.topology = deadline;
        state.rearm(runtime);
    }

    /// The pool of a server is due at `deadline`.
    pub(super) fn set_pool(&self, server: &Server<R>, deadline: Option<Instant>) {
        let mut state = lock(&self.0);
        let key = server.key();
        if let Some((due, _)) = state.pools.remove(&key) {
            state.order.remove(&(due, key));
        }
        if let Some(due) = deadline {
            state.pools.insert(key, (due, server.weak()));
            state.order.insert((due, key));
        }
        state.rearm(server.runtime());
    }

    /// Returns whether the topology is due, and whose pools are.
    pub(super) fn due(&self, now: Instant) -> (bool, Vec<Arc<Server<R>>>) {
        let mut state = lock(&self.0);
        let mut servers = Vec::new();
        while let Some(&(due, key)) = state.order.first().filter(|(due, _)| *due <= now) {
            state.order.remove(&(due, key));
            servers.extend(state.pools.remove(&key).and_then(|(_, server)| server.upgrade()));
        }
        (state.topology.is_some_and(|due| due <= now), servers)
    }
}

impl<R: Runtime> State<R> {
    fn earliest(&self) -> Option<Instant> {
        let pool = self.order.first().map(|&(due, _)| due);
        [self.topology, pool].into_iter().flatten().min()
    }

    fn rearm(&mut self, runtime: &R) {
        let earliest = self.suspension.map(Suspension::until).or_else(|| self.earliest());
        if earliest != self.armed {
            self.armed = earliest;
            runtime.alarm(earliest);
        }
    }
}
