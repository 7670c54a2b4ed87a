//! How long things may take: what the liveness checks demand, derived from a client's options.

use std::time::Duration;

use sdam_core::options::{MIN_HEARTBEAT_FREQUENCY, Options};

use super::path::MAX_LATENCY;

/// The longest that a question and its answer take, unless something is wrong with their path.
const MAX_ROUND_TRIP: Duration = Duration::from_nanos(2 * MAX_LATENCY.as_nanos() as u64);

/// T and B of one client.
///
/// - **T** is how long a server must have been reachable before anything is promised of it. A check
///   that began while it was not may await a reply that never comes, for as long as the
///   specification lets it: `connectTimeoutMS + heartbeatFrequencyMS`.
/// - **B** is how long a selection may then still wait. An operation's error may just have marked
///   the server Unknown while its monitor awaits a reply, which comes within
///   `heartbeatFrequencyMS`; or the last check has just failed, and the next one follows after
///   500 ms, opens a stream and says hello: two round trips.
/// - A **view** without anybody who waits may take longer to be right: after a failed check its
///   monitor sleeps for `heartbeatFrequencyMS`, and members that it then learns of are checked in
///   two further round trips.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// T: for how long a server must have been reachable.
    pub reachable: Duration,
    /// B: within what time a selection ends then.
    pub selection: Duration,
    /// Within what time, after T, the view equals the truth.
    pub view: Duration,
}

impl Bounds {
    /// Derives the bounds from options.
    ///
    /// Without a connectTimeoutMS nothing is promised: the bounds are longer than any simulation.
    pub fn of(options: &Options) -> Self {
        let forever = Duration::from_secs(u64::from(u32::MAX));
        let heartbeat = options.heartbeat_frequency();
        let selection = MIN_HEARTBEAT_FREQUENCY + heartbeat + MAX_ROUND_TRIP * 2;
        Self {
            reachable: options.connect_timeout().unwrap_or(forever) + heartbeat,
            selection,
            view: selection + heartbeat + MAX_ROUND_TRIP * 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Bounds, Duration, Options};

    #[test]
    fn the_bounds_of_the_default_options_are_those_that_the_documentation_names() {
        let bounds = Bounds::of(&Options::parse("mongodb://a").unwrap());
        assert_eq!(bounds.reachable, Duration::from_secs(20));
        assert_eq!(bounds.selection, Duration::from_millis(10_740));
        assert_eq!(bounds.view, Duration::from_millis(20_980));
    }
}
