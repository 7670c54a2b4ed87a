//! OP_COMPRESSED: round trips, lies about sizes, bombs, and bytes that are no compressed message.

use allocation_counter::measure;
use bson::rawdoc;
use proptest::prelude::*;

use super::super::{Flags, Frames, write_op_msg};
use super::*;

const ALL: [Compressor; 3] = [Compressor::Snappy, Compressor::Zlib, Compressor::Zstd];

const fn assert_send<T: Send>() {}
const _: () = (assert_send::<Compression>(), assert_send::<Decompressor>()).0;

fn compiled_in() -> impl Iterator<Item = Compressor> {
    ALL.into_iter().filter(|compressor| is_compiled_in(*compressor))
}

fn message(bytes: &[u8]) -> Message {
    let mut frames = Frames::new();
    frames.extend(bytes);
    frames.next().unwrap().expect("a whole message")
}

/// A message of any opcode around `body`.
fn plain(body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for field in [i32::try_from(HEADER_LEN + body.len()).unwrap(), 7, 8, op_code::OP_MSG] {
        bytes.extend_from_slice(&field.to_le_bytes());
    }
    bytes.extend_from_slice(body);
    bytes
}

fn compressed(compressor: Compressor, body: &[u8]) -> Vec<u8> {
    let mut bytes = plain(body);
    Compression::new(compressor, -1).unwrap().compress(&mut bytes, 0);
    bytes
}

/// An OP_COMPRESSED, written by hand.
fn wrapped(inside: i32, claimed: i32, id: u8, content: &[u8]) -> Message {
    let mut bytes = Vec::new();
    let length = i32::try_from(HEADER_LEN + PREFIX_LEN + content.len()).unwrap();
    for field in [length, 7, 8, op_code::OP_COMPRESSED, inside, claimed] {
        bytes.extend_from_slice(&field.to_le_bytes());
    }
    bytes.push(id);
    bytes.extend_from_slice(content);
    message(&bytes)
}

/// The same content with another claim about its size.
fn claiming(claimed: i32, mut bytes: Vec<u8>) -> Message {
    bytes[HEADER_LEN + 4..HEADER_LEN + 8].copy_from_slice(&claimed.to_le_bytes());
    message(&bytes)
}

fn refusal(message: Message) -> WireError {
    Decompressor::new().decompress(message).unwrap_err()
}

proptest! {
    #[test]
    fn every_compressor_gives_back_what_it_was_given(
        bodies in prop::collection::vec(
            (prop::collection::vec(any::<u8>(), 0..600), 1_usize..40), 1..4,
        ),
        level in -1..10_i32,
        before in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        for compressor in compiled_in() {
            let mut compression = Compression::new(compressor, level).unwrap();
            let mut decompressor = Decompressor::new();
            for (part, times) in &bodies {
                let original = plain(&part.repeat(*times));
                let mut out = before.clone();
                out.extend_from_slice(&original);
                compression.compress(&mut out, before.len());
                prop_assert_eq!(&out[..before.len()], &before, "what stands before is untouched");
                let sent = message(&out[before.len()..]);
                prop_assert_eq!(sent.header().op_code, op_code::OP_COMPRESSED);
                let received = decompressor.decompress(sent).unwrap();
                prop_assert_eq!(&received.bytes()[..], &original);
            }
        }
    }

    #[test]
    fn garbage_is_refused_or_read_and_never_more(
        content in prop::collection::vec(any::<u8>(), 0..80),
        id in 0..5_u8,
        claimed in prop_oneof![0..200_i32, any::<i32>()],
    ) {
        if let Ok(read) = Decompressor::new().decompress(wrapped(2013, claimed, id, &content)) {
            prop_assert_eq!(i32::try_from(read.body().len()).unwrap(), claimed);
        }
    }

    #[test]
    fn damage_in_any_place_is_an_error_or_another_content_of_the_same_size(
        body in prop::collection::vec(0..4_u8, 1..300),
        place in any::<prop::sample::Index>(),
        bit in 0..8_u32,
    ) {
        for compressor in compiled_in() {
            let mut bytes = compressed(compressor, &body);
            let content = HEADER_LEN + PREFIX_LEN;
            let place = content + place.index(bytes.len() - content);
            bytes[place] ^= 1_u8 << bit;
            if let Ok(read) = Decompressor::new().decompress(message(&bytes)) {
                prop_assert_eq!(read.body().len(), body.len());
            }
        }
    }
}

