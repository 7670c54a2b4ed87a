//! Runs the tasks of clients on whichever thread drives them: one in the background for all clients
//! of the process, or the caller's.

mod drive;
mod poller;
mod registration;
mod share;
mod sleep;

#[cfg(all(test, unix))]
mod tests;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use sdam_host::Process;

use drive::EngineMutex;
use poller::{Fired, Poller};
use registration::Source;
pub(crate) use registration::{Interest, Registration};
pub(crate) use share::Joining;
pub(crate) use sleep::Sleep;

/// A task of a client.
pub(crate) type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The thread that runs the tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EngineMode {
    /// One in the background, for all clients of the process.
    Thread,
    /// Those that wait, while they wait.
    Callers,
}

/// Runs the tasks of clients on whichever thread drives it, one thread at a time.
///
/// Its lock is the innermost of all: nothing is polled, woken or dropped under it that could call
/// anybody.
pub(crate) struct Engine {
    /// The process it belongs to; one that is forked off must leave it alone.
    process: Process,
    mode: EngineMode,
    /// The poller of sockets; absent if the system had none left.
    poller: Option<Poller>,
    state: Mutex<EngineState>,
    /// The turn to drive, if callers do.
    turns: EngineMutex,
}

#[derive(Default)]
struct EngineState {
    /// The last key that a task, a timer or a source was given.
    last_key: usize,
    tasks: BTreeMap<usize, Entry>,
    /// The tasks that were woken.
    ready: VecDeque<usize>,
    timers: BTreeMap<(Instant, usize), Waker>,
    sources: BTreeMap<usize, Source>,
    /// The number of clients that are about to start their tasks.
    joining: usize,
    /// True if the thread that drives this waits, or is about to.
    sleeping: bool,
    /// The waker of the wait for the last task.
    waits_for_end: Option<Waker>,
    /// True if no task will run any more.
    ended: bool,
}

struct Entry {
    /// Absent while it is polled.
    task: Option<Task>,
    waker: Waker,
    /// True if it is among those that are ready.
    queued: bool,
}

thread_local! {
    /// The engine whose task this thread is running.
    static CURRENT: RefCell<Option<Arc<Engine>>> = const { RefCell::new(None) };
}

impl Engine {
    pub(crate) fn new(mode: EngineMode) -> io::Result<Arc<Self>> {
        Ok(Self::with(mode, Some(Poller::new()?), false))
    }

    /// Creates one that gives every task up, in place of one that the system has refused.
    pub(crate) fn exhausted() -> Arc<Self> {
        Self::with(EngineMode::Thread, None, true)
    }

    fn with(mode: EngineMode, poller: Option<Poller>, ended: bool) -> Arc<Self> {
        let state = Mutex::new(EngineState { ended, ..EngineState::default() });
        Arc::new(Self {
            process: Process::current(),
            mode,
            poller,
            state,
            turns: EngineMutex::default(),
        })
    }

    /// Starts a task.
    pub(crate) fn spawn(self: &Arc<Self>, task: Task) {
        let mut state = self.lock();
        if state.ended {
            drop(state);
            return drop(task);
        }
        let key = state.new_key();
        let waker = Waker::from(Arc::new(TaskWaker { engine: Arc::downgrade(self), key }));
        state.tasks.insert(key, Entry { task: Some(task), waker, queued: true });
        state.ready.push_back(key);
        self.rouse(state);
    }

    /// Waits until the last task has ended and no client is about to start one; those that are
    /// spawned later are given up.
    pub(crate) fn end(&self) -> impl Future<Output = ()> {
        std::future::poll_fn(|cx| {
            let mut state = self.lock();
            state.ended = state.is_idle();
            state.waits_for_end = Some(cx.waker().clone());
            if state.ended { Poll::Ready(()) } else { Poll::Pending }
        })
    }

    /// Drops all tasks, and those that are spawned from now on.
    pub(crate) fn give_up(&self) {
        let mut state = self.lock();
        state.ended = true;
        let (tasks, waits_for_end) = (std::mem::take(&mut state.tasks), state.waits_for_end.take());
        drop(state);
        drop(tasks);
        waits_for_end.into_iter().for_each(Waker::wake);
    }

    /// Returns whether a task waits for its turn.
    fn has_ready(&self) -> bool {
        !self.lock().ready.is_empty()
    }

    /// Waits for something to do unless there is, and does it: first what has come is looked at,
    /// and only then it is said to be late.
    fn turn(self: &Arc<Self>, fired: &mut Vec<Fired>, woken: &AtomicBool) {
        // What is due later than this is left to the next turn, for what comes until then counts.
        let now = Instant::now();
        let mut state = self.lock();
        let due = state.timers.first_key_value().map(|((due, _), _)| *due);
        state.sleeping = state.ready.is_empty()
            && !woken.load(Ordering::Acquire)
            && due.is_none_or(|due| due > now);
        let until = if state.sleeping { due } else { Some(now) };
        drop(state);
        self.look(fired, until);
        self.run_ready();
        let due = self.lock().take_due(now);
        due.into_iter().for_each(Waker::wake);
        self.run_ready();
    }

