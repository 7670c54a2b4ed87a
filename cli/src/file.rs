//! Files that people name, read up to a limit.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use sdam_core::trace::{MAX_TRACE_LEN, Trace, TraceError};

use crate::output::is_standard;

/// The reason why a file is of no use as a trace.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TraceFileError {
    /// It cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// It is no trace, or was changed.
    #[error("{}, {error}", path.display())]
    Trace {
        /// The file.
        path: PathBuf,
        /// The fault of the line.
        error: TraceError,
    },
}

/// Reads a file that may be a trace; `-` is standard input.
///
/// # Errors
///
/// Fails if it cannot be read, or is longer than a trace may be.
pub(crate) fn bytes_of_trace(path: &Path) -> Result<Vec<u8>, TraceFileError> {
    read_or_standard_input(path, MAX_TRACE_LEN as u64)
        .map_err(|error| TraceFileError::Read { path: path.to_owned(), error })
}

/// Reads a trace from the bytes of a file.
///
/// # Errors
///
/// Fails if they are none.
pub(crate) fn trace(path: &Path, bytes: Vec<u8>) -> Result<Trace, TraceFileError> {
    Trace::parse(bytes).map_err(|error| TraceFileError::Trace { path: path.to_owned(), error })
}

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
