//! Connections whose servers' certificates may be revoked, and responders that are late, lie or are
//! down.
//!
//! The clients' own code asks, in virtual time: [`sdam_host::vouch`], with the register of one
//! process. The ledger knows what responders have said, and judges each step.

mod authority;
mod clock;
mod ledger;
mod responder;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use sdam_core::config::ServerAddress;
use sdam_core::revocation::{Status, StatusCache as _};
use sdam_core::rustls::pki_types::UnixTime;
use sdam_host::{Inquiry, Statuses, vouch};

use self::authority::{Authority, CERTIFICATES, Signer, later};
use self::clock::{Clock, Wakes};
use self::ledger::{Ended, Ledger};
use self::responder::{Responder, answer};
use super::checks::{Finding, Violation};
use super::random::Random;
use super::run::{Case, Failure, Run, Statistics};

/// The time in which connections begin.
const SPAN: Duration = Duration::from_secs(600);

/// The time that responders have to answer, unless a connection has less.
const FULL: Duration = Duration::from_secs(5);

/// The wall clock at the beginning, in seconds.
const EPOCH: u64 = 1_800_000_000;

/// The state that connections share.
struct World {
    clock: Clock,
    ledger: Ledger,
    random: Random,
    responders: Vec<Vec<Responder>>,
    /// The time after which each certificate is revoked.
    revoked_at: Vec<Option<Duration>>,
    /// The inquiries that are to be made, with the certificates that they are about.
    begun: Vec<(usize, Inquiry)>,
}

type Shared = Arc<Mutex<World>>;

fn lock(world: &Shared) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns what the wall clock shows.
fn wall(now: Duration) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(EPOCH + now.as_secs()))
}

/// A connection that is drawn: it begins, and may be given up.
#[derive(Clone, Copy)]
struct Plan {
    begins: Duration,
    certificate: usize,
    limit: Duration,
    given_up: Option<Duration>,
    /// The age of the staple that comes with the certificate, if one does.
    staple: Option<Duration>,
}

impl Plan {
    fn draw(random: &mut Random, certificates: usize) -> Self {
        let begins = random.between(Duration::ZERO, SPAN);
        // Some begin together, as after a restart.
        let begins = match random.percent(60) {
            true => Duration::from_secs(begins.as_secs() / 40 * 40),
            false => begins,
        };
        let limit = match random.percent(80) {
            true => FULL,
            false => random.millis(50, 5000),
        };
        let given_up = random.percent(15).then(|| begins + random.millis(0, 6000));
        let staple = random.percent(10).then(|| random.millis(0, 250_000));
        Self { begins, certificate: random.index(certificates), limit, given_up, staple }
    }
}

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// One connection under way.
struct Connection {
    plan: Plan,
    task: Option<Task>,
}

/// One inquiry under way.
struct Inquiring {
    certificate: usize,
    number: u64,
    task: Option<Task>,
    /// The time at which what makes it comes to its end.
    abandoned: Option<Duration>,
    /// True if what makes it has come to a standstill.
    is_stuck: bool,
}

/// Simulates what a seed draws.
pub(super) fn simulate(case: &Case) -> Result<Run, Box<Failure>> {
    let mut simulation = Simulation::draw(&mut Random::new(case.seed));
    let outcome = catch_unwind(AssertUnwindSafe(|| simulation.run()));
    let violation = match outcome {
        Ok(Ok(())) => None,
        Ok(Err(violation)) => Some(violation),
        Err(panic) => Some(Violation::of_panic(&*panic)),
    };
    let mut world = lock(&simulation.world);
    let (at, steps) = (world.clock.now, simulation.steps);
    match violation {
        None => {
            let mut statistics = Statistics { steps, client_time: at, ..Statistics::default() };
            world.ledger.count(&mut statistics);
            Ok(Run { statistics, digest: world.ledger.digest })
        }
        Some(violation) => {
            let (case, trace) = (case.clone(), world.ledger.trace());
            Err(Box::new(Failure { case, at, steps, client: 0, violation, trace }))
        }
    }
}

