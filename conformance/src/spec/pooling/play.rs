//! Plays a case: threads, a pool, and connections that are established, all in virtual time.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bson::rawdoc;
use sdam_core::config::ServerAddress;
use sdam_core::failure::{Cause, Failure, Stage as Reached};
use sdam_core::id::{ConnectionId, Generation, ServerId, WaiterId};
use sdam_core::machine::{Lawful, Machine};
use sdam_core::operation::{CommandError, OperationError, OperationFailure};
use sdam_core::pool::{
    Action, CheckOut, CheckOutError, Command, Established, Input, Pool, PoolConfig,
};
use sdam_core::time::Instant;
use sdam_core::topology;

use super::super::format::CaseError;
use super::case::{Case, End, Operation, Step};
use super::events::PoolObservation;
use super::thread::{Doing, PlayError, Thread, ThreadError};
use sdam_core::harness::{CheckOutcome, Harness};

/// The thread that begins.
const MAIN: &str = "main";

/// The time that an event is waited for, unless the case says otherwise.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The time when a case must have ended, in virtual time.
const MAX_TIME: Instant = Instant::from_millis(600_000);

/// The end of a case.
pub(super) struct Ending {
    pub(super) events: Vec<PoolObservation>,
    /// The error of the main thread.
    pub(super) error: Option<ThreadError>,
}

/// A case that is being played.
pub(super) struct Play {
    case: Case,
    address: ServerAddress,
    pool: Lawful<Pool<ConnectionId>>,
    now: Instant,
    generation: Generation,
    threads: BTreeMap<String, Thread>,
    /// The connections being established, and when that ends.
    establishing: BTreeMap<ConnectionId, (Instant, End)>,
    labels: BTreeMap<String, (CheckOut, ConnectionId)>,
    events: Vec<PoolObservation>,
    waiters: u64,
}

impl Play {
    pub(super) fn new(mut case: Case) -> Result<Self, CaseError> {
        let (_, _, address) = deployment()?;
        let config = PoolConfig::new(address.clone(), case.pool_options.of_pool());
        let operations = std::mem::take(&mut case.operations).into();
        let main = Thread { operations, doing: Doing::Nothing };
        let mut new = Self {
            case,
            address,
            pool: Lawful::new(Pool::new(config)),
            now: Instant::ZERO,
            generation: Generation::default(),
            threads: [(MAIN.to_owned(), main)].into(),
            establishing: BTreeMap::new(),
            labels: BTreeMap::new(),
            events: Vec::new(),
            waiters: 0,
        };
        new.tick();
        Ok(new)
    }

    /// Plays until the main thread has ended.
    pub(super) fn run(mut self) -> Result<Ending, CaseError> {
        loop {
            while self.advance()? {}
            let main = &self.threads[MAIN];
            match &main.doing {
                Doing::Failed(error) => {
                    return Ok(Ending { error: Some(error.clone()), events: self.events });
                }
                Doing::Nothing if main.operations.is_empty() => {
                    return Ok(Ending { error: None, events: self.events });
                }
                _ => {}
            }
            let next = self.next_moment().filter(|next| *next <= MAX_TIME);
            let waited = self.now.since_origin();
            self.now = next.ok_or(PlayError::Stuck { waited })?.max(self.now);
            self.pass()?;
        }
    }

    fn next_moment(&self) -> Option<Instant> {
        let threads = self.threads.values().filter_map(|thread| match thread.doing {
            Doing::Sleeping { until } | Doing::AwaitingEvent { until, .. } => Some(until),
            _ => None,
        });
        let connections = self.establishing.values().map(|(due, _)| *due);
        threads.chain(connections).chain(self.alarm()).min()
    }

    /// Returns when the pool wants to be woken, unless the case keeps it from its background work.
    fn alarm(&self) -> Option<Instant> {
        let silent = self.case.pool_options.is_without_background();
        self.pool.deadline().filter(|_| !silent)
    }

    /// Does what is due now, besides the threads.
    fn pass(&mut self) -> Result<(), CaseError> {
        if self.alarm().is_some_and(|due| due <= self.now) {
            self.tick();
        }
        let due = |(_, (due, _)): &(&ConnectionId, &(Instant, End))| *due <= self.now;
        let due = self.establishing.iter().filter(due).map(|(connection, _)| *connection);
        let due: Vec<ConnectionId> = due.collect();
        for connection in due {
            if let Some((_, end)) = self.establishing.remove(&connection) {
                self.end(connection, end)?;
            }
        }
        Ok(())
    }

