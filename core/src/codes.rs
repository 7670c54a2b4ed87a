//! The numbers of servers' errors that more than one rule asks for.

/// Another writer has changed a document first (`WriteConflict`).
pub(crate) const WRITE_CONFLICT: i32 = 112;

/// The session has had a later transaction, or retryable write (`TransactionTooOld`).
pub(crate) const TRANSACTION_TOO_OLD: i32 = 225;

/// The server knows no such transaction: it was aborted, is forgotten, or has never come to it
/// (`NoSuchTransaction`).
pub(crate) const NO_SUCH_TRANSACTION: i32 = 251;
