//! Members that read and do not answer.

use bson::rawdoc;
use sdam_core::bson;
use sdam_core::wire::Flags;

use super::{Input, SECOND, ServerVersion, World, awaitable, body};

#[test]
fn a_frozen_member_answers_nobody_until_it_is_thawed() {
    let mut world = World::settled(ServerVersion::V6_0);
    let member = world.secondary();
    let seen = world.hello(member);
    let [awaiting, old] = [world.connect(member), world.connect(member)];
    world.request(awaiting, Flags::NONE, &awaitable(&seen, SECOND));
    world.handle(Input::Freeze { member });
    let new = world.connect(member);
    let ping = rawdoc! { "ping": 1, "$db": "admin" };
    for connection in [old, new, new] {
        world.request(connection, Flags::NONE, &ping);
    }
    world.advance(60 * SECOND);
    let counts = [awaiting, old, new].map(|it| world.replies(it).len());
    assert_eq!(counts, [0, 0, 0]);
    assert!(world.primary().is_some(), "elections do not notice");

    world.handle(Input::Thaw { member });
    let counts = [awaiting, old, new].map(|it| world.replies(it).len());
    assert_eq!(counts, [1, 1, 2]);
}

#[test]
fn what_happened_meanwhile_is_told_by_a_stream_when_its_member_thaws() {
    let mut world = World::settled(ServerVersion::V6_0);
    let member = world.primary().unwrap();
    let seen = world.hello(member);
    let stream = world.connect(member);
    world.request(stream, Flags::EXHAUST_ALLOWED, &awaitable(&seen, 600 * SECOND));
    world.handle(Input::Freeze { member });
    world.handle(Input::StepDown { member });
    assert!(world.replies(stream).is_empty());
    world.handle(Input::Thaw { member });
    let told = world.replies(stream);
    assert_eq!(told.len(), 1);
    assert!(!body(&told[0].1).get_bool("isWritablePrimary").unwrap());
}

#[test]
fn a_blocked_command_of_a_frozen_member_is_answered_no_earlier_than_the_block_ends() {
    let mut world = World::settled(ServerVersion::V6_0);
    let member = world.secondary();
    let connection = world.connect(member);
    let data = rawdoc! { "failCommands": ["ping"], "blockConnection": true, "blockTimeMS": 5000 };
    let configure = rawdoc! {
        "configureFailPoint": "failCommand", "mode": "alwaysOn", "data": data, "$db": "admin",
    };
    world.ask(connection, &configure);
    let begin = world.now;
    world.request(connection, Flags::NONE, &rawdoc! { "ping": 1, "$db": "admin" });
    world.handle(Input::Freeze { member });
    world.advance(SECOND);
    world.handle(Input::Thaw { member });
    assert!(world.replies(connection).is_empty());
    world.advance(10 * SECOND);
    assert_eq!(world.replies(connection)[0].0, begin + 5 * SECOND);
}
