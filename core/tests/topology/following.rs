//! Clients that share the monitors of another one: they receive what its topology does.

use std::time::Duration;

use sdam_core::config::Options;
use sdam_core::diagnosis::Verdict;
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::id::{Generation, ServerId, WaiterId};
use sdam_core::operation::{CommandError, OperationError, OperationFailure};
use sdam_core::pool::Command;
use sdam_core::selection::Criteria;
use sdam_core::topology::{Action, Follower, Input};

use super::fixture::{Fixture, fresh, primary, secondary};

const URI: &str = "mongodb://a,b/?replicaSet=rs";
const HOSTS: [&str; 2] = ["a", "b"];

/// A topology with monitors, and one that shares them.
struct Pair {
    leader: Fixture,
    follower: Follower,
    done: Vec<Action>,
}

impl Pair {
    /// A set whose primary is `a`, of which the follower knows nothing yet.
    fn new() -> Self {
        let mut leader = Fixture::new(URI);
        leader.greet("a.0", &fresh(primary("a", &HOSTS, 1), 1));
        leader.greet("b.0", &fresh(secondary("b", &HOSTS), 1));
        let follower = Follower::new(&Options::parse(URI).unwrap(), 2);
        leader.topology.take_actions();
        Self { leader, follower, done: Vec::new() }
    }

    /// As [`new`](Self::new), and the follower has begun.
    fn begun() -> Self {
        let mut pair = Self::new();
        pair.open();
        pair.done.clear();
        pair
    }

    fn open(&mut self) {
        let now = self.leader.topology.now();
        self.follower.open(self.leader.topology.machine.get(), now, &mut self.done);
    }

    /// Hands on what the leader has done.
    fn follow(&mut self) -> &mut Self {
        for action in self.leader.topology.take_actions() {
            self.follower.follow(&action, &mut self.done);
        }
        self
    }

    /// Hands an input of the follower's to the leader, as far as it concerns that.
    fn input(&mut self, input: Input<'_>) -> &mut Self {
        let now = self.leader.topology.now();
        let machine = self.leader.topology.machine.get();
        let told = self.follower.translate(machine, now, input, &mut self.done);
        if let Some(input) = told {
            self.leader.input(input);
        }
        self.follow()
    }

    fn server(&self, host: &str) -> ServerId {
        self.leader.server(host).id
    }

    /// Returns the commands to the pool of `a`, and forgets what was done.
    fn commands(&mut self) -> Vec<Command> {
        let a = self.server("a");
        let commands = self.done.drain(..).filter_map(|action| match action {
            Action::Pool { server, command } => (server == a).then_some(command),
            _ => None,
        });
        commands.collect()
    }

    /// Returns the names of events, and forgets what was done.
    fn events(&mut self) -> Vec<&'static str> {
        let id = self.follower.id();
        let events = self.done.drain(..).filter_map(|action| match action {
            Action::Emit { event } => {
                assert_eq!(event.topology, id, "events have its own name");
                Some(event.kind.name())
            }
            _ => None,
        });
        events.collect()
    }

    fn wait(&mut self, waiter: u64) -> &mut Self {
        let criteria = Criteria::write();
        self.input(Input::Wait {
            waiter: WaiterId(waiter),
            criteria: criteria.into(),
            deadline: None,
        })
    }

    /// Reports a failure at `a` over a connection of this generation of the follower's pool.
    fn fail(&mut self, generation: u32, error: OperationError) -> &mut Self {
        let server = self.server("a");
        let failure = OperationFailure::new(Generation::new(generation), 17, error);
        self.input(Input::OperationFailed { server, failure })
    }

    /// Has the primary answer its next check.
    fn recover(&mut self) {
        let later = self.leader.topology.now() + Duration::from_secs(10);
        self.leader.at(later.since_origin().as_millis().try_into().unwrap());
        let leader = &self.leader;
        let opening = |link: &String| link.starts_with('a') && leader.is_opening(link);
        let link = leader.links().into_iter().find(opening).unwrap();
        self.leader.greet(&link, &fresh(primary("a", &HOSTS, 1), 2));
        self.follow();
    }
}

