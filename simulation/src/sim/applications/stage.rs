//! The course of a simulation of applications.

mod changes;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use sdam_core::config::{Options, ServerAddress};
use sdam_core::description::ServerType;
use sdam_core::time::Instant;
use sdam_host::Host;

use self::changes::Streams;
use super::checks::{Checks, Retries};
use super::fail_point::FailPoint;
use super::ledger::Ledger;
use super::plan::Plan;
use super::work::{ACCOUNTS, Application, DATABASE, ENTRIES, LISTS, Workload, find_all, key_of};
use crate::histories::Outcome;
use crate::sim::checks::Violation;
use crate::sim::fault::{Fault, FaultKind};
use crate::sim::random::Random;
use crate::sim::run::{Case, Failure, Part, Run, Statistics};
use crate::sim::shrink::Outline;
use crate::sim::trace::Observed;
use crate::virtual_time::{Runtime, Simulation, Topology};
use sdam_cluster::{Input, MemberId, MemberState};

/// The longest that operations take once all faults have ended.
const LAST_OPERATIONS: Duration = Duration::from_secs(240);

/// The same of transactions: a task has three of them, each of which is run again for two minutes,
/// and once more then, with pauses of 70 s in each.
const LAST_TRANSACTIONS: Duration = Duration::from_secs(1_800);

/// The time after which members are overloaded once more, while their commands fail in two ways.
const AGAIN: Duration = Duration::from_millis(500);

/// The time in which a client finds all servers again, at the latest, once all faults have ended.
const SETTLING: Duration = Duration::from_secs(45);

/// The longest that a client takes to be closed.
const CLOSING: Duration = Duration::from_secs(5);

/// Returns the faults and clients that a case draws, as far as they can be left out.
pub(in crate::sim) fn outline(case: &Case) -> Outline {
    let plan = Plan::draw(case.part, &mut Random::new(case.seed), &case.reduction);
    Outline { clients: plan.clients.len(), faults: plan.faults, calm: plan.calm }
}

/// Simulates a case; it need not go on when something has happened later than that.
pub(in crate::sim) fn simulate(
    case: &Case,
    observed: Observed,
    latest: Duration,
) -> Result<Run, Box<Failure>> {
    let mut random = Random::new(case.seed);
    let plan = Plan::draw(case.part, &mut random, &case.reduction);
    let mut stage = Stage::new(plan, random, observed);
    let outcome = catch_unwind(AssertUnwindSafe(|| stage.run(Instant::ZERO + latest)));
    let (client, violation) = match outcome {
        Ok(Ok(())) => return Ok(stage.summary()),
        Ok(Err(found)) => found,
        Err(panic) => (0, Violation::of_panic(&*panic)),
    };
    let (at, steps) = (stage.simulation.time().elapsed(), stage.statistics.steps);
    let trace = stage.ledger.lock().take_lines();
    let client = stage.clients.iter().position(|it| it.number == client).unwrap_or_default();
    Err(Box::new(Failure { case: case.clone(), at, steps, client, violation, trace }))
}

/// A client on the stage.
struct Known {
    /// Its number on the network.
    number: usize,
    client: Topology,
}

struct Stage {
    simulation: Simulation,
    ledger: Arc<Ledger>,
    plan: Plan,
    clients: Vec<Known>,
    /// The monitors that clients share, until the first one has them.
    monitors: Option<Arc<Host<Runtime>>>,
    /// The numbers of all on the network: those of clients, and that of the monitors.
    numbers: Vec<usize>,
    /// The ways in which commands fail, by the faults that are under way.
    fail_points: BTreeMap<usize, FailPoint>,
    statistics: Statistics,
    random: Random,
    streams: Streams,
}

type Found = Result<(), (usize, Violation)>;

