//! Changes of the configuration. What members say then is what servers 4.2.6 to 6.0.5 say.

use std::time::Duration;

use bson::rawdoc;
use sdam_core::bson;
use sdam_core::wire::Flags;

use super::{
    AWAITABLE, Action, Input, MemberId, MemberOptions, SECOND, ServerVersion, World, addresses,
    arbiter, awaitable, body, counter, hidden, is, member, passive,
};
use crate::{Change, OptionsError, ReconfigError};

const NEW: MemberId = MemberId(3);

fn set_version(reply: &bson::RawDocument) -> i32 {
    reply.get_i32("setVersion").unwrap()
}

#[test]
fn the_primary_reports_a_change_at_once_and_the_others_soon() {
    for version in AWAITABLE {
        let mut world = World::settled(version);
        let (primary, secondary) = (world.primary().unwrap(), world.secondary());
        let streams = [primary, secondary].map(|it| {
            let seen = world.hello(it);
            let connection = world.connect(it);
            let hello = awaitable(&seen, 60 * SECOND);
            world.request(connection, Flags::EXHAUST_ALLOWED, &hello);
            (connection, counter(&seen))
        });
        let tagged = MemberOptions {
            tags: vec![("dc".into(), "sf".into())],
            ..member(["a:1", "b:2", "c:3"][secondary.0])
        };
        let changed = world.now;
        world.reconfig(&[Change::Set(secondary, tagged)]);
        world.advance(SECOND);
        for (connection, counted) in streams {
            let replies = world.replies(connection);
            assert_eq!(replies.len(), 1, "one change, one reply");
            assert!(replies[0].0 - changed < Duration::from_millis(200));
            assert_eq!(set_version(&body(&replies[0].1)), 2);
            assert_eq!(counter(&body(&replies[0].1)), counted + 1);
        }
        let reply = world.hello(secondary);
        assert_eq!(reply.get_document("tags").unwrap().get_str("dc").unwrap(), "sf");
    }
}

#[test]
fn a_member_that_becomes_hidden_vanishes_from_all_lists() {
    let mut world = World::settled(ServerVersion::V6_0);
    let secondary = world.secondary();
    let address = ["a:1", "b:2", "c:3"][secondary.0];
    world.reconfig(&[Change::Set(secondary, hidden(address))]);
    world.advance(SECOND);
    for id in (0..3).map(MemberId) {
        let reply = world.hello(id);
        assert_eq!(addresses(&reply, "hosts").len(), 2);
        assert!(!addresses(&reply, "hosts").contains(&address.to_owned()));
        assert_eq!(is(&reply, "hidden"), id == secondary);
    }
}

/// Its connections close except those that never said hello, and from then on it is RSGhost.
#[test]
fn a_removed_member_hangs_up_and_is_a_ghost() {
    for version in AWAITABLE {
        let mut world = World::settled(version);
        let removed = world.secondary();
        let seen = world.hello(removed);
        let [waiting, greeted, silent] = [(); 3].map(|()| world.connect(removed));
        world.request(waiting, Flags::NONE, &awaitable(&seen, 60 * SECOND));
        world.ask(greeted, &rawdoc! { "hello": 1, "$db": "admin" });
        world.ask(silent, &rawdoc! { "ping": 1, "$db": "admin" });
        world.reconfig(&[Change::Remove(removed)]);
        world.advance(SECOND);
        let closed = [waiting, greeted, silent].map(|it| world.is_closed(it));
        assert_eq!(closed, [true, true, false]);
        assert!(world.replies(waiting).is_empty());
        let reply = world.hello(removed);
        assert!(is(&reply, "isreplicaset"));
        assert!(!is(&reply, "secondary") && !is(&reply, "isWritablePrimary"));
        for absent in ["setName", "hosts", "setVersion", "me", "primary"] {
            assert!(reply.get(absent).unwrap().is_none(), "{absent}");
        }
        assert_eq!(counter(&reply), counter(&seen) + 1);
        let primary = world.primary().unwrap();
        let hosts = addresses(&world.hello(primary), "hosts");
        assert_eq!(hosts.len(), 2);
        world.handle(Input::Kill { member: removed });
        world.advance(60 * SECOND);
        assert_eq!(world.primary(), Some(primary), "it votes no more");
    }
}

