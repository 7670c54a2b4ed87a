//! Bytes of a stream: messages, and errors, however the bytes are split.

use bson::RawDocument;
use sdam_core::wire::{
    Frames, HEADER_LEN, MAX_MESSAGE_LEN, Message, WireError, op_code, write_op_msg_with_sequences,
    write_op_query, write_op_reply,
};

/// The first byte says how the stream is torn, the others are the stream.
///
/// # Panics
///
/// Panics if a law is broken.
pub fn frames(bytes: &[u8]) {
    let Some((&first, stream)) = bytes.split_first() else { return };
    let part = usize::from(first) + 1;
    let whole = read(stream, stream.len().max(1), extend);
    assert_eq!(read(stream, part, extend), whole, "law 6: in parts of {part}");
    assert_eq!(read(stream, part, fill), whole, "law 6: in parts of {part}, read in place");
    let (messages, error) = whole;
    let cut: Vec<&[u8]> = messages.iter().map(|message| &message.bytes()[..]).collect();
    assert_eq!((cut, error), cut_up(stream), "messages end where they say");
    messages.iter().for_each(write_again);
}

/// Cuts a stream up, written naively.
pub(super) fn cut_up(mut stream: &[u8]) -> (Vec<&[u8]>, Option<WireError>) {
    let mut messages = Vec::new();
    while let Some(length) = stream.first_chunk() {
        let length = i32::from_le_bytes(*length);
        if !(HEADER_LEN as i32..=MAX_MESSAGE_LEN as i32).contains(&length) {
            return (messages, Some(WireError::Length { length, most: MAX_MESSAGE_LEN }));
        }
        let Some((message, rest)) = stream.split_at_checked(length as usize) else { break };
        messages.push(message);
        stream = rest;
    }
    (messages, None)
}

type Read = (Vec<Message>, Option<WireError>);

/// Reads all messages of a stream that comes in parts, up to the first error.
fn read(stream: &[u8], part: usize, take: fn(&mut Frames, &[u8])) -> Read {
    let (mut frames, mut messages) = (Frames::new(), Vec::new());
    for part in stream.chunks(part) {
        take(&mut frames, part);
        loop {
            match frames.next() {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(frames.next(), Err(error.clone()), "an error is for ever");
                    return (messages, Some(error));
                }
            }
        }
    }
    let taken: usize = messages.iter().map(|message| message.bytes().len()).sum();
    assert_eq!(frames.is_empty(), taken == stream.len(), "nothing is lost");
    (messages, None)
}

fn extend(frames: &mut Frames, bytes: &[u8]) {
    frames.extend(bytes);
}

/// Reads as a socket does.
fn fill(frames: &mut Frames, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let spare = frames.spare();
        assert!(!spare.is_empty(), "there is always room");
        let count = spare.len().min(bytes.len());
        spare[..count].copy_from_slice(&bytes[..count]);
        frames.fill(count);
        bytes = &bytes[count..];
    }
}

/// Writes what can be read of a message, and reads that.
fn write_again(message: &Message) {
    match message.header().op_code {
        op_code::OP_MSG => write_op_msg_again(message),
        op_code::OP_QUERY => write_op_query_again(message),
        op_code::OP_REPLY => write_op_reply_again(message),
        _ => {
            assert!(message.op_msg().is_err(), "it has another opcode");
            assert!(message.op_query().is_err() && message.op_reply().is_err());
        }
    }
}

fn write_op_msg_again(message: &Message) {
    let Ok(read) = message.op_msg() else { return };
    let sequences: Vec<(&str, Vec<&RawDocument>)> = read
        .sequences()
        .map(|sequence| {
            let documents = sequence.documents().map(|it| it.expect("it was read already"));
            (sequence.identifier, documents.collect())
        })
        .collect();
    let borrowed: Vec<(&str, &[&RawDocument])> =
        sequences.iter().map(|(name, documents)| (*name, &documents[..])).collect();
    let (mut out, header) = (Vec::new(), message.header());
    write_op_msg_with_sequences(
        &mut out,
        header.request_id,
        header.response_to,
        read.flags,
        read.body,
        &borrowed,
    );
    let written = only(&out);
    let again = written.op_msg().expect("what was written can be read");
    assert_eq!(again.flags, read.flags);
    assert_eq!(again.body, read.body);
    assert_eq!(again.sequences().count(), sequences.len());
    // A checksum is of the order of sections and of the flags that are ignored, too.
    let body = message.body();
    let flags = u32::from_le_bytes([body[0], body[1], body[2], body[3]]);
    let known_flags = flags & !0x0001_0003 == 0;
    let body_first = body[4] == 0;
    // A trace is written behind the message, once that is whole.
    let names_trace = read.trace_context().is_some();
    if known_flags && body_first && !names_trace {
        assert_eq!(out[..], message.bytes()[..], "the same message, byte for byte");
    }
}

fn write_op_query_again(message: &Message) {
    let Ok(read) = message.op_query() else { return };
    let Some(database) = read.collection.strip_suffix(".$cmd") else { return };
    let mut out = Vec::new();
    write_op_query(&mut out, message.header().request_id, database, read.query);
    // As commands are written here, whatever was read.
    let mut expected = read;
    (expected.secondary_ok, expected.number_to_return) = (true, -1);
    assert_eq!(only(&out).op_query().as_ref(), Ok(&expected));
}

fn write_op_reply_again(message: &Message) {
    let Ok(read) = message.op_reply() else { return };
    let (mut out, header) = (Vec::new(), message.header());
    write_op_reply(&mut out, header.request_id, header.response_to, read.flags, read.document);
    assert_eq!(only(&out).op_reply().as_ref(), Ok(&read));
}

fn only(bytes: &[u8]) -> Message {
    let (mut messages, error) = read(bytes, bytes.len(), extend);
    assert_eq!((messages.len(), error), (1, None));
    messages.remove(0)
}
