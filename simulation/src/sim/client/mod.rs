//! A client: the host itself on a runtime in virtual time, and the application that uses it.

mod alarm;
mod application;
mod documents;
mod formatting;
mod ledger;
mod network;
mod operation;
mod reports;
mod sessions;
mod steps;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use sdam_core::config::{Options, ServerAddress};
use sdam_core::description::TopologyDescription;
use sdam_core::time::Instant;
use sdam_core::topology::Topology;
use sdam_host::{Events, Host, Recording};

use alarm::{Alarm, LATEST};
#[cfg(test)]
pub(super) use documents::Write;
pub(super) use documents::{Acknowledged, Missed, writer_of};
use documents::{Documents, check_ended};
pub(super) use ledger::Ledger;
use ledger::Shared;
use operation::OwnHost;
pub(super) use operation::{GaveUp, Operation, OperationId};

use super::checks::Checks;
use super::network::{Network, StreamId};
use super::plan::ClientPlan;
use super::random::Random;
use super::runtime::{Call, Clock, Desk, End, Executor, LOOK, Lookups, Virtual};
use super::trace::Trace;
use super::world::Event;

/// A client, and its process.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) index: usize,
    pub(super) plan: ClientPlan,
    pub(super) options: Arc<Options>,
    addresses: Arc<[ServerAddress]>,
    clock: Arc<Clock>,
    ledger: Shared,
    host: Arc<OwnHost>,
    desk: Arc<Desk>,
    executor: Executor,
    /// Kept for its memory.
    calls: Vec<Call>,
    /// The streams that the client holds.
    ends: BTreeMap<StreamId, Arc<End>>,
    lookups: Lookups,
    recording: Option<Recording>,
    /// The events for the application, if it listens.
    events: Option<Events>,
    /// True if somebody reads what comes, as far as is known.
    attended: bool,
    /// True if the process is stopped, and since when.
    frozen: Option<Instant>,
    /// The number of replies that have come on each link's stream meanwhile.
    replies: BTreeMap<StreamId, u32>,
    /// Streams of links that have ended without notice, in the single-threaded mode.
    unseen: BTreeSet<StreamId>,
    /// The events that the application missed while its process was stopped.
    missed: Vec<Event>,
    /// The time when its process began.
    pub(super) born: Instant,
    /// The time when it was last frozen, restarted, or begun.
    pub(super) running_since: Instant,
    pub(super) closed: bool,
    /// The time when its view was last found to be right.
    pub(super) was_right: Option<Instant>,
    /// The time when its alarm rings next.
    pub(super) deadline: Option<Instant>,
    alarm: Alarm,
    /// The number of the last operation.
    operations: u64,
    /// Decides what the application does, and when: whatever happens to its operations takes
    /// nothing from it.
    workload: Random,
    random: Random,
}

impl Client {
    pub(super) fn new(
        index: usize,
        plan: ClientPlan,
        (addresses, latencies): (Arc<[ServerAddress]>, Vec<Duration>),
        mut random: Random,
        (trace, clock): (Trace, Arc<Clock>),
    ) -> Self {
        let options = Arc::clone(&plan.options);
        let (seed, workload) = (random.bits(), random.fork());
        let mut checks =
            Checks::new(index, &options, Arc::clone(&addresses), latencies, plan.steady);
        checks.trust_servers();
        if plan.always_listens {
            checks.lends_aloud();
        }
        let topology = Topology::new(Arc::clone(&options), seed);
        let known = (topology.id(), Arc::clone(topology.snapshot()));
        let records = trace.is_of_topology();
        let documents = Documents::new(index);
        let ledger =
            Ledger::new(Arc::clone(&clock), plan.clone(), (checks, documents), trace, known);
        let (ledger, desk) = (Shared::new(ledger), Desk::new(Arc::clone(&clock)));
        let executor = Executor::new(Arc::clone(&desk), random.fork());
        let runtime = Virtual::new(&options, Arc::clone(&desk), ledger.clone(), random.fork());
        let host = Host::new(Arc::clone(&options), seed, runtime.expect("there is no proxy"));
        let recording = records.then(Recording::everything);
        recording.iter().for_each(|recording| host.record(recording));
        let mut client = Self {
            index,
            options,
            addresses,
            clock,
            ledger,
            host,
            desk,
            executor,
            calls: Vec::new(),
            ends: BTreeMap::new(),
            lookups: VecDeque::new(),
            recording,
            events: None,
            attended: true,
            frozen: None,
            replies: BTreeMap::new(),
            unseen: BTreeSet::new(),
            missed: Vec::new(),
            born: Instant::ZERO,
            running_since: Instant::ZERO,
            closed: false,
            was_right: None,
            deadline: Some(Instant::ZERO),
            alarm: Alarm::at(Some(Instant::ZERO)),
            operations: 0,
            workload,
            random,
            plan,
        };
        if client.plan.always_listens {
            client.listen();
        }
        client
    }

    /// Has it begin at that time, not at the origin.
    pub(super) fn born(self, at: Instant) -> Self {
        let (deadline, alarm) = (Some(at), Alarm::at(Some(at)));
        Self { born: at, running_since: at, deadline, alarm, ..self }
    }

