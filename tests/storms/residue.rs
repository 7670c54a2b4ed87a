//! The possible remains of a client: sockets, tasks and memory.

use std::fs;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use crate::Outcome;

/// The memory that a storm may leave in use; allocators keep some, a leak of 1 kB for each
/// operation would be more.
const MEMORY_LIMIT_KB: u64 = 32 * 1024;

/// The time that tasks and the far ends of sockets may take to notice that the client is gone.
const LIMIT: Duration = Duration::from_secs(60);

/// The possessions of the process and its runtime at one moment; no sockets and no memory where
/// there is no `/proc` to read them from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Residue {
    pub(crate) sockets: usize,
    pub(crate) tasks: usize,
    pub(crate) resident_kb: u64,
}

impl Residue {
    pub(crate) fn now() -> Self {
        Self {
            sockets: sockets(),
            tasks: Handle::current().metrics().num_alive_tasks(),
            resident_kb: resident_kb().unwrap_or_default(),
        }
    }

    /// Waits until the process holds no more than it did at this moment.
    pub(crate) async fn is_all_there_is(self) -> Outcome {
        let start = Instant::now();
        loop {
            let now = Self::now();
            let memory_limit = self.resident_kb + MEMORY_LIMIT_KB;
            if now.sockets <= self.sockets
                && now.tasks <= self.tasks
                && now.resident_kb <= memory_limit
            {
                return Ok(());
            }
            if start.elapsed() > LIMIT {
                return Err(format!("{self:?} was there before, and now {now:?}").into());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn sockets() -> usize {
    let Ok(descriptors) = fs::read_dir("/proc/self/fd") else { return 0 };
    let targets = descriptors.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
}

fn resident_kb() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}
