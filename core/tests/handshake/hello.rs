//! Hello: what the client says and what it makes of the reply.

use sdam_core::bson::oid::ObjectId;
use sdam_core::bson::{RawBson, RawDocumentBuf, Timestamp, cstr, rawdoc};
use sdam_core::config::{OpeningHello, ServerApiVersion};
use sdam_core::description::ServerType;
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::handshake::HandshakeProgress;
use sdam_core::operation::{CommandError, OperationError};
use sdam_core::wire::{Compressor, MAX_MESSAGE_LEN, op_code};

use crate::server::{Client, Scram, binary, broken, built, done, hello, names, options};

#[test]
fn legacy_hello_opens_and_hello_where_it_must() {
    // Handshake, "Connection handshake"
    let client = Client::start(&options("mongodb://a"));
    let expected = ["isMaster", "helloOk", "backpressure", "client", "compression", "$db"];
    assert_eq!(names(client.last()), expected);
    assert_eq!(client.last().get_str("backpressure").ok(), Some("2"), "HS-P11");
    let balanced = Client::start(&options("mongodb://a/?loadBalanced=true"));
    assert_eq!(names(balanced.last())[0], "hello");
    assert_eq!(balanced.last().get_bool("loadBalanced").ok(), Some(true));
    let with_api = Client::start(&built(|options| options.server_api(ServerApiVersion::V1.into())));
    assert_eq!(names(with_api.last())[0], "hello");
    assert_eq!(with_api.last().get_str("apiVersion").ok(), Some("1"));
}

#[test]
fn legacy_hello_may_go_by_op_query_and_hello_never_does() {
    let mut by_query = Client::start(&built(|o| o.opening_hello(OpeningHello::OpQuery)));
    assert_eq!(by_query.op_code(), op_code::OP_QUERY);
    assert_eq!(done(by_query.reply(&hello())).max_wire_version, 17);
    let by_message =
        Client::start(&built(|o| o.opening_hello(OpeningHello::OpQuery).load_balanced(true)));
    assert_eq!(by_message.op_code(), op_code::OP_MSG);
}

#[test]
fn the_agreement_says_what_the_server_said_and_defaults_for_the_rest() {
    let mut client = Client::start(&options("mongodb://a"));
    assert_eq!((client.handshake.stage(), client.handshake.max_wire_version()), (Stage::Hello, 0));
    let mut reply = hello();
    reply.append(cstr!("maxBsonObjectSize"), 1000);
    reply.append(cstr!("maxMessageSizeBytes"), i64::MAX);
    reply.append(cstr!("maxWriteBatchSize"), 7.0);
    reply.append(cstr!("connectionId"), 42_i64);
    let connection_description = done(client.reply(&reply));
    assert_eq!(connection_description.max_bson_object_size, 1000);
    assert_eq!(
        connection_description.max_message_size_bytes, MAX_MESSAGE_LEN,
        "longer ones are not sent"
    );
    assert_eq!(connection_description.max_write_batch_size, 7);
    assert_eq!(connection_description.server_connection_id, Some(42));
    assert_eq!(connection_description.server_type, ServerType::Standalone);
    assert_eq!(*connection_description.hello, *reply);
    assert_eq!(client.handshake.max_wire_version(), 17);
    let connection_description = done(Client::start(&options("mongodb://a")).reply(&hello()));
    assert_eq!(connection_description.max_bson_object_size, 16 * 1024 * 1024);
    assert_eq!(connection_description.max_write_batch_size, 100_000);
    assert_eq!(connection_description.server_connection_id, None);
}

/// "If it has a value, sessions are supported" (Driver Sessions, "How to Tell Whether a Connection
/// Supports Sessions"); the same holds for all optional fields.
#[test]
fn a_field_of_the_reply_that_is_null_counts_as_absent() {
    let told = |reply: &RawDocumentBuf| done(Client::start(&options("mongodb://a")).reply(reply));
    let mut reply = hello();
    reply.append(cstr!("logicalSessionTimeoutMinutes"), 30);
    assert!(told(&reply).has_sessions);
    let bare = told(&hello());
    assert!(!bare.has_sessions);
    for field in [
        cstr!("logicalSessionTimeoutMinutes"),
        cstr!("maxBsonObjectSize"),
        cstr!("maxMessageSizeBytes"),
        cstr!("maxWriteBatchSize"),
        cstr!("connectionId"),
        cstr!("compression"),
        cstr!("saslSupportedMechs"),
        cstr!("speculativeAuthenticate"),
        cstr!("serviceId"),
        cstr!("setName"),
        cstr!("msg"),
    ] {
        let mut reply = hello();
        reply.append(field, RawBson::Null);
        let mut null = told(&reply);
        null.hello = bare.hello.clone();
        assert_eq!(format!("{null:?}"), format!("{bare:?}"), "{field:?}");
    }
}

