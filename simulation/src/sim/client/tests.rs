//! Clients to which something is done that must not be, or that do it.

use std::time::Duration;

use sdam_core::bson::rawdoc;
use sdam_core::config::{ReadMode, ReadPreference, TagSet};
use sdam_core::description::ServerType;
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::operation::{CommandError, OperationError, OperationFailure};
use sdam_core::pool::{CheckOutError, Obstacle};
use sdam_core::selection::Criteria;
use sdam_core::wire::{Flags, write_op_msg};

use super::cursors::Cursor;
use super::operations::State;
use super::*;
use crate::sim::bounds::Bounds;
use crate::sim::checks::most_wake_ups;
use crate::sim::deployment::{addresses, member};
use crate::sim::fault::{Fault, FaultKind};
use crate::sim::network::Side;
use crate::sim::path::Trouble;
use crate::sim::quiet::{
    PLAIN, acting, direct_world, quiet_world, quiet_world_from_start, quiet_world_with, step_until,
    step_until_broken,
};
use crate::sim::request::Kind;
use crate::sim::world::World;
use sdam_cluster::Deployment;

/// Returns which rule the client has broken.
fn broken(client: &mut Client) -> Option<&'static str> {
    client.checks.take_violation().map(|violation| violation.check)
}

/// Returns the membership of the first server of a view.
fn first_server(client: &Client) -> ServerId {
    client.view.description().servers()[0].id
}

/// What no server suits.
fn unsuitable() -> Criteria {
    let tags = TagSet::from([("nobody".to_owned(), "has it".to_owned())]);
    let preference = ReadPreference::new(ReadMode::Nearest);
    Criteria::read(preference.with_tag_sets(vec![tags]).unwrap())
}

/// An operation begins, which may take a shorter time than a selection by its bound.
fn begin(client: &mut Client, network: &mut Network, criteria: Criteria) -> OperationId {
    let (id, kind) = (client.next_operation(), Kind::Read(ReadMode::Nearest));
    let patience = Duration::from_secs(5);
    client.start(network, id, (kind, criteria), (patience, Random::new(1)));
    id
}

/// An operation that reads from the nearest server has sent its message.
fn exchanging(client: &mut Client, network: &mut Network) -> (OperationId, StreamId, i32) {
    let id = begin(client, network, Criteria::read(ReadPreference::new(ReadMode::Nearest)));
    client.settle(network);
    match client.operations[&id].state {
        State::Exchanging { stream, request, .. } => (id, stream, request),
        ref other => panic!("{other:?}"),
    }
}

/// Returns a reply to that message.
fn reply(to: i32, body: &sdam_core::bson::RawDocument) -> Packet {
    let mut bytes = Vec::new();
    write_op_msg(&mut bytes, 1, to, Flags::NONE, body);
    Packet::Bytes(bytes)
}

#[test]
fn an_alarm_of_a_pool_that_has_nothing_to_do_is_found() {
    let mut world = quiet_world(PLAIN);
    let (client, network) = acting(&mut world);
    let server = first_server(client);
    client.ring_pool(network, server);
    assert_eq!(broken(client), Some("alarms of pools ring for a reason"));
}

#[test]
fn an_operation_that_looks_for_a_server_on_and_on_is_found() {
    let mut world = quiet_world(PLAIN);
    let (client, network) = acting(&mut world);
    let id = begin(client, network, unsuitable());
    let mut look = |client: &mut Client, times| {
        (0..times).for_each(|_| client.woken(network, id, Ok(())));
        broken(client)
    };
    // It has looked once when it began.
    assert_eq!(look(client, most_wake_ups(3) - 1), None);
    assert_eq!(look(client, 1), Some("no busy loop"));
    client.now = client.now + Duration::from_secs(1);
    assert_eq!(look(client, most_wake_ups(3) + 1), None, "another second has begun");
}

/// Returns what a connection of a server has met that was established long ago.
fn met(client: &Client, stage: Stage, code: i32) -> OperationFailure {
    let pool = &client.servers[&first_server(client)].pool;
    let error = CommandError::in_reply(&rawdoc! { "ok": 0, "code": code }).unwrap();
    OperationFailure {
        generation: pool.get().generation(None),
        service: None,
        max_wire_version: 17,
        error: OperationError::Reply { stage, error },
    }
}

