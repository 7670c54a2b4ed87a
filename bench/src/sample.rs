//! The figures of one measurement.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::Failure;

/// The figures of one measurement, as a line of numbers in the order of the fields.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Pings that were answered while it was measured.
    pub(crate) pings: u64,
    /// The time that it was measured.
    pub(crate) elapsed: Duration,
    /// The CPU time of the client in that time.
    pub(crate) cpu: Duration,
    /// Allocations in that time; none are counted without the feature `allocations`.
    pub(crate) allocations: u64,
    /// Pings since the process started.
    pub(crate) pings_in_all: u64,
}

impl Sample {
    pub(crate) fn per_second(&self) -> f64 {
        self.pings as f64 / self.elapsed.as_secs_f64()
    }

    /// In microseconds.
    pub(crate) fn cpu_per_ping(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.pings as f64
    }

    pub(crate) fn allocations_per_ping(&self) -> f64 {
        self.allocations as f64 / self.pings as f64
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pings, elapsed, cpu, allocations, pings_in_all } = self;
        let (elapsed, cpu) = (elapsed.as_nanos(), cpu.as_nanos());
        write!(f, "{pings} {elapsed} {cpu} {allocations} {pings_in_all}")
    }
}

impl FromStr for Sample {
    type Err = Failure;

    fn from_str(line: &str) -> Result<Self, Failure> {
        let numbers: Result<Vec<u64>, _> = line.split_whitespace().map(str::parse).collect();
        match numbers.as_deref() {
            Ok(&[pings @ (1..), elapsed, cpu, allocations, pings_in_all]) => Ok(Self {
                pings,
                elapsed: Duration::from_nanos(elapsed),
                cpu: Duration::from_nanos(cpu),
                allocations,
                pings_in_all,
            }),
            _ => Err(format!("{line:?} is no measurement of at least one ping").into()),
        }
    }
}
