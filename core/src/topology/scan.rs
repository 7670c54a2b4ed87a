//! The scan of a single-threaded client: all servers are checked, one after another, when an
//! operation asks for it.
//!
//! Implements "Single-threaded monitoring" of the Server Monitoring specification and
//! "Single-threaded server selection". Nothing is due by itself: operations wait for the end of a
//! scan in this mode, and while none does there is no deadline.

use std::time::Duration;

use serde::Serialize;

use super::monitor::Monitor;
use super::wait::{Chance, SelectionResult, Waiter};
use super::{Action, Topology};
use crate::config::{MIN_HEARTBEAT_FREQUENCY, Options, ServerAddress};
use crate::description::{ServerDescription, ServerType, TopologyType};
use crate::diagnosis::{SelectionError, Verdict};
use crate::id::ServerId;
use crate::time::Instant;

/// For how long a server whose check has failed is left alone: cooldownMS.
const COOLDOWN: Duration = Duration::from_millis(5000);

/// The state of a single-threaded client's scans.
///
/// Its times are of the clock, not of what was judged.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Scan {
    /// True if the next operation is to scan, however fresh the last scan is.
    stale: bool,
    /// The time when the last scan ended.
    ended: Option<Instant>,
    progress: Option<ScanProgress>,
}

/// A scan in progress.
#[derive(Clone, Debug, Serialize)]
struct ScanProgress {
    started: Instant,
    /// Servers that were checked since then need no check.
    since: Instant,
    /// The server that is being checked.
    checking: Option<ServerId>,
    /// PossiblePrimary: whom a member takes for the primary while none is known.
    possible_primary: Option<ServerAddress>,
}

/// In which order servers are checked ("Scanning order").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Primary,
    PossiblePrimary,
    /// The one that was checked longest ago first.
    Known(Option<Instant>),
    /// Unknown or a ghost; likewise.
    Unknown(Option<Instant>),
}

impl Scan {
    /// Begins with no scan; `None` if servers are monitored in the background, or not at all.
    pub(super) fn first(options: &Options) -> Option<Self> {
        (options.is_single_threaded() && !options.load_balanced()).then(Self::default)
    }

    /// The next operation is to scan, even if a scan is in progress, which may have checked the
    /// server in question already.
    pub(super) const fn mark_stale(&mut self) {
        self.stale = true;
    }

    /// The same; a scan in progress is answer enough, if it checks those again that it has checked
    /// more than 500 ms ago.
    pub(super) fn request(&mut self, clock: Instant) {
        match &mut self.progress {
            Some(progress) => progress.check_again(MIN_HEARTBEAT_FREQUENCY, clock),
            None => self.stale = true,
        }
    }

    const fn is_in_progress(&self) -> bool {
        self.progress.is_some()
    }

    /// Returns whether selecting needs no scan first.
    fn is_fresh(&self, options: &Options, now: Instant) -> bool {
        let expires = self.ended.map(|ended| ended + options.heartbeat_frequency());
        !self.stale && expires.is_some_and(|expires| now < expires)
    }

    /// Returns when the next scan may begin.
    fn ready(&self) -> Instant {
        self.ended.map_or(Instant::ZERO, |ended| ended + MIN_HEARTBEAT_FREQUENCY)
    }
}

impl ScanProgress {
    /// Servers that were checked longer ago are checked again, but for those that cool down.
    fn check_again(&mut self, age: Duration, clock: Instant) {
        self.since = self.since.max(Instant::ZERO + (clock - (Instant::ZERO + age)));
        self.started = clock;
    }
}

impl Topology {
    /// Returns whether what comes is read soon.
    pub(super) fn is_attended(&self) -> bool {
        !(self.scans() && self.waiters.is_empty())
    }

    /// The last operation has gone that waited for the scan: its check is left alone.
    pub(super) fn leave_alone(&mut self) {
        if let Some(monitor) = self.checking().and_then(|id| self.members.get_mut(&id))
            && let Some(monitor) = &mut monitor.monitor
        {
            monitor.leave_alone();
        }
    }

    /// An operation waits for the scan: the check that was left alone goes on.
    pub(super) fn attend(&mut self, out: &mut Vec<Action>) {
        if let Some(id) = self.checking() {
            self.with_monitor(id, out, Monitor::attend);
        }
    }

    /// Returns whose check the scan waits for, or has waited for last.
    fn checking(&self) -> Option<ServerId> {
        self.scan.as_ref()?.progress.as_ref()?.checking
    }

