//! Has a thread wait for a future.

use std::cell::Cell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::engine::Engine;

thread_local! {
    /// The waker of this thread, unless it is in use: kept, so that a call allocates nothing.
    static PARKER: Cell<Option<Arc<Parker>>> = const { Cell::new(None) };
}

/// Blocks this thread on a future of one of this crate's topologies, such as those of
/// [`DriverTopology::host_topology`](crate::driver::DriverTopology::host_topology).
///
/// When called by a waker on the thread of the clients, it does their work meanwhile.
pub fn block_on<F: Future>(future: F) -> F::Output {
    if let Some(engine) = Engine::current() {
        return engine.block_on(future);
    }
    let mut future = pin!(future);
    loop {
        if let Some(output) = wait(future.as_mut(), None) {
            return output;
        }
    }
}

/// As [`block_on`], but drops the future at `end`.
pub(crate) fn block_on_until<F: Future>(future: F, end: Option<Instant>) -> Option<F::Output> {
    wait(pin!(future), end)
}

fn wait<F: Future>(mut future: Pin<&mut F>, end: Option<Instant>) -> Option<F::Output> {
    // Within a future that this very thread waits for, there is none to be had.
    let kept = PARKER.try_with(Cell::take).ok().flatten();
    let parker = kept.unwrap_or_else(|| {
        Arc::new(Parker { thread: thread::current(), woken: AtomicBool::new(false) })
    });
    let waker = Waker::from(Arc::clone(&parker));
    let output = loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            break Some(output);
        }
        if !parker.park(end) {
            break None;
        }
    };
    // Where the thread is ending, nothing is kept any more.
    let _ = PARKER.try_with(|kept| kept.set(Some(parker)));
    output
}

/// Wakes a thread; without a lock, which a process that is forked off could find taken.
struct Parker {
    thread: Thread,
    woken: AtomicBool,
}

impl Parker {
    /// Waits to be woken; returns false when it is too late for that.
    fn park(&self, end: Option<Instant>) -> bool {
        while !self.woken.swap(false, Ordering::Acquire) {
            match end.map(|end| end.saturating_duration_since(Instant::now())) {
                None => thread::park(),
                Some(Duration::ZERO) => return false,
                Some(left) => thread::park_timeout(left),
            }
        }
        true
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::{pending, poll_fn};
    use std::task::Poll;
    use std::time::{Duration, Instant};

    use super::{block_on, block_on_until};

    #[test]
    fn a_thread_waits_until_it_is_woken_and_not_for_ever() {
        let polled = Cell::new(false);
        let woken_by_another_thread = poll_fn(|cx| {
            if polled.replace(true) {
                return Poll::Ready(7);
            }
            let waker = cx.waker().clone();
            std::thread::spawn(move || waker.wake());
            Poll::Pending
        });
        assert_eq!(block_on(woken_by_another_thread), 7);
        let (begun, limit) = (Instant::now(), Duration::from_millis(20));
        assert_eq!(block_on_until(pending::<()>(), Some(begun + limit)), None);
        assert!(begun.elapsed() >= limit);
    }

    #[test]
    fn waiting_within_what_is_waited_for_loses_no_wake_up() {
        let polled = Cell::new(false);
        let outer = poll_fn(|cx| {
            if polled.replace(true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            block_on_until(pending::<()>(), Some(Instant::now() + Duration::from_millis(5)));
            Poll::Pending
        });
        let end = Instant::now() + Duration::from_secs(30);
        assert_eq!(block_on_until(outer, Some(end)), Some(()));
    }
}
