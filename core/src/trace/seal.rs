//! Checksums, by which every changed line of a trace is found.

use crc::{CRC_16_IBM_SDLC, Crc};

static CRC: Crc<u16> = Crc::<u16>::new(&CRC_16_IBM_SDLC);

/// The mark between a line and its checksum.
const MARK: &str = " ~";

/// Ends each line with a checksum of itself and all lines before it: two bytes, which find every
/// change of a byte in a line, and 65,535 of 65,536 other changes.
///
/// ```
/// use sdam_core::trace::Seal;
///
/// let mut seal = Seal::new();
/// let sealed = seal.seal("a line\nanother\n");
/// assert!(sealed.lines().all(|line| line.contains(" ~")));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Seal {
    /// The checksum of the last line.
    last: u16,
}

impl Seal {
    /// Begins with the first line behind the one that says `sealed`.
    pub fn new() -> Self {
        Self::default()
    }

    /// Seals whole lines, the next of the trace.
    pub fn seal(&mut self, lines: &str) -> String {
        let mut sealed = String::with_capacity(lines.len() + 64);
        for line in lines.lines() {
            let checksum = self.next(line);
            sealed.extend([line, MARK, &checksum, "\n"]);
        }
        sealed
    }

    /// Takes the checksum off the next line; fails with the one it has and the one it should have.
    pub(super) fn open<'a>(&mut self, line: &'a str) -> Result<&'a str, (String, String)> {
        let (text, stated) = line.rsplit_once(MARK).unwrap_or((line, ""));
        let computed = self.next(text);
        match stated == computed {
            true => Ok(text),
            false => Err((stated.to_owned(), computed)),
        }
    }

    fn next(&mut self, line: &str) -> String {
        let mut digest = CRC.digest();
        digest.update(&self.last.to_le_bytes());
        digest.update(line.as_bytes());
        self.last = digest.finalize();
        format!("{:04x}", self.last)
    }
}