    /// Returns whether servers are checked by scans.
    pub(super) const fn scans(&self) -> bool {
        self.scan.is_some()
    }

    /// In the single-threaded mode, the next operation is to scan.
    pub(super) const fn mark_stale(&mut self) {
        if let Some(scan) = &mut self.scan {
            scan.mark_stale();
        }
    }

    /// Returns when the scan that operations wait for begins, unless it has begun.
    pub(super) fn scan_deadline(&self) -> Option<Instant> {
        let scan = self.scan.as_ref().filter(|scan| !scan.is_in_progress())?;
        (!self.waiters.is_empty()).then(|| scan.ready())
    }

    /// Answers an operation that needs no scan, or for which one would come too late; `None` if it
    /// is to wait for the end of one.
    pub(super) fn select_before_scan(&mut self, waiter: &Waiter) -> Option<SelectionResult> {
        let (clock, scan) = (self.now.clock, self.scan.as_mut()?);
        if let Some(progress) = &mut scan.progress {
            // While somebody waits, the scan goes on, and is to end.
            if !self.waiters.is_empty() {
                return None;
            }
            // It may have rested for so long that some of what it has found is out of date: those
            // servers are checked again, which is never within 500 ms.
            progress.check_again(self.options.heartbeat_frequency(), clock);
            return None;
        }
        if scan.is_fresh(&self.options, clock) {
            let answer = self.answer(waiter, Chance::Another);
            self.learn_from(answer.as_ref());
            if answer.is_some() {
                return answer;
            }
        }
        let ready = self.scan.as_ref()?.ready().max(self.now.judged);
        match waiter.is_out_of_time(ready) {
            true => self.answer(waiter, Chance::Last),
            false => None,
        }
    }

    /// "If servers is not empty …; otherwise, mark the topology stale": an operation that finds
    /// nothing makes the next one scan, unless its own criteria are to blame.
    fn learn_from(&mut self, answer: Option<&SelectionResult>) {
        let is_stale = match answer {
            Some(Ok(())) => false,
            Some(Err(error)) => !is_callers_fault(error),
            None => true,
        };
        if let Some(scan) = &mut self.scan {
            scan.stale |= is_stale;
        }
    }

    /// Begins the scan that operations wait for, checks the next server, and ends the scan when
    /// none is left.
    pub(super) fn fire_scan(&mut self, out: &mut Vec<Action>) {
        if self.scan_deadline().is_some_and(|due| due <= self.now.judged)
            && let Some(scan) = &mut self.scan
        {
            scan.stale = false;
            let (started, checking, possible_primary) = (self.now.clock, None, None);
            let since = started;
            scan.progress = Some(ScanProgress { started, since, checking, possible_primary });
            self.reseed(out);
            // "The rescan MUST happen before scanning all servers" (Polling SRV Records).
            self.fire_rescan(out);
        }
        if self.rescan.is_in_progress() || self.is_checking() {
            return;
        }
        if self.scan.as_ref().is_none_or(|scan| !scan.is_in_progress()) {
            return;
        }
        // While hosts are looked up, servers cool down.
        let clock = self.now.clock;
        if let Some(progress) = self.scan.as_mut().and_then(|scan| scan.progress.as_mut())
            && progress.checking.is_none()
        {
            progress.started = clock;
        }
        let next = self.next_to_check();
        if let Some(progress) = self.scan.as_mut().and_then(|scan| scan.progress.as_mut()) {
            progress.checking = next;
        }
        match next {
            Some(id) => drop(self.with_monitor(id, out, Monitor::check)),
            None => self.end_scan(out),
        }
    }

    /// Returns whether the scan waits for the outcome of a check.
    fn is_checking(&self) -> bool {
        let monitor = self.checking().and_then(|id| self.members.get(&id)?.monitor.as_ref());
        monitor.is_some_and(|monitor| !monitor.is_sleeping())
    }

    /// Picks the server to check next, one that the scan has not checked; of several with the same
    /// rank, one at random.
    fn next_to_check(&mut self) -> Option<ServerId> {
        let (mut best, mut ties) = (None, 0);
        let candidates: Vec<(Rank, ServerId)> = self.candidates().collect();
        for (rank, id) in candidates {
            match best {
                Some((lowest, _)) if lowest < rank => {}
                Some((lowest, _)) if lowest == rank => {
                    ties += 1;
                    if self.rng.next_u64().is_multiple_of(ties) {
                        best = Some((rank, id));
                    }
                }
                _ => (best, ties) = (Some((rank, id)), 1),
            }
        }
        best.map(|(_, id)| id)
    }

