//! GSSAPI (RFC 4752; Authentication, "GSSAPI"): a context outside gives the tokens.

use std::sync::Arc;

use sdam_core::auth::{
    Canonicalization, CredentialRequest, CredentialResponse, GssapiContext, GssapiError,
    GssapiLogin, GssapiProvider, GssapiRequest, GssapiResponse, GssapiService, GssapiStep,
    GssapiToken, OidcToken,
};
use sdam_core::bson::{RawDocumentBuf, rawdoc};
use sdam_core::config::Options;
use sdam_core::failure::{Cause, GssapiProblem, Stage};
use sdam_core::handshake::HandshakeProgress;
use sdam_core::operation::OperationError;

use crate::server::{Client, asked, binary, done, hello, names, options, payload};

fn kerberos(properties: &str) -> Arc<Options> {
    let uri = "mongodb://ann%40HERE:planted-password@db.example/?authMechanism=GSSAPI";
    match properties {
        "" => options(uri),
        _ => options(&format!("{uri}&authMechanismProperties={properties}")),
    }
}

fn reply(done: bool, token: &[u8]) -> RawDocumentBuf {
    rawdoc! { "conversationId": 1, "done": done, "payload": binary(token), "ok": 1 }
}

fn token(text: &str) -> GssapiToken {
    GssapiToken::new(text)
}

fn going_on(text: &str) -> GssapiResponse {
    GssapiResponse::Step(GssapiStep::Continue(token(text)))
}

fn question(progress: Result<HandshakeProgress, OperationError>) -> GssapiRequest {
    match asked(progress) {
        request @ CredentialRequest::Gssapi(_) if request.is_for_person() => {
            panic!("{request:?} is for a machine")
        }
        CredentialRequest::Gssapi(question) => question,
        other => panic!("{other:?}"),
    }
}

fn supply(
    client: &mut Client,
    answer: GssapiResponse,
) -> Result<HandshakeProgress, OperationError> {
    client.supply(CredentialResponse::Gssapi(answer))
}

/// Says hello, and returns the login that the client asks for a context.
fn begun(client: &mut Client) -> GssapiLogin {
    assert!(!names(client.last()).contains(&"speculativeAuthenticate"));
    match question(client.reply(&hello())) {
        GssapiRequest::Begin(login) => login,
        other => panic!("{other:?}"),
    }
}

/// Goes on until the server has offered security layers, which is what it is given.
fn offered(client: &mut Client) -> Result<HandshakeProgress, OperationError> {
    begun(client);
    supply(client, going_on("first"))?;
    let asked = question(client.reply(&reply(false, b"second")));
    assert_eq!(asked, GssapiRequest::Continue(token("second")));
    supply(client, GssapiResponse::Step(GssapiStep::Complete(None)))?;
    assert!(payload(client.last()).is_empty(), "the client responds with no data");
    client.reply(&reply(false, b"wrapped offer"))
}

/// "The client calls GSS_Init_sec_context .. The client must then respond .. with the output_token";
/// "The client passes this token to GSS_Unwrap .. then constructs data, with the first octet
/// containing the bit-mask specifying the selected security layer" (RFC 4752, section 3.1).
#[test]
fn a_context_is_asked_for_each_token_and_no_layer_is_chosen() {
    let mut client = Client::start(&kerberos(""));
    let service = GssapiService::new("mongodb", "db.example").with_realm(Some("HERE".into()));
    assert_eq!(service.to_string(), "mongodb/db.example@HERE");
    let login = GssapiLogin::new("ann@HERE", service);
    let asked = begun(&mut client);
    assert!(!format!("{asked:?}").contains("planted"));
    assert_eq!(asked, login.with_password(Some("planted-password".into())));

    supply(&mut client, going_on("first")).unwrap();
    assert_eq!(names(client.last()), ["saslStart", "mechanism", "payload", "$db"]);
    assert_eq!(client.last().get_str("mechanism").ok(), Some("GSSAPI"));
    assert_eq!(client.last().get_str("$db").ok(), Some("$external"));
    assert_eq!(payload(client.last()), b"first");

    let asked = question(client.reply(&reply(false, b"second")));
    assert_eq!(asked, GssapiRequest::Continue(token("second")));
    assert_eq!(format!("{asked:?}"), "Continue(***)");
    let last = GssapiStep::Complete(Some(token("third")));
    supply(&mut client, GssapiResponse::Step(last)).unwrap();
    assert_eq!(names(client.last())[..2], ["saslContinue", "conversationId"]);
    assert_eq!(payload(client.last()), b"third");

    let asked = question(client.reply(&reply(false, b"wrapped offer")));
    assert_eq!(asked, GssapiRequest::Unwrap(token("wrapped offer")));
    // All layers, and at most 64 kB a message.
    let offer = GssapiToken::new([7, 1, 0, 0]);
    let asked = question(supply(&mut client, GssapiResponse::Unwrapped(offer)));
    assert_eq!(asked, GssapiRequest::Wrap(GssapiToken::new(b"\x01\0\0\0ann@HERE".as_slice())));
    supply(&mut client, GssapiResponse::Wrapped(token("wrapped answer"))).unwrap();
    assert_eq!(payload(client.last()), b"wrapped answer");
    done(client.reply(&reply(true, b"")));
}

