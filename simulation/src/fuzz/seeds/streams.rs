//! Seeds of messages: frames, what is compressed, and replies to hello.

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, RawDocumentBuf, doc, rawdoc};
use sdam_core::wire::{
    Flags, ReplyFlags, write_op_msg, write_op_msg_with_sequences, write_op_query, write_op_reply,
};

use super::Seed;
use super::traces::recorded_replies;

pub(in crate::fuzz) fn frames() -> Vec<Seed> {
    let (body, document) = (rawdoc! { "ping": 1, "$db": "admin" }, rawdoc! { "_id": 1 });
    let of = |write: &dyn Fn(&mut Vec<u8>)| {
        // The first byte: in parts of three.
        let mut bytes = vec![2];
        write(&mut bytes);
        bytes
    };
    let op_msg = |out: &mut Vec<u8>| write_op_msg(out, 7, 0, Flags::NONE, &body);
    let sequences = |out: &mut Vec<u8>| {
        let documents = [&*document, &*document];
        let sequences = [("documents", &documents[..]), ("more", &[])];
        write_op_msg_with_sequences(out, 1, 0, Flags::CHECKSUM_PRESENT, &body, &sequences);
    };
    let length = |length: i32| [&[0][..], &length.to_le_bytes()].concat();
    let altered = |at: usize, byte: u8| {
        let mut bytes = of(&op_msg);
        bytes[at] = byte;
        bytes
    };
    vec![
        Seed::new("op-msg", of(&op_msg)),
        Seed::new("op-msg-with-sequences-and-checksum", of(&sequences)),
        Seed::new("op-msg-twice-and-a-half", {
            let one = of(&op_msg);
            [&one[..], &one[1..], &one[1..20]].concat()
        }),
        Seed::new("op-msg-more-to-come", {
            of(&|out| write_op_msg(out, 1, 2, Flags::MORE_TO_COME, &body))
        }),
        Seed::new("op-msg-exhaust-allowed", {
            of(&|out| write_op_msg(out, 1, 2, Flags::EXHAUST_ALLOWED, &body))
        }),
        Seed::new("op-msg-unknown-required-flag", altered(17, 8)),
        Seed::new("op-msg-unknown-optional-flag", altered(19, 0x80)),
        Seed::new("op-msg-unknown-section", altered(21, 2)),
        Seed::new("op-msg-body-too-long", altered(22, 200)),
        Seed::new("op-msg-recorded", {
            let mut replies = recorded_replies();
            replies.truncate(3);
            of(&|out| replies.iter().for_each(|(_, it)| write_op_msg(out, 9, 1, Flags::NONE, it)))
        }),
        Seed::new("op-query", of(&|out| write_op_query(out, 3, "admin", &body))),
        Seed::new("op-reply", of(&|out| write_op_reply(out, 4, 3, ReplyFlags::NONE, &body))),
        Seed::new("op-reply-failed", {
            of(&|out| write_op_reply(out, 4, 3, ReplyFlags::QUERY_FAILURE, &body))
        }),
        Seed::new("length-least", length(16)),
        Seed::new("length-too-little", length(15)),
        Seed::new("length-most", length(48_000_000)),
        Seed::new("length-too-much", length(48_000_001)),
        Seed::new("length-negative", length(-1)),
    ]
}

/// The text that is compressed by hand, so that these seeds are the same whatever is compiled in.
const TEXT: &[u8; 18] = b"to be or not to be";
const ZLIB_OF_TEXT_THRICE: &[u8] = &[
    0x78, 0xda, 0x2b, 0xc9, 0x57, 0x48, 0x4a, 0x55, 0xc8, 0x2f, 0x52, 0xc8, 0xcb, 0x2f, 0x51, 0x28,
    0x01, 0x71, 0x4a, 0x88, 0x10, 0x01, 0x00, 0xfb, 0xf9, 0x12, 0x73,
];

