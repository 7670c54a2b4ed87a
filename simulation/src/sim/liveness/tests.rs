//! The checks of liveness can fail: histories that are made up, in which views are wrong.

use std::sync::Arc;
use std::time::Duration;

use bson::oid::ObjectId;
use sdam_core::bson;
use sdam_core::description::ServerType;
use sdam_core::selection::Criteria;
use sdam_core::time::Instant;

use crate::sim::bounds::Bounds;
use crate::sim::client::GaveUp;
use crate::sim::network::Network;
use crate::sim::path::Trouble;
use crate::sim::quiet::{ONLY, PLAIN, direct_world, member, quiet_world, step_until};
use crate::sim::random::Random;
use crate::sim::world::{Event, World};
use sdam_cluster::{Input, MemberId, MemberState, ServerVersion};

/// Single-threaded clients wait for longer than others do, so that they are judged by B, too.
#[test]
fn an_operation_on_one_thread_that_waits_in_vain_for_a_server_is_found() {
    let mut world = quiet_world("fork-of-a-single-thread");
    let forever = Instant::from_millis(3_600_000);
    world.clients.iter_mut().for_each(|client| client.plan.workload_ends = forever);
    for member in 0..3 {
        world.input(Input::Kill { member: MemberId(member) });
    }
    world.network.plan(Duration::ZERO, Event::Operate { client: 0 });
    // In truth it is there, and is the primary, but no client finds it.
    world.oracle.current = world.cluster.state(None);
    let primary = member(&mut world, 0);
    primary.server_type = ServerType::RsPrimary;
    primary.election_id = Some(ObjectId::from_bytes([u8::MAX; 12]));
    let bounds = Bounds::of_single_threaded(&world.clients[0].options, 5);
    let last = world.network.now + bounds.reachable + bounds.selection * 2;
    let found = std::iter::from_fn(|| (world.network.now < last).then(|| world.step()));
    let found = found.filter_map(Result::err).next().expect("an operation waits for long");
    assert_eq!(found.1.check, "selections end while a server is reachable");
}

fn finding(world: &mut World) -> Option<&'static str> {
    world.audit().err().map(|(_, violation)| violation.check)
}

#[test]
fn a_view_that_is_wrong_between_two_faults_is_found() {
    let mut world = quiet_world(PLAIN);
    assert_eq!(finding(&mut world), None);
    assert!(world.statistics.verdicts > 0, "views are judged already");
    // It is down since the beginning, and no client has found out.
    member(&mut world, 2).server_type = ServerType::Unknown;
    assert_eq!(finding(&mut world), Some("when faults stop, the view becomes the truth"));
    world.oracle.changed = world.network.now;
    assert_eq!(finding(&mut world), None, "it cannot be known yet");
}

#[test]
fn a_view_must_have_what_members_say_of_themselves_and_of_others() {
    let wrong: [fn(&mut MemberState); 5] = [
        |it| it.set_version = Some(9),
        |it| it.max_wire_version = Some(99),
        |it| it.set_name = Some("other".to_owned()),
        |it| drop(it.tags.insert("dc".to_owned(), "east".to_owned())),
        |it| drop(it.named.pop_first()),
    ];
    let mut world = quiet_world("cold-pool");
    for spoil in wrong {
        assert_eq!(finding(&mut world), None);
        let honest = member(&mut world, 1).clone();
        spoil(member(&mut world, 1));
        assert_eq!(finding(&mut world), Some("when faults stop, the view becomes the truth"));
        *member(&mut world, 1) = honest;
    }
}

#[test]
fn a_client_must_know_whom_it_has_known_unless_the_name_has_led_elsewhere() {
    let mut world = quiet_world(PLAIN);
    assert_eq!(world.must_know(0, 1), Some(Instant::ZERO), "it began with it");
    assert_eq!(world.must_know(0, 3), None, "nothing ever named it");
    world.network.divert(0, 1, 2);
    assert_eq!(world.must_know(0, 1), None);
    world.network.end(0, 1, Trouble::Misdirected);
    assert_eq!(world.must_know(0, 1), None, "it may have forgotten it");
    assert_eq!(world.must_know(1, 1), Some(Instant::ZERO), "others are not concerned");
}

