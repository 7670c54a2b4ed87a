//! Files that people name, read up to a limit.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::output::is_standard;

/// Reads a file of at most so many bytes; `-` is standard input.
///
/// # Errors
///
/// Fails if it cannot be read, or has more; an endless one, such as a device, has more.
pub(crate) fn read_or_standard_input(file: &Path, most: u64) -> io::Result<Vec<u8>> {
    match is_standard(file) {
        true => read_from(io::stdin().lock(), most),
        false => read(file, most),
    }
}

/// Reads a file of at most so many bytes.
///
/// # Errors
///
/// Fails if it cannot be read, or has more; an endless one, such as a device, has more.
pub(crate) fn read(file: &Path, most: u64) -> io::Result<Vec<u8>> {
    read_from(File::open(file)?, most)
}

fn read_from(source: impl Read, most: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    source.take(most.saturating_add(1)).read_to_end(&mut content)?;
    match content.len() as u64 > most {
        true => {
            let reason = format!("more than {most} bytes; at most that many are allowed");
            Err(io::Error::new(io::ErrorKind::FileTooLarge, reason))
        }
        false => Ok(content),
    }
}
