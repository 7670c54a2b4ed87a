//! Where what blocks is done: on a thread that lives as long as there is something to do.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;

use crate::block_on::block_on;
use crate::engine::Task;

/// Where what blocks is done.
#[derive(Clone, Debug)]
pub(crate) enum Helper {
    /// On a thread, one after another; it is started when needed, and nobody waits for its end.
    Thread(Arc<Queue>),
    /// By whoever waits for it.
    Inline,
}

/// What is still to be done.
#[derive(Default)]
pub(crate) struct Queue(Mutex<State>);

#[derive(Default)]
struct State {
    jobs: VecDeque<Task>,
    /// Whether there is a thread.
    running: bool,
}

impl Helper {
    /// Drives `work` to its end. If this is dropped earlier, `work` is dropped, too, unless it
    /// blocks just then.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> io::Result<T> {
        let Self::Thread(queue) = self else { return Ok(work.await) };
        let desk = Arc::new(Desk(Mutex::new(Handover::Awaited { taker: None, giver: None })));
        let giver = Giver(Arc::clone(&desk));
        let job = async move {
            let mut work = pin!(work);
            let done = std::future::poll_fn(|cx| match giver.is_awaited(cx) {
                true => work.as_mut().poll(cx).map(Some),
                false => Poll::Ready(None),
            });
            let done = done.await;
            giver.give(done);
        };
        queue.push(Box::pin(job))?;
        Taker(desk).await.ok_or_else(|| io::Error::other("the thread that did it has panicked"))
    }

    /// Calls what blocks.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        self.run(async { work() }).await
    }
}

impl Queue {
    fn push(self: &Arc<Self>, job: Task) -> io::Result<()> {
        let mut state = self.lock();
        state.jobs.push_back(job);
        if std::mem::replace(&mut state.running, true) {
            return Ok(());
        }
        drop(state);
        let queue = Arc::clone(self);
        let thread = thread::Builder::new().name("sdam-helper".to_owned());
        let started = thread.spawn(move || queue.work()).map(drop);
        if started.is_err() {
            let mut state = self.lock();
            state.running = false;
            let jobs = std::mem::take(&mut state.jobs);
            drop(state);
            drop(jobs);
        }
        started
    }

    fn work(&self) {
        loop {
            let mut state = self.lock();
            let Some(job) = state.jobs.pop_front() else {
                state.running = false;
                return;
            };
            drop(state);
            // What the application does there may panic; that is said where it is awaited.
            let _ = catch_unwind(AssertUnwindSafe(|| block_on(job)));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("running", &self.lock().running).finish_non_exhaustive()
    }
}

/// Where a result is handed over.
struct Desk<T>(Mutex<Handover<T>>);

enum Handover<T> {
    /// It is awaited; who is to be woken when it is there, and when it is not awaited any more.
    Awaited { taker: Option<Waker>, giver: Option<Waker> },
    /// It is there, or else it will never be.
    Done(Option<T>),
    /// Nobody waits for it.
    Abandoned,
}

impl<T> Desk<T> {
    /// Ends the wait, and wakes the other side.
    fn end(&self, end: Handover<T>) {
        let mut handover = self.lock();
        if !matches!(*handover, Handover::Awaited { .. }) {
            return;
        }
        let before = std::mem::replace(&mut *handover, end);
        drop(handover);
        if let Handover::Awaited { taker, giver } = before {
            taker.into_iter().chain(giver).for_each(Waker::wake);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Handover<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Giver<T>(Arc<Desk<T>>);

impl<T> Giver<T> {
    fn is_awaited(&self, cx: &Context<'_>) -> bool {
        match &mut *self.0.lock() {
            Handover::Awaited { giver, .. } => {
                *giver = Some(cx.waker().clone());
                true
            }
            Handover::Done(_) | Handover::Abandoned => false,
        }
    }

    fn give(&self, result: Option<T>) {
        self.0.end(Handover::Done(result));
    }
}

impl<T> Drop for Giver<T> {
    fn drop(&mut self) {
        self.give(None);
    }
}

struct Taker<T>(Arc<Desk<T>>);

impl<T> Future for Taker<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        match &mut *self.0.lock() {
            Handover::Awaited { taker, .. } => {
                *taker = Some(cx.waker().clone());
                Poll::Pending
            }
            Handover::Done(result) => Poll::Ready(result.take()),
            Handover::Abandoned => Poll::Ready(None),
        }
    }
}

impl<T> Drop for Taker<T> {
    fn drop(&mut self) {
        self.0.end(Handover::Abandoned);
    }
}
