//! How often a client's alarms ring: no more often than its servers and operations give reason to.

use std::time::Duration;

use sdam_core::time::Instant;

use super::{Finding, ensure};

/// How often the alarm may ring for one server in a second: two checks begin and two are given up,
/// and the same of measurements of the round trip time.
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
    /// How many operations began to wait, or were told that their time is up.
    excuses: u32,
    /// Those of the second before.
    excused: u32,
    /// How many servers there were at most.
    servers: u32,
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
        let limit = FOR_CLIENT + servers * FOR_SERVER + self.excuses + self.excused;
        ensure(self.opened <= FOR_CLIENT + servers * FOR_SERVER, "bounded reconnects", || {
            format!("{} in the second until {now:?}, with {servers} servers", self.opened)
        })?;
        ensure(self.topology <= limit, "bounded wake-ups", || {
            format!("{} in the second until {now:?}, with {servers} servers", self.topology)
        })
    }
}