    /// Ends the establishment of a connection.
    ///
    /// The pool learns that there is an error before the topology judges it, and which afterwards.
    fn end(&mut self, connection: ConnectionId, end: End) -> Result<(), CaseError> {
        let error = match end {
            End::Established => {
                let outcome = Ok(Established::new(connection, None));
                self.input(Input::Established { connection, outcome });
                return Ok(());
            }
            End::Closed => {
                let detail = "the server closed the connection";
                OperationError::Stream(Failure::new(Reached::Hello, Cause::Closed, detail))
            }
            End::Refused { code } => {
                let reply = rawdoc! { "ok": 0, "code": code, "errmsg": "the fail point says no" };
                let error = CommandError::in_reply(&reply).unwrap_or_default();
                OperationError::Reply { stage: Reached::Hello, error }
            }
        };
        self.input(Input::Failing { connection });
        if topology_clears(&error)? {
            self.clear(false, error.to_failure());
        }
        self.input(Input::Established { connection, outcome: Err(error) });
        Ok(())
    }

    fn clear(&mut self, interrupt: bool, cause: Failure) {
        self.generation = Generation::new(self.generation.number() + 1);
        let to = self.generation;
        self.input(Input::Command(Command::Clear { to, interrupt, cause }));
    }

    fn tick(&mut self) {
        let mut actions = Vec::new();
        self.pool.tick(self.now.into(), &mut actions);
        self.perform(actions);
    }

    fn input(&mut self, input: Input<ConnectionId>) {
        let mut actions = Vec::new();
        self.pool.handle(self.now.into(), input, &mut actions);
        self.perform(actions);
    }

    fn perform(&mut self, actions: Vec<Action<ConnectionId>>) {
        for action in actions {
            match action {
                Action::Establish { connection, .. } => {
                    let fate = self.case.fate(connection.number());
                    self.establishing.insert(connection, (self.now + fate.after, fate.end));
                }
                Action::Abort { connection } => {
                    self.establishing.remove(&connection);
                }
                Action::Deliver { waiter, outcome } => self.deliver(waiter, outcome),
                Action::Emit { event, .. } => {
                    self.events.extend(PoolObservation::new(&self.address, &event));
                }
                // The connections are unused.
                _ => {}
            }
        }
    }

    fn deliver(
        &mut self,
        waiter: WaiterId,
        outcome: Result<(CheckOut, ConnectionId), Box<CheckOutError>>,
    ) {
        let waits = |thread: &&mut Thread| match thread.doing {
            Doing::CheckingOut { waiter: waits, .. } => waits == waiter,
            _ => false,
        };
        let Some(thread) = self.threads.values_mut().find(waits) else { return };
        let doing = std::mem::replace(&mut thread.doing, Doing::Nothing);
        match (outcome, doing) {
            (Ok(lent), Doing::CheckingOut { label: Some(label), .. }) => {
                self.labels.insert(label, lent);
            }
            (Ok(_), _) => {}
            (Err(error), _) => thread.doing = Doing::Failed(ThreadError::CheckOut(error)),
        }
    }

    /// Lets every thread do what it can; returns whether any did something.
    fn advance(&mut self) -> Result<bool, CaseError> {
        let mut progress = false;
        // The main thread acts first, so that what it asks others to do is done at once.
        let others = self.threads.keys().filter(|name| *name != MAIN).cloned();
        let names: Vec<String> = [MAIN.to_owned()].into_iter().chain(others).collect();
        for name in names {
            let doing = self.threads[&name].doing.clone();
            if let Some(next) = self.after(doing) {
                self.set(&name, next);
                progress = true;
            }
            if let Doing::Nothing = self.threads[&name].doing
                && let Some(thread) = self.threads.get_mut(&name)
                && let Some(step) = thread.operations.pop_front()
            {
                match step.thread.clone() {
                    Some(other) if other != name => self.entrust(other, step)?,
                    _ => self.act(&name, step.operation)?,
                }
                progress = true;
            }
        }
        Ok(progress)
    }

