//! Clients to which something is done that must not be, or that do it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use sdam_core::bson::rawdoc;
use sdam_core::config::{ReadMode, ReadPreference, TagSet};
use sdam_core::description::ServerType;
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::id::{LinkId, ServerId, WaiterId};
use sdam_core::operation::{CommandError, OperationError, OperationFailure, StateChange};
use sdam_core::pool::{self, Pool, PoolConfig, PoolEvent};
use sdam_core::selection::Criteria;
use sdam_core::topology::{Action, Input};
use sdam_host::{Outcome, PoolStep, TopologyStep};

use super::ledger::Pending;
use super::operation::Phase;
use super::reports::is_to_blame;
use super::*;
use crate::sim::bounds::Bounds;
use crate::sim::checks::most_wake_ups;
use crate::sim::deployment::{addresses, member};
use crate::sim::fault::{Fault, FaultKind};
use crate::sim::network::{Packet, Side};
use crate::sim::path::Trouble;
use crate::sim::quiet::{
    PLAIN, acting, direct_world, quiet_world, quiet_world_from_start, quiet_world_with, step_until,
    step_until_broken,
};
use crate::sim::request::Kind;
use crate::sim::world::World;
use crate::sim::{quiet, runtime};
use sdam_cluster::{Deployment, MemberId};

/// Returns which rule the client has broken.
fn broken(client: &Client) -> Option<&'static str> {
    client.ledger().take_findings().0.map(|violation| violation.check)
}

/// Returns the membership of the first server of a view.
fn first_server(client: &Client) -> ServerId {
    client.view().servers()[0].id
}

/// Returns criteria that no server suits.
fn unsuitable() -> Criteria {
    let tags = TagSet::from([("nobody".to_owned(), "has it".to_owned())]);
    let preference = ReadPreference::new(ReadMode::Nearest);
    Criteria::read(preference.with_tag_sets(vec![tags]).unwrap())
}

/// An operation begins that no server suits, and that may take a shorter time than a selection by
/// its bound.
fn begin(client: &mut Client) -> OperationId {
    let id = client.start(Kind::Write, Duration::from_secs(5), Random::new(1));
    client.ledger().operations.get_mut(&id).unwrap().criteria = Arc::new(unsuitable());
    id
}

/// A pool that has done nothing so far.
fn new_pool() -> Pool<()> {
    Pool::new(PoolConfig::new(
        "elsewhere:27017".parse().unwrap(),
        sdam_core::config::PoolOptions::default(),
    ))
}

#[test]
fn an_alarm_of_a_pool_that_has_nothing_to_do_is_found() {
    let mut world = quiet_world(PLAIN);
    let (client, network) = acting(&mut world);
    let (server, now) = (first_server(client), network.now);
    let ring = |due| {
        let mut ledger = client.ledger();
        ledger.pool::<()>(server, &PoolStep::Tick { at: now, due });
        ledger.pool(server, &PoolStep::Done(&new_pool()));
    };
    ring(Some(now));
    assert_eq!(broken(client), Some("alarms of pools ring for a reason"));
    ring(None);
    assert_ne!(broken(client), Some("alarms of pools ring for a reason"), "nothing was due");
}

#[test]
fn a_deadline_that_is_judged_before_its_time_is_found() {
    let mut world = quiet_world(PLAIN);
    let (client, network) = acting(&mut world);
    let judged = |later| {
        let at = network.now + Duration::from_nanos(later);
        client.ledger().topology(&TopologyStep::Tick { at, due: None });
        broken(client)
    };
    assert_eq!([0, 1].map(judged), [None, Some("no deadline is judged before its time")]);
}

#[test]
fn an_operation_that_looks_for_a_server_on_and_on_is_found() {
    let mut world = quiet_world(PLAIN);
    let (client, _) = acting(&mut world);
    let id = begin(client);
    let look = |client: &Client, times| {
        (0..times).for_each(|_| client.ledger().looks(id));
        broken(client)
    };
    assert_eq!(look(client, most_wake_ups(3)), None);
    assert_eq!(look(client, 1), Some("no busy loop"));
    client.clock.set(client.clock.now() + Duration::from_secs(1));
    assert_eq!(look(client, most_wake_ups(3) + 1), None, "another second has begun");
}

