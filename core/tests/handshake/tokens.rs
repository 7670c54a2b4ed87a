//! MONGODB-OIDC: tokens that are asked for, remembered and refused.

use std::time::Duration;

use sdam_core::auth::{CredentialCache, CredentialRequest, CredentialResponse, OidcToken};
use sdam_core::bson::{RawDocument, RawDocumentBuf, cstr, rawdoc};
use sdam_core::config::{AuthMechanism, Options};
use sdam_core::failure::Stage;
use sdam_core::handshake::HandshakeProgress;
use sdam_core::operation::OperationError;

use crate::server::{Client, asked, binary, broken, built, done, hello, names, payload};

fn options() -> std::sync::Arc<Options> {
    built(|options| options.auth_mechanism(AuthMechanism::Oidc).oidc_callback(true))
}

fn token(text: &str) -> CredentialResponse {
    CredentialResponse::Oidc(OidcToken::new(text).expires_in(Duration::from_secs(60)))
}

fn accepted() -> RawDocumentBuf {
    rawdoc! { "conversationId": 1, "done": true, "payload": binary(b""), "ok": 1 }
}

fn refused(code: i32) -> RawDocumentBuf {
    rawdoc! { "ok": 0, "code": code, "errmsg": "no" }
}

fn jwt(command: &RawDocument) -> String {
    let payload = payload(command);
    RawDocument::from_bytes(&payload).unwrap().get_str("jwt").unwrap().to_owned()
}

/// Authenticates once with this token, and returns what is remembered then.
fn remembering(text: &str) -> CredentialCache {
    let mut client = Client::start(&options());
    asked(client.reply(&hello()));
    client.supply(token(text)).unwrap();
    done(client.reply(&accepted()));
    client.handshake.credential_cache().clone()
}

#[test]
fn a_token_is_asked_for_and_shown() {
    let mut client = Client::start(&options());
    assert!(!names(client.last()).contains(&"speculativeAuthenticate"), "there is no token yet");
    let CredentialRequest::Oidc(question) = asked(client.reply(&hello())) else {
        panic!("another")
    };
    assert_eq!((question.version, question.username, question.refused), (1, None, None));
    client.supply(token("planted-token")).unwrap();
    assert_eq!(names(client.last()), ["saslStart", "mechanism", "payload", "$db"]);
    assert_eq!(client.last().get_str("$db").ok(), Some("$external"));
    // The example of the Authentication specification, "One-Step".
    assert_eq!(jwt(client.last()), "planted-token");
    done(client.reply(&accepted()));
    let credential_cache = client.handshake.credential_cache();
    assert_eq!(credential_cache.token().unwrap().expose(), "planted-token");
    assert!(!format!("{:?} {credential_cache:?}", client.handshake).contains("planted"));
}

#[test]
fn a_remembered_token_goes_with_hello() {
    // "Drivers MUST implement speculative authentication for MONGODB-OIDC"
    let mut client = Client::knowing(&options(), remembering("one"));
    let tried = client.last().get_document("speculativeAuthenticate").unwrap();
    assert_eq!(names(tried), ["saslStart", "mechanism", "payload", "db"]);
    assert_eq!(jwt(tried), "one");
    let mut reply = hello();
    reply.append(cstr!("speculativeAuthenticate"), accepted());
    done(client.reply(&reply));
    assert_eq!(client.sent.len(), 1);
}

#[test]
fn a_refused_remembered_token_is_replaced_once() {
    // OIDC-M3.1, OIDC-M3.2
    let mut client = Client::knowing(&options(), remembering("old"));
    client.reply(&hello()).unwrap();
    assert_eq!(jwt(client.last()), "old", "speculation failed, so it is tried the usual way");
    let CredentialRequest::Oidc(question) = asked(client.reply(&refused(18))) else {
        panic!("another")
    };
    assert_eq!(question.refused.unwrap().expose(), "old");
    assert!(client.handshake.credential_cache().token().is_none(), "it is forgotten");
    client.supply(token("new")).unwrap();
    assert_eq!(jwt(client.last()), "new");
    let error = client.reply(&refused(18)).unwrap_err();
    assert!(matches!(error, OperationError::Reply { stage: Stage::Authenticate, .. }), "{error:?}");
}

#[test]
fn a_token_that_another_connection_has_obtained_may_be_refused_too() {
    // "is_cache" of the specification: it was not obtained for this connection
    let mut client = Client::start(&options());
    asked(client.reply(&hello()));
    client.handshake.refresh(&remembering("of another"));
    client.supply(token("of another")).unwrap();
    let CredentialRequest::Oidc(question) = asked(client.reply(&refused(18))) else {
        panic!("another")
    };
    assert_eq!(question.refused.unwrap().expose(), "of another");
    client.supply(token("new")).unwrap();
    client.reply(&refused(18)).unwrap_err();
}

