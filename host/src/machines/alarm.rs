//! The deadlines of a client's machines, the topology and each pool, and what a ring does. A log
//! that lags behind its events is also read at a ring.
//!
//! Only a ring lets a deadline pass; all other inputs reach the machines [just before their next
//! deadline][before] at the latest, so that what has arrived is judged as having come in time.
//! After a process was stopped and goes on, deadlines have passed, but what had arrived by then is
//! still to be read: a ring that is late by more than [`LATE`] goes three steps. The runtime gets
//! [`LOOK`] to see which sockets are ready; then every task that reads is woken, and lets go of a
//! barrier when it has read all there was; and when the last barrier is gone, or after
//! [`SWEEP_TIMEOUT`], deadlines are judged.
//!
//! [before]: sdam_core::time::Time::before

use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, pending};
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

use sdam_core::id::WaiterId;
use sdam_core::time::Instant;

use crate::machines::runtime::Runtime;
use crate::machines::server::Server;
use crate::machines::sleep::Sleepers;
use crate::machines::{Host, Shared};
use crate::process::{Own, Process};
use crate::sync::channel::Channel;
use crate::sync::{CoopBudget, Mutex, Running, before, lock};

/// The deadlines of a client's machines; the runtime receives only the earliest.
///
/// Its lock is taken inside those of the machines; when all are free, one thread at a time sets the
/// runtime's alarm, and checks again afterwards, so that the last deadline set is the right one.
pub(crate) struct Alarm<R: Runtime>(Mutex<AlarmState<R>>);

struct AlarmState<R: Runtime> {
    topology: Option<Instant>,
    pools: BTreeMap<u64, (Instant, Weak<Server<R>>)>,
    order: BTreeSet<(Instant, u64)>,
    /// The time at which the log is to be read on.
    log: Option<Instant>,
    sleepers: Sleepers,
    /// The deadline last set at the runtime; `None` since it has rung, even too early, as it may
    /// have forgotten the deadline.
    armed: Option<Option<Instant>>,
    /// True if a thread is setting the runtime's alarm.
    is_arming: bool,
    /// True if the client has ended, so that nothing will be due any more.
    closed: bool,
    /// While deadlines are not judged because the process seems to have been stopped.
    suspension: Option<Suspension>,
    /// The number of the last sweep.
    last_sweep: u64,
}

impl<R: Runtime> Alarm<R> {
    pub(crate) fn new() -> Self {
        let (pools, order) = (BTreeMap::new(), BTreeSet::new());
        Self(Mutex::new(AlarmState {
            // A new machine is due at once, which a runtime knows.
            topology: Some(Instant::ZERO),
            pools,
            order,
            log: None,
            sleepers: Sleepers::default(),
            armed: Some(Some(Instant::ZERO)),
            is_arming: false,
            closed: false,
            suspension: None,
            last_sweep: 0,
        }))
    }

    /// Decides what a ring does; call [`arm`](Self::arm) afterwards.
    pub(crate) fn step(&self, now: Instant) -> Step {
        let mut state = lock(&self.0);
        state.armed = None;
        let (due, sweep) = (state.earliest(), state.last_sweep + 1);
        let step = Suspension::step(&mut state.suspension, now, due, sweep);
        if let Step::Sweep(sweep) = step {
            state.last_sweep = sweep;
        }
        step
    }

    /// Ends a sweep: all that had arrived was read. If that is still waited for, the runtime is to
    /// ring.
    pub(crate) fn end_sweep(&self, runtime: &R, number: u64) {
        let mut state = lock(&self.0);
        if let Some(Suspension::Swept { sweep, until, .. }) = &mut state.suspension
            && *sweep == number
        {
            *until = runtime.now().min(*until);
        }
        drop(state);
        self.arm(runtime);
    }

    /// Sets the runtime's alarm to the earliest deadline, if that has changed; call it under no
    /// other lock.
    pub(crate) fn arm(&self, runtime: &R) {
        let mut state = lock(&self.0);
        if std::mem::replace(&mut state.is_arming, true) {
            // The thread that sets it, perhaps this one, checks again.
            return;
        }
        drop(state);
        let arming = Arming(self);
        while let Some(deadline) = arming.next() {
            runtime.alarm(deadline);
        }
        // That it has ended was noted under the lock.
        std::mem::forget(arming);
    }

    /// Sets the topology's deadline; call [`arm`](Self::arm) afterwards.
    pub(crate) fn set_topology(&self, deadline: Option<Instant>) {
        lock(&self.0).topology = deadline;
    }

    /// The client has ended: nothing will be due any more, which the runtime has to know even if it
    /// has no deadline. Returns the tasks that wait for a time, to be woken.
    pub(crate) fn close(&self) -> Vec<Waker> {
        let mut state = lock(&self.0);
        (state.closed, state.armed) = (true, None);
        state.sleepers.all()
    }