impl Stage {
    fn new(plan: Plan, mut random: Random, observed: Observed) -> Self {
        let simulation = Simulation::of(plan.cluster.clone(), random.bits());
        let simulation = simulation.expect("a deployment that makes sense").without_log();
        let addresses: Vec<ServerAddress> =
            plan.cluster.members.iter().map(|it| it.address.clone()).collect();
        let retries = Retries::new(plan.max_adaptive_retries, plan.is_sharded(), plan.retargets);
        let first = simulation.next_client() + usize::from(plan.shares_monitors);
        let observed = match observed {
            Observed::Steps(client) => Some(first + client),
            _ => None,
        };
        let ledger = Ledger::new(Checks::new(plan.is_sharded(), retries), addresses, observed);
        if !plan.is_undisturbed() {
            ledger.lock().questions.are_disturbed();
        }
        let mut stage = Self {
            simulation,
            ledger,
            plan,
            clients: Vec::new(),
            monitors: None,
            numbers: Vec::new(),
            fail_points: BTreeMap::new(),
            statistics: Statistics::default(),
            random,
            streams: Streams::default(),
        };
        stage.begin();
        stage
    }

    /// Makes all clients, and the tasks that use them.
    fn begin(&mut self) {
        self.simulation.set_tap(Arc::clone(&self.ledger) as _);
        if self.plan.shares_monitors {
            self.numbers.push(self.simulation.next_client());
            let monitors = self.simulation.monitors(self.options(""));
            self.monitors = Some(monitors.expect("monitors"));
        }
        for (index, plan) in self.plan.clients.clone().into_iter().enumerate() {
            let (number, options) = (self.simulation.next_client(), self.options(&plan.options));
            let client = match &self.monitors {
                Some(monitors) => self.simulation.sharing_topology(monitors, options),
                None => self.simulation.topology(options).map_err(Into::into),
            };
            let client = client.expect("a client");
            self.numbers.push(number);
            self.ledger.lock().join(number, client.clone());
            if self.plan.part != Part::Applications {
                // A task of the client may have to abort what an application has left.
                self.ledger.lock().operations.session(number);
            }
            let mut random = self.random.fork();
            if matches!(self.plan.part, Part::Changes | Part::Files) {
                self.watches(index, (number, client.clone()), random);
            } else if self.plan.reduction.has_client(index) {
                let version = self.plan.cluster.version;
                let workload = Workload { from: self.plan.work.0, to: self.plan.work.1, version };
                for _ in 0..plan.tasks {
                    let application = Application::new(
                        (number, client.clone()),
                        (self.simulation.time(), Arc::clone(&self.ledger)),
                        (workload, plan.interval),
                        random.fork(),
                    );
                    self.ledger.lock().task_begins();
                    match self.plan.part == Part::Transactions {
                        true => self.simulation.spawn(application.transact()),
                        false => self.simulation.spawn(application.work()),
                    }
                }
            }
            self.clients.push(Known { number, client });
        }
        self.monitors = None;
        self.begin_streams();
    }

    fn options(&self, own: &str) -> Options {
        let uri = self.simulation.uri();
        let separator = if uri.contains('?') { '&' } else { '?' };
        let all = format!("{uri}{separator}{}&{own}", self.plan.options);
        let all = all.trim_end_matches('&').replace("/&", "/?");
        Options::parse(&all).unwrap_or_else(|error| panic!("{all}: {error}"))
    }

    fn now(&self) -> Instant {
        Instant::ZERO + self.simulation.time().elapsed()
    }

    /// Lets all of it happen.
    fn run(&mut self, latest: Instant) -> Found {
        for (at, edge) in self.edges() {
            self.pass(at.min(latest), |_| false)?;
            if self.now() >= latest && at > latest {
                return Ok(());
            }
            match edge {
                Edge::Begins(fault) => self.begin_fault(fault),
                Edge::Again(fault) => self.fail_again(fault),
                Edge::Ends(fault) => self.end_fault(fault),
            }
        }
        let calm = self.plan.calm;
        let last = match self.plan.part {
            Part::Transactions => LAST_TRANSACTIONS,
            Part::Files => changes::LAST_UPLOADS,
            _ => LAST_OPERATIONS,
        };
        let limit = (calm + last).min(latest);
        self.pass(calm.min(latest), |_| false)?;
        if self.plan.part == Part::Changes {
            return self.end_streams(latest);
        }
        self.pass(limit, |it| it.ledger.lock().tasks() == 0)?;
        if self.now() >= latest {
            return Ok(());
        }
        if self.plan.part == Part::Files {
            return self.end_files(latest);
        }
        self.have_ended("operations end", self.clients[0].number)?;
        if !self.plan.is_undisturbed() {
            let settled = (self.now() + SETTLING).min(latest);
            self.pass(settled, |_| false)?;
        }
        if self.plan.idles && self.plan.part == Part::Applications {
            self.idle()?;
        }
        if self.plan.part == Part::Transactions {
            self.judge_history()?;
        }
        self.close()
    }

