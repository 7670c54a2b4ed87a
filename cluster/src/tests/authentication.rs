//! Users and their logins: what real servers said to the same commands, they say here.

use std::sync::Arc;

use bson::spec::BinarySubtype;
use bson::{Binary, RawBson, RawDocument, RawDocumentBuf, rawdoc};
use sdam_core::auth::CredentialCache;
use sdam_core::bson;
use sdam_core::config::Options;
use sdam_core::failure::Stage;
use sdam_core::handshake::{Handshake, HandshakeOptions, HandshakeProgress};
use sdam_core::operation::OperationError;
use sdam_core::wire::{Flags, Frames, Message, write_op_msg, write_op_query};

use super::{
    ConnectionId, Input, MemberId, SECOND, ServerVersion, World, arbiter, member, options,
};
use crate::{Cluster, ClusterOptions, MAX_USERS, OptionsError, ScramMechanism, User, UserError};

const MEMBER: MemberId = MemberId(0);

/// The fewest iterations that there may be, lest a test take long.
const QUICK: u32 = 4096;

const BOTH: &str = "mongodb://both:secret@a/?authSource=admin";

fn users() -> Vec<User> {
    vec![
        User::new("both", "secret").with_iterations(QUICK),
        User::new("one", "1").with_mechanisms(&[ScramMechanism::Sha1]).with_iterations(QUICK),
        User::new("two", "2").with_mechanisms(&[ScramMechanism::Sha256]).with_iterations(QUICK),
        // Prepared with SASLprep it is "IX", and the name stays as it is.
        User::new("\u{2168}", "I\u{ad}X").with_iterations(QUICK),
        User::new("a,b=c", "x").of_database("shop").with_iterations(QUICK),
    ]
}

pub(super) fn world(version: ServerVersion) -> World {
    let mut world = World::new(ClusterOptions { users: users(), ..options(version) });
    world.advance(SECOND);
    world
}

pub(super) fn code(reply: &RawDocument) -> i32 {
    reply.get_i32("code").unwrap_or_default()
}

/// Runs a command that needs a login, and returns the code of the error.
pub(super) fn find(world: &mut World, connection: ConnectionId) -> i32 {
    let preference = rawdoc! { "mode": "nearest" };
    let find = rawdoc! { "find": "c", "$db": "test", "$readPreference": preference };
    code(&world.ask(connection, &find))
}

/// Has our own client log in, and returns the commands that it took besides hello.
fn log_in(world: &mut World, connection: ConnectionId, uri: &str) -> Result<usize, OperationError> {
    log_in_while(world, connection, uri, |_| {})
}

/// Has our own client log in, while something happens after the answer to hello.
fn log_in_while(
    world: &mut World,
    connection: ConnectionId,
    uri: &str,
    happens: impl FnOnce(&mut World),
) -> Result<usize, OperationError> {
    let options = Arc::new(Options::parse(uri).unwrap());
    let opening = HandshakeOptions::new(RawDocumentBuf::new(), [7; 24])
        .with_credential_cache(CredentialCache::default());
    let (mut out, mut happens) = (Vec::new(), Some(happens));
    let mut handshake = Handshake::start(&options, opening, &mut out)?;
    for exchanges in 0.. {
        world.receive(connection, &std::mem::take(&mut out));
        let replies = world.replies(connection);
        assert_eq!(replies.len(), 1, "one reply, and at once");
        match handshake.receive(replies[0].1.bytes(), &mut out)? {
            HandshakeProgress::Reading => {}
            HandshakeProgress::Asking(question) => panic!("SCRAM asks nothing: {question:?}"),
            HandshakeProgress::Done(_) => return Ok(exchanges),
        }
        if let Some(happens) = happens.take() {
            happens(world);
        }
    }
    unreachable!("it is done or fails")
}

/// The code of the server's error that refuses a login.
fn refusal(world: &mut World, connection: ConnectionId, uri: &str) -> i32 {
    match log_in(world, connection, uri).unwrap_err() {
        OperationError::Reply { stage: Stage::Authenticate, error } => error.code.unwrap(),
        other => panic!("not the server's: {other}"),
    }
}

pub(super) fn payload(bytes: &[u8]) -> RawBson {
    Binary { subtype: BinarySubtype::Generic, bytes: bytes.to_vec() }.into()
}

pub(super) fn start(payload: RawBson) -> RawDocumentBuf {
    rawdoc! { "saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": payload, "$db": "admin" }
}

pub(super) fn proceed(id: impl Into<RawBson>, payload: RawBson) -> RawDocumentBuf {
    let id = id.into();
    rawdoc! { "saslContinue": 1, "conversationId": id, "payload": payload, "$db": "admin" }
}

