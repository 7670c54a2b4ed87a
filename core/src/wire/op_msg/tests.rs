//! OP_MSG, written and read back, and refused where it is malformed.

use bson::{RawDocument, rawdoc};
use proptest::prelude::*;

use super::super::{
    Frames, MAX_SEQUENCES, Message, SequenceError, WireError, write_op_msg,
    write_op_msg_with_sequences,
};
use super::{CRC_32C, Flags, add_trace_context};

fn message(bytes: &[u8]) -> Message {
    let mut frames = Frames::new();
    frames.extend(bytes);
    frames.next().unwrap().expect("a whole message")
}

/// Replaces bytes of an OP_MSG and returns what reading it then says.
fn damaged(damage: impl FnOnce(&mut Vec<u8>)) -> WireError {
    let mut bytes = Vec::new();
    write_op_msg(&mut bytes, 1, 0, Flags::NONE, &rawdoc! { "ping": 1 });
    damage(&mut bytes);
    let length = i32::try_from(bytes.len()).unwrap();
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    message(&bytes).op_msg().unwrap_err()
}

#[test]
fn the_checksum_is_crc_32c() {
    // The check value that RFC 3720 (iSCSI) and the CRC catalogues give.
    assert_eq!(CRC_32C.checksum(b"123456789"), 0xe306_9283);
}

#[test]
fn a_body_and_sequences_come_back_with_and_without_a_checksum() {
    let (body, one, two) = (rawdoc! { "insert": "c" }, rawdoc! { "_id": 1 }, rawdoc! { "_id": 2 });
    for checksum in [Flags::NONE, Flags::CHECKSUM_PRESENT] {
        let flags = checksum.with(Flags::EXHAUST_ALLOWED);
        let sequences: &[(&str, &[&RawDocument])] = &[("documents", &[&one, &two]), ("empty", &[])];
        let mut bytes = Vec::new();
        write_op_msg_with_sequences(&mut bytes, 7, 8, flags, &body, sequences);
        let message = message(&bytes);
        assert_eq!((message.header().request_id, message.header().response_to), (7, 8));
        let op_msg = message.op_msg().unwrap();
        assert_eq!(op_msg.flags, flags);
        assert_eq!(op_msg.body, &*body);
        let read: Vec<_> = op_msg
            .sequences()
            .map(|s| (s.identifier, s.documents().map(Result::unwrap).collect::<Vec<_>>()))
            .collect();
        assert_eq!(read, [("documents", vec![&*one, &*two]), ("empty", vec![])]);
    }
}

/// OP_MSG, "sections": "each identifier MUST be unique per message".
#[test]
fn two_sequences_of_the_same_name_are_refused() {
    let read = |sequences: &[(&str, &[&RawDocument])]| {
        let mut bytes = Vec::new();
        write_op_msg_with_sequences(&mut bytes, 1, 0, Flags::NONE, &rawdoc! {}, sequences);
        message(&bytes).op_msg().map(drop)
    };
    let refused = |error| Err(WireError::Sequence(error));
    let one = rawdoc! { "_id": 1 };
    let twice: [(&str, &[&RawDocument]); 3] = [("a", &[&one]), ("b", &[]), ("a", &[])];
    assert_eq!(read(&twice), refused(SequenceError::Duplicate("a".into())));
    assert_eq!(read(&twice[..2]), Ok(()));
    let names: Vec<String> = (0..=MAX_SEQUENCES).map(|number| number.to_string()).collect();
    let many: Vec<(&str, &[&RawDocument])> =
        names.iter().map(|name| (name.as_str(), [].as_slice())).collect();
    assert_eq!(read(&many[1..]), Ok(()));
    assert_eq!(read(&many), refused(SequenceError::TooMany));
}

#[test]
fn the_flags_are_read_without_what_follows_them() {
    let mut bytes = Vec::new();
    write_op_msg(&mut bytes, 1, 0, Flags::MORE_TO_COME, &rawdoc! { "ping": 1 });
    bytes[20] = 9;
    assert_eq!(message(&bytes).flags(), Ok(Flags::MORE_TO_COME));
    assert!(message(&bytes).op_msg().is_err());
    bytes.truncate(19);
    bytes[0] = 19;
    assert_eq!(message(&bytes).flags(), Err(WireError::Truncated("flags")));
    bytes[12..14].copy_from_slice(&[220, 7]);
    assert!(matches!(message(&bytes).flags(), Err(WireError::OpCode { .. })));
}

#[test]
fn a_wrong_checksum_is_refused() {
    let mut bytes = Vec::new();
    write_op_msg(&mut bytes, 1, 0, Flags::CHECKSUM_PRESENT, &rawdoc! { "ping": 1 });
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    assert!(matches!(message(&bytes).op_msg(), Err(WireError::Checksum { .. })));
}

#[test]
fn op_msg_flag_bits_unknown_required_ones_are_refused_and_optional_ones_ignored() {
    assert_eq!(damaged(|bytes| bytes[16] = 4), WireError::UnknownFlags(4));
    let mut bytes = Vec::new();
    write_op_msg(&mut bytes, 1, 0, Flags::NONE, &rawdoc! { "ping": 1 });
    bytes[19] = 0x80;
    assert_eq!(message(&bytes).op_msg().unwrap().flags, Flags::NONE);
}

