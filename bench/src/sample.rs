//! The figures of one measurement.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::Failure;

/// The figures of one measurement, as a line of numbers in the order of the fields.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// The number of times that the work was done while it was measured.
    pub times: u64,
    /// The time that it was measured.
    pub elapsed: Duration,
    /// The CPU time of the client in that time.
    pub cpu: Duration,
    /// Allocations in that time; none are counted without the feature `allocations`.
    pub allocations: u64,
    /// The number of times since the process started.
    pub times_in_all: u64,
}

impl Sample {
    /// Returns how often it was done in a second.
    pub fn per_second(&self) -> f64 {
        self.times as f64 / self.elapsed.as_secs_f64()
    }

    /// Returns the CPU time of each, in microseconds.
    pub fn cpu_each(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.times as f64
    }

    /// Returns the allocations of each.
    pub fn allocations_each(&self) -> f64 {
        self.allocations as f64 / self.times as f64
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { times, elapsed, cpu, allocations, times_in_all } = self;
        let (elapsed, cpu) = (elapsed.as_nanos(), cpu.as_nanos());
        write!(f, "{times} {elapsed} {cpu} {allocations} {times_in_all}")
    }
}

impl FromStr for Sample {
    type Err = Failure;

    fn from_str(line: &str) -> Result<Self, Failure> {
        let numbers: Result<Vec<u64>, _> = line.split_whitespace().map(str::parse).collect();
        match numbers.as_deref() {
            Ok(&[times @ (1..), elapsed, cpu, allocations, times_in_all]) => Ok(Self {
                times,
                elapsed: Duration::from_nanos(elapsed),
                cpu: Duration::from_nanos(cpu),
                allocations,
                times_in_all,
            }),
            _ => Err(format!("{line:?} is no measurement of anything that was done").into()),
        }
    }
}
