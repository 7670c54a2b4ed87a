//! A connection through a proxy that gives members other names: what passes, however it is split.

use sdam_core::bytes::Bytes;
use sdam_core::config::ServerAddress;
use sdam_core::hello::{Relay, RelayError, rename_members};
use sdam_core::wire::{HEADER_LEN, Header, Message, op_code};

use super::frames::cut_up;

/// The name that every member has here.
const HERE: &str = "127.0.0.1:27100";

/// The first byte says how both directions are torn, the next two how long the client's is; the
/// others are the bytes of the client, and then those of the member.
///
/// # Panics
///
/// Panics if a law is broken.
pub fn relay(bytes: &[u8]) {
    let Some(([first, low, high], rest)) = bytes.split_first_chunk() else { return };
    let length = usize::from(u16::from_le_bytes([*low, *high])).min(rest.len());
    let (client, member) = rest.split_at(length);
    let part = usize::from(*first) + 1;
    let here: ServerAddress = HERE.parse().expect("an address");
    let names = |it: &ServerAddress| (*it != here).then(|| here.clone());

    let (out, end) = relayed(client, member, usize::MAX, names);
    let in_parts = relayed(client, member, part, names);
    assert_eq!(in_parts, (out.clone(), end.clone()), "law 6: in parts of {part}");
    let (kept, end_of_kept) = relayed(client, member, part, |_| None);
    assert_eq!(end_of_kept, end, "names decide about nothing else");
    assert!(member.starts_with(&kept), "without other names all stays as it is");
    if end.is_ok() {
        judge(member, &kept, &names);
        judge(member, &out, &names);
    }
}

/// Gives a relay the bytes of both sides in parts, and returns what the client hears, up to the
/// first error.
fn relayed(
    client: &[u8],
    member: &[u8],
    part: usize,
    names: impl Fn(&ServerAddress) -> Option<ServerAddress>,
) -> (Vec<u8>, Result<(), RelayError>) {
    let (mut relay, mut out) = (Relay::new(), Vec::new());
    let end = client
        .chunks(part)
        .try_for_each(|bytes| relay.request(bytes))
        .and_then(|()| member.chunks(part).try_for_each(|it| relay.reply(it, &names, &mut out)));
    (out, end)
}

/// Holds what a client hears against what the member said.
fn judge(said: &[u8], heard: &[u8], names: &impl Fn(&ServerAddress) -> Option<ServerAddress>) {
    let ((said, rest), (heard, heard_rest)) = (messages(said), messages(heard));
    assert_eq!(said.len(), heard.len(), "each message that is whole is heard, and no other");
    assert!(heard_rest.is_empty() || heard_rest == rest, "the rest waits, or passes as it is");
    for (said, heard) in said.into_iter().zip(heard) {
        if said != heard {
            renamed(&message(said), &message(heard), names);
        }
    }
}

/// Cuts a stream into whole messages, of lengths that are allowed, and the rest.
fn messages(stream: &[u8]) -> (Vec<&[u8]>, &[u8]) {
    let (messages, error) = cut_up(stream);
    let taken = messages.iter().map(|message| message.len()).sum();
    let rest = &stream[taken..];
    // A length is judged with the rest of its header.
    assert!(error.is_none() || rest.len() < HEADER_LEN, "lengths are right: {error:?}");
    (messages, rest)
}

fn message(bytes: &[u8]) -> Message {
    Message::try_from(Bytes::copy_from_slice(bytes)).expect("a message of its length")
}

/// Checks a reply in which members have other names.
fn renamed(
    said: &Message,
    heard: &Message,
    names: &impl Fn(&ServerAddress) -> Option<ServerAddress>,
) {
    let (before, Header { request_id, response_to, op_code, .. }) = (said.header(), heard.header());
    assert_eq!((request_id, response_to), (before.request_id, before.response_to));
    let body = match op_code {
        op_code::OP_REPLY => heard.op_reply().map(|reply| reply.document.to_owned()),
        _ => heard.op_msg().map(|reply| reply.body.to_owned()),
    };
    let body = body.expect("a reply that can be read");
    assert_eq!(rename_members(&body, names), Ok(None), "no member has its own name: {body:?}");
}