/// Returns what a connection of a server has met that was established long ago.
fn met(stage: Stage, code: i32) -> OperationFailure {
    let error = CommandError::in_reply(&rawdoc! { "ok": 0, "code": code }).unwrap();
    OperationFailure::new(
        sdam_core::id::Generation::new(0),
        17,
        OperationError::Reply { stage, error },
    )
}

/// SDAM, "Authentication errors" and "Network error when reading or writing"; Server Monitoring,
/// "hello or legacy hello Cancellation".
#[test]
fn a_server_whose_connections_fail_and_who_does_not_pay_for_it_is_found() {
    let mut world = quiet_world(PLAIN);
    let (client, _) = acting(&mut world);
    let known = client.view().servers()[0].address.clone();
    let gone = "elsewhere:27017".parse().unwrap();
    let error = met(Stage::Authenticate, 18).error;
    let blamed = |address: &ServerAddress, found| {
        client.ledger().check_blame(address, &error, found);
        broken(client)
    };
    let unknown = Some("a server whose connections fail is Unknown");
    assert_eq!(blamed(&known, (true, true)), unknown, "no report has reached the topology");
    assert_eq!(blamed(&gone, (true, true)), None);
    let cleared = Some("a pool whose connections fail is cleared");
    assert_eq!(blamed(&gone, (false, true)), cleared);
    let checked = Some("a check ends with the connections of its server");
    assert_eq!(blamed(&gone, (true, false)), checked);
}

#[test]
fn servers_are_to_blame_for_their_connections_and_not_for_slow_commands_or_load() {
    let stream = |stage, cause| OperationError::Stream(Failure::new(stage, cause, "made up"));
    for (error, expected) in [
        (stream(Stage::Operate, Cause::Closed), true),
        (stream(Stage::Operate, Cause::Timeout), false),
        (stream(Stage::Operate, Cause::Interrupted), false),
        (stream(Stage::Authenticate, Cause::Timeout), true),
        (stream(Stage::Hello, Cause::Timeout), false),
    ] {
        assert_eq!(is_to_blame(&error), expected, "{error}");
    }
}

/// SDAM, "Why ignore errors based on CMAP's generation number?".
#[test]
fn an_error_that_is_stale_and_changes_something_is_found() {
    let mut world = quiet_world(PLAIN);
    let (client, _) = acting(&mut world);
    let server = first_server(client);
    let mut ledger = client.ledger();
    // As far as the check knows, the error is about a server that is none any more.
    ledger.servers.get_mut(&server).unwrap().left = true;
    let Pending::Report(report) = ledger.begin_report(server, &met(Stage::Hello, 18)) else {
        panic!("it is judged");
    };
    ledger.end_report(&report);
    drop(ledger);
    assert_eq!(broken(client), None);
    let other = Topology::new(Arc::clone(&client.options), 1);
    client.ledger().view = Arc::clone(other.snapshot());
    client.ledger().end_report(&report);
    assert_eq!(broken(client), Some("stale errors change nothing"));
}

