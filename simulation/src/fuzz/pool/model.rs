//! The naive model: all that is known about a pool from outside, and what it may do by that.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bson::oid::ObjectId;
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::id::{ConnectionId, Generation, WaiterId};
use sdam_core::machine::{Lawful, Machine};
use sdam_core::operation::OperationError;
use sdam_core::pool::{
    Action, CheckOut, CheckOutError, Command, Established, Input, Pool, PoolConfig, Purpose,
};
use sdam_core::time::Instant;

/// The number of kinds of things that may happen.
pub(super) const KINDS: u8 = 20;

/// The connections from here on are made up.
const FORGED: u64 = 1 << 32;

type Service = Option<ObjectId>;

/// The place of a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Available { since: Instant, generation: u32, service: Service },
    InUse { check_out: CheckOut, interrupted: bool },
}

/// The real pool, and all that is known about it from outside.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) pool: Lawful<Pool<u64>>,
    config: PoolConfig,
    now: Instant,
    ready: bool,
    closed: bool,
    generations: BTreeMap<Service, u32>,
    /// Those who wait, in order, and until when.
    queue: VecDeque<(WaiterId, Option<Instant>)>,
    pending: BTreeMap<ConnectionId, u32>,
    places: BTreeMap<u64, Place>,
    /// Leases that have ended.
    dead: Vec<CheckOut>,
    disposed: BTreeSet<u64>,
    forged: u64,
    created: u64,
    waiters: u64,
}

/// One of several, by a random number.
fn pick<T>(choice: u8, all: impl Iterator<Item = T>) -> Option<T> {
    let all: Vec<T> = all.collect();
    let index = usize::from(choice) % all.len().max(1);
    all.into_iter().nth(index)
}

fn failure() -> Failure {
    Failure::new(Stage::Hello, Cause::Closed, "the server closed the connection")
}

impl Model {
    pub(super) fn new(config: PoolConfig) -> Self {
        Self {
            pool: Lawful::new(Pool::new(config.clone())),
            config,
            now: Instant::ZERO,
            ready: false,
            closed: false,
            generations: BTreeMap::new(),
            queue: VecDeque::new(),
            pending: BTreeMap::new(),
            places: BTreeMap::new(),
            dead: Vec::new(),
            disposed: BTreeSet::new(),
            forged: FORGED,
            created: 0,
            waiters: 0,
        }
    }

    /// The first tick, which is due at once.
    pub(super) fn begin(&mut self) {
        self.tick();
    }

    /// Time passes; the alarm rings at every deadline, or not at all.
    pub(super) fn pass(&mut self, time: Duration, in_time: bool) {
        let until = self.now + time;
        while let Some(due) = self.pool.deadline().filter(|due| in_time && *due <= until) {
            self.now = due.max(self.now);
            self.tick();
        }
        self.now = until;
    }

    /// Something happens.
    pub(super) fn act(&mut self, kind: u8, choice: u8) {
        // What is due comes before an input; the short cuts are taken with a late alarm too.
        if !matches!(kind, 10 | 11) {
            self.tick();
        }
        match kind {
            0..4 => self.check_out(choice),
            4..7 => self.establish(choice),
            7 => self.fail(choice),
            8 | 9 => self.check_in(choice, choice.is_multiple_of(4)),
            10 => self.try_check_in(choice),
            11 => self.try_check_out(),
            12 => self.clear(choice),
            13 | 14 => {
                self.ready |= !self.closed;
                self.input(Input::Command(Command::Ready));
            }
            15 => self.abandon(choice),
            16 => {
                if let Some(connection) = pick(choice, self.pending.keys().copied()) {
                    self.input(match choice % 8 {
                        0 | 4 => Input::Asked { connection },
                        1 => Input::Answered { connection },
                        2 => Input::PersonAsked { connection },
                        3 => Input::PersonAnswered { connection },
                        _ => Input::Reached { connection, stage: Stage::Hello },
                    });
                }
            }
            17 => {
                if let Some((_, check_out)) = self.pick_loan(choice) {
                    self.input(Input::Pin { check_out, purpose: Purpose::Cursor });
                }
            }
            18 => self.return_twice(choice),
            // Rarely, as little happens afterwards.
            _ if choice < 20 => self.close(),
            _ => {}
        }
    }

    /// The pool is closed, and all check-outs end: nothing may be left.
    pub(super) fn end(&mut self) {
        self.tick();
        self.close();
        while let Some((id, _)) = self.pick_loan(0) {
            self.check_in(0, false);
            assert!(!self.places.contains_key(&id), "a closed pool keeps nothing");
        }
        self.settle();
        assert!(self.queue.is_empty() && self.pending.is_empty(), "somebody waits for ever");
        assert!(self.places.is_empty(), "lost: {:?}", self.places);
    }

