//! How often a client's alarms ring: no more often than its servers and operations give reason to.

use std::time::Duration;

use sdam_core::time::Instant;

use super::{Finding, ensure};

/// How often the alarm may ring for one server in a second: two checks begin and two are given up,
/// and the same of measurements of the round trip time. An operation that waits is a reason for no
/// more than the former, and no server is found more often than that.
const FOR_SERVER: u32 = 8;

/// How often it may ring besides.
const FOR_CLIENT: u32 = 8;

/// What happened within one second.
#[derive(Debug, Default)]
pub(super) struct WakeUps {
    since: Instant,
    topology: u32,
    /// How many of the monitors' streams were opened.
    opened: u32,
    /// How many operations were told that their time is up, which each is once.
    excuses: u32,
    /// Those of the second before.
    excused: u32,
    /// How many servers there were at most.
    servers: u32,
}

/// Returns how often a client of so many servers may wake up in a second, but for operations whose
/// time is up, or look for one.
pub(in crate::sim) const fn limit(servers: u32) -> u32 {
    FOR_CLIENT + servers * FOR_SERVER
}

impl WakeUps {
    fn turn(&mut self, now: Instant) {
        if now - self.since >= Duration::from_secs(1) {
            *self = Self { since: now, excused: self.excuses, ..Self::default() };
        }
    }

    pub(super) fn woken(&mut self, now: Instant) {
        self.turn(now);
        self.topology += 1;
    }

    pub(super) fn opened(&mut self, now: Instant) {
        self.turn(now);
        self.opened += 1;
    }

    pub(super) fn excused(&mut self, now: Instant) {
        self.turn(now);
        self.excuses += 1;
    }

    pub(super) fn judge(&mut self, now: Instant, servers: usize) -> Finding {
        self.servers = self.servers.max(u32::try_from(servers).unwrap_or(u32::MAX));
        let servers = self.servers;
        let most = limit(servers);
        ensure(self.opened <= most, "bounded reconnects", || {
            format!("{} in the second until {now:?}, with {servers} servers", self.opened)
        })?;
        ensure(self.topology <= most + self.excuses + self.excused, "bounded wake-ups", || {
            format!("{} in the second until {now:?}, with {servers} servers", self.topology)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Instant, WakeUps, limit};

    /// Returns whether an alarm may ring that often in a second, while so many operations are told
    /// that their time is up.
    fn may_ring(times: u32, expired: u32) -> bool {
        let (mut wake_ups, now) = (WakeUps::default(), Instant::from_millis(5_000));
        (0..expired).for_each(|_| wake_ups.excused(now));
        (0..times).for_each(|_| wake_ups.woken(now));
        wake_ups.judge(now, 3).is_ok()
    }

    #[test]
    fn streams_of_monitors_are_opened_no_more_often_than_servers_give_reason_to() {
        let may_open = |times| {
            let (mut wake_ups, now) = (WakeUps::default(), Instant::from_millis(5_000));
            (0..times).for_each(|_| wake_ups.opened(now));
            wake_ups.judge(now, 3).is_ok()
        };
        assert!(may_open(limit(3)) && !may_open(limit(3) + 1));
    }

    #[test]
    fn alarms_ring_no_more_often_than_servers_and_expired_operations_give_reason_to() {
        assert!(may_ring(limit(3), 0) && !may_ring(limit(3) + 1, 0));
        assert!(may_ring(limit(3) + 5, 5) && !may_ring(limit(3) + 6, 5));
    }
}