    fn set(&mut self, name: &str, doing: Doing) {
        if let Some(thread) = self.threads.get_mut(name) {
            thread.doing = doing;
        }
    }

    /// Returns what follows what a thread is at, if that has ended.
    fn after(&self, doing: Doing) -> Option<Doing> {
        match doing {
            Doing::Sleeping { until } if until <= self.now => Some(Doing::Nothing),
            Doing::AwaitingThread { target } => match &self.threads.get(&target)?.doing {
                Doing::Failed(error) => Some(Doing::Failed(error.clone())),
                Doing::Nothing if self.threads[&target].operations.is_empty() => {
                    Some(Doing::Nothing)
                }
                _ => None,
            },
            Doing::AwaitingEvent { event, count, until } => {
                let seen = self.events.iter().filter(|told| told.name == event).count();
                match seen >= count {
                    true => Some(Doing::Nothing),
                    false if until <= self.now => {
                        Some(Doing::Failed(ThreadError::NoSuchEvent { event, count }))
                    }
                    false => None,
                }
            }
            _ => None,
        }
    }

    fn entrust(&mut self, name: String, step: Step) -> Result<(), PlayError> {
        match self.threads.get_mut(&name) {
            Some(thread) => thread.operations.push_back(step),
            None => return Err(PlayError::NoThread(name)),
        }
        Ok(())
    }

    fn act(&mut self, name: &str, operation: Operation) -> Result<(), PlayError> {
        let millis = |number: u32| Duration::from_millis(number.into());
        match operation {
            Operation::Start { target } => {
                let thread = Thread { operations: VecDeque::new(), doing: Doing::Nothing };
                if self.threads.insert(target.clone(), thread).is_some() {
                    return Err(PlayError::Started(target));
                }
            }
            Operation::Wait { ms } => {
                self.set(name, Doing::Sleeping { until: self.now + millis(ms) });
            }
            Operation::WaitForThread { target } if !self.threads.contains_key(&target) => {
                return Err(PlayError::NoThread(target));
            }
            Operation::WaitForThread { target } => {
                self.set(name, Doing::AwaitingThread { target });
            }
            Operation::WaitForEvent { event, count, timeout } => {
                let until = self.now + timeout.map_or(TIMEOUT, millis);
                self.set(name, Doing::AwaitingEvent { event, count, until });
            }
            Operation::CheckOut { label } => {
                self.waiters += 1;
                let waiter = WaiterId(self.waiters);
                self.set(name, Doing::CheckingOut { waiter, label });
                self.input(Input::CheckOut { waiter, deadline: None });
            }
            Operation::CheckIn { connection: label } => {
                let lent = self.labels.remove(&label);
                let (check_out, connection) = lent.ok_or(PlayError::NoConnection(label))?;
                self.input(Input::CheckIn { check_out, outcome: Ok(connection) });
            }
            Operation::Clear { interrupt } => {
                let cause = Failure::new(Reached::Operate, Cause::Canceled, "the case says so");
                self.clear(interrupt, cause);
            }
            Operation::Close {} => self.input(Input::Close),
            Operation::Ready {} => self.input(Input::Command(Command::Ready)),
        }
        Ok(())
    }
}

/// A topology of one server, which has answered.
fn deployment() -> Result<(Harness, ServerId, ServerAddress), CaseError> {
    let mut stage = Harness::new("mongodb://server/?directConnection=true", None)?;
    let found =
        stage.view().servers().iter().next().map(|server| (server.id, server.address.clone()));
    let (server, address) = found.expect("a topology has its seeds");
    let reply = rawdoc! { "ok": 1, "isWritablePrimary": true, "maxWireVersion": 25 };
    stage.answer(&address, CheckOutcome::Reply(&reply))?;
    Ok((stage, server, address))
}

/// Asks a topology what it makes of an error that ended an establishment.
fn topology_clears(error: &OperationError) -> Result<bool, CaseError> {
    let (mut stage, server, address) = deployment()?;
    let failure = OperationFailure::new(Generation::default(), 0, error.clone());
    stage.input(topology::Input::OperationFailed { server, failure });
    Ok(stage.generation(&address) > 0)
}