    fn generation(&self, service: Service) -> u32 {
        self.generations.get(&service).copied().unwrap_or_default()
    }

    fn service(&self, choice: u8) -> Service {
        self.config.load_balanced.then(|| ObjectId::from_bytes([choice % 2; 12]))
    }

    fn pick_loan(&self, choice: u8) -> Option<(u64, CheckOut)> {
        let in_use = self.places.iter().filter_map(|(id, place)| match place {
            Place::InUse { check_out, .. } => Some((*id, *check_out)),
            Place::Available { .. } => None,
        });
        pick(choice, in_use)
    }

    fn check_out(&mut self, choice: u8) {
        self.waiters += 1;
        let waiter = WaiterId(self.waiters);
        let soon = self.now + Duration::from_millis(choice.into());
        let deadline = choice.is_multiple_of(3).then_some(soon);
        let patience = self.config.options.wait_queue_timeout.map(|wait| self.now + wait);
        self.queue.push_back((waiter, deadline.or(patience)));
        self.input(Input::CheckOut { waiter, deadline });
    }

    fn abandon(&mut self, choice: u8) {
        if let Some(waiter) = pick(choice, self.queue.iter().map(|it| it.0)) {
            self.queue.retain(|it| it.0 != waiter);
            self.input(Input::Abandon { waiter });
        }
    }

    fn establish(&mut self, choice: u8) {
        let Some(id) = pick(choice, self.pending.keys().copied()) else { return };
        let service = self.service(choice);
        let fresh = self.pending.remove(&id) == Some(self.generation(None));
        let connection = id.number();
        if fresh {
            let generation = self.generation(service);
            let place = Place::Available { since: self.now, generation, service };
            self.places.insert(connection, place);
        }
        let outcome = Ok(Established::new(connection, service));
        self.input(Input::Established { connection: id, outcome });
        assert!(fresh || self.disposed.contains(&connection), "what is stale is closed at once");
    }

    fn fail(&mut self, choice: u8) {
        let Some(connection) = pick(choice, self.pending.keys().copied()) else { return };
        self.input(Input::Failing { connection });
        // The topology may judge it to be a reason to clear the pool.
        if choice.is_multiple_of(3) {
            self.clear(choice);
        }
        self.pending.remove(&connection);
        let outcome = Err(OperationError::Stream(failure()));
        self.input(Input::Established { connection, outcome });
    }

    fn check_in(&mut self, choice: u8, broken: bool) {
        let Some((id, check_out)) = self.pick_loan(choice) else { return };
        let interrupted = matches!(self.places[&id], Place::InUse { interrupted: true, .. });
        let stale = check_out.generation.number() < self.generation(check_out.service);
        let kept = !broken && !stale && !interrupted && !self.closed;
        match kept {
            true => self.keep(id, check_out),
            false => drop(self.places.remove(&id)),
        }
        self.dead.push(check_out);
        let broken = broken.then(|| Box::new(OperationError::Stream(failure())));
        let (kept, outcome) = (kept || broken.is_some(), broken.map_or(Ok(id), Err));
        self.input(Input::CheckIn { check_out, outcome });
        assert!(kept || self.disposed.contains(&id));
    }

    fn try_check_in(&mut self, choice: u8) {
        let Some((id, check_out)) = self.pick_loan(choice) else { return };
        if self.pool.get_mut().try_check_in(self.now, check_out, id).is_ok() {
            assert!(self.queue.is_empty() && !self.closed);
            assert_eq!(check_out.generation.number(), self.generation(check_out.service));
            self.dead.push(check_out);
            self.keep(id, check_out);
        }
    }

    fn keep(&mut self, id: u64, check_out: CheckOut) {
        let (generation, service) = (check_out.generation.number(), check_out.service);
        self.places.insert(id, Place::Available { since: self.now, generation, service });
    }

    fn try_check_out(&mut self) {
        if let Some((check_out, connection)) = self.pool.get_mut().try_check_out(self.now) {
            assert!(self.ready && self.queue.is_empty(), "lent out of turn");
            self.hand_out(check_out, connection);
        }
    }

    /// Checks in twice: a check-out that has ended stays so, and the connection is disposed of.
    fn return_twice(&mut self, choice: u8) {
        let Some(check_out) = pick(choice, self.dead.iter().copied()) else { return };
        self.forged += 1;
        self.input(Input::CheckIn { check_out, outcome: Ok(self.forged) });
        assert!(self.disposed.contains(&self.forged));
        assert!(self.pool.get_mut().try_check_in(self.now, check_out, 7).is_err());
    }

    fn clear(&mut self, choice: u8) {
        let (cause, interrupt) = (failure(), choice.is_multiple_of(2));
        let service = self.service(choice);
        let to = Generation::new(self.generation(service) + 1);
        if !self.closed {
            self.generations.insert(service, to.number());
            self.ready &= service.is_some();
        }
        self.input(Input::Command(match service {
            Some(service) => Command::ClearService { service, to, cause },
            None => Command::Clear { to, interrupt, cause },
        }));
    }

