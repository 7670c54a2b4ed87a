//! zlib, as RFC 1950 has it.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::{Decode, Encode};

pub(super) struct Encoder(Compress);

impl Encoder {
    /// Anything negative is the default level.
    pub(super) fn new(level: i32) -> Self {
        let level = u32::try_from(level)
            .map_or_else(|_| Compression::default(), |level| Compression::new(level.min(9)));
        Self(Compress::new(level, true))
    }
}

impl Encode for Encoder {
    fn room(&self, length: usize) -> usize {
        // Whatever the backend, a byte becomes 9 bits at worst.
        length + length / 8 + 64
    }

    fn encode(&mut self, input: &[u8], output: &mut [u8]) -> Option<usize> {
        self.0.reset();
        match self.0.compress(input, output, FlushCompress::Finish) {
            Ok(Status::StreamEnd) => usize::try_from(self.0.total_out()).ok(),
            Ok(Status::Ok | Status::BufError) | Err(_) => None,
        }
    }
}

pub(super) struct Decoder(Decompress);

impl Default for Decoder {
    fn default() -> Self {
        Self(Decompress::new(true))
    }
}

impl Decode for Decoder {
    fn decode(&mut self, input: &[u8], output: &mut [u8]) -> Result<usize, String> {
        self.0.reset(true);
        let mut status = self.run(input, output)?;
        let (mut read, mut written) = self.progress();
        if status != Status::StreamEnd && written == output.len() {
            // The end may still be to be read, or else there is one byte too many.
            status = self.run(&input[read..], &mut [0])?;
            (read, written) = self.progress();
        }
        match status {
            Status::StreamEnd if read < input.len() => {
                Err(format!("{} bytes behind its end", input.len() - read))
            }
            Status::Ok | Status::BufError if written <= output.len() => {
                Err("it ends too early".to_owned())
            }
            Status::StreamEnd | Status::Ok | Status::BufError => Ok(written),
        }
    }
}

impl Decoder {
    fn run(&mut self, input: &[u8], output: &mut [u8]) -> Result<Status, String> {
        let status = self.0.decompress(input, output, FlushDecompress::Finish);
        status.map_err(|error| error.to_string())
    }

    /// Returns the numbers of bytes read and written since the beginning.
    fn progress(&self) -> (usize, usize) {
        let [read, written] = [self.0.total_in(), self.0.total_out()]
            .map(|count| usize::try_from(count).expect("slices fit"));
        (read, written)
    }
}
