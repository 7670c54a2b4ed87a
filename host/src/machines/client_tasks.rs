//! The tasks of a client that no caller waits for. They end with the client, wherever they wait:
//! what they hold is dropped there and then, whether or not their executor goes on with them.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::machines::runtime::Task;
use crate::process::Own;
use crate::sync::{Mutex, Running, lock};

/// The tasks of a client, until its last handle is dropped or it is closed.
#[derive(Default)]
pub(crate) struct ClientTasks(Mutex<TasksState>);

#[derive(Default)]
struct TasksState {
    has_ended: bool,
    last: u64,
    tasks: BTreeMap<u64, Arc<Slot>>,
}

/// A task as its executor has it.
pub(crate) struct ClientTask(Own<Entry>);

/// The entry of a task in the list of its client.
struct Entry {
    slot: Arc<Slot>,
    key: u64,
    list: Arc<ClientTasks>,
}

/// The place of a task's work, which the thread that polls it takes out meanwhile.
struct Slot(Mutex<Stage>);

enum Stage {
    /// It waits, and this is whom to wake.
    Waiting(Work, Option<Waker>),
    Polled,
    Ended,
}

/// The work of a task. What it holds is let go before it counts as ended.
struct Work {
    future: Task,
    _running: Running,
}

impl ClientTasks {
    /// Takes a task in, which is given up at once if the client has ended.
    pub(crate) fn begin(self: &Arc<Self>, future: Task, running: Running) -> ClientTask {
        let process = running.process();
        let work = Work { future, _running: running };
        let slot = Arc::new(Slot(Mutex::new(Stage::Waiting(work, None))));
        let mut state = lock(&self.0);
        state.last += 1;
        let (key, has_ended) = (state.last, state.has_ended);
        if !has_ended {
            state.tasks.insert(key, Arc::clone(&slot));
        }
        drop(state);
        if has_ended {
            slot.end();
        }
        ClientTask(Own::new(Entry { slot, key, list: Arc::clone(self) }, process))
    }

    /// Gives up all tasks, and those that begin later.
    pub(crate) fn end(&self) {
        let tasks = {
            let mut state = lock(&self.0);
            state.has_ended = true;
            std::mem::take(&mut state.tasks)
        };
        tasks.values().for_each(|slot| slot.end());
    }

    fn remove(&self, key: u64) {
        let slot = lock(&self.0).tasks.remove(&key);
        drop(slot);
    }
}

impl Slot {
    /// Gives the task up: what it holds is dropped now, or by the thread that polls it. Its
    /// executor learns that there is nothing to wait for.
    fn end(&self) {
        let stage = std::mem::replace(&mut *lock(&self.0), Stage::Ended);
        if let Stage::Waiting(work, waker) = stage {
            drop(work);
            waker.into_iter().for_each(Waker::wake);
        }
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let stage = std::mem::replace(&mut *lock(&self.0), Stage::Polled);
        let Stage::Waiting(mut work, earlier) = stage else {
            *lock(&self.0) = Stage::Ended;
            return Poll::Ready(());
        };
        drop(earlier);
        if work.future.as_mut().poll(cx).is_ready() {
            *lock(&self.0) = Stage::Ended;
            return Poll::Ready(());
        }
        let waker = cx.waker().clone();
        let mut stage = lock(&self.0);
        if matches!(*stage, Stage::Polled) {
            *stage = Stage::Waiting(work, Some(waker));
            return Poll::Pending;
        }
        // It was given up meanwhile.
        drop(stage);
        drop((work, waker));
        Poll::Ready(())
    }
}

impl Future for ClientTask {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match self.0.ours() {
            Some(entry) => entry.slot.poll(cx),
            // An executor of the parent's never goes on.
            None => Poll::Pending,
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.list.remove(self.key);
        self.slot.end();
    }
}

impl std::fmt::Debug for ClientTask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientTask").finish_non_exhaustive()
    }
}