/// "SERVICE_NAME", "SERVICE_REALM", "SERVICE_HOST"; the realm of the user is that of the service
/// unless another one is named, and no name has a default one.
#[test]
fn properties_name_the_service() {
    for (properties, expected) in [
        ("SERVICE_NAME:other", "other/db.example@HERE"),
        ("SERVICE_REALM:THERE", "mongodb/db.example@THERE"),
        ("SERVICE_HOST:real.example", "mongodb/real.example@HERE"),
        ("CANONICALIZE_HOST_NAME:none", "mongodb/db.example@HERE"),
        ("CANONICALIZE_HOST_NAME:false", "mongodb/db.example@HERE"),
    ] {
        let login = begun(&mut Client::start(&kerberos(properties)));
        assert_eq!(login.service.to_string(), expected, "{properties}");
    }
    let login = begun(&mut Client::start(&options("mongodb://ann@db/?authMechanism=GSSAPI")));
    assert_eq!((login.password, login.service.to_string()), (None, "mongodb/db".into()));
    // A socket has no host, unless one is named.
    let socket = "mongodb://ann@%2Ftmp%2Fa.sock/?authMechanism=GSSAPI";
    let named = format!("{socket}&authMechanismProperties=SERVICE_HOST:db");
    assert_eq!(begun(&mut Client::start(&options(&named))).service.host, "db");
}