    /// Has it do nothing, as if it were closed and would never begin.
    pub(super) fn left_out(self) -> Self {
        let born = Instant::from_nanos(u64::MAX);
        Self { born, closed: true, deadline: None, ..self }
    }

    /// Returns what is noted of it.
    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock()
    }

    /// Takes the trace of its topology, if one was written.
    pub(super) fn take_recording(&mut self) -> Option<String> {
        let recording = self.recording.as_mut()?;
        let mut trace = String::new();
        while let Some(lines) = recording.try_next() {
            trace.push_str(&lines);
        }
        Some(trace)
    }

    pub(super) fn view(&self) -> Arc<TopologyDescription> {
        Arc::clone(self.ledger().view())
    }

    #[cfg(test)]
    pub(super) fn snapshot(&self) -> Arc<sdam_core::selection::Snapshot> {
        Arc::clone(&self.ledger().view)
    }

    /// Returns whether its process was forked off another one's.
    pub(super) fn was_forked(&self) -> bool {
        self.born > Instant::ZERO
    }

    pub(super) const fn is_frozen(&self) -> bool {
        self.frozen.is_some()
    }

    /// Returns whether anybody reads what comes and looks at the clock: always, but in the
    /// single-threaded mode only operations that wait for something.
    fn is_attended(&self) -> bool {
        !self.options.is_single_threaded()
            || self.closed
            || self.clock.now() == self.born
            || self.ledger().operations.values().any(Operation::waits)
    }

    /// Its alarm rings.
    pub(super) fn tick(&mut self, network: &mut Network) {
        if self.is_frozen() || !self.is_attended() {
            self.deadline = None;
            return;
        }
        self.ring(network.now);
        self.run(network);
    }

    fn ring(&mut self, now: Instant) {
        if self.alarm.rang(now) {
            self.running_since = now;
        }
        self.host.ring();
    }

    /// Lets all tasks do what they can, and looks at what has become of it.
    pub(super) fn run(&mut self, network: &mut Network) {
        if self.is_frozen() {
            return;
        }
        let mut attended = self.is_attended();
        loop {
            let begins = attended && !self.attended;
            self.attended = attended;
            if begins {
                self.find_ended(network);
            }
            while self.executor.step(attended) {}
            let called = self.perform(network);
            attended = self.is_attended();
            if !called && attended == self.attended {
                break;
            }
        }
        let now = network.now;
        if let Some(deadline) = self.desk.take_alarm() {
            self.alarm.set(now, deadline);
        }
        self.deadline = self.alarm.next().filter(|_| attended).map(|rings| rings.max(now));
        self.judge_alarm(attended);
        self.hear();
        let (counts, late) = (self.executor.counts(), self.alarm.bearable() * 3 + LOOK);
        let mut ledger = self.ledger.lock();
        ledger.settle(counts);
        check_ended(&mut ledger, self.running_since, late);
    }

    /// The alarm rings when something is due, or a little later if it is disturbed.
    fn judge_alarm(&mut self, attended: bool) {
        let mut ledger = self.ledger.lock();
        let Some(due) = ledger.next_deadline().filter(|_| attended && !self.closed) else { return };
        // After a stop, and after a ring that was late, what has come is read first.
        let bearable = self.alarm.bearable() + LOOK;
        let now = self.clock.now();
        if self.deadline.is_none_or(|rings| rings > due.max(now) + bearable) {
            let alarm = &self.alarm;
            let what = || format!("something is due at {due:?}, and it does not ring: {alarm:?}");
            ledger.checks.fail("the alarm rings when something is due", what);
        }
    }

    /// Its runtime gives up some of the tasks that move bytes.
    pub(super) fn drop_tasks(&mut self, network: &mut Network, bits: u64) {
        self.executor.give_up(&mut Random::new(bits));
        self.run(network);
    }

    /// From now on its alarm may ring early, late, or twice.
    pub(super) fn disturb_alarm(&mut self, bits: u64) {
        self.alarm.disturb(bits);
        // A ring that is very late is followed by two others before anything is judged.
        self.ledger().checks.alarms_may_be_late(LATEST * 3 + LOOK);
    }

    /// From now on the alarm rings when it is set to.
    pub(super) fn mend_alarm(&mut self) {
        self.alarm.mend();
    }

    /// The servers may send whatever they like from now on.
    pub(super) fn is_flooded(&mut self) {
        self.ledger().checks.distrust_servers();
    }

    /// Everybody is to be alive: monitors, pools, and operations.
    pub(super) fn audit(&mut self, now: Instant) {
        let late = self.alarm.bearable() * 3 + LOOK;
        let mut ledger = self.ledger.lock();
        ledger.audit(now, self.running_since, late);
        ledger.check_deadlines(self.running_since, late);
    }

    /// Returns whether something has not ended.
    pub(super) fn has_remains(&self) -> bool {
        self.ledger().has_remains() || self.executor.len() > 0 || !self.ends.is_empty()
    }

    /// Says what has not ended: nothing, once the client was closed.
    pub(super) fn remains(&self) -> String {
        let (ledger, streams) = (self.ledger().remains(), self.ends.len());
        format!("{ledger}, {:?}, {streams} streams", self.executor)
    }
}
