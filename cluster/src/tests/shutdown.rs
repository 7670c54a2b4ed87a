//! Members that are asked to end. What they say is what servers 4.2.6 to 6.0.5 say when they are
//! sent SIGTERM.

use bson::rawdoc;
use sdam_core::bson;
use sdam_core::wire::Flags;

use super::{
    AWAITABLE, Action, ClusterOptions, Input, MemberId, SECOND, ServerVersion, World, awaitable,
    body, counter, options,
};
use crate::{ClusterEvent, Deployment};

/// A second and a half of election timeouts of 2 s.
const QUIESCE: std::time::Duration = std::time::Duration::from_secs(3);

/// SDAM, "node is shutting down" and topologyVersion.
#[test]
fn an_awaitable_hello_is_answered_at_once_by_an_error_with_a_newer_topology_version() {
    for version in AWAITABLE.into_iter().skip(1) {
        let mut world = World::settled(version);
        let member = world.secondary();
        let seen = world.hello(member);
        let connection = world.connect(member);
        world.request(connection, Flags::EXHAUST_ALLOWED, &awaitable(&seen, 60 * SECOND));
        world.handle(Input::Shutdown { member });
        let replies = world.replies(connection);
        assert_eq!((replies.len(), replies[0].0), (1, world.now));
        assert_eq!(replies[0].1.op_msg().unwrap().flags, Flags::NONE, "the stream ends");
        let shutdown_reply = body(&replies[0].1);
        assert_eq!(shutdown_reply.get_f64("ok").unwrap(), 0.0);
        assert_eq!(shutdown_reply.get_i32("code").unwrap(), 91);
        assert_eq!(shutdown_reply.get_str("codeName").unwrap(), "ShutdownInProgress");
        assert_eq!(shutdown_reply.get_i64("remainingQuiesceTimeMillis").unwrap(), 3000);
        assert_eq!(counter(&shutdown_reply), counter(&seen) + 1);
        assert!(!world.is_closed(connection));
        let again = world.ask(connection, &awaitable(&shutdown_reply, 60 * SECOND));
        assert_eq!(again.get_i32("code").unwrap(), 91, "and it does not wait");
        assert_eq!(counter(&again), counter(&shutdown_reply));
    }
}

#[test]
fn other_commands_go_on_until_the_process_ends() {
    let mut world = World::settled(ServerVersion::V5_0);
    let member = world.secondary();
    let old = world.connect(member);
    world.handle(Input::Shutdown { member });
    world.advance(QUIESCE / 2);
    let new = world.connect(member);
    let secondary = rawdoc! { "mode": "secondary" };
    let find = rawdoc! { "find": "x", "$db": "test", "$readPreference": secondary };
    for connection in [old, new] {
        assert_eq!(world.ask(connection, &find).get_f64("ok").unwrap(), 1.0);
    }
    world.handle(Input::Shutdown { member });
    world.log.clear();
    world.advance(QUIESCE / 2);
    assert_eq!(world.log[0].1, Action::Unlisten { member });
    assert!(world.is_closed(old) && world.is_closed(new));
    assert!(!world.model.get().is_running(member));
    world.handle(Input::Start { member });
    world.advance(SECOND);
    assert!(world.hello(member).get_bool("secondary").unwrap());
}

#[test]
fn a_primary_steps_down_first_and_is_replaced_while_it_still_speaks() {
    let mut world = World::settled(ServerVersion::V6_0);
    let member = world.primary().unwrap();
    let seen = world.hello(member);
    let connection = world.connect(member);
    world.request(connection, Flags::EXHAUST_ALLOWED, &awaitable(&seen, 60 * SECOND));
    world.handle(Input::Shutdown { member });
    let heard: Vec<_> = world.replies(connection).iter().map(|(_, it)| body(it)).collect();
    assert_eq!(heard.len(), 2);
    assert!(heard[0].get_bool("secondary").unwrap());
    assert_eq!(heard[1].get_i32("code").unwrap(), 91);
    assert_eq!([counter(&heard[0]), counter(&heard[1])], [1, 2].map(|it| counter(&seen) + it));
    let insert = rawdoc! { "insert": "x", "documents": [{}], "$db": "test" };
    assert_eq!(world.ask(connection, &insert).get_i32("code").unwrap(), 10107);
    world.advance(QUIESCE / 3);
    assert!(world.model.get().is_running(member));
    assert!(world.primary().is_some_and(|primary| primary != member));
}

#[test]
fn the_only_member_does_not_become_primary_again_while_it_ends() {
    let mut single = options(ServerVersion::V6_0);
    single.members.truncate(1);
    let mut world = World::new(single);
    world.advance(SECOND);
    world.handle(Input::Shutdown { member: MemberId(0) });
    world.advance(60 * SECOND);
    assert_eq!(world.model.get().term(), 1);
    assert!(!world.model.get().is_running(MemberId(0)));
}

#[test]
fn before_5_0_a_member_dies_without_a_farewell() {
    for version in [ServerVersion::V4_2, ServerVersion::V4_4] {
        let mut world = World::settled(version);
        let member = world.primary().unwrap();
        let connection = world.connect(member);
        world.log.clear();
        world.handle(Input::Shutdown { member });
        let actions: Vec<_> = world.log.iter().map(|(_, action)| action.clone()).collect();
        let expected = [
            Action::Publish { event: ClusterEvent::SteppedDown { member } },
            Action::Unlisten { member },
            Action::Close { connection },
        ];
        assert_eq!(actions, expected);
        world.advance(SECOND / 2);
        assert!(world.primary().is_some());
    }
}

#[test]
fn a_mongos_says_farewell_too() {
    let deployment = Deployment::Sharded;
    let mut world = World::new(ClusterOptions { deployment, ..options(ServerVersion::V7_0) });
    let member = MemberId(1);
    let seen = world.hello(member);
    world.handle(Input::Shutdown { member });
    let shutdown_reply = world.hello(member);
    assert_eq!(shutdown_reply.get_i32("code").unwrap(), 91);
    assert_eq!(counter(&shutdown_reply), counter(&seen) + 1);
    world.advance(QUIESCE);
    assert!(!world.model.get().is_running(member));
}
