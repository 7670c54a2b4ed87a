//! Heartbeats: every one that started ends, never two of a server at once, the 500 ms floor, no
//! monitor that falls asleep, and no topology that stays without any.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sdam_core::config::{MIN_HEARTBEAT_FREQUENCY, Options, ServerAddress};
use sdam_core::description::{ServerDescription, ServerType};
use sdam_core::failure::{Cause, Failure};
use sdam_core::id::ServerId;
use sdam_core::selection::Snapshot;
use sdam_core::time::Instant;

use super::{Finding, ensure};
use crate::sim::runtime::LOOK;

mod bearable;
#[cfg(test)]
mod tests;

/// "Retry hello or legacy hello calls once", for a server that was known, unless that was done less
/// than 500 ms before; then it is done when they are over.
const ONCE_MORE: &str = "a known server is checked once more";

/// "A note on invalidating the old primary": it is to be checked, to find out what it is now.
const DISPLACED: &str = "a primary that is displaced is checked soon";

/// The number of replies that may be awaited that are neither due nor bring anything new: what is
/// refused as out of date may do so.
const MANY_AWAITED: u32 = 8;

/// The monitor of one server, seen from outside.
#[derive(Debug, Default)]
struct Monitor {
    /// Since when a check has been in progress.
    checking: Option<Instant>,
    /// The time when the last check ended, and whether another one may follow at once.
    ended: Option<(Instant, bool)>,
    /// Since when the server has been streaming, if it is.
    streams: Option<Instant>,
    /// The number of replies that have been awaited since, and how many brought news.
    awaited: u32,
    news: u32,
    /// True if the last check did not fail.
    succeeded: bool,
    /// The time when a measurement of the round trip time last began.
    measured: Option<Instant>,
    /// The time when it was last checked once more after a failure, or is to be.
    retried: Option<Instant>,
    /// By when the next check is to begin, and why.
    due: Option<(Instant, &'static str)>,
}

#[derive(Debug)]
pub(super) struct Heartbeats {
    monitors: BTreeMap<ServerId, Monitor>,
    addresses: BTreeMap<ServerId, ServerAddress>,
    /// The last checks of servers that have left, and whether another check may follow at once.
    departed: BTreeMap<ServerAddress, (Instant, bool)>,
    /// Servers that are not Unknown in the last view.
    known: BTreeSet<ServerId>,
    /// Since when somebody has been waiting for a server, if somebody does.
    wanted: Option<Instant>,
    /// The longest time between two starts of a server's checks.
    longest: Duration,
    resumed: Instant,
    /// The delay of deadlines, because the alarm rings late.
    late: Duration,
    /// Since when there has been no server, if there is none.
    emptied: Option<Instant>,
    heartbeat: Duration,
    /// True if servers may join at any time, because DNS says so.
    from_dns: bool,
    /// True if servers stream a reply only when it is time or there is news.
    orderly: bool,
    /// True if replies may be awaited.
    streaming: bool,
    /// True if nothing is due by itself.
    single_threaded: bool,
}

impl Heartbeats {
    pub(super) fn new(options: &Options) -> Self {
        // A check may open a stream and await a reply, each for as long as it may take, and the
        // pause follows.
        let connect = options.connect_timeout().unwrap_or(Duration::MAX / 8);
        let longest = connect * 2 + options.heartbeat_frequency() * 2;
        Self {
            monitors: BTreeMap::new(),
            addresses: BTreeMap::new(),
            departed: BTreeMap::new(),
            known: BTreeSet::new(),
            wanted: None,
            longest,
            resumed: Instant::ZERO,
            late: Duration::ZERO,
            emptied: None,
            heartbeat: options.heartbeat_frequency(),
            from_dns: options.srv().is_some(),
            orderly: false,
            streaming: options.streaming(),
            single_threaded: options.is_single_threaded(),
        }
    }

    pub(super) fn published(&mut self, snapshot: &Snapshot, now: Instant) -> Finding {
        let servers = snapshot.description().servers().iter();
        let known = servers.filter(|server| server.server_type != ServerType::Unknown);
        self.known.clear();
        self.known.extend(known.map(|server| server.id));
        let is_empty = snapshot.description().servers().is_empty();
        let before = std::mem::replace(&mut self.emptied, is_empty.then_some(now));
        let may = before.is_none_or(|emptied| {
            is_empty || self.from_dns || now - emptied >= MIN_HEARTBEAT_FREQUENCY
        });
        ensure(may, "500 ms without servers", || format!("seeds join after {before:?}"))
    }

