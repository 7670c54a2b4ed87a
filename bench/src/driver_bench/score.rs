//! The timings of a task, and what the chapter makes of them.

use std::str::FromStr;
use std::time::Duration;

use sdam_bench::Failure;

/// The percentiles that are recorded.
pub(crate) const PERCENTILES: [usize; 9] = [10, 25, 50, 75, 80, 90, 95, 98, 99];

/// The cost of one iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timing {
    /// The time that it took.
    pub(crate) wall: Duration,
    /// The CPU time of the client in that time.
    pub(crate) cpu: Duration,
}

impl FromStr for Timing {
    type Err = Failure;

    fn from_str(line: &str) -> Result<Self, Failure> {
        let numbers: Result<Vec<u64>, _> = line.split_whitespace().map(str::parse).collect();
        match numbers.as_deref() {
            Ok(&[wall @ (1..), cpu]) => {
                Ok(Self { wall: Duration::from_nanos(wall), cpu: Duration::from_nanos(cpu) })
            }
            _ => Err(format!("{line:?} is no timing of an iteration").into()),
        }
    }
}

/// The timings of one competitor in one task, those of warming up left out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timings(pub(crate) Vec<Timing>);

impl Timings {
    /// Returns the time that all iterations took together.
    pub(crate) fn total(&self) -> Duration {
        self.0.iter().map(|timing| timing.wall).sum()
    }

    /// Returns a percentile of the times, in seconds.
    pub(crate) fn wall(&self, percentile: usize) -> f64 {
        nearest_rank(self.0.iter().map(|timing| timing.wall), percentile)
    }

    /// Returns the median of the CPU times, in seconds.
    pub(crate) fn cpu(&self) -> f64 {
        nearest_rank(self.0.iter().map(|timing| timing.cpu), 50)
    }

    /// Returns how far the fastest and the slowest iteration are from each other, as a share of the
    /// median.
    pub(crate) fn noise(&self) -> f64 {
        (self.wall(100) - self.wall(0)) / self.wall(50)
    }
}

/// Returns the percentile as the chapter defines it, the first of fewer times than it takes.
fn nearest_rank(times: impl Iterator<Item = Duration>, percentile: usize) -> f64 {
    let mut sorted: Vec<Duration> = times.collect();
    sorted.sort_unstable();
    let index = (sorted.len() * percentile / 100).saturating_sub(1);
    sorted.get(index).map_or(f64::NAN, Duration::as_secs_f64)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Timing, Timings};

    fn of(seconds: impl Iterator<Item = u64>) -> Timings {
        let timing = |wall| Timing { wall: Duration::from_secs(wall), cpu: Duration::ZERO };
        Timings(seconds.map(timing).collect())
    }

    #[test]
    fn percentiles_are_those_of_the_nearest_rank() {
        let timings = of((1..=200).rev());
        assert_eq!([10, 50, 99].map(|percentile| timings.wall(percentile)), [20.0, 100.0, 198.0]);
        assert_eq!([10, 50, 99].map(|percentile| of(7..=9).wall(percentile)), [7.0, 7.0, 8.0]);
        assert!(of(0..0).wall(50).is_nan());
    }

    #[test]
    fn a_line_has_the_time_and_that_of_the_processor() {
        let timing = "2000000000 15".parse::<Timing>().unwrap();
        assert_eq!((timing.wall.as_secs(), timing.cpu.as_nanos()), (2, 15));
        assert!("0 15".parse::<Timing>().is_err());
        assert!("ready".parse::<Timing>().is_err());
    }
}
