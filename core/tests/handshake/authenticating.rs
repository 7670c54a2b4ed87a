//! Authentication by SCRAM, X.509 and PLAIN, with and without speculation.

use sdam_core::auth::CredentialCache;
use sdam_core::bson::{RawDocument, RawDocumentBuf, cstr, rawbson, rawdoc};
use sdam_core::config::Options;
use sdam_core::failure::{Cause, Stage};
use sdam_core::handshake::Handshake;
use sdam_core::operation::OperationError;

use crate::server::{
    Client, Forge, Scram, binary, built, done, hello, names, opening, options, payload,
};

const URI: &str = "mongodb://user:pencil@a/?authSource=shop";

fn run(uri: &str, server: &mut Scram) -> (Client, Result<(), OperationError>) {
    let mut client = Client::start(&options(uri));
    let result = client.run(&mut |command| server.answer(command)).map(drop);
    (client, result)
}

#[test]
fn a_mechanism_is_negotiated_and_tried_with_hello() {
    // Handshake, "Speculative Authentication": "drivers MUST use the SCRAM-SHA-256 mechanism for
    // speculative authentication and drivers MUST send saslSupportedMechs"
    let client = Client::start(&options(URI));
    assert_eq!(client.last().get_str("saslSupportedMechs").ok(), Some("shop.user"));
    let speculative = client.last().get_document("speculativeAuthenticate").unwrap();
    assert_eq!(names(speculative), ["saslStart", "mechanism", "payload", "options", "db"]);
    assert_eq!(speculative.get_str("mechanism").ok(), Some("SCRAM-SHA-256"));
    assert_eq!(speculative.get_str("db").ok(), Some("shop"));
    let named = Client::start(&options(&format!("{URI}&authMechanism=SCRAM-SHA-1")));
    assert!(!names(named.last()).contains(&"saslSupportedMechs"), "nothing is to be negotiated");
    let speculative = named.last().get_document("speculativeAuthenticate").unwrap();
    assert_eq!(speculative.get_str("mechanism").ok(), Some("SCRAM-SHA-1"));
}

#[test]
fn speculation_saves_a_round_trip_and_may_be_ignored() {
    // AUTH-P5
    let (client, result) = run(URI, &mut Scram { speculates: true, ..Scram::default() });
    result.unwrap();
    assert_eq!(client.sent.len(), 2, "hello, saslContinue");
    let (client, result) = run(URI, &mut Scram::default());
    result.unwrap();
    assert_eq!(client.sent.len(), 3, "hello, saslStart, saslContinue");
    assert_eq!(client.last().get_str("$db").ok(), Some("shop"));
    assert_eq!(client.handshake.stage(), Stage::Authenticate);
}

#[test]
fn older_servers_get_their_empty_exchange() {
    let (client, result) = run(URI, &mut Scram { long: true, ..Scram::default() });
    result.unwrap();
    assert_eq!(client.sent.len(), 4);
    assert!(payload(client.last()).is_empty());
}

#[test]
fn a_wrong_password_is_the_servers_error() {
    // AUTH-P2: no handshake or network error
    for speculates in [false, true] {
        let mut server = Scram { speculates, ..Scram::default() };
        let (client, result) = run("mongodb://user:crayon@a", &mut server);
        let error = result.unwrap_err();
        let OperationError::Reply { stage: Stage::Authenticate, error } = &error else {
            panic!("{error:?}");
        };
        assert_eq!(error.code, Some(18));
        assert_eq!(client.handshake.stage(), Stage::Authenticate);
    }
}

#[test]
fn a_server_that_shows_a_part_of_its_signature_gets_no_login() {
    // RFC 5802, section 5: the client authenticates the server by all of its signature.
    let whole = |right: &[u8]| right.to_vec();
    let forgeries: [Forge; 5] = [
        |_| vec![],
        |right| right[..1].to_vec(),
        |right| right[..right.len() - 1].to_vec(),
        |right| right[1..].to_vec(),
        |right| [right, &[0]].concat(),
    ];
    for mechanism in ["SCRAM-SHA-1", "SCRAM-SHA-256"] {
        let uri = format!("{URI}&authMechanism={mechanism}");
        for (speculates, long) in [(false, false), (true, false), (false, true)] {
            let mut honest = Scram { speculates, long, forge: Some(whole), ..Scram::default() };
            run(&uri, &mut honest).1.unwrap();
            for forge in forgeries {
                let mut forger = Scram { speculates, long, forge: Some(forge), ..Scram::default() };
                let (_, result) = run(&uri, &mut forger);
                let OperationError::Stream(failure) = result.unwrap_err() else {
                    panic!("the client finds it out");
                };
                assert_eq!(failure.stage, Stage::Authenticate);
                assert!(failure.detail.contains("signature"), "{failure}");
            }
        }
    }
}

