//! The labels of errors: their names, and how they are read and added.
//!
//! Implements "RetryableWriteError Labels" of Retryable Writes, "Error Labels" of Transactions and
//! the labels of Client Backpressure. Servers write them to `errorLabels` of a reply; the client
//! adds [`RETRYABLE_WRITE`] and those of transactions where [`judge`](super::judge) says so, errors
//! of the network have their own, and neither is added to a document.

use bson::{RawArray, RawDocument};

use crate::text::beginning;

/// The label of errors by which a server sheds load.
pub const SYSTEM_OVERLOADED: &str = "SystemOverloadedError";

/// The label of errors after which the same command may be sent again.
pub const RETRYABLE: &str = "RetryableError";

/// The label of errors after which a write may be sent again.
pub const RETRYABLE_WRITE: &str = "RetryableWriteError";

/// The label of errors before which nothing was written.
pub const NO_WRITES_PERFORMED: &str = "NoWritesPerformed";

/// The label of errors after which a whole transaction may be run again.
pub const TRANSIENT_TRANSACTION: &str = "TransientTransactionError";

/// The label of errors after which it is not known whether a transaction was committed.
pub const UNKNOWN_COMMIT_RESULT: &str = "UnknownTransactionCommitResult";

/// The number of labels of an error that are kept.
pub(super) const MAX_LABELS: usize = 16;

/// The maximum length of a label.
const MAX_LABEL_LEN: usize = 1024;

/// Reads the labels of a reply, none if it has none; what is no text is left out.
///
/// ```
/// use sdam_core::bson::rawdoc;
/// use sdam_core::operation::{RETRYABLE_WRITE, error_labels};
///
/// let reply = rawdoc! { "ok": 0, "errorLabels": [RETRYABLE_WRITE, 1] };
/// assert_eq!(error_labels(&reply), [RETRYABLE_WRITE]);
/// ```
pub fn error_labels(reply: &RawDocument) -> Vec<String> {
    reply.get_array("errorLabels").map(labels_in).unwrap_or_default()
}

/// Reads the labels of an array.
pub(super) fn labels_in(labels: &RawArray) -> Vec<String> {
    let labels = labels.into_iter().filter_map(Result::ok).take(MAX_LABELS);
    let text = |label: bson::RawBsonRef<'_>| {
        label.as_str().map(|label| beginning(label, MAX_LABEL_LEN).to_owned())
    };
    labels.filter_map(text).collect()
}

/// Adds labels that are not there yet.
///
/// ```
/// use sdam_core::operation::{NO_WRITES_PERFORMED, RETRYABLE_WRITE, add_labels};
///
/// let mut labels = vec![NO_WRITES_PERFORMED.to_owned()];
/// add_labels(&mut labels, [NO_WRITES_PERFORMED, RETRYABLE_WRITE]);
/// assert_eq!(labels, [NO_WRITES_PERFORMED, RETRYABLE_WRITE]);
/// ```
pub fn add_labels<'a>(labels: &mut Vec<String>, added: impl IntoIterator<Item = &'a str>) {
    for label in added {
        if labels.len() < MAX_LABELS && !labels.iter().any(|known| known == label) {
            labels.push(label.to_owned());
        }
    }
}
