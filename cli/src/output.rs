//! Files that commands write.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Fails if nothing may be written there: there is a file, and `force` is not set.
pub(crate) fn check(path: &Path, force: bool) -> io::Result<()> {
    match !force && !is_standard(path) && path.exists() {
        true => Err(exists()),
        false => Ok(()),
    }
}

/// Creates a file, which must not exist yet unless `force`; `-` is standard output.
pub(crate) fn create(path: &Path, force: bool) -> io::Result<Box<dyn Write>> {
    if is_standard(path) {
        return Ok(Box::new(io::stdout()));
    }
    let mut options = File::options();
    options.write(true).truncate(true).create(true).create_new(!force);
    match options.open(path) {
        Ok(file) => Ok(Box::new(BufWriter::new(file))),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(exists()),
        Err(error) => Err(error),
    }
}

/// Writes a text to a file that it creates.
pub(crate) fn write(path: &Path, force: bool, text: &str) -> io::Result<()> {
    let mut out = create(path, force)?;
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    match is_standard(path) {
        true => unless_gone(written),
        false => written,
    }
}

/// Ignores that standard output is closed: the reader has seen enough.
pub(crate) fn unless_gone(written: io::Result<()>) -> io::Result<()> {
    written.or_else(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(error),
    })
}

fn exists() -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, "it exists; --force replaces it")
}

/// Returns whether this stands for standard output.
pub(crate) fn is_standard(path: &Path) -> bool {
    path == Path::new("-")
}