#[test]
fn later_connections_use_the_derived_keys() {
    let options = options(URI);
    let mut client = Client::start(&options);
    let mut server = Scram::default();
    client.run(&mut |command| server.answer(command)).unwrap();
    let mut credential_cache = CredentialCache::default();
    credential_cache.merge(client.handshake.credential_cache());
    // With the keys, even someone who knows only a wrong password gets in.
    let wrong = crate::server::options("mongodb://user:crayon@a/?authSource=shop");
    let mut next = Client::knowing(&wrong, credential_cache);
    next.run(&mut |command| server.answer(command)).unwrap();
}

fn with_mechanisms(mechanisms: sdam_core::bson::RawBson) -> RawDocumentBuf {
    let mut reply = hello();
    reply.append(cstr!("saslSupportedMechs"), mechanisms);
    reply
}

#[test]
fn sha_256_is_used_if_listed_and_sha_1_otherwise() {
    // "If SCRAM-SHA-256 is present in the list of mechanism, then it MUST be used as the default;
    // otherwise, SCRAM-SHA-1 MUST be used", whatever else is listed (HS-P2: no error).
    let cases = [
        (rawbson!(["SCRAM-SHA-1", "SCRAM-SHA-256"]), "SCRAM-SHA-256"),
        (rawbson!(["SCRAM-SHA-1"]), "SCRAM-SHA-1"),
        (rawbson!(["PLAIN", "an arbitrary string"]), "SCRAM-SHA-1"),
        (rawbson!([1, null, "SCRAM-SHA-256", {}]), "SCRAM-SHA-256"),
        (rawbson!([]), "SCRAM-SHA-1"),
        (rawbson!("an arbitrary string"), "SCRAM-SHA-1"),
    ];
    for (mechanisms, expected) in cases {
        let mut client = Client::start(&options(URI));
        client.reply(&with_mechanisms(mechanisms.clone())).unwrap();
        assert_eq!(client.last().get_str("mechanism").ok(), Some(expected), "{mechanisms:?}");
    }
    let mut client = Client::start(&options(URI));
    client.reply(&hello()).unwrap();
    assert_eq!(client.last().get_str("mechanism").ok(), Some("SCRAM-SHA-1"), "nothing is listed");
}

#[test]
fn another_mechanism_than_was_tried_begins_anew() {
    let mut client = Client::start(&options(URI));
    let mut reply = with_mechanisms(rawbson!(["SCRAM-SHA-1"]));
    let tried = rawdoc! { "conversationId": 1, "done": false, "payload": binary(b"r=x") };
    reply.append(cstr!("speculativeAuthenticate"), tried);
    client.reply(&reply).unwrap();
    assert_eq!(names(client.last())[0], "saslStart");
    assert_eq!(client.last().get_str("mechanism").ok(), Some("SCRAM-SHA-1"));
}

#[test]
fn monitors_apart_nobody_authenticates_without_credentials() {
    let mut client = Client::start(&options("mongodb://a/shop?authSource=admin"));
    assert!(!names(client.last()).contains(&"speculativeAuthenticate"));
    done(client.reply(&hello()));
}

fn x509(uri: &str) -> Client {
    Client::start(&options(uri))
}

#[test]
fn x509_says_who_the_client_is_only_if_told_to() {
    // Authentication, "MONGODB-X509": "If the application does not provide a username you MUST NOT
    // send a username to the server."
    let uri = "mongodb://a/?authMechanism=MONGODB-X509&tls=true";
    let mut client = x509(uri);
    let tried = client.last().get_document("speculativeAuthenticate").unwrap();
    assert_eq!(names(tried), ["authenticate", "mechanism", "db"]);
    assert_eq!(tried.get_str("db").ok(), Some("$external"));
    client.reply(&hello()).unwrap();
    assert_eq!(names(client.last()), ["authenticate", "mechanism", "$db"]);
    assert_eq!(client.last().get_str("$db").ok(), Some("$external"));
    done(client.reply(&rawdoc! { "dbname": "$external", "user": "CN=client", "ok": 1 }));

    let uri = "mongodb://CN=client@a/?authMechanism=MONGODB-X509&tls=true";
    let mut client = x509(uri);
    let mut reply = hello();
    let tried = rawdoc! { "dbname": "$external", "user": "CN=client" };
    reply.append(cstr!("speculativeAuthenticate"), tried);
    done(client.reply(&reply));
    let tried = client.last().get_document("speculativeAuthenticate").unwrap();
    assert_eq!(tried.get_str("user").ok(), Some("CN=client"));
}

