//! Tasks on one thread, polled in the order in which they were woken.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use super::lock;

/// The tasks of one reactor.
#[derive(Default)]
pub(super) struct Tasks(Arc<Mutex<VecDeque<Arc<Task>>>>);

struct Task {
    future: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    is_woken: AtomicBool,
    ready: Arc<Mutex<VecDeque<Arc<Task>>>>,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        if !self.is_woken.swap(true, Ordering::Relaxed) {
            lock(&self.ready).push_back(Arc::clone(&self));
        }
    }
}

impl Tasks {
    pub(super) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        let future: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(future);
        let (is_woken, ready) = (AtomicBool::new(false), Arc::clone(&self.0));
        Arc::new(Task { future: Mutex::new(Some(future)), is_woken, ready }).wake();
    }

    /// Polls tasks until all of them wait; returns whether one did not.
    pub(super) fn run(&self) -> bool {
        let mut has_run = false;
        loop {
            let Some(task) = lock(&self.0).pop_front() else { return has_run };
            has_run = true;
            task.is_woken.store(false, Ordering::Relaxed);
            // Taken out, as it may wake itself.
            let Some(mut future) = lock(&task.future).take() else { continue };
            let waker = Waker::from(Arc::clone(&task));
            if future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
                *lock(&task.future) = Some(future);
            }
        }
    }
}
