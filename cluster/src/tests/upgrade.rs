//! Members of different versions in one set, members that change theirs, and what goes with it.

use bson::rawdoc;
use sdam_core::bson;

use super::{Input, MemberId, SECOND, ServerVersion, World, addresses, member, options};
use crate::{Change, ClusterOptions, MemberOptions};

fn wire_version(world: &mut World, member: usize) -> i32 {
    let connection = world.connect(MemberId(member));
    let reply = world.ask(connection, &rawdoc! { "isMaster": 1, "$db": "admin" });
    reply.get_i32("maxWireVersion").unwrap()
}

#[test]
fn members_of_one_set_may_differ_in_their_versions() {
    let versions = [(MemberId(1), ServerVersion::V6_0), (MemberId(2), ServerVersion::V4_2)];
    let mut world =
        World::new(ClusterOptions { versions: versions.into(), ..options(ServerVersion::V5_0) });
    world.advance(SECOND);
    assert!(world.primary().is_some());
    assert_eq!([0, 1, 2].map(|it| wire_version(&mut world, it)), [13, 17, 8]);
    // Those of 4.2 have nothing to wait for, whatever the others have.
    let connection = world.connect(MemberId(2));
    let reply = world.ask(connection, &rawdoc! { "isMaster": 1, "$db": "admin" });
    assert!(reply.get("topologyVersion").unwrap().is_none());
}

#[test]
fn a_member_has_another_version_from_its_next_start_on() {
    let mut world = World::settled(ServerVersion::V5_0);
    let upgraded = world.secondary();
    world.handle(Input::Upgrade { member: upgraded, version: ServerVersion::V6_0 });
    assert_eq!(wire_version(&mut world, upgraded.0), 13);
    world.handle(Input::Kill { member: upgraded });
    world.handle(Input::Start { member: upgraded });
    world.advance(SECOND);
    assert_eq!(wire_version(&mut world, upgraded.0), 17);
    let state = world.model.get().state(None);
    assert_eq!(state.members[&upgraded].max_wire_version, Some(17));
}

#[test]
fn every_version_has_neighbours() {
    for pair in ServerVersion::ALL.windows(2) {
        assert_eq!(pair[0].neighbour(true), pair[1]);
        assert_eq!(pair[1].neighbour(false), pair[0]);
    }
}

/// As on real servers: each hello is answered by the configuration of that moment.
#[test]
fn a_new_member_tells_the_addresses_of_a_horizon_as_soon_as_it_knows_them() {
    let outside = |own: &str, outside: &str| MemberOptions {
        horizons: [("outside".to_owned(), outside.parse().unwrap())].into(),
        ..member(own)
    };
    let mut world = World::of(ServerVersion::V6_0, &[outside("a:1", "out-a:11")]);
    world.reconfig(&[Change::Add(outside("b:2", "out-b:12"))]);
    let connection = world.connect(MemberId(1));
    world.handle(Input::ServerName { connection, name: "out-b" });
    let hello = rawdoc! { "hello": 1, "$db": "admin" };
    assert_eq!(addresses(&world.ask(connection, &hello), "hosts"), [""; 0]);
    world.advance(SECOND);
    let reply = world.ask(connection, &hello);
    assert_eq!(reply.get_str("me").unwrap(), "out-b:12");
}

/// A test that waits for the end of changes can see that it has come.
#[test]
fn a_deployment_at_rest_changes_only_when_it_is_told_to() {
    let mut world = World::settled(ServerVersion::V6_0);
    let rests = |world: &World| world.model.get().is_at_rest();
    let revision = |world: &World| world.model.get().revision();
    assert!(rests(&world));
    let (before, state) = (revision(&world), world.model.get().state(None));
    world.advance(60 * SECOND);
    assert_eq!((revision(&world), world.model.get().state(None)), (before, state));
    let (primary, other) = (world.primary().unwrap(), world.secondary());
    world.handle(Input::Kill { member: primary });
    assert!(!rests(&world), "an election is due");
    assert!(revision(&world) > before);
    world.advance(5 * SECOND);
    assert!(rests(&world));
    world.handle(Input::Kill { member: other });
    world.advance(5 * SECOND);
    world.handle(Input::Kill { member: MemberId(3 - primary.0 - other.0) });
    assert!(rests(&world) && world.primary().is_none(), "no member is left to be elected");
}
