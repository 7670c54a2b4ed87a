//! The error of an operation, whichever way it was run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bson::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use sdam_core::config::OptionsError;
use sdam_core::logging::extended_json;
use sdam_core::metrics::{ErrorType, OTHER};
use sdam_core::operation::{CommandError, MAX_TIME_EXPIRED, add_labels, error_labels};
use sdam_core::session::SessionError;
use sdam_core::wire;
use sdam_host::ErrorKind;
pub use sdam_host::SessionAccessError;
use serde::de::DeserializeOwned;

pub use crate::cursor::TimingError;
use crate::reply::document::read_as;
use crate::results::{BulkWriteResult, ClientBulkWriteResult, WriteResult};

/// The reason why an operation failed.
///
/// Clones share what is large.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No server, no connection or no reply in time, or the server replied with an error.
    #[error(transparent)]
    Client(#[from] sdam_host::Error),
    /// An argument or an option that no server need be asked about.
    #[error(transparent)]
    Argument(#[from] ArgumentError),
    /// `timeoutMS` was over while the operation waited for its session, which another one used
    /// (Client Side Operations Timeout, "Errors"). Without that option,
    /// [`ArgumentError::SessionInUse`] comes in place of it.
    #[error(
        "the operation has waited {} ms for its session, which another operation uses, and its \
         timeoutMS is over; nothing was sent",
        .waited.as_millis()
    )]
    SessionTimeout {
        /// The time for which it has waited.
        waited: Duration,
    },
    /// A value of the application that cannot be written as BSON.
    #[error("the value cannot be written as BSON: {0}")]
    Serialize(bson::error::Error),
    /// A document of the server that is not of the type which the application reads.
    #[error(transparent)]
    Deserialize(Arc<DeserializeError>),
    /// A reply without what the command promises.
    #[error(transparent)]
    Reply(#[from] ReplyError),
    /// A single write was refused (CRUD, "WriteError").
    #[error(transparent)]
    Write(Arc<WriteError>),
    /// A write was done, but not to the extent that its write concern asks for. What it has done is
    /// in [`WriteConcernError::result`]: the document of `find_one_and_delete`, for one.
    #[error(transparent)]
    WriteConcern(Arc<WriteConcernError>),
    /// Some of many writes to a collection were refused, or all, or a write concern was not met.
    #[error(transparent)]
    BulkWrite(Arc<BulkWriteError>),
    /// The same, of many writes to several collections.
    #[error(transparent)]
    ClientBulkWrite(Arc<ClientBulkWriteError>),
}

