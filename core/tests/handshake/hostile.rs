//! Servers that answer nonsense, and streams that are torn: errors, never panics.

use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop_oneof, proptest};
use sdam_core::auth::CredentialCache;
use sdam_core::bson::oid::ObjectId;
use sdam_core::bson::{RawBson, RawDocument, RawDocumentBuf, cstr, rawbson, rawdoc};
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::handshake::{Handshake, HandshakeProgress};
use sdam_core::operation::OperationError;

use crate::server::{Client, Scram, binary, hello, names, opening, options};

const URI: &str = "mongodb://user:pencil@a/?loadBalanced=true";

fn cause(error: &OperationError) -> (Stage, Option<Cause>) {
    match error {
        OperationError::Stream(Failure { stage, cause, .. }) => (*stage, Some(cause.clone())),
        other => (other.stage(), None),
    }
}

/// Values of types that no field of a reply has.
fn strange() -> [RawBson; 6] {
    let mut nested = rawdoc! {};
    for _ in 0..100 {
        nested = rawdoc! { "x": nested };
    }
    [
        rawbson!({ "x": nested }),
        RawBson::Double(f64::NAN),
        RawBson::Int64(i64::MIN),
        RawBson::MinKey,
        RawBson::RegularExpression(sdam_core::bson::Regex {
            pattern: cstr!("x").to_owned(),
            options: cstr!("").to_owned(),
        }),
        RawBson::Boolean(false),
    ]
}

#[test]
fn a_reply_to_hello_of_the_wrong_shape_is_malformed() {
    let fields = [
        "ok",
        "maxWireVersion",
        "maxBsonObjectSize",
        "maxMessageSizeBytes",
        "maxWriteBatchSize",
        "connectionId",
        "compression",
        "speculativeAuthenticate",
        "arbiterOnly",
        "setName",
        "hosts",
        "helloOk",
        "errmsg",
        "topologyVersion",
        "serviceId",
    ];
    for field in fields {
        let mut failures = 0;
        for value in strange() {
            let mut reply = RawDocumentBuf::new();
            reply.append(sdam_core::bson::raw::CString::try_from(field).unwrap(), value);
            for (key, value) in hello().iter().map(Result::unwrap) {
                if key.as_str() != field {
                    reply.append(key, value);
                }
            }
            if field != "serviceId" {
                reply.append(cstr!("serviceId"), ObjectId::from_bytes([1; 12]));
            }
            match Client::start(&options(URI)).reply(&reply) {
                Ok(HandshakeProgress::Reading) => {}
                Ok(other) => panic!("{field}: {other:?} without authentication"),
                Err(_) => failures += 1,
            }
        }
        assert!(failures >= 4, "{field}: {failures} of 6 are errors");
    }
    for reply in [rawdoc! {}, rawdoc! { "maxWireVersion": 17 }] {
        let error = Client::start(&options(URI)).reply(&reply).unwrap_err();
        assert_eq!(cause(&error), (Stage::Hello, Some(Cause::Malformed)), "{reply:?}");
    }
    for size in [0, -1] {
        let reply = rawdoc! { "ok": 1, "maxBsonObjectSize": size };
        let error = Client::start(&options("mongodb://a")).reply(&reply).unwrap_err();
        assert_eq!(cause(&error), (Stage::Hello, Some(Cause::Malformed)));
    }
}

#[test]
fn a_reply_to_authentication_of_the_wrong_shape_is_malformed() {
    for field in ["ok", "conversationId", "done", "payload"] {
        for value in strange() {
            let mut client = Client::start(&options("mongodb://user:pencil@a"));
            client.reply(&hello()).unwrap();
            let mut reply = RawDocumentBuf::new();
            reply.append(sdam_core::bson::raw::CString::try_from(field).unwrap(), value.clone());
            let good = rawdoc! {
                "conversationId": 1, "done": false, "payload": binary(b"r="), "ok": 1,
            };
            for (key, value) in good.iter().map(Result::unwrap) {
                if key.as_str() != field {
                    reply.append(key, value);
                }
            }
            let error = client.reply(&reply).unwrap_err();
            assert_eq!(error.stage(), Stage::Authenticate, "{field}: {value:?}");
        }
    }
    let mut client = Client::start(&options("mongodb://user:pencil@a"));
    client.reply(&hello()).unwrap();
    let text = rawdoc! { "conversationId": 1, "done": false, "payload": "r=", "ok": 1 };
    let error = client.reply(&text).unwrap_err();
    assert!(error.to_string().contains("binary data"), "{error}");
    let mut client = Client::start(&options("mongodb://user:pencil@a"));
    client.reply(&hello()).unwrap();
    let error = client.reply(&rawdoc! { "done": true }).unwrap_err();
    assert_eq!(cause(&error), (Stage::Authenticate, Some(Cause::Malformed)), "ok is missing");
}