fn broken() -> OperationError {
    OperationError::Stream(Failure::new(Stage::Operate, Cause::Closed, "gone"))
}

/// The reply of a server that refuses a login, or gives another code there.
fn refused(code: i32) -> OperationError {
    let reply = bson::rawdoc! { "ok": 0, "code": code, "errmsg": "no" };
    let error = CommandError::in_reply(&reply).unwrap();
    OperationError::Reply { stage: Stage::Authenticate, error }
}

#[test]
fn it_begins_with_what_is_known_and_in_the_order_of_events() {
    let mut pair = Pair::new();
    pair.open();
    let kinds: Vec<_> = pair
        .done
        .iter()
        .map(|action| match action {
            Action::Join { .. } => "join",
            Action::Pool { command: Command::Ready, .. } => "ready",
            Action::Publish { .. } => "publish",
            Action::Emit { event } => event.kind.name(),
            _ => "other",
        })
        .collect();
    let expected = [
        "topologyOpening",
        "join",
        "ready",
        "join",
        "ready",
        "publish",
        "topologyDescriptionChanged",
        "serverOpening",
        "serverOpening",
    ];
    assert_eq!(kinds, expected);
    assert!(pair.follower.snapshot().description().same_as(&pair.leader.view()));
    pair.done.clear();
    pair.open();
    assert!(pair.done.is_empty(), "it begins once");
}

#[test]
fn it_begins_with_the_leader() {
    let options = Options::parse(URI).unwrap();
    let mut leader = sdam_core::topology::Topology::new(std::sync::Arc::new(options.clone()), 1);
    let (mut follower, mut done) = (Follower::new(&options, 2), Vec::new());
    follower.open(&leader, sdam_core::time::Instant::ZERO, &mut done);
    assert_eq!(done.len(), 1, "{done:?}");
    let mut actions = Vec::new();
    sdam_core::machine::Machine::tick(&mut leader, sdam_core::time::Time::ZERO, &mut actions);
    actions.iter().for_each(|action| follower.follow(action, &mut done));
    let of = |name| {
        let emitted = done.iter().filter_map(|action| match action {
            Action::Emit { event } => Some(event.kind.name()),
            _ => None,
        });
        emitted.filter(|kind| *kind == name).count()
    };
    assert_eq!(of("topologyOpening"), 1);
    assert_eq!(of("serverOpening"), 2);
    let joined = done.iter().filter(|action| matches!(action, Action::Join { .. })).count();
    assert_eq!(joined, 2);
}

#[test]
fn generations_are_those_of_its_own_pools() {
    let mut pair = Pair::begun();
    pair.fail(0, broken());
    pair.recover();
    // One that has joined after a clear begins in generation 0 nevertheless.
    let mut late = Pair::begun();
    std::mem::swap(&mut late.leader, &mut pair.leader);
    late.follower = Follower::new(&Options::parse(URI).unwrap(), 3);
    late.open();
    late.commands();
    late.fail(0, broken());
    let commands = late.commands();
    assert!(
        matches!(&commands[..], [Command::Clear { to, .. }] if *to == Generation::new(1)),
        "{commands:?}"
    );
    // What was in use when the pool was cleared says nothing new.
    late.recover();
    assert_eq!(late.commands(), [Command::Ready]);
    late.fail(0, broken());
    assert_eq!(late.commands(), []);
}

#[test]
fn a_login_that_is_refused_is_nobody_elses_affair() {
    let mut pair = Pair::begun();
    pair.fail(0, refused(18));
    assert_eq!(pair.commands(), []);
    // Nor is one that fails on this side: a provider without a token, a time-out of one client.
    for stage in [Stage::Credentials, Stage::Authenticate] {
        for cause in [Cause::Configuration, Cause::Timeout, Cause::Io] {
            let failure = Failure::new(stage, cause, "no token");
            pair.fail(0, OperationError::Stream(failure));
            assert_eq!(pair.commands(), []);
        }
    }
    // That the server shuts down is.
    pair.fail(0, refused(91));
    assert!(!pair.commands().is_empty());
}