/// SDAM, "not writable primary and node is recovering": without a topologyVersion no such error is
/// stale, and writes that have chosen the old primary meet one after the other (found by seed
/// 1004702).
#[test]
fn a_member_is_unknown_for_b_at_most_to_whom_it_has_told_what_it_is_not() {
    const NOT_PRIMARY: i32 = 10107;
    const NEITHER: i32 = 13436;
    const SHUTTING_DOWN: i32 = 91;
    let audit = |world: &mut World| world.audit().err().map(|(_, violation)| violation.check);
    // Finds out about members of this type that have answered like this, so long ago.
    let found = |mut world: World, server_type, code, ago: Duration| {
        assert_eq!(audit(&mut world), None);
        let view = world.clients[0].view();
        let mut servers = view.servers().iter();
        let server = servers.find(|it| it.server_type == server_type).unwrap().id;
        answers(&mut world, server, code);
        let mut ledger = world.clients[0].ledger();
        let known = ledger.servers.get_mut(&server).unwrap();
        let earlier = |at: Instant| Instant::ZERO + ((at - Instant::ZERO) - ago);
        known.refused = known.refused.map(|(at, change)| (earlier(at), change));
        drop(ledger);
        audit(&mut world)
    };
    let wrong = Some("when faults stop, the view becomes the truth");
    let (now, secondary) = (Duration::ZERO, ServerType::RsSecondary);
    for world in [direct_world, || quiet_world(PLAIN)] {
        let b = Bounds::of(&world().clients[0].options).selection;
        assert_eq!(found(world(), secondary, NOT_PRIMARY, now), None);
        assert_eq!(found(world(), secondary, NOT_PRIMARY, b), None);
        assert_eq!(found(world(), secondary, NOT_PRIMARY, b + Duration::from_nanos(1)), wrong);
        assert_eq!(found(world(), secondary, NEITHER, now), wrong, "and it is one");
        assert_eq!(found(world(), secondary, SHUTTING_DOWN, now), wrong, "and it does not");
    }
    let primary = found(quiet_world(PLAIN), ServerType::RsPrimary, NOT_PRIMARY, now);
    assert_eq!(primary, wrong, "and it is one");
    // No client has connections to an arbiter: it is lost in another way.
    let mut world = quiet_world_with(PLAIN, |plan| {
        plan.clients.truncate(1);
        plan.cluster.members[2].arbiter = true;
    });
    let truth = quiet::member(&mut world, 2).clone();
    world.input(sdam_cluster::Input::Kill { member: MemberId(2) });
    step_until(&mut world, Instant::from_millis(120_000));
    *quiet::member(&mut world, 2) = truth;
    let now = world.network.now;
    let mut arbiter = |change| {
        let (client, _) = acting(&mut world);
        let (view, mut ledger) = (client.view(), client.ledger());
        let mut unknown = view.servers().iter();
        let unknown = unknown.find(|it| it.server_type == ServerType::Unknown).unwrap().id;
        ledger.servers.get_mut(&unknown).unwrap().refused = Some((now, change));
        drop(ledger);
        audit(&mut world)
    };
    assert_eq!(arbiter(StateChange::Recovering), None);
    assert_eq!(arbiter(StateChange::ShuttingDown), wrong);
}

/// An operation of the first client is answered with an error by a server of its view.
fn answers(world: &mut World, server: ServerId, code: i32) {
    let (client, network) = acting(world);
    let (error, members) = (met(Stage::Operate, code).error, client.host.members());
    let own = members.into_iter().find(|it| it.id() == server).unwrap();
    let is_told = Arc::new(AtomicBool::new(false));
    let tells = Arc::clone(&is_told);
    client.desk.spawn(runtime::Kind::Application(u64::MAX), async move {
        let mut checked_out = own.check_out().await.unwrap();
        checked_out.report(Outcome::Failure(error));
        tells.store(true, Ordering::Relaxed);
    });
    client.run(network);
    while !is_told.load(Ordering::Relaxed) {
        world.step().unwrap();
    }
}

#[test]
fn an_operation_that_gives_up_before_its_deadline_is_found() {
    let mut world = quiet_world(PLAIN);
    let (client, network) = acting(&mut world);
    let id = begin(client);
    client.run(network);
    // The topology has received another one.
    let later = network.now + Duration::from_secs(90);
    client.ledger().operations.get_mut(&id).unwrap().deadline = later;
    let found = step_until_broken(&mut world);
    assert_eq!(found, Some("selections wait until their deadline"));
}

#[test]
fn an_operation_that_waits_beyond_its_deadline_is_found() {
    let mut world = quiet_world(PLAIN);
    let (client, network) = acting(&mut world);
    let id = begin(client);
    client.run(network);
    let (now, late) = (network.now, Duration::from_secs(1));
    client.ledger().operations.get_mut(&id).unwrap().deadline = now;
    client.clock.set(now + late);
    client.ledger().check_deadlines(Instant::ZERO, late);
    assert_eq!(broken(client), None);
    client.clock.set(now + late * 2);
    client.ledger().operations.get_mut(&id).unwrap().phase = Phase::Holding;
    client.ledger().check_deadlines(Instant::ZERO, late);
    assert_eq!(broken(client), None, "its application takes its time");
    client.ledger().operations.get_mut(&id).unwrap().phase = Phase::Selecting;
    client.ledger().check_deadlines(Instant::ZERO, late);
    assert_eq!(broken(client), Some("who waits is answered by the deadline"));
}