/// SDAM, "Authentication errors" and "Network error when reading or writing"; Server Monitoring,
/// "hello or legacy hello Cancellation".
#[test]
fn a_server_whose_connections_fail_and_who_does_not_pay_for_it_is_found() {
    let mut world = quiet_world(PLAIN);
    let (client, network) = acting(&mut world);
    let server = first_server(client);
    let address = client.servers[&server].address.clone();
    let failure = met(client, Stage::Authenticate, 18);
    client.check_blame(&address, &failure.error, (true, true));
    let unknown = Some("a server whose connections fail is Unknown");
    assert_eq!(broken(client), unknown, "nobody has told the topology");
    let error = failure.error.clone();
    client.report(network, server, failure);
    assert_eq!(broken(client), None, "it has been told, and the server is");
    client.check_blame(&address, &error, (false, true));
    assert_eq!(broken(client), Some("a pool whose connections fail is cleared"));
    client.check_blame(&address, &error, (true, false));
    assert_eq!(broken(client), Some("a check ends with the connections of its server"));
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
        assert_eq!(super::reports::is_to_blame(&error), expected, "{error}");
    }
}

/// SDAM, "Why ignore errors based on CMAP's generation number?".
#[test]
fn an_error_that_is_stale_and_changes_something_is_found() {
    let mut world = quiet_world(PLAIN);
    let (client, network) = acting(&mut world);
    let server = first_server(client);
    let failure = met(client, Stage::Hello, 18);
    // As far as the check knows, it was told of a server that is none any more.
    client.servers.get_mut(&server).unwrap().left = true;
    client.report(network, server, failure);
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
        let (client, network) = acting(&mut world);
        let servers = client.view.description().servers();
        let server = servers.iter().find(|it| it.server_type == server_type).unwrap().id;
        client.report(network, server, met(client, Stage::Operate, code));
        let known = client.servers.get_mut(&server).unwrap();
        let earlier = |at: Instant| Instant::ZERO + ((at - Instant::ZERO) - ago);
        known.refused = known.refused.map(|(at, change)| (earlier(at), change));
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
    let with_arbiter = || quiet_world_with(PLAIN, |plan| plan.cluster.members[2].arbiter = true);
    let arbiter = |code| found(with_arbiter(), ServerType::RsArbiter, code, now);
    assert_eq!([NEITHER, SHUTTING_DOWN].map(arbiter), [None, wrong]);
}

#[test]
fn an_operation_that_gives_up_before_its_deadline_is_found() {
    let mut world = quiet_world(PLAIN);
    let (client, network) = acting(&mut world);
    let id = begin(client, network, unsuitable());
    // As the topology was told of another one.
    client.operations.get_mut(&id).unwrap().deadline = network.now + Duration::from_secs(90);
    let found = step_until_broken(&mut world);
    assert_eq!(found, Some("selections wait until their deadline"));
}

#[test]
fn an_operation_that_waits_beyond_its_deadline_is_found() {
    let mut world = quiet_world(PLAIN);
    let (client, network) = acting(&mut world);
    let id = begin(client, network, unsuitable());
    client.operations.get_mut(&id).unwrap().deadline = network.now;
    client.operation_timer(network, id, Timer::Expire);
    assert_eq!(broken(client), Some("who waits is answered by the deadline"));
}

#[test]
fn a_connection_that_is_delivered_to_nobody_or_refused_too_soon_is_found() {
    let mut world = quiet_world(PLAIN);
    let (client, network) = acting(&mut world);
    let server = first_server(client);
    let refusal = || {
        let address = "m0.sim.example:27017".parse().unwrap();
        let obstacle = Obstacle::Queued { behind: 0, in_use: 0, pending: 0 };
        let (waited, loans) = (Duration::ZERO, None);
        Err(Box::new(CheckOutError::Timeout { address, waited, obstacle, loans }))
    };
    let vain = Some("nothing is delivered in vain");
    let nobody = client.next_operation();
    client.delivered(network, nobody, server, refusal());
    assert_eq!(broken(client), vain, "there is no such operation");
    let id = begin(client, network, unsuitable());
    client.delivered(network, id, server, refusal());
    assert_eq!(broken(client), vain, "it waits for a server");
    let waiter = client.next_waiter();
    let state = State::CheckingOut { server, waiter, newest: None };
    client.operations.get_mut(&id).unwrap().state = state;
    client.delivered(network, id, server, refusal());
    assert_eq!(broken(client), Some("check-outs wait until their deadline"));
}

