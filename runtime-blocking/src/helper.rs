//! Threads for what blocks, which live as long as there is something to do.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;

use sdam_host::Lane;

use crate::block_on::block_on;
use crate::engine::Task;

/// The maximum number of threads of a client for blocking work.
pub(crate) const MAX_THREADS: usize = 8;

/// The place where what blocks is done.
#[derive(Clone, Debug)]
pub(crate) enum Helper {
    /// On threads, which are started when needed, and never joined.
    Threads(Arc<Queue>),
    /// By the caller that waits for it.
    Inline,
}

/// The work still to be done.
#[derive(Default)]
pub(crate) struct Queue(Mutex<HelperState>);

#[derive(Default)]
struct HelperState {
    /// The work in each lane, present also while a thread is at work there.
    lanes: BTreeMap<Lane, VecDeque<Job>>,
    /// The lanes in which something waits and no thread is at work, each in its turn.
    ready: VecDeque<Lane>,
    threads: usize,
}

struct Job {
    task: Task,
    desk: Arc<dyn Awaited>,
}

impl Helper {
    /// Drives `work` to its end. If this is dropped earlier, `work` is dropped, too, unless it
    /// blocks just then.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        lane: Lane,
        work: impl Future<Output = T> + Send + 'static,
    ) -> io::Result<T> {
        let Self::Threads(queue) = self else { return unless_it_panics(work).await };
        let desk = Arc::new(Desk(Mutex::new(Handover::Awaited { taker: None, giver: None })));
        let giver = Giver(Arc::clone(&desk));
        let task = async move {
            let mut work = pin!(work);
            let done = std::future::poll_fn(|cx| match giver.is_awaited(cx) {
                true => work.as_mut().poll(cx).map(Some),
                false => Poll::Ready(None),
            });
            let done = done.await;
            giver.give(done);
        };
        let desk_of_job: Arc<dyn Awaited> = Arc::clone(&desk) as _;
        queue.push(lane, Job { task: Box::pin(task), desk: desk_of_job })?;
        Taker(desk).await.ok_or_else(has_panicked)
    }

    /// Calls what blocks.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        lane: Lane,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        self.run(lane, async { work() }).await
    }
}

/// Does the application's work on the thread that awaits it, which may work for another one just
/// then, that has nothing to do with a panic.
async fn unless_it_panics<T>(work: impl Future<Output = T>) -> io::Result<T> {
    let mut work = pin!(work);
    std::future::poll_fn(|cx| {
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx)));
        polled.map_or_else(|_| Poll::Ready(Err(has_panicked())), |polled| polled.map(Ok))
    })
    .await
}

fn has_panicked() -> io::Error {
    io::Error::other("what was called there has panicked")
}

impl Queue {
    fn push(self: &Arc<Self>, lane: Lane, job: Job) -> io::Result<()> {
        let mut state = self.lock();
        let abandoned = state.push(lane, job);
        let needs_thread = !state.ready.is_empty() && state.threads < MAX_THREADS;
        state.threads += usize::from(needs_thread);
        drop(state);
        drop(abandoned);
        if !needs_thread {
            return Ok(());
        }
        let queue = Arc::clone(self);
        let thread = thread::Builder::new().name("sdam-helper".to_owned());
        match thread.spawn(move || queue.work()) {
            Ok(_) => Ok(()),
            Err(error) => self.refused(error),
        }
    }

    /// Gives up the jobs if no thread is left to run them.
    fn refused(&self, error: io::Error) -> io::Result<()> {
        let mut state = self.lock();
        state.threads -= 1;
        if state.threads > 0 {
            return Ok(());
        }
        let given_up = std::mem::take(&mut *state);
        drop(state);
        drop(given_up);
        Err(error)
    }

    fn work(&self) {
        while let Some((lane, job)) = self.begin() {
            // What the application does there may panic; that is said where it is awaited.
            let _ = catch_unwind(AssertUnwindSafe(|| block_on(job.task)));
            self.lock().ended(lane);
        }
    }

    /// Takes what is to be done next; without it, the thread is to end.
    fn begin(&self) -> Option<(Lane, Job)> {
        let mut state = self.lock();
        let next = state.next();
        state.threads -= usize::from(next.is_none());
        next
    }

    fn lock(&self) -> MutexGuard<'_, HelperState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HelperState {
    /// Returns the abandoned jobs of that lane: behind one that hangs, they would pile up.
    #[must_use = "it is dropped where no lock is held"]
    fn push(&mut self, lane: Lane, job: Job) -> VecDeque<Job> {
        let Some(jobs) = self.lanes.get_mut(&lane) else {
            self.lanes.insert(lane.clone(), VecDeque::from([job]));
            self.ready.push_back(lane);
            return VecDeque::new();
        };
        let (awaited, abandoned) =
            std::mem::take(jobs).into_iter().partition(|job| job.desk.is_awaited());
        *jobs = awaited;
        jobs.push_back(job);
        abandoned
    }

    fn next(&mut self) -> Option<(Lane, Job)> {
        let lane = self.ready.pop_front()?;
        let job = self.lanes.get_mut(&lane)?.pop_front()?;
        Some((lane, job))
    }

    /// Has the next in that lane wait for its turn behind all other lanes.
    fn ended(&mut self, lane: Lane) {
        match self.lanes.get(&lane).is_some_and(|jobs| !jobs.is_empty()) {
            true => self.ready.push_back(lane),
            false => drop(self.lanes.remove(&lane)),
        }
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("threads", &self.lock().threads).finish_non_exhaustive()
    }
}

/// The place where a result is handed over.
struct Desk<T>(Mutex<Handover<T>>);

enum Handover<T> {
    /// It is awaited; who is to be woken when it is there, and when it is not awaited any more.
    Awaited { taker: Option<Waker>, giver: Option<Waker> },
    /// It is there, or else it will never be.
    Done(Option<T>),
    /// No caller waits for it.
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

/// A result that a caller may await.
trait Awaited: Send + Sync {
    fn is_awaited(&self) -> bool;
}

impl<T: Send> Awaited for Desk<T> {
    fn is_awaited(&self) -> bool {
        matches!(*self.lock(), Handover::Awaited { .. })
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
