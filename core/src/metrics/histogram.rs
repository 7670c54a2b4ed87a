//! A histogram of times, with fixed buckets.

use std::time::Duration;

use super::definition::{Definition, MetricKind};

/// The distribution of values: how many there were up to each bound, and their sum.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Distribution {
    /// Ascending bounds, each with the number of values that are not greater.
    pub buckets: Vec<(f64, u64)>,
    /// The number of all values.
    pub count: u64,
    /// The sum of all values.
    pub sum: f64,
}

/// A histogram of times, in seconds.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    bounds: &'static [f64],
    /// The number of times in each bucket, with one for what is beyond the last bound.
    counts: Box<[u64]>,
    sum: Duration,
}

impl Histogram {
    /// Begins with the buckets of a family, without a value.
    pub(super) fn new(definition: &Definition) -> Self {
        let bounds = match definition.kind {
            MetricKind::Histogram { bounds } => bounds,
            MetricKind::Counter | MetricKind::Gauge => {
                unreachable!("the family is one of histograms")
            }
        };
        Self { bounds, counts: vec![0; bounds.len() + 1].into(), sum: Duration::ZERO }
    }

    /// Adds a time.
    pub(super) fn observe(&mut self, time: Duration) {
        let seconds = time.as_secs_f64();
        let bucket = self.bounds.partition_point(|bound| *bound < seconds);
        self.counts[bucket] += 1;
        self.sum = self.sum.saturating_add(time);
    }

    /// Adds what another one of the same family has counted.
    pub(super) fn add(&mut self, other: &Self) {
        debug_assert_eq!(self.bounds, other.bounds, "they are of one family");
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.sum = self.sum.saturating_add(other.sum);
    }

    /// Returns how many times there were.
    pub(super) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns what it has come to.
    pub(super) fn distribution(&self) -> Distribution {
        let mut count = 0;
        let mut buckets = Vec::with_capacity(self.bounds.len());
        for (bound, in_bucket) in self.bounds.iter().zip(&self.counts) {
            count += in_bucket;
            buckets.push((*bound, count));
        }
        let beyond = self.counts[self.bounds.len()];
        Distribution { buckets, count: count + beyond, sum: self.sum.as_secs_f64() }
    }
}