/// Says hello with a field besides, and returns the reply.
pub(super) fn hello_with(
    world: &mut World,
    connection: ConnectionId,
    field: &str,
    value: impl Into<RawBson>,
) -> RawDocumentBuf {
    let mut hello = rawdoc! { "isMaster": 1, "$db": "admin" };
    hello.append(<&bson::raw::CStr>::try_from(field).unwrap(), value.into());
    world.ask(connection, &hello)
}

#[test]
fn every_user_logs_in_by_every_mechanism_of_theirs_and_by_none_named() {
    // AUTH-P1; on 4.2 there is no speculation, and no way around the empty exchange.
    let cases = [
        ("both:secret", "admin", "", 1),
        ("both:secret", "admin", "SCRAM-SHA-1", 1),
        ("both:secret", "admin", "SCRAM-SHA-256", 1),
        ("one:1", "admin", "", 2),
        ("one:1", "admin", "SCRAM-SHA-1", 1),
        ("two:2", "admin", "", 1),
        ("two:2", "admin", "SCRAM-SHA-256", 1),
        ("%E2%85%A8:IX", "admin", "SCRAM-SHA-256", 1),
        ("%E2%85%A8:%E2%85%A8", "admin", "SCRAM-SHA-256", 1),
        ("a%2Cb%3Dc:x", "shop", "", 1),
    ];
    for version in ServerVersion::ALL {
        let mut world = world(version);
        for (login, database, mechanism, expected) in cases {
            let mut uri = format!("mongodb://{login}@a/?authSource={database}");
            if !mechanism.is_empty() {
                uri.push_str(&format!("&authMechanism={mechanism}"));
            }
            let connection = world.connect(MEMBER);
            assert_eq!(find(&mut world, connection), 13);
            let exchanges = log_in(&mut world, connection, &uri).unwrap();
            let expected = if version == ServerVersion::V4_2 { 3 } else { expected };
            assert_eq!(exchanges, expected, "{uri} on {version:?}");
            assert_eq!(find(&mut world, connection), 0, "{uri} on {version:?}");
        }
    }
}

#[test]
fn who_is_no_user_or_does_not_know_the_password_is_refused_and_may_try_again() {
    for version in ServerVersion::ALL {
        let mut world = world(version);
        let connection = world.connect(MEMBER);
        for wrong in [
            "mongodb://both:Secret@a/",
            "mongodb://both:Secret@a/?authMechanism=SCRAM-SHA-1",
            "mongodb://nobody:secret@a/",
            "mongodb://both:secret@a/?authSource=shop",
            "mongodb://one:1@a/?authMechanism=SCRAM-SHA-256",
            "mongodb://two:2@a/?authMechanism=SCRAM-SHA-1",
        ] {
            assert_eq!(refusal(&mut world, connection, wrong), 18, "{wrong} on {version:?}");
            assert_eq!(find(&mut world, connection), 13);
        }
        log_in(&mut world, connection, BOTH).unwrap();
        assert_eq!(find(&mut world, connection), 0);
    }
}

#[test]
fn without_a_login_there_are_only_commands_that_say_nothing_of_the_data() {
    let mut world = world(ServerVersion::V6_0);
    let primary = world.primary().unwrap();
    let connection = world.connect(primary);
    let code_of = |world: &mut World, name: &str| {
        let mut command = RawDocumentBuf::new();
        command.append(<&bson::raw::CStr>::try_from(name).unwrap(), 1);
        command.append(bson::raw::cstr!("$db"), "admin");
        code(&world.ask(connection, &command))
    };
    for open in ["ping", "hello", "isMaster", "ismaster", "buildInfo", "buildinfo"] {
        assert_eq!(code_of(&mut world, open), 0, "{open}");
    }
    assert_eq!(code_of(&mut world, "noSuchCommand"), 59);
    for guarded in [
        "configureFailPoint",
        "create",
        "createIndexes",
        "delete",
        "drop",
        "endSessions",
        "find",
        "findAndModify",
        "getMore",
        "getParameter",
        "insert",
        "killAllSessions",
        "killCursors",
        "logout",
        "replSetStepDown",
        "setParameter",
        "update",
    ] {
        let reply = code_of(&mut world, guarded);
        assert_eq!(reply, 13, "{guarded}");
    }
    log_in(&mut world, connection, BOTH).unwrap();
    assert_eq!(code_of(&mut world, "insert"), 0);
    assert_eq!(code_of(&mut world, "logout"), 0);
    assert_eq!(code_of(&mut world, "insert"), 13);
}