/// An argument or an option that is refused before anything is sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArgumentError {
    /// A list of documents to insert that is empty (CRUD, `insertMany`).
    #[error("there are no documents to insert")]
    NoDocuments,
    /// A list of writes that is empty (CRUD, `bulkWrite`).
    #[error("there are no writes in the bulk")]
    NoWrites,
    /// A list of indexes that is empty.
    #[error("there are no indexes to create")]
    NoIndexes,
    /// An update whose first field is no operator, or that has none (CRUD, "Update vs. Replace
    /// Validation").
    #[error("an update must begin with an operator, such as $set")]
    UpdateWithoutOperator,
    /// A replacement whose first field is an operator.
    #[error("a replacement must not begin with an operator, as {0}")]
    ReplacementWithOperator(String),
    /// The index `*`, which stands for all of them (Index Management, `dropIndex`).
    #[error("`*` would drop every index; use drop_indexes for that")]
    DropEveryIndex,
    /// An option that is not sent with unacknowledged writes to servers of this age, which would
    /// leave it out unnoticed.
    #[error("{0} needs an acknowledged write with this server")]
    Unacknowledged(&'static str),
    /// An option that servers of this age do not know.
    #[error("{option} needs MongoDB {since}")]
    ServerTooOld {
        /// The option's name.
        option: &'static str,
        /// The version that brought it.
        since: &'static str,
    },
    /// Results of each write without acknowledgment (Bulk Write).
    #[error("Cannot request unacknowledged write concern and verbose results")]
    VerboseUnacknowledged,
    /// Order without acknowledgment (Bulk Write).
    #[error("Cannot request unacknowledged write concern and ordered writes")]
    OrderedUnacknowledged,
    /// A write concern of `w: 0` and `journal: true` (Read and Write Concern, "Inconsistent
    /// WriteConcern").
    #[error("a write concern of w: 0 asks for no acknowledgment, and journal: true for one")]
    JournaledUnacknowledged,
    /// A write that does not fit into a message.
    #[error("the write at index {index} has {length} bytes, of which {limit} fit into a message")]
    TooLong {
        /// The write's index.
        index: usize,
        /// Its length in bytes.
        length: usize,
        /// The length that fits.
        limit: usize,
    },
    /// A command without acknowledgment that the server would refuse for its length, and not say.
    #[error("the command has {length} bytes; the server takes at most {limit}")]
    CommandTooLong {
        /// Its length in bytes.
        length: usize,
        /// The length that the server takes.
        limit: usize,
    },
    /// A session that another operation uses, and has not given back in time.
    #[error("the session is in use by another operation")]
    SessionInUse,
    /// A time that is no `$clusterTime` as a server gave it out.
    #[error(transparent)]
    ClusterTime(#[from] sdam_host::ClusterTimeError),
    /// Options that no session can have.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// Times of a cursor that do not go together.
    #[error(transparent)]
    Timing(#[from] crate::cursor::TimingError),
    /// A limit of a cursor whose server sends all of its batches without being asked.
    #[error(
        "a cursor of the type exhaust cannot have a limit; read as many documents as are needed"
    )]
    ExhaustWithLimit,
    /// A name of a collection or a database that is empty or has NUL in it.
    #[error("invalid collection or database name {0:?}")]
    Name(String),
    /// An argument that an operation cannot do without, where it is read from a document.
    #[error("the argument {0} is missing")]
    MissingArgument(&'static str),
    /// An argument that there is not, where an operation is read from a document.
    #[error("unknown argument {name:?}; {}", known_names(.known))]
    UnknownArgument {
        /// Its name.
        name: String,
        /// The names of the arguments that there are, besides those that it cannot do without.
        known: Vec<&'static str>,
    },
    /// An argument of another type, where an operation is read from a document.
    #[error("the argument {name} must be {expected}")]
    WrongType {
        /// The argument's name.
        name: String,
        /// The value that it must be.
        expected: &'static str,
    },
}

fn known_names(known: &[&str]) -> String {
    match known {
        [] => "there are none".to_owned(),
        known => format!("known are {}", known.join(", ")),
    }
}

/// A reply without what the command promises.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server's reply to {command} has no {field} that can be read")]
#[non_exhaustive]
pub struct ReplyError {
    /// The command's name.
    pub command: &'static str,
    /// The field that is missing, or that is of another type.
    pub field: &'static str,
}

/// A document of the server that is not of the type which the application reads.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", self.sentence())]
#[non_exhaustive]
pub struct DeserializeError {
    /// The reason.
    pub reason: bson::error::Error,
    /// The place, as `tags.1.name`: the names of fields and the indexes of elements from the
    /// outermost on, with dots between them; of a field that is missing, the document that lacks
    /// it. Empty if that is the whole document, or not known.
    pub path: String,
    /// The `_id` of the document, if it has one of at most 1,024 bytes.
    pub id: Option<RawBson>,
}

impl DeserializeError {
    /// The maximum length of an `_id` that is kept, in bytes, and of a path.
    const MAX_KEPT_LEN: usize = 1024;

    /// The maximum length of an `_id` in a text, in characters.
    const MAX_SHOWN_LEN: usize = 100;

    pub(crate) fn new(
        reason: bson::error::Error,
        document: &RawDocument,
        mut path: String,
    ) -> Self {
        let end =
            (0..=Self::MAX_KEPT_LEN.min(path.len())).rev().find(|at| path.is_char_boundary(*at));
        path.truncate(end.unwrap_or_default());
        let id = document.get("_id").ok().flatten().map(|id| rawdoc! { "_id": id });
        let id = id.filter(|id| id.as_bytes().len() <= Self::MAX_KEPT_LEN);
        let id = id.and_then(|id| Some(id.get("_id").ok()??.into()));
        Self { reason, path, id }
    }

    fn sentence(&self) -> String {
        let id = self.id.as_ref().map_or_else(String::new, |id| {
            let id = rawdoc! { "_id": id.as_raw_bson_ref() };
            format!(" {}", extended_json(&id, Self::MAX_SHOWN_LEN))
        });
        let reason = match (&self.reason.kind, &self.reason.message) {
            (bson::error::ErrorKind::Deserialization { .. }, Some(message)) => message.clone(),
            _ => self.reason.to_string(),
        };
        let place = match self.path.as_str() {
            "" => String::new(),
            path => format!("at {path}, "),
        };
        format!(
            "the server's document{id} cannot be read as the application's type: {place}{reason}"
        )
    }
}

/// A write that was refused (CRUD, "WriteError"): by the server, or by the client if it is too
/// long, as the server would refuse all others of the command along with it. That has the server's
/// code, 10334.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("the write at index {index} was refused: {message} (code {code})")]
#[non_exhaustive]
pub struct WriteError {
    /// The index of the write among those of the operation.
    pub index: usize,
    /// The error's number.
    pub code: i32,
    /// The error's message, empty if there is none.
    pub message: String,
    /// Further information (`errInfo`), as the server sent it.
    pub details: Option<RawDocumentBuf>,
    /// The labels of the reply. Those of a bulk are in the bulk's error.
    pub labels: Vec<String>,
}

/// A write that was not acknowledged as its write concern asks for (CRUD, "WriteConcernError").
///
/// The write was done, and may be undone if the primary fails now. [`result`](Self::result) is
/// what the operation would have returned without the error:
///
/// ```
/// use bson::Document;
/// use sdam::error::Error;
///
/// /// Returns a job that was taken off its queue, also if a secondary is late.
/// fn taken(outcome: Result<Option<Document>, Error>) -> Result<Option<Document>, Error> {
///     match outcome {
///         Err(Error::WriteConcern(error)) => error.document(),
///         outcome => outcome,
///     }
/// }
/// # let _ = taken;
/// ```
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("the write was done, but its write concern was not met: {message} (code {code})")]
#[non_exhaustive]
pub struct WriteConcernError {
    /// The error's number.
    pub code: i32,
    /// The error's name, empty if there is none.
    pub code_name: String,
    /// The error's message, empty if there is none.
    pub message: String,
    /// Further information (`errInfo`), as the server sent it.
    pub details: Option<RawDocumentBuf>,
    /// The labels of the reply.
    pub labels: Vec<String>,
    /// The result that the operation would have returned. `None` for a command that returns
    /// nothing, as `drop`, and in the errors of bulks, which have their results themselves.
    pub result: Option<WriteResult>,
}

