//! Whatever a pool is told and whenever, against a naive model of what it may do.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bson::oid::ObjectId;
use proptest::prelude::*;

use super::{
    Action, CheckOutError, Command, Duration, Established, Generation, Input, Instant, Lawful,
    Lease, Machine, OperationError, Pool, PoolConfig, PoolOptions, Stage, failure,
};
use crate::id::{ConnectionId, ServerId, TopologyId, WaiterId};
use crate::pool::Purpose;

/// Where a connection is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Available { since: Instant },
    OnLoan { interrupted: bool },
}

/// The real pool, and all that is known about it from outside.
struct Model {
    pool: Lawful<Pool<u64>>,
    config: PoolConfig,
    now: Instant,
    ready: bool,
    closed: bool,
    generations: BTreeMap<Option<ObjectId>, u32>,
    /// Those who wait, in order, and until when.
    queue: VecDeque<(WaiterId, Option<Instant>)>,
    pending: BTreeMap<ConnectionId, u32>,
    places: BTreeMap<u64, (Place, Lease)>,
    /// Leases that have ended, or never were.
    dead: Vec<Lease>,
    disposed: BTreeSet<u64>,
    /// The connections that were made up since.
    forged: u64,
    created: u64,
    waiters: u64,
}

impl Model {
    fn new(config: PoolConfig) -> Self {
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
            forged: 1 << 32,
            created: 0,
            waiters: 0,
        }
    }

    fn generation(&self, service: Option<ObjectId>) -> u32 {
        self.generations.get(&service).copied().unwrap_or_default()
    }

    fn count(&self, wanted: fn(&Place) -> bool) -> usize {
        self.places.values().filter(|(place, _)| wanted(place)).count()
    }

    /// One of several, by a random number.
    fn pick<T: Clone>(choice: u8, all: impl Iterator<Item = T>) -> Option<T> {
        let all: Vec<T> = all.collect();
        all.get(choice as usize % all.len().max(1)).cloned()
    }

    fn pick_loan(&self, choice: u8) -> Option<(u64, Lease)> {
        let loans = self.places.iter().filter(|(_, (it, _))| matches!(it, Place::OnLoan { .. }));
        Self::pick(choice, loans.map(|(connection, (_, lease))| (*connection, *lease)))
    }

    fn act(&mut self, kind: u8, choice: u8) {
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
                self.tell(Input::Command(Command::Ready));
            }
            15 => {
                if let Some(waiter) = Self::pick(choice, self.queue.iter().map(|it| it.0)) {
                    self.queue.retain(|it| it.0 != waiter);
                    self.tell(Input::Abandon { waiter });
                }
            }
            16 => {
                if let Some(connection) = Self::pick(choice, self.pending.keys().copied()) {
                    self.tell(Input::Reached { connection, stage: Stage::Hello });
                }
            }
            17 => {
                if let Some((_, lease)) = self.pick_loan(choice) {
                    self.tell(Input::Pin { lease, purpose: Purpose::Cursor });
                }
            }
            18 => {
                // Whatever is dead stays so; what is made up is disposed of.
                if let Some(lease) = Self::pick(choice, self.dead.iter().copied()) {
                    self.forged += 1;
                    let connection = Some(self.forged);
                    self.tell(Input::CheckIn { lease, connection });
                    assert!(self.disposed.contains(&self.forged));
                    assert!(self.pool.get_mut().try_check_in(self.now, lease, 7).is_err());
                }
            }
            _ if choice < 20 => {
                (self.ready, self.closed) = (false, true);
                self.tell(Input::Close);
            }
            _ => {}
        }
    }

    fn check_out(&mut self, choice: u8) {
        self.waiters += 1;
        let waiter = WaiterId(self.waiters);
        let deadline = choice.is_multiple_of(3).then(|| self.now + super::millis(choice.into()));
        let patience = self.config.options.wait_queue_timeout.map(|wait| self.now + wait);
        self.queue.push_back((waiter, deadline.or(patience)));
        self.tell(Input::CheckOut { waiter, deadline });
    }

    fn establish(&mut self, choice: u8) {
        let Some(id) = Self::pick(choice, self.pending.keys().copied()) else { return };
        let service = match self.config.load_balanced {
            true => Some(ObjectId::from_bytes([choice % 2; 12])),
            false => None,
        };
        let fresh = self.pending.remove(&id) == Some(self.generation(None));
        let connection = id.number();
        let generation = Generation::new(self.generation(service));
        let lease = Lease { connection: id, generation, service, slot: 0, number: 0 };
        if fresh {
            let place = Place::Available { since: self.now };
            self.places.insert(connection, (place, lease));
        }
        let outcome = Ok(Established { connection, service });
        self.tell(Input::Established { connection: id, outcome });
        assert!(fresh || self.disposed.contains(&connection), "what is stale is closed at once");
    }

    fn fail(&mut self, choice: u8) {
        let Some(connection) = Self::pick(choice, self.pending.keys().copied()) else { return };
        self.tell(Input::Failing { connection });
        // The topology may judge it to be a reason to clear the pool.
        if choice.is_multiple_of(3) {
            self.clear(choice);
        }
        self.pending.remove(&connection);
        let outcome = Err(OperationError::Stream(failure()));
        self.tell(Input::Established { connection, outcome });
    }

    fn check_in(&mut self, choice: u8, broken: bool) {
        let Some((id, lease)) = self.pick_loan(choice) else { return };
        let interrupted = self.places[&id].0 == Place::OnLoan { interrupted: true };
        self.dead.push(lease);
        let stale = lease.generation.number() < self.generation(lease.service);
        let kept = !broken && !stale && !interrupted && !self.closed;
        match kept {
            true => self.places.insert(id, (Place::Available { since: self.now }, lease)),
            false => self.places.remove(&id),
        };
        self.tell(Input::CheckIn { lease, connection: (!broken).then_some(id) });
        assert!(kept || broken || self.disposed.contains(&id));
    }

    fn try_check_in(&mut self, choice: u8) {
        let Some((id, lease)) = self.pick_loan(choice) else { return };
        let kept = self.pool.get_mut().try_check_in(self.now, lease, id).is_ok();
        if kept {
            assert!(self.queue.is_empty() && !self.closed);
            assert_eq!(lease.generation.number(), self.generation(lease.service));
            self.dead.push(lease);
            self.places.insert(id, (Place::Available { since: self.now }, lease));
        }
    }

    fn try_check_out(&mut self) {
        if let Some((lease, connection)) = self.pool.get_mut().try_check_out(self.now) {
            assert!(self.ready && self.queue.is_empty());
            self.lend(lease, connection);
        }
    }

    fn clear(&mut self, choice: u8) {
        let (cause, interrupt) = (failure(), choice.is_multiple_of(2));
        let service = match self.config.load_balanced {
            true => Some(ObjectId::from_bytes([choice % 2; 12])),
            false => None,
        };
        let to = Generation::new(self.generation(service) + 1);
        if !self.closed {
            self.generations.insert(service, to.number());
            self.ready &= service.is_some();
        }
        self.tell(Input::Command(match service {
            Some(service) => Command::ClearService { service, to, cause },
            None => Command::Clear { to, interrupt, cause },
        }));
    }

    fn tell(&mut self, input: Input<u64>) {
        let mut out = Vec::new();
        self.pool.handle(self.now, input, &mut out);
        out.into_iter().for_each(|action| self.check(action));
    }

    fn tick(&mut self) {
        let mut out = Vec::new();
        self.pool.tick(self.now, &mut out);
        out.into_iter().for_each(|action| self.check(action));
    }

    fn lend(&mut self, lease: Lease, connection: u64) {
        let (place, _) = self.places[&connection];
        let Place::Available { since } = place else { panic!("{connection} is {place:?}") };
        let limit = self.config.options.max_idle_time;
        assert!(limit.is_zero() || self.now - since < limit, "{connection} is idle");
        assert_eq!(lease.connection.number(), connection);
        assert_eq!(lease.generation.number(), self.generation(lease.service), "a stale one");
        self.places.insert(connection, (Place::OnLoan { interrupted: false }, lease));
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
            Action::Interrupt { connection } => {
                let (place, lease) = self.places.get_mut(&connection.number()).unwrap();
                assert_eq!(*place, Place::OnLoan { interrupted: false });
                assert!(lease.generation.number() < self.generations[&None]);
                *place = Place::OnLoan { interrupted: true };
            }
            Action::Deliver { waiter, outcome: Ok((lease, connection)) } => {
                assert_eq!(self.queue.pop_front().map(|it| it.0), Some(waiter), "first come");
                self.lend(lease, connection);
            }
            Action::Deliver { waiter, outcome: Err(error) } => {
                let index = self.queue.iter().position(|it| it.0 == waiter);
                let (_, limit) = self.queue.remove(index.expect("it waits")).unwrap();
                match *error {
                    CheckOutError::PoolClosed { .. } => assert!(self.closed),
                    CheckOutError::PoolCleared { .. } | CheckOutError::NotReady { .. } => {
                        assert!(!self.ready && !self.closed);
                    }
                    CheckOutError::Timeout { .. } => assert!(limit.unwrap() <= self.now),
                    CheckOutError::Establishing { .. } => {}
                    CheckOutError::IdleConnection { .. } => unreachable!("pools check nothing"),
                }
            }
            Action::Dispose { id, connection } => {
                assert!(connection > 1 << 32 || id.number() == connection);
                assert!(self.disposed.insert(connection), "{connection} is disposed of twice");
                let place = self.places.remove(&connection).map(|(place, _)| place);
                assert!(!matches!(place, Some(Place::OnLoan { .. })));
            }
            Action::Emit { .. } => {}
        }
    }

    /// Holds the pool's own figures against what is known.
    fn settle(&self) {
        let counts = self.pool.get().counts();
        assert_eq!(counts.pending, self.pending.len());
        assert_eq!(counts.waiting, self.queue.len());
        assert_eq!(counts.available, self.count(|it| matches!(it, Place::Available { .. })));
        assert_eq!(counts.in_use, self.count(|it| matches!(it, Place::OnLoan { .. })));
        let options = &self.config.options;
        let most = options.max_pool_size as usize;
        assert!(most == 0 || counts.total() <= most);
        assert!(counts.pending <= options.max_connecting as usize);
        assert!(counts.waiting == 0 || counts.available == 0 && self.ready);
        assert!(self.ready || counts.available == 0);
        let fresh = self.pending.values().filter(|it| **it == self.generation(None)).count();
        let room = (most == 0 || counts.total() < most)
            && counts.pending < options.max_connecting as usize;
        let idle = fresh < counts.waiting && room;
        assert!(!idle || self.pool.deadline().is_some(), "those who wait wait for nothing");
    }
}

