//! Split horizon: the addresses that a client receives depend on the name by which it knows the
//! server.

use bson::rawdoc;
use sdam_core::bson;

use super::{
    ConnectionId, Input, MemberId, MemberOptions, SECOND, ServerVersion, World, addresses,
    awaitable, member,
};
use crate::{Change, Cluster, ClusterOptions, OptionsError};

fn two_horizons(own: &str, outside: &str) -> MemberOptions {
    let horizons = [("outside".to_owned(), outside.parse().unwrap())].into();
    MemberOptions { horizons, ..member(own) }
}

fn world() -> World {
    let members = [two_horizons("a:1", "out-a:11"), two_horizons("b:2", "out-b:12")];
    World::of(ServerVersion::V6_0, &members)
}

fn connect_as(world: &mut World, member: usize, name: &str) -> ConnectionId {
    let connection = world.connect(MemberId(member));
    world.handle(Input::ServerName { connection, name });
    connection
}

#[test]
fn a_client_is_told_the_addresses_of_its_own_horizon() {
    let mut world = world();
    let hello = rawdoc! { "hello": 1, "$db": "admin" };
    let outside = connect_as(&mut world, 0, "out-a");
    let reply = world.ask(outside, &hello);
    assert_eq!(addresses(&reply, "hosts"), ["out-a:11", "out-b:12"]);
    assert_eq!(reply.get_str("me").unwrap(), "out-a:11");
    let primary = ["out-a:11", "out-b:12"][world.primary().unwrap().0];
    assert_eq!(reply.get_str("primary").unwrap(), primary);
    // The horizons are found by the names of this very member.
    for name in ["a", "out-b", "elsewhere"] {
        let inside = connect_as(&mut world, 0, name);
        let reply = world.ask(inside, &hello);
        assert_eq!(addresses(&reply, "hosts"), ["a:1", "b:2"], "{name}");
        assert_eq!(reply.get_str("me").unwrap(), "a:1");
    }
}

/// As on real servers (SplitHorizonChange): what its clients know leads nowhere any more.
#[test]
fn a_change_of_horizons_closes_the_connections_that_wait() {
    let mut world = world();
    let seen = world.hello(MemberId(0));
    let (waiting, idle) = (connect_as(&mut world, 0, "out-a"), connect_as(&mut world, 0, "a"));
    world.request(waiting, super::Flags::NONE, &awaitable(&seen, 60 * SECOND));
    world.reconfig(&[
        Change::Set(MemberId(0), two_horizons("a:1", "new-a:11")),
        Change::Set(MemberId(1), two_horizons("b:2", "new-b:12")),
    ]);
    world.advance(SECOND);
    assert!(world.is_closed(waiting) && !world.is_closed(idle));
}

#[test]
fn all_members_have_the_same_horizons_and_no_address_twice() {
    let refusal = |members: [MemberOptions; 2]| {
        let options = ClusterOptions::new("rs", []);
        Cluster::new(ClusterOptions { members: members.to_vec(), ..options }).unwrap_err()
    };
    let lacking = refusal([two_horizons("a:1", "out-a:11"), member("b:2")]);
    assert_eq!(lacking, OptionsError::Horizons("b:2".parse().unwrap()));
    let twice = refusal([two_horizons("a:1", "out:11"), two_horizons("b:2", "out:11")]);
    assert_eq!(twice, OptionsError::SameAddress("out:11".parse().unwrap()));
}
