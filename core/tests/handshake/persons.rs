//! MONGODB-OIDC with a person: identity providers, refresh tokens, and the hosts that may be shown a
//! token (Authentication, "Human Authentication Flow").

use std::sync::Arc;
use std::time::Duration;

use sdam_core::auth::{
    CredentialCache, CredentialRequest, CredentialResponse, IdpInfo, OidcRequest, OidcToken,
};
use sdam_core::bson::{RawArrayBuf, RawDocument, RawDocumentBuf, cstr, rawdoc};
use sdam_core::config::{AllowedHosts, AuthMechanism, Options};
use sdam_core::failure::Stage;
use sdam_core::handshake::{Handshake, HandshakeOptions, HandshakeProgress};
use sdam_core::operation::OperationError;

use crate::server::{Client, NONCE, asked, binary, built, done, hello, names, payload};

fn options(username: Option<&str>) -> Arc<Options> {
    built(|options| {
        let hosts = AllowedHosts::new(["a"]);
        let options = options.auth_mechanism(AuthMechanism::Oidc).oidc_human_callback(hosts);
        match username {
            Some(username) => options.username(username),
            None => options,
        }
    })
}

/// The answer of a person, with a refresh token or without.
fn token(access: &str, refresh: Option<&str>) -> CredentialResponse {
    let token = OidcToken::new(access).with_refresh_token(refresh.map(Into::into));
    CredentialResponse::Oidc(token)
}

fn step(done: bool, payload: &RawDocument) -> RawDocumentBuf {
    let payload = binary(payload.as_bytes());
    rawdoc! { "conversationId": 1, "done": done, "payload": payload, "ok": 1 }
}

fn accepted() -> RawDocumentBuf {
    step(true, &RawDocumentBuf::new())
}

fn refused(code: i32) -> RawDocumentBuf {
    rawdoc! { "ok": 0, "code": code, "errmsg": "no" }
}

/// The example of the specification, "Two-Step".
fn idp() -> RawDocumentBuf {
    let scopes: RawArrayBuf = ["a", "b"].into_iter().collect();
    let mut idp = rawdoc! { "issuer": "https://issuer", "clientId": "abcd" };
    idp.append(cstr!("requestScopes"), scopes);
    idp
}

fn idp_info() -> IdpInfo {
    IdpInfo::new("https://issuer")
        .with_client_id(Some("abcd".into()))
        .with_request_scopes(vec!["a".into(), "b".into()])
}

fn question(progress: Result<HandshakeProgress, OperationError>) -> OidcRequest {
    match asked(progress) {
        request @ CredentialRequest::Oidc(_) if !request.is_for_person() => {
            panic!("{request:?} is for no person")
        }
        CredentialRequest::Oidc(question) => question,
        CredentialRequest::Aws | CredentialRequest::Gssapi(_) => panic!("another"),
    }
}

fn sent(client: &Client) -> RawDocumentBuf {
    RawDocument::from_bytes(&payload(client.last())).unwrap().to_owned()
}

/// Authenticates by a person, and returns what is remembered then.
fn remembering(access: &str, refresh: Option<&str>) -> CredentialCache {
    let mut client = Client::start(&options(None));
    client.reply(&hello()).unwrap();
    question(client.reply(&step(false, &idp())));
    client.supply(token(access, refresh)).unwrap();
    done(client.reply(&accepted()));
    client.handshake.credential_cache().clone()
}

/// "Drivers MUST use a two-step conversation when using a OIDC Human Callback and when there is no
/// cached access token" (OIDC-H1.1, OIDC-H1.2, OIDC-H2.1).
#[test]
fn a_person_is_asked_with_what_the_server_says_of_the_provider() {
    for username in [None, Some("myidp")] {
        let mut client = Client::start(&options(username));
        assert!(!names(client.last()).contains(&"speculativeAuthenticate"), "there is no token");
        client.reply(&hello()).unwrap();
        assert_eq!(names(client.last()), ["saslStart", "mechanism", "payload", "$db"]);
        assert_eq!(client.last().get_str("$db").ok(), Some("$external"));
        let principal = username.map_or_else(RawDocumentBuf::new, |name| rawdoc! { "n": name });
        assert_eq!(sent(&client), principal);
        let question = question(client.reply(&step(false, &idp())));
        assert_eq!((question.version, question.username.as_deref()), (1, username));
        assert_eq!(question.idp_info, Some(idp_info()));
        assert_eq!((question.refresh_token, question.refused), (None, None));
        // "The timeout duration MUST be 5 minutes."
        assert_eq!(question.timeout, Duration::from_secs(300));
        client.supply(token("planted-access", Some("planted-refresh"))).unwrap();
        assert_eq!(names(client.last())[..2], ["saslContinue", "conversationId"]);
        assert_eq!(sent(&client), rawdoc! { "jwt": "planted-access" });
        done(client.reply(&accepted()));
        let credential_cache = client.handshake.credential_cache();
        assert_eq!(credential_cache.token().unwrap().expose(), "planted-access");
        assert!(!format!("{:?} {credential_cache:?}", client.handshake).contains("planted"));
    }
}

