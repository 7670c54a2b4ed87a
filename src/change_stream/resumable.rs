//! The errors after which a change stream begins again.
//!
//! Implements "Resumable Error" of Change Streams.

use crate::error::{DriverError as _, Error, ErrorKind};

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
/// encountered which is not a server error", where a server could be asked at all, and of the reply
/// to the getMore what a server with this wire version says itself, or what its code does.
pub(crate) fn is_resumable(error: &Error, max_wire_version: i32) -> bool {
    use ErrorKind::{CheckOut, Command, Forked, Network, Selection, Timeout};
    if error.is_of_check_out() {
        return error.kind() != Forked;
    }
    match (error.kind(), error.reply()) {
        (Command | Timeout, Some(error)) => match error.code {
            Some(CURSOR_NOT_FOUND) => true,
            _ if max_wire_version >= LABELS_WIRE_VERSION => {
                error.labels.iter().any(|label| label == RESUMABLE)
            }
            code => code.is_some_and(|code| CODES.contains(&code)),
        },
        (kind, _) => matches!(kind, Network | CheckOut | Selection | Timeout),
    }
}

#[cfg(test)]
mod tests {
    use sdam_core::failure::{Cause, Failure, Stage};
    use sdam_core::operation::{CommandError, InvalidCommand, OperationError};
    use sdam_core::pool::CheckOutError;

    use super::is_resumable;
    use crate::error::Error;

    fn replied(stage: Stage, code: i32, label: &str) -> OperationError {
        let reply = bson::rawdoc! { "ok": 0, "code": code, "errorLabels": [label] };
        OperationError::Reply { stage, error: CommandError::in_reply(&reply).unwrap() }
    }

    fn establishing(error: OperationError) -> Error {
        let address = "a:27017".parse().unwrap();
        CheckOutError::Establishing { address, error, stages: Default::default() }.into()
    }

    /// "For servers with wire version 9 or higher [...] any server error with the
    /// `ResumableChangeStreamError` error label", and of older ones the table of codes.
    #[test]
    fn replies_to_a_get_more_are_judged_by_label_or_code() {
        let replied = |code, label| Error::from(replied(Stage::Operate, code, label));
        for wire_version in [8, 9] {
            assert!(is_resumable(&replied(43, "none"), wire_version));
            let is_older = wire_version == 8;
            assert_eq!(is_resumable(&replied(189, "none"), wire_version), is_older);
            let labelled = replied(2, "ResumableChangeStreamError");
            assert_eq!(is_resumable(&labelled, wire_version), !is_older);
            assert!(!is_resumable(&replied(286, "none"), wire_version));
        }
    }

    /// "Any error encountered which is not a server error": whatever comes before the getMore is
    /// sent.
    #[test]
    fn no_connection_is_no_error_of_the_server() {
        let failed = |stage, cause| OperationError::Stream(Failure::new(stage, cause, "planted"));
        for error in [
            establishing(replied(Stage::Hello, 91, "none")),
            establishing(replied(Stage::Hello, 2, "none")),
            establishing(replied(Stage::Authenticate, 18, "none")),
            establishing(failed(Stage::Tls, Cause::CertificateExpired)),
            establishing(failed(Stage::Authenticate, Cause::Authentication)),
            failed(Stage::Operate, Cause::Closed).into(),
            failed(Stage::Operate, Cause::Timeout).into(),
            InvalidCommand::NotAMember("a:27017".parse().unwrap()).into(),
        ] {
            assert!(is_resumable(&error, 17), "{error:?}");
        }
        for error in [InvalidCommand::Empty.into(), Error::custom("not a server's")] {
            assert!(!is_resumable(&error, 17), "{error:?}");
        }
    }
}