    /// Does something with those who wait for a time.
    pub(crate) fn with_sleepers<T>(&self, act: impl FnOnce(&mut Sleepers) -> T) -> T {
        act(&mut lock(&self.0).sleepers)
    }

    /// Adds a wait for a time, unless the client has ended; call [`arm`](Self::arm) afterwards.
    pub(crate) fn add_sleeper(
        &self,
        until: Instant,
        waiter: WaiterId,
        channel: Arc<Channel<()>>,
    ) -> bool {
        let mut state = lock(&self.0);
        if !state.closed {
            state.sleepers.add(until, waiter, channel);
        }
        !state.closed
    }

    /// Returns whether the client has ended.
    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.0).closed
    }

    /// Sets the deadline of a server's pool; call [`arm`](Self::arm) afterwards.
    pub(crate) fn set_pool(&self, server: &Server<R>, deadline: Option<Instant>) {
        let mut state = lock(&self.0);
        let key = server.key();
        if let Some((due, _)) = state.pools.remove(&key) {
            state.order.remove(&(due, key));
        }
        if let Some(due) = deadline {
            state.pools.insert(key, (due, server.weak()));
            state.order.insert((due, key));
        }
    }

    /// Has a ring read the log further; call [`arm`](Self::arm) afterwards.
    pub(crate) fn set_log(&self, now: Instant) {
        lock(&self.0).log.get_or_insert(now);
    }

    /// Returns whether the log is to be read on now, once.
    pub(crate) fn take_log(&self, now: Instant) -> bool {
        lock(&self.0).log.take_if(|at| *at <= now).is_some()
    }

    /// Returns whether the topology is due, whose pools are, and who is to be woken.
    pub(crate) fn due(&self, now: Instant) -> (bool, Vec<Arc<Server<R>>>, Vec<Waker>) {
        let mut state = lock(&self.0);
        let mut servers = Vec::new();
        while let Some(&(due, key)) = state.order.first().filter(|(due, _)| *due <= now) {
            state.order.remove(&(due, key));
            servers.extend(state.pools.remove(&key).and_then(|(_, server)| server.upgrade()));
        }
        let sleepers = state.sleepers.due(now);
        (state.topology.is_some_and(|due| due <= now), servers, sleepers)
    }
}

impl<R: Runtime> AlarmState<R> {
    fn earliest(&self) -> Option<Instant> {
        let pool = self.order.first().map(|&(due, _)| due);
        [self.topology, pool, self.sleepers.earliest()].into_iter().flatten().min()
    }

    /// Returns when the runtime is to ring.
    fn deadline(&self) -> Option<Instant> {
        let of_machines = || self.suspension.map(Suspension::until).or_else(|| self.earliest());
        match self.closed {
            true => None,
            false => of_machines().into_iter().chain(self.log).min(),
        }
    }
}

/// A thread that sets the runtime's alarm; dropped before it has finished, because the runtime has
/// panicked, it leaves the rest to other threads.
struct Arming<'a, R: Runtime>(&'a Alarm<R>);

impl<R: Runtime> Arming<'_, R> {
    /// Returns the deadline to set; `None` if there is none, which ends this thread's turn.
    fn next(&self) -> Option<Option<Instant>> {
        let mut state = lock(&self.0.0);
        let deadline = state.deadline();
        state.is_arming = state.armed != Some(deadline);
        state.armed = Some(deadline);
        state.is_arming.then_some(deadline)
    }
}

impl<R: Runtime> Drop for Arming<'_, R> {
    fn drop(&mut self) {
        lock(&self.0.0).is_arming = false;
    }
}

/// The delay of a ring after which the process is taken to have been stopped, or starved.
const LATE: Duration = Duration::from_millis(100);

/// The time that the runtime gets to see which of its sockets are ready: as readiness and timers
/// come from the same place, it has seen that by the time the next timer rings.
const LOOK: Duration = Duration::from_millis(10);

/// The time that tasks get to read what has arrived. One that is never polled delays nothing
/// further.
const SWEEP_TIMEOUT: Duration = Duration::from_secs(1);

/// The wait until deadlines may be judged after a ring that was late; `again` says that the
/// process was stopped once more meanwhile.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Suspension {
    /// The runtime looks at its sockets.
    Noticed { until: Instant, again: bool },
    /// Tasks read what has arrived.
    Swept { sweep: u64, until: Instant, again: bool },
}

/// The step to take when the runtime rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Deadlines that have passed are judged.
    Judge,
    /// Tasks are asked to read what has arrived.
    Sweep(u64),
    /// It is too early; the runtime knows when to ring again.
    Wait,
}

impl Suspension {
    /// Returns when the runtime is to ring.
    pub(crate) const fn until(self) -> Instant {
        match self {
            Self::Noticed { until, .. } | Self::Swept { until, .. } => until,
        }
    }

