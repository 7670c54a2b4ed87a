//! How many tasks of a client are still running.

use std::sync::Arc;

use super::process::Process;
use super::waking::Gate;

/// How many tasks of a client are still running.
#[derive(Debug)]
pub(super) struct Activity {
    running: Gate<usize>,
    process: Process,
}

/// One of them; dropped when it ends.
#[derive(Debug)]
pub(super) struct Running(Arc<Activity>);

impl Activity {
    pub(super) fn new(process: Process) -> Self {
        Self { running: Gate::default(), process }
    }

    pub(super) fn begin(self: &Arc<Self>) -> Running {
        self.running.lock().inner += 1;
        Running(Arc::clone(self))
    }

    /// Waits until nothing runs.
    pub(super) async fn idle(&self) {
        self.running.wait(|running| (*running == 0).then_some(())).await;
    }
}

impl Running {
    /// Returns the process that the task runs in.
    pub(super) fn process(&self) -> Process {
        self.0.process
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.0.process.is_current() {
            return;
        }
        self.0.running.change(|running| {
            *running -= 1;
            *running == 0
        });
    }
}
