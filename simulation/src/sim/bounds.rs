//! The time that things may take: what the liveness checks demand, derived from a client's options.

use std::time::Duration;

use sdam_core::config::{MIN_HEARTBEAT_FREQUENCY, Options};

use super::checks::COOLDOWN;
use super::dns::LONGEST_LOOKUP;
use super::path::MAX_LATENCY;

/// The longest that a question and its answer take, unless something is wrong with their path.
const MAX_ROUND_TRIP: Duration = Duration::from_nanos(2 * MAX_LATENCY.as_nanos() as u64);

/// Longer than any simulation.
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);

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
///
/// A **single-threaded** client checks servers only in scans, one after the other, while an
/// operation waits. A check of a server that was known takes as long as four `connectTimeoutMS`: a
/// reply over the connection there is, once more if the process was not there to read the first one
/// in time, and the check that follows the failure at once, which opens a stream and says hello.
/// **S**, a scan, is one such check of each server, after a lookup of the servers if they are in
/// DNS.
///
/// - **T**: a check that began while the server was not reachable may fail as late as that, and
///   then the server is left alone for cooldownMS.
/// - **B**: a scan that has already passed the server by ends, after 500 ms the next one begins,
///   and when that one ends, the operation does: S, 500 ms, and S. With serverSelectionTryOnce an
///   operation may give up after one scan; but not if that began after T, so an operation that
///   begins after `T + S` finds its server.
/// - The **view** is as right as the last scan. One that began after T was right; after `S` such a
///   scan, or none, may be the last; and that one is too old after heartbeatFrequencyMS. A stream
///   that has died unnoticed, of a server that an operation's error made Unknown, fails one check
///   without another one at once: then it is the operation after the next one, T later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bounds {
    /// T: for how long a server must have been reachable.
    pub reachable: Duration,
    /// B: within what time a selection ends then.
    pub selection: Duration,
    /// Within what time, after T, the view equals the truth; that of a single-threaded client, as
    /// soon as an operation that begins then has selected a server.
    pub view: Duration,
    /// S: how long a scan takes, nothing unless the client is single-threaded.
    pub scan: Duration,
}

impl Bounds {
    /// Derives the bounds of a client that monitors in the background from its options.
    ///
    /// Without a connectTimeoutMS nothing is promised: the bounds are longer than any simulation.
    pub fn of(options: &Options) -> Self {
        let heartbeat = options.heartbeat_frequency();
        let selection = MIN_HEARTBEAT_FREQUENCY + heartbeat + MAX_ROUND_TRIP * 2;
        Self {
            reachable: options.connect_timeout().unwrap_or(FOREVER) + heartbeat,
            selection,
            view: selection + heartbeat + MAX_ROUND_TRIP * 2,
            scan: Duration::ZERO,
        }
    }

    /// Derives the bounds of a single-threaded client from its options, and from how many servers
    /// there are.
    pub fn of_single_threaded(options: &Options, servers: usize) -> Self {
        let check = options.connect_timeout().unwrap_or(FOREVER) * 4;
        let lookup = options.srv().map_or(Duration::ZERO, |_| LONGEST_LOOKUP);
        let scan = lookup + check.saturating_mul(u32::try_from(servers).unwrap_or(u32::MAX));
        Self {
            reachable: check + COOLDOWN,
            selection: scan + MIN_HEARTBEAT_FREQUENCY + scan,
            view: scan + options.heartbeat_frequency(),
            scan,
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

    #[test]
    fn single_threaded_clients_have_the_bounds_that_the_documentation_names() {
        let options = Options::builder().uri("mongodb://a,b,c").unwrap().single_threaded(true);
        let bounds = Bounds::of_single_threaded(&options.build().unwrap(), 3);
        assert_eq!(bounds.reachable, Duration::from_secs(45));
        assert_eq!(bounds.scan, Duration::from_secs(120));
        assert_eq!(bounds.selection, Duration::from_millis(240_500));
        assert_eq!(bounds.view, Duration::from_secs(180));
    }
}
