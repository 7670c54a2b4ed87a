//! The round trip time of one server: a moving average and a recent minimum.

use std::time::Duration;

use serde::Serialize;

/// The number of samples of the minimum.
const RECENT: usize = 10;

/// The moving average (Server Selection, "Round Trip Times and the Latency Window") and the recent
/// minimum (Server Monitoring, "Measuring RTT") of the round trip time.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct RoundTripTime {
    average: Option<Duration>,
    /// True if the next sample takes the place of the average.
    is_old: bool,
    /// The last samples, in a ring, in nanoseconds: each monitored server has one.
    recent: [u64; RECENT],
    /// The number of samples that there have been.
    count: usize,
}

impl RoundTripTime {
    /// Weighs a new sample with a fifth, the alpha of 0.2 that the specification gives.
    pub(crate) fn add(&mut self, sample: Duration) {
        self.average = Some(match self.average.filter(|_| !self.is_old) {
            None => sample,
            Some(average) => sample / 5 + average * 4 / 5,
        });
        self.is_old = false;
        let nanos = u64::try_from(sample.as_nanos()).unwrap_or(u64::MAX);
        self.recent[self.count % RECENT] = nanos;
        self.count += 1;
    }

    /// Forgets all samples.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Forgets all samples, but for the average, which holds until the next sample.
    pub(crate) fn restart(&mut self) {
        *self = Self { average: self.average, is_old: true, ..Self::default() };
    }

    pub(crate) const fn average(&self) -> Option<Duration> {
        self.average
    }

    /// Returns the least of the last ten samples, or zero while there are fewer than two.
    pub(crate) fn minimum(&self) -> Duration {
        match self.count {
            0 | 1 => Duration::ZERO,
            count => {
                let least = self.recent[..count.min(RECENT)].iter().min();
                Duration::from_nanos(least.copied().unwrap_or_default())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::RoundTripTime;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn server_selection_rtt_is_averaged_with_alpha_one_fifth() {
        let mut rtt = RoundTripTime::default();
        assert_eq!(rtt.average(), None);
        rtt.add(ms(100));
        assert_eq!(rtt.average(), Some(ms(100)));
        rtt.add(ms(200));
        assert_eq!(rtt.average(), Some(ms(120)));
        rtt.reset();
        rtt.add(ms(7));
        assert_eq!(rtt.average(), Some(ms(7)), "the first sample after a reset is the average");
    }

    #[test]
    fn server_selection_rtt_an_average_that_is_old_holds_until_the_next_sample() {
        let mut rtt = RoundTripTime::default();
        (0..3).for_each(|_| rtt.add(ms(100)));
        rtt.restart();
        assert_eq!((rtt.average(), rtt.minimum()), (Some(ms(100)), Duration::ZERO));
        rtt.add(ms(7));
        assert_eq!(rtt.average(), Some(ms(7)), "the first sample is the average again");
        rtt.add(ms(12));
        assert_eq!((rtt.average(), rtt.minimum()), (Some(ms(8)), ms(7)));
    }

    #[test]
    fn measuring_rtt_the_minimum_is_zero_until_two_samples_and_looks_back_ten() {
        let mut rtt = RoundTripTime::default();
        rtt.add(ms(1));
        assert_eq!(rtt.minimum(), Duration::ZERO);
        rtt.add(ms(5));
        assert_eq!(rtt.minimum(), ms(1));
        (0..9).for_each(|_| rtt.add(ms(6)));
        assert_eq!(rtt.minimum(), ms(5), "the first sample is eleven back");
    }
}
