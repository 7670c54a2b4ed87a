//! Work that a cursor, a change stream or a file waits for, such as a getMore. Its reader goes on
//! with it; if the reader turns to another thing, a task of the runtime's does, so that the
//! connection and the session come back whether or not the stream is read again.

use std::future::{Future, pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use sdam_host::Runtime;
use sdam_host::driver::DriverTopology;

type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Work under way; dropping it gives it up.
pub(crate) enum Fetching<T> {
    /// The reader goes on with it.
    Own(Work<T>),
    /// A task goes on with it.
    Handed(Reader<T>),
}

/// The reader's side of what a task goes on with.
pub(crate) struct Reader<T>(Arc<Slot<T>>);

/// The task's side.
struct Driver<T>(Arc<Slot<T>>);

/// The place of the work, which the task takes out while it goes on.
struct Slot<T>(Mutex<State<T>>);

struct State<T> {
    stage: Stage<T>,
    /// False once the task has ended.
    is_driven: bool,
    reader: Option<Waker>,
}

enum Stage<T> {
    /// It waits, and this is the waker of its task.
    Waiting(Work<T>, Option<Waker>),
    /// It is elsewhere: with its task, or with its reader.
    Taken,
    Answered(Box<T>),
    GivenUp,
}

impl<T: Send + 'static> Fetching<T> {
    pub(crate) fn begin(work: impl Future<Output = T> + Send + 'static) -> Self {
        Self::Own(Box::pin(work))
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<T> {
        loop {
            match self {
                Self::Own(work) => return work.as_mut().poll(cx),
                Self::Handed(reader) => match reader.poll(cx) {
                    Poll::Ready(Ok(fetched)) => return Poll::Ready(fetched),
                    Poll::Ready(Err(work)) => *self = Self::Own(work),
                    Poll::Pending => return Poll::Pending,
                },
            }
        }
    }

    /// Returns whether the reader goes on with it.
    pub(crate) const fn is_own(&self) -> bool {
        matches!(self, Self::Own(_))
    }

    /// Has a task go on with it. If the task ends before its time, as with its client, the reader
    /// does again.
    pub(crate) fn hand_over<R: Runtime>(&mut self, client: &sdam_host::Topology<R>) {
        let Self::Own(work) = self else { return };
        let work = std::mem::replace(work, Box::pin(pending()));
        let (handed, driver) = Self::shared(work);
        *self = handed;
        client.spawn(|_| driver);
    }

    /// Has a task bring it to its end within this time, and drop what comes of it.
    pub(crate) fn end_within<R: Runtime>(
        mut self,
        client: &sdam_host::Topology<R>,
        time: Duration,
    ) {
        let until = client.now() + time;
        client.spawn(|client| async move {
            unless(client.sleep_until(until), poll_fn(|cx| self.poll(cx))).await;
        });
    }

    /// Returns both sides of what a task goes on with.
    fn shared(work: Work<T>) -> (Self, Driver<T>) {
        let stage = Stage::Waiting(work, None);
        let state = State { stage, is_driven: true, reader: None };
        let slot = Arc::new(Slot(Mutex::new(state)));
        let driver = Driver(Arc::clone(&slot));
        (Self::Handed(Reader(slot)), driver)
    }

    /// Gives it up, unless it has come to its end already.
    pub(crate) fn into_answer(self) -> Option<T> {
        match self {
            Self::Own(_) => None,
            Self::Handed(reader) => reader.answer(),
        }
    }
}

/// Returns the outcome of work, or `None` if `late` comes before it.
pub(crate) async fn unless<T>(
    late: impl Future<Output = ()>,
    work: impl Future<Output = T>,
) -> Option<T> {
    let (mut late, mut work) = (pin!(late), pin!(work));
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
        Poll::Pending => late.as_mut().poll(cx).map(|()| None),
    })
    .await
}

impl<T> Slot<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Reader<T> {
    /// Waits for the answer; if there is no task any more, returns what is left to do.
    fn poll(&self, cx: &Context<'_>) -> Poll<Result<T, Work<T>>> {
        let waker = cx.waker().clone();
        let mut state = self.0.lock();
        match std::mem::replace(&mut state.stage, Stage::Taken) {
            Stage::Answered(fetched) => Poll::Ready(Ok(*fetched)),
            Stage::Waiting(work, _) if !state.is_driven => Poll::Ready(Err(work)),
            Stage::Taken if !state.is_driven => {
                drop(state);
                panic!("the task that went on with a command has panicked");
            }
            stage => {
                state.stage = stage;
                let earlier = state.reader.replace(waker);
                drop(state);
                drop(earlier);
                Poll::Pending
            }
        }
    }

    fn answer(&self) -> Option<T> {
        let mut state = self.0.lock();
        match std::mem::replace(&mut state.stage, Stage::Taken) {
            Stage::Answered(fetched) => Some(*fetched),
            stage => {
                state.stage = stage;
                None
            }
        }
    }
}

impl<T> Drop for Reader<T> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        let stage = std::mem::replace(&mut state.stage, Stage::GivenUp);
        let reader = state.reader.take();
        drop(state);
        drop(reader);
        if let Stage::Waiting(work, task) = stage {
            drop(work);
            task.into_iter().for_each(Waker::wake);
        }
    }
}

impl<T> Future for Driver<T> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.lock();
        let (mut work, earlier) = match std::mem::replace(&mut state.stage, Stage::Taken) {
            Stage::Waiting(work, earlier) => (work, earlier),
            stage => {
                state.stage = stage;
                return Poll::Ready(());
            }
        };
        drop(state);
        drop(earlier);
        let (polled, task) = (work.as_mut().poll(cx), cx.waker().clone());
        let mut state = self.0.lock();
        if matches!(state.stage, Stage::GivenUp) {
            drop(state);
            return Poll::Ready(());
        }
        match polled {
            Poll::Ready(fetched) => {
                state.stage = Stage::Answered(Box::new(fetched));
                let reader = state.reader.take();
                drop(state);
                drop((work, task));
                reader.into_iter().for_each(Waker::wake);
                Poll::Ready(())
            }
            Poll::Pending => {
                state.stage = Stage::Waiting(work, Some(task));
                Poll::Pending
            }
        }
    }
}

impl<T> Drop for Driver<T> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_driven = false;
        let reader = state.reader.take();
        drop(state);
        reader.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Future, poll_fn};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use super::Fetching;

    /// Runtimes catch the panics of tasks; without an answer, a reader would wait for ever.
    #[test]
    fn the_reader_of_a_task_that_has_panicked_panics_too() {
        for polls in [0, 1] {
            let mut left = polls;
            let work = poll_fn(move |_| -> Poll<()> {
                assert!(left > 0, "a tracer of the application's, for one");
                left -= 1;
                Poll::Pending
            });
            let (mut reader, mut driver) = Fetching::shared(Box::pin(work));
            let mut cx = Context::from_waker(Waker::noop());
            for _ in 0..polls {
                assert!(Pin::new(&mut driver).poll(&mut cx).is_pending());
                assert!(reader.poll(&mut cx).is_pending());
            }
            let mut poll = || Pin::new(&mut driver).poll(&mut cx);
            assert!(catch_unwind(AssertUnwindSafe(&mut poll)).is_err());
            drop(driver);
            let mut cx = Context::from_waker(Waker::noop());
            let read = catch_unwind(AssertUnwindSafe(|| reader.poll(&mut cx).is_pending()));
            let panic = read.expect_err("it would wait for ever");
            let text = panic.downcast_ref::<&str>().unwrap();
            assert_eq!(*text, "the task that went on with a command has panicked");
        }
    }
}
