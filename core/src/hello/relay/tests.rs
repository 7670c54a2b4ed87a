//! A connection through a relay, however its bytes are split.

use bson::{RawDocument, RawDocumentBuf, rawdoc};
use proptest::prelude::*;

use super::{MAX_OPEN_HELLOS, Relay, RelayError};
use crate::config::ServerAddress;
use crate::wire::{
    Compression, Compressor, Flags, MAX_HELLO_LEN, MAX_MESSAGE_LEN, ReplyFlags, WireError,
    is_compiled_in, op_code, write_op_msg, write_op_msg_with_sequences, write_op_query,
    write_op_reply,
};

/// The name of the member, and the one by which the client is to know it.
const MEMBER: &str = "db1.internal:27017";
const HERE: &str = "127.0.0.1:27100";

/// A request, its replies, and those that the client is to hear.
#[derive(Clone, Debug, Default)]
struct Exchange {
    request: Vec<u8>,
    reply: Vec<u8>,
    heard: Vec<u8>,
}

fn here(member: &ServerAddress) -> Option<ServerAddress> {
    (member.to_string() == MEMBER).then(|| HERE.parse().unwrap())
}

fn names(member: &str) -> RawDocumentBuf {
    rawdoc! { "isWritablePrimary": true, "hosts": [member, "db2:1"], "me": member, "ok": 1.0 }
}

fn message(request: i32, response_to: i32, flags: Flags, body: &RawDocument) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_op_msg(&mut bytes, request, response_to, flags, body);
    bytes
}

/// A command in OP_MSG, and a reply that names the member.
fn command(request: i32, command: &RawDocument, heard: &str) -> Exchange {
    let reply = |name| message(1000 + request, request, Flags::NONE, &names(name));
    let request = message(request, 0, Flags::NONE, command);
    Exchange { request, reply: reply(MEMBER), heard: reply(heard) }
}

/// A hello in OP_QUERY.
fn query(request: i32, command: &RawDocument) -> Exchange {
    let mut exchange = Exchange::default();
    write_op_query(&mut exchange.request, request, "admin", command);
    let reply = |name| {
        let mut bytes = Vec::new();
        write_op_reply(&mut bytes, 1, request, ReplyFlags::AWAIT_CAPABLE, &names(name));
        bytes
    };
    (exchange.reply, exchange.heard) = (reply(MEMBER), reply(HERE));
    exchange
}

/// A stream of replies, each of which answers the one before it.
fn stream(request: i32) -> Exchange {
    let hello = rawdoc! { "hello": 1, "maxAwaitTimeMS": 10_000_i64, "$db": "admin" };
    let replies = |name| {
        let more = Flags::MORE_TO_COME.with(Flags::CHECKSUM_PRESENT);
        let (first, second) = (request + 1, request + 2);
        [
            message(first, request, more, &names(name)),
            message(second, first, more, &names(name)),
            message(second + 1, second, Flags::NONE, &names(name)),
        ]
        .concat()
    };
    let request = message(request, 0, Flags::EXHAUST_ALLOWED, &hello);
    Exchange { request, reply: replies(MEMBER), heard: replies(HERE) }
}

/// An insert with a sequence of documents before its body, whose reply looks like one to hello.
fn insert(request: i32) -> Exchange {
    let documents = vec![rawdoc! { "hello": "x".repeat(300) }; 40];
    let documents: Vec<&RawDocument> = documents.iter().map(AsRef::as_ref).collect();
    let body = rawdoc! { "insert": "things", "$db": "app" };
    let mut exchange = command(request, &body, MEMBER);
    exchange.request.clear();
    write_op_msg_with_sequences(
        &mut exchange.request,
        request,
        0,
        Flags::NONE,
        &body,
        &[("documents", &documents)],
    );
    exchange
}

/// A hello behind a sequence of documents, as no driver sends it.
fn behind_a_sequence(request: i32) -> Exchange {
    let body = rawdoc! { "hello": 1, "$db": "admin" };
    let exchange = command(request, &body, HERE);
    let (head, body) = exchange.request.split_at(20);
    let mut bytes = head.to_vec();
    bytes.extend_from_slice(&[1, 6, 0, 0, 0, b'a', 0]);
    bytes.extend_from_slice(body);
    let length = i32::try_from(bytes.len()).unwrap();
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    Exchange { request: bytes, ..exchange }
}