/// "is_cache" again: a token that was obtained for this very connection is not asked for twice.
#[test]
fn a_token_that_is_refused_at_once_is_the_servers_error() {
    let mut client = Client::start(&options());
    asked(client.reply(&hello()));
    client.supply(token("fresh")).unwrap();
    // Whose message may be cut within a character, as servers cut others.
    let refused = broken(rawdoc! { "ok": 0, "errmsg": "no: ?", "code": 18 });
    let error = client.reply(&refused).unwrap_err();
    let OperationError::Reply { stage: Stage::Authenticate, error } = error else {
        panic!("{error:?}")
    };
    assert_eq!((error.code, &*error.message), (Some(18), "no: \u{fffd}"));
}

#[test]
fn the_answer_may_take_as_long_as_connecting_or_a_minute() {
    for (timeout, wanted) in [(7, 7), (0, 60), (90, 60)] {
        let options = built(|options| {
            let options = options.auth_mechanism(AuthMechanism::Oidc).oidc_callback(true);
            options.connect_timeout(Duration::from_secs(timeout))
        });
        let mut client = Client::start(&options);
        let CredentialRequest::Oidc(question) = asked(client.reply(&hello())) else {
            panic!("another")
        };
        assert_eq!(question.timeout, Duration::from_secs(wanted));
    }
}

#[test]
fn another_error_says_nothing_against_the_token() {
    // OIDC-M3.3
    let mut client = Client::knowing(&options(), remembering("one"));
    client.reply(&hello()).unwrap();
    client.reply(&refused(20)).unwrap_err();
    assert!(client.handshake.credential_cache().token().is_some());
}

#[test]
fn a_failed_speculation_is_no_failure() {
    let mut client = Client::knowing(&options(), remembering("one"));
    let mut reply = hello();
    reply.append(cstr!("speculativeAuthenticate"), rawdoc! { "done": false });
    client.reply(&reply).unwrap();
    assert_eq!((names(client.last())[0], jwt(client.last())), ("saslStart", "one".into()));
}

#[test]
fn forgetting_a_token_spares_one_that_came_later() {
    // "Invalidation MUST only clear the cached access token if it is the same as the invalid
    // access token"
    let of_client = remembering("old");
    let refused_by_server = |of_client: &CredentialCache| {
        let mut client = Client::knowing(&options(), of_client.clone());
        client.reply(&hello()).unwrap();
        asked(client.reply(&refused(18)));
        client
    };
    let (mut first, second) = (refused_by_server(&of_client), refused_by_server(&of_client));
    first.supply(token("new")).unwrap();
    let mut learned = of_client.clone();
    learned.merge(first.handshake.credential_cache());
    learned.merge(second.handshake.credential_cache());
    assert_eq!(learned.token().unwrap().expose(), "new");
    let mut forgotten = of_client;
    forgotten.merge(second.handshake.credential_cache());
    assert!(forgotten.token().is_none());
}

#[test]
fn an_answer_to_another_question_or_to_none_is_refused() {
    let mut client = Client::start(&options());
    assert!(client.supply(token("early")).is_err());
    let mut client = Client::start(&options());
    asked(client.reply(&hello()));
    assert!(client.supply(token("")).unwrap_err().to_string().contains("empty"));
    let mut client = Client::start(&options());
    asked(client.reply(&hello()));
    let error = client.supply(token(&"x".repeat((1 << 20) + 1))).unwrap_err();
    assert!(error.to_string().contains("token is longer"), "{error}");
    let mut client = Client::start(&options());
    asked(client.reply(&hello()));
    client.supply(token(&"x".repeat(1 << 20))).unwrap();
}

#[test]
fn an_established_connection_can_be_authenticated_once_more() {
    // "Reauthentication": without hello, and with another token than the connection's (OIDC-M4.1)
    let mut client = Client::start(&options());
    asked(client.reply(&hello()));
    client.supply(token("planted-old")).unwrap();
    let connection_description = done(client.reply(&accepted()));
    assert_eq!(connection_description.mechanism, Some(AuthMechanism::Oidc));
    assert!(!format!("{connection_description:?}").contains("planted"));
    let credential_cache = client.handshake.credential_cache().clone();
    let (mut again, progress) =
        Client::again(&options(), credential_cache, &connection_description);
    assert!(matches!(asked(Ok(progress)), CredentialRequest::Oidc(_)));
    again.supply(token("new")).unwrap();
    assert_eq!((names(again.last())[0], jwt(again.last())), ("saslStart", "new".into()));
    let connection_description = done(again.reply(&accepted()));
    assert_eq!(connection_description.token.as_ref().unwrap().expose(), "new");
    // Another connection has obtained a newer one: nothing need be asked.
    let (newer, progress) =
        Client::again(&options(), remembering("newer"), &connection_description);
    assert!(matches!(progress, HandshakeProgress::Reading));
    assert_eq!(jwt(newer.last()), "newer");
}
