//! The error of whatever fails, and what is particular to each kind of it.

pub use sdam_core::operation::{
    TRANSIENT_TRANSACTION as TRANSIENT_TRANSACTION_ERROR,
    UNKNOWN_COMMIT_RESULT as UNKNOWN_TRANSACTION_COMMIT_RESULT,
};
pub use sdam_core::session::{
    CommitToken, CommitTokenError, TransactionError, TransactionRemedy, TransactionStanding,
};
pub use sdam_host::{
    ArgumentError, BulkWriteError, CallbackError, ClientBulkWriteError, ClientError,
    DeserializeError, Error, ErrorKind, GridFsError, GridFsErrorKind, GridFsFileIdentifier,
    ReplyError, Result, SessionAccessError, Spent, TimingError, WriteConcernError, WriteError,
    database_error_in,
};

pub(crate) use sdam_host::driver::DriverError;
