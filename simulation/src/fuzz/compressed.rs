//! OP_COMPRESSED: what was compressed, and what only claims to be.

use sdam_core::wire::{
    Compression, Compressor, Decompressor, Frames, HEADER_LEN, MAX_MESSAGE_LEN, Message,
    is_compiled_in, op_code,
};

/// The first byte chooses a compressor and its level. The others are at first the content of a
/// compressed message, whatever that may be, and then that of a message to be compressed.
///
/// # Panics
///
/// Panics if a law is broken.
pub fn compressed(bytes: &[u8]) {
    let Some((&first, content)) = bytes.split_first() else { return };
    let mut decompressor = Decompressor::new();
    let claimed = decompressor.decompress(message(op_code::OP_COMPRESSED, content));
    if let Ok(message) = &claimed {
        let header = message.header();
        assert!((HEADER_LEN..=MAX_MESSAGE_LEN).contains(&message.bytes().len()));
        assert_eq!(header.length as usize, message.bytes().len());
        assert_eq!((header.request_id, header.response_to), (1, 2));
        assert_ne!(header.op_code, op_code::OP_COMPRESSED, "nothing is compressed twice");
        // The opcode, the size and the compressor, 0 for none.
        if let [_, _, _, _, _, _, _, _, 0, plain @ ..] = content {
            assert_eq!(message.body(), plain, "what is not compressed stays as it is");
        }
    }
    let again = Decompressor::new().decompress(message(op_code::OP_COMPRESSED, content));
    assert_eq!(again, claimed, "the same message, the same result");

    // After whatever came of that, so that an error is seen to leave nothing behind.
    let compressor = COMPRESSORS[usize::from(first) % COMPRESSORS.len()];
    if is_compiled_in(compressor) {
        let level = i32::from(first / 3 % 11) - 1;
        let mut compression = Compression::new(compressor, level).expect("it is compiled in");
        let original = message(op_code::OP_MSG, content);
        let mut out = b"in front".to_vec();
        let start = out.len();
        out.extend_from_slice(original.bytes());
        compression.compress(&mut out, start);
        assert_eq!(&out[..start], b"in front", "what is in front stays");
        let decompressed = decompressor.decompress(read(&out[start..]));
        assert_eq!(decompressed, Ok(original), "{compressor:?} at level {level}");
    }
}

const COMPRESSORS: [Compressor; 3] = [Compressor::Snappy, Compressor::Zlib, Compressor::Zstd];

/// A message with that content.
fn message(op_code: i32, content: &[u8]) -> Message {
    let length = i32::try_from(HEADER_LEN + content.len()).expect("inputs are short");
    let mut bytes = Vec::new();
    for field in [length, 1, 2, op_code] {
        bytes.extend_from_slice(&field.to_le_bytes());
    }
    bytes.extend_from_slice(content);
    read(&bytes)
}

fn read(bytes: &[u8]) -> Message {
    let mut frames = Frames::new();
    frames.extend(bytes);
    frames.next().expect("an allowed length").expect("a whole message")
}