    /// Waits for sockets, and wakes who waits for them.
    fn look(&self, fired: &mut Vec<Fired>, until: Option<Instant>) {
        // Without one, there never was a task to run.
        let Some(poller) = &self.poller else { return };
        let mut until = until;
        loop {
            fired.clear();
            let looked = poller.wait(fired, until);
            let mut state = self.lock();
            state.sleeping = false;
            let woken: Vec<Waker> = fired.drain(..).filter_map(|it| state.fired(it)).collect();
            drop(state);
            woken.into_iter().for_each(Waker::wake);
            match looked {
                // There may be more; each is reported only once, so that this ends.
                Ok(true) => until = Some(Instant::now()),
                Ok(false) => return,
                // Nothing that waits for a socket would ever learn of it.
                Err(_) => return self.give_up(),
            }
        }
    }

    /// Polls each task that is ready by now once; those that are woken meanwhile have their turn
    /// after sockets and timers were looked at, which a task that goes on and on would hold up.
    fn run_ready(self: &Arc<Self>) {
        let _running = Running::new(self);
        let ready = self.lock().ready.len();
        for _ in 0..ready {
            let mut state = self.lock();
            let Some((key, mut task, waker)) = state.next_ready() else { return };
            drop(state);
            let poll = self.poll(&mut task, &waker);
            let mut state = self.lock();
            let mut waits_for_end = None;
            match (poll, state.tasks.get_mut(&key)) {
                (Poll::Pending, Some(entry)) => {
                    entry.task = Some(task);
                    continue;
                }
                // It has ended, or was given up meanwhile.
                _ => {
                    let entry = state.tasks.remove(&key);
                    if state.is_idle() {
                        waits_for_end = state.waits_for_end.take();
                    }
                    drop(state);
                    self.finish((entry, task));
                }
            }
            waits_for_end.into_iter().for_each(Waker::wake);
        }
    }

    /// Polls a task. One that panics, also because a waker that it calls does, has ended, and no
    /// other client's tasks with it; among callers, it is the caller who panics.
    fn poll(&self, task: &mut Task, waker: &Waker) -> Poll<()> {
        let mut poll = || task.as_mut().poll(&mut Context::from_waker(waker));
        match self.mode {
            EngineMode::Callers => poll(),
            EngineMode::Thread => catch_unwind(AssertUnwindSafe(poll)).unwrap_or(Poll::Ready(())),
        }
    }

    /// Drops what is left of a task, which may panic as its polls may.
    fn finish<T>(&self, task: T) {
        let drop = || drop(task);
        match self.mode {
            EngineMode::Callers => drop(),
            EngineMode::Thread => catch_unwind(AssertUnwindSafe(drop)).unwrap_or_default(),
        }
    }

    /// Returns the engine whose task this thread runs, if it runs one.
    pub(crate) fn current() -> Option<Arc<Self>> {
        CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()
    }

    /// Returns whether this thread runs one of its tasks.
    pub(crate) fn is_current(&self) -> bool {
        let is_this = |current: &RefCell<Option<Arc<Self>>>| {
            current.borrow().as_ref().is_some_and(|current| std::ptr::eq(&**current, self))
        };
        CURRENT.try_with(is_this).unwrap_or(false)
    }

    /// Returns whether it belongs to this process, not to one that this was forked from.
    pub(crate) fn is_ours(&self) -> bool {
        self.process.is_current()
    }

    fn lock(&self) -> MutexGuard<'_, EngineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the thread that drives this look again.
    fn rouse(&self, mut state: MutexGuard<'_, EngineState>) {
        let sleeping = std::mem::take(&mut state.sleeping);
        drop(state);
        if sleeping && let Some(poller) = &self.poller {
            poller.notify();
        }
    }

    pub(crate) fn sleep_until(self: &Arc<Self>, until: Option<Instant>) -> Sleep {
        Sleep::new(Arc::clone(self), until)
    }
}

impl EngineState {
    fn new_key(&mut self) -> usize {
        self.last_key += 1;
        self.last_key
    }

    /// Returns whether there is no task, and no client is about to start one.
    fn is_idle(&self) -> bool {
        self.tasks.is_empty() && self.joining == 0
    }

    fn next_ready(&mut self) -> Option<(usize, Task, Waker)> {
        loop {
            let key = self.ready.pop_front()?;
            if let Some(entry) = self.tasks.get_mut(&key) {
                entry.queued = false;
                if let Some(task) = entry.task.take() {
                    return Some((key, task, entry.waker.clone()));
                }
            }
        }
    }

    fn take_due(&mut self, now: Instant) -> Vec<Waker> {
        let later = self.timers.split_off(&(now, usize::MAX));
        std::mem::replace(&mut self.timers, later).into_values().collect()
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("process", &self.process).finish_non_exhaustive()
    }
}

/// Says whose tasks this thread runs.
struct Running(Option<Arc<Engine>>);

impl Running {
    fn new(engine: &Arc<Engine>) -> Self {
        Self(replace_current(Some(Arc::clone(engine))))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        replace_current(self.0.take());
    }
}

/// Replaces the engine of this thread. A thread that is ending keeps none, and tasks go without.
fn replace_current(engine: Option<Arc<Engine>>) -> Option<Arc<Engine>> {
    CURRENT.try_with(|current| current.replace(engine)).ok().flatten()
}

struct TaskWaker {
    engine: Weak<Engine>,
    key: usize,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let Some(engine) = self.engine.upgrade() else { return };
        let mut state = engine.lock();
        let Some(entry) = state.tasks.get_mut(&self.key) else { return };
        if !std::mem::replace(&mut entry.queued, true) {
            state.ready.push_back(self.key);
            engine.rouse(state);
        }
    }
}
