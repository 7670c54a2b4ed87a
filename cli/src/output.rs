//! Files that commands write when all went well.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// Fails if nothing may be written there: there is a file, and nobody has insisted.
pub(crate) fn check(path: &Path, force: bool) -> io::Result<()> {
    match !force && !is_standard(path) && path.exists() {
        true => Err(io::Error::new(io::ErrorKind::AlreadyExists, "it exists; --force replaces it")),
        false => Ok(()),
    }
}

/// Writes a text to a file, which must not exist yet unless `force`; `-` is standard output.
pub(crate) fn write(path: &Path, force: bool, text: &str) -> io::Result<()> {
    if is_standard(path) {
        return io::stdout().write_all(text.as_bytes());
    }
    let mut options = File::options();
    options.write(true).truncate(true).create(true).create_new(!force);
    options.open(path)?.write_all(text.as_bytes())
}

/// Returns whether this stands for standard output.
pub(crate) fn is_standard(path: &Path) -> bool {
    path == Path::new("-")
}
