//! The errors after which a change stream begins again.
//!
//! Implements "Resumable Error" of Change Streams.

use crate::error::{Error, ErrorKind};

/// The label by which servers from 4.4 on name such errors.
const RESUMABLE: &str = "ResumableChangeStreamError";

/// The wire version of those servers.
const LABELS_WIRE_VERSION: i32 = 9;

/// CursorNotFound: the cursor is gone, whatever the server's version.
const CURSOR_NOT_FOUND: i32 = 43;

/// The codes of older servers.
const CODES: [i32; 17] =
    [6, 7, 89, 91, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436, 63, 150, 13388, 234, 133];

/// Returns whether the error of a getMore is one after which the stream begins again: "any error
/// encountered which is not a server error", where a server could be asked at all, and of a server
/// with this wire version what it says itself, or what its code does.
pub(crate) fn is_resumable(error: &Error, max_wire_version: i32) -> bool {
    match (error.kind(), error.reply()) {
        (ErrorKind::Command | ErrorKind::Timeout, Some(error)) => match error.code {
            Some(CURSOR_NOT_FOUND) => true,
            _ if max_wire_version >= LABELS_WIRE_VERSION => {
                error.labels.iter().any(|label| label == RESUMABLE)
            }
            code => code.is_some_and(|code| CODES.contains(&code)),
        },
        (kind, _) => matches!(
            kind,
            ErrorKind::Network | ErrorKind::CheckOut | ErrorKind::Selection | ErrorKind::Timeout
        ),
    }
}