    /// Returns when faults begin and end, in order.
    fn edges(&self) -> Vec<(Instant, Edge)> {
        let faults = self.plan.faults.iter().enumerate();
        let left = faults.filter(|(index, _)| self.plan.reduction.has_fault(*index));
        let mut edges: Vec<_> = left
            .flat_map(|(index, fault)| {
                let fails = fault.kind == FaultKind::FailPoint;
                let mut at = fault.begins;
                let again = std::iter::from_fn(move || {
                    at = at + AGAIN;
                    (fails && at < fault.ends).then_some((at, Edge::Again(index)))
                });
                let ends = [(fault.begins, Edge::Begins(index)), (fault.ends, Edge::Ends(index))];
                ends.into_iter().chain(again)
            })
            .collect();
        edges.sort_by_key(|(at, _)| *at);
        edges
    }

    /// Lets everything happen that is due by then, unless it is over before.
    fn pass(&mut self, until: Instant, is_over: impl Fn(&Self) -> bool) -> Found {
        while !is_over(self) && self.simulation.step(until - self.now()) {
            self.statistics.steps += 1;
            self.judge()?;
            self.look_at_log(false)?;
        }
        self.look_at_log(true)
    }

    fn judge(&mut self) -> Found {
        let now = self.now();
        let (found, overloaded) = {
            let mut ledger = self.ledger.lock();
            ledger.look(now);
            (ledger.take_violation(), ledger.take_overloaded())
        };
        for member in overloaded {
            let mut points = self.fail_points.iter();
            let then = points.find_map(|(fault, point)| {
                let is_hit = self.plan.faults[*fault].members.contains(&member);
                point.then().filter(|_| is_hit)
            });
            if let Some(then) = then {
                self.simulation.command(MemberId(member), "admin", &then);
            }
        }
        found.map_or(Ok(()), Err)
    }

    fn have_ended(&self, check: &'static str, client: usize) -> Found {
        let left = self.ledger.lock().tasks();
        match left {
            0 => Ok(()),
            _ => Err((client, Violation::new(check, format!("{left} tasks have not ended")))),
        }
    }

    /// Each application reads three times, with pauses in which a session would be forgotten that
    /// nothing had used before.
    fn idle(&mut self) -> Found {
        for index in 0..self.clients.len() {
            if self.plan.reduction.has_client(index) {
                let Known { number, client } = &self.clients[index];
                let version = self.plan.cluster.version;
                let workload = Workload { from: Instant::ZERO, to: Instant::ZERO, version };
                let application = Application::new(
                    (*number, client.clone()),
                    (self.simulation.time(), Arc::clone(&self.ledger)),
                    (workload, Duration::ZERO),
                    self.random.fork(),
                );
                self.ledger.lock().task_begins();
                self.simulation.spawn(application.idle());
            }
        }
        let limit = self.now() + Duration::from_secs(3 * 3_600);
        self.pass(limit, |it| it.ledger.lock().tasks() == 0)?;
        self.have_ended("operations end", self.clients[0].number)
    }

    /// Has a client that is new ask for all outcomes that were unknown.
    fn ask_again(&mut self) -> Found {
        let (number, application) = self.newcomer();
        self.ledger.lock().task_begins();
        self.simulation.spawn(application.ask_for_all());
        let limit = self.now() + LAST_OPERATIONS;
        self.pass(limit, |it| it.ledger.lock().tasks() == 0)?;
        self.have_ended("operations end", number)
    }

