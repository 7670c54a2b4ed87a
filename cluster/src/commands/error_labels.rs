//! The labels of an error: they say whether it is worth trying again, and what.

use crate::options::ServerVersion;
use crate::wire::Request;

/// The errors after which a write may succeed if it is sent once more, perhaps to another member.
const RETRYABLE: [i32; 12] = [6, 7, 89, 91, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436];

/// The errors that end a transaction which may succeed as a whole.
const CONFLICTS: [i32; 2] = [112, 251];

/// Returns the label of an error, if it has one (Retryable Writes, "RetryableWriteError Labels").
///
/// So it was seen on `mongod`; here mongos say the same.
pub(super) fn of(code: i32, request: &Request<'_>, version: ServerVersion) -> Option<&'static str> {
    let ends_it = matches!(request.command, "commitTransaction" | "abortTransaction");
    let is_retryable = RETRYABLE.contains(&code);
    if request.is_in_transaction() && (CONFLICTS.contains(&code) || (is_retryable && !ends_it)) {
        return Some("TransientTransactionError");
    }
    let is_numbered = request.body.get("txnNumber").is_ok_and(|number| number.is_some());
    let has_it = version > ServerVersion::V4_2;
    (is_retryable && is_numbered && has_it).then_some("RetryableWriteError")
}