/// "If timeoutMS is set, waitQueueTimeoutMS is ignored": otherwise it begins with a check-out, be
/// that just before the deadline of its operation.
#[test]
fn an_operation_that_waits_beyond_its_wait_queue_timeout_is_found() {
    let mut world = quiet_world("wait-queue-timeout");
    let (client, network) = acting(&mut world);
    let (now, longer) = (network.now, Duration::from_millis(300));
    let id = begin(client);
    let found = |phase, after| {
        let mut ledger = client.ledger();
        let operation = ledger.operations.get_mut(&id).unwrap();
        (operation.phase, operation.deadline) = (phase, now);
        drop(ledger);
        client.clock.set(now + after);
        client.ledger().check_deadlines(Instant::ZERO, Duration::ZERO);
        broken(client)
    };
    let wrong = Some("who waits is answered by the deadline");
    let moment = Duration::from_nanos(1);
    assert_eq!(found(Phase::CheckingOut, longer), None);
    assert_eq!(found(Phase::CheckingOut, longer + moment), wrong);
    assert_eq!(found(Phase::Selecting, moment), wrong);
}

#[test]
fn an_operation_that_fails_without_a_reason_is_found() {
    let mut world = quiet_world(PLAIN);
    let (client, _) = acting(&mut world);
    let failed = |code: i32, is_excused| {
        let error = CommandError::in_reply(&rawdoc! { "ok": 0, "code": code }).unwrap();
        client.ledger().judge_error(OperationId(1), &error, is_excused);
        broken(client)
    };
    assert_eq!(failed(2, false), Some("commands succeed"));
    assert_eq!((failed(2, true), failed(10107, false)), (None, None));
    let lost = |cause, detail: &str| {
        let failure = Failure::new(Stage::Operate, cause, detail.to_owned());
        client.ledger().judge_failure(OperationId(1), &failure);
        broken(client)
    };
    assert_eq!(lost(Cause::Closed, "made up"), None);
    assert_eq!(lost(Cause::Malformed, "made up"), Some("replies match requests"));
}

/// Server Monitoring, "Network or command error during server check": only a server "in a known
/// state before the error" is checked once more at once, so that one whose stream has ended
/// unnoticed may cost an operation if an error has made it Unknown (found by seed 800250).
#[test]
fn a_scan_may_pass_an_unknown_server_by_whose_stream_has_ended_while_nobody_looked() {
    let gave_up = |is_unknown: bool| {
        let ends = Instant::from_millis(50_000);
        let mut world = quiet_world_with("fork-of-a-single-thread", |plan| {
            plan.clients.iter_mut().for_each(|client| client.workload_ends = ends);
        });
        let server = world.clients[0].view().servers()[0].clone();
        let own = world.clients[0].member_at(&server.address).unwrap();
        if is_unknown {
            answers(&mut world, server.id, 91);
        }
        let network = &mut world.network;
        network.reset(0, own);
        for other in (0..3).filter(|it| *it != own) {
            network.begin(0, other, Trouble::Refused);
        }
        step_until(&mut world, Instant::from_millis(360_000));
        let since = world.network.now;
        let criteria = Arc::new(Criteria::read(ReadPreference::new(ReadMode::Nearest)));
        let gives_up = |world: &World| {
            let gave_up = GaveUp { criteria: Arc::clone(&criteria), since };
            world.check_gave_up(0, &gave_up).is_err()
        };
        assert!(gives_up(&world), "nothing has looked, and found that a stream has ended");
        let (client, network) = acting(&mut world);
        client.look(network, Duration::from_secs(1));
        gives_up(&world)
    };
    assert_eq!([true, false].map(gave_up), [false, true]);
}

