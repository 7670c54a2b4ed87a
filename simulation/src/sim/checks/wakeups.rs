//! The frequency of a client's alarms and of its monitors' streams: no more often than its servers
//! and operations give reason to.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use sdam_core::id::ServerId;
use sdam_core::time::Instant;

use super::{Finding, ensure};

/// The number of rings for one server in a second: two checks begin and two are given up,
/// and the same of measurements of the round trip time. An operation that waits is a reason for no
/// more than the former, and no server is found more often than that.
const FOR_SERVER: u32 = 8;

/// The number of further rings.
const FOR_CLIENT: u32 = 8;

/// The number of streams that a monitor may open to its server in any second: two checks begin,
/// each of which may be tried once more at once, and as many measurements of the round trip time.
const STREAMS: usize = 8;

/// A second, in which only so much may happen.
const SECOND: Duration = Duration::from_secs(1);

/// The events within one second.
#[derive(Debug, Default)]
struct Second {
    since: Instant,
    topology: u32,
    /// The number of operations whose time was declared to be up, which happens to each once.
    excuses: u32,
    /// Those of the second before.
    excused: u32,
    /// The number of servers that there were at most.
    servers: u32,
}

/// The recent events.
#[derive(Debug, Default)]
pub(super) struct WakeUps {
    second: Second,
    /// The time when the streams of each monitor were opened, in the second until the last one was.
    opened: BTreeMap<ServerId, VecDeque<Instant>>,
}

/// Returns how often a client of so many servers may wake up in a second, but for operations whose
/// time is up, or look for one.
pub(in crate::sim) const fn limit(servers: u32) -> u32 {
    FOR_CLIENT + servers * FOR_SERVER
}

impl WakeUps {
    fn turn(&mut self, now: Instant) -> &mut Second {
        if now - self.second.since >= SECOND {
            let excused = self.second.excuses;
            self.second = Second { since: now, excused, ..Second::default() };
        }
        &mut self.second
    }

    pub(super) fn woken(&mut self, now: Instant) {
        self.turn(now).topology += 1;
    }

    /// A monitor opens a stream.
    pub(super) fn opened(&mut self, server: ServerId, now: Instant) -> Finding {
        let opened = self.opened.entry(server).or_default();
        opened.push_back(now);
        while opened.front().is_some_and(|first| now - *first >= SECOND) {
            opened.pop_front();
        }
        ensure(opened.len() <= STREAMS, "bounded reconnects", || {
            format!("{} to {server} in the second until {now:?}", opened.len())
        })
    }

    pub(super) fn excused(&mut self, now: Instant) {
        self.turn(now).excuses += 1;
    }

    pub(super) fn judge(&mut self, now: Instant, servers: usize) -> Finding {
        let second = &mut self.second;
        second.servers = second.servers.max(u32::try_from(servers).unwrap_or(u32::MAX));
        let Second { topology, servers, excuses, excused, .. } = *second;
        ensure(topology <= limit(servers) + excuses + excused, "bounded wake-ups", || {
            format!("{topology} in the second until {now:?}, with {servers} servers")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Instant, STREAMS, WakeUps, limit};
    use crate::sim::checks::tests::servers;

    /// Returns whether an alarm may ring that often in a second, while the time of so many
    /// operations is declared to be up.
    fn may_ring(times: u32, expired: u32) -> bool {
        let (mut wake_ups, now) = (WakeUps::default(), Instant::from_millis(5_000));
        (0..expired).for_each(|_| wake_ups.excused(now));
        (0..times).for_each(|_| wake_ups.woken(now));
        wake_ups.judge(now, 3).is_ok()
    }

    #[test]
    fn streams_of_monitors_are_opened_no_more_often_than_servers_give_reason_to() {
        // In any second, and not only in one that begins when another one ends.
        for (apart, allowed) in [(0, false), (124, false), (125, true), (500, true)] {
            let mut wake_ups = WakeUps::default();
            let times = (0..=STREAMS as u64).map(|it| Instant::from_millis(900 + apart * it));
            let may = times.map(|now| wake_ups.opened(servers()[0], now)).all(|it| it.is_ok());
            assert_eq!(may, allowed, "{apart} ms apart");
        }
    }

    #[test]
    fn alarms_ring_no_more_often_than_servers_and_expired_operations_give_reason_to() {
        assert!(may_ring(limit(3), 0) && !may_ring(limit(3) + 1, 0));
        assert!(may_ring(limit(3) + 5, 5) && !may_ring(limit(3) + 6, 5));
    }
}
