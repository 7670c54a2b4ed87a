//! GSSAPI by a script: who has a ticket and follows RFC 4752 belongs to the deployment.

use bson::{RawBson, RawDocumentBuf, rawdoc};
use sdam_core::auth::{GssapiLogin, GssapiProvider as _, GssapiService, GssapiStep};
use sdam_core::bson;
use sdam_core::failure::GssapiProblem;

use super::authentication::{code, find, payload};
use super::{ClusterOptions, ConnectionId, MemberId, SECOND, ServerVersion, World, options};
use crate::ScriptedGssapi;

const MEMBER: MemberId = MemberId(0);

fn world() -> World {
    let gssapi_users = vec!["ann@HERE".to_owned()];
    let version = ServerVersion::V6_0;
    let mut world = World::new(ClusterOptions { gssapi_users, ..options(version) });
    world.advance(SECOND);
    world
}

fn start(token: &[u8], database: &str) -> RawDocumentBuf {
    let token = payload(token);
    rawdoc! { "saslStart": 1, "mechanism": "GSSAPI", "payload": token, "$db": database }
}

fn proceed(token: &[u8]) -> RawDocumentBuf {
    let id = RawBson::Int32(1);
    rawdoc! { "saslContinue": 1, "conversationId": id, "payload": payload(token), "$db": "$external" }
}

fn ask(world: &mut World, connection: ConnectionId, command: &RawDocumentBuf) -> Vec<u8> {
    let reply = world.ask(connection, command);
    reply.get_binary("payload").unwrap_or_else(|_| panic!("{reply:?}")).bytes.to_vec()
}

/// RFC 4752, section 3.1: tokens, the offer of layers, and the answer with the user's name.
#[test]
fn a_user_with_a_ticket_logs_in() {
    let (mut world, provider) = (world(), ScriptedGssapi::new(["ann@HERE"]));
    let connection = world.connect(MEMBER);
    assert_eq!(find(&mut world, connection), 13);
    let service = GssapiService::new("mongodb", "a");
    let mut context = provider.begin(&GssapiLogin::new("ann@HERE", service)).unwrap();
    let GssapiStep::Continue(first) = context.step(None).unwrap() else { panic!("it goes on") };
    let second = ask(&mut world, connection, &start(first.as_bytes(), "$external"));
    assert_eq!(context.step(Some(&second)), Ok(GssapiStep::Complete(None)));
    let offer = ask(&mut world, connection, &proceed(b""));
    assert_eq!(context.unwrap(&offer).unwrap().as_bytes(), [1, 0, 0, 0]);
    let answer = context.wrap(b"\x01\0\0\0ann@HERE").unwrap();
    let reply = world.ask(connection, &proceed(answer.as_bytes()));
    assert!(reply.get_bool("done").unwrap(), "{reply:?}");
    assert_eq!(find(&mut world, connection), 0);
    assert_eq!(context.step(Some(b"other")).unwrap_err().problem, GssapiProblem::ServerUnproven);
}

#[test]
fn a_login_that_departs_from_the_script_is_refused() {
    let good = b"client ann@HERE mongodb/a@HERE".as_slice();
    for (first, database, expected) in [
        (b"client bob@HERE mongodb/a".as_slice(), "$external", 18),
        (b"client ann@HERE other/a", "$external", 18),
        (b"client ann@HERE", "$external", 18),
        (b"", "$external", 18),
        (b"\xff", "$external", 18),
        (good, "admin", 18),
    ] {
        let mut world = world();
        let connection = world.connect(MEMBER);
        let reply = world.ask(connection, &start(first, database));
        assert_eq!(code(&reply), expected, "{first:?}");
    }
    for steps in [
        [b"something".as_slice(), b""],
        [b"", b"wrapped \x01\0\0\0bob@HERE"],
        [b"", b"wrapped \x02\0\0\0ann@HERE"],
        [b"", b"\x01\0\0\0ann@HERE"],
    ] {
        let mut world = world();
        let connection = world.connect(MEMBER);
        ask(&mut world, connection, &start(good, "$external"));
        let codes = steps.map(|step| code(&world.ask(connection, &proceed(step))));
        assert!(codes.contains(&18), "{steps:?} {codes:?}");
        assert_eq!(find(&mut world, connection), 13);
    }
    let stranger = GssapiLogin::new("bob", GssapiService::new("mongodb", "a"));
    let error = ScriptedGssapi::new(["ann"]).begin(&stranger).err().unwrap();
    assert_eq!(error.problem, GssapiProblem::NoTicket);
}