/// A reply that is read before a late ring counts as one that came when it was due, and so does one
/// that has come while the process was stopped (found by seeds 801865 and 4015973).
#[test]
fn a_round_trip_may_seem_too_short_to_a_client_that_reads_late() {
    const FAR: [Duration; 3] = [Duration::from_millis(500); 3];
    let found = |disturb: fn(&mut Client, &mut Network)| {
        let near = quiet_world(PLAIN).clients[0].snapshot();
        let mut world = quiet_world_with(PLAIN, |plan| plan.distances = &FAR);
        let (client, network) = acting(&mut world);
        disturb(client, network);
        assert_eq!(broken(client), None);
        let publish = Action::Publish { snapshot: near };
        client.ledger().topology(&TopologyStep::Action(&publish));
        broken(client)
    };
    let expected = Some("round trips take as long as the network does");
    assert_eq!(found(|_, _| {}), expected);
    assert_eq!(found(|client, _| client.disturb_alarm(1)), None);
    assert_eq!(found(|client, network| stop(client, network, false)), expected);
    assert_eq!(found(|client, network| stop(client, network, true)), None);
}

/// Stops the process until something of its monitors is overdue, while bytes come for one or not.
fn stop(client: &mut Client, network: &mut Network, comes: bool) {
    client.freeze(network.now);
    let due = client.ledger().deadline.expect("a check is due some time");
    network.now = due + Duration::from_nanos(1);
    client.clock.set(network.now);
    if comes {
        let mut ends = client.ends.iter();
        let stream = *ends.find(|(_, end)| end.link().is_some()).unwrap().0;
        let to = Side::Client;
        let packet = Packet::Bytes(Vec::new());
        client.receive(network, Event::Arrival { stream, to, packet });
    }
    client.thaw(network);
}

#[test]
fn a_pool_that_disagrees_with_its_model_is_found() {
    let mut world = quiet_world(PLAIN);
    let (client, _) = acting(&mut world);
    let server = first_server(client);
    let asked = pool::Input::<()>::CheckOut { waiter: WaiterId(1 << 40), deadline: None };
    client.ledger().told = Some(VecDeque::new());
    client.ledger().pool(server, &PoolStep::Input(&asked));
    client.ledger().pool(server, &PoolStep::Done(&new_pool()));
    assert_eq!(broken(client), Some("pool arithmetic"));
}

#[test]
fn a_server_that_leaves_before_its_links_are_closed_is_found() {
    let mut world = quiet_world(PLAIN);
    let (client, _) = acting(&mut world);
    let server = first_server(client);
    client.ledger().leave(server);
    assert_eq!(broken(client), Some("nothing of a removed server"));
}

#[test]
fn an_address_that_nobody_has_is_found_when_it_is_dialled() {
    let mut world = quiet_world(PLAIN);
    let (client, _) = acting(&mut world);
    assert_eq!(client.member_at(&"elsewhere:27017".parse().unwrap()), None);
    assert_eq!(broken(client), Some("known addresses"));
}

/// Returns the first link of a client's monitors.
fn first_link(client: &Client) -> LinkId {
    *client.ledger().links.first().expect("monitors work")
}

/// Server Monitoring, "Multi-threaded or asynchronous monitoring".
#[test]
fn a_monitor_that_logs_in_is_found() {
    let sent = |name| {
        let mut world = quiet_world(name);
        let (client, _) = acting(&mut world);
        let (link, bytes) = (first_link(client), b"\0saslStart\0".to_vec());
        client.ledger().topology(&TopologyStep::Action(&Action::Send { link, bytes }));
        broken(client)
    };
    assert_eq!(sent("login-refused"), Some("monitors never log in"));
    assert_eq!(sent(PLAIN), None, "no client has a user");
}