struct Simulation {
    world: Shared,
    wakes: Arc<Wakes>,
    statuses: Arc<Statuses>,
    connections: Vec<Connection>,
    inquiries: Vec<Inquiring>,
    random: Random,
    steps: u64,
}

impl Simulation {
    fn draw(random: &mut Random) -> Self {
        let certificates = 1 + random.index(CERTIFICATES);
        let mut of_world = random.fork();
        let responders = (0..certificates).map(|it| Responder::draw_all(&mut of_world, it));
        let responders: Vec<_> = responders.collect();
        let revoked_at = (0..certificates).map(|_| {
            let at = of_world.between(Duration::ZERO, SPAN);
            of_world.percent(50).then_some(at)
        });
        let revoked_at: Vec<_> = revoked_at.collect();
        let count = 30 + random.index(120);
        let mut plans: Vec<_> = (0..count).map(|_| Plan::draw(random, certificates)).collect();
        plans.sort_by_key(|plan| plan.begins);
        let (clock, ledger) = (Clock::default(), Ledger::new(certificates));
        let begun = Vec::new();
        let world = World { clock, ledger, random: of_world, responders, revoked_at, begun };
        Self {
            world: Arc::new(Mutex::new(world)),
            wakes: Arc::default(),
            statuses: Arc::default(),
            inquiries: Vec::new(),
            connections: plans.into_iter().map(|plan| Connection { plan, task: None }).collect(),
            random: random.fork(),
            steps: 0,
        }
    }

    fn run(&mut self) -> Finding {
        let mut next = 0;
        loop {
            self.settle()?;
            // The earliest of a beginning, an end, and a timer.
            let begins = self.connections.get(next).map(|it| it.plan.begins);
            let given_up = self.connections[..next].iter().filter(|it| it.task.is_some());
            let given_up = given_up.filter_map(|it| it.plan.given_up).min();
            let abandoned = self.inquiries.iter().filter(|it| it.task.is_some());
            let abandoned = abandoned.filter_map(|it| it.abandoned).min();
            let timer = lock(&self.world).clock.next();
            let next_of_all = [begins, given_up, abandoned, timer].into_iter().flatten().min();
            let Some(now) = next_of_all else { break };
            let due = lock(&self.world).clock.advance(now);
            due.into_iter().for_each(Waker::wake);
            for id in 0..next {
                if self.connections[id].plan.given_up.is_some_and(|at| at <= now)
                    && let Some(task) = self.connections[id].task.take()
                {
                    drop(task);
                    self.after(|ledger| ledger.given_up(id, now))?;
                }
            }
            self.abandon(now)?;
            if begins == Some(now) {
                self.begin(next);
                next += 1;
            }
        }
        lock(&self.world).ledger.finish()
    }

    fn begin(&mut self, id: usize) {
        let plan = self.connections[id].plan;
        if let Some(age) = plan.staple {
            self.staple(plan.certificate, plan.begins.saturating_sub(age));
        }
        lock(&self.world).ledger.begin(id, plan.certificate, plan.limit, plan.begins);
        let (world, statuses) = (Arc::clone(&self.world), Arc::clone(&self.statuses));
        self.connections[id].task = Some(Box::pin(async move {
            let subject = Authority::shared().subject(plan.certificate);
            let clock = || wall(lock(&world).clock.now);
            let start = |inquiry: Inquiry| {
                let mut world = lock(&world);
                let now = world.clock.now;
                world.ledger.inquires(plan.certificate, inquiry.number(), now);
                world.begun.push((plan.certificate, inquiry));
            };
            let sleep = |time| clock::sleep(Arc::clone(&world), time);
            // Certificates are what is distinguished here.
            let server = ServerAddress::Tcp { host: "a.example".into(), port: 27017 };
            let of = (&server, subject);
            let ended = vouch(&statuses, of, plan.limit, clock, start, sleep).await;
            let ended = if ended.is_ok() { Ended::Goes } else { Ended::Refused };
            let mut world = lock(&world);
            let now = world.clock.now;
            world.ledger.end(id, ended, now);
        }));
        self.wakes.wake(id);
    }

