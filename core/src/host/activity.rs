//! How many tasks of a client are still running.

use std::sync::Arc;

use super::waking::Gate;

/// How many tasks of a client are still running.
#[derive(Debug, Default)]
pub(super) struct Activity(Gate<usize>);

/// One of them; dropped when it ends.
#[derive(Debug)]
pub(super) struct Running(Arc<Activity>);

impl Activity {
    pub(super) fn begin(self: &Arc<Self>) -> Running {
        self.0.lock().inner += 1;
        Running(Arc::clone(self))
    }

    /// Waits until nothing runs.
    pub(super) async fn idle(&self) {
        self.0.wait(|running| (*running == 0).then_some(())).await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.0.change(|running| {
            *running -= 1;
            *running == 0
        });
    }
}
