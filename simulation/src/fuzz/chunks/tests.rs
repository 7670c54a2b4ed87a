//! Random files, as a fuzzer without feedback would try them, and what the model makes of some.

use bson::rawdoc;
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any, proptest};
use sdam::error::GridFsErrorKind;
use sdam_core::bson;

use super::chunks;
use super::member::Asked;
use super::model::{self, Facts};
use super::stored::{Chunk, Order, Stored};

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn files_that_lie_are_read_right_or_refused(bytes in vec(any::<u8>(), 20..300)) {
        chunks(&bytes);
    }
}

/// A file of ten bytes, four a chunk, and the search that has brought all of its chunks.
fn stored(chunks: &[(i64, &[u8])]) -> (Stored, [Asked; 1]) {
    let chunk = |(n, data): &(i64, &[u8])| Chunk {
        document: rawdoc! {},
        n: Some(*n),
        data: Some(data.to_vec()),
    };
    let stored = Stored {
        document: Some(rawdoc! {}),
        has_id: true,
        length: Some(10),
        chunk_size: Some(4),
        chunks: chunks.iter().map(chunk).collect(),
        order: Order::Sorted,
        scale: 10,
    };
    let sent = (0..chunks.len()).collect();
    (stored, [Asked { file: 1, first: 0, end: None, limit: 4, sent }])
}

fn read(chunks: &[(i64, &[u8])], part: (Option<u64>, Option<u64>)) -> model::Read {
    let (stored, asked) = stored(chunks);
    model::read(&stored, part, &asked)
}

#[test]
fn the_model_knows_what_was_stored_and_which_chunk_lies() {
    use GridFsErrorKind::{
        ExtraChunk, InvalidRange, MissingChunk, UnexpectedChunk, WrongSizeChunk,
    };
    let whole: [(i64, &[u8]); 3] = [(0, b"0123"), (1, b"4567"), (2, b"89")];
    let of = |chunks: &[(i64, &[u8])]| read(chunks, (None, None));
    let fails = |error| (Vec::new(), Some(error));
    assert_eq!(of(&whole), (b"0123456789".to_vec(), None));
    assert_eq!(read(&whole, (Some(3), None)), (b"3456789".to_vec(), None));
    let behind = InvalidRange { start: 11, end: 10, length: 10 };
    assert_eq!(read(&whole, (Some(11), None)), fails(behind));
    assert_eq!(of(&[whole[0], whole[2]]), fails(MissingChunk { n: 1 }));
    let twice = UnexpectedChunk { expected: 1, found: 0 };
    assert_eq!(of(&[whole[0], whole[0], whole[1], whole[2]]), fails(twice));
    assert_eq!(of(&[whole[0], whole[1], whole[2], (3, b"")]), fails(ExtraChunk { n: 3 }));
    let short = WrongSizeChunk { n: 2, actual: 1, expected: 2 };
    assert_eq!(of(&[whole[0], whole[1], (2, b"8")]), fails(short));
}

#[test]
#[should_panic(expected = "the byte at 5 is none that was sent for it")]
fn a_byte_of_another_place_is_noticed() {
    let (stored, asked) = stored(&[(0, b"0123"), (1, b"4567"), (2, b"89")]);
    let facts = Facts::of(&stored).expect("it is a file");
    model::are_sent(&stored, facts, &asked, (4, b"46"));
}

#[test]
#[should_panic(expected = "nothing that was sent makes")]
fn an_error_without_a_reason_is_noticed() {
    let (stored, asked) = stored(&[(0, b"0123"), (1, b"4567"), (2, b"89")]);
    let facts = Facts::of(&stored).expect("it is a file");
    model::is_deserved(&stored, facts, &asked, &GridFsErrorKind::MissingChunk { n: 1 });
}