#[test]
fn one_decompressor_reads_what_any_compressor_wrote() {
    // "clients MUST NOT assume which compressor each message uses"
    let mut decompressor = Decompressor::new();
    for compressor in compiled_in().chain(compiled_in()) {
        let received = decompressor.decompress(message(&compressed(compressor, &[5; 99]))).unwrap();
        assert_eq!(received.body(), [5; 99], "{compressor:?}");
    }
    let plain = message(&plain(&[1, 2, 3]));
    assert_eq!(decompressor.decompress(plain.clone()).unwrap(), plain);
    let noop = wrapped(2013, 3, 0, &[1, 2, 3]);
    assert_eq!(decompressor.decompress(noop).unwrap(), plain);
}

#[test]
fn checksums_hold_again_behind_compression() {
    for compressor in compiled_in() {
        let mut bytes = Vec::new();
        write_op_msg(&mut bytes, 1, 2, Flags::CHECKSUM_PRESENT, &rawdoc! { "ping": 1 });
        Compression::new(compressor, -1).unwrap().compress(&mut bytes, 0);
        let received = Decompressor::new().decompress(message(&bytes)).unwrap();
        assert_eq!(received.op_msg().unwrap().body, &*rawdoc! { "ping": 1 });
    }
}

/// Wire Compression, "Messages not allowed to be compressed".
#[test]
fn commands_about_authentication_are_never_compressed() {
    for name in NEVER_COMPRESSED.into_iter().chain(["ismaster"]) {
        assert!(!may_be_compressed(name), "{name}");
    }
    for name in ["ping", "find", "insert", "killCursors", "endSessions", "saslStarted", ""] {
        assert!(may_be_compressed(name), "{name}");
    }
}

/// Wire Compression, "Compressor IDs".
#[test]
fn numbers_are_those_of_the_specification() {
    assert_eq!(ALL.map(id), [1, 2, 3]);
    assert_eq!([1, 2, 3].map(from_id), ALL.map(Some));
    for number in 4..=255 {
        let refused = refusal(wrapped(2013, 0, number, &[]));
        assert_eq!(refused, WireError::UnknownCompressor(number));
    }
}

#[test]
fn a_compressor_that_is_missing_is_named() {
    for compressor in ALL {
        match Compression::new(compressor, -1) {
            Ok(compression) => {
                assert!(is_compiled_in(compressor));
                assert_eq!(compression.compressor(), compressor);
            }
            Err(missing) => {
                assert!(!is_compiled_in(compressor));
                assert!(missing.to_string().contains(compressor.name()), "{missing}");
                let refused = refusal(wrapped(2013, 1, id(compressor), &[0; 20]));
                assert_eq!(refused, WireError::NotCompiledIn(NotCompiledIn(compressor)));
            }
        }
    }
}

#[test]
fn sizes_that_are_wrong_in_either_direction_are_refused_with_both_numbers() {
    let body: Vec<u8> = (0..=255).collect();
    for compressor in compiled_in() {
        for (claimed, found) in [(257, 256), (300, 256), (255, 256), (1, 2), (0, 1)] {
            let refused = refusal(claiming(claimed, compressed(compressor, &body)));
            let WireError::UncompressedSizeMismatch { claimed: stated, found: counted } = refused
            else {
                panic!("{compressor:?}, {claimed}: {refused}");
            };
            assert_eq!(stated, usize::try_from(claimed).unwrap());
            match found == 256 && claimed > 256 {
                true => assert_eq!(counted, found, "{compressor:?}"),
                false => assert!(counted >= found, "{compressor:?}: {counted} for {claimed}"),
            }
        }
    }
    let refused = refusal(wrapped(2013, 2, 0, &[1, 2, 3]));
    assert_eq!(refused, WireError::UncompressedSizeMismatch { claimed: 2, found: 3 });
}

#[test]
fn sizes_outside_the_limits_are_refused_and_the_edges_accepted() {
    let most = i32::try_from(MAX_MESSAGE_LEN - HEADER_LEN).unwrap();
    for claimed in [-1, i32::MIN, most + 1, i32::MAX] {
        for id in 0..=3 {
            let refused = refusal(wrapped(2013, claimed, id, &[0; 9]));
            assert_eq!(refused, WireError::UncompressedSize(claimed));
        }
    }
    let empty = Decompressor::new().decompress(wrapped(2013, 0, 0, &[]));
    assert!(empty.unwrap().body().is_empty());
    if let Some(compressor) = compiled_in().next() {
        let body = vec![3; MAX_MESSAGE_LEN - HEADER_LEN];
        let received = Decompressor::new().decompress(message(&compressed(compressor, &body)));
        assert!(received.unwrap().body() == body, "{compressor:?}");
    }
}

