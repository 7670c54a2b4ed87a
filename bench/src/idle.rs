//! The resources that a process takes while nothing happens: private memory, threads, CPU time.

use std::fs;
use std::time::{Duration, Instant};

use crate::Failure;
use crate::load::cpu_time;

/// The resources that a process has: private memory in KiB, and threads.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// The memory that it has written and shares with no other process, in KiB.
    ///
    /// Pages of the program's file are left out: whether those are shared depends on what the
    /// kernel has left of them to the process that has started this one.
    pub private: u64,
    /// The threads, the main one included.
    pub threads: usize,
}

impl Usage {
    /// Reads what this process has at this moment, from Linux.
    ///
    /// # Errors
    ///
    /// Fails if the system says nothing of it.
    pub fn now() -> Result<Self, Failure> {
        let rollup = fs::read_to_string("/proc/self/smaps_rollup")?;
        let kib = |name: &str| -> Result<u64, Failure> {
            let line = rollup.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|line| line.split_whitespace().next());
            Ok(number.ok_or_else(|| format!("smaps_rollup says nothing of {name}"))?.parse()?)
        };
        let private = kib("Private_Dirty:")? + kib("Swap:")?;
        Ok(Self { private, threads: fs::read_dir("/proc/self/task")?.count() })
    }
}

/// The CPU time that this process used in some time, and the resources that it had at the end.
#[derive(Clone, Copy, Debug)]
pub struct Idle {
    /// The CPU time, to the nanosecond.
    pub cpu: Duration,
    /// The time that it was measured.
    pub elapsed: Duration,
    /// The resources.
    pub usage: Usage,
}

impl Idle {
    /// Measures this process for as long as `window`, after it was left alone for `settle`; `rest`
    /// lets time pass, as what is measured does it.
    ///
    /// # Errors
    ///
    /// Fails if `rest` does, and if the system does not say what the process has.
    pub fn measure(
        settle: Duration,
        window: Duration,
        mut rest: impl FnMut(Duration) -> Result<(), Failure>,
    ) -> Result<Self, Failure> {
        rest(settle)?;
        let (before, begun) = (cpu_time(), Instant::now());
        rest(window)?;
        let (cpu, elapsed) = (cpu_time() - before, begun.elapsed());
        Ok(Self { cpu, elapsed, usage: Usage::now()? })
    }

    /// Returns the CPU time as a share of that which passed.
    pub fn share(&self) -> f64 {
        self.cpu.as_secs_f64() / self.elapsed.as_secs_f64()
    }
}
