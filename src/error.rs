//! The error of whatever fails, and what is particular to each kind of it.

pub use sdam_host::{
    ArgumentError, BulkWriteError, ClientBulkWriteError, ClientError, DeserializeError, Error,
    ErrorKind, ReplyError, Result, SessionAccessError, Spent, TimingError, WriteConcernError,
    WriteError,
};

pub(crate) use sdam_host::driver::DriverError;