pub(in crate::fuzz) fn compressed() -> Vec<Seed> {
    // Snappy: the length, a literal, and a copy of what is 18 bytes back.
    let snappy = [&[54, 17 << 2][..], TEXT, &[35 << 2 | 2, 18, 0]].concat();
    // Zstandard: a frame of blocks that repeat one byte; four bytes are 128 KiB.
    let zeros = [&[0x28, 0xb5, 0x2f, 0xfd, 0x60][..], &2744_u16.to_le_bytes(), &[0xc3, 0x5d, 0, 0]];
    let (zeros, block) = (zeros.concat(), |last: u8| [last | 2, 0, 0x10, 0]);
    let mut bomb = [&[0x28, 0xb5, 0x2f, 0xfd, 0xa0][..], &(1_u32 << 20).to_le_bytes()].concat();
    (0..8).for_each(|number| bomb.extend(block(u8::from(number == 7))));
    let zlib_cut = &ZLIB_OF_TEXT_THRICE[..ZLIB_OF_TEXT_THRICE.len() - 2];
    vec![
        // The compressor of the way there, opcode, size, compressor, content.
        Seed::new("noop", raw(0, 2013, 3, 0, b"abc")),
        Seed::new("noop-of-another-size", raw(0, 2013, 4, 0, b"abc")),
        Seed::new("noop-of-a-lesser-size", raw(0, 2013, 2, 0, b"abc")),
        Seed::new("nested", raw(1, 2012, 3, 0, b"abc")),
        Seed::new("unknown-compressor", raw(2, 2013, 3, 4, b"abc")),
        Seed::new("size-negative", raw(0, 2013, -1, 1, b"abc")),
        Seed::new("size-too-large", raw(1, 2013, 48_000_000, 2, b"abc")),
        Seed::new("size-impossible", raw(2, 2013, 1_000_000, 1, b"abc")),
        Seed::new("truncated", vec![0, 221, 7, 0]),
        Seed::new("snappy", raw(0, 2013, 54, 1, &snappy)),
        Seed::new("snappy-cut", raw(0, 2013, 54, 1, &snappy[..22])),
        Seed::new("snappy-of-another-size", raw(0, 2013, 53, 1, &snappy)),
        Seed::new("zlib", raw(1, 2013, 54, 2, ZLIB_OF_TEXT_THRICE)),
        Seed::new("zlib-cut", raw(1, 2013, 54, 2, zlib_cut)),
        Seed::new("zlib-of-another-size", raw(1, 2013, 55, 2, ZLIB_OF_TEXT_THRICE)),
        Seed::new("zstd", raw(2, 2013, 3000, 3, &zeros)),
        Seed::new("zstd-of-another-size", raw(2, 2013, 2999, 3, &zeros)),
        Seed::new("zstd-bomb", raw(2, 2013, 1 << 20, 3, &bomb)),
    ]
}

fn raw(first: u8, op_code: i32, size: i32, compressor: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    bytes.extend_from_slice(&op_code.to_le_bytes());
    bytes.extend_from_slice(&size.to_le_bytes());
    bytes.push(compressor);
    bytes.extend_from_slice(content);
    bytes
}

pub(in crate::fuzz) fn hello() -> Vec<Seed> {
    let process = ObjectId::from_bytes([7; 12]);
    let member = doc! {
        "ok": 1, "setName": "rs", "setVersion": 2, "hosts": ["a:27017", "b:27018"],
        "passives": ["c"], "arbiters": ["[::1]:5"], "me": "a:27017", "primary": "b:27018",
        "tags": { "dc": "east" }, "minWireVersion": 0, "maxWireVersion": 25,
        "lastWrite": { "lastWriteDate": DateTime::from_millis(1), "opTime": 1 },
        "topologyVersion": { "processId": process, "counter": 3_i64 },
        "logicalSessionTimeoutMinutes": 30, "helloOk": true, "hidden": false,
    };
    let and = |more: Document| member.clone().into_iter().chain(more).collect::<Document>();
    let primary = and(doc! { "isWritablePrimary": true, "electionId": process });
    let long: Bson = "x".repeat(1100).into();
    let replies = [
        ("primary", primary.clone()),
        ("secondary", and(doc! { "ismaster": false, "secondary": true })),
        ("arbiter", and(doc! { "arbiterOnly": true })),
        ("hidden", and(doc! { "secondary": true, "hidden": true })),
        ("ghost", doc! { "ok": 1, "isreplicaset": true }),
        ("standalone", doc! { "ok": 1.0, "ismaster": true, "maxWireVersion": 8_i64 }),
        ("mongos", doc! { "ok": 1, "msg": "isdbgrid", "maxWireVersion": 21.0 }),
        ("cryptd", doc! { "ok": 1, "iscryptd": true }),
        ("error", doc! { "ok": 0, "code": 91, "codeName": "Shutdown", "errmsg": "bye" }),
        ("error-long", doc! { "ok": 0, "errmsg": long.clone() }),
        ("without-ok", doc! { "ismaster": true }),
        ("empty", doc! {}),
        ("null-fields", doc! { "ok": 1, "setName": Bson::Null, "hosts": Bson::Null }),
        ("ok-of-another-type", doc! { "ok": "1" }),
        ("hosts-of-another-type", doc! { "ok": 1, "hosts": { "0": "a" } }),
        ("hosts-no-addresses", doc! { "ok": 1, "hosts": ["a:99999", "", "[", ":1"] }),
        ("hosts-twice", doc! { "ok": 1, "hosts": ["b", "a", "A:27017", "b"] }),
        ("primary-empty", doc! { "ok": 1, "primary": "" }),
        ("set-name-long", doc! { "ok": 1, "setName": long.clone() }),
        ("tags-long", doc! { "ok": 1, "tags": { "x".repeat(1100): "1" } }),
        ("set-version-negative", doc! { "ok": 1, "setVersion": -1 }),
        ("version-too-large", doc! { "ok": 1, "maxWireVersion": 1_i64 << 40 }),
        ("version-fraction", doc! { "ok": 1, "maxWireVersion": 1.5 }),
        ("topology-version-half", doc! { "ok": 1, "topologyVersion": { "counter": 1_i64 } }),
        (
            "sizes",
            and(doc! { "maxBsonObjectSize": 1, "maxMessageSizeBytes": 99_000_000,
            "maxWriteBatchSize": 5, "connectionId": 9, "compression": ["zlib", "x"] }),
        ),
        ("sizes-zero", doc! { "ok": 1, "maxMessageSizeBytes": 0 }),
    ];
    let encoded = |reply: &Document| {
        RawDocumentBuf::try_from(reply).map(RawDocumentBuf::into_bytes).expect("a document")
    };
    let one = replies.iter().map(|(name, reply)| Seed::new(*name, encoded(reply)));
    let with = |field: &str, value: Bson| {
        let mut reply = primary.clone();
        reply.insert(field, value);
        [encoded(&primary), encoded(&reply)].concat()
    };
    let two = [
        Seed::new("then-fewer-hosts", with("hosts", vec!["a:27017"].into())),
        Seed::new("then-more-hosts", with("hosts", vec!["a:27017", "b:27018", "d"].into())),
        Seed::new("then-without-tags", with("tags", doc! {}.into())),
        Seed::new("then-more-tags", with("tags", doc! { "dc": "east", "rack": "1" }.into())),
        Seed::new("then-another-set", with("setName", "other".into())),
        Seed::new("then-an-error", with("setVersion", "1".into())),
        Seed::new("then-older", {
            with("topologyVersion", doc! { "processId": process, "counter": 1_i64 }.into())
        }),
    ];
    let recorded = recorded_replies().into_iter();
    let recorded = recorded.map(|(name, reply)| Seed::new(name, reply.into_bytes()));
    one.chain(two).chain(recorded).collect()
}