#[test]
fn before_4_4_a_removed_member_still_says_the_name_of_its_set() {
    let mut world = World::settled(ServerVersion::V4_2);
    let removed = world.secondary();
    world.reconfig(&[Change::Remove(removed)]);
    world.advance(SECOND);
    let connection = world.connect(removed);
    let reply = world.ask(connection, &rawdoc! { "isMaster": 1, "$db": "admin" });
    assert!(is(&reply, "isreplicaset"));
    assert_eq!(reply.get_str("setName").unwrap(), "rs");
}

#[test]
fn a_member_that_is_down_hears_of_its_removal_when_it_returns() {
    let mut world = World::settled(ServerVersion::V6_0);
    let removed = world.secondary();
    world.handle(Input::Kill { member: removed });
    world.reconfig(&[Change::Remove(removed)]);
    world.handle(Input::Start { member: removed });
    assert_eq!(set_version(&world.hello(removed)), 1);
    world.advance(SECOND);
    assert!(is(&world.hello(removed), "isreplicaset"));
}

/// A new member knows of no set, then syncs (RSOther), then follows; since 5.0 it is passive until
/// then, and the primary changes the configuration once more.
#[test]
fn an_added_member_is_a_ghost_then_syncs_and_then_follows() {
    for version in AWAITABLE {
        let admits = version != ServerVersion::V4_4;
        let mut world = World::settled(version);
        let primary = world.primary().unwrap();
        world.log.clear();
        world.reconfig(&[Change::Add(member("d:4"))]);
        assert!(world.log.iter().any(|(_, it)| *it == Action::Listen { member: NEW }));
        let fresh = world.hello(NEW);
        assert!(is(&fresh, "isreplicaset"));
        let waiting = world.connect(NEW);
        world.request(waiting, Flags::NONE, &awaitable(&fresh, 60 * SECOND));
        world.advance(SECOND);
        assert!(!world.is_closed(waiting));
        let syncing = body(&world.replies(waiting)[0].1);
        for reply in [&syncing, &world.hello(primary)] {
            assert_eq!(set_version(reply), 2);
            let list = if admits { "passives" } else { "hosts" };
            assert!(addresses(reply, list).contains(&"d:4".to_owned()));
        }
        assert!(!is(&syncing, "secondary") && !is(&syncing, "isWritablePrimary"));
        assert_eq!((is(&syncing, "passive"), syncing.get_str("me").unwrap()), (admits, "d:4"));
        let primary_address = ["a:1", "b:2", "c:3"][primary.0];
        assert_eq!(world.hello(NEW).get_str("primary").unwrap(), primary_address);
        world.advance(3 * SECOND);
        let synced = world.hello(NEW);
        assert!(is(&synced, "secondary") && !is(&synced, "passive"));
        assert_eq!(set_version(&synced), if admits { 3 } else { 2 });
        assert_eq!(addresses(&world.hello(primary), "hosts").len(), 4);
    }
}

#[test]
fn a_member_that_dies_while_it_syncs_begins_anew_and_an_arbiter_has_nothing_to_sync() {
    let mut world = World::settled(ServerVersion::V6_0);
    world.reconfig(&[Change::Add(passive("d:4")), Change::Add(arbiter("e:5"))]);
    world.advance(SECOND);
    assert!(is(&world.hello(MemberId(4)), "arbiterOnly"));
    world.handle(Input::Kill { member: NEW });
    world.handle(Input::Start { member: NEW });
    world.advance(Duration::from_millis(1900));
    assert!(!is(&world.hello(NEW), "secondary"));
    world.advance(Duration::from_millis(200));
    assert!(is(&world.hello(NEW), "secondary"));
}

#[test]
fn who_syncs_without_a_primary_waits_for_one_and_has_no_vote_till_then() {
    let mut world = World::settled(ServerVersion::V6_0);
    world.reconfig(&[Change::Add(member("d:4"))]);
    let (first, second) = (world.primary().unwrap(), world.secondary());
    // The others hear of it, or it would be lost with the primary.
    world.advance(SECOND);
    world.handle(Input::Kill { member: first });
    world.handle(Input::Kill { member: second });
    world.advance(30 * SECOND);
    assert_eq!(world.primary(), None, "one of three votes");
    assert!(!is(&world.hello(NEW), "secondary"));
    world.handle(Input::Start { member: first });
    world.advance(10 * SECOND);
    assert!(world.primary().is_some());
    assert!(is(&world.hello(NEW), "secondary"));
    assert_eq!(set_version(&world.hello(NEW)), 3);
}

