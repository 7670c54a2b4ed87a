//! Zstandard. Its contexts cost more than a small message does, so they are kept.

use zstd_safe::{CCtx, DCtx, ErrorCode, get_error_name};

use super::{Decode, Encode};

/// The library's error code for "too little room"; codes are fixed (`zstd_errors.h`).
const NO_ROOM: ErrorCode = 70_usize.wrapping_neg();

pub(super) struct Encoder(CCtx<'static>);

impl Default for Encoder {
    fn default() -> Self {
        Self(CCtx::create())
    }
}

impl Encode for Encoder {
    fn room(&self, length: usize) -> usize {
        zstd_safe::compress_bound(length)
    }

    fn encode(&mut self, input: &[u8], output: &mut [u8]) -> Option<usize> {
        self.0.compress(output, input, zstd_safe::CLEVEL_DEFAULT).ok()
    }
}

pub(super) struct Decoder(DCtx<'static>);

impl Default for Decoder {
    fn default() -> Self {
        Self(DCtx::create())
    }
}

impl Decode for Decoder {
    fn decode(&mut self, input: &[u8], output: &mut [u8]) -> Result<usize, String> {
        // In one go: a stream would reserve the window that the input asks for.
        match self.0.decompress(output, input) {
            Ok(written) => Ok(written),
            Err(NO_ROOM) => Ok(output.len() + 1),
            Err(code) => Err(get_error_name(code).to_owned()),
        }
    }
}
