//! Tasks on one thread; of those that are ready, the seed decides which runs next.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

use super::{Desk, Task};
use crate::sim::random::Random;

/// A task.
pub(in crate::sim) type TaskId = u64;

/// The purpose of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sim) enum Kind {
    /// It moves the bytes of a monitor's stream.
    Link,
    /// It establishes a connection.
    PendingConnection,
    /// It looks records up.
    Rescan,
    /// It does something for a client that no application waits for.
    Background,
    /// It is the application's, by this number.
    Application(u64),
}

impl Kind {
    const fn list(self) -> usize {
        matches!(self, Self::Application(_)) as usize
    }
}

/// Wakes a task.
struct Handle {
    desk: Arc<Desk>,
    id: TaskId,
    list: usize,
    /// True if it is woken, and was not polled since.
    is_ready: AtomicBool,
}

impl Wake for Handle {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_ready.swap(true, Ordering::Relaxed) {
            self.desk.leave(|state| state.ready[self.list].push(self.id));
        }
    }
}

/// One task.
struct Running {
    kind: Kind,
    task: Task,
    handle: Arc<Handle>,
    waker: Waker,
}

/// The tasks of one client.
pub(in crate::sim) struct Executor {
    desk: Arc<Desk>,
    tasks: BTreeMap<TaskId, Running>,
    last: TaskId,
    /// Decides which task runs next.
    random: Random,
    /// The number of tasks that there are that establish connections, and how many that move bytes
    /// of links.
    slots: usize,
    links: usize,
}

impl Drop for Executor {
    /// Lets go of what was left undone: it has the client, whose runtime has the desk.
    fn drop(&mut self) {
        self.tasks.clear();
        self.desk.clear();
    }
}

impl Executor {
    pub(in crate::sim) const fn new(desk: Arc<Desk>, random: Random) -> Self {
        Self { desk, tasks: BTreeMap::new(), last: 0, random, slots: 0, links: 0 }
    }

    /// Returns how many tasks there are, of whatever kind.
    pub(in crate::sim) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Returns how many tasks there are that establish connections, and how many that move bytes of
    /// links.
    pub(in crate::sim) const fn counts(&self) -> (usize, usize) {
        (self.slots, self.links)
    }

    const fn count(&mut self, kind: Kind) -> Option<&mut usize> {
        match kind {
            Kind::PendingConnection => Some(&mut self.slots),
            Kind::Link => Some(&mut self.links),
            Kind::Rescan | Kind::Background | Kind::Application(_) => None,
        }
    }

    /// Starts what is to be started.
    fn start(&mut self) {
        let spawned = std::mem::take(&mut self.desk.lock().spawned);
        for (kind, task) in spawned {
            self.last += 1;
            let (desk, id) = (Arc::clone(&self.desk), self.last);
            let is_ready = AtomicBool::new(false);
            let handle = Arc::new(Handle { desk, id, list: kind.list(), is_ready });
            let waker = Waker::from(Arc::clone(&handle));
            waker.wake_by_ref();
            self.tasks.insert(id, Running { kind, task, handle, waker });
            if let Some(count) = self.count(kind) {
                *count += 1;
            }
        }
    }

    /// Polls one of the tasks that are ready, only one of the application unless the runtime works;
    /// returns whether there was one.
    pub(in crate::sim) fn step(&mut self, works: bool) -> bool {
        self.start();
        let id = {
            let mut state = self.desk.lock();
            let of_runtime = if works { state.ready[0].len() } else { 0 };
            let ready = of_runtime + state.ready[1].len();
            if ready == 0 {
                return false;
            }
            let index = if ready == 1 { 0 } else { self.random.index(ready) };
            match index < of_runtime {
                true => state.ready[0].swap_remove(index),
                false => state.ready[1].swap_remove(index - of_runtime),
            }
        };
        // Taken out, as what it does may look at the others.
        if let Some(mut running) = self.tasks.remove(&id) {
            running.handle.is_ready.store(false, Ordering::Relaxed);
            self.desk.polls(running.kind, id);
            match running.task.as_mut().poll(&mut Context::from_waker(&running.waker)) {
                std::task::Poll::Pending => drop(self.tasks.insert(id, running)),
                std::task::Poll::Ready(()) => self.ended(running),
            }
        }
        true
    }

    fn ended(&mut self, running: Running) {
        if let Some(count) = self.count(running.kind) {
            *count -= 1;
        }
        drop(running);
    }

    /// Drops a task of the application, wherever it waits.
    pub(in crate::sim) fn cancel(&mut self, number: u64) {
        self.start();
        let of = |(_, it): &(&TaskId, &Running)| it.kind == Kind::Application(number);
        let id = self.tasks.iter().find(of).map(|(id, _)| *id);
        if let Some(running) = id.and_then(|id| self.tasks.remove(&id)) {
            self.ended(running);
        }
    }

    /// Drops some of the tasks that move bytes, as a runtime does that gives up.
    pub(in crate::sim) fn give_up(&mut self, random: &mut Random) {
        self.start();
        let moves = |kind| matches!(kind, Kind::Link | Kind::PendingConnection);
        let given_up = self.tasks.iter().filter(|(_, it)| moves(it.kind) && random.percent(50));
        let given_up: Vec<_> = given_up.map(|(id, _)| *id).collect();
        let given_up: Vec<Running> =
            given_up.iter().filter_map(|id| self.tasks.remove(id)).collect();
        given_up.into_iter().for_each(|running| self.ended(running));
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: Vec<Kind> = self.tasks.values().map(|it| it.kind).collect();
        f.debug_struct("Executor").field("tasks", &kinds).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Desk, Executor, Kind};
    use crate::sim::random::Random;
    use crate::sim::runtime::Clock;

    /// Thousands of simulations in one process, as a fuzzer runs them, take no more memory than
    /// one: what was asked for in the last moment is gone with it, though it has the desk.
    #[test]
    fn an_executor_that_is_dropped_leaves_nothing_undone() {
        let desk = Desk::new(Arc::new(Clock::new(0)));
        let executor = Executor::new(Arc::clone(&desk), Random::new(1));
        let (own, left) = (Arc::clone(&desk), Arc::downgrade(&desk));
        let closing = Arc::clone(&desk);
        desk.spawn(Kind::Background, async move {
            closing.spawn(Kind::Background, async move { drop(own) });
        });
        drop((desk, executor));
        assert!(left.upgrade().is_none());
    }
}
