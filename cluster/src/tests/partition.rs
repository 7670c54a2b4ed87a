//! Members that the others do not reach, while clients do; and members that are far away.

use std::time::Duration;

use bson::RawDocumentBuf;
use bson::rawdoc;
use sdam_core::bson;
use sdam_core::wire::Flags;

use super::{Input, MemberId, SECOND, ServerVersion, World, is};

fn election_id(reply: &RawDocumentBuf) -> String {
    reply.get_object_id("electionId").unwrap().to_hex()
}

/// Server Discovery And Monitoring, "Detecting stale primaries": two primaries, distinguished by
/// their election ids.
#[test]
fn a_primary_that_is_cut_off_takes_itself_for_one_after_the_others_have_elected_another() {
    let mut world = World::settled(ServerVersion::V6_0);
    let old = world.primary().unwrap();
    world.handle(Input::Cut { member: old });
    assert_eq!(world.primary(), None, "no member follows it");
    world.advance(2 * SECOND + SECOND / 2);
    let new = world.primary().expect("the majority elects");
    assert_ne!(new, old);
    let (stale, elected) = (world.hello(old), world.hello(new));
    assert!(is(&stale, "isWritablePrimary") && is(&elected, "isWritablePrimary"));
    assert_eq!(election_id(&stale), "7fffffff0000000000000001");
    assert_eq!(election_id(&elected), "7fffffff0000000000000002");

    world.advance(SECOND);
    let alone = world.hello(old);
    assert!(is(&alone, "secondary"), "it has noticed");
    assert!(alone.get_str("primary").is_err(), "and knows of no other");

    world.handle(Input::Heal { member: old });
    world.advance(SECOND);
    let reply = world.hello(old);
    assert_eq!(reply.get_str("primary").unwrap(), elected.get_str("me").unwrap());
    assert_eq!(world.primary(), Some(new));
}

#[test]
fn a_stale_primary_that_is_healed_hears_of_the_other_one_soon() {
    let mut world = World::settled(ServerVersion::V6_0);
    let old = world.primary().unwrap();
    world.handle(Input::Cut { member: old });
    world.advance(2 * SECOND + SECOND / 2);
    world.handle(Input::Heal { member: old });
    assert!(is(&world.hello(old), "isWritablePrimary"), "not yet");
    world.advance(SECOND / 5);
    assert!(is(&world.hello(old), "secondary"));
}

#[test]
fn a_primary_that_no_member_has_missed_goes_on_in_its_term() {
    let mut world = World::settled(ServerVersion::V6_0);
    let primary = world.primary();
    world.handle(Input::Cut { member: primary.unwrap() });
    world.advance(SECOND);
    world.handle(Input::Heal { member: primary.unwrap() });
    assert_eq!(world.primary(), primary);
    world.advance(60 * SECOND);
    assert_eq!(world.primary(), primary);
    assert_eq!(world.model.get().term(), 1);
}

#[test]
fn a_secondary_that_is_cut_off_stays_one_and_forgets_the_primary() {
    let mut world = World::settled(ServerVersion::V6_0);
    let (primary, member) = (world.primary(), world.secondary());
    world.handle(Input::Cut { member });
    assert!(world.hello(member).get_str("primary").is_ok(), "it has not noticed yet");
    world.advance(3 * SECOND);
    let alone = world.hello(member);
    assert!(is(&alone, "secondary") && alone.get_str("primary").is_err());
    assert_eq!(world.primary(), primary, "two of three are a majority");
    world.handle(Input::Kill { member });
    world.handle(Input::Start { member });
    world.advance(3 * SECOND);
    assert!(is(&world.hello(member), "secondary"), "it has its data, and the network is no better");
    assert!(world.hello(member).get_str("primary").is_err());
}

#[test]
fn without_a_majority_on_any_side_there_is_no_primary_in_the_end() {
    let mut world = World::settled(ServerVersion::V6_0);
    let primary = world.primary().unwrap();
    let member = world.secondary();
    world.handle(Input::Cut { member: primary });
    world.handle(Input::Cut { member });
    world.advance(60 * SECOND);
    let writable =
        |it: usize, world: &mut World| is(&world.hello(MemberId(it)), "isWritablePrimary");
    assert!((0..3).all(|it| !writable(it, &mut world)));
    world.handle(Input::Heal { member });
    world.advance(5 * SECOND);
    assert!(world.primary().is_some_and(|it| it != primary));
    assert_eq!(world.model.get().term(), 2);
}

#[test]
fn a_stale_primary_steps_down_when_it_is_asked_to() {
    let mut world = World::settled(ServerVersion::V6_0);
    let member = world.primary().unwrap();
    world.handle(Input::Cut { member });
    world.handle(Input::StepDown { member });
    assert!(is(&world.hello(member), "secondary"));
}

#[test]
fn a_member_that_is_far_away_takes_longer_for_hello_and_for_nothing_else() {
    let mut world = World::settled(ServerVersion::V6_0);
    let member = world.secondary();
    let latency = Duration::from_millis(200);
    world.handle(Input::HelloLatency { member, latency });
    let connection = world.connect(member);
    let asked = world.now;
    world.request(connection, Flags::NONE, &rawdoc! { "hello": 1, "$db": "admin" });
    world.advance(SECOND);
    assert_eq!(world.replies(connection)[0].0, asked + latency);
    world.ask(connection, &rawdoc! { "ping": 1, "$db": "admin" });
    world.handle(Input::HelloLatency { member, latency: Duration::ZERO });
    world.hello(member);
}
