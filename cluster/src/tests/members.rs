//! Kinds of members: who is named where, who votes, and who becomes primary. The replies are those
//! of servers 4.2.6 to 6.0.5 with the same configuration.

use bson::rawdoc;
use sdam_core::bson;
use sdam_core::machine::Machine;

use super::{
    Input, MemberId, MemberOptions, SECOND, ServerVersion, World, addresses, arbiter, hidden, is,
    member, passive,
};
use crate::{Cluster, ClusterOptions, OptionsError};

const A: MemberId = MemberId(0);
const B: MemberId = MemberId(1);
const HIDDEN: MemberId = MemberId(2);
const ARBITER: MemberId = MemberId(3);
const PASSIVE: MemberId = MemberId(4);

fn all_kinds() -> Vec<MemberOptions> {
    vec![member("a:1"), member("b:2"), hidden("c:3"), arbiter("d:4"), passive("e:5")]
}

#[test]
fn every_member_names_all_but_the_hidden_one_each_in_its_list() {
    for version in [ServerVersion::V4_2, ServerVersion::V6_0, ServerVersion::V8_0] {
        let mut world = World::of(version, &all_kinds());
        for id in (0..5).map(MemberId) {
            let connection = world.connect(id);
            let reply = world.ask(connection, &rawdoc! { "isMaster": 1, "$db": "admin" });
            assert_eq!(addresses(&reply, "hosts"), ["a:1", "b:2"]);
            assert_eq!(addresses(&reply, "passives"), ["e:5"]);
            assert_eq!(addresses(&reply, "arbiters"), ["d:4"]);
            assert_eq!(reply.get_str("me").unwrap(), all_kinds()[id.0].address.to_string());
            let primary = all_kinds()[world.primary().unwrap().0].address.to_string();
            assert_eq!(reply.get_str("primary").unwrap(), primary);
            assert!(reply.get_document("lastWrite").is_ok());
        }
    }
}

#[test]
fn a_member_says_what_it_is_and_of_lists_only_those_with_members() {
    let mut world = World::of(ServerVersion::V6_0, &all_kinds());
    let flags = ["secondary", "passive", "hidden", "arbiterOnly"];
    let mut says = |member| {
        let reply = world.hello(member);
        flags.map(|flag| is(&reply, flag))
    };
    assert_eq!(says(HIDDEN), [true, true, true, false]);
    assert_eq!(says(ARBITER), [false, false, false, true]);
    assert_eq!(says(PASSIVE), [true, true, false, false]);
    let mut plain = World::settled(ServerVersion::V6_0);
    let reply = plain.hello(A);
    for absent in ["passives", "arbiters", "passive", "hidden", "arbiterOnly"] {
        assert!(reply.get(absent).unwrap().is_none(), "{absent}");
    }
}

#[test]
fn arbiters_hidden_and_passive_members_vote_but_are_never_elected() {
    let mut world = World::of(ServerVersion::V6_0, &all_kinds());
    for _ in 0..4 {
        let primary = world.primary().expect("A or B");
        assert!([A, B].contains(&primary), "{primary:?}");
        world.handle(Input::Kill { member: primary });
        world.advance(5 * SECOND);
        assert!(world.primary().is_some(), "four of five are a majority");
        world.handle(Input::Start { member: primary });
        world.advance(SECOND);
    }
    world.handle(Input::Kill { member: A });
    world.handle(Input::Kill { member: B });
    world.advance(60 * SECOND);
    assert_eq!(world.primary(), None, "three of five vote, and none can be elected");
    world.handle(Input::Start { member: B });
    world.advance(5 * SECOND);
    assert_eq!(world.primary(), Some(B));
}

#[test]
fn an_arbiter_makes_a_majority_of_two() {
    let mut world =
        World::of(ServerVersion::V4_2, &[member("a:1"), passive("b:2"), arbiter("c:3")]);
    world.handle(Input::Kill { member: B });
    world.advance(60 * SECOND);
    assert_eq!(world.primary(), Some(A));
    world.handle(Input::Kill { member: MemberId(2) });
    world.advance(60 * SECOND);
    assert_eq!(world.primary(), None);
    assert_eq!(world.model.deadline(), None);
}

/// A read from an arbiter is refused with the codes of real servers.
#[test]
fn an_arbiter_is_neither_read_nor_written() {
    let mut world = World::of(ServerVersion::V6_0, &all_kinds());
    let connection = world.connect(ARBITER);
    let secondary = rawdoc! { "mode": "secondary" };
    let cases = [
        (rawdoc! { "find": "x", "$db": "test" }, 13435),
        (rawdoc! { "find": "x", "$db": "test", "$readPreference": secondary }, 13436),
        (rawdoc! { "insert": "x", "documents": [{}], "$db": "test" }, 10107),
        (rawdoc! { "ping": 1, "$db": "admin" }, 0),
    ];
    for (command, code) in cases {
        let reply = world.ask(connection, &command);
        assert_eq!(reply.get_i32("code").unwrap_or(0), code, "{command:?}");
    }
}

#[test]
fn members_that_cannot_be_configured_are_refused() {
    let refusal = |members: &[MemberOptions]| {
        let options = ClusterOptions::new("rs", []);
        Cluster::new(ClusterOptions { members: members.to_vec(), ..options }).unwrap_err()
    };
    let visible = MemberOptions { hidden: true, ..member("b:2") };
    let error = OptionsError::Priority { address: "b:2".parse().unwrap(), priority: 1 };
    assert_eq!(refusal(&[member("a:1"), visible]), error);
    let eager = MemberOptions { priority: 1001, ..member("a:1") };
    assert!(matches!(refusal(&[eager]), OptionsError::Priority { priority: 1001, .. }));
    assert_eq!(refusal(&[passive("a:1"), arbiter("b:2")]), OptionsError::NobodyElectable);
}