/// "Hostname Canonicalization": "The driver MUST fallback to the provided host if any lookup errors
/// or returns no results."
#[test]
fn a_host_is_looked_up_only_if_that_is_asked_for_and_stays_if_nothing_is_found() {
    for (property, expected) in [
        ("forward", Canonicalization::Forward),
        ("forwardAndReverse", Canonicalization::ForwardAndReverse),
        ("true", Canonicalization::ForwardAndReverse),
    ] {
        for (found, host) in [(Some("real.example"), "real.example"), (None, "db.example")] {
            let mut client =
                Client::start(&kerberos(&format!("CANONICALIZE_HOST_NAME:{property}")));
            match question(client.reply(&hello())) {
                GssapiRequest::CanonicalName { host, canonicalization } => {
                    assert_eq!((&*host, canonicalization), ("db.example", expected));
                }
                other => panic!("{other:?}"),
            }
            let found = GssapiResponse::CanonicalName(found.map(str::to_owned));
            match question(supply(&mut client, found)) {
                GssapiRequest::Begin(login) => assert_eq!(login.service.host, host),
                other => panic!("{other:?}"),
            }
        }
    }
    // "If a value is provided that does not match one of these the driver MUST raise an error."
    for (properties, word) in [
        ("CANONICALIZE_HOST_NAME:maybe", "forwardAndReverse"),
        ("ENVIRONMENT:k8s", "other properties"),
    ] {
        let uri = "mongodb://ann@db/?authMechanism=GSSAPI&authMechanismProperties=";
        let error = Options::parse(&format!("{uri}{properties}")).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
    // "username MUST be specified and non-zero length"; "source MUST be "$external""
    for uri in ["mongodb://db/?authMechanism=GSSAPI", "mongodb://@db/?authMechanism=GSSAPI"] {
        assert!(Options::parse(uri).is_err(), "{uri}");
    }
    assert!(Options::parse("mongodb://ann@db/?authMechanism=GSSAPI&authSource=admin").is_err());
}

fn refused(progress: Result<HandshakeProgress, OperationError>, cause: &Cause, words: &str) {
    let failure = progress.unwrap_err().to_failure();
    let stage = match cause {
        // The client's own half.
        Cause::Configuration => Stage::Credentials,
        _ => Stage::Authenticate,
    };
    assert_eq!((failure.stage, &failure.cause), (stage, cause), "{failure}");
    assert!(failure.detail.contains(words), "{failure}");
    assert!(!failure.detail.contains("planted"), "{failure}");
}

/// "If the resulting cleartext is not 4 octets long, the client fails the negotiation" (RFC 4752,
/// section 3.1).
#[test]
fn an_offer_without_the_layer_none_or_of_another_length_is_refused() {
    for (offer, cause, words) in [
        (&[][..], Cause::Malformed, "form"),
        (&[1, 0, 0], Cause::Malformed, "form"),
        (&[1, 0, 0, 0, 0], Cause::Malformed, "form"),
        (&[6, 0, 16, 0], Cause::Authentication, "security layer"),
        (&[0, 0, 0, 0], Cause::Authentication, "security layer"),
    ] {
        let mut client = Client::start(&kerberos(""));
        question(offered(&mut client));
        let offer = GssapiResponse::Unwrapped(GssapiToken::new(offer));
        refused(supply(&mut client, offer), &cause, words);
    }
    // Those who offer nothing else say no size; some do, and it does not matter.
    let mut client = Client::start(&kerberos(""));
    question(offered(&mut client));
    let offer = GssapiResponse::Unwrapped(GssapiToken::new([1, 0, 255, 255]));
    assert!(matches!(question(supply(&mut client, offer)), GssapiRequest::Wrap(_)));
}

#[test]
fn tokens_that_no_context_could_take_are_refused() {
    // The server's: none, one that is too long, or the end before it is due.
    for (answer, words) in [
        (reply(false, b""), "has no token"),
        (reply(false, &vec![b'p'; 16 * 1024 + 1]), "longer than 16 kB"),
        (reply(true, b"planted"), "before a security layer"),
    ] {
        let mut client = Client::start(&kerberos(""));
        begun(&mut client);
        supply(&mut client, going_on("first")).unwrap();
        refused(client.reply(&answer), &Cause::Malformed, words);
        let mut client = Client::start(&kerberos(""));
        begun(&mut client);
        let complete = GssapiResponse::Step(GssapiStep::Complete(Some(token("first"))));
        supply(&mut client, complete).unwrap();
        refused(client.reply(&answer), &Cause::Malformed, words);
    }
    // More of them than there can be.
    let mut client = Client::start(&kerberos(""));
    begun(&mut client);
    let refusal = (0..10).find_map(|_| {
        supply(&mut client, going_on("another")).unwrap();
        client.reply(&reply(false, b"planted")).err()
    });
    let refusal = refusal.expect("a conversation has an end");
    refused(Err(refusal), &Cause::Malformed, "more tokens");
    // The end, and no end.
    let mut client = Client::start(&kerberos(""));
    question(offered(&mut client));
    let offer = GssapiResponse::Unwrapped(GssapiToken::new([1, 0, 0, 0]));
    question(supply(&mut client, offer));
    supply(&mut client, GssapiResponse::Wrapped(token("answer"))).unwrap();
    refused(client.reply(&reply(false, b"")), &Cause::Authentication, "goes on");
    // Those of the context.
    for (answer, words) in [
        (going_on(""), "empty"),
        (going_on(&"p".repeat((1 << 20) + 1)), "longer than"),
        (GssapiResponse::Unwrapped(token("first")), "unexpected type"),
    ] {
        let mut client = Client::start(&kerberos(""));
        begun(&mut client);
        refused(supply(&mut client, answer), &Cause::Configuration, words);
    }
    let mut client = Client::start(&kerberos(""));
    begun(&mut client);
    let other = CredentialResponse::Oidc(OidcToken::new("planted"));
    refused(client.supply(other), &Cause::Configuration, "unexpected type");
}

/// A context that says what it is asked.
struct Echo;

impl GssapiProvider for Echo {
    fn begin(&self, login: &GssapiLogin) -> Result<Box<dyn GssapiContext>, GssapiError> {
        match &*login.username {
            "ann" => Ok(Box::new(Self)),
            other => Err(GssapiError::new(GssapiProblem::NoTicket, format!("no {other}"))),
        }
    }
}

impl GssapiContext for Echo {
    fn step(&mut self, token: Option<&[u8]>) -> Result<GssapiStep, GssapiError> {
        Ok(GssapiStep::Complete(token.map(GssapiToken::new)))
    }

    fn unwrap(&mut self, message: &[u8]) -> Result<GssapiToken, GssapiError> {
        Ok(GssapiToken::new(message))
    }

    fn wrap(&mut self, _: &[u8]) -> Result<GssapiToken, GssapiError> {
        Err(GssapiError::new(GssapiProblem::TicketExpired, "it has expired"))
    }
}

#[test]
fn a_provider_begins_the_context_and_that_answers_what_follows() {
    let (mut context, service) = (None, GssapiService::new("mongodb", "db"));
    let mut answer = |request: GssapiRequest| request.answer(&Echo, &mut context);
    let early = answer(GssapiRequest::Wrap(token("early"))).unwrap_err();
    assert_eq!(
        (early.problem, &*early.to_string()),
        (GssapiProblem::Other, "no context has begun")
    );
    let name = GssapiRequest::CanonicalName {
        host: "db".into(),
        canonicalization: Canonicalization::Forward,
    };
    assert_eq!(answer(name), Ok(GssapiResponse::CanonicalName(None)));
    let stranger = GssapiRequest::Begin(GssapiLogin::new("bob", service.clone()));
    assert_eq!(answer(stranger).unwrap_err().to_string(), "no bob");
    let ann = GssapiRequest::Begin(GssapiLogin::new("ann", service));
    assert_eq!(answer(ann), Ok(GssapiResponse::Step(GssapiStep::Complete(None))));
    let step = GssapiResponse::Step(GssapiStep::Complete(Some(token("second"))));
    assert_eq!(answer(GssapiRequest::Continue(token("second"))), Ok(step));
    let unwrapped = GssapiResponse::Unwrapped(token("offer"));
    assert_eq!(answer(GssapiRequest::Unwrap(token("offer"))), Ok(unwrapped));
    let failure = answer(GssapiRequest::Wrap(token("answer"))).unwrap_err().to_failure();
    let cause = Cause::GssapiFailed { problem: GssapiProblem::TicketExpired };
    assert_eq!((failure.stage, failure.cause), (Stage::Credentials, cause));
}
