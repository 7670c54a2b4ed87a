//! When the machines of a client are due: the topology, and each pool.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, Weak};

use super::server::Server;
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
        }))
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
    fn rearm(&mut self, runtime: &R) {
        let pool = self.order.first().map(|&(due, _)| due);
        let earliest = [self.topology, pool].into_iter().flatten().min();
        if earliest != self.armed {
            self.armed = earliest;
            runtime.alarm(earliest);
        }
    }
}