    /// A topology that has lost its last server begins again after a heartbeat, or after 500 ms if
    /// somebody waits for a server.
    pub(super) fn begins_again(&self, now: Instant) -> Finding {
        let Some(emptied) = self.emptied else { return Ok(()) };
        let soon = self.wanted.map(|wanted| wanted.max(emptied + MIN_HEARTBEAT_FREQUENCY));
        let due = soon.unwrap_or(emptied + self.heartbeat).min(emptied + self.heartbeat);
        ensure(
            now <= due.max(self.judges_since()) + self.late,
            "a topology without servers begins again",
            || {
                format!(
                    "there is none since {emptied:?}, and one is wanted since {:?}",
                    self.wanted
                )
            },
        )
    }

    pub(super) const fn resumed(&mut self, now: Instant) {
        self.resumed = now;
    }

    /// Returns since when deadlines have been judged: what has come is read first.
    fn judges_since(&self) -> Instant {
        match self.resumed {
            Instant::ZERO => Instant::ZERO,
            resumed => resumed + LOOK,
        }
    }

    /// A server joins; one that is back has its 500 ms to wait as any other.
    pub(super) fn joined(&mut self, server: ServerId, address: &ServerAddress) {
        let ended = self.departed.remove(address);
        self.monitors.insert(server, Monitor { ended, ..Monitor::default() });
        self.addresses.insert(server, address.clone());
    }

    /// A link beside that of the checks is being opened or used.
    pub(super) fn measures(&mut self, server: ServerId, now: Instant) {
        self.monitors.entry(server).or_default().measured = Some(now);
    }

    pub(super) fn started(&mut self, server: ServerId, awaited: bool, now: Instant) -> Finding {
        let monitor = self.monitors.entry(server).or_default();
        ensure(monitor.checking.is_none(), "one check of a server at a time", || {
            format!("{server} is being checked since {:?}", monitor.checking)
        })?;
        ensure(!awaited || self.streaming, "who polls awaits nothing", || {
            format!("a reply of {server} is awaited")
        })?;
        monitor.checking = Some(now);
        if monitor.streams.is_none() || !awaited {
            (monitor.awaited, monitor.news) = (0, 0);
        }
        monitor.streams = awaited.then(|| monitor.streams.unwrap_or(now));
        monitor.awaited += u32::from(awaited);
        let due = monitor.due.take();
        // A reply comes after heartbeatFrequencyMS, or when there is news.
        let elapsed = (now - monitor.streams.unwrap_or(now)).as_nanos();
        let in_time = elapsed / self.heartbeat.as_nanos().max(1);
        let most = u128::from(MANY_AWAITED + monitor.news) + in_time;
        let bounded = u128::from(monitor.awaited) <= most || !self.orderly;
        ensure(bounded, "bounded streams of replies", || {
            format!("{} of {server} are awaited since {:?}", monitor.awaited, monitor.streams)
        })?;
        let Some((ended, at_once)) = monitor.ended else { return Ok(()) };
        let pause = now - ended;
        let may = awaited && monitor.succeeded || at_once && ended == self.resumed;
        let may = may || at_once && pause.is_zero() || pause >= MIN_HEARTBEAT_FREQUENCY;
        let may = may || due.is_some_and(|(due, why)| why == ONCE_MORE && due <= now);
        ensure(may, "500 ms between checks", || {
            format!("{server} is checked {pause:?} after its last check")
        })
    }

    pub(super) fn ended(
        &mut self,
        server: ServerId,
        failure: Option<&Failure>,
        now: Instant,
    ) -> Finding {
        let monitor = self.monitors.entry(server).or_default();
        ensure(monitor.checking.is_some(), "only what started ends", || {
            format!("a check of {server} ends that did not start")
        })?;
        monitor.checking = None;
        monitor.succeeded = failure.is_none();
        let fails_known =
            failure.is_some_and(Failure::is_network_error) && self.known.contains(&server);
        if fails_known {
            let earliest = monitor.retried.map_or(now, |last| last + MIN_HEARTBEAT_FREQUENCY);
            if earliest <= now || !self.single_threaded {
                monitor.retried = Some(earliest.max(now));
                monitor.due = Some((earliest.max(now), ONCE_MORE));
            }
        }
        // What is read when a process goes on may have lain there for as long as it was stopped.
        monitor.ended = Some((now, now == self.resumed));
        Ok(())
    }