#[test]
fn malformed_messages_say_what_is_wrong() {
    assert_eq!(damaged(|bytes| bytes.truncate(16)), WireError::Truncated("flags"));
    assert_eq!(damaged(|bytes| bytes.truncate(20)), WireError::Bodies(0));
    assert_eq!(damaged(|bytes| bytes[20] = 9), WireError::SectionKind(9));
    assert_eq!(damaged(|bytes| bytes.truncate(30)), WireError::Truncated("document"));
    assert!(matches!(damaged(|bytes| bytes[24] = 0xff), WireError::Bson(_)));
    assert_eq!(
        damaged(|bytes| {
            let again = bytes[20..].to_vec();
            bytes.extend(again);
        }),
        WireError::Bodies(2)
    );
    assert_eq!(
        damaged(|bytes| bytes.extend([1, 200, 0, 0, 0, b'x'])),
        WireError::Truncated("document sequence")
    );
    assert_eq!(
        damaged(|bytes| bytes.extend([1, 2, 0, 0, 0])),
        WireError::Truncated("document sequence")
    );
    assert_eq!(
        damaged(|bytes| bytes.extend([1, 6, 0, 0, 0, 0xff, 0])),
        WireError::Utf8("sequence identifier")
    );
    assert_eq!(
        damaged(|bytes| bytes[12] = 0xd4),
        WireError::OpCode { expected: 2013, found: 2004 }
    );
}

proptest! {
    #[test]
    fn any_bytes_give_a_message_or_an_error(body in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut bytes = i32::try_from(16 + body.len()).unwrap().to_le_bytes().to_vec();
        bytes.extend_from_slice(&[0; 12]);
        bytes.extend_from_slice(&body);
        for op_code in [1, 2004, 2013_i32] {
            bytes[12..16].copy_from_slice(&op_code.to_le_bytes());
            let message = message(&bytes);
            let _ = message.op_msg().map(|m| m.sequences().count());
            let _ = (message.op_reply().is_ok(), message.op_query().is_ok());
        }
    }
}

/// A `traceparent` that is valid.
const TRACEPARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// Makes a message with documents behind its body.
fn insert(flags: Flags) -> Vec<u8> {
    let (mut bytes, one) = (Vec::new(), rawdoc! { "_id": 1 });
    let sequences: &[(&str, &[&RawDocument])] = &[("documents", &[&one])];
    write_op_msg_with_sequences(&mut bytes, 7, 8, flags, &rawdoc! { "insert": "c" }, sequences);
    bytes
}

/// OpenTelemetry, "Propagating Trace Context to the Server": a section of kind 3 with
/// `{ otel: { traceparent } }`, one for a message.
#[test]
fn a_message_names_its_trace_once() {
    let (mut bytes, without) = (insert(Flags::NONE), insert(Flags::NONE));
    assert_eq!(message(&bytes).op_msg().unwrap().trace_context(), None);
    assert!(!add_trace_context(&mut bytes, TRACEPARENT, without.len()), "it would be too long");
    assert_eq!(bytes, without);
    assert!(add_trace_context(&mut bytes, TRACEPARENT, 48_000_000));
    let whole = message(&bytes);
    let read = whole.op_msg().unwrap();
    let expected = rawdoc! { "otel": { "traceparent": TRACEPARENT } };
    assert_eq!(read.trace_context(), Some(&*expected));
    assert_eq!((read.body, read.sequences().count()), (&*rawdoc! { "insert": "c" }, 1));
    assert!(add_trace_context(&mut bytes, TRACEPARENT, 48_000_000));
    let twice = WireError::TraceContext { count: 2, length: expected.as_bytes().len() };
    assert_eq!(message(&bytes).op_msg().unwrap_err(), twice);
    let long = damaged(|bytes| {
        bytes.push(3);
        bytes.extend_from_slice(rawdoc! { "otel": "0".repeat(4096) }.as_bytes());
    });
    assert!(matches!(long, WireError::TraceContext { count: 1, length: 4097.. }), "{long}");
}

/// The same: what servers would refuse is left out, so that a tracer fails no command.
#[test]
fn a_trace_without_a_valid_name_is_not_named() {
    let (trace, span) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
    for invalid in [
        String::new(),
        format!("01-{trace}-{span}-01"),
        format!("00-{trace}-{span}"),
        format!("00-{trace}-{span}-01-rojo=1"),
        format!("00-{}-{span}-01", trace.to_uppercase()),
        format!("00-{}-{span}-01", "0".repeat(32)),
        format!("00-{trace}-{}-01", "0".repeat(16)),
        format!("00-{trace}0-{span}-01"),
        format!("00-{trace}-{span}-1"),
        format!("00-{trace}-{span}-0g"),
    ] {
        let mut bytes = insert(Flags::NONE);
        assert!(!add_trace_context(&mut bytes, &invalid, 48_000_000), "{invalid}");
        assert_eq!(bytes, insert(Flags::NONE), "{invalid}");
    }
    let mut summed = insert(Flags::CHECKSUM_PRESENT);
    assert!(!add_trace_context(&mut summed, TRACEPARENT, 48_000_000));
    assert_eq!(summed, insert(Flags::CHECKSUM_PRESENT));
    assert!(!add_trace_context(&mut Vec::new(), TRACEPARENT, 48_000_000));
    let mut unsampled = insert(Flags::NONE);
    assert!(add_trace_context(&mut unsampled, &TRACEPARENT.replace("-01", "-00"), 48_000_000));
}
