//! The round trip times of a server, as a sparkline.

use std::collections::VecDeque;
use std::time::Duration;

use sdam_core::time::Instant;

/// The number of times that are kept; no sparkline is that wide.
const MAX_SAMPLES: usize = 64;

/// The bars, from the lowest.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The least time that the highest bar may stand for: what differs by less looks the same.
const LEAST_TOP: Duration = Duration::from_millis(1);

/// The last round trip times of a server, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct RoundTrips {
    samples: VecDeque<Duration>,
    /// The time of the check that the last one was seen with.
    checked: Option<Instant>,
}

impl RoundTrips {
    /// Takes notice of what a view shows, if that is a new sample.
    pub(super) fn note(&mut self, checked: Option<Instant>, round_trip: Option<Duration>) {
        let Some(round_trip) = round_trip else { return };
        if checked == self.checked && self.samples.back() == Some(&round_trip) {
            return;
        }
        self.checked = checked;
        if self.samples.len() == MAX_SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(round_trip);
    }

    /// Draws the last of them as bars, as many as there is room for.
    pub(crate) fn sparkline(&self, width: usize) -> String {
        let shown = self.samples.range(self.samples.len().saturating_sub(width)..);
        bars(shown.copied().map(Some))
    }
}

/// Draws a bar for each time, and a space where there is none. The highest bar is the longest of
/// them, or twice the shortest one, if that is more.
pub(crate) fn bars(times: impl Iterator<Item = Option<Duration>> + Clone) -> String {
    let longest = times.clone().flatten().max().unwrap_or_default();
    let shortest = times.clone().flatten().min().unwrap_or_default();
    let top = longest.max(shortest * 2).max(LEAST_TOP).as_secs_f64();
    let bar = |time: Duration| {
        let height = time.as_secs_f64() / top * BARS.len() as f64;
        BARS[(height.ceil() as usize).clamp(1, BARS.len()) - 1]
    };
    times.map(|time| time.map_or(' ', bar)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(millis: &[u64], width: usize) -> String {
        let mut round_trips = RoundTrips::default();
        for (at, millis) in (0..).zip(millis) {
            let checked = Some(Instant::from_millis(at));
            round_trips.note(checked, Some(Duration::from_millis(*millis)));
        }
        round_trips.sparkline(width)
    }

    #[test]
    fn bars_are_as_high_as_times_are_long() {
        assert_eq!(line(&[1, 2, 4, 8, 16], 8), "▁▁▂▄█");
        assert_eq!(line(&[1, 2, 4, 8, 16], 2), "▄█");
        assert_eq!(line(&[], 8), "");
        assert_eq!(line(&[5], 0), "");
    }

    #[test]
    fn times_that_are_nearly_the_same_look_alike_and_not_like_a_summit() {
        assert_eq!(line(&[10, 10, 10], 8), "▄▄▄");
        assert_eq!(line(&[0, 0], 8), "▁▁");
    }

    #[test]
    fn what_is_seen_twice_is_one_sample() {
        let mut round_trips = RoundTrips::default();
        let (checked, time) = (Some(Instant::ZERO), Some(Duration::from_millis(5)));
        round_trips.note(checked, time);
        round_trips.note(checked, time);
        round_trips.note(checked, None);
        assert_eq!(round_trips.sparkline(8).chars().count(), 1);
        for at in 0..1000 {
            round_trips.note(Some(Instant::from_millis(at)), time);
        }
        assert_eq!(round_trips.samples.len(), MAX_SAMPLES);
    }
}