/// Writes to a collection of which some failed (CRUD, "BulkWriteException").
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", summary(.write_errors.values(), .write_concern_error.as_ref(), .cause.as_deref()))]
#[non_exhaustive]
pub struct BulkWriteError {
    /// The errors of single writes, by index.
    pub write_errors: BTreeMap<usize, WriteError>,
    /// The first error of a write concern.
    pub write_concern_error: Option<WriteConcernError>,
    /// The error that ended the operation, if it was no single write's.
    pub cause: Option<Box<Error>>,
    /// The results of the writes that were done.
    pub partial_result: BulkWriteResult,
    /// The labels of the replies that have these errors, each once; those of [`cause`](Self::cause)
    /// are its own.
    pub labels: Vec<String>,
}

/// Writes to several collections of which some failed (Bulk Write, "Exception").
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", summary(.write_errors.values(), .write_concern_errors.first(), .cause.as_deref()))]
#[non_exhaustive]
pub struct ClientBulkWriteError {
    /// The error that ended the operation, if it was no single write's.
    pub cause: Option<Box<Error>>,
    /// The errors of write concerns, one a command at most.
    pub write_concern_errors: Vec<WriteConcernError>,
    /// The errors of single writes, by index.
    pub write_errors: BTreeMap<usize, WriteError>,
    /// The results of the writes that were done; `None` if it is not known that any was.
    pub partial_result: Option<ClientBulkWriteResult>,
    /// The labels of the replies that have these errors, each once; those of [`cause`](Self::cause)
    /// are its own.
    pub labels: Vec<String>,
}

