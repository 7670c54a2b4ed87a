//! Executors, on which the tasks of a client run.

use std::future::Future;
use std::pin::Pin;

/// A task of a client.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs the tasks of a client. A closure that takes a [`Task`] is an executor, too:
///
/// ```no_run
/// # use std::sync::Arc;
/// # use sdam_async_std::{Task, builder_on};
/// # use sdam_core::config::Options;
/// # struct Pool;
/// # impl Pool { fn spawn(&self, _: Task) {} }
/// # fn example(pool: Arc<Pool>) -> Result<(), Box<dyn std::error::Error>> {
/// let options = Options::parse("mongodb://localhost")?;
/// let client = builder_on(options, move |task: Task| pool.spawn(task)).build()?;
/// # Ok(())
/// # }
/// ```
pub trait Executor: Send + Sync + 'static {
    /// Starts a task and returns at once. A task that is dropped before its end counts as given
    /// up: its connection fails, and the task that keeps time closes the client.
    fn spawn(&self, task: Task);
}

impl<F: Fn(Task) + Send + Sync + 'static> Executor for F {
    fn spawn(&self, task: Task) {
        self(task);
    }
}

/// The global executor of smol.
#[cfg(feature = "smol")]
#[derive(Clone, Copy, Debug, Default)]
pub struct Smol;

#[cfg(feature = "smol")]
impl Executor for Smol {
    fn spawn(&self, task: Task) {
        smol::spawn(task).detach();
    }
}

/// The executor of async-std.
#[cfg(feature = "async-std")]
#[derive(Clone, Copy, Debug, Default)]
pub struct AsyncStd;

#[cfg(feature = "async-std")]
impl Executor for AsyncStd {
    fn spawn(&self, task: Task) {
        drop(async_std::task::spawn(task));
    }
}