/// OIDC-H1.8: "ensuring that the missing `clientId` in the `PrincipalStepRequest` response is
/// handled by the driver".
#[test]
fn what_a_provider_does_not_say_is_missing_and_what_is_wrong_is_refused() {
    let mut client = Client::start(&options(None));
    client.reply(&hello()).unwrap();
    let question =
        question(client.reply(&step(false, &rawdoc! { "issuer": "i", "clientId": null })));
    assert_eq!(question.idp_info, Some(IdpInfo::new("i")));
    let numbers: RawArrayBuf = [1].into_iter().collect();
    let mut of_numbers = idp();
    of_numbers.append(cstr!("requestScopes"), numbers);
    for (wrong, said) in [
        (rawdoc! {}, "no issuer"),
        (rawdoc! { "clientId": "abcd" }, "no issuer"),
        (rawdoc! { "issuer": 7 }, "wrong types"),
        (rawdoc! { "issuer": "i", "clientId": true }, "wrong types"),
        (rawdoc! { "issuer": "i", "requestScopes": "a" }, "wrong types"),
        (of_numbers, "no text"),
    ] {
        let mut client = Client::start(&options(None));
        client.reply(&hello()).unwrap();
        let error = client.reply(&step(false, &wrong)).unwrap_err().to_string();
        assert!(error.contains("malformed reply") && error.contains(said), "{wrong:?}: {error}");
    }
    let mut client = Client::start(&options(None));
    client.reply(&hello()).unwrap();
    let error = client.reply(&accepted()).unwrap_err().to_string();
    assert!(error.contains("before the client has shown a token"), "{error}");
}

/// OIDC-H1.5: the server knows two providers, and no name says which.
#[test]
fn a_server_that_names_no_provider_is_the_error() {
    let mut client = Client::start(&options(None));
    client.reply(&hello()).unwrap();
    let error = client.reply(&refused(18)).unwrap_err();
    assert!(matches!(error, OperationError::Reply { stage: Stage::Authenticate, .. }), "{error:?}");
}

/// OIDC-H2.2
#[test]
fn an_answer_without_a_token_is_refused() {
    let too_long = "x".repeat((1 << 20) + 1);
    for answer in [token("", None), token("a", Some("")), token("a", Some(&too_long))] {
        let mut client = Client::start(&options(None));
        client.reply(&hello()).unwrap();
        question(client.reply(&step(false, &idp())));
        client.supply(answer).unwrap_err();
    }
}

/// OIDC-H3.1: "Uses speculative authentication if there is a cached token".
#[test]
fn a_remembered_token_goes_with_hello() {
    let mut client = Client::knowing(&options(None), remembering("one", None));
    let mut reply = hello();
    reply.append(cstr!("speculativeAuthenticate"), accepted());
    done(client.reply(&reply));
    assert_eq!(client.sent.len(), 1);
    // Where that fails, the usual way comes next.
    let mut client = Client::knowing(&options(None), remembering("one", None));
    let mut reply = hello();
    reply.append(cstr!("speculativeAuthenticate"), rawdoc! { "done": false });
    client.reply(&reply).unwrap();
    assert_eq!((names(client.last())[0], sent(&client)), ("saslStart", rawdoc! { "jwt": "one" }));
}

/// Authenticates an established connection once more, as error 391 demands.
fn again(access: &str, refresh: Option<&str>) -> (Client, HandshakeProgress) {
    let mut client = Client::start(&options(None));
    client.reply(&hello()).unwrap();
    question(client.reply(&step(false, &idp())));
    client.supply(token(access, refresh)).unwrap();
    let connection_description = done(client.reply(&accepted()));
    let credential_cache = client.handshake.credential_cache().clone();
    Client::again(&options(None), credential_cache, &connection_description)
}

/// OIDC-H2.3, OIDC-H4.1, OIDC-H4.3: "call the OIDC Human Callback with the cached refresh token and
/// `IdpInfo` to get a new access token", in one step.
#[test]
fn a_refresh_token_does_instead_of_the_person() {
    let (mut client, progress) = again("old", Some("refresh-1"));
    let question = question(Ok(progress));
    assert_eq!(question.idp_info, Some(idp_info()));
    assert_eq!(question.refresh_token.unwrap().expose(), "refresh-1");
    client.supply(token("new", Some("refresh-2"))).unwrap();
    assert_eq!((names(client.last())[0], sent(&client)), ("saslStart", rawdoc! { "jwt": "new" }));
    done(client.reply(&accepted()));
    // What came with the new token counts from now on.
    let mut credential_cache = client.handshake.credential_cache().clone();
    credential_cache.forget_token(&"new".into());
    let mut client = Client::knowing(&options(None), credential_cache);
    let question = self::question(client.reply(&hello()));
    assert_eq!(question.refresh_token.unwrap().expose(), "refresh-2");
    client.supply(token("newer", None)).unwrap();
    done(client.reply(&accepted()));
    let mut credential_cache = client.handshake.credential_cache().clone();
    credential_cache.forget_token(&"newer".into());
    let mut client = Client::knowing(&options(None), credential_cache);
    client.reply(&hello()).unwrap();
    assert_eq!(sent(&client), RawDocumentBuf::new(), "the provider is asked for once more");
}