/// Says what has gone wrong in a bulk of writes, in the order in which [`Error::code`] looks for a
/// number.
fn summary<'a>(
    mut write_errors: impl Iterator<Item = &'a WriteError>,
    write_concern: Option<&WriteConcernError>,
    cause: Option<&Error>,
) -> String {
    let first = write_errors.next().map(|first| match write_errors.count() {
        0 => first.to_string(),
        more => format!("{first}, and {more} more"),
    });
    let parts = [first, write_concern.map(ToString::to_string), cause.map(ToString::to_string)];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    match parts.is_empty() {
        true => "the bulk write failed".to_owned(),
        false => parts.join("; "),
    }
}

impl Error {
    /// Returns what metrics call it: the cause that the client has found, or the server's number.
    pub(crate) fn error_type(&self) -> ErrorType {
        let cause = match self {
            Self::Client(error) => return error.error_type(),
            Self::SessionTimeout { .. } => return ErrorType::Named(ErrorKind::Timeout.name()),
            Self::BulkWrite(error) => error.cause.as_deref(),
            Self::ClientBulkWrite(error) => error.cause.as_deref(),
            _ => None,
        };
        match (self.code(), cause) {
            (Some(code), _) => ErrorType::Code(code),
            (None, Some(cause)) => cause.error_type(),
            (None, None) => ErrorType::Named(OTHER),
        }
    }

    /// Returns the number of the error that the server replied with: that of the command, or of the
    /// first write that failed, or of the write concern.
    pub fn code(&self) -> Option<i32> {
        match self {
            Self::Client(error) => error.code(),
            Self::Write(error) => Some(error.code),
            Self::WriteConcern(error) => Some(error.code),
            Self::BulkWrite(error) => {
                let write = error.write_errors.values().next().map(|error| error.code);
                let concern = error.write_concern_error.as_ref().map(|error| error.code);
                write.or(concern).or_else(|| error.cause.as_deref()?.code())
            }
            Self::ClientBulkWrite(error) => {
                let write = error.write_errors.values().next().map(|error| error.code);
                let concern = error.write_concern_errors.first().map(|error| error.code);
                write.or(concern).or_else(|| error.cause.as_deref()?.code())
            }
            Self::Argument(_)
            | Self::SessionTimeout { .. }
            | Self::Serialize(_)
            | Self::Deserialize(_)
            | Self::Reply(_) => None,
        }
    }

    /// Returns the labels of the error, such as `RetryableWriteError`, each once: those that the
    /// server gave it, and those of the client. For a bulk write, they are those of the error that
    /// ended it, and those of all replies with errors.
    pub fn labels(&self) -> Vec<&str> {
        match self {
            Self::Client(error) => error.labels(),
            Self::Write(error) => labels(&error.labels, None),
            Self::WriteConcern(error) => labels(&error.labels, None),
            Self::BulkWrite(error) => labels(&error.labels, error.cause.as_deref()),
            Self::ClientBulkWrite(error) => labels(&error.labels, error.cause.as_deref()),
            Self::Argument(_)
            | Self::SessionTimeout { .. }
            | Self::Serialize(_)
            | Self::Deserialize(_)
            | Self::Reply(_) => Vec::new(),
        }
    }

