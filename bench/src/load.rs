//! Tasks that do the same again and again, as fast as they can, and what that costs.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use smol::Executor;

use crate::sample::Sample;
use crate::{Failure, THREADS, runtime};

/// The time that tasks work before they are measured: connections are made, memory is there.
const WARM_UP: Duration = Duration::from_millis(500);

/// The time that tasks may take to end once they are stopped.
const END_LIMIT: Duration = Duration::from_secs(10);

/// The work of an asynchronous task, with its connection, or its share of a client.
pub trait Work: Send + 'static {
    /// Does it once, and waits for the answer.
    fn once(&mut self) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// The number of times that one task has done its work, on a cache line of its own.
#[derive(Default)]
#[repr(align(128))]
struct Count(AtomicU64);

/// The state that the tasks of one measurement share.
struct Load {
    counts: Vec<Count>,
    ended: AtomicBool,
}

impl Load {
    fn new(tasks: usize) -> Arc<Self> {
        let counts = std::iter::repeat_with(Count::default).take(tasks).collect();
        Arc::new(Self { counts, ended: AtomicBool::new(false) })
    }

    /// Notes that a task has done its work once more, and returns whether it goes on.
    fn goes_on(&self, task: usize) -> bool {
        self.counts[task].0.fetch_add(1, Ordering::Relaxed);
        !self.ended.load(Ordering::Relaxed)
    }

    /// Lets the tasks warm up, measures them, and ends them.
    fn measure(&self, window: Duration) -> Sample {
        thread::sleep(WARM_UP);
        let (before, start, cpu) = (self.reading(), Instant::now(), cpu_time());
        thread::sleep(window);
        let (after, elapsed, cpu) = (self.reading(), start.elapsed(), cpu_time() - cpu);
        self.ended.store(true, Ordering::Relaxed);
        Sample {
            times: after.0 - before.0,
            elapsed,
            cpu,
            allocations: after.1 - before.1,
            times_in_all: after.0,
        }
    }

    /// Returns how often the work was done so far, and the allocations.
    fn reading(&self) -> (u64, u64) {
        let times = self.counts.iter().map(|count| count.0.load(Ordering::Relaxed)).sum();
        (times, allocations())
    }
}

/// Returns the CPU time of all threads of this process so far, to the nanosecond: the scheduler's
/// own account of when they ran, and no count of ticks.
pub fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let [seconds, nanoseconds] =
        [time.tv_sec, time.tv_nsec].map(|part| u64::try_from(part).expect("time is positive"));
    Duration::from_secs(seconds) + Duration::from_nanos(nanoseconds)
}

#[cfg(feature = "allocations")]
fn allocations() -> u64 {
    let stats = stats_alloc::INSTRUMENTED_SYSTEM.stats();
    u64::try_from(stats.allocations + stats.reallocations).expect("a count fits")
}

#[cfg(not(feature = "allocations"))]
const fn allocations() -> u64 {
    0
}

/// Measures one thread for each of `works`.
///
/// # Errors
///
/// Fails with the first error of a thread.
pub fn on_threads<W>(works: Vec<W>, window: Duration) -> Result<Sample, Failure>
where
    W: FnMut() -> Result<(), Failure> + Send + 'static,
{
    let load = Load::new(works.len());
    let mut threads = Vec::new();
    for (task, mut work) in works.into_iter().enumerate() {
        let load = Arc::clone(&load);
        threads.push(thread::spawn(move || {
            while load.goes_on(task) {
                work()?;
            }
            Ok::<(), Failure>(())
        }));
    }
    let sample = load.measure(window);
    for thread in threads {
        thread.join().map_err(|_| "a thread panicked")??;
    }
    Ok(sample)
}

/// Opens what tasks work with on a runtime, and measures one task for each.
///
/// # Errors
///
/// Fails with the first error of a task, and if one does not end.
pub fn on_tokio<W: Work>(
    open: impl Future<Output = Result<Vec<W>, Failure>>,
    window: Duration,
) -> Result<Sample, Failure> {
    let runtime = runtime(THREADS)?;
    let works = runtime.block_on(open)?;
    let load = Load::new(works.len());
    let mut tasks = Vec::new();
    for (task, mut work) in works.into_iter().enumerate() {
        let load = Arc::clone(&load);
        tasks.push(runtime.spawn(async move {
            while load.goes_on(task) {
                work.once().await?;
            }
            Ok::<(), Failure>(())
        }));
    }
    let sample = load.measure(window);
    runtime.block_on(async {
        for task in tasks {
            let ended = tokio::time::timeout(END_LIMIT, task).await;
            ended.map_err(|_| "a task still waits for its answer")???;
        }
        Ok(sample)
    })
}

/// Measures one task of smol for each of `works`, on as many threads as tokio has.
///
/// # Errors
///
/// Fails with the first error of a task, and if one does not end.
pub fn on_smol<W: Work>(
    executor: &Arc<Executor<'static>>,
    works: Vec<W>,
    window: Duration,
) -> Result<Sample, Failure> {
    for _ in 0..THREADS {
        let executor = Arc::clone(executor);
        thread::spawn(move || smol::block_on(executor.run(std::future::pending::<()>())));
    }
    let load = Load::new(works.len());
    let mut tasks = Vec::new();
    for (task, mut work) in works.into_iter().enumerate() {
        let load = Arc::clone(&load);
        tasks.push(executor.spawn(async move {
            while load.goes_on(task) {
                work.once().await?;
            }
            Ok::<(), Failure>(())
        }));
    }
    let sample = load.measure(window);
    let end = async {
        smol::Timer::after(END_LIMIT).await;
        Err("a task still waits for its answer".into())
    };
    let all = async {
        for task in tasks {
            task.await?;
        }
        Ok(sample)
    };
    smol::block_on(smol::future::or(all, end))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::cpu_time;

    #[test]
    fn cpu_time_is_counted_finer_than_by_ticks() {
        /// The tick of a kernel that has 1,000 in a second: none has more.
        const TICK: Duration = Duration::from_millis(1);
        let step = || {
            let before = cpu_time();
            std::iter::repeat_with(|| cpu_time() - before).find(|step| !step.is_zero())
        };
        let steps = std::iter::repeat_with(step).take(100).flatten();
        assert!(steps.min().is_some_and(|least| least < TICK / 10));
    }
}
