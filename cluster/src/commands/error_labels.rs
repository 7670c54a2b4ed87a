//! The labels of an error: they say whether it is worth trying again, and what.

use crate::data::{ends_transaction, opens_change_stream};
use crate::options::ServerVersion;
use crate::wire::Request;

/// The errors after which a write may succeed if it is sent once more, perhaps to another member.
const RETRYABLE: [i32; 12] = [6, 7, 89, 91, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436];

/// The errors that end a transaction which may succeed as a whole.
const TRANSIENT: [i32; 6] = [24, 112, 239, 246, 251, 267];

/// The errors after which a change stream is to be opened again, where it stood (Change Streams,
/// "Resumable Error").
const RESUMABLE: [i32; 16] =
    [6, 7, 63, 89, 91, 133, 150, 189, 234, 262, 9001, 10107, 11600, 11602, 13435, 13436];

/// The errors after which that makes no sense.
const NOT_RESUMABLE: [i32; 2] = [280, 286];

/// Returns whether an error of a change stream has the label `ResumableChangeStreamError`.
pub(super) fn is_resumable(code: i32, version: ServerVersion) -> bool {
    RESUMABLE.contains(&code) && version >= ServerVersion::V4_4
}

/// Returns the label of an error, if it has one (Retryable Writes, "RetryableWriteError Labels";
/// Transactions, "TransientTransactionError").
///
/// So it was seen on `mongod`; here mongos say the same.
pub(super) fn of(code: i32, request: &Request<'_>, version: ServerVersion) -> Option<&'static str> {
    let is_transient =
        request.is_in_transaction() && ends_transaction_for_now(code, request, version);
    if is_transient {
        return Some("TransientTransactionError");
    }
    if NOT_RESUMABLE.contains(&code) {
        return Some("NonResumableChangeStreamError");
    }
    if opens_change_stream(request) && is_resumable(code, version) {
        return Some("ResumableChangeStreamError");
    }
    of_concern(code, request, version)
}

/// Returns the label of an error that is of the write concern, while the command itself is done.
pub(super) fn of_concern(
    code: i32,
    request: &Request<'_>,
    version: ServerVersion,
) -> Option<&'static str> {
    let is_numbered = request.body.get("txnNumber").is_ok_and(|number| number.is_some());
    let is_sent_again = !request.is_in_transaction() || ends_transaction(request.command);
    let has_it = version > ServerVersion::V4_2 && RETRYABLE.contains(&code);
    (has_it && is_numbered && is_sent_again).then_some("RetryableWriteError")
}

/// Returns whether an error ends a transaction that may succeed if it is run again.
///
/// A commit that fails for a reason that may pass is tried again by itself, as is an abort since
/// 4.4.
fn ends_transaction_for_now(code: i32, request: &Request<'_>, version: ServerVersion) -> bool {
    let is_old = version == ServerVersion::V4_2;
    let is_tried_again = match request.command {
        "commitTransaction" => true,
        "abortTransaction" => !is_old,
        _ => false,
    };
    let may_pass = RETRYABLE.contains(&code) && !(is_old && code == 262);
    TRANSIENT.contains(&code) || (may_pass && !is_tried_again)
}