    /// Adds the labels that the client has given the error of a write concern, as servers from 4.4
    /// on do themselves (Retryable Writes, "RetryableWriteError Labels").
    #[must_use]
    pub(crate) fn with_labels(mut self, added: &[String]) -> Self {
        let add = |labels| add_labels(labels, added.iter().map(String::as_str));
        match &mut self {
            Self::Write(error) => add(&mut Arc::make_mut(error).labels),
            Self::WriteConcern(error) => add(&mut Arc::make_mut(error).labels),
            Self::BulkWrite(error) => {
                let error = Arc::make_mut(error);
                add(&mut error.labels);
                error.write_concern_error.iter_mut().for_each(|error| add(&mut error.labels));
            }
            Self::ClientBulkWrite(error) => {
                let error = Arc::make_mut(error);
                add(&mut error.labels);
                error.write_concern_errors.iter_mut().for_each(|error| add(&mut error.labels));
            }
            Self::Client(_)
            | Self::Argument(_)
            | Self::SessionTimeout { .. }
            | Self::Serialize(_)
            | Self::Deserialize(_)
            | Self::Reply(_) => {}
        }
        self
    }

    /// Returns whether the error has this label.
    pub fn has_label(&self, label: &str) -> bool {
        self.labels().contains(&label)
    }

    /// Returns whether the time of the operation was over, whichever option has limited it: the
    /// client's own clock says so, or the server does, whose error then has code 50
    /// ([`MAX_TIME_EXPIRED`]), in the error of the command, of a write or of a write concern.
    pub fn is_timeout(&self) -> bool {
        let is_expired = |code: i32| code == MAX_TIME_EXPIRED;
        let of_cause = |cause: &Option<Box<Self>>| cause.as_deref().is_some_and(Self::is_timeout);
        match self {
            Self::Client(error) => error.kind() == ErrorKind::Timeout,
            Self::SessionTimeout { .. } => true,
            Self::Write(error) => is_expired(error.code),
            Self::WriteConcern(error) => is_expired(error.code),
            Self::BulkWrite(error) => {
                let concern = error.write_concern_error.as_ref();
                of_cause(&error.cause)
                    || error.write_errors.values().any(|error| is_expired(error.code))
                    || concern.is_some_and(|error| is_expired(error.code))
            }
            Self::ClientBulkWrite(error) => {
                of_cause(&error.cause)
                    || error.write_errors.values().any(|error| is_expired(error.code))
                    || error.write_concern_errors.iter().any(|error| is_expired(error.code))
            }
            Self::Argument(_) | Self::Serialize(_) | Self::Deserialize(_) | Self::Reply(_) => false,
        }
    }

    /// Returns whether the time was over before anything was sent: the operation has waited for its
    /// session, for a server or for a connection.
    pub(crate) fn is_early_timeout(&self) -> bool {
        match self {
            Self::SessionTimeout { .. } => true,
            Self::Client(error) => {
                let is_early = error.as_selection().is_some() || error.as_check_out().is_some();
                is_early && self.is_timeout()
            }
            _ => false,
        }
    }

    /// Returns whether the session was not available, so that nothing was sent.
    pub(crate) const fn is_of_session_in_use(&self) -> bool {
        matches!(self, Self::SessionTimeout { .. } | Self::Argument(ArgumentError::SessionInUse))
    }

    /// Returns whether the server of a cursor can be asked at once to close it, as far as this
    /// error shows: it has answered in time, and has not changed its state.
    pub(crate) fn is_of_a_server_at_hand(&self) -> bool {
        let is_answer = |error: &sdam_host::Error| {
            let changes = error.reply().and_then(CommandError::state_change);
            error.kind() == ErrorKind::Command && changes.is_none()
        };
        self.as_client().is_none_or(is_answer)
    }

    /// Returns whether this error of a getMore says that the server does not know the cursor, or
    /// has given it up, so that nothing is left to close.
    pub(crate) fn is_of_a_closed_cursor(&self) -> bool {
        /// CursorNotFound, QueryPlanKilled, CursorKilled.
        const CLOSED: [i32; 3] = [43, 175, 237];
        // Not that of a login, for one.
        let answer = self.as_client().filter(|error| error.kind() == ErrorKind::Command);
        answer.and_then(sdam_host::Error::code).is_some_and(|code| CLOSED.contains(&code))
    }

