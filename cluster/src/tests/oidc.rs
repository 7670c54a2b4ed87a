//! MONGODB-OIDC: who shows a token that is good belongs to the deployment (Authentication,
//! "MONGODB-OIDC").

use bson::{RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use sdam_core::bson;

use super::authentication::{code, find, hello_with, payload};
use super::{ClusterOptions, MemberId, SECOND, ServerVersion, World, options};

const MEMBER: MemberId = MemberId(0);

fn world(version: ServerVersion) -> World {
    let oidc_tokens = vec!["first".into(), "second".into()];
    let mut world = World::new(ClusterOptions { oidc_tokens, ..options(version) });
    world.advance(SECOND);
    world
}

fn start(shown: &RawDocument, database: &str) -> RawDocumentBuf {
    let payload = payload(shown.as_bytes());
    rawdoc! { "saslStart": 1, "mechanism": "MONGODB-OIDC", "payload": payload, "$db": database }
}

#[test]
fn a_token_logs_in_at_once_and_another_one_renews_the_login() {
    let mut world = world(ServerVersion::V7_0);
    let connection = world.connect(MEMBER);
    assert_eq!(find(&mut world, connection), 13);
    for token in ["first", "second"] {
        let reply = world.ask(connection, &start(&rawdoc! { "jwt": token }, "$external"));
        assert!(reply.get_bool("done").unwrap(), "{reply:?}");
        assert_eq!(reply.get_i32("conversationId").unwrap(), 1);
        assert_eq!(find(&mut world, connection), 0);
    }
    let parameters = rawdoc! { "getParameter": "*", "$db": "admin" };
    let parameters = world.ask(connection, &parameters);
    let mechanisms = parameters.get_array("authenticationMechanisms").unwrap();
    let mut mechanisms = mechanisms.into_iter().flatten().filter_map(RawBsonRef::as_str);
    assert!(mechanisms.any(|name| name == "MONGODB-OIDC"));
}

/// Authentication, "Speculative Authentication": the token comes with hello.
#[test]
fn a_token_may_come_with_hello() {
    let mut world = world(ServerVersion::V7_0);
    for (token, is_answered) in [("first", true), ("none", false)] {
        let connection = world.connect(MEMBER);
        let mut speculation = rawdoc! { "saslStart": 1, "mechanism": "MONGODB-OIDC" };
        speculation
            .append(bson::raw::cstr!("payload"), payload(rawdoc! { "jwt": token }.as_bytes()));
        speculation.append(bson::raw::cstr!("db"), "$external");
        let reply = hello_with(&mut world, connection, "speculativeAuthenticate", speculation);
        assert_eq!(reply.get("speculativeAuthenticate").unwrap().is_some(), is_answered);
        assert_eq!(find(&mut world, connection), if is_answered { 0 } else { 13 });
    }
}

#[test]
fn whoever_shows_no_good_token_is_refused() {
    for (version, shown, database, expected) in [
        (ServerVersion::V7_0, rawdoc! { "jwt": "none" }, "$external", 18),
        (ServerVersion::V7_0, rawdoc! { "n": "somebody" }, "$external", 18),
        (ServerVersion::V7_0, rawdoc! { "jwt": "first" }, "admin", 18),
        // Servers have the mechanism since 7.0.
        (ServerVersion::V6_0, rawdoc! { "jwt": "first" }, "$external", 334),
    ] {
        let mut world = world(version);
        let connection = world.connect(MEMBER);
        let reply = world.ask(connection, &start(&shown, database));
        assert_eq!(code(&reply), expected, "{version:?} {shown:?}");
    }
}