/// Requests and replies, torn into parts of so many bytes.
fn conversation(part: u8, requests: &[u8], replies: &[u8]) -> Vec<u8> {
    let length = u16::try_from(requests.len()).expect("inputs are short");
    [&[part - 1], &length.to_le_bytes()[..], requests, replies].concat()
}

pub(in crate::fuzz) fn relay() -> Vec<Seed> {
    let of = |write: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = Vec::new();
        write(&mut bytes);
        bytes
    };
    let hello = rawdoc! { "hello": 1, "$db": "admin" };
    let names = rawdoc! {
        "hosts": ["db1:27017", "db2:27017", "no address"], "arbiters": ["127.0.0.1:27100"],
        "passives": 1, "primary": "db1:27017", "me": "db2:27017", "ok": 1,
    };
    let asked = |flags| of(&|out| write_op_msg(out, 7, 0, flags, &hello));
    let said = |number, to, flags| of(&|out| write_op_msg(out, number, to, flags, &names));
    let by_query = of(&|out| write_op_query(out, 7, "admin", &rawdoc! { "isMaster": 1 }));
    let reply = of(&|out| write_op_reply(out, 1, 7, ReplyFlags::AWAIT_CAPABLE, &names));
    let more = Flags::MORE_TO_COME.with(Flags::CHECKSUM_PRESENT);
    let stream = [said(8, 7, more), said(9, 8, more), said(10, 9, Flags::NONE)].concat();
    // What is called compressed stays as it is.
    let plain = |bytes: &[u8]| {
        let (body, code) = (&bytes[16..], &bytes[12..16]);
        let size = i32::try_from(body.len()).expect("inputs are short").to_le_bytes();
        let length = i32::try_from(bytes.len() + 9).expect("inputs are short").to_le_bytes();
        let op_code = 2012_i32.to_le_bytes();
        [&length[..], &bytes[4..12], &op_code, code, &size, &[0], body].concat()
    };
    let (hello, answer) = (asked(Flags::NONE), said(1, 7, Flags::NONE));
    let other = of(&|out| write_op_msg(out, 7, 0, Flags::NONE, &rawdoc! { "find": "hello" }));
    let short = of(&|out| write_op_msg(out, 7, 0, Flags::NONE, &rawdoc! { "hello": 1 }));
    let altered = |at: usize, byte: u8| {
        let mut bytes = answer.clone();
        bytes[at] = byte;
        bytes
    };
    vec![
        Seed::new("hello", conversation(7, &hello, &answer)),
        Seed::new("hello-by-query", conversation(5, &by_query, &reply)),
        Seed::new("hello-that-streams", conversation(40, &asked(Flags::EXHAUST_ALLOWED), &stream)),
        Seed::new("hello-compressed", conversation(9, &plain(&hello), &plain(&answer))),
        Seed::new("hello-cut", conversation(30, &hello, &answer[..60])),
        Seed::new("hello-unacknowledged", conversation(1, &asked(Flags::MORE_TO_COME), &answer)),
        Seed::new("hellos-too-many", conversation(200, &short.repeat(101), &[])),
        Seed::new("another-command", conversation(3, &other, &answer)),
        Seed::new("another-command-cut", conversation(3, &other, &answer[..60])),
        Seed::new("reply-without-end", conversation(16, &hello, &altered(30, 0xff))),
        Seed::new("reply-too-long", conversation(16, &hello, &altered(3, 1))),
        Seed::new("reply-of-no-length", conversation(16, &hello, &altered(3, 0x80))),
        Seed::new("tls", conversation(2, &[0x16, 3, 1].repeat(8), &[])),
    ]
}
