//! Reading files that people name: whatever they are, no more than so much of them.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Reads a file of at most so many bytes.
///
/// # Errors
///
/// Fails if it cannot be read, or has more; an endless one, such as a device, has more.
pub(super) fn read(file: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(file)?.take(most.saturating_add(1)).read_to_end(&mut content)?;
    match content.len() as u64 > most {
        true => {
            let reason = format!("more than {most} bytes; at most that many are allowed");
            Err(io::Error::new(io::ErrorKind::FileTooLarge, reason))
        }
        false => Ok(content),
    }
}