/// OIDC-H4.2
#[test]
fn without_a_refresh_token_the_person_is_asked_once_more() {
    let (mut client, progress) = again("old", None);
    assert!(matches!(progress, HandshakeProgress::Reading));
    assert_eq!(sent(&client), RawDocumentBuf::new());
    let question = question(client.reply(&step(false, &idp())));
    assert_eq!(question.refresh_token, None);
    client.supply(token("new", None)).unwrap();
    done(client.reply(&accepted()));
}

/// OIDC-H4.4: "Assert that the human callback has been called three times."
#[test]
fn each_way_is_gone_once_and_then_the_servers_error_counts() {
    let (mut client, progress) = again("old", Some("bad"));
    question(Ok(progress));
    client.supply(token("bad-1", Some("bad-2"))).unwrap();
    // "clear the refresh token, invalidate the access token", "and restart the authentication flow"
    client.reply(&refused(18)).unwrap();
    assert_eq!(sent(&client), RawDocumentBuf::new());
    let credential_cache = client.handshake.credential_cache().clone();
    assert!(credential_cache.token().is_none());
    let mut other = Client::knowing(&options(None), credential_cache);
    other.reply(&hello()).unwrap();
    assert_eq!(sent(&other), RawDocumentBuf::new(), "no refresh token is known");
    let question = question(client.reply(&step(false, &idp())));
    assert_eq!(question.refresh_token, None, "\"Drivers MUST NOT pass a cached refresh token\"");
    assert_eq!(question.refused.unwrap().expose(), "bad-1", "so that there is a pause");
    client.supply(token("bad-3", None)).unwrap();
    let error = client.reply(&refused(18)).unwrap_err();
    assert!(matches!(error, OperationError::Reply { stage: Stage::Authenticate, .. }), "{error:?}");
}

#[test]
fn a_refused_remembered_token_is_replaced_and_another_error_spares_it() {
    for (refresh, code) in [(None, 18), (Some("refresh"), 18), (Some("refresh"), 20)] {
        let mut client = Client::knowing(&options(None), remembering("old", refresh));
        client.reply(&hello()).unwrap();
        assert_eq!(sent(&client), rawdoc! { "jwt": "old" });
        let replied = client.reply(&refused(code));
        let is_known = client.handshake.credential_cache().token().is_some();
        assert_eq!(is_known, code != 18);
        match (refresh, code) {
            (_, 20) => drop(replied.unwrap_err()),
            (Some(_), _) => {
                let question = question(replied);
                assert_eq!(question.refresh_token.unwrap().expose(), "refresh");
                assert_eq!(question.refused.unwrap().expose(), "old");
            }
            (None, _) => assert_eq!(sent(&client), RawDocumentBuf::new()),
        }
    }
}

/// "Drivers MUST use a one-step conversation when using a cached access token", also one that another
/// connection has obtained meanwhile; what came with it stays known.
#[test]
fn a_token_of_another_connection_does_too() {
    let mut client = Client::start(&options(None));
    client.reply(&hello()).unwrap();
    question(client.reply(&step(false, &idp())));
    client.handshake.refresh(&remembering("of another", Some("refresh")));
    client.supply(token("of another", None)).unwrap();
    assert_eq!(
        (names(client.last())[0], sent(&client)),
        ("saslStart", rawdoc! { "jwt": "of another" })
    );
    // It may have been refused since; then what came with it does.
    let question = question(client.reply(&refused(18)));
    assert_eq!(question.refresh_token.unwrap().expose(), "refresh");
    assert_eq!(question.refused.unwrap().expose(), "of another");
    client.supply(token("new", None)).unwrap();
    done(client.reply(&accepted()));
}

/// OIDC-H1.6: "When MONGODB-OIDC authentication using a OIDC Human Callback is attempted against a
/// hostname that does not match any of list of allowed hosts, the driver MUST raise a client-side
/// error without invoking any user-provided callbacks."
#[test]
fn a_server_that_is_not_allowed_hears_not_even_hello() {
    let cases = [
        (AllowedHosts::new([""; 0]), Some("localhost"), "localhost:27017 is not among"),
        (AllowedHosts::new(["example.com"]), Some("localhost"), "localhost:27017 is not among"),
        (AllowedHosts::default(), Some("db.example"), "db.example:27017 is not among"),
        (AllowedHosts::default(), None, "a server without a name is not among"),
    ];
    for (hosts, server, wanted) in cases {
        let options =
            built(|options| options.auth_mechanism(AuthMechanism::Oidc).oidc_human_callback(hosts));
        let opening = HandshakeOptions::new(options.metadata().document(), NONCE)
            .with_server(server.map(|server| server.parse().unwrap()));
        let mut out = Vec::new();
        let error = Handshake::start(&options, opening, &mut out).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
        assert!(out.is_empty());
    }
}