#[test]
fn it_ends_alone_and_tells_those_who_wait() {
    let mut pair = Pair::begun();
    let servers = [pair.server("a"), pair.server("b")];
    pair.leader.closed("a.0");
    pair.follow().wait(7);
    pair.done.clear();
    let now = pair.leader.topology.now();
    let machine = pair.leader.topology.machine.get();
    let waiters = pair.follower.shut_down(machine, now, &mut pair.done);
    assert_eq!(waiters, [WaiterId(7)]);
    let woken = pair.done.iter().find_map(|action| match action {
        Action::Wake { waiter: WaiterId(7), outcome: Err(error) } => Some(error.verdict.clone()),
        _ => None,
    });
    assert_eq!(woken, Some(Verdict::Closed));
    let left = |server: &ServerId| {
        pair.done.iter().any(|it| matches!(it, Action::Leave { server: left } if left == server))
    };
    assert!(servers.iter().all(left));
    assert!(pair.follower.snapshot().description().servers().is_empty());
    let expected = ["serverClosed", "serverClosed", "topologyDescriptionChanged", "topologyClosed"];
    assert_eq!(pair.events(), expected);
    // Nothing follows, and an operation that comes too late fails.
    pair.leader.closed("b.0");
    pair.follow();
    assert_eq!(pair.events(), [""; 0]);
    pair.wait(8);
    let [Action::Wake { waiter: WaiterId(8), outcome: Err(error) }] = &pair.done[..] else {
        panic!("{:?}", pair.done);
    };
    assert!(error.to_string().starts_with("the client was closed; create another"), "{error}");
}

#[test]
fn it_ends_with_the_leader() {
    let mut pair = Pair::begun();
    pair.leader.input(Input::Shutdown);
    pair.follow();
    assert_eq!(pair.events().last(), Some(&"topologyClosed"));
    pair.open();
    assert_eq!(pair.events(), [""; 0], "it has ended once");
    // One that begins afterwards ends at once.
    pair.follower = Follower::new(&Options::parse(URI).unwrap(), 3);
    pair.open();
    assert_eq!(
        pair.events(),
        [
            "topologyOpening",
            "topologyDescriptionChanged",
            "topologyDescriptionChanged",
            "topologyClosed"
        ]
    );
}

#[test]
fn monitors_are_shared_by_those_who_would_have_the_same() {
    let options = |rest: &str| Options::parse(&format!("mongodb://{rest}")).unwrap();
    let one = options("ann:x@a,b/?replicaSet=rs");
    let like = |rest: &str| one.can_share_monitors(&options(rest));
    assert!(like("a,b/?replicaSet=rs"));
    assert!(like("bob:y@b,a/?replicaSet=rs&maxPoolSize=3&w=2&timeoutMS=5&compressors=zlib"));
    for other in [
        "a,c/?replicaSet=rs",
        "a/?replicaSet=rs",
        "a,b/?replicaSet=other",
        "a,b/?replicaSet=rs&tls=true",
        "a,b/?replicaSet=rs&heartbeatFrequencyMS=9999",
        "a,b/?replicaSet=rs&serverMonitoringMode=poll",
        "a,b/?replicaSet=rs&connectTimeoutMS=9999",
        "a,b/?replicaSet=rs&localThresholdMS=1",
        "a,b/?replicaSet=rs&appName=other",
        "a,b/?replicaSet=rs&proxyHost=p",
    ] {
        assert!(!like(other), "{other}");
    }
    // However long a cache of DNS keeps the records.
    let later = one.clone().with_rescan_interval(Duration::from_secs(90));
    assert!(one.can_share_monitors(&later));
    // Where nothing is monitored, nothing is shared.
    let balanced = options("a/?loadBalanced=true");
    assert!(!balanced.can_share_monitors(&balanced));
}