/// A client that has forgotten all members is not excused by the silence of those that it knows.
#[test]
fn a_client_is_not_lost_while_somebody_answers_whom_it_must_know() {
    let mut world = quiet_world(PLAIN);
    let view = world.clients[0].view();
    let plan = world.clients[0].plan.clone();
    // Only one answers, of which the view says nothing; it was a member all the time.
    for down in 0..3 {
        member(&mut world, down).server_type = ServerType::Unknown;
    }
    let is_lost = |world: &World, member| world.oracle.is_lost(&view, &plan, |it| it == member);
    assert!(is_lost(&world, 1), "it is down, too");
    let mut other = member(&mut world, 1).clone();
    other.server_type = ServerType::RsSecondary;
    world.oracle.current.members.insert(MemberId(3), other);
    assert!(is_lost(&world, 1) && !is_lost(&world, 3));
}

/// A member that joins while all whom a client knows are going for good need never be known to it
/// (found by seed 901).
#[test]
fn a_client_that_is_excused_learns_nothing_by_that() {
    let mut world = quiet_world(PLAIN);
    let plan = world.clients[0].plan.clone();
    assert!(world.oracle.is_known(&world.clients[0].view(), &plan));
    let was_right = world.clients[0].was_right;
    assert!(was_right.is_some());
    step_until(&mut world, Instant::from_millis(61_000));
    let mut newcomer = member(&mut world, 1).clone();
    newcomer.server_type = ServerType::RsSecondary;
    for down in 0..3 {
        world.input(Input::Kill { member: MemberId(down) });
    }
    step_until(&mut world, Instant::from_millis(300_000));
    world.network.now = Instant::from_millis(300_500);
    world.oracle.current.members.insert(MemberId(3), newcomer);
    let right = world.clients[0].was_right;
    assert_eq!(finding(&mut world), None, "it is excused");
    assert_eq!(world.clients[0].was_right, right, "and not right");
}

/// SDAM, "updateRSFromPrimary": what a view takes for the latest primary before 6.0.
#[test]
fn a_primary_that_nobody_was_is_no_reason_to_take_another_one_for_stale() {
    let mut world = quiet_world("upgrade-across-6.0");
    assert_eq!(world.plan.cluster.version, ServerVersion::V5_0);
    let view = world.clients[0].view();
    let primary = view.primary().expect("nothing is wrong").address.clone();
    let primary = world.plan.cluster.members.iter().position(|it| it.address == primary).unwrap();
    let stale = |world: &mut World| {
        let known = member(world, primary).clone();
        world.oracle.is_taken_for_stale(&known, &view)
    };
    assert!(!stale(&mut world), "it is what the view says");
    member(&mut world, primary).set_version = Some(0);
    assert!(stale(&mut world), "one with a later configuration was primary");
    world.oracle.configurations.clear();
    assert!(!stale(&mut world), "no primary ever had such a configuration");
}

/// SDAM, "updateRSFromPrimary": a primary that is cut off from the others goes on, while a later
/// one was elected and has stepped down (found by seed 15021373).
#[test]
fn a_primary_is_stale_once_a_later_one_was_elected() {
    let mut world = quiet_world(PLAIN);
    let (view, primary) = (world.clients[0].view(), primary(&world));
    let suits = |world: &World| {
        world.oracle.suitable_since(primary, &Criteria::write(), &view, false).is_some()
    };
    assert!(suits(&world), "it is what the view says");
    member(&mut world, primary).election_id = Some(ObjectId::from_bytes([0; 12]));
    assert!(!suits(&world), "the view has the election of a later one");
    world.oracle.elections.clear();
    assert!(suits(&world), "no member has won that election");
}

/// Returns the number of the primary, as all clients see it.
fn primary(world: &World) -> usize {
    let view = world.clients[0].view();
    let primary = &view.primary().expect("nothing is wrong").address;
    world.plan.cluster.members.iter().position(|it| it.address == *primary).unwrap()
}

fn check(finding: Result<(), super::Violation>) -> Option<&'static str> {
    finding.err().map(|violation| violation.check)
}

#[test]
fn a_scan_that_passes_a_server_by_is_found() {
    let world = quiet_world(PLAIN);
    let gave_up = |since| {
        let criteria = Arc::new(Criteria::write());
        check(world.check_gave_up(0, &GaveUp { criteria, since: Instant::from_millis(since) }))
    };
    assert_eq!(gave_up(60_000), Some("a scan finds a server that is reachable"));
    assert_eq!(gave_up(10_000), None, "nothing was promised yet");
}

