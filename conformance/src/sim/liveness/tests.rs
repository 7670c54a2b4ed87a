//! The checks of liveness can fail: histories that are made up, in which views are wrong.

use std::time::Duration;

use sdam_core::description::ServerType;
use sdam_core::time::Instant;

use crate::cluster::{Input, MemberId, MemberTruth, ServerVersion};
use crate::sim::bounds::Bounds;
use crate::sim::path::Trouble;
use crate::sim::plan::Plan;
use crate::sim::random::Random;
use crate::sim::scenario::SCENARIOS;
use crate::sim::trace::Observed;
use crate::sim::world::{Event, World};

/// A replica set of three with two clients, a minute after its beginning, and long before the last
/// fault.
fn quiet_world(name: &str) -> World {
    let mut random = Random::new(1);
    let scenario = SCENARIOS.iter().find(|it| it.name == name).unwrap();
    let mut plan = Plan { calm: Instant::from_millis(600_000), ..scenario.plan(&mut random) };
    plan.faults.clear();
    let mut world = World::new(plan, random, Observed::Nothing);
    while world.network.now < Instant::from_millis(60_000) {
        world.step().unwrap();
    }
    world
}

/// Single-threaded clients wait for longer than others do, so that they are judged by B, too.
#[test]
fn an_operation_on_one_thread_that_waits_in_vain_for_a_server_is_found() {
    let mut world = quiet_world("fork-of-a-single-thread");
    let forever = Instant::from_millis(3_600_000);
    world.clients.iter_mut().for_each(|client| client.plan.workload_ends = forever);
    for member in 0..3 {
        world.tell(Input::Kill { member: MemberId(member) });
    }
    world.network.plan(Duration::ZERO, Event::Operate { client: 0 });
    // In truth it is there, and is the primary, but nobody finds it.
    world.truth.current = world.cluster.truth(None);
    member(&mut world, 0).server_type = ServerType::RsPrimary;
    let bounds = Bounds::of_single_threaded(&world.clients[0].options, 5);
    let last = world.network.now + bounds.reachable + bounds.selection * 2;
    let found = std::iter::from_fn(|| (world.network.now < last).then(|| world.step()));
    let found = found.filter_map(Result::err).next().expect("somebody waits for long");
    assert_eq!(found.1.check, "selections end while a server is reachable");
}

fn finding(world: &mut World) -> Option<&'static str> {
    world.audit().err().map(|(_, violation)| violation.check)
}

fn member(world: &mut World, member: usize) -> &mut MemberTruth {
    world.truth.current.members.get_mut(&MemberId(member)).unwrap()
}

#[test]
fn a_view_that_is_wrong_between_two_faults_is_found() {
    let mut world = quiet_world("cold-pool");
    assert_eq!(finding(&mut world), None);
    assert!(world.statistics.verdicts > 0, "views are judged already");
    // It is down since the beginning, and no client has found out.
    member(&mut world, 2).server_type = ServerType::Unknown;
    assert_eq!(finding(&mut world), Some("when faults stop, the view becomes the truth"));
    world.truth.changed = world.network.now;
    assert_eq!(finding(&mut world), None, "nobody could know yet");
}

#[test]
fn a_view_must_have_what_members_say_of_themselves_and_of_others() {
    let wrong: [fn(&mut MemberTruth); 5] = [
        |it| it.set_version = Some(9),
        |it| it.max_wire_version = Some(99),
        |it| it.set_name = Some("other".to_owned()),
        |it| drop(it.tags.insert("dc".to_owned(), "east".to_owned())),
        |it| drop(it.named.pop_first()),
    ];
    for spoil in wrong {
        let mut world = quiet_world("cold-pool");
        assert_eq!(finding(&mut world), None);
        spoil(member(&mut world, 1));
        assert_eq!(finding(&mut world), Some("when faults stop, the view becomes the truth"));
    }
}

#[test]
fn a_client_must_know_whom_it_has_known_unless_the_name_has_led_elsewhere() {
    let mut world = quiet_world("cold-pool");
    assert_eq!(world.must_know(0, 1), Some(Instant::ZERO), "it began with it");
    assert_eq!(world.must_know(0, 3), None, "nobody ever named it");
    world.network.divert(0, 1, 2);
    assert_eq!(world.must_know(0, 1), None);
    world.network.end(0, 1, Trouble::Misdirected);
    assert_eq!(world.must_know(0, 1), None, "it may have forgotten it");
    assert_eq!(world.must_know(1, 1), Some(Instant::ZERO), "others are not concerned");
}

/// A client that has forgotten everybody cannot excuse itself by that nobody it knows answers.
#[test]
fn a_client_is_not_lost_while_somebody_answers_whom_it_must_know() {
    let mut world = quiet_world("cold-pool");
    let view = world.clients[0].view().description().clone();
    let plan = world.clients[0].plan.clone();
    // Nobody answers but one, of whom the view says nothing; it was a member all the time.
    for down in 0..3 {
        member(&mut world, down).server_type = ServerType::Unknown;
    }
    let is_lost = |world: &World, member| world.truth.is_lost(&view, &plan, |it| it == member);
    assert!(is_lost(&world, 1), "it is down, too");
    let other = member(&mut world, 1).clone();
    let other = MemberTruth { server_type: ServerType::RsSecondary, ..other };
    world.truth.current.members.insert(MemberId(3), other);
    assert!(is_lost(&world, 1) && !is_lost(&world, 3));
}

/// A member that joins while all whom a client knows are going for good need never be known to it
/// (found by seed 901).
#[test]
fn a_client_that_is_excused_learns_nothing_by_that() {
    let mut world = quiet_world("cold-pool");
    let plan = world.clients[0].plan.clone();
    assert!(world.truth.is_known(world.clients[0].view().description(), &plan));
    let was_right = world.clients[0].was_right;
    assert!(was_right.is_some());
    world.network.now = Instant::from_millis(61_000);
    let newcomer =
        MemberTruth { server_type: ServerType::RsSecondary, ..member(&mut world, 1).clone() };
    for down in 0..3 {
        world.tell(Input::Kill { member: MemberId(down) });
    }
    while world.network.now < Instant::from_millis(300_000) {
        world.step().unwrap();
    }
    world.network.now = Instant::from_millis(300_500);
    world.truth.current.members.insert(MemberId(3), newcomer);
    let right = world.clients[0].was_right;
    assert_eq!(finding(&mut world), None, "it is excused");
    assert_eq!(world.clients[0].was_right, right, "and not right");
}

/// SDAM, "updateRSFromPrimary": what a view takes for the latest primary before 6.0.
#[test]
fn a_primary_that_nobody_was_is_no_reason_to_take_another_one_for_stale() {
    let mut world = quiet_world("upgrade-across-6.0");
    assert_eq!(world.plan.cluster.version, ServerVersion::V5_0);
    let view = world.clients[0].view().description().clone();
    let primary = view.primary().expect("nothing is wrong").address.clone();
    let primary = world.plan.cluster.members.iter().position(|it| it.address == primary).unwrap();
    let stale = |world: &mut World| {
        let known = member(world, primary).clone();
        world.truth.is_taken_for_stale(&known, &view)
    };
    assert!(!stale(&mut world), "it is what the view says");
    member(&mut world, primary).set_version = Some(0);
    assert!(stale(&mut world), "one with a later configuration was primary");
    world.truth.configurations.clear();
    assert!(!stale(&mut world), "nobody ever had such a configuration");
}
