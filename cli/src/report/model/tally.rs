//! The sums of what is known of a server.

use std::time::Duration;

use sdam_core::time::Instant;

use super::Lane;
use crate::watch::State;

/// The sums of one server.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::report) struct Tally {
    /// The state at the end, if the server was a member then.
    pub(in crate::report) last: Option<State>,
    /// The time for which it was primary.
    pub(in crate::report) primary: Duration,
    /// The time for which it was failing.
    pub(in crate::report) failing: Duration,
    /// The number of checks that have ended.
    pub(in crate::report) checks: usize,
    /// The number of those that have failed.
    pub(in crate::report) failed: usize,
    /// The shortest and the longest round trip time, in milliseconds.
    pub(in crate::report) round_trips: Option<(f64, f64)>,
    /// The number of times that its pool was cleared.
    pub(in crate::report) clears: usize,
}

impl Tally {
    /// Sums up a lane of a report that ends then, before anything is left out.
    pub(super) fn new(lane: &Lane, end: Instant) -> Self {
        let time_in = |state: State| {
            let spans = lane.spans.iter().filter(|span| span.state == state);
            spans.map(|span| span.to - span.from).sum()
        };
        let last = lane.spans.last().filter(|last| last.to == end);
        Self {
            last: last.map(|last| last.state),
            primary: time_in(State::Primary),
            failing: time_in(State::Failing),
            checks: lane.checks.len(),
            failed: lane.checks.iter().filter(|check| check.failure.is_some()).count(),
            round_trips: round_trips(lane),
            clears: lane.clears.len(),
        }
    }
}

fn round_trips(lane: &Lane) -> Option<(f64, f64)> {
    let measured = lane.checks.iter().filter(|it| !it.awaited && it.failure.is_none());
    let averages = lane.round_trips.iter().map(|it| it.took);
    let times = measured.filter_map(|it| it.took).chain(averages);
    times.fold(None, |range, took| match range {
        None => Some((took, took)),
        Some((least, most)) => Some((f64::min(least, took), f64::max(most, took))),
    })
}
