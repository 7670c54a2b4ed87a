//! MONGODB-AWS: the conversation, what is asked, and what is remembered.

use sdam_core::auth::{
    AwsCredentials, CredentialCache, CredentialRequest, CredentialResponse, OidcToken,
};
use sdam_core::bson::{DateTime, RawDocument, RawDocumentBuf, rawdoc};
use sdam_core::failure::Stage;
use sdam_core::handshake::HandshakeProgress;
use sdam_core::operation::OperationError;

use crate::server::{Client, asked, binary, done, hello, names, options, payload};

const URI: &str = "mongodb://a/?authMechanism=MONGODB-AWS";
const HOUR: i64 = 3_600_000;

fn now() -> DateTime {
    DateTime::from_millis(1_573_086_367_000)
}

fn credentials(expires: Option<DateTime>) -> AwsCredentials {
    AwsCredentials::new("AKIDEXAMPLE", "planted-key")
        .with_session_token(Some("planted-token".into()))
        .with_expires(expires)
}

fn temporary() -> CredentialResponse {
    let expires = DateTime::from_millis(now().timestamp_millis() + HOUR);
    CredentialResponse::Aws { credentials: credentials(Some(expires)), now: now() }
}

fn challenge(nonce: &[u8], host: &str) -> RawDocumentBuf {
    let message = rawdoc! { "s": binary(nonce), "h": host };
    let payload = binary(message.as_bytes());
    rawdoc! { "conversationId": 1, "done": false, "payload": payload, "ok": 1 }
}

/// Has hello answered, and returns the client and its nonce.
fn greeted() -> (Client, Vec<u8>) {
    greeted_knowing(CredentialCache::default())
}

fn greeted_knowing(credential_cache: CredentialCache) -> (Client, Vec<u8>) {
    let mut client = Client::knowing(&options(URI), credential_cache);
    assert!(!names(client.last()).contains(&"speculativeAuthenticate"));
    client.reply(&hello()).unwrap();
    let first = payload(client.last());
    let first = RawDocument::from_bytes(&first).unwrap();
    assert_eq!(first.get_i32("p").ok(), Some(110));
    let nonce = first.get_binary("r").unwrap().bytes.to_vec();
    assert_eq!(nonce.len(), 32);
    (client, nonce)
}

fn challenged() -> Client {
    let (mut client, nonce) = greeted();
    let nonce = [nonce, vec![1; 32]].concat();
    assert_eq!(
        asked(client.reply(&challenge(&nonce, "sts.amazonaws.com"))),
        CredentialRequest::Aws
    );
    client
}

fn accepted() -> RawDocumentBuf {
    rawdoc! { "conversationId": 1, "done": true, "payload": binary(b""), "ok": 1 }
}

#[test]
fn the_client_answers_a_challenge_with_a_signed_request() {
    let mut client = challenged();
    client.supply(temporary()).unwrap();
    assert_eq!(names(client.last()), ["saslContinue", "conversationId", "payload", "$db"]);
    let second = payload(client.last());
    let second = RawDocument::from_bytes(&second).unwrap();
    assert_eq!(names(second), ["a", "d", "t"]);
    assert_eq!(second.get_str("d").ok(), Some("20191107T002607Z"));
    let start = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20191107/us-east-1/sts/aws4_request, ";
    assert!(second.get_str("a").unwrap().starts_with(start));
    assert_eq!(second.get_str("t").ok(), Some("planted-token"));
    assert!(!second.get_str("a").unwrap().contains("planted"));
    done(client.reply(&accepted()));
}

#[test]
fn only_temporary_credentials_are_remembered_and_only_while_valid() {
    // Authentication, "Caching Credentials"
    let mut client = challenged();
    client.supply(temporary()).unwrap();
    done(client.reply(&accepted()));
    let credential_cache = client.handshake.credential_cache();
    assert!(credential_cache.aws_credentials(now()).is_some());
    let later = |millis| DateTime::from_millis(now().timestamp_millis() + millis);
    assert!(credential_cache.aws_credentials(later(HOUR - 300_001)).is_some());
    assert!(
        credential_cache.aws_credentials(later(HOUR - 300_000)).is_none(),
        "five minutes are left"
    );
    assert!(!format!("{credential_cache:?} {:?}", temporary()).contains("planted"));

    let mut client = challenged();
    client.supply(CredentialResponse::Aws { credentials: credentials(None), now: now() }).unwrap();
    done(client.reply(&accepted()));
    assert!(client.handshake.credential_cache().aws_credentials(now()).is_none());
    // Nor do those that are not remembered take the place of those that are.
    let mut client = challenged();
    client.supply(temporary()).unwrap();
    done(client.reply(&accepted()));
    let mut learned = client.handshake.credential_cache().clone();
    let (mut client, nonce) = greeted_knowing(learned.clone());
    asked(client.reply(&challenge(&[nonce, vec![1; 32]].concat(), "sts.amazonaws.com")));
    client.supply(CredentialResponse::Aws { credentials: credentials(None), now: now() }).unwrap();
    done(client.reply(&accepted()));
    learned.merge(client.handshake.credential_cache());
    assert!(learned.aws_credentials(now()).is_some());
}