#[test]
fn messages_that_are_no_replies_are_refused() {
    let mut client = Client::start(&options("mongodb://a"));
    let mut other = client.reply_bytes(&hello());
    other[8] = 99;
    let error = client.receive(&other).unwrap_err();
    assert_eq!(cause(&error), (Stage::Hello, Some(Cause::Malformed)));
    let mut client = Client::start(&options("mongodb://a"));
    let error = client.receive(&[0xff; 16]).unwrap_err();
    assert_eq!(cause(&error), (Stage::Hello, Some(Cause::Malformed)));
    let mut client = Client::start(&options("mongodb://a"));
    let mut more = client.reply_bytes(&hello());
    more[16] = 2;
    assert!(client.receive(&more).unwrap_err().to_string().contains("announces another"));
}

#[test]
fn a_reply_is_a_mebibyte_long_at_most() {
    let mut client = Client::start(&options("mongodb://a"));
    assert!(client.receive(&1_048_576_i32.to_le_bytes()).is_ok());
    let mut client = Client::start(&options("mongodb://a"));
    let error = client.receive(&1_048_577_i32.to_le_bytes()).unwrap_err();
    assert_eq!(cause(&error), (Stage::Hello, Some(Cause::Malformed)));
    let detail = "a message of 1048577 bytes; lengths from 16 to 1048576 are allowed";
    assert!(error.to_string().ends_with(detail), "{error}");
}

/// Returns the result of a handshake, with the bytes of each reply in pieces of these lengths.
fn in_pieces(server: &mut Scram, uri: &str, lengths: &[usize]) -> String {
    let mut client = Client::start(&options(uri));
    let mut lengths = lengths.iter().copied().cycle();
    loop {
        let reply = server.answer(client.last());
        let bytes = client.reply_bytes(&reply);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(lengths.next().unwrap_or(1).clamp(1, rest.len()));
            rest = after;
            match client.receive(piece) {
                Ok(HandshakeProgress::Reading) => {}
                Ok(HandshakeProgress::Done(connection_description)) => {
                    return format!("{connection_description:?} {:?}", client.sent);
                }
                Ok(HandshakeProgress::Asking(question)) => panic!("{question:?}"),
                Err(error) => return format!("{error:?} {:?}", client.sent),
            }
        }
    }
}

fn any_value() -> impl Strategy<Value = RawBson> {
    prop_oneof![
        any::<i32>().prop_map(RawBson::Int32),
        any::<f64>().prop_map(RawBson::Double),
        any::<bool>().prop_map(RawBson::Boolean),
        "[a-zA-Z0-9=,/+-]{0,40}".prop_map(RawBson::String),
        "[rsiven]=[a-zA-Z0-9=,/+-]{0,40}".prop_map(|text| RawBson::from(binary(text.as_bytes()))),
        Just(rawbson!({ "conversationId": 1, "done": false, "payload": "x" })),
        Just(rawbson!(["SCRAM-SHA-256", 1])),
        Just(RawBson::Null),
    ]
}

proptest! {
    // Few, as each derives keys four times.
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_result_does_not_depend_on_how_bytes_are_split(
        speculates: bool,
        long: bool,
        wrong: bool,
        lengths in proptest::collection::vec(1_usize..200, 1..20),
    ) {
        let uri = if wrong { "mongodb://user:crayon@a" } else { "mongodb://user:pencil@a" };
        let server = || Scram { speculates, long, ..Scram::default() };
        let whole = in_pieces(&mut server(), uri, &[usize::MAX]);
        assert_eq!(in_pieces(&mut server(), uri, &lengths), whole);
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_client_panic(bytes: Vec<u8>) {
        let options = options("mongodb://user:pencil@a");
        let opening = opening(&options, CredentialCache::default());
        let mut handshake = Handshake::start(&options, opening, &mut Vec::new()).unwrap();
        let _ = handshake.receive(&bytes, &mut Vec::new());
    }

    #[test]
    fn no_replies_let_a_client_in_that_the_server_does_not_know(
        replies in proptest::collection::vec(
            proptest::collection::vec((0_usize..9, any_value()), 0..8), 1..4),
    ) {
        let keys = [cstr!("done"), cstr!("payload"), cstr!("conversationId"), cstr!("code"),
            cstr!("speculativeAuthenticate"), cstr!("saslSupportedMechs"), cstr!("errmsg"),
            cstr!("compression"), cstr!("maxWireVersion")];
        let mut client = Client::start(&options("mongodb://user:pencil@a"));
        for fields in replies {
            let mut reply = rawdoc! { "ok": 1 };
            fields.into_iter().for_each(|(key, value)| reply.append(keys[key], value));
            match client.reply(&reply) {
                Ok(progress) => assert!(matches!(progress, HandshakeProgress::Reading), "{progress:?}"),
                Err(_) => break,
            }
        }
        let known: &RawDocument = client.last();
        assert!(!names(known).is_empty());
    }
}
