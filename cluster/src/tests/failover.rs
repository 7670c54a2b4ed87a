//! Kills, step-downs and restarts, and what clients hear of them.

use std::time::Duration;

use bson::oid::ObjectId;
use sdam_core::bson;
use sdam_core::machine::Machine;
use sdam_core::wire::Flags;

use super::{Action, Input, MemberId, SECOND, ServerVersion, World, awaitable, body, counter};
use crate::ClusterEvent;

#[test]
fn all_members_listen_and_one_is_elected_within_half_a_second() {
    let mut world = World::new(super::options(ServerVersion::V6_0));
    let listen: Vec<Action> = world.log.drain(..).map(|(_, action)| action).collect();
    assert_eq!(listen, [0, 1, 2].map(|it| Action::Listen { member: MemberId(it) }));
    let starting = world.hello(MemberId(0));
    assert!(!starting.get_bool("secondary").unwrap());
    assert!(!starting.get_bool("isWritablePrimary").unwrap());
    world.advance(SECOND / 2);
    assert!(world.primary().is_some());
    assert_eq!(world.model.get().term(), 1);
}

#[test]
fn a_killed_primary_loses_its_connections_and_is_replaced_after_the_election_timeout() {
    let mut world = World::settled(ServerVersion::V6_0);
    let (primary, secondary) = (world.primary().unwrap(), world.secondary());
    let (lost, kept) = (world.connect(primary), world.connect(secondary));
    let seen = world.hello(secondary);
    world.request(kept, Flags::EXHAUST_ALLOWED, &awaitable(&seen, 60 * SECOND));
    let killed = world.now;
    world.log.clear();
    world.handle(Input::Kill { member: primary });
    assert_eq!(world.log[0], (killed, Action::Unlisten { member: primary }));
    assert!(world.is_closed(lost) && !world.is_closed(kept));
    assert_eq!(world.primary(), None);
    world.advance(3 * SECOND);
    let elected = world.log.iter().find_map(|(at, action)| match action {
        Action::Publish { event: ClusterEvent::Elected { member, term: 2 } } => {
            Some((*member, *at - killed))
        }
        _ => None,
    });
    let (winner, after) = elected.expect("a majority of two elects");
    assert_ne!(winner, primary);
    assert!((2 * SECOND..=Duration::from_millis(2300)).contains(&after), "{after:?}");
    // First the primary is gone, then there is another.
    let heard: Vec<_> = world.replies(kept).iter().map(|(_, it)| body(it)).collect();
    let primaries: Vec<_> = heard.iter().map(|it| it.get_str("primary").ok()).collect();
    let address = ["a:1", "b:2", "c:3"][winner.0];
    assert_eq!(primaries, [None, Some(address)]);
    let second_term = ObjectId::parse_str("7fffffff0000000000000002").unwrap();
    let reply = world.hello(winner);
    assert_eq!(reply.get_object_id("electionId").unwrap(), second_term);
}

/// Server Monitoring, "Awaitable hello": reply when the counter exceeds the client's.
#[test]
fn a_step_down_answers_the_awaiting_hellos_at_that_instant_and_keeps_connections() {
    let mut world = World::settled(ServerVersion::V6_0);
    let primary = world.primary().unwrap();
    let seen = world.hello(primary);
    let connection = world.connect(primary);
    world.request(connection, Flags::NONE, &awaitable(&seen, 60 * SECOND));
    world.advance(3 * SECOND);
    let stepped_down = world.now;
    world.handle(Input::StepDown { member: primary });
    let replies = world.replies(connection);
    assert_eq!(replies.len(), 1);
    assert_eq!(replies[0].0, stepped_down);
    let reply = body(&replies[0].1);
    assert!(reply.get_bool("secondary").unwrap());
    assert!(reply.get("primary").unwrap().is_none());
    assert_eq!(counter(&reply), counter(&seen) + 1);
    assert!(!world.is_closed(connection));
    world.advance(SECOND / 2);
    let winner = world.primary().expect("another member is elected shortly after");
    assert_ne!(winner, primary);
}

#[test]
fn a_restarted_member_is_another_process_that_soon_learns_the_primary() {
    let mut world = World::settled(ServerVersion::V6_0);
    let primary = world.primary().unwrap();
    let member = world.secondary();
    let before = world.hello(member);
    world.handle(Input::Kill { member });
    world.advance(30 * SECOND);
    let refused = world.connect(member);
    assert!(world.is_closed(refused));
    world.handle(Input::Start { member });
    let starting = world.hello(member);
    assert_eq!(counter(&starting), 0);
    let process_id = |reply: &bson::RawDocument| {
        let version = reply.get_document("topologyVersion").unwrap();
        version.get_object_id("processId").unwrap()
    };
    assert_ne!(process_id(&starting), process_id(&before));
    assert!(!starting.get_bool("secondary").unwrap());
    let written = |reply: &bson::RawDocument| {
        let last_write = reply.get_document("lastWrite").unwrap();
        last_write.get_datetime("lastWriteDate").unwrap()
    };
    assert_eq!(written(&starting), written(&before), "it missed what was written meanwhile");
    world.advance(SECOND / 2);
    let (reply, newest) = (world.hello(member), world.hello(primary));
    assert!(reply.get_bool("secondary").unwrap());
    assert_eq!(reply.get_str("primary").unwrap(), newest.get_str("me").unwrap());
    assert_eq!(written(&reply), written(&newest), "and has caught up");
}

#[test]
fn a_primary_that_loses_the_majority_steps_down_and_none_is_elected() {
    let mut world = World::settled(ServerVersion::V6_0);
    let primary = world.primary().unwrap();
    let stale = world.secondary();
    world.handle(Input::Kill { member: stale });
    world.advance(30 * SECOND);
    assert_eq!(world.primary(), Some(primary), "two of three are a majority");
    let member = world.secondary();
    world.handle(Input::Kill { member });
    assert_eq!(world.primary(), Some(primary), "it has not noticed yet");
    world.advance(60 * SECOND);
    assert_eq!(world.primary(), None);
    assert_eq!(world.model.deadline(), None, "nothing is left to be done");
    world.handle(Input::Start { member: stale });
    world.advance(5 * SECOND);
    assert_eq!(world.primary(), Some(primary), "the member with the newest oplog wins");
    assert_eq!(world.model.get().term(), 2);
}

#[test]
fn a_set_of_one_elects_its_only_member_again() {
    let mut single = super::options(ServerVersion::V6_0);
    single.members.truncate(1);
    let mut world = World::new(single);
    let member = MemberId(0);
    world.advance(SECOND);
    world.handle(Input::StepDown { member });
    assert_eq!(world.primary(), None);
    world.advance(SECOND);
    assert_eq!(world.primary(), Some(member));
    assert_eq!(world.model.get().term(), 2);
}