#[test]
fn a_deployment_without_users_demands_no_login_and_allows_none() {
    let mut world = World::settled(ServerVersion::V6_0);
    let connection = world.connect(MEMBER);
    assert_eq!(find(&mut world, connection), 0);
    assert_eq!(refusal(&mut world, connection, BOTH), 18);
    assert_eq!(find(&mut world, connection), 0);
}

#[test]
fn an_arbiter_knows_no_users_as_it_has_no_data() {
    let members = vec![member("a:1"), arbiter("b:2")];
    let mut world =
        World::new(ClusterOptions { members, users: users(), ..options(Default::default()) });
    world.advance(SECOND);
    let connection = world.connect(MemberId(1));
    assert_eq!(log_in(&mut world, connection, BOTH).unwrap(), 0, "clients know that");
    let reply = world.ask(connection, &start(payload(b"n,,n=both,r=abcdef")));
    assert_eq!(code(&reply), 18);
    let reply = hello_with(&mut world, connection, "saslSupportedMechs", "admin.both");
    assert_eq!(reply.get("saslSupportedMechs").unwrap(), None);
}

#[test]
fn logging_out_is_for_one_database() {
    let mut world = world(ServerVersion::V6_0);
    let connection = world.connect(MEMBER);
    log_in(&mut world, connection, BOTH).unwrap();
    for (database, expected) in [("shop", 0), ("admin", 13)] {
        let reply = world.ask(connection, &rawdoc! { "logout": 1, "$db": database });
        assert_eq!(code(&reply), 0);
        assert_eq!(find(&mut world, connection), expected);
    }
}

#[test]
fn from_6_0_on_a_connection_belongs_to_one_user() {
    let one = "mongodb://one:1@a/";
    for (version, expected) in [(ServerVersion::V5_0, None), (ServerVersion::V6_0, Some(5_626_702))]
    {
        let mut world = world(version);
        let connection = world.connect(MEMBER);
        log_in(&mut world, connection, BOTH).unwrap();
        log_in(&mut world, connection, BOTH).unwrap();
        match expected {
            None => assert_eq!(log_in(&mut world, connection, one).unwrap(), 2),
            Some(code) => assert_eq!(refusal(&mut world, connection, one), code),
        }
        assert_eq!(find(&mut world, connection), 0);
    }
}

#[test]
fn a_changed_password_is_for_logins_that_begin_later_and_a_user_who_is_gone_is_logged_out() {
    let mut world = world(ServerVersion::V6_0);
    let [inside, half, outside] = [(); 3].map(|()| world.connect(MEMBER));
    log_in(&mut world, inside, BOTH).unwrap();
    let mut rotated = users();
    rotated[0].password = "new".into();
    let rotate = |world: &mut World| world.handle(Input::Users { users: &rotated });
    log_in_while(&mut world, half, BOTH, rotate).expect("it goes on with the old one");
    assert_eq!(refusal(&mut world, outside, BOTH), 18);
    log_in(&mut world, outside, "mongodb://both:new@a/").unwrap();
    assert_eq!(find(&mut world, inside), 0, "it stays logged in");
    let other = world.connect(MEMBER);
    log_in(&mut world, other, "mongodb://one:1@a/").unwrap();

    world.handle(Input::Users { users: &rotated[1..] });
    assert_eq!(find(&mut world, inside), 13);
    assert_eq!(find(&mut world, other), 0);
    assert_eq!(refusal(&mut world, outside, "mongodb://both:new@a/"), 18);

    let wrong = [User::new("", "x")];
    world.handle(Input::Users { users: &wrong });
    assert_eq!(find(&mut world, other), 0, "nothing has changed");
    world.handle(Input::Users { users: &[] });
    assert_eq!(find(&mut world, outside), 0, "no login is needed any more");
}

#[test]
fn the_deployment_itself_needs_no_login() {
    let mut world = world(ServerVersion::V6_0);
    let connection = world.connect(MEMBER);
    world.handle(Input::Trusted { connection });
    assert_eq!(find(&mut world, connection), 0);
}

#[test]
fn a_fail_point_refuses_logins_but_none_that_begins_with_hello() {
    // On 4.4.2, 5.0.4 and 6.0.5 failCommand did not strike the saslStart within a hello.
    let explicit = "mongodb://one:1@a/";
    for (command, explicit_code, speculative_code) in
        [("saslStart", 18, 0), ("saslContinue", 18, 18), ("find", 0, 0)]
    {
        let mut world = world(ServerVersion::V6_0);
        let admin = world.connect(MEMBER);
        world.handle(Input::Trusted { connection: admin });
        let fail = rawdoc! {
            "configureFailPoint": "failCommand",
            "mode": "alwaysOn",
            "data": { "failCommands": [command], "errorCode": 18 },
            "$db": "admin",
        };
        assert_eq!(code(&world.ask(admin, &fail)), 0);
        for (uri, expected) in [(explicit, explicit_code), (BOTH, speculative_code)] {
            let connection = world.connect(MEMBER);
            assert_eq!(find(&mut world, connection), 13, "the fail point is for who may run it");
            match expected {
                0 => assert!(log_in(&mut world, connection, uri).is_ok()),
                code => assert_eq!(refusal(&mut world, connection, uri), code, "{command}: {uri}"),
            }
        }
    }
}