    /// Notes a changed description of a server; perhaps it is no longer primary because another one
    /// is.
    pub(super) fn changed(&mut self, new: &ServerDescription, now: Instant) {
        let Some(monitor) = self.monitors.get_mut(&new.id) else { return };
        monitor.news += 1;
        let cause = new.error.as_ref().map(|error| &error.cause);
        let displaced = cause == Some(&Cause::NewerPrimary);
        // A check in progress will show it.
        if displaced && monitor.checking.is_none() && !self.single_threaded {
            let earliest = monitor.ended.map_or(now, |(at, _)| at + MIN_HEARTBEAT_FREQUENCY);
            monitor.due.get_or_insert((earliest.max(now), DISPLACED));
        }
    }

    /// Returns whether a server is being checked.
    pub(super) fn is_checking(&self, server: ServerId) -> bool {
        self.monitors.get(&server).is_some_and(|monitor| monitor.checking.is_some())
    }

    /// An operation waits for a server, or none does.
    pub(super) fn wanted(&mut self, wanted: bool, now: Instant) {
        self.wanted = wanted.then(|| self.wanted.unwrap_or(now));
    }

    pub(super) const fn is_wanted(&self) -> bool {
        self.wanted.is_some()
    }

    /// A step is over.
    pub(super) fn after_step(&mut self, now: Instant) -> Finding {
        for (server, monitor) in &self.monitors {
            let Some((due, why)) = monitor.due else { continue };
            let at_once = why == ONCE_MORE && monitor.ended.is_some_and(|(at, _)| at == due);
            let late = if at_once { Duration::ZERO } else { self.late };
            let latest = due.max(self.judges_since()) + late;
            let in_time = now < latest || now == latest && !at_once;
            ensure(in_time, why, || format!("{server} is not, and is to be since {due:?}"))?;
        }
        let Some(wanted) = self.wanted else { return Ok(()) };
        // "While no suitable server is available for an operation, the client MUST re-check all
        // servers every minHeartbeatFrequencyMS."
        for (server, monitor) in &self.monitors {
            let Some((ended, _)) = monitor.ended.filter(|_| monitor.checking.is_none()) else {
                continue;
            };
            let due = (ended + MIN_HEARTBEAT_FREQUENCY).max(wanted).max(self.judges_since());
            ensure(
                now <= due + self.late,
                "while an operation waits, servers are checked every 500 ms",
                || format!("{server} was checked at {ended:?}, and is wanted since {wanted:?}"),
            )?;
        }
        Ok(())
    }

    pub(super) fn left(&mut self, server: ServerId) -> Finding {
        let address = self.addresses.remove(&server);
        let Some(monitor) = self.monitors.remove(&server) else { return Ok(()) };
        self.departed.extend(address.zip(monitor.ended));
        ensure(monitor.checking.is_none(), "every heartbeat that started ends", || {
            format!("{server} leaves while it is being checked")
        })
    }

    /// No monitor may have slept for longer than its options allow.
    pub(super) fn audit(&self, now: Instant) -> Finding {
        for (server, monitor) in &self.monitors {
            let last = monitor.checking.or(monitor.ended.map(|(at, _)| at));
            let last = last.unwrap_or(self.resumed).max(self.resumed);
            ensure(now - last <= self.longest + self.late, "monitors never stop", || {
                format!("nothing has happened to {server} since {last:?}")
            })?;
            let Some(streams) = monitor.streams.filter(|_| monitor.checking.is_some()) else {
                continue;
            };
            let last = monitor.measured.unwrap_or(streams).max(streams).max(self.resumed);
            ensure(
                now - last <= self.longest + self.late,
                "measuring goes on while a server streams",
                || format!("the last round trip to {server} began at {last:?}"),
            )?;
        }
        Ok(())
    }

    /// The client was closed.
    pub(super) fn over(&self) -> Finding {
        let open = self.monitors.values().any(|monitor| monitor.checking.is_some());
        ensure(!open, "every heartbeat that started ends", || {
            "the client is closed during a check".to_owned()
        })
    }
}
