//! The application: when it begins operations, gives them up, listens, looks, and closes its
//! client.

use std::sync::Arc;
use std::time::Duration;

use sdam_core::config::ReadMode;
use sdam_core::selection::Criteria;

use super::Client;
use super::documents::DocumentJob;
use super::operation::{Job, Look, OperationId, Phase, Worker};
use crate::sim::bounds::Bounds;
use crate::sim::coverage::Sign;
use crate::sim::network::Network;
use crate::sim::random::Random;
use crate::sim::request::Kind;
use crate::sim::runtime;
use crate::sim::world::Event;

/// The percentage of a single-threaded client's operations that wait for a server for as long as
/// one may take to be found, and longer.
const PATIENT_PERCENT: u64 = 10;

/// The extra time.
const LONGER: Duration = Duration::from_secs(10);

/// The percentage of an application's beginnings at which it begins or stops to listen.
const LISTENING_PERCENT: u64 = 3;

impl Client {
    /// The application does something.
    pub(super) fn act(&mut self, network: &mut Network, event: &Event) {
        match event {
            Event::Operate { .. } => self.operate(network),
            Event::Cancel { operation, .. } => self.cancel(*operation),
            _ => {}
        }
    }

    pub(in crate::sim) fn has_operation(&self, id: OperationId) -> bool {
        self.ledger().operations.contains_key(&id)
    }

    /// The application begins an operation, or several at once.
    fn operate(&mut self, network: &mut Network) {
        if self.closed || network.now >= self.plan.workload_ends {
            return;
        }
        let interval = self.plan.interval;
        let next = self.workload.between(interval / 2, interval * 3 / 2);
        network.plan(next, Event::Operate { client: self.index });
        if !self.plan.always_listens && self.random.percent(LISTENING_PERCENT) {
            match self.events.is_some() {
                true => self.stop_listening(),
                false => self.listen(),
            }
        }
        let burst = if self.workload.percent(5) { 1 + self.workload.below(20) } else { 1 };
        for _ in 0..burst {
            let drawn = self.workload.fork();
            if network.now >= self.plan.workload_begins {
                self.begin(network, drawn);
            }
        }
    }

    /// Hears of all events from now on.
    pub(super) fn listen(&mut self) {
        self.events = Some(self.host.subscribe());
        self.ledger().told = Some(std::collections::VecDeque::new());
    }

    fn stop_listening(&mut self) {
        self.hear();
        self.events = None;
        self.ledger().told = None;
    }

    /// Reads all events, which are those that the machines have emitted.
    pub(super) fn hear(&mut self) {
        let Some(events) = &mut self.events else { return };
        let mut ledger = self.ledger.lock();
        let Some(mut told) = ledger.told.take() else { return };
        while let Some(heard) = events.try_next() {
            let next = told.pop_front();
            let is_same = next.as_ref().is_some_and(|next| {
                let kinds = [&next.kind, &heard.kind].map(std::mem::discriminant);
                next.at == heard.at && kinds[0] == kinds[1]
            });
            if !is_same {
                let what = || format!("{heard:?} is heard, and {next:?} was published");
                ledger.checks.fail("subscribers hear what happens", what);
            }
        }
        if !told.is_empty() {
            let what = || format!("no subscriber hears {:?}", told.front());
            ledger.checks.fail("subscribers hear what happens", what);
            told.clear();
        }
        ledger.told = Some(told);
    }

    fn begin(&mut self, network: &mut Network, mut random: Random) {
        let modes = [
            ReadMode::Primary,
            ReadMode::PrimaryPreferred,
            ReadMode::Secondary,
            ReadMode::SecondaryPreferred,
            ReadMode::Nearest,
        ];
        let kind = match random.percent(50) {
            true => Kind::Write,
            false => Kind::Read(random.pick(&modes)),
        };
        let patience = self.patience(&mut random);
        let cancelled = random.percent(self.plan.cancelled_percent);
        let after = random.between(Duration::ZERO, patience / 4);
        let documents_percent = self.plan.documents_percent;
        let operation = match documents_percent > 0 && random.percent(documents_percent) {
            true => self.start_on_documents(patience, random),
            false => self.start(kind, patience, random),
        };
        if cancelled {
            network.plan(after, Event::Cancel { client: self.index, operation });
        }
    }