#[test]
fn salts_and_nonces_follow_from_the_seed() {
    let run = |seed| {
        let mut world =
            World::new(ClusterOptions { users: users(), seed, ..options(Default::default()) });
        world.advance(SECOND);
        let connection = world.connect(MEMBER);
        let reply = world.ask(connection, &start(payload(b"n,,n=both,r=abcdef")));
        reply.get_binary("payload").unwrap().bytes.to_vec()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn users_that_cannot_be_are_refused_with_what_is_allowed() {
    let user = || User::new("a", "b");
    let (mut no_mechanism, mut same) = (user(), user());
    no_mechanism.mechanisms.clear();
    same.password = "c".into();
    for (users, text) in [
        (vec![User::new("", "b")], "is empty"),
        (vec![User::new("a", "")], "password of the user \"a\" is empty"),
        (vec![user().of_database("")], "not empty"),
        (vec![user().of_database("a.b")], "no dot"),
        (vec![user().of_database("$external")], "not $external"),
        (vec![no_mechanism], "SCRAM-SHA-1, SCRAM-SHA-256 or both"),
        (vec![user().with_iterations(4095)], "from 4096 to 2000000"),
        (vec![user().with_iterations(2_000_001)], "from 4096 to 2000000"),
        (vec![User::new("a", "\u{7}")], "SCRAM-SHA-1 takes any"),
        (vec![user(), same], "a name of its own"),
        (vec![user(); MAX_USERS + 1], "at most 100"),
    ] {
        let refused = Cluster::new(ClusterOptions { users, ..options(Default::default()) });
        let Err(OptionsError::Users(refused)) = refused else { panic!("{refused:?}") };
        assert!(refused.to_string().contains(text), "{refused}");
    }
    let sha_1 = User::new("a", "\u{7}").with_mechanisms(&[ScramMechanism::Sha1]);
    let twins = [sha_1.clone().with_iterations(QUICK), sha_1.of_database("b")];
    let model = world(ServerVersion::V6_0);
    assert_eq!(model.model.get().check_users(&twins), Ok(()));
    assert_eq!(model.model.get().check_users(&[User::new("", "")]), Err(UserError::NoName));
}

/// A command as an old driver would send it: by OP_QUERY, and with what the server has `said` where
/// nothing need be said any more, as the Java driver 3.6 does.
fn as_query(message: &Message, said: &RawBson) -> Vec<u8> {
    let mut command = RawDocumentBuf::new();
    for (name, value) in message.op_msg().unwrap().body.iter().flatten() {
        match value.as_binary() {
            Some(binary) if binary.bytes.is_empty() => command.append(name, said.clone()),
            _ if name == "$db" => {}
            _ => command.append(name, value),
        }
    }
    let mut bytes = Vec::new();
    write_op_query(&mut bytes, message.header().request_id, "admin", &command);
    bytes
}

/// As servers 4.2.6 to 6.0.5 do.
#[test]
fn every_step_of_a_login_may_come_by_op_query() {
    for version in ServerVersion::ALL {
        let mut world = world(version);
        let connection = world.connect(MEMBER);
        let opening = HandshakeOptions::new(RawDocumentBuf::new(), [7; 24])
            .with_credential_cache(CredentialCache::default());
        let (mut out, mut said) = (Vec::new(), RawBson::Null);
        let options = Arc::new(Options::parse(BOTH).unwrap());
        let mut handshake = Handshake::start(&options, opening, &mut out).unwrap();
        loop {
            let mut frames = Frames::new();
            frames.extend(&std::mem::take(&mut out));
            world.receive(connection, &as_query(&frames.next().unwrap().unwrap(), &said));
            let replies = world.replies(connection);
            let (header, reply) = (replies[0].1.header(), replies[0].1.op_reply().unwrap());
            if let Ok(Some(payload)) = reply.document.get("payload") {
                said = payload.into();
            }
            let mut bytes = Vec::new();
            write_op_msg(&mut bytes, 1, header.response_to, Flags::NONE, reply.document);
            if let HandshakeProgress::Done(_) = handshake.receive(&bytes, &mut out).unwrap() {
                break;
            }
        }
        assert_eq!(find(&mut world, connection), 0, "{version:?}");
    }
}