    fn candidates(&self) -> impl Iterator<Item = (Rank, ServerId)> {
        let progress = self.scan.as_ref().and_then(|scan| scan.progress.as_ref());
        self.members.iter().filter_map(move |(id, member)| {
            let ScanProgress { started, since, possible_primary, .. } = progress?;
            let checked = member.monitor.as_ref()?.last_check();
            let server = self.description.server(&member.address)?;
            let is_cool = |checked: Instant| checked + COOLDOWN <= *started;
            // Only failed checks count: a server that is Unknown because of an operation's error
            // must be checked to be found again.
            if checked.is_some_and(|checked| {
                checked >= *since || (member.failing.is_some() && !is_cool(checked))
            }) {
                return None;
            }
            let rank = match server.server_type {
                ServerType::RsPrimary => Rank::Primary,
                ServerType::Unknown if possible_primary.as_ref() == Some(&server.address) => {
                    Rank::PossiblePrimary
                }
                ServerType::Unknown | ServerType::RsGhost => Rank::Unknown(checked),
                ServerType::Standalone
                | ServerType::Mongos
                | ServerType::RsSecondary
                | ServerType::RsArbiter
                | ServerType::RsOther
                | ServerType::LoadBalancer => Rank::Known(checked),
            };
            Some((rank, *id))
        })
    }

    /// All servers are checked: operations that wait are answered, or wait for the next scan.
    fn end_scan(&mut self, out: &mut Vec<Action>) {
        let frequency = self.options.heartbeat_frequency();
        let monitors = self.members.values().filter_map(|member| member.monitor.as_ref());
        let is_old = |checked: Instant| checked + frequency <= self.now.clock;
        let any_is_old = monitors.filter_map(Monitor::last_check).any(is_old);
        let Some(scan) = &mut self.scan else { return };
        scan.progress = None;
        scan.ended = Some(self.now.clock);
        // Where no operation has waited, what was found first may be out of date.
        scan.stale |= self.waiters.is_empty() && any_is_old;
        self.departed.clear();
        // What an error has made stale since the scan began is worth another one.
        let once = self.options.server_selection_try_once() && !scan.stale;
        let ready = scan.ready();
        let waiting: Vec<_> =
            self.waiters.iter().map(|(id, waiter)| (*id, waiter.clone())).collect();
        for (id, waiter) in waiting {
            // "If serverSelectionTryOnce is true and the last scan time is newer than the selection
            // start time", or "the target scan time would exceed the maximum time".
            let chance = match once || waiter.is_out_of_time(ready) {
                true => Chance::Last,
                false => Chance::Another,
            };
            let answer = self.answer(&waiter, chance);
            self.learn_from(answer.as_ref());
            if let Some(outcome) = answer {
                self.abandon(id);
                out.push(Action::Wake { waiter: id, outcome });
            }
        }
    }

    /// "If its type is Unknown, change its type to PossiblePrimary" (updateRSWithoutPrimary,
    /// updateRSWithPrimaryFromMember), after a check has found `server`, which may have been
    /// removed since for being known by another name.
    pub(super) fn note_possible_primary(&mut self, server: &ServerDescription) {
        let is_member = matches!(
            server.server_type,
            ServerType::RsSecondary | ServerType::RsArbiter | ServerType::RsOther
        );
        if let Some(progress) = self.scan.as_mut().and_then(|scan| scan.progress.as_mut())
            && let Some(primary) = &server.primary
            && is_member
            && self.description.topology_type == TopologyType::ReplicaSetNoPrimary
            && self.description.set_name == server.set_name
        {
            progress.possible_primary = Some(primary.clone());
        }
    }

    /// Returns when a server may be checked next, `None` while it is being checked.
    pub(super) fn next_check(&self, monitor: &Monitor) -> Option<Instant> {
        match (&self.scan, monitor.last_check()) {
            (Some(_), Some(last)) if monitor.is_sleeping() => Some(last + COOLDOWN),
            _ => monitor.next_check(),
        }
    }
}

/// Returns whether no scan could help, as the deployment is as it should be.
fn is_callers_fault(error: &SelectionError) -> bool {
    matches!(error.verdict, Verdict::MaxStalenessTooSmall { .. })
}