    /// Makes an application of a client that is new, with the number of that.
    fn newcomer(&mut self) -> (usize, Application) {
        let (number, options) = (self.simulation.next_client(), self.options(""));
        let client = self.simulation.topology(options).expect("a client");
        self.ledger.lock().join(number, client.clone());
        self.clients.push(Known { number, client: client.clone() });
        let workload =
            Workload { from: Instant::ZERO, to: Instant::ZERO, version: self.plan.cluster.version };
        let application = Application::new(
            (number, client),
            (self.simulation.time(), Arc::clone(&self.ledger)),
            (workload, Duration::ZERO),
            self.random.fork(),
        );
        (number, application)
    }

    /// Judges what transactions have done, beside what there is at the end.
    fn judge_history(&mut self) -> Found {
        // Whatever was still under way has come to its end by then.
        let until = self.now() + SETTLING;
        self.pass(until, |_| false)?;
        self.ask_again()?;
        let first = self.clients[0].number;
        let state = self.simulation.cluster_state();
        let takes_writes =
            |it: &MemberState| matches!(it.server_type, ServerType::RsPrimary | ServerType::Mongos);
        let member = state.members.iter().find(|(_, it)| takes_writes(it));
        let mut read = |collection| {
            let reply = member
                .and_then(|(member, _)| {
                    let find = find_all(collection);
                    self.simulation.command(*member, DATABASE, &find)
                })
                .filter(|reply| reply.get_f64("ok").is_ok_and(|ok| ok == 1.0));
            let found = reply.as_ref().and_then(|it| it.get_document("cursor").ok());
            let found = found.and_then(|it| it.get_array("firstBatch").ok())?;
            let documents = found.into_iter().filter_map(|it| it.ok()?.as_document());
            Some(documents.map(key_of).collect::<Vec<_>>())
        };
        let (Some(mut lists), Some(entries), Some(accounts)) =
            (read(LISTS), read(ENTRIES), read(ACCOUNTS))
        else {
            let detail = format!("no member of {state:?} shows it");
            return Err((first, Violation::new("the end can be read", detail)));
        };
        lists.extend(entries);
        let sum: i64 = accounts.iter().flat_map(|(_, balance)| balance).sum();
        let mut ledger = self.ledger.lock();
        if sum != 0 {
            ledger.fail(first, "the sum of all accounts never changes", format!("it is {sum}"));
        }
        ledger.history.finish(lists);
        let judged = ledger.history.check();
        if let Err(anomaly) = judged {
            ledger.fail(first, "transactions are isolated, whole and last", anomaly.to_string());
        }
        drop(ledger);
        self.judge()
    }

    /// Closes all clients.
    fn close(&mut self) -> Found {
        for index in 0..self.clients.len() {
            let Known { number, client } = &self.clients[index];
            let (number, client, ledger) = (*number, client.clone(), Arc::clone(&self.ledger));
            self.ledger.lock().task_begins();
            self.simulation.spawn(async move {
                client.close().await;
                ledger.lock().task_ends();
            });
            let limit = self.now() + CLOSING;
            self.pass(limit, |it| it.ledger.lock().tasks() == 0)?;
            self.have_ended("clients are closed in time", number)?;
            let (now, undisturbed) = (self.now(), self.plan.is_undisturbed());
            let is_kept_waiting = self.plan.keeps_waiting(index);
            let mut ledger = self.ledger.lock();
            let sessions = ledger.checks.sessions.closed(number, now);
            ledger.judge(number, sessions);
            if undisturbed && !is_kept_waiting {
                let cursors = ledger.checks.cursors.closed(number);
                ledger.judge(number, cursors);
            }
            if undisturbed {
                let transactions = ledger.checks.transactions.closed(number);
                ledger.judge(number, transactions);
            }
            drop(ledger);
            self.judge()?;
        }
        Ok(())
    }

    fn summary(&mut self) -> Run {
        let elapsed = self.simulation.time().elapsed();
        let busy = elapsed.min(self.plan.calm.since_origin());
        let clients = u32::try_from(self.clients.len()).unwrap_or(u32::MAX);
        self.statistics.client_time = busy * clients;
        let ledger = self.ledger.lock();
        self.statistics.begun = ledger.operations.begun;
        self.statistics.operations = ledger.operations.succeeded;
        self.statistics.documents = match self.plan.part {
            Part::Changes => ledger.stories.handed_out,
            Part::Files => ledger.checks.files.count(),
            _ => ledger.history.count(Outcome::Committed) as u64,
        };
        Run { statistics: self.statistics.clone(), digest: ledger.digest() }
    }
}