#[test]
fn plain_goes_with_tls_or_if_the_user_insists() {
    let build = |allow| {
        built(|options| {
            let options = options.username("user").password("pencil");
            let plain = sdam_core::config::AuthMechanism::Plain;
            options.auth_mechanism(plain).allow_plain_without_tls(allow)
        })
    };
    let refused = build(false);
    let start = |options: &std::sync::Arc<Options>, encrypted| {
        let mut opening = opening(options, CredentialCache::default());
        opening.encrypted = encrypted;
        Handshake::start(options, opening, &mut Vec::new())
    };
    let error = start(&refused, false).unwrap_err();
    assert_eq!(error.to_failure().cause, Cause::Configuration);
    assert!(error.to_string().contains("allow_plain_without_tls"), "{error}");
    assert!(start(&refused, true).is_ok());

    let mut client = Client::start(&build(true));
    assert!(!names(client.last()).contains(&"speculativeAuthenticate"));
    client.reply(&hello()).unwrap();
    // The example of the Authentication specification, "PLAIN".
    assert_eq!(payload(client.last()), b"\0user\0pencil");
    assert_eq!(client.last().get_str("$db").ok(), Some("$external"));
    let accepted = rawdoc! { "conversationId": 1, "done": true, "payload": binary(b""), "ok": 1 };
    done(client.reply(&accepted));

    // What is null counts as absent.
    let mut client = Client::start(&build(true));
    client.reply(&hello()).unwrap();
    done(client.reply(&rawdoc! { "conversationId": null, "done": true, "payload": null, "ok": 1 }));
}

#[test]
fn what_cannot_work_is_refused_before_anything_is_sent() {
    let cases = [
        ("mongodb://user@%2Ftmp%2Fa.sock/?authMechanism=GSSAPI", "SERVICE_HOST:db.example"),
        ("mongodb://user@a", "password"),
        #[cfg(not(feature = "aws"))]
        ("mongodb://a/?authMechanism=MONGODB-AWS", "feature `aws`"),
    ];
    for (uri, word) in cases {
        let (options, mut out) = (options(uri), Vec::new());
        let opening = opening(&options, CredentialCache::default());
        let error = Handshake::start(&options, opening, &mut out).unwrap_err();
        assert!(error.to_string().contains(word), "{error}");
        assert_eq!((error.stage(), out.len()), (Stage::Authenticate, 0));
    }
}

/// Authentication, "Reauthentication": a nonce of SCRAM must be new for every conversation, and
/// reauthentication with MONGODB-OIDC has none.
#[test]
fn only_a_connection_of_oidc_is_authenticated_once_more() {
    let x509 = "mongodb://a/?authMechanism=MONGODB-X509&tls=true";
    for (uri, word) in [(URI, "SCRAM-SHA-256"), (x509, "MONGODB-X509"), ("mongodb://a", "nothing")]
    {
        let mut client = Client::start(&options(uri));
        let mut scram = Scram { speculates: true, ..Scram::default() };
        let accepted = |command: &RawDocument| match uri {
            URI => scram.answer(command),
            _ if command.get("authenticate").unwrap().is_some() => rawdoc! { "ok": 1 },
            _ => hello(),
        };
        let connection_description = client.run(&mut { accepted }).unwrap();
        let (options, mut out) = (options(uri), Vec::new());
        let opening = opening(&options, CredentialCache::default());
        let again = Handshake::reauthenticate(&options, opening, *connection_description, &mut out);
        let error = again.unwrap_err();
        assert!(error.to_string().contains(word), "{error}");
        let failure = error.to_failure();
        assert_eq!((failure.cause, out.len()), (Cause::Configuration, 0));
    }
}

#[test]
fn a_password_that_saslprep_forbids_is_an_error_and_never_sent_otherwise() {
    let options = built(|options| options.username("user").password("planted\u{7}"));
    let mut client = Client::start(&options);
    let mut server = Scram::default();
    let error = client.run(&mut |command| server.answer(command)).unwrap_err();
    assert_eq!(error.to_failure().cause, Cause::Configuration);
    assert!(error.to_string().contains("SASLprep"), "{error}");
    assert!(!error.to_string().contains("planted"));
}

#[test]
fn nothing_that_is_shown_shows_a_secret() {
    let secrets = |texts: &[String]| {
        for text in texts {
            for secret in ["pencil", "planted-token"] {
                assert!(!text.contains(secret), "{text}");
            }
        }
    };
    let options = options(URI);
    let given = opening(&options, CredentialCache::default());
    secrets(&[format!("{given:?}"), format!("{options:?}"), options.to_string()]);
    let mut client = Client::start(&options);
    let mut server = Scram::default();
    let mut shown = Vec::new();
    let connection_description =
        client.run(&mut |command: &RawDocument| server.answer(command)).unwrap();
    shown.push(format!(
        "{:?} {:?} {connection_description:?}",
        client.handshake,
        client.handshake.credential_cache()
    ));
    secrets(&shown);
    assert!(!client.sent.iter().any(|command| format!("{command:?}").contains("pencil")));
}