#[test]
fn a_cursor_that_goes_on_with_another_server_is_found() {
    let mut world = quiet_world(PLAIN);
    let (client, network) = acting(&mut world);
    let (id, ..) = exchanging(client, network);
    let State::Exchanging { server, lease, stream, .. } = client.operations[&id].state else {
        unreachable!("it has just sent its message");
    };
    let others = client.servers.keys().copied().filter(|other| *other != server);
    let other = others.min().unwrap();
    let cursor = Cursor::Open { server: other, id: 1, of_primary: false };
    client.operations.get_mut(&id).unwrap().cursor = cursor;
    client.exchange(network, id, server, (lease, stream));
    assert_eq!(broken(client), Some("a cursor stays on its server"));
}

#[test]
fn what_an_operation_gets_that_it_did_not_ask_for_is_found() {
    let answered = |answer: &dyn Fn(i32) -> Packet| {
        let mut world = quiet_world(PLAIN);
        let (client, network) = acting(&mut world);
        let (_, stream, request) = exchanging(client, network);
        client.arrived(network, stream, answer(request));
        broken(client)
    };
    let (found, failed) = (rawdoc! { "ok": 1 }, rawdoc! { "ok": 0, "code": 2 });
    assert_eq!(answered(&|request| reply(request, &found)), None);
    let other = answered(&|request| reply(request + 1, &found));
    assert_eq!(other, Some("replies match requests"));
    assert_eq!(answered(&|request| reply(request, &failed)), Some("commands succeed"));
    let garbage = |_| Packet::Bytes(vec![0; 64]);
    assert_eq!(answered(&garbage), Some("bytes arrive as sent"));
}

#[test]
fn a_reply_that_nobody_has_asked_for_is_found() {
    let mut world = quiet_world(PLAIN);
    let (client, network) = acting(&mut world);
    let idle = client.connections.iter().find(|(_, it)| it.operation.is_none());
    let stream = *idle.expect("nobody works all the time").0;
    client.arrived(network, stream, reply(1, &rawdoc! { "ok": 1 }));
    assert_eq!(broken(client), Some("replies match requests"));
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
        let (client, network) = acting(&mut world);
        let server = first_server(client);
        let own = client.member_at(&client.servers[&server].address.clone()).unwrap();
        if is_unknown {
            let failure = met(client, Stage::Operate, 91);
            client.report(network, server, failure);
        }
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
        assert!(gives_up(&world), "nobody has looked, and found that a stream has ended");
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
        let near = Arc::clone(quiet_world(PLAIN).clients[0].view());
        let mut world = quiet_world_with(PLAIN, |plan| plan.distances = &FAR);
        let (client, network) = acting(&mut world);
        disturb(client, network);
        assert_eq!(broken(client), None);
        client.perform(network, Action::Publish { snapshot: near });
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
    let due = client.topology.deadline().expect("a check is due some time");
    network.now = due + Duration::from_nanos(1);
    if comes {
        let (stream, to) = (*client.links.values().next().unwrap(), Side::Client);
        let packet = Packet::Bytes(Vec::new());
        client.receive(network, Event::Arrival { stream, to, packet });
    }
    client.thaw(network);
}

#[test]
fn a_pool_that_disagrees_with_its_ledger_is_found() {
    let mut world = quiet_world(PLAIN);
    let (client, _) = acting(&mut world);
    let (server, now) = (first_server(client), client.now);
    client.settle_pool(server);
    assert_eq!(broken(client), None);
    let waiter = client.next_waiter();
    let asked = pool::Input::<StreamId>::CheckOut { waiter, deadline: None };
    client.servers.get_mut(&server).unwrap().ledger.input(now, &asked);
    client.settle_pool(server);
    assert_eq!(broken(client), Some("pool arithmetic"));
}

#[test]
fn a_view_that_names_a_server_without_a_pool_is_found() {
    let mut world = quiet_world(PLAIN);
    let (client, network) = acting(&mut world);
    client.servers.clear();
    begin(client, network, Criteria::write());
    assert_eq!(broken(client), Some("views name servers with pools"));
}