    /// Takes the next step of `suspension` at a ring; `due` is the earliest deadline, and `sweep`
    /// the number of a sweep that may begin.
    pub(crate) fn step(
        suspension: &mut Option<Self>,
        now: Instant,
        due: Option<Instant>,
        sweep: u64,
    ) -> Step {
        match *suspension {
            Some(suspension) if now < suspension.until() => Step::Wait,
            Some(Self::Noticed { again, .. }) => {
                *suspension = Some(Self::Swept { sweep, until: now + SWEEP_TIMEOUT, again });
                Step::Sweep(sweep)
            }
            // Stopped while tasks read. Once only, as a machine that is busy is late each time.
            Some(Self::Swept { until, again: false, .. }) if now - until > SWEEP_TIMEOUT => {
                *suspension = Some(Self::Noticed { until: now + LOOK, again: true });
                Step::Wait
            }
            // A new machine is due since the origin, and nothing of it could be late.
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

/// Judges deadlines when the last reference is dropped, which may be under any lock.
pub(crate) struct Sweep<R: Runtime> {
    pub(crate) shared: Weak<Shared<R>>,
    pub(crate) number: u64,
}

impl<R: Runtime> Drop for Sweep<R> {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.alarm.end_sweep(&shared.runtime, self.number);
        }
    }
}

/// The place where a runtime puts the deadlines that [`Runtime::alarm`] asks for; dropping it, with
/// the runtime, ends its [`Timekeeper`].
#[derive(Debug)]
pub struct Deadlines(Arc<Channel<Option<Instant>>>);

/// Keeps the time of a host, as a task of its runtime.
#[derive(Debug)]
pub struct Timekeeper(Arc<Channel<Option<Instant>>>);

impl Deadlines {
    /// Creates both ends; the first deadline is due at once, as the machines of a new host are.
    pub fn new() -> (Self, Timekeeper) {
        let latest = Arc::new(Channel::new(1));
        latest.push(Some(Instant::ZERO));
        (Self(Arc::clone(&latest)), Timekeeper(latest))
    }

    /// Returns what keeps time after the last one has ended, which is due at once.
    pub(crate) fn timekeeper(&self) -> Timekeeper {
        self.0.push(Some(Instant::ZERO));
        Timekeeper(Arc::clone(&self.0))
    }

    /// Replaces the deadline.
    pub fn set(&self, deadline: Option<Instant>) {
        self.0.push(deadline);
    }
}

impl Drop for Deadlines {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Timekeeper {
    /// Rings the host at each deadline; ends when the client is closed, or when the host is
    /// dropped, which it does not prevent.
    ///
    /// What `sleep_until` returns may end too early, which costs a ring, or late. If this is
    /// dropped, because the runtime has ended, the client is closed: without it no deadline would
    /// be met.
    pub fn run<R: Runtime, T: Future>(
        self,
        host: Weak<Host<R>>,
        sleep_until: impl Fn(Instant) -> T,
    ) -> impl Future<Output = ()> {
        self.run_and(host, sleep_until, |host| host.close())
    }

    /// As [`run`](Self::run), but does something else with the host when it ends.
    pub(crate) fn run_and<R: Runtime, T: Future>(
        self,
        host: Weak<Host<R>>,
        sleep_until: impl Fn(Instant) -> T,
        at_end: impl FnOnce(Arc<Host<R>>),
    ) -> impl Future<Output = ()> {
        // Here already, as the task may be dropped before it is polled for the first time.
        let running = host.upgrade().map(|host| host.shared.activity.begin());
        let ending = Ending { host: Weak::clone(&host), act: Some(at_end), _running: running };
        let keeping = async move {
            let _ending = ending;
            self.keep(&host, sleep_until).await;
        };
        Own::new(Box::pin(keeping), Process::current())
    }

    async fn keep<R: Runtime, T: Future>(
        &self,
        host: &Weak<Host<R>>,
        sleep_until: impl Fn(Instant) -> T,
    ) {
        let (mut deadline, mut budget) = (None, CoopBudget::default());
        loop {
            let due = async {
                match deadline {
                    Some(deadline) => sleep_until(deadline).await,
                    None => pending().await,
                }
            };
            let latest = std::future::poll_fn(|cx| self.0.poll_next(cx));
            let due = budget.step(before(due, latest)).await;
            let Some(host) = host.upgrade() else { return };
            match due {
                Some(None) => return,
                Some(Some(None)) if host.shared.alarm.is_closed() => return,
                Some(Some(latest)) => deadline = latest,
                // Whatever the ring means, the host says next when it is due.
                None => {
                    deadline = None;
                    host.ring();
                }
            }
        }
    }
}

/// Does something with a client whose runtime has ended: closes it, for one.
struct Ending<R: Runtime, F: FnOnce(Arc<Host<R>>)> {
    host: Weak<Host<R>>,
    act: Option<F>,
    /// Ends with the task.
    _running: Option<Running>,
}

impl<R: Runtime, F: FnOnce(Arc<Host<R>>)> Drop for Ending<R, F> {
    fn drop(&mut self) {
        if let (Some(host), Some(act)) = (self.host.upgrade(), self.act.take()) {
            act(host);
        }
    }
}