#[test]
fn a_failure_of_any_kind_forgets_them() {
    // "If AWS authentication fails for any reason, the cache MUST be cleared."
    let mut client = challenged();
    client.supply(temporary()).unwrap();
    done(client.reply(&accepted()));
    let of_client = client.handshake.credential_cache().clone();
    let refusal = rawdoc! { "ok": 0, "code": 18, "errmsg": "no" };
    for reply in [refusal, rawdoc! { "ok": "one" }] {
        let mut client = Client::knowing(&options(URI), of_client.clone());
        client.reply(&hello()).unwrap();
        let error = client.reply(&reply).unwrap_err();
        assert_eq!(error.stage(), Stage::Authenticate);
        let mut learned = of_client.clone();
        learned.merge(client.handshake.credential_cache());
        assert!(learned.aws_credentials(now()).is_none());
    }
    let mut client = Client::knowing(&options(URI), CredentialCache::default());
    let error = client.reply(&rawdoc! { "ok": 0, "errmsg": "no" }).unwrap_err();
    assert!(matches!(error, OperationError::Reply { stage: Stage::Hello, .. }));
}

#[test]
fn a_login_that_is_given_up_forgets_them_and_a_hello_does_not() {
    let mut client = challenged();
    client.supply(temporary()).unwrap();
    let of_client = client.handshake.credential_cache().clone();
    for (greeted, forgotten) in [(false, false), (true, true)] {
        let mut client = Client::knowing(&options(URI), of_client.clone());
        if greeted {
            client.reply(&hello()).unwrap();
        }
        client.handshake.give_up();
        let mut learned = of_client.clone();
        learned.merge(client.handshake.credential_cache());
        assert_eq!(learned.aws_credentials(now()).is_none(), forgotten);
        assert!(client.reply(&accepted()).is_err(), "nothing is expected any more");
    }
}

#[test]
fn a_challenge_that_breaks_the_rules_is_refused() {
    // "Drivers MUST validate that the server nonce is exactly 64 bytes and the first 32 bytes are
    // the same as the client nonce. Drivers MUST also validate … the host"
    let (_, nonce) = greeted();
    let good = [nonce.clone(), vec![1; 32]].concat();
    let refused = [
        challenge(&[1; 64], "sts.amazonaws.com"),
        challenge(&good[..63], "sts.amazonaws.com"),
        challenge(&[&good[..], b"x"].concat(), "sts.amazonaws.com"),
        challenge(&good, ""),
        challenge(&good, "sts..com"),
        rawdoc! { "conversationId": 1, "done": true, "payload": binary(b""), "ok": 1 },
        rawdoc! { "conversationId": 1, "done": false, "payload": binary(b"x"), "ok": 1 },
        rawdoc! { "conversationId": 1, "done": false, "ok": 1 },
    ];
    for reply in refused {
        let (mut client, _) = greeted();
        let error = client.reply(&reply).unwrap_err();
        assert_eq!(error.stage(), Stage::Authenticate, "{reply:?}");
    }
}

#[test]
fn a_session_token_is_a_mebibyte_long_at_most() {
    for (length, is_taken) in [(1 << 20, true), ((1 << 20) + 1, false)] {
        let session_token = Some("x".repeat(length).as_str().into());
        let credentials = credentials(None).with_session_token(session_token);
        let mut client = challenged();
        let supplied = client.supply(CredentialResponse::Aws { credentials, now: now() });
        assert_eq!(supplied.is_ok(), is_taken, "{supplied:?}");
    }
}

#[test]
fn an_answer_to_another_question_is_refused() {
    let mut client = challenged();
    assert!(client.supply(CredentialResponse::Oidc(OidcToken::new("planted"))).is_err());
    let (mut early, _) = greeted();
    assert!(early.supply(temporary()).is_err());
    assert!(!matches!(early.receive(&[]), Ok(HandshakeProgress::Done(_))));
}