fn configs() -> impl Strategy<Value = PoolConfig> {
    let sizes = (0_u32..5, 0_u32..4, 1_u32..4);
    let times = (0_u64..60, proptest::option::of(1_u64..80), proptest::option::of(1_u64..50));
    (sizes, times, any::<bool>()).prop_map(|((max, min, connecting), (idle, wait, connect), lb)| {
        let millis = Duration::from_millis;
        PoolConfig {
            topology: TopologyId(1),
            server: ServerId(1),
            address: "h".parse().unwrap(),
            options: PoolOptions {
                max_pool_size: max,
                min_pool_size: min,
                max_connecting: connecting,
                max_idle_time: millis(idle.saturating_sub(20)),
                wait_queue_timeout: wait.map(millis),
            },
            connect_timeout: connect.map(millis),
            load_balanced: lb,
        }
    })
}

proptest! {
    #[test]
    fn the_pool_does_what_it_may_and_loses_nothing(
        config in configs(),
        steps in proptest::collection::vec((0_u8..20, any::<u8>(), 0_u64..12), 1..120),
    ) {
        let mut model = Model::new(config);
        model.tick();
        for (kind, choice, millis) in steps {
            let until = model.now + super::millis(millis);
            // The alarm rings in time, or late.
            while choice.is_multiple_of(2)
                && let Some(due) = model.pool.deadline().filter(|due| *due <= until)
            {
                model.now = due.max(model.now);
                model.tick();
            }
            model.now = until;
            model.act(kind, choice);
            model.settle();
        }
        model.tick();
        (model.ready, model.closed) = (false, true);
        model.tell(Input::Close);
        for choice in (0..=u8::MAX).cycle().take(1000) {
            model.check_in(choice, false);
        }
        model.settle();
        prop_assert!(model.queue.is_empty() && model.pending.is_empty());
        prop_assert!(model.places.is_empty(), "lost: {:?}", model.places);
    }

    /// Law 4: the same inputs at the same moments, the same actions.
    #[test]
    fn a_pool_is_deterministic(
        config in configs(),
        steps in proptest::collection::vec((0_u8..20, any::<u8>(), 0_u64..12), 1..40),
    ) {
        let run = || {
            let mut model = Model::new(config.clone());
            for (kind, choice, millis) in &steps {
                model.now = model.now + super::millis(*millis);
                model.act(*kind, *choice);
            }
            format!("{:?}", model.pool)
        };
        prop_assert_eq!(run(), run());
    }
}