    /// Returns the error of the client below, including one that ended a bulk write.
    pub fn as_client(&self) -> Option<&sdam_host::Error> {
        match self {
            Self::Client(error) => Some(error),
            Self::BulkWrite(error) => error.cause.as_deref()?.as_client(),
            Self::ClientBulkWrite(error) => error.cause.as_deref()?.as_client(),
            _ => None,
        }
    }
}

/// Options that are refused: the function that makes them may return this error, too.
///
/// ```
/// use sdam_core::config::Options;
///
/// fn options(uri: &str) -> Result<Options, sdam::error::Error> {
///     Ok(Options::builder().uri(uri)?.build()?)
/// }
/// assert!(matches!(options("localhost"), Err(sdam::error::Error::Client(_))));
/// ```
impl From<OptionsError> for Error {
    fn from(error: OptionsError) -> Self {
        sdam_host::Error::from(error).into()
    }
}

impl From<SessionAccessError> for Error {
    fn from(error: SessionAccessError) -> Self {
        match error {
            SessionAccessError::TimedOut { waited } => Self::SessionTimeout { waited },
            SessionAccessError::ClusterTime(error) => ArgumentError::from(error).into(),
            _ => ArgumentError::SessionInUse.into(),
        }
    }
}

impl From<SessionError> for Error {
    fn from(error: SessionError) -> Self {
        ArgumentError::from(error).into()
    }
}

/// Returns these labels, and those of the error behind them, each once.
fn labels<'a>(own: &'a [String], cause: Option<&'a Error>) -> Vec<&'a str> {
    let mut labels = cause.map_or_else(Vec::new, Error::labels);
    for label in own {
        if !labels.contains(&label.as_str()) {
            labels.push(label);
        }
    }
    labels
}

/// The code of MongoDB's for documents that are too long.
const TOO_LARGE: i32 = 10334;

impl WriteError {
    /// Reads the fields that errors of writes have wherever they are.
    pub(crate) fn of(element: &RawDocument) -> Self {
        Self {
            index: 0,
            code: code(element),
            message: text(element, "errmsg"),
            details: element.get_document("errInfo").ok().map(ToOwned::to_owned),
            labels: Vec::new(),
        }
    }

    /// Refuses a write in the server's place, which would refuse the whole command.
    pub(crate) fn too_large(index: usize, (length, limit): (usize, usize)) -> Self {
        let message = format!("it has {length} bytes; the server takes at most {limit}");
        Self { index, code: TOO_LARGE, message, details: None, labels: Vec::new() }
    }
}

impl WriteConcernError {
    /// Finds the error of the write concern in a reply.
    pub(crate) fn in_reply(reply: &RawDocument) -> Option<Self> {
        let error = reply.get_document("writeConcernError").ok()?;
        Some(Self {
            code: code(error),
            code_name: text(error, "codeName"),
            message: text(error, "errmsg"),
            details: error.get_document("errInfo").ok().map(ToOwned::to_owned),
            labels: error_labels(reply),
            result: None,
        })
    }

    /// Fails with the error of the write concern in a reply, if there is one (Read and Write
    /// Concern): it is an error of every command that writes.
    pub(crate) fn check(reply: &RawDocument) -> Result<(), Error> {
        match Self::in_reply(reply) {
            Some(error) => Err(Error::WriteConcern(error.into())),
            None => Ok(()),
        }
    }

    /// The same error of an operation that would have returned this.
    #[must_use]
    pub(crate) fn with(self, result: WriteResult) -> Self {
        Self { result: Some(result), ..self }
    }

    /// Reads the document that `find_one_and_delete`, `find_one_and_replace` or
    /// `find_one_and_update` would have returned; `None` if there was none, and for other
    /// operations.
    ///
    /// # Errors
    ///
    /// Fails if the document is not of that type.
    pub fn document<T: DeserializeOwned>(&self) -> Result<Option<T>, Error> {
        match &self.result {
            Some(WriteResult::FindOneAnd(Some(document))) => read_as(document).map(Some),
            _ => Ok(None),
        }
    }
}

fn code(error: &RawDocument) -> i32 {
    number(error, "code").and_then(|code| i32::try_from(code).ok()).unwrap_or(0)
}