#[test]
fn the_cluster_time_of_the_reply_is_kept_and_nonsense_is_none() {
    // Driver Sessions, "Receiving the current cluster time"
    let timestamp = Timestamp { time: 5, increment: 1 };
    let told = rawdoc! { "clusterTime": timestamp };
    for (time, expected) in
        [(told.clone(), Some(told)), (rawdoc! { "clusterTime": "now" }, None), (rawdoc! {}, None)]
    {
        let mut client = Client::start(&options("mongodb://a"));
        assert!(client.handshake.cluster_time().is_none());
        let mut reply = hello();
        reply.append(cstr!("$clusterTime"), time);
        done(client.reply(&reply));
        let kept = client.handshake.cluster_time().map(|time| time.document().to_owned());
        assert_eq!(kept, expected);
    }
}

#[test]
fn a_load_balanced_connection_belongs_to_a_service() {
    // Load Balancer Support, "Connection establishment"
    let balanced = options("mongodb://a/?loadBalanced=true");
    let mut reply = hello();
    let service = ObjectId::from_bytes([3; 12]);
    reply.append(cstr!("serviceId"), service);
    let mut client = Client::start(&balanced);
    assert_eq!(client.handshake.service(), None);
    assert_eq!(done(client.reply(&reply)).service, Some(service));
    assert_eq!(client.handshake.service(), Some(service));
    let error = Client::start(&balanced).reply(&hello()).unwrap_err();
    let text = "Driver attempted to initialize in load balancing mode, but the server does not \
                support this mode.";
    assert_eq!((error.to_string().as_str(), error.stage()), (text, Stage::Hello));
    let unbalanced = done(Client::start(&options("mongodb://a")).reply(&reply));
    assert_eq!(unbalanced.service, None, "it was not asked for");
}

#[test]
fn a_refused_hello_is_the_servers_error() {
    let reply = rawdoc! { "ok": 0, "code": 91, "codeName": "ShutdownInProgress", "errmsg": "bye" };
    let error = Client::start(&options("mongodb://a")).reply(&reply).unwrap_err();
    let OperationError::Reply { stage: Stage::Hello, error } = error else { panic!("{error:?}") };
    assert_eq!(error.to_string(), "bye (ShutdownInProgress, code 91)");
}

/// A text that decides nothing may be anything: a server that has cut it within a character is none
/// that speaks another protocol.
#[test]
fn a_text_that_is_no_utf8_makes_no_reply_unreadable() {
    let reply = broken(rawdoc! { "ok": 0, "errmsg": "by?", "codeName": "Sh?", "code": 91 });
    let error = Client::start(&options("mongodb://a")).reply(&reply).unwrap_err();
    let OperationError::Reply { stage: Stage::Hello, error } = error else { panic!("{error:?}") };
    assert_eq!(error.to_string(), "by\u{fffd} (Sh\u{fffd}, code 91)");
    let mut told = RawDocumentBuf::new();
    told.append(cstr!("note"), "?");
    hello().iter().map(Result::unwrap).for_each(|(key, value)| told.append(key, value));
    assert_eq!(
        done(Client::start(&options("mongodb://a")).reply(&broken(told))).max_wire_version,
        17
    );
    // Where it says what the server is, there is nothing to be understood.
    let reply = broken(rawdoc! { "ok": 1, "setName": "?", "maxWireVersion": 17 });
    let error = Client::start(&options("mongodb://a")).reply(&reply).unwrap_err();
    let is_malformed = |failure: &Failure| failure.cause == Cause::Malformed;
    assert!(matches!(&error, OperationError::Stream(it) if is_malformed(it)), "{error:?}");
}

fn offered(uri: &str) -> Vec<String> {
    let client = Client::start(&options(uri));
    let names = client.last().get_array("compression").unwrap();
    names.into_iter().map(|name| name.unwrap().as_str().unwrap().to_owned()).collect()
}

fn agreed(uri: &str, server: &[&str]) -> Option<Compressor> {
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("compression"), sdam_core::bson::RawArrayBuf::from_iter(server.to_vec()));
    hello().iter().map(Result::unwrap).for_each(|(key, value)| reply.append(key, value));
    done(Client::start(&options(uri)).reply(&reply)).compressor
}

