//! Snappy, the raw format without frames.

use super::{Decode, Encode};

/// The tables live as long as the connection.
pub(super) struct Encoder(snap::raw::Encoder);

impl Default for Encoder {
    fn default() -> Self {
        Self(snap::raw::Encoder::new())
    }
}

impl Encode for Encoder {
    fn room(&self, length: usize) -> usize {
        snap::raw::max_compress_len(length)
    }

    fn encode(&mut self, input: &[u8], output: &mut [u8]) -> Option<usize> {
        self.0.compress(input, output).ok()
    }
}

#[derive(Default)]
pub(super) struct Decoder(snap::raw::Decoder);

impl Decode for Decoder {
    fn decode(&mut self, input: &[u8], output: &mut [u8]) -> Result<usize, String> {
        // Snappy states a size of its own.
        match snap::raw::decompress_len(input) {
            Ok(size) if size == output.len() => self.0.decompress(input, output),
            other => other,
        }
        .map_err(|error| error.to_string())
    }
}