/// A hello that an application sends as any other command; its reply is compressed, too.
fn compressed(request: i32, compressor: Compressor) -> Exchange {
    let mut exchange = command(request, &rawdoc! { "isMaster": 1, "$db": "admin" }, HERE);
    for bytes in [&mut exchange.request, &mut exchange.reply] {
        Compression::new(compressor, -1).unwrap().compress(bytes, 0);
    }
    exchange
}

/// Every kind of exchange, each with a number that none of the others has.
fn every_kind() -> Vec<Exchange> {
    let other = |request, body: &RawDocument| command(request, body, MEMBER);
    let unacknowledged = Exchange {
        request: message(900, 0, Flags::MORE_TO_COME, &rawdoc! { "hello": 1 }),
        ..Exchange::default()
    };
    let mut exchanges = vec![
        command(100, &rawdoc! { "hello": 1, "helloOk": true, "$db": "admin" }, HERE),
        command(110, &rawdoc! { "isMaster": 1, "$db": "admin" }, HERE),
        command(120, &rawdoc! { "ismaster": true, "$db": "admin" }, HERE),
        query(130, &rawdoc! { "isMaster": 1, "helloOk": true }),
        query(140, &rawdoc! { "$query": { "ismaster": 1 }, "$readPreference": { "mode": "p" } }),
        stream(150),
        other(160, &rawdoc! { "find": "hello", "$db": "app" }),
        other(170, &rawdoc! { "ping": 1, "hello": 1 }),
        other(180, &rawdoc! {}),
        other(190, &rawdoc! { "helloes": 1 }),
        insert(200),
        behind_a_sequence(210),
        unacknowledged,
    ];
    let all = [Compressor::Snappy, Compressor::Zlib, Compressor::Zstd];
    let compressors = all.into_iter().filter(|compressor| is_compiled_in(*compressor));
    exchanges.extend((300..).step_by(10).zip(compressors).map(|(at, it)| compressed(at, it)));
    exchanges
}

/// Gives a relay all bytes, cut at these places, and returns what the client hears.
fn relayed(exchanges: &[Exchange], cuts: &[usize]) -> Result<Vec<u8>, RelayError> {
    let (mut relay, mut out, mut cuts) = (Relay::new(), Vec::new(), cuts.iter().cycle());
    let mut pieces = |mut bytes: &[u8]| {
        let mut pieces = Vec::new();
        while !bytes.is_empty() {
            let (piece, rest) = bytes.split_at((*cuts.next().unwrap()).clamp(1, bytes.len()));
            pieces.push(piece.to_vec());
            bytes = rest;
        }
        pieces
    };
    for exchange in exchanges {
        for piece in pieces(&exchange.request) {
            relay.request(&piece)?;
        }
        for piece in pieces(&exchange.reply) {
            relay.reply(&piece, here, &mut out)?;
        }
    }
    assert!(relay.awaited.is_empty(), "every reply has come: {:?}", relay.awaited);
    Ok(out)
}

fn heard(exchanges: &[Exchange]) -> Vec<u8> {
    exchanges.iter().flat_map(|exchange| exchange.heard.clone()).collect()
}

#[test]
fn only_replies_to_hello_are_changed() {
    for exchange in every_kind() {
        let one = std::slice::from_ref(&exchange);
        assert_eq!(relayed(one, &[usize::MAX]).unwrap(), exchange.heard, "{exchange:?}");
        assert_eq!(relayed(one, &[1]).unwrap(), exchange.heard, "{exchange:?}");
    }
}

proptest! {
    #[test]
    fn splits_and_the_order_of_messages_change_nothing(
        exchanges in Just(every_kind()).prop_shuffle(),
        cuts in prop::collection::vec(1_usize..700, 1..20),
    ) {
        prop_assert_eq!(relayed(&exchanges, &cuts).unwrap(), heard(&exchanges));
    }

    /// Random bytes cause no panic, and nothing passes that was not sent.
    #[test]
    fn bytes_of_any_kind_pass_or_are_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        code in prop::sample::select(vec![1, 2004, 2012, 2013]),
    ) {
        let mut framed = i32::try_from(16 + bytes.len()).unwrap().to_le_bytes().to_vec();
        framed.extend_from_slice(&[9, 0, 0, 0, 7, 0, 0, 0]);
        framed.extend_from_slice(&i32::to_le_bytes(code));
        framed.extend_from_slice(&bytes);
        let (mut relay, mut out) = (Relay::new(), Vec::new());
        prop_assert_eq!(relay.request(&framed), Ok(()));
        relay.reply(&framed, here, &mut out).unwrap();
        prop_assert_eq!(&out, &framed);
        let mut relay = Relay::new();
        relay.request(&message(7, 0, Flags::NONE, &rawdoc! { "hello": 1 })).unwrap();
        out.clear();
        if relay.reply(&framed, here, &mut out).is_err() {
            prop_assert!(out.is_empty());
        }
    }
}