/// A wait at a ghost that was a member before ends with a closed connection, without an answer.
#[test]
fn a_removed_member_that_is_added_again_is_the_same_server_with_its_data() {
    let mut world = World::settled(ServerVersion::V6_0);
    let member_id = world.secondary();
    let address = ["a:1", "b:2", "c:3"][member_id.0];
    world.reconfig(&[Change::Remove(member_id)]);
    world.advance(SECOND);
    let seen = world.hello(member_id);
    let waiting = world.connect(member_id);
    world.request(waiting, Flags::NONE, &awaitable(&seen, 60 * SECOND));
    world.reconfig(&[Change::Add(member(address))]);
    world.advance(SECOND);
    assert!(world.is_closed(waiting));
    let reply = world.hello(member_id);
    assert!(is(&reply, "secondary"), "there is nothing to sync");
    assert_eq!(set_version(&reply), 4, "and it has its vote back");
    assert_eq!(world.model.get().state(None).members.len(), 3);
}

#[test]
fn what_cannot_be_configured_is_refused_and_changes_nothing() {
    let mut world = World::settled(ServerVersion::V6_0);
    let (primary, secondary) = (world.primary().unwrap(), world.secondary());
    let [primary_address, address] = [primary, secondary].map(|it| ["a:1", "b:2", "c:3"][it.0]);
    let many = (4..9).map(|port| Change::Add(member(&format!("d:{port}")))).collect();
    let cases = [
        (vec![Change::Remove(primary)], ReconfigError::Primary(primary)),
        (vec![Change::Set(primary, passive(primary_address))], ReconfigError::Primary(primary)),
        (vec![Change::Remove(MemberId(9))], ReconfigError::NotMember(MemberId(9))),
        (vec![Change::Set(secondary, member("z:9"))], ReconfigError::Identity(secondary)),
        (vec![Change::Set(secondary, arbiter(address))], ReconfigError::Identity(secondary)),
        (
            vec![Change::Add(member(address))],
            OptionsError::SameAddress(address.parse().unwrap()).into(),
        ),
        (many, OptionsError::MemberCount { count: 8, most: 7 }.into()),
    ];
    for (changes, error) in cases {
        assert_eq!(world.model.get().check_reconfig(&changes), Err(error));
        world.handle(Input::Reconfig { changes: &changes });
    }
    assert_eq!(set_version(&world.hello(primary)), 1);
    world.handle(Input::StepDown { member: primary });
    let changes = [Change::Remove(secondary)];
    assert_eq!(world.model.get().check_reconfig(&changes), Err(ReconfigError::NoPrimary));
}

#[test]
fn an_address_never_belongs_to_two_servers() {
    let mut world = World::settled(ServerVersion::V6_0);
    let add = Change::Add(member("d:4"));
    world.reconfig(&[add.clone(), Change::Remove(NEW), add]);
    assert_eq!(world.model.get().state(None).members.len(), 4);
    let twice = OptionsError::SameAddress("e:5".parse().unwrap()).into();
    let add = Change::Add(member("e:5"));
    assert_eq!(world.model.get().check_reconfig(&[add.clone(), add]), Err(twice));
}

/// SDAM, "Why is it possible for maxSetVersion to go down?".
#[test]
fn a_configuration_that_no_other_member_has_heard_of_is_lost_with_its_primary() {
    let mut world = World::settled(ServerVersion::V6_0);
    let set_version = |world: &World, member| {
        world.model.get().state(None).members.get(&member).and_then(|it| it.set_version)
    };
    let dead = world.primary().unwrap();
    world.reconfig(&[Change::Add(member("d:4"))]);
    assert_eq!(set_version(&world, dead), Some(2));
    world.handle(Input::Kill { member: dead });
    world.advance(5 * SECOND);
    let primary = world.primary().unwrap();
    assert_eq!(set_version(&world, primary), Some(1));
    assert_eq!(world.model.get().state(None).known.len(), 3);
    // When it is back it learns what the others have decided without it.
    world.reconfig(&[Change::Set(primary, MemberOptions { priority: 3, ..member_of(primary) })]);
    world.handle(Input::Start { member: dead });
    world.advance(5 * SECOND);
    let state = world.model.get().state(None);
    assert_eq!(set_version(&world, dead), Some(2));
    assert_eq!(state.members[&dead].named, state.known);
}

fn member_of(id: MemberId) -> MemberOptions {
    member(["a:1", "b:2", "c:3"][id.0])
}
