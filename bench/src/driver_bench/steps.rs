//! The steps of a task, as a competitor's process does them: see [`crate::process`].

use std::future::Future;
use std::io::{BufRead as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use sdam_bench::Failure;
use sdam_bench::load::cpu_time;
use tokio::task::JoinSet;

/// Says that a driver cannot do the task.
pub(crate) fn without(reason: &str) {
    println!("without {reason}");
}

/// Does an iteration for each line of the input: what is to be done before, which is not measured,
/// and what is.
pub(crate) fn serve<P>(
    mut before: impl FnMut() -> Result<P, Failure>,
    mut run: impl FnMut(P) -> Result<(), Failure>,
) -> Result<(), Failure> {
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        line?;
        let prepared = before()?;
        let (start, cpu) = (Instant::now(), cpu_time());
        run(prepared)?;
        let (wall, cpu) = (start.elapsed(), cpu_time() - cpu);
        println!("{} {}", wall.as_nanos(), cpu.as_nanos());
        std::io::stdout().flush()?;
    }
    Ok(())
}

/// Does work for each number below `count`, so many at once, as tasks.
pub(crate) async fn on_tasks<F>(
    workers: usize,
    count: usize,
    work: impl Fn(usize) -> F + Clone + Send + 'static,
) -> Result<(), Failure>
where
    F: Future<Output = Result<(), Failure>> + Send,
{
    let (next, mut tasks) = (Arc::new(AtomicUsize::new(0)), JoinSet::new());
    for _ in 0..workers {
        let (next, work) = (Arc::clone(&next), work.clone());
        tasks.spawn(async move {
            while let Some(number) = take(&next, count) {
                work(number).await?;
            }
            Ok::<(), Failure>(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}

/// Does work for each number below `count`, so many at once, on threads.
pub(crate) fn on_threads(
    workers: usize,
    count: usize,
    work: impl Fn(usize) -> Result<(), Failure> + Sync,
) -> Result<(), Failure> {
    let next = AtomicUsize::new(0);
    let one = || {
        while let Some(number) = take(&next, count) {
            work(number)?;
        }
        Ok::<(), Failure>(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(one)).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(ended) => ended,
            Err(_) => Err("a thread panicked".into()),
        })
    })
}

fn take(next: &AtomicUsize, count: usize) -> Option<usize> {
    let number = next.fetch_add(1, Ordering::Relaxed);
    (number < count).then_some(number)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::on_threads;

    #[test]
    fn each_number_is_taken_once_and_a_failure_is_returned() {
        let taken = Mutex::new(Vec::new());
        on_threads(3, 10, |number| {
            taken.lock().unwrap().push(number);
            Ok(())
        })
        .unwrap();
        let mut taken = taken.into_inner().unwrap();
        taken.sort_unstable();
        assert_eq!(taken, (0..10).collect::<Vec<_>>());
        assert!(on_threads(2, 10, |_| Err("no".into())).is_err());
    }
}