#[cfg(feature = "snappy")]
#[test]
fn a_message_that_would_become_too_long_stays_as_it_is() {
    // Snappy looks back 64 KiB, so that this is noise to it.
    let mut state = 1_u32;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24).to_le_bytes()[0]
    });
    let noise: Vec<u8> = noise.take(100_000).collect();
    let mut longest = plain(&noise.repeat(MAX_MESSAGE_LEN / noise.len()));
    longest.truncate(MAX_MESSAGE_LEN);
    longest[..4].copy_from_slice(&i32::try_from(MAX_MESSAGE_LEN).unwrap().to_le_bytes());
    let mut bytes = longest.clone();
    Compression::new(Compressor::Snappy, -1).unwrap().compress(&mut bytes, 0);
    assert!(bytes == longest);
}

#[test]
fn a_tiny_message_that_claims_to_be_huge_reserves_nothing() {
    let claimed = 47_000_000;
    for compressor in compiled_in() {
        let content = &compressed(compressor, &[0; 40])[HEADER_LEN + PREFIX_LEN..];
        let mut bomb = Some(wrapped(2013, claimed, id(compressor), content));
        let mut refused = None;
        let memory = measure(|| refused = bomb.take().map(refusal));
        assert!(matches!(refused, Some(WireError::ImpossibleSize { claimed: 47_000_000, .. })));
        assert_eq!(memory.bytes_total, 0, "{compressor:?}");
    }
}

#[test]
fn a_bomb_costs_no_more_than_it_claims() {
    let zeros = vec![0; 4_000_000];
    for compressor in compiled_in() {
        let mut bomb = Some(claiming(100_000, compressed(compressor, &zeros)));
        let memory = measure(|| drop(bomb.take().map(refusal)));
        assert!(memory.bytes_max < 200_000, "{compressor:?}: {} bytes", memory.bytes_max);
    }
}

/// Of Zstandard, memory of the C library is not counted.
#[test]
fn a_connection_that_goes_on_allocates_what_is_received_and_nothing_else() {
    for compressor in compiled_in() {
        let mut compression = Compression::new(compressor, -1).unwrap();
        let mut decompressor = Decompressor::new();
        let original = plain(&[9; 5_000]);
        let mut out = Vec::with_capacity(20_000);
        let mut send = |out: &mut Vec<u8>| {
            out.clear();
            out.extend_from_slice(&original);
            compression.compress(out, 0);
        };
        send(&mut out);
        decompressor.decompress(message(&out)).unwrap();
        let sending = measure(|| send(&mut out));
        assert_eq!(sending.count_total, 0, "{compressor:?}");
        let mut received = Some(message(&out));
        let receiving = measure(|| drop(received.take().map(|it| decompressor.decompress(it))));
        assert_eq!((receiving.count_total, receiving.bytes_total), (1, 5_016), "{compressor:?}");
    }
}

#[test]
fn messages_that_end_too_early_are_refused() {
    let whole = wrapped(2013, 3, 0, &[1, 2, 3]);
    for length in 0..PREFIX_LEN {
        let mut bytes = whole.bytes()[..HEADER_LEN + length].to_vec();
        bytes[0] = u8::try_from(bytes.len()).unwrap();
        assert!(matches!(refusal(message(&bytes)), WireError::Truncated(_)), "{length}");
    }
    for compressor in compiled_in() {
        let whole = compressed(compressor, b"a message, a message, and the same message again");
        for end in HEADER_LEN + PREFIX_LEN..whole.len() {
            let mut bytes = whole[..end].to_vec();
            bytes[0] = u8::try_from(end).unwrap();
            refusal(message(&bytes));
        }
    }
}

#[test]
fn bytes_behind_the_compressed_ones_are_refused() {
    for compressor in compiled_in() {
        for tail in [&[0][..], &[1; 40]] {
            let mut bytes = compressed(compressor, &[4; 64]);
            bytes.extend_from_slice(tail);
            bytes[0] = u8::try_from(bytes.len()).unwrap();
            let refused = refusal(message(&bytes));
            assert!(matches!(refused, WireError::Compressed { .. }), "{compressor:?}: {refused}");
        }
    }
}

#[test]
fn compression_inside_compression_is_refused() {
    let nested = wrapped(op_code::OP_COMPRESSED, 3, 0, &[1, 2, 3]);
    assert_eq!(refusal(nested), WireError::NestedCompression);
}

#[test]
fn a_decompressor_goes_on_after_an_error() {
    for compressor in compiled_in() {
        let mut decompressor = Decompressor::new();
        let whole = compressed(compressor, &[6; 300]);
        decompressor.decompress(claiming(299, whole.clone())).unwrap_err();
        assert_eq!(decompressor.decompress(message(&whole)).unwrap().body(), [6; 300]);
    }
}
