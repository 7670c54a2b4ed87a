//! A process that was stopped, and goes on: deadlines have passed, but what had arrived by then is
//! still to be read.
//!
//! Only a ring lets a deadline pass; whatever else the machines are told, they are told [just before
//! their next deadline](crate::time::Time::before) at the latest, so that what has arrived is judged as having come in time. A
//! ring that is late by more than [`LATE`] goes three steps: the runtime gets [`LOOK`] to see which
//! sockets are ready; then every task that reads is woken, and lets go of a probe when it has read
//! all there was; and when the last probe is gone, or after [`PATIENCE`], deadlines are judged.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::mailbox::Probe;
use super::server::Server;
use super::{Host, Runtime, Shared};
use sdam_core::time::Instant;

/// How late a ring may be before the process is taken to have been stopped, or starved.
const LATE: Duration = Duration::from_millis(100);

/// How long the runtime gets to see which of its sockets are ready: as readiness and timers come
/// from the same place, it has seen that by the time the next timer rings.
const LOOK: Duration = Duration::from_millis(10);

/// How long tasks get to read what has arrived. One that is never polled delays nothing further.
const PATIENCE: Duration = Duration::from_secs(1);

/// How far it is until deadlines may be judged after a ring that was late; `again` says that the
/// process was stopped once more meanwhile.
#[derive(Clone, Copy, Debug)]
pub(super) enum Suspension {
    /// The runtime looks at its sockets.
    Noticed { until: Instant, again: bool },
    /// Tasks read what has arrived.
    Swept { sweep: u64, until: Instant, again: bool },
}

/// What is to be done when the runtime rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Deadlines that have passed are judged.
    Judge,
    /// Tasks are asked to read what has arrived.
    Sweep(u64),
    /// It is too early; the runtime knows when to ring again.
    Wait,
}

impl Suspension {
    /// Returns when the runtime is to ring.
    pub(super) const fn until(self) -> Instant {
        match self {
            Self::Noticed { until, .. } | Self::Swept { until, .. } => until,
        }
    }

    /// Takes the next step of `suspension` at a ring; `due` is the earliest deadline, and `sweep`
    /// the number of a sweep that may begin.
    pub(super) fn step(
        suspension: &mut Option<Self>,
        now: Instant,
        due: Option<Instant>,
        sweep: u64,
    ) -> Step {
        match *suspension {
            Some(suspension) if now < suspension.until() => Step::Wait,
            Some(Self::Noticed { again, .. }) => {
                *suspension = Some(Self::Swept { sweep, until: now + PATIENCE, again });
                Step::Sweep(sweep)
            }
            // Stopped while tasks read. Once only, as a machine that is busy is late each time.
            Some(Self::Swept { until, again: false, .. }) if now - until > PATIENCE => {
                *suspension = Some(Self::Noticed { until: now + LOOK, again: true });
                Step::Wait
            }
            // A new machine is due since the origin, and has nothing that could be late.
            None if due.is_some_and(|due| due > Instant::ZERO && now - due > LATE) => {
                *suspension = Some(Self::Noticed { until: now + LOOK, again: false });
                Step::Wait
            }
            None | Some(Self::Swept { .. }) => {
                *suspension = None;
                Step::Judge
            }
        }
    }
}

/// Has deadlines judged when nobody holds it any more. It may be let go of under any lock.
struct Sweep<R: Runtime> {
    shared: Weak<Shared<R>>,
    number: u64,
}

impl<R: Runtime> Drop for Sweep<R> {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.alarm.end_sweep(&shared.runtime, self.number);
        }
    }
}

impl<R: Runtime> Host<R> {
    /// Asks every task that reads for the machines to read what has arrived.
    pub(super) fn sweep(&self, number: u64) {
        let probe: Probe = Arc::new(Sweep { shared: Arc::downgrade(&self.shared), number });
        let (links, pools) = self.with_driver(|driver| (driver.readers(), driver.pools()));
        links.iter().for_each(|link| link.probe(Arc::clone(&probe)));
        let slots = pools.iter().flat_map(|pool: &Arc<Server<R>>| pool.readers());
        slots.for_each(|slot| slot.probe(Arc::clone(&probe)));
    }
}