/// SDAM, "updateRSFromPrimary": a member that claims to be primary, and is not any more, is
/// refused.
#[test]
fn a_primary_that_was_superseded_suits_nobody_and_the_other_one_does() {
    let mut world = quiet_world(PLAIN);
    let first = primary(&world);
    let second = (first + 1) % 3;
    let suitable = |world: &World, member| {
        let view = world.clients[0].view();
        world.oracle.suitable_since(member, &Criteria::write(), &view, false).is_some()
    };
    assert_eq!([first, second].map(|it| suitable(&world, it)), [true, false]);
    let claim = |election: u8| {
        let election_id = Some(ObjectId::from_bytes([election; 12]));
        move |it: &mut MemberState| {
            (it.server_type, it.election_id) = (ServerType::RsPrimary, election_id);
        }
    };
    claim(0xff)(member(&mut world, second));
    assert_eq!(
        [first, second].map(|it| suitable(&world, it)),
        [false, true],
        "it was elected later"
    );
    claim(0)(member(&mut world, second));
    assert_eq!([first, second].map(|it| suitable(&world, it)), [true, false], "it was before");
}

/// An operation that waits without success is excused while the only one that it could use is
/// superseded.
#[test]
fn an_operation_that_waits_for_a_primary_is_helped_unless_that_was_superseded() {
    let mut world = quiet_world(PLAIN);
    let (first, now) = (primary(&world), world.network.now);
    let second = (first + 1) % 3;
    let gave_up = |world: &World| {
        let criteria = Arc::new(Criteria::write());
        check(world.check_gave_up(0, &GaveUp { criteria, since: now }))
    };
    assert!(gave_up(&world).is_some());
    world.network.begin(0, second, Trouble::Refused);
    let newer = member(&mut world, second);
    newer.server_type = ServerType::RsPrimary;
    newer.election_id = Some(ObjectId::from_bytes([0xff; 12]));
    assert_eq!(gave_up(&world), None, "the newer one refuses connections");
}

#[test]
fn a_round_trip_that_stays_long_is_found() {
    let mut world = quiet_world(PLAIN);
    assert_eq!(check(world.check_round_trips(0)), None);
    // The members are next door, and have been for ten minutes.
    let latencies = [Duration::ZERO; 5];
    world.network = Network::new(2, 5, &latencies, Random::new(1));
    world.network.now = Instant::from_millis(660_000);
    assert_eq!(check(world.check_round_trips(0)), Some("round trips get short again"));
}

#[test]
fn an_application_that_reads_on_from_a_primary_that_is_none_is_found() {
    let mut world = quiet_world("cursor-on-a-demoted-primary");
    let (first, bounds) = (primary(&world), Bounds::of(&world.clients[0].options));
    let id = world.clients[0].view().primary().unwrap().id;
    assert_eq!(check(world.check_cursor(0, id, bounds)), None);
    member(&mut world, first).server_type = ServerType::RsSecondary;
    let told = Some("a cursor on a demoted primary returns an error");
    assert_eq!(check(world.check_cursor(0, id, bounds)), told);
}

#[test]
fn what_is_left_in_the_end_is_found() {
    let world = quiet_world(PLAIN);
    let (client, violation) = world.look_for_leaks().unwrap_err();
    assert_eq!((client, violation.check), (0, "everything that began has ended"));
}

#[test]
fn a_load_balancer_is_seen_by_whoever_uses_one_and_by_nobody_else() {
    let (set, balanced) = (quiet_world(PLAIN), quiet_world("mongos-behind-a-balancer"));
    let view = |world: &World| world.clients[0].view();
    let plan = &balanced.clients[0].plan;
    let judge = |view: Arc<_>| check(balanced.oracle.compare(&view, plan, |_| false, |_| None));
    assert_eq!(judge(view(&balanced)), None);
    assert_eq!(judge(view(&set)), Some("a load balancer is what the options say"));
}

#[test]
fn a_client_that_connects_directly_is_judged_between_two_faults_too() {
    let mut world = direct_world();
    let verdicts = world.statistics.verdicts;
    assert_eq!(finding(&mut world), None);
    assert_eq!(world.statistics.verdicts, verdicts + 1);
    member(&mut world, ONLY).set_version = Some(99);
    assert_eq!(finding(&mut world), Some("when faults stop, the view becomes the truth"));
    world.oracle.changed = world.network.now;
    assert_eq!(finding(&mut world), None, "it could not know yet");
}

#[test]
fn a_client_that_connects_directly_never_has_to_know_anybody_else() {
    let mut world = direct_world();
    assert_eq!(finding(&mut world), None);
    let known = [0, 1, 2].map(|member| world.must_know(0, member).is_some());
    assert_eq!(known, [0, 1, 2].map(|member| member == ONLY));
}