    fn close(&mut self) {
        (self.ready, self.closed) = (false, true);
        self.input(Input::Close);
    }

    fn input(&mut self, input: Input<u64>) {
        let mut out = Vec::new();
        self.pool.handle(self.now.into(), input, &mut out);
        out.into_iter().for_each(|action| self.check(action));
    }

    fn tick(&mut self) {
        let mut out = Vec::new();
        self.pool.tick(self.now.into(), &mut out);
        out.into_iter().for_each(|action| self.check(action));
    }

    fn hand_out(&mut self, check_out: CheckOut, connection: u64) {
        let place = self.places[&connection];
        let Place::Available { since, generation, service } = place else {
            panic!("{connection} is {place:?}")
        };
        let limit = self.config.options.max_idle_time;
        assert!(limit.is_zero() || self.now - since < limit, "{connection} is idle");
        assert_eq!(check_out.connection.number(), connection);
        assert_eq!((check_out.generation.number(), check_out.service), (generation, service));
        assert_eq!(generation, self.generation(service), "a stale one");
        self.places.insert(connection, Place::InUse { check_out, interrupted: false });
    }

    /// Holds an action against what is known.
    fn check(&mut self, action: Action<u64>) {
        match action {
            Action::Establish { connection, generation } => {
                self.created += 1;
                assert_eq!(connection.number(), self.created);
                assert!(self.ready);
                self.pending.insert(connection, generation.number());
            }
            Action::Abort { connection } => {
                assert!(self.pending.remove(&connection).is_some());
            }
            Action::TimedOut { connection, .. } => {
                assert!(self.pending.contains_key(&connection));
            }
            Action::Interrupt { connection } => self.interrupt(connection),
            Action::Deliver { waiter, outcome: Ok((check_out, connection)) } => {
                assert_eq!(self.queue.pop_front().map(|it| it.0), Some(waiter), "first come");
                self.hand_out(check_out, connection);
            }
            Action::Deliver { waiter, outcome: Err(error) } => self.refused(waiter, &error),
            Action::Dispose { id, connection } => {
                assert!(connection > FORGED || id.number() == connection);
                assert!(self.disposed.insert(connection), "{connection} is disposed of twice");
                let place = self.places.remove(&connection);
                assert!(!matches!(place, Some(Place::InUse { .. })), "{connection} is on loan");
            }
            Action::Emit { .. } => {}
        }
    }

    fn interrupt(&mut self, connection: ConnectionId) {
        let generation = self.generation(None);
        match self.places.get_mut(&connection.number()) {
            Some(Place::InUse { check_out, interrupted }) => {
                assert!(!*interrupted && check_out.generation.number() < generation);
                *interrupted = true;
            }
            place => panic!("{connection} is {place:?}, and interrupted"),
        }
    }

    fn refused(&mut self, waiter: WaiterId, error: &CheckOutError) {
        let index = self.queue.iter().position(|it| it.0 == waiter).expect("it waits");
        let limit = self.queue.remove(index).and_then(|(_, limit)| limit);
        match error {
            CheckOutError::PoolClosed { .. } => assert!(self.closed),
            CheckOutError::PoolCleared { .. } | CheckOutError::NotReady { .. } => {
                assert!(!self.ready && !self.closed);
            }
            CheckOutError::Timeout { .. } => assert!(limit.is_some_and(|at| at <= self.now)),
            CheckOutError::Establishing { .. } => {}
            other => panic!("{other}: pools themselves refuse for other reasons"),
        }
    }

    /// Holds the pool's own figures against what is known.
    pub(super) fn settle(&self) {
        let counts = self.pool.get().counts();
        let in_use = |place: &&Place| matches!(place, Place::InUse { .. });
        let in_use = self.places.values().filter(in_use).count();
        assert_eq!(counts.pending, self.pending.len());
        assert_eq!(counts.waiting, self.queue.len());
        assert_eq!(counts.available, self.places.len() - in_use);
        assert_eq!(counts.in_use, in_use);
        let options = &self.config.options;
        let most = options.max_pool_size as usize;
        assert!(most == 0 || counts.total() <= most, "maxPoolSize");
        assert!(counts.pending <= options.max_connecting as usize, "maxConnecting");
        assert!(counts.waiting == 0 || counts.available == 0 && self.ready);
        assert!(self.ready || counts.available == 0);
        let fresh = self.pending.values().filter(|it| **it == self.generation(None)).count();
        let room = (most == 0 || counts.total() < most)
            && counts.pending < options.max_connecting as usize;
        let idle = fresh < counts.waiting && room;
        assert!(!idle || self.pool.deadline().is_some(), "those who wait wait for nothing");
    }
}