#[test]
fn a_reply_where_nothing_is_renamed_passes_as_it_came() {
    let mut exchange = command(1, &rawdoc! { "hello": 1 }, MEMBER);
    let mut relay = Relay::new();
    exchange.heard.clear();
    relay.request(&exchange.request).unwrap();
    relay.reply(&exchange.reply, |_| None, &mut exchange.heard).unwrap();
    assert_eq!(exchange.heard, exchange.reply);
}

#[test]
fn lengths_are_checked_on_both_sides() {
    let header = |length: i32, response_to: i32| {
        let fields = [length, 5, response_to, op_code::OP_MSG];
        fields.iter().flat_map(|field| field.to_le_bytes()).collect::<Vec<u8>>()
    };
    for length in [15, 0, -1, 48_000_001] {
        let error = WireError::Length { length, most: MAX_MESSAGE_LEN };
        let request = Relay::new().request(&header(length, 0));
        assert_eq!(request, Err(RelayError::Request(error.clone())));
        let reply = Relay::new().reply(&header(length, 7), here, &mut Vec::new());
        assert_eq!(reply, Err(RelayError::Reply(error)));
    }
    assert_eq!(Relay::new().request(&header(48_000_000, 0)), Ok(()));
    // A reply to hello is shorter than others may be.
    let mut relay = Relay::new();
    relay.request(&message(7, 0, Flags::NONE, &rawdoc! { "hello": 1 })).unwrap();
    let length = i32::try_from(MAX_HELLO_LEN + 1).unwrap();
    let error = RelayError::Reply(WireError::Length { length, most: MAX_HELLO_LEN });
    assert_eq!(relay.reply(&header(length, 7), here, &mut Vec::new()), Err(error));
    let mut out = Vec::new();
    Relay::new().reply(&header(length, 7), here, &mut out).unwrap();
    assert_eq!(out, header(length, 7), "any other reply passes, from its header on");
}

#[test]
fn a_compressed_reply_claims_no_more_than_a_reply_to_hello_may_have() {
    let mut relay = Relay::new();
    relay.request(&message(7, 0, Flags::NONE, &rawdoc! { "hello": 1 })).unwrap();
    let claimed = i32::try_from(MAX_HELLO_LEN + 1).unwrap();
    let content = vec![0; 100_000];
    let length = i32::try_from(25 + content.len()).unwrap();
    let fields = [length, 1, 7, op_code::OP_COMPRESSED, op_code::OP_MSG, claimed];
    let mut bytes: Vec<u8> = fields.iter().flat_map(|field| field.to_le_bytes()).collect();
    bytes.push(2);
    bytes.extend_from_slice(&content);
    let error = WireError::Length { length: claimed, most: MAX_HELLO_LEN };
    assert_eq!(relay.reply(&bytes, here, &mut Vec::new()), Err(RelayError::Reply(error)));
}

#[test]
fn a_client_that_speaks_tls_is_told_from_one_that_sends_nonsense() {
    let hello = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3, 0, 0, 0, 0, 0];
    assert_eq!(Relay::new().request(&hello), Err(RelayError::Tls));
    let refused = Relay::new().request(b"GET / HTTP/1.1\r\nHost: a\r\n").unwrap_err();
    assert!(matches!(refused, RelayError::Request(WireError::Length { .. })), "{refused}");
    // A message of that length is none of TLS.
    let mut bytes = message(1, 0, Flags::NONE, &rawdoc! { "hello": 1, "a": "x".repeat(790) });
    bytes[..4].copy_from_slice(&[0x16, 3, 0, 0]);
    assert_eq!(Relay::new().request(&bytes[..790]), Ok(()));
}

#[test]
fn a_client_may_not_send_hellos_without_an_end() {
    let mut relay = Relay::new();
    let mut hello = |request| {
        relay.request(&message(request, 0, Flags::NONE, &rawdoc! { "hello": 1, "$db": "admin" }))
    };
    let most = i32::try_from(MAX_OPEN_HELLOS).unwrap();
    assert!((0..most).all(|request| hello(request).is_ok()));
    assert_eq!(hello(most), Err(RelayError::TooManyHellos));
}