/// Server Monitoring, "Measuring RTT".
#[test]
fn a_measurement_of_a_round_trip_that_changes_something_is_found() {
    let mut world = quiet_world(PLAIN);
    let old = world.clients[0].ledger().links.clone();
    (0..3).for_each(|member| world.network.reset(0, member));
    let later = world.network.now + Duration::from_secs(30);
    step_until(&mut world, later);
    let (client, network) = acting(&mut world);
    let now = network.now;
    let is_new = |link: &&LinkId| !old.contains(link);
    let link = *client.ledger().links.iter().find(is_new).expect("a stream was opened again");
    let opened = |client: &Client| {
        let mut ledger = client.ledger();
        ledger.topology(&TopologyStep::Input { at: now, input: &Input::Opened { link } });
        let snapshot = Arc::clone(&ledger.view);
        ledger.topology(&TopologyStep::Action(&Action::Publish { snapshot }));
        ledger.topology(&TopologyStep::Done(&Topology::new(Arc::clone(&client.options), 1)));
        drop(ledger);
        broken(client)
    };
    assert_eq!(opened(client), None);
    // Beside a link that was closed long ago, that of the checks is taken for a second one.
    client.ledger().links.extend(old);
    assert_eq!(opened(client), Some("measuring round trips changes nothing"));
}

#[test]
fn more_work_than_there_are_replies_for_is_found() {
    let mut world = quiet_world(PLAIN);
    let (client, _) = acting(&mut world);
    let link = first_link(client);
    client.ledger().judge_work(link, 0, 16);
    assert_eq!(broken(client), None);
    client.ledger().judge_work(link, 0, 1 << 20);
    assert_eq!(broken(client), Some("bounded work for what comes"));
}

#[test]
fn a_stream_that_nobody_works_for_is_found() {
    let mut world = quiet_world(PLAIN);
    let (client, _) = acting(&mut world);
    let (slots, links) = client.executor.counts();
    client.ledger().settle((slots, links));
    assert_eq!(broken(client), None);
    client.ledger().settle((slots, links - 1));
    assert_eq!(
        broken(client),
        Some("a task that waits for a stream waits for another task's work")
    );
}

#[test]
fn an_event_that_a_listener_does_not_hear_is_found() {
    let mut world = quiet_world_with(PLAIN, |plan| {
        plan.clients.iter_mut().for_each(|client| client.always_listens = true);
    });
    let (client, network) = acting(&mut world);
    client.host.request_check();
    client.run(network);
    assert_eq!(broken(client), None);
    client.host.request_check();
    let later = network.now + Duration::from_secs(1);
    client.ledger().told.as_mut().unwrap().clear();
    step_until_then_deaf(&mut world, later);
}

/// The listener receives nothing of what happens until then, and that is found.
fn step_until_then_deaf(world: &mut crate::sim::world::World, at: Instant) {
    world.clients[0].events = Some(world.clients[1].host.subscribe());
    let found = std::iter::from_fn(|| (world.network.now < at).then(|| world.step()));
    let found = found.filter_map(Result::err).next().map(|(_, violation)| violation.check);
    assert_eq!(found, Some("subscribers hear what happens"));
}

#[test]
fn a_pool_that_is_asked_although_it_has_a_connection_is_found() {
    let mut world = quiet_world_with(PLAIN, |plan| {
        plan.clients.iter_mut().for_each(|client| client.always_listens = false);
    });
    let (client, _) = acting(&mut world);
    let ledger = client.ledger();
    let now = client.clock.now();
    let may_lend = |(_, it): &(&ServerId, &ledger::Server)| it.pool_model.may_lend(now);
    let idle = ledger.servers.iter().find(may_lend).map(|(server, _)| *server);
    drop(ledger);
    let server = idle.expect("no task works all the time");
    let asked = pool::Input::<()>::CheckOut { waiter: WaiterId(1 << 40), deadline: None };
    client.ledger().pool(server, &PoolStep::Input(&asked));
    assert_eq!(broken(client), Some("pools that have a connection lend it at once"));
}

#[test]
fn a_pool_that_tells_nobody_of_a_loan_is_found() {
    let mut world = quiet_world_with(PLAIN, |plan| {
        plan.clients.iter_mut().for_each(|client| client.always_listens = false);
    });
    let (client, _) = acting(&mut world);
    client.ledger().told = None;
    let (server, now) = (*client.ledger().servers.keys().next().unwrap(), client.clock.now());
    let step = PoolStep::<()>::Published(now, &PoolEvent::ConnectionCheckOutStarted);
    client.ledger().pool(server, &step);
    assert_eq!(broken(client), Some("pools without subscribers publish nothing"));
}