#[test]
fn a_server_that_leaves_before_its_links_are_closed_is_found() {
    let mut world = quiet_world(PLAIN);
    let (client, network) = acting(&mut world);
    let server = first_server(client);
    client.leave(network, server);
    assert_eq!(broken(client), Some("nothing of a removed server"));
}

#[test]
fn an_address_that_nobody_has_is_found_when_it_is_dialled() {
    let mut world = quiet_world(PLAIN);
    let (client, _) = acting(&mut world);
    assert_eq!(client.member_at(&"elsewhere:27017".parse().unwrap()), None);
    assert_eq!(broken(client), Some("known addresses"));
}

/// Server Monitoring, "Multi-threaded or asynchronous monitoring".
#[test]
fn a_monitor_that_logs_in_is_found() {
    let sent = |name| {
        let mut world = quiet_world(name);
        let (client, network) = acting(&mut world);
        let link = *client.links.keys().next().expect("monitors work");
        let bytes = b"\0saslStart\0".to_vec();
        client.perform(network, Action::Send { link, bytes });
        broken(client)
    };
    assert_eq!(sent("login-refused"), Some("monitors never log in"));
    assert_eq!(sent(PLAIN), None, "nobody has a name");
}

#[test]
fn a_connection_over_which_nobody_has_logged_in_is_found() {
    let mut world = quiet_world(PLAIN);
    (0..3).for_each(|member| world.network.reset(0, member));
    let greets = |world: &World| {
        world.clients[0].attempts.values().any(|attempt| attempt.handshake.is_some())
    };
    while !greets(&world) {
        world.step().unwrap();
    }
    // It is to log in, and the conversation that has begun does not know.
    let named = quiet_world("login-refused");
    world.clients[0].options = Arc::clone(&named.clients[0].options);
    assert_eq!(step_until_broken(&mut world), Some("whoever has a name logs in"));
}

/// Server Monitoring, "Measuring RTT".
#[test]
fn a_measurement_of_a_round_trip_that_changes_something_is_found() {
    let mut world = quiet_world(PLAIN);
    let (client, _) = acting(&mut world);
    let old: Vec<LinkId> = client.links.keys().copied().collect();
    (0..3).for_each(|member| world.network.reset(0, member));
    let later = world.network.now + Duration::from_secs(30);
    step_until(&mut world, later);
    // Beside links that were closed long ago, those of the checks are taken for second ones.
    let (client, _) = acting(&mut world);
    client.links.extend(old.into_iter().map(|link| (link, StreamId(0))));
    assert_eq!(step_until_broken(&mut world), Some("measuring round trips changes nothing"));
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
fn more_work_than_there_are_replies_for_is_found() {
    let mut world = quiet_world(PLAIN);
    let (client, network) = acting(&mut world);
    let link = *client.links.keys().next().unwrap();
    client.read(network, link, &[]);
    assert_eq!(broken(client), None);
    client.judge_work(link, 0, 1 << 20);
    assert_eq!(broken(client), Some("bounded work for what comes"));
}

#[test]
fn deadlines_hold_while_alarms_ring_early_and_late_and_twice() {
    let alarm = fault(FaultKind::Alarm, (61_000, 240_000), 0..0);
    let mut world = quiet_world_with(PLAIN, |plan| plan.faults = vec![alarm]);
    step_until(&mut world, Instant::from_millis(300_000));
}

#[test]
fn an_alarm_that_does_not_ring_again_is_found() {
    let mut world = quiet_world(PLAIN);
    let (client, _) = acting(&mut world);
    let due = client.next_deadline();
    client.judge_alarm(due);
    assert_eq!(broken(client), None);
    client.deadline = None;
    client.judge_alarm(due);
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
        let mut before = world.clients[0].actions_done;
        let mut most = 0;
        while world.network.now < Instant::from_millis(40_000) {
            world.step().unwrap();
            let done = world.clients[0].actions_done;
            most = most.max(done - before);
            before = done;
        }
        assert!(most >= 2 * SERVERS as u64, "{most} actions at once");
    };
    std::thread::Builder::new().stack_size(1 << 20).spawn(silent).unwrap().join().unwrap();
}
