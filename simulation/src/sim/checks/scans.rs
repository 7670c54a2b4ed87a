//! Scans of single-threaded clients: one check at a time in all, none of a server that cools down,
//! and nothing while no operation waits.

use std::collections::BTreeMap;
use std::time::Duration;

use sdam_core::config::MIN_HEARTBEAT_FREQUENCY;
use sdam_core::failure::{Cause, Failure};
use sdam_core::id::ServerId;
use sdam_core::time::Instant;

use super::{Finding, ensure};

/// For how long a server whose check has failed is left alone: cooldownMS.
pub(in crate::sim) const COOLDOWN: Duration = Duration::from_millis(5_000);

/// The scans of one client, seen from outside.
#[derive(Debug, Default)]
pub(super) struct Scans {
    checking: Option<ServerId>,
    resolving: bool,
    /// The time when the last check ended, of whichever server.
    ended: Option<Instant>,
    /// Servers whose last check has failed, and when.
    failing: BTreeMap<ServerId, Instant>,
}

impl Scans {
    pub(super) fn started(&mut self, server: ServerId, now: Instant) -> Finding {
        let other = self.checking.replace(server);
        // "Single-threaded clients MUST scan all servers synchronously"
        ensure(other.is_none(), "one check at a time", || {
            format!("{server} is checked while {other:?} is")
        })?;
        let Some(failed) = self.failing.get(&server) else { return Ok(()) };
        let pause = now - *failed;
        // A server that was known is checked once more at once.
        ensure(pause.is_zero() || pause >= COOLDOWN, "servers cool down for 5 s", || {
            format!("{server} is checked {pause:?} after its check has failed")
        })
    }

    pub(super) fn ended(&mut self, server: ServerId, failure: Option<&Failure>, now: Instant) {
        self.checking.take_if(|checking| *checking == server);
        self.ended = Some(now);
        match failure {
            None => drop(self.failing.remove(&server)),
            // The check was abandoned because of an operation's error.
            Some(Failure { cause: Cause::Canceled, .. }) => {}
            Some(_) => drop(self.failing.insert(server, now)),
        }
    }

    pub(super) fn left(&mut self, server: ServerId) {
        self.failing.remove(&server);
    }

    pub(super) const fn resolves(&mut self, resolving: bool) {
        self.resolving = resolving;
    }

    /// Returns whether a scan may have ended since then: a check has, or there was no server to
    /// check.
    pub(super) fn has_scanned(&self, since: Instant, now: Instant, servers: usize) -> bool {
        let cools = |failed: &&Instant| now - **failed < COOLDOWN + MIN_HEARTBEAT_FREQUENCY;
        let cooling = self.failing.values().filter(cools).count();
        self.ended.is_some_and(|ended| ended >= since) || cooling >= servers
    }

    /// A step is over: the scan that an operation waits for goes on, or is due in time; and while
    /// none waits, nothing is due.
    pub(super) fn after_step(
        &self,
        now: Instant,
        deadline: Option<Instant>,
        wanted: bool,
    ) -> Finding {
        if self.checking.is_some() || self.resolving {
            return Ok(());
        }
        match (wanted, deadline) {
            (false, None) => Ok(()),
            (true, Some(due)) if due <= now + MIN_HEARTBEAT_FREQUENCY => Ok(()),
            _ => ensure(false, "scans when an operation waits, and only then", || {
                format!("the next is due at {deadline:?}, and somebody waits: {wanted}")
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use sdam_core::failure::Stage;

    use super::{COOLDOWN, Cause, Duration, Failure, Instant, Scans, ServerId};
    use crate::sim::checks::tests::servers;

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    fn failure(cause: Cause) -> Failure {
        Failure::new(Stage::Hello, cause, "made up")
    }

    /// Server Monitoring, "Single-threaded monitoring".
    #[test]
    fn servers_are_checked_one_after_the_other() {
        let (mut scans, [a, b, _]) = (Scans::default(), servers());
        scans.started(a, at(0)).unwrap();
        assert!(scans.started(b, at(1)).is_err(), "the other one is being checked");
        let mut scans = Scans::default();
        scans.started(a, at(0)).unwrap();
        scans.ended(a, None, at(1));
        assert!(scans.started(b, at(1)).is_ok());
    }

    /// Server Monitoring, "cooldownMS".
    #[test]
    fn a_server_whose_check_has_failed_is_checked_again_at_once_or_after_its_cooldown() {
        let may_follow = |cause, pause: Duration| {
            let (mut scans, server): (_, ServerId) = (Scans::default(), servers()[0]);
            scans.started(server, at(0)).unwrap();
            scans.ended(server, Some(&failure(cause)), at(1));
            scans.started(server, at(1) + pause).is_ok()
        };
        let soon = COOLDOWN - Duration::from_millis(1);
        assert!(may_follow(Cause::Closed, Duration::ZERO) && may_follow(Cause::Closed, COOLDOWN));
        assert!(!may_follow(Cause::Closed, soon));
        assert!(may_follow(Cause::Canceled, soon), "nothing is known to be wrong with it");
    }

    #[test]
    fn a_scan_is_due_while_an_operation_waits_and_only_then() {
        let due = |deadline: Option<u64>, wanted| {
            Scans::default().after_step(at(1_000), deadline.map(at), wanted).is_ok()
        };
        assert!(due(None, false) && due(Some(1_500), true));
        assert!(!due(Some(1_500), false), "nothing waits");
        assert!(!due(None, true) && !due(Some(1_501), true), "somebody waits for more than 500 ms");
    }

    #[test]
    fn no_scan_has_ended_since_a_time_after_which_no_check_has() {
        let (mut scans, [a, b, _]) = (Scans::default(), servers());
        scans.started(a, at(0)).unwrap();
        scans.ended(a, Some(&failure(Cause::Closed)), at(10));
        assert!(scans.has_scanned(at(10), at(20), 2) && !scans.has_scanned(at(11), at(20), 2));
        scans.started(b, at(10)).unwrap();
        scans.ended(b, Some(&failure(Cause::Closed)), at(10));
        assert!(scans.has_scanned(at(11), at(20), 2), "both are left alone for now");
    }
}