    /// Begins the inquiries that are to be made.
    fn inquire(&mut self) {
        let begun = std::mem::take(&mut lock(&self.world).begun);
        for (certificate, inquiry) in begun {
            let (world, number) = (Arc::clone(&self.world), inquiry.number());
            let now = lock(&self.world).clock.now;
            let is_stuck = self.random.percent(3);
            let abandoned = self.random.percent(8).then(|| now + self.random.millis(0, 6000));
            let task: Task = Box::pin(async move {
                let clock = || wall(lock(&world).clock.now);
                let ask = |request| answer(Arc::clone(&world), number, request);
                let sleep = |time| clock::sleep(Arc::clone(&world), time);
                inquiry.run(clock, ask, sleep).await;
                let mut world = lock(&world);
                let now = world.clock.now;
                world.ledger.concludes(certificate, number, now);
            });
            self.wakes.wake(self.connections.len() + self.inquiries.len());
            let task = Some(task);
            self.inquiries.push(Inquiring { certificate, number, task, abandoned, is_stuck });
        }
    }

    /// Ends what makes inquiries, where its time has come.
    fn abandon(&mut self, now: Duration) -> Finding {
        for index in 0..self.inquiries.len() {
            let Inquiring { certificate, number, abandoned, .. } = self.inquiries[index];
            if abandoned.is_some_and(|at| at <= now)
                && let Some(task) = self.inquiries[index].task.take()
            {
                self.after(|ledger| ledger.abandoned(certificate, number, now))?;
                drop(task);
            }
        }
        Ok(())
    }

    /// A server staples a response of that time, which is valid for five minutes.
    fn staple(&self, certificate: usize, signed: Duration) {
        let (authority, mut world) = (Authority::shared(), lock(&self.world));
        let now = world.clock.now;
        let is_revoked = world.revoked_at[certificate].is_some_and(|at| at <= signed);
        let revoked = Status::Revoked { at: String::new(), reason: None };
        let status = if is_revoked { revoked } else { Status::Good };
        let until = later(wall(signed), Duration::from_secs(300));
        let validity = (wall(signed), Some(until));
        let staple = authority.sign(certificate, status.clone(), validity, Signer::Authority);
        let subject = authority.subject(certificate);
        let verdict = subject.judge(&staple, wall(now)).expect("it is valid");
        let says = (status, wall(signed).as_secs(), until.as_secs());
        world.ledger.stapled(certificate, says, now);
        drop(world);
        self.statuses.learn(&subject.id(), verdict, wall(now));
    }

    /// Polls, in an order that is drawn, all that is ready.
    fn settle(&mut self) -> Finding {
        loop {
            let mut ready = self.wakes.take();
            if ready.is_empty() {
                let now = lock(&self.world).clock.now;
                return self.after(|ledger| ledger.settled(now));
            }
            let id = ready.swap_remove(self.random.index(ready.len()));
            ready.into_iter().for_each(|other| self.wakes.wake(other));
            self.steps += 1;
            let slot = match id.checked_sub(self.connections.len()) {
                None => &mut self.connections[id].task,
                Some(index) if self.inquiries[index].is_stuck => continue,
                Some(index) => &mut self.inquiries[index].task,
            };
            let Some(task) = slot else { continue };
            let waker = self.wakes.waker(id);
            if let Poll::Ready(()) = task.as_mut().poll(&mut Context::from_waker(&waker)) {
                *slot = None;
            }
            self.inquire();
            self.after(|_| ())?;
        }
    }

    /// Has the ledger note something, and returns what it has found so far.
    fn after(&self, note: impl FnOnce(&mut Ledger)) -> Finding {
        let mut world = lock(&self.world);
        note(&mut world.ledger);
        world.ledger.finding()
    }
}
