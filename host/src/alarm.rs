//! When the machines of a client are due: the topology, and each pool.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use super::server::Server;
use super::suspension::{Step, Suspension};
use super::sync::Mutex;
use super::{Runtime, lock};
use sdam_core::time::Instant;

/// When the machines of a client are due; the runtime is told the earliest deadline only.
///
/// Its lock is taken inside those of the machines; the runtime is told when all are free, by one
/// thread at a time, which looks again afterwards, so that what the runtime was told last is true.
pub(super) struct Alarm<R: Runtime>(Mutex<State<R>>);

struct State<R: Runtime> {
    topology: Option<Instant>,
    pools: BTreeMap<u64, (Instant, Weak<Server<R>>)>,
    order: BTreeSet<(Instant, u64)>,
    /// What the runtime was last told; `None` since it has rung, for then it may have forgotten it,
    /// be it that it has rung too early.
    told: Option<Option<Instant>>,
    /// Whether some thread tells the runtime.
    telling: bool,
    /// Whether the client has ended, so that nothing will be due any more.
    closed: bool,
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
            told: Some(Some(Instant::ZERO)),
            telling: false,
            closed: false,
            suspension: None,
            last_sweep: 0,
        }))
    }

    /// Says what a ring means; afterwards the runtime is to be [told](Self::tell) once more.
    pub(super) fn step(&self, now: Instant) -> Step {
        let mut state = lock(&self.0);
        state.told = None;
        let (due, sweep) = (state.earliest(), state.last_sweep + 1);
        let step = Suspension::step(&mut state.suspension, now, due, sweep);
        if let Step::Sweep(sweep) = step {
            state.last_sweep = sweep;
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
        }
        drop(state);
        self.tell(runtime);
    }

    /// Tells the runtime the earliest deadline, if it does not know it yet; under no other lock.
    pub(super) fn tell(&self, runtime: &R) {
        let mut state = lock(&self.0);
        if std::mem::replace(&mut state.telling, true) {
            // Whoever tells it, this very thread perhaps, looks again.
            return;
        }
        drop(state);
        let telling = Telling(self);
        while let Some(deadline) = telling.next() {
            runtime.alarm(deadline);
        }
        // That it has ended was noted under the lock.
        std::mem::forget(telling);
    }

    /// The topology is due at `deadline`; the runtime is to be [told](Self::tell).
    pub(super) fn set_topology(&self, deadline: Option<Instant>) {
        lock(&self.0).topology = deadline;
    }

    /// The client has ended: nothing will be due any more, which the runtime is to be told even if
    /// it knows of no deadline.
    pub(super) fn close(&self) {
        let mut state = lock(&self.0);
        (state.closed, state.told) = (true, None);
    }

    /// Returns whether the client has ended.
    pub(super) fn is_closed(&self) -> bool {
        lock(&self.0).closed
    }

    /// The pool of a server is due at `deadline`; the runtime is to be [told](Self::tell).
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

    /// Returns when the runtime is to ring.
    fn deadline(&self) -> Option<Instant> {
        match self.closed {
            true => None,
            false => self.suspension.map(Suspension::until).or_else(|| self.earliest()),
        }
    }
}

/// A thread tells the runtime; dropped before it has told everything, because the runtime has
/// panicked, it leaves the rest to others.
struct Telling<'a, R: Runtime>(&'a Alarm<R>);

impl<R: Runtime> Telling<'_, R> {
    /// Returns what is to be told, or else has ended.
    fn next(&self) -> Option<Option<Instant>> {
        let mut state = lock(&self.0.0);
        let deadline = state.deadline();
        state.telling = state.told != Some(deadline);
        state.told = Some(deadline);
        state.telling.then_some(deadline)
    }
}

impl<R: Runtime> Drop for Telling<'_, R> {
    fn drop(&mut self) {
        lock(&self.0.0).telling = false;
    }
}