    /// Begins an operation that may take so long; the rest of it is drawn.
    pub(super) fn start(&mut self, kind: Kind, patience: Duration, random: Random) -> OperationId {
        let mut ledger = self.ledger.lock();
        let job = Job::draw(&ledger, kind, patience, random);
        let id = OperationId(self.operations + 1);
        ledger.begin(id, &job.criteria, job.patience);
        drop(ledger);
        let worker = self.worker();
        self.desk.spawn(runtime::Kind::Application(id.0), worker.work(job));
        id
    }

    /// Begins a task that writes and reads documents, each in such a time.
    fn start_on_documents(&mut self, patience: Duration, random: Random) -> OperationId {
        // A write waits for its reply that long, too, if there is no majority any more.
        let job = DocumentJob::draw(patience.min(self.plan.patience), random);
        let worker = self.worker();
        let id = worker.id;
        self.ledger().begin(id, &Criteria::write(), job.patience);
        self.desk.spawn(runtime::Kind::Application(id.0), worker.work_on_documents(job));
        id
    }

    /// Returns the worker that does the next operation.
    fn worker(&mut self) -> Worker {
        self.operations += 1;
        let (ledger, host, desk) =
            (self.ledger.clone(), Arc::clone(&self.host), Arc::clone(&self.desk));
        Worker { id: OperationId(self.operations), ledger, host, desk }
    }

    /// Draws how long an operation may take.
    fn patience(&self, random: &mut Random) -> Duration {
        let usual = random.between(self.plan.patience / 4, self.plan.patience);
        if !self.options.is_single_threaded() || !random.percent(PATIENT_PERCENT) {
            return usual;
        }
        let bounds = Bounds::of_single_threaded(&self.options, self.plan.addresses.len());
        bounds.reachable + bounds.selection + LONGER
    }

    /// The application drops an operation, wherever it is.
    fn cancel(&mut self, id: OperationId) {
        let most = self.options.pool().max_pool_size as usize;
        let phase = self.ledger().operations.get(&id).map(|it| it.phase);
        if phase == Some(Phase::CheckingOut) && most > 0 {
            let members = self.host.members();
            if members.iter().any(|it| it.counts().in_use >= most) {
                self.ledger().checks.note(Sign::CancelledInQueue);
            }
        }
        self.executor.cancel(id.0);
    }

    /// The application closes the client.
    pub(in crate::sim) fn shut_down(&mut self, network: &mut Network) {
        let now = network.now;
        {
            let mut ledger = self.ledger.lock();
            ledger.trace.step(now, || "shutdown".to_owned());
            let awaits = |phase| matches!(phase, Phase::Exchanging | Phase::Running);
            if !ledger.links.is_empty() && ledger.operations.values().any(|it| awaits(it.phase)) {
                ledger.checks.note(Sign::ClosedAtWork);
            }
            ledger.closed = true;
        }
        self.closed = true;
        self.host.close();
        self.run(network);
        let mut ledger = self.ledger.lock();
        let (deadline, links) = (ledger.deadline, ledger.links.len());
        ledger.checks.closed(deadline, links);
    }

    /// The application wants a fresh view, and reads from whatever server there is.
    pub(in crate::sim) fn look(&mut self, network: &mut Network, patience: Duration) {
        self.host.request_check();
        let random = self.random.fork();
        let id = self.start(Kind::Read(ReadMode::Nearest), patience, random);
        self.ledger().look = Look::Begun(id);
        self.run(network);
    }

    /// Returns whether the view is to be right at this moment: while no operation looks at a
    /// single-threaded client's, it is as old as the last look.
    pub(in crate::sim) fn is_to_be_right(&mut self) -> bool {
        if !self.options.is_single_threaded() {
            return true;
        }
        let mut ledger = self.ledger.lock();
        let ended = ledger.look == Look::Ended;
        if ended {
            ledger.look = Look::None;
        }
        ended
    }
}
