//! Reasons for which an operation fails by itself, and not for a server or a connection: its
//! arguments, its documents, and what the server says of its writes.

use std::time::Duration;

use sdam_core::operation::{MAX_TIME_EXPIRED, add_labels};

use super::{
    ArgumentError, BulkWriteError, ClientBulkWriteError, Error, ErrorKind, GridFsError, ReplyError,
    WriteConcernError, WriteError,
};
use crate::documents::DeserializeError;

/// An error that an operation reports.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Reported {
    #[error(transparent)]
    Argument(ArgumentError),
    /// `timeoutMS` was over while the operation waited for its session, which another one used
    /// (Client Side Operations Timeout, "Errors"). Without that option,
    /// [`ArgumentError::SessionInUse`] comes in place of it.
    #[error(
        "the operation has waited {} ms for its session, which another operation uses, and its \
         timeoutMS is over; nothing was sent",
        .waited.as_millis()
    )]
    SessionTimeout { waited: Duration },
    /// The time of a whole transaction was over before it was committed (Convenient API for
    /// Transactions, "Timeout Error propagation").
    #[error(
        "{} within {} ms and {attempts} {}: the time that it has, with the next pause, is over; \
         the last error was: {error}",
        match error.commit_token() {
            Some(_) => "it is not known whether the transaction was committed, which servers are \
                        asked for by the commit token of this error,",
            None => "the transaction was not committed",
        },
        .elapsed.as_millis(),
        if *attempts == 1 { "attempt" } else { "attempts" }
    )]
    TransactionTimeout { elapsed: Duration, attempts: u32, error: Error },
    /// A transaction was not committed, as one of its commands had failed, and its callback has
    /// not said so.
    #[error(
        "the transaction was not committed: {command} has failed in it, and the callback returned \
         Ok; have the callback return the errors of its operations. The commit said: {error}"
    )]
    HiddenFailure { command: String, error: Error },
    #[error("the value cannot be written as BSON: {0}")]
    Serialize(bson::error::Error),
    /// The application has read a document, or a value of one.
    #[error(transparent)]
    Read(bson::error::Error),
    #[error(transparent)]
    Deserialize(Box<DeserializeError>),
    #[error(transparent)]
    Reply(ReplyError),
    #[error(transparent)]
    Write(Box<WriteError>),
    #[error(transparent)]
    WriteConcern(Box<WriteConcernError>),
    #[error(transparent)]
    BulkWrite(Box<BulkWriteError>),
    #[error(transparent)]
    ClientBulkWrite(Box<ClientBulkWriteError>),
    #[error(transparent)]
    GridFs(Box<GridFsError>),
    #[error(transparent)]
    Application(Box<dyn std::error::Error + Send + Sync>),
}

impl Reported {
    pub(super) fn kind(&self) -> ErrorKind {
        match self {
            Self::Argument(_) => ErrorKind::Invalid,
            Self::SessionTimeout { .. } | Self::TransactionTimeout { .. } => ErrorKind::Timeout,
            Self::HiddenFailure { error, .. } => error.kind(),
            Self::Serialize(_) => ErrorKind::Serialize,
            Self::Read(_) | Self::Deserialize(_) => ErrorKind::Deserialize,
            Self::Reply(_) => ErrorKind::Protocol,
            Self::Write(_) => ErrorKind::Write,
            Self::WriteConcern(_) => ErrorKind::WriteConcern,
            Self::BulkWrite(_) | Self::ClientBulkWrite(_) => ErrorKind::BulkWrite,
            Self::GridFs(_) => ErrorKind::GridFs,
            Self::Application(_) => ErrorKind::Application,
        }
    }

    /// Returns the error that ended a bulk of writes.
    pub(super) const fn cause(&self) -> Option<&Error> {
        match self {
            Self::BulkWrite(error) => error.cause.as_ref(),
            Self::ClientBulkWrite(error) => error.cause.as_ref(),
            Self::TransactionTimeout { error, .. } | Self::HiddenFailure { error, .. } => {
                Some(error)
            }
            _ => None,
        }
    }

    /// Returns the number of each error that the server has replied with: those of writes first,
    /// then those of write concerns.
    pub(super) fn codes(&self) -> Vec<i32> {
        match self {
            Self::Write(error) => vec![error.code],
            Self::WriteConcern(error) => vec![error.code],
            Self::BulkWrite(error) => {
                let writes = error.write_errors.values().map(|error| error.code);
                writes.chain(error.write_concern_error.iter().map(|error| error.code)).collect()
            }
            Self::ClientBulkWrite(error) => {
                let writes = error.write_errors.values().map(|error| error.code);
                writes.chain(error.write_concern_errors.iter().map(|error| error.code)).collect()
            }
            Self::Argument(_)
            | Self::SessionTimeout { .. }
            | Self::TransactionTimeout { .. }
            | Self::HiddenFailure { .. }
            | Self::Serialize(_)
            | Self::Read(_)
            | Self::Deserialize(_)
            | Self::Reply(_)
            | Self::GridFs(_)
            | Self::Application(_) => Vec::new(),
        }
    }

    /// Returns whether the time was over at the server, or while the operation waited for its
    /// session.
    pub(super) fn is_timeout(&self) -> bool {
        matches!(self, Self::SessionTimeout { .. } | Self::TransactionTimeout { .. })
            || self.codes().contains(&MAX_TIME_EXPIRED)
    }

    /// Returns the labels, each once: those of the replies, behind those of the error that ended a
    /// bulk of writes.
    pub(super) fn labels(&self) -> Vec<&str> {
        let own: &[String] = match self {
            Self::Write(error) => &error.labels,
            Self::WriteConcern(error) => &error.labels,
            Self::BulkWrite(error) => &error.labels,
            Self::ClientBulkWrite(error) => &error.labels,
            Self::Argument(_)
            | Self::SessionTimeout { .. }
            | Self::TransactionTimeout { .. }
            | Self::HiddenFailure { .. }
            | Self::Serialize(_)
            | Self::Read(_)
            | Self::Deserialize(_)
            | Self::Reply(_)
            | Self::GridFs(_)
            | Self::Application(_) => &[],
        };
        let mut labels = self.cause().map_or_else(Vec::new, Error::labels);
        for label in own {
            if !labels.contains(&label.as_str()) {
                labels.push(label);
            }
        }
        labels
    }

    /// Adds labels that the client has given the error of a write concern.
    pub(super) fn add_labels(&mut self, added: &[String]) {
        let add = |labels| add_labels(labels, added.iter().map(String::as_str));
        match self {
            Self::Write(error) => add(&mut error.labels),
            Self::WriteConcern(error) => add(&mut error.labels),
            Self::BulkWrite(error) => {
                add(&mut error.labels);
                error.write_concern_error.iter_mut().for_each(|error| add(&mut error.labels));
            }
            Self::ClientBulkWrite(error) => {
                add(&mut error.labels);
                error.write_concern_errors.iter_mut().for_each(|error| add(&mut error.labels));
            }
            Self::Argument(_)
            | Self::SessionTimeout { .. }
            | Self::TransactionTimeout { .. }
            | Self::HiddenFailure { .. }
            | Self::Serialize(_)
            | Self::Read(_)
            | Self::Deserialize(_)
            | Self::Reply(_)
            | Self::GridFs(_)
            | Self::Application(_) => {}
        }
    }
}
