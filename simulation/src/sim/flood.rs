//! The successors of a reply of a server that streams without pause.

use std::time::Duration;

use super::network::{MORE_TO_COME, Packet};
use super::random::Random;

/// The maximum number of packets after a reply, and of messages in one.
const PACKETS: u64 = 200;
const MESSAGES: u64 = 8;

/// The longest pause between two packets, in milliseconds.
const GAP: u64 = 5;

/// The bytes of a message's header with its own number, and with that of the message it answers.
const REQUEST_ID: std::ops::Range<usize> = 4..8;
const RESPONSE_TO: std::ops::Range<usize> = 8..12;

/// The place of the flags in a message of OP_MSG.
const FLAGS: usize = 16;

/// Draws what follows a reply, and how long each packet waits for the one before: copies of it, of
/// which each says that it answers the one before, as in a stream, or all the same request.
pub(super) fn flood_after(reply: &Packet, random: &mut Random) -> Vec<(Vec<u8>, Duration)> {
    let Packet::Bytes(reply) = reply else { return Vec::new() };
    let (mut copy, is_stream) = (reply.clone(), random.percent(70));
    // A reply that ends a request is followed by nothing more often, or no stream would begin.
    let announces = copy.get(FLAGS).is_some_and(|flags| flags & MORE_TO_COME > 0);
    if copy.len() <= FLAGS || !announces && random.percent(70) {
        return Vec::new();
    }
    let packets = 1 + random.below(PACKETS);
    let mut packet = || {
        let mut bytes = Vec::new();
        for _ in 0..=random.below(MESSAGES) {
            if is_stream {
                follow(&mut copy);
            }
            bytes.extend_from_slice(&copy);
        }
        (bytes, random.millis(0, GAP))
    };
    (0..packets).map(|_| packet()).collect()
}

/// Makes a message the answer to what it was, with the next number.
fn follow(message: &mut [u8]) {
    message.copy_within(REQUEST_ID, RESPONSE_TO.start);
    for digit in &mut message[REQUEST_ID] {
        *digit = digit.wrapping_add(1);
        if *digit > 0 {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use sdam_core::bson::rawdoc;
    use sdam_core::wire::{Flags, Frames, write_op_msg};

    use super::{Packet, Random, flood_after};

    #[test]
    fn what_follows_a_reply_answers_the_one_before_or_all_the_same_request() {
        let mut reply = Vec::new();
        write_op_msg(&mut reply, 255, 7, Flags::MORE_TO_COME, &rawdoc! { "ok": 1 });
        let numbers = |seed| {
            let mut frames = Frames::new();
            for (bytes, _) in flood_after(&Packet::Bytes(reply.clone()), &mut Random::new(seed)) {
                frames.extend(&bytes);
            }
            let mut numbers = Vec::new();
            while let Some(message) = frames.next().unwrap() {
                let header = message.header();
                numbers.push((header.request_id, header.response_to));
            }
            numbers
        };
        let floods: Vec<_> = (0..20).map(numbers).collect();
        let chained = (256..).map(|number| (number, number - 1));
        let is_stream =
            |flood: &&Vec<_>| flood.iter().copied().eq(chained.clone().take(flood.len()));
        let is_same = |flood: &&Vec<_>| flood.iter().all(|it| *it == (255, 7));
        let (streams, same) =
            (floods.iter().filter(is_stream).count(), floods.iter().filter(is_same).count());
        assert!(streams > 0 && same > 0 && streams + same == floods.len(), "{streams} {same}");
        assert!(floods.iter().any(|flood| flood.len() > 100));
    }
}