/// Reads a text for people; servers cut some within a character.
fn text(error: &RawDocument, name: &str) -> String {
    wire::text(error, name).map(std::borrow::Cow::into_owned).unwrap_or_default()
}

/// Reads a whole number that servers send as one type or another.
pub(crate) fn number(document: &RawDocument, name: &str) -> Option<i64> {
    match document.get(name).ok()?? {
        RawBsonRef::Int32(value) => Some(value.into()),
        RawBsonRef::Int64(value) => Some(value),
        RawBsonRef::Double(value) => (value.fract() == 0.0).then_some(value as i64),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::time::Duration;

    use bson::rawdoc;
    use sdam_core::config::Options;

    use super::{ArgumentError, BulkWriteError, ClientBulkWriteError, Error, ErrorType, OTHER};
    use super::{WriteConcernError, WriteError};
    use crate::results::BulkWriteResult;

    fn refused(index: usize) -> (usize, WriteError) {
        let refused = rawdoc! { "code": 11000, "errmsg": "duplicate" };
        (index, WriteError { index, ..WriteError::of(&refused) })
    }

    fn late(label: &str) -> WriteConcernError {
        let late = rawdoc! { "code": 64, "errmsg": "late" };
        let reply = rawdoc! { "writeConcernError": late, "errorLabels": ["Both", label] };
        WriteConcernError::in_reply(&reply).unwrap()
    }

    /// CRUD, "Error Handling": "Structure isn't important as long as the information is available."
    #[test]
    fn the_error_of_a_bulk_tells_of_all_that_went_wrong_the_first_first() {
        let cause = || Some(Box::new(Error::from(ArgumentError::SessionInUse)));
        let bulk = |write_errors: BTreeMap<_, _>, write_concern_error, cause| {
            let partial_result = BulkWriteResult::default();
            let labels = Vec::new();
            let error =
                BulkWriteError { write_errors, write_concern_error, cause, partial_result, labels };
            let error = Error::BulkWrite(error.into());
            (error.to_string(), error.code())
        };
        let first = "the write at index 1 was refused: duplicate (code 11000)";
        let second = "the write was done, but its write concern was not met: late (code 64)";
        let third = "the session is in use by another operation";
        let two = BTreeMap::from([refused(1), refused(4)]);
        let all = format!("{first}, and 1 more; {second}; {third}");
        assert_eq!(bulk(two, Some(late("")), cause()), (all, Some(11000)));
        let some = format!("{second}; {third}");
        assert_eq!(bulk(BTreeMap::new(), Some(late("")), cause()), (some, Some(64)));
        assert_eq!(bulk(BTreeMap::from([refused(1)]), None, None), (first.into(), Some(11000)));
        assert_eq!(bulk(BTreeMap::new(), None, cause()), (third.into(), None));
    }

    /// CSOT, "Error Transformations": the error of a write or of a write concern may be one, too.
    #[test]
    fn time_that_was_over_at_the_server_is_a_timeout_wherever_the_reply_tells_of_it() {
        let expired = rawdoc! { "code": 50, "errmsg": "over" };
        let reply = rawdoc! { "writeConcernError": expired.clone() };
        let concern = WriteConcernError::in_reply(&reply).unwrap();
        let write = WriteError { index: 0, ..WriteError::of(&expired) };
        let bulk = |write_errors, write_concern_error, cause| {
            let partial_result = BulkWriteResult::default();
            let labels = Vec::new();
            let error =
                BulkWriteError { write_errors, write_concern_error, cause, partial_result, labels };
            Error::BulkWrite(error.into())
        };
        let of_write = Error::Write(write.clone().into());
        assert!(of_write.is_timeout() && Error::WriteConcern(concern.clone().into()).is_timeout());
        assert!(bulk(BTreeMap::from([(0, write)]), None, None).is_timeout());
        assert!(bulk(BTreeMap::new(), Some(concern), None).is_timeout());
        assert!(bulk(BTreeMap::new(), None, Some(of_write.into())).is_timeout());
        let (_, duplicate) = refused(1);
        assert!(!Error::Write(duplicate.into()).is_timeout());
        assert!(!bulk(BTreeMap::from([refused(1)]), Some(late("")), None).is_timeout());
    }

    #[test]
    fn the_labels_of_a_bulk_are_those_of_all_its_errors_once_each() {
        let inner = Error::WriteConcern(Arc::new(late("A")));
        assert_eq!(inner.labels(), ["Both", "A"]);
        let error = ClientBulkWriteError {
            cause: Some(inner.into()),
            write_concern_errors: vec![late("B"), late("C")],
            write_errors: BTreeMap::new(),
            partial_result: None,
            labels: ["Both", "B", "C"].map(ToOwned::to_owned).to_vec(),
        };
        let error = Error::ClientBulkWrite(error.into());
        assert_eq!(error.labels(), ["Both", "A", "B", "C"]);
        assert!(error.has_label("C") && !error.has_label("D"));
    }

    /// The error of the client below may stand by itself, or have ended a bulk of writes.
    #[test]
    fn the_error_of_the_client_is_found_wherever_it_is() {
        let client = || Error::from(Options::parse("nonsense").unwrap_err());
        let bulk = |cause| {
            let (write_errors, labels) = (BTreeMap::new(), Vec::new());
            let partial_result = BulkWriteResult::default();
            let write_concern_error = None;
            let error =
                BulkWriteError { write_errors, write_concern_error, cause, partial_result, labels };
            Error::BulkWrite(error.into())
        };
        let of_client = |cause| {
            Error::ClientBulkWrite(
                ClientBulkWriteError {
                    cause,
                    write_concern_errors: Vec::new(),
                    write_errors: BTreeMap::new(),
                    partial_result: None,
                    labels: Vec::new(),
                }
                .into(),
            )
        };
        let kind = client().as_client().unwrap().kind();
        let named = client().error_type();
        for error in [client(), bulk(Some(client().into())), of_client(Some(client().into()))] {
            assert_eq!(error.as_client().map(sdam_host::Error::kind), Some(kind));
            assert_eq!(error.error_type(), named);
            // No server has answered.
            assert!(!error.is_of_a_server_at_hand() && !error.is_of_a_closed_cursor());
            assert!(!error.is_timeout());
        }
        let own = || Error::from(ArgumentError::SessionInUse);
        for error in [own(), bulk(Some(own().into())), of_client(None)] {
            assert!(error.as_client().is_none() && error.is_of_a_server_at_hand());
            assert_eq!(error.error_type(), ErrorType::Named(OTHER));
        }
        let late = of_client(Some(Error::Write(refused(0).1.into()).into()));
        assert_eq!(late.error_type(), ErrorType::Code(11000));
        let waited = Duration::from_secs(1);
        assert!(of_client(Some(Error::SessionTimeout { waited }.into())).is_timeout());
        assert!(!of_client(Some(own().into())).is_timeout());
    }

    /// Retryable Writes, "RetryableWriteError Labels": each kind of error takes the labels that the
    /// client adds, each once, and so does the error of a write concern in it.
    #[test]
    fn labels_that_the_client_adds_are_those_of_the_error() {
        let added = ["Both".to_owned(), "New".to_owned()];
        let of_client = ClientBulkWriteError {
            cause: None,
            write_concern_errors: vec![late("A")],
            write_errors: BTreeMap::new(),
            partial_result: None,
            labels: vec!["Both".to_owned()],
        };
        for (error, expected) in [
            (Error::Write(refused(0).1.into()), vec!["Both", "New"]),
            (Error::WriteConcern(late("A").into()), vec!["Both", "A", "New"]),
            (Error::ClientBulkWrite(of_client.into()), vec!["Both", "New"]),
        ] {
            let error = error.with_labels(&added);
            assert_eq!(error.labels(), expected);
            if let Error::ClientBulkWrite(error) = error {
                assert_eq!(error.write_concern_errors[0].labels, ["Both", "A", "New"]);
            }
        }
    }
}