/// Something goes wrong with these members, or with everybody's alarms, from when to when.
fn fault(kind: FaultKind, (begins, ends): (u64, u64), members: std::ops::Range<usize>) -> Fault {
    Fault {
        kind,
        begins: Instant::from_millis(begins),
        ends: Instant::from_millis(ends),
        clients: vec![0],
        members: members.collect(),
        bits: 7,
    }
}

/// OP_MSG, "exhaustAllowed": nothing keeps a server from streaming without pause.
#[test]
fn a_server_that_streams_without_pause_keeps_nobody_from_checking_the_others() {
    let taken = |faults: Vec<Fault>| {
        let mut world = quiet_world_with(PLAIN, |plan| plan.faults = faults);
        // No check of another member is late, and what each reply has done is bounded.
        step_until(&mut world, Instant::from_millis(180_000));
        world.statistics.steps
    };
    let (quiet, flooded) =
        (taken(Vec::new()), taken(vec![fault(FaultKind::Flood, (61_000, 120_000), 0..1)]));
    assert!(flooded > quiet + 300, "{quiet} steps without it, {flooded} with it");
}

#[test]
fn deadlines_hold_while_alarms_ring_early_and_late_and_twice() {
    let alarm = fault(FaultKind::Alarm, (61_000, 240_000), 0..0);
    let mut world = quiet_world_with(PLAIN, |plan| plan.faults = vec![alarm]);
    step_until(&mut world, Instant::from_millis(300_000));
}

#[test]
fn tasks_that_a_runtime_drops_are_begun_again() {
    let dropped = fault(FaultKind::TasksDropped, (61_000, 62_000), 0..0);
    let mut world = quiet_world_with(PLAIN, |plan| plan.faults = vec![dropped]);
    let links = world.clients[0].ledger().links.clone();
    step_until(&mut world, Instant::from_millis(120_000));
    let view = world.clients[0].view();
    assert!(view.primary().is_some());
    assert_ne!(world.clients[0].ledger().links, links, "some have ended");
}

#[test]
fn an_alarm_that_does_not_ring_again_is_found() {
    let mut world = quiet_world(PLAIN);
    let (client, _) = acting(&mut world);
    client.judge_alarm(true);
    assert_eq!(broken(client), None);
    client.deadline = None;
    client.judge_alarm(true);
    assert_eq!(broken(client), Some("the alarm rings when something is due"));
}

#[test]
fn a_hundred_servers_that_fall_silent_at_once_need_no_deep_stack() {
    const SERVERS: usize = 100;
    let silent = || {
        let mut world = quiet_world_from_start(PLAIN, |plan| {
            plan.cluster.deployment = Deployment::Sharded;
            plan.cluster.members = (0..SERVERS).map(|index| member(index, false)).collect();
            plan.clients.truncate(1);
            let client = &mut plan.clients[0];
            client.addresses = addresses(&plan.cluster, false);
            client.seeds = (0..SERVERS).collect();
            client.workload_ends = Instant::ZERO;
            let options = Options::builder().uri("mongodb://unused/?connectTimeoutMS=5000");
            let options = options.unwrap().seeds(client.addresses.iter().cloned());
            client.options = Arc::new(options.build().unwrap());
            plan.timers_first = false;
            plan.faults = vec![fault(FaultKind::Blackhole, (0, 30_000), 0..SERVERS)];
        });
        step_until(&mut world, Instant::from_millis(4_999));
        let mut before = world.clients[0].ledger().actions;
        let mut most = 0;
        while world.network.now < Instant::from_millis(40_000) {
            world.step().unwrap();
            let done = world.clients[0].ledger().actions;
            most = most.max(done - before);
            before = done;
        }
        assert!(most >= 2 * SERVERS as u64, "{most} actions at once");
    };
    std::thread::Builder::new().stack_size(1 << 20).spawn(silent).unwrap().join().unwrap();
}
