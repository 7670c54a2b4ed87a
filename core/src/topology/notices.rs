//! Notices of a topology, which no operation has asked for: that the process did not run, that idle
//! connections are cut, that a primary refuses writes, that a name is slow to resolve.
//!
//! Each is reported once, as an event, when it is found; the errors of selections contain it while
//! it holds.

use std::time::Duration;

use super::monitor::Monitor;
use super::{Action, EventKind, Lifecycle, Topology};
use crate::description::{ServerDescription, ServerType};
use crate::diagnosis::{MANY_REFUSALS, Pause, SLOW_LOOKUP, ServerEvidence, Verdict};
use crate::failure::Failure;
use crate::id::ServerId;
use crate::operation::{CommandError, StateChange};
use crate::time::Instant;

/// The delay of a ring from which on the process has not run: longer than that of a host that reads
/// first what has arrived.
const LATE: Duration = Duration::from_secs(2);

/// The number of connections in a row that must have been cut after about the same time.
const MANY_CUTOFFS: u32 = 3;

/// The time from which on a connection that waits is idle: nothing closes a connection as idle that
/// was just used.
const IDLE: Duration = Duration::from_millis(500);

/// The time after which two refusals have nothing to do with each other.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// A time in which the process did not run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stall {
    /// The deadline that was missed.
    due: Instant,
    ended: Instant,
    /// True if an event has reported it.
    is_told: bool,
}

impl Stall {
    fn pause(self, clock: Instant) -> Pause {
        Pause::new(self.ended - self.due, clock - self.ended)
    }
}

impl Topology {
    /// Notes that the process did not run if a ring comes much too late. In the single-threaded
    /// mode nothing is due by itself.
    pub(super) fn note_stall(&mut self, clock: Instant) {
        if self.state != Lifecycle::Open || self.scans() {
            return;
        }
        if let Some(due) = self.deadline_of_monitors()
            && clock - due >= LATE
            // Until deadlines are judged, the same one is missed again and again.
            && self.history.gap.is_none_or(|gap| gap.due < due)
        {
            self.history.gap = Some(Stall { due, ended: clock, is_told: false });
        }
    }

    fn deadline_of_monitors(&self) -> Option<Instant> {
        self.timers.first().map(|(due, _)| *due)
    }

    /// A check has ended: reports what that shows.
    pub(super) fn find_by_check(
        &mut self,
        id: ServerId,
        server: &ServerDescription,
        failure: Option<&Failure>,
        out: &mut Vec<Action>,
    ) {
        let clock = self.now.clock;
        if failure.is_some_and(Failure::is_network_error)
            && let Some(gap) = &mut self.history.gap
            && gap.pause(clock).explains_failures()
            && !std::mem::replace(&mut gap.is_told, true)
        {
            let verdict = gap.pause(clock).verdict();
            self.emit_verdict(verdict, out);
        }
        if failure.is_none()
            && server.server_type != ServerType::RsPrimary
            && let Some(member) = self.members.get_mut(&id)
        {
            member.refusals = None;
        }
        if failure.is_some()
            && let Some(member) = self.members.get(&id)
            && member
                .monitor
                .as_ref()
                .is_some_and(|monitor| monitor.idle_cutoff().times() == MANY_CUTOFFS)
            && let Some(verdict) = self.cut(id)
        {
            self.emit_verdict(verdict, out);
        }
    }

    /// A name has been looked up for a monitor, which took so long.
    pub(super) fn find_by_lookup(&mut self, id: ServerId, took: Duration, out: &mut Vec<Action>) {
        let Some(member) = self.members.get_mut(&id) else { return };
        if took < SLOW_LOOKUP {
            member.slow_lookup = None;
        } else if member.slow_lookup.replace(Box::new(took)).is_none() {
            let verdict = slow_lookup(member.address.host(), took);
            self.emit_verdict(verdict, out);
        }
    }

    /// An operation was refused because the server is no primary, although it says in each reply to
    /// hello that it is.
    pub(super) fn find_by_refusal(
        &mut self,
        id: ServerId,
        current: &ServerDescription,
        error: &CommandError,
        out: &mut Vec<Action>,
    ) {
        // It was sent before the server said last that it is primary.
        let is_late = match (&current.topology_version, &error.topology_version) {
            (Some(known), Some(new)) => new.is_older_than(known),
            _ => false,
        };
        let contradicts = current.server_type == ServerType::RsPrimary
            && error.state_change() == Some(StateChange::NotWritablePrimary)
            && !is_late;
        let clock = self.now.clock;
        let Some(member) = self.members.get_mut(&id).filter(|_| contradicts) else { return };
        let refusals = refusals(member.refusals.as_deref(), clock).saturating_add(1);
        member.refusals = Some(Box::new((refusals, clock)));
        if refusals == MANY_REFUSALS {
            let verdict = Verdict::PrimaryRefusesWrites {
                server: current.address.clone(),
                refusals,
                code_name: error.name_or_code(),
            };
            self.emit_verdict(verdict, out);
        }
    }

    /// Returns what explains why operations fail at a server.
    pub fn server_evidence(&self, server: ServerId, now: Instant) -> ServerEvidence {
        let mut evidence = ServerEvidence::default();
        let clock = self.now.clock.max(now);
        evidence.pause = self.history.gap.map(|gap| gap.pause(clock));
        if let Some(member) = self.members.get(&server) {
            evidence.refusals = refusals(member.refusals.as_deref(), clock);
            evidence.open = member.monitor.as_ref().map_or(0, Monitor::open_connections);
        }
        evidence
    }

    /// Returns what holds now besides the reason why there is no server.
    pub(super) fn findings(&self, clock: Instant) -> Vec<Verdict> {
        let pause = self.history.gap.map(|gap| gap.pause(clock));
        let mut findings: Vec<Verdict> = pause
            .filter(|pause| pause.explains_failures())
            .map(Pause::verdict)
            .into_iter()
            .collect();
        for (id, member) in &self.members {
            let host = member.address.host();
            findings.extend(member.slow_lookup.as_deref().map(|took| slow_lookup(host, *took)));
            findings.extend(self.cut(*id));
        }
        findings
    }

    fn cut(&self, id: ServerId) -> Option<Verdict> {
        let member = self.members.get(&id)?;
        let cutoff = member.monitor.as_ref()?.idle_cutoff();
        let heartbeat = self.options.heartbeat_frequency();
        let (server, times, after) = (member.address.clone(), cutoff.times(), cutoff.longest());
        let is_cut = times >= MANY_CUTOFFS && after < heartbeat;
        is_cut.then(|| match after < IDLE {
            true => Verdict::StreamingRefused { server, times, after },
            false => {
                let shortest = cutoff.shortest();
                Verdict::IdleConnectionsCut { server, times, shortest, after, heartbeat }
            }
        })
    }

    fn emit_verdict(&mut self, verdict: Verdict, out: &mut Vec<Action>) {
        self.context(out).emit(EventKind::Diagnosed { verdict });
    }
}

/// Returns how many there were in a row until now.
fn refusals(noted: Option<&(u32, Instant)>, clock: Instant) -> u32 {
    noted.filter(|(_, last)| clock - *last <= FORGOTTEN).map_or(0, |(count, _)| *count)
}

fn slow_lookup(host: &str, took: Duration) -> Verdict {
    Verdict::LookupSlow { name: host.to_owned(), took, silent: Vec::new() }
}
