//! Files that contain a token.

use std::fs::File;
use std::io::{self, Read as _};

use sdam_core::config::Secret;

/// The maximum length of a file with a token, in bytes.
const MAX_TOKEN_FILE_LEN: u64 = 1 << 20;

/// Reads a file with a token; may take as long as opening a file does.
pub(crate) fn read_token(path: &str) -> io::Result<Secret> {
    let of_file = |error: io::Error| io::Error::new(error.kind(), format!("{path}: {error}"));
    let file = File::open(path).map_err(of_file)?;
    let length = file.metadata().map_err(of_file)?.len().min(MAX_TOKEN_FILE_LEN);
    // As large as it gets, and room to find the end in: a text that grows leaves copies behind.
    let mut text = String::with_capacity(usize::try_from(length).unwrap_or_default() + 16 * 1024);
    match file.take(MAX_TOKEN_FILE_LEN + 1).read_to_string(&mut text) {
        Ok(0) => Err(io::Error::other(format!("{path}: the file is empty"))),
        Ok(length) if length as u64 > MAX_TOKEN_FILE_LEN => Err(io::Error::other(format!(
            "{path}: the file is longer than {MAX_TOKEN_FILE_LEN} bytes, which no token is"
        ))),
        Ok(_) => Ok(text.into()),
        Err(error) => Err(of_file(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::{MAX_TOKEN_FILE_LEN, read_token};

    #[test]
    fn a_token_is_read_anew_each_time_and_never_shown() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap().to_owned();
        let failed = |path: &str| read_token(path).unwrap_err().to_string();
        assert!(failed(&path).contains("empty"));
        file.write_all(b"planted").unwrap();
        assert_eq!(read_token(&path).unwrap().expose(), "planted");
        file.write_all(&[0xff]).unwrap();
        let error = failed(&path);
        assert!(!error.contains("planted") && error.contains(&path), "{error}");
        let long = vec![b'x'; usize::try_from(MAX_TOKEN_FILE_LEN).unwrap() + 1];
        std::fs::write(&path, long).unwrap();
        assert!(failed(&path).contains("longer than"));
        assert!(failed("/none").contains("/none"));
    }
}