/// The time at which something begins or ends.
#[derive(Clone, Copy, Debug)]
enum Edge {
    Begins(usize),
    /// Commands fail in the first of two ways again.
    Again(usize),
    Ends(usize),
}

impl Stage {
    fn begin_fault(&mut self, index: usize) {
        let fault = self.plan.faults[index].clone();
        *self.statistics.faults.entry(fault.kind).or_default() += 1;
        if fault.kind == FaultKind::FailPoint {
            let mut random = Random::new(fault.bits);
            let point = FailPoint::draw(self.plan.part, &mut random);
            self.fail_points.insert(index, point);
        }
        if fault.kind == FaultKind::StepDown {
            self.simulation.step_down();
            return;
        }
        for member in fault.members.iter().copied().map(MemberId) {
            match fault.kind {
                FaultKind::FailPoint => self.set_fail_point(index, member),
                FaultKind::Kill => self.simulation.inject(Input::Kill { member }),
                FaultKind::Shutdown => self.simulation.inject(Input::Shutdown { member }),
                FaultKind::FrozenMember => self.simulation.inject(Input::Freeze { member }),
                FaultKind::Cut => {
                    let member = self.who_is_cut(&fault, member);
                    self.simulation.inject(Input::Cut { member });
                }
                FaultKind::Reset => self.each(&fault, |network, number| {
                    network.reset(number, member.0);
                }),
                kind => self.each(&fault, |network, number| {
                    let troubles = kind.troubles().iter();
                    troubles.for_each(|trouble| network.begin(number, member.0, *trouble));
                }),
            }
        }
    }

    fn end_fault(&mut self, index: usize) {
        let fault = self.plan.faults[index].clone();
        self.fail_points.remove(&index);
        for member in fault.members.iter().copied().map(MemberId) {
            match fault.kind {
                FaultKind::FailPoint => {
                    self.simulation.command(member, "admin", &FailPoint::off());
                }
                FaultKind::Kill | FaultKind::Shutdown => {
                    // One that is about to end does so first.
                    self.simulation.inject(Input::Kill { member });
                    self.simulation.inject(Input::Start { member });
                }
                FaultKind::FrozenMember => {
                    self.simulation.inject(Input::Thaw { member });
                    // It has not heard that its commands fail no more.
                    let faults = &self.plan.faults;
                    let mut failing = self.fail_points.keys().flat_map(|it| &faults[*it].members);
                    if failing.all(|it| *it != member.0) {
                        self.simulation.command(member, "admin", &FailPoint::off());
                    }
                }
                FaultKind::Cut => self.heal(member),
                FaultKind::Reset | FaultKind::StepDown => {}
                kind => self.each(&fault, |network, number| {
                    let troubles = kind.troubles().iter();
                    troubles.for_each(|trouble| network.end(number, member.0, *trouble));
                }),
            }
        }
    }

    fn fail_again(&mut self, fault: usize) {
        if self.fail_points.get(&fault).is_some_and(|point| point.then().is_some()) {
            for member in self.plan.faults[fault].members.clone() {
                self.set_fail_point(fault, MemberId(member));
            }
        }
    }

    fn set_fail_point(&mut self, fault: usize, member: MemberId) {
        if let Some(point) = self.fail_points.get(&fault)
            && self.simulation.is_running(member)
        {
            let on = point.on();
            self.simulation.command(member, "admin", &on);
        }
    }

    /// Does something to the paths of the clients that a fault hits, and of shared monitors.
    fn each(&mut self, fault: &Fault, act: impl Fn(&mut crate::sim::network::Network, usize)) {
        let shared = usize::from(self.plan.shares_monitors);
        for (index, number) in self.numbers.clone().into_iter().enumerate() {
            let is_hit = match index.checked_sub(shared) {
                Some(client) => fault.clients.contains(&client),
                None => true,
            };
            if is_hit {
                act(self.simulation.network(), number);
            }
        }
    }
}