#[test]
fn only_compressors_of_this_build_are_offered() {
    let all = [("snappy", cfg!(feature = "snappy")), ("zstd", cfg!(feature = "zstd"))];
    let expected: Vec<_> = all.iter().filter(|(_, is_in)| *is_in).map(|(name, _)| *name).collect();
    assert_eq!(offered("mongodb://a/?compressors=snappy,zstd"), expected);
    assert!(offered("mongodb://a").is_empty(), "COMP-P1: an empty array, not none");
}

#[test]
#[cfg(all(feature = "snappy", feature = "zlib"))]
fn the_first_compressor_of_the_client_that_the_server_has_is_used() {
    // Wire Compression: "clients MUST use the first compressor in the client's configured
    // compressors list that is also in the servers list"
    let ours = "mongodb://a/?compressors=zlib,snappy";
    assert_eq!(offered(ours), ["zlib", "snappy"]);
    assert_eq!(agreed(ours, &["snappy", "zlib"]), Some(Compressor::Zlib));
    assert_eq!(agreed(ours, &["snappy"]), Some(Compressor::Snappy));
    assert_eq!(agreed(ours, &["quick"]), None);
}

#[test]
fn what_the_client_does_not_offer_is_not_agreed_on() {
    assert_eq!(agreed("mongodb://a", &["snappy", "zlib", "zstd"]), None);
}

#[test]
fn arbiters_are_not_authenticated_to() {
    // Authentication, "Authentication Handshake": "If the server is of type RSArbiter, no
    // authentication is possible and the handshake is complete."
    let mut client = Client::start(&options("mongodb://user:pencil@a"));
    let reply = rawdoc! { "arbiterOnly": true, "setName": "rs", "maxWireVersion": 17, "ok": 1 };
    assert_eq!(done(client.reply(&reply)).server_type, ServerType::RsArbiter);
    assert_eq!(client.sent.len(), 1);
}

#[test]
fn a_reply_succeeds_if_its_ok_is_one_in_whatever_type_of_number_or_true() {
    let hello = |ok: RawBson| {
        let mut reply = rawdoc! { "isWritablePrimary": true, "maxWireVersion": 17 };
        reply.append(cstr!("ok"), ok);
        reply
    };
    for ok in [RawBson::Double(1.0), RawBson::Int32(1), RawBson::Int64(1), RawBson::Boolean(true)] {
        let mut client = Client::start(&options("mongodb://a"));
        assert!(client.reply(&hello(ok.clone())).is_ok(), "{ok:?}");
        let mut client = Client::start(&options("mongodb://user:pencil@a"));
        client.reply(&hello(ok.clone())).unwrap();
        let mut step = rawdoc! { "conversationId": 1, "done": true, "payload": binary(b"") };
        step.append(cstr!("ok"), ok.clone());
        // What it does not prove is another thing.
        let error = client.reply(&step).unwrap_err();
        assert!(matches!(error, OperationError::Stream(_)), "{ok:?}: {error}");
        assert_eq!(CommandError::in_reply(&hello(ok)), None);
    }
    for no in [RawBson::Double(0.0), RawBson::Int32(0), RawBson::Boolean(false)] {
        let mut client = Client::start(&options("mongodb://a"));
        let error = client.reply(&hello(no.clone())).unwrap_err();
        assert!(matches!(error, OperationError::Reply { .. }), "{no:?}: {error}");
        assert!(CommandError::in_reply(&hello(no)).is_some());
    }
}

#[test]
fn every_command_declares_the_stable_api() {
    // Stable API, "Appending to commands"
    let options = built(|options| {
        options.server_api(ServerApiVersion::V1.into()).username("user").password("pencil")
    });
    let mut client = Client::start(&options);
    let mut server = Scram { long: true, ..Scram::default() };
    client.run(&mut |command| server.answer(command)).unwrap();
    assert_eq!(client.sent.len(), 4);
    for command in &client.sent {
        assert_eq!(command.get_str("apiVersion").ok(), Some("1"), "{command:?}");
    }
}

#[test]
fn what_nothing_asked_for_is_an_error() {
    let mut client = Client::start(&options("mongodb://a"));
    let reply = client.reply_bytes(&hello());
    let twice = [reply.clone(), reply.clone()].concat();
    let error = client.receive(&twice).unwrap_err();
    assert!(error.to_string().contains("nothing asked for"), "{error}");
    let mut over = Client::start(&options("mongodb://a"));
    assert!(matches!(over.receive(&reply), Ok(HandshakeProgress::Done(_))));
    let error = over.receive(&reply).unwrap_err();
    assert_eq!(error.to_failure().cause, Cause::Malformed);
}
