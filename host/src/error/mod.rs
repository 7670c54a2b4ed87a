//! The error that applications match on: one type for all that a client, a server that it has
//! selected, a connection in use and an operation can fail with. What is particular to one of them
//! is within.

mod argument;
mod bulk;
mod client_error;
mod driver;
mod gridfs;
mod kind;
mod reply;
mod reported;
mod repr;
mod spent;
mod write;

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use bson::RawDocument;
use sdam_core::config::{OptionsError, ServerAddress};
use sdam_core::diagnosis::{SelectionError, TransactionErrorFacts, TransactionVerdict, Verdict};
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::operation::{
    CommandError, InvalidCommand, NotSent, OperationError, OperationFailure, UNKNOWN_COMMIT_RESULT,
};
use sdam_core::pool::CheckOutError;
use sdam_core::session::{
    ClusterTimeError, CommitToken, SessionError, TransactionError, TransactionRemedy,
    TransactionStanding,
};
use sdam_core::wire::ReplyDocument;

use crate::documents::DeserializeError;

pub(crate) use argument::TRANSACTION_IN_USE;
pub use argument::{ArgumentError, TimingError};
pub use bulk::{BulkWriteError, ClientBulkWriteError};
pub use client_error::ClientError;
pub use driver::DriverError;
pub(crate) use driver::ERROR_TYPE;
pub use gridfs::{GridFsError, GridFsErrorKind, GridFsFileIdentifier};
pub use kind::ErrorKind;
pub use reply::ReplyError;
pub(crate) use reported::Reported;
pub(crate) use repr::Repr;
pub use spent::Spent;
pub use write::{WriteConcernError, WriteError};

/// The result of whatever can fail with an [`Error`].
///
/// Other errors may take its place, so that a block without a type of its own has to name it, as
/// that of a task does:
///
/// ```
/// # use sdam_host as sdam;
/// # fn spawn(_: impl Future<Output: Send> + Send) {}
/// # async fn operation() -> sdam::Result<()> { Ok(()) }
/// spawn(async {
///     operation().await?;
///     Ok::<_, sdam::Error>(())
/// });
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The codes by which servers refuse a document whose key another one has: DuplicateKey, that of
/// updates in old servers, and that of old routers.
const DUPLICATE_KEY: [i32; 3] = [11000, 11001, 12582];

/// The reason why something failed: its kind, the server, labels, and where the time went.
///
/// It is a pointer in size, and clones share what it points to. Its text is one sentence that says
/// what happened, to which server.
///
/// What programs look for is one line each:
///
/// ```
/// # use sdam_host as sdam;
/// use sdam::{Error, ErrorKind};
///
/// fn advice(error: &Error) -> String {
///     if error.is_duplicate_key() {
///         return "another document has this key".to_owned();
///     }
///     if let Some(refused) = error.as_write() {
///         return format!("the server refuses it: {}", refused.message);
///     }
///     if error.is_no_primary() {
///         return "an election is under way, or a majority of the set is lost".to_owned();
///     }
///     if error.is_timeout() {
///         return "it took too long".to_owned();
///     }
///     match error.kind() {
///         // Nothing was sent.
///         ErrorKind::Selection | ErrorKind::CheckOut => "try it again".to_owned(),
///         ErrorKind::Command if error.has_label("RetryableWriteError") => "again".to_owned(),
///         // A connection that broke leaves open whether a write was done.
///         ErrorKind::Network => "look whether it was done".to_owned(),
///         _ => error.to_string(),
///     }
/// }
/// # let _ = advice;
/// ```
///
/// An application that has errors of its own may return them as this type, too; so does `?` with
/// those of files and of BSON:
///
/// ```
/// # use sdam_host as sdam;
/// use sdam::{Error, ErrorKind, Result};
///
/// fn names(path: &str) -> Result<Vec<String>> {
///     let names: Vec<_> = std::fs::read_to_string(path)?.lines().map(str::to_owned).collect();
///     match names.is_empty() {
///         true => Err(Error::custom(format!("there is no name in {path}"))),
///         false => Ok(names),
///     }
/// }
/// assert_eq!(names("/nowhere").unwrap_err().kind(), ErrorKind::Application);
/// ```
#[derive(Clone)]
pub struct Error(Arc<Inner>);

struct Inner {
    cause: Repr,
    /// The server, where the cause does not name it.
    server: Option<ServerAddress>,
    /// The time that a command took from its selection on.
    spent: Option<Spent>,
    /// The likely cause, where the cause has none within.
    verdict: Option<Box<Verdict>>,
    /// The place in a transaction at which it has come.
    transaction: Option<Box<TransactionStanding>>,
    /// The whole reply that it comes from.
    reply: Option<ReplyDocument>,
    /// The labels that the client gives it.
    labels: Vec<&'static str>,
    /// The name of the transaction whose commit has come to no known end.
    commit_token: Option<Box<CommitToken>>,
    /// True if the operation's own time-out has passed.
    timed_out: bool,
}

impl Error {
    /// The error of an application, as a text or as a type of its own:
    /// [`kind`](Self::kind) is [`Application`](ErrorKind::Application).
    pub fn custom(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Reported::Application(error.into()).into()
    }

    /// The error of a value that cannot be written as BSON: [`kind`](Self::kind) is
    /// [`Serialize`](ErrorKind::Serialize).
    pub fn serialize(reason: bson::error::Error) -> Self {
        Reported::Serialize(reason).into()
    }

    pub(crate) fn new(
        cause: Repr,
        server: Option<ServerAddress>,
        spent: impl Into<Option<Spent>>,
    ) -> Self {
        let (verdict, spent) = (cause.verdict().map(Box::new), spent.into());
        Self(Arc::new(Inner {
            cause,
            server,
            spent,
            verdict,
            transaction: None,
            reply: None,
            labels: Vec::new(),
            commit_token: None,
            timed_out: false,
        }))
    }

    /// Returns the error as reported by the part that has failed.
    pub(crate) fn repr(&self) -> &Repr {
        &self.0.cause
    }

    /// Adds the reply that it comes from.
    #[must_use]
    pub(crate) fn with_reply(mut self, reply: Option<ReplyDocument>) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.reply = reply;
        }
        self
    }

    /// Adds a label.
    pub(crate) fn add_label(&mut self, label: &'static str) {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.labels.push(label);
        }
    }

    /// Adds that it leaves open what became of the transaction whose commit has failed.
    pub(crate) fn commit_is_unknown(&mut self) {
        self.add_label(UNKNOWN_COMMIT_RESULT);
        let Some(inner) = Arc::get_mut(&mut self.0) else { return };
        if let Some(transaction) = &mut inner.transaction {
            transaction.remedy = TransactionRemedy::CommitAgain;
        }
        // It advises what is for a transaction that was not committed.
        if matches!(inner.verdict.as_deref(), Some(Verdict::Transaction(_))) {
            inner.verdict = None;
        }
    }

    /// Adds the name of the transaction whose commit has come to no known end.
    #[must_use]
    pub(crate) fn with_commit_token(mut self, token: Option<CommitToken>) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.commit_token = token.map(Box::new);
        }
        self
    }

    /// Adds that the operation's own time-out has passed.
    #[must_use]
    pub(crate) fn timed_out(mut self) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.timed_out = true;
        }
        self
    }

    /// Adds a likely cause that was found beside the error.
    #[must_use]
    pub(crate) fn judged(mut self, verdict: Option<Verdict>) -> Self {
        if let (Some(verdict), Some(inner)) = (verdict, Arc::get_mut(&mut self.0)) {
            inner.verdict = Some(Box::new(verdict));
        }
        self
    }

    /// Adds where the transaction stands that it belongs to, and the likely cause if that follows.
    #[must_use]
    pub(crate) fn in_transaction(mut self, standing: TransactionStanding) -> Self {
        let facts = TransactionErrorFacts {
            code: self.code(),
            message: self.reply().map_or("", |reply| &reply.message),
            server: self.server(),
        };
        let verdict = TransactionVerdict::of_error(&standing, facts).map(Verdict::from);
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.transaction = Some(Box::new(standing));
            inner.verdict = inner.verdict.take().or_else(|| verdict.map(Box::new));
        }
        self
    }

    /// Adds where the time of a command went.
    #[must_use]
    pub(crate) fn after(mut self, spent: Spent) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.spent = Some(spent);
        }
        self
    }

    /// Returns what kind of error it is.
    ///
    /// It is a [`Timeout`](ErrorKind::Timeout) whenever the `timeoutMS` of an operation has passed;
    /// what was being done then is within (CSOT, "Errors"). It is one without that option, too, if
    /// the client or the server has waited as long as others allow. A bulk of writes is a
    /// [`BulkWrite`](ErrorKind::BulkWrite) whatever ended it; see [`root_cause`](Self::root_cause)
    /// and [`is_timeout`](Self::is_timeout).
    pub fn kind(&self) -> ErrorKind {
        if self.0.timed_out {
            return ErrorKind::Timeout;
        }
        match &self.0.cause {
            Repr::NotSent(NotSent::Expired) => ErrorKind::Timeout,
            Repr::NotSent(_) => ErrorKind::Invalid,
            Repr::Reported(error) => error.kind(),
            Repr::Client(error) => ErrorKind::of_client(error),
            Repr::Selection(error) => match error.verdict {
                Verdict::Closed => ErrorKind::Closed,
                Verdict::Forked(_) => ErrorKind::Forked,
                _ => ErrorKind::Selection,
            },
            Repr::CheckOut(error) => ErrorKind::of_check_out(error),
            Repr::Operation(error) => ErrorKind::of_operation(error),
        }
    }

    /// Returns whether the client was closed, or is another process's: then nothing more is sent.
    pub(crate) fn is_end_of_client(&self) -> bool {
        matches!(self.kind(), ErrorKind::Closed | ErrorKind::Forked)
    }

    /// Returns whether the time of an operation was over, whichever option has limited it: the
    /// client's own clock says so, or the server does, whose error then has code 50
    /// ([`MAX_TIME_EXPIRED`](sdam_core::operation::MAX_TIME_EXPIRED)), in the error of the command,
    /// of a write or of a write concern.
    pub fn is_timeout(&self) -> bool {
        let is_own = match &self.0.cause {
            Repr::Reported(error) => self.0.timed_out || error.is_timeout(),
            _ => self.kind() == ErrorKind::Timeout,
        };
        is_own || self.cause().is_some_and(Self::is_timeout)
    }

    /// Returns whether the server has refused a document because another one has its key, by a
    /// unique index or its `_id`: in a single write, in any of a bulk, or in a command.
    pub fn is_duplicate_key(&self) -> bool {
        let is_one = |code: &i32| DUPLICATE_KEY.contains(code);
        match &self.0.cause {
            Repr::Reported(error) => {
                error.codes().iter().any(is_one)
                    || error.cause().is_some_and(Self::is_duplicate_key)
            }
            _ => self.code().is_some_and(|code| is_one(&code)),
        }
    }

    /// Returns whether no server was found in time for a write, or for a read of the primary: the
    /// set has no primary that this client can reach, or there is no router of the sharded cluster.
    /// [`verdict`](Self::verdict) says why.
    pub fn is_no_primary(&self) -> bool {
        self.root_cause().as_selection().is_some_and(|error| {
            let is_ours = matches!(error.verdict, Verdict::Closed | Verdict::Forked(_));
            error.needs_primary && !is_ours
        })
    }

    /// Returns whether the operation needs a session that another one used for all the time that it
    /// was waited for; nothing was sent.
    pub fn is_session_in_use(&self) -> bool {
        matches!(
            self.reported(),
            Some(
                Reported::SessionTimeout { .. }
                    | Reported::Argument(
                        ArgumentError::SessionInUse | ArgumentError::TransactionInUse
                    )
            )
        )
    }

    /// Returns the error that ended a bulk of writes, if one has; and for all else, the error
    /// itself. [`server`](Self::server), [`reply`](Self::reply), [`failure`](Self::failure),
    /// [`verdict`](Self::verdict) and [`spent`](Self::spent) are those of this one.
    pub fn root_cause(&self) -> &Self {
        self.cause().map_or(self, Self::root_cause)
    }

    /// Returns the address of the server that it is about, if it is about one.
    pub fn server(&self) -> Option<&ServerAddress> {
        let root = &self.root_cause().0;
        match &root.cause {
            Repr::CheckOut(error) => Some(error.address()),
            Repr::Client(_)
            | Repr::Selection(_)
            | Repr::Operation(_)
            | Repr::NotSent(_)
            | Repr::Reported(_) => root.server.as_ref(),
        }
    }

    /// Returns the labels, each once: those that the server gave its error, and those of the
    /// client. For a bulk of writes, they are those of the error that ended it, and those of all
    /// replies with errors.
    pub fn labels(&self) -> Vec<&str> {
        let mut labels = match &self.0.cause {
            Repr::Client(_) | Repr::Selection(_) | Repr::NotSent(_) => Vec::new(),
            Repr::CheckOut(error) => error.labels(),
            Repr::Operation(error) => error.labels(),
            Repr::Reported(error) => error.labels(),
        };
        for label in &self.0.labels {
            if !labels.contains(label) {
                labels.push(label);
            }
        }
        labels
    }

    /// Returns the name of the transaction that may have been committed, if the error is one with
    /// the label [`UNKNOWN_COMMIT_RESULT`](sdam_core::operation::UNKNOWN_COMMIT_RESULT): a client
    /// [asks by it](crate::driver::DriverTopology::recover_commit) what became of that, this one or
    /// one of another process.
    pub fn commit_token(&self) -> Option<&CommitToken> {
        self.0.commit_token.as_deref().or_else(|| self.cause()?.commit_token())
    }

    /// Returns whether it has this label.
    pub fn has_label(&self, label: &str) -> bool {
        self.labels().contains(&label)
    }

    /// Returns the whole reply of the server that it comes from, if the command was answered.
    pub fn reply_document(&self) -> Option<&RawDocument> {
        self.root_cause().0.reply.as_deref()
    }

    /// Returns the number of the error that the server replied with: that of the first write that
    /// failed, or of the write concern, or of the command.
    pub fn code(&self) -> Option<i32> {
        let first = self.reported().and_then(|error| error.codes().first().copied());
        first.or_else(|| self.cause()?.code()).or_else(|| self.reply()?.code)
    }

    /// Returns the error that the server replied with: to the command, or to what establishes a
    /// connection.
    pub fn reply(&self) -> Option<&CommandError> {
        match self.operation()? {
            OperationError::Reply { error, .. } => Some(error),
            _ => None,
        }
    }

    /// Returns how the connection failed, even one that was still being established: the stage it
    /// had reached, and the cause.
    pub fn failure(&self) -> Option<&Failure> {
        match self.operation()? {
            OperationError::Stream(failure) => Some(failure),
            _ => None,
        }
    }

    /// Returns the likely cause: why no server was found, or what else is known beside the error,
    /// as that a primary refuses every write.
    pub fn verdict(&self) -> Option<&Verdict> {
        let root = &self.root_cause().0;
        match &root.cause {
            Repr::Selection(error) => Some(&error.verdict),
            Repr::CheckOut(CheckOutError::Timeout { verdict, .. }) => verdict.as_deref(),
            Repr::Client(_)
            | Repr::CheckOut(_)
            | Repr::Operation(_)
            | Repr::NotSent(_)
            | Repr::Reported(_) => root.verdict.as_deref(),
        }
    }

    /// Returns where the transaction stood that the operation belongs to, if it is in one: which of
    /// its commands has failed, for how long it had been open, and what to do with it.
    ///
    /// ```
    /// # use sdam_host as sdam;
    /// use sdam::Error;
    ///
    /// fn log(error: &Error) {
    ///     if let Some(stood) = error.transaction() {
    ///         eprintln!("command {} ({}) has failed: {stood}", stood.place, stood.command);
    ///     }
    /// }
    /// # let _ = log;
    /// ```
    pub fn transaction(&self) -> Option<&TransactionStanding> {
        self.0.transaction.as_deref().or_else(|| self.cause()?.transaction())
    }

    /// Returns where the time went: in all parts of a command if
    /// [`run_command`](crate::Topology::run_command) has failed, or in what has failed alone.
    ///
    /// `None` if nothing was waited for, and for what fails over a connection in use, which has no
    /// clock of its own.
    pub fn spent(&self) -> Option<Spent> {
        let root = &self.root_cause().0;
        root.spent.or_else(|| match &root.cause {
            Repr::Selection(error) => Some(Spent { selecting: error.waited, ..Spent::default() }),
            Repr::CheckOut(error) => {
                error.waited().map(|checking_out| Spent { checking_out, ..Spent::default() })
            }
            Repr::Client(_) | Repr::Operation(_) | Repr::NotSent(_) | Repr::Reported(_) => None,
        })
    }

    /// Returns why the client could not be created, if that is what has failed.
    pub fn as_client(&self) -> Option<&ClientError> {
        match &self.0.cause {
            Repr::Client(error) => Some(error),
            _ => None,
        }
    }

    /// Returns why no server was found, if that is what has failed: each server with its reason.
    pub fn as_selection(&self) -> Option<&SelectionError> {
        match &self.0.cause {
            Repr::Selection(error) => Some(error),
            _ => None,
        }
    }

    /// Returns why there was no connection, if that is what has failed.
    pub fn as_check_out(&self) -> Option<&CheckOutError> {
        match &self.0.cause {
            Repr::CheckOut(error) => Some(error),
            _ => None,
        }
    }

    /// Returns why the exchange failed, if there was a connection for it.
    pub fn as_operation(&self) -> Option<&OperationError> {
        match &self.0.cause {
            Repr::Operation(error) => Some(error),
            _ => None,
        }
    }

    /// Returns the error of a single write, if the server has refused one, or the client in its
    /// place.
    pub fn as_write(&self) -> Option<&WriteError> {
        match self.reported()? {
            Reported::Write(error) => Some(error),
            _ => None,
        }
    }

    /// Returns the error of a write concern, if a write was done, but not to the extent that is
    /// asked for; it has the result of the write. Those of bulks are in
    /// [`as_bulk_write`](Self::as_bulk_write).
    pub fn as_write_concern(&self) -> Option<&WriteConcernError> {
        match self.reported()? {
            Reported::WriteConcern(error) => Some(error),
            _ => None,
        }
    }

    /// Returns what has gone wrong of many writes to a collection, and what was done.
    pub fn as_bulk_write(&self) -> Option<&BulkWriteError> {
        match self.reported()? {
            Reported::BulkWrite(error) => Some(error),
            _ => None,
        }
    }

    /// Returns what has gone wrong of many writes to several collections, and what was done.
    pub fn as_client_bulk_write(&self) -> Option<&ClientBulkWriteError> {
        match self.reported()? {
            Reported::ClientBulkWrite(error) => Some(error),
            _ => None,
        }
    }

    /// Returns why an argument or an option is refused that no server need be asked about, if that
    /// is what has failed.
    pub fn as_argument(&self) -> Option<&ArgumentError> {
        match self.reported()? {
            Reported::Argument(error) => Some(error),
            _ => None,
        }
    }

    /// Returns why a document of the server is not of the type which the application reads, if that
    /// is what has failed.
    pub fn as_deserialize(&self) -> Option<&DeserializeError> {
        match self.reported()? {
            Reported::Deserialize(error) => Some(error),
            _ => None,
        }
    }

    /// Returns the error of BSON, if a value cannot be written, or a document not be read.
    pub fn as_bson(&self) -> Option<&bson::error::Error> {
        match self.reported()? {
            Reported::Serialize(error) | Reported::Read(error) => Some(error),
            Reported::Deserialize(error) => Some(&error.reason),
            _ => None,
        }
    }

    /// Returns which field is missing in the reply to which command, if that is what has failed.
    pub fn as_reply(&self) -> Option<&ReplyError> {
        match self.reported()? {
            Reported::Reply(error) => Some(error),
            _ => None,
        }
    }

    /// Returns what is wrong with which file of GridFS, if that is what has failed.
    pub fn as_grid_fs(&self) -> Option<&GridFsError> {
        match self.reported()? {
            Reported::GridFs(error) => Some(error),
            _ => None,
        }
    }

    /// Returns the application's own error, if it is one; `downcast_ref` makes it what it was.
    pub fn as_custom(&self) -> Option<&(dyn std::error::Error + Send + Sync + 'static)> {
        match self.reported()? {
            Reported::Application(error) => Some(&**error),
            _ => None,
        }
    }

    fn reported(&self) -> Option<&Reported> {
        match &self.0.cause {
            Repr::Reported(error) => Some(error),
            _ => None,
        }
    }

    /// Returns the error that ended a bulk of writes.
    fn cause(&self) -> Option<&Self> {
        self.reported()?.cause()
    }

    /// Returns what went wrong over a connection, even one that was still being established.
    fn operation(&self) -> Option<&OperationError> {
        match &self.root_cause().0.cause {
            Repr::Operation(error)
            | Repr::CheckOut(
                CheckOutError::Establishing { error, .. }
                | CheckOutError::IdleConnection { error, .. },
            ) => Some(error),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { cause, server, spent, verdict, transaction, .. } = &*self.0;
        cause.fmt(f)?;
        if let Some(server) = server {
            write!(f, " (at {server})")?;
        }
        let addition = verdict.as_deref().and_then(|verdict| cause.addition(verdict));
        if let Some(standing) = transaction {
            let is_sentence = matches!(cause, Repr::Selection(_));
            write!(f, "{} {standing}", if is_sentence { "" } else { ";" })?;
            let is_advised = matches!(verdict.as_deref(), Some(Verdict::Transaction(_)));
            if let Some(remedy) = standing.remedy.words().filter(|_| !is_advised) {
                write!(f, "; {remedy}")?;
            }
            f.write_str(if is_sentence { "." } else { "" })?;
        }
        if let Some(addition) = addition {
            write!(f, "; {addition}")?;
        }
        match (spent, cause) {
            (None, _) => Ok(()),
            // Its text has several sentences, and the full stop of the last one.
            (Some(spent), Repr::Selection(_)) => write!(f, " {spent}"),
            (Some(spent), _) => write!(f, "; {spent}"),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { cause, server, spent, verdict, transaction, .. } = &*self.0;
        f.debug_struct("Error")
            .field("kind", &self.kind())
            .field("verdict", verdict)
            .field("cause", cause)
            .field("server", server)
            .field("transaction", transaction)
            .field("spent", spent)
            .finish()
    }
}

/// The text of the error says all that it has within, so that its source is what lies below that.
impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.cause.source()
    }
}

impl From<Reported> for Error {
    fn from(error: Reported) -> Self {
        Repr::Reported(error).into()
    }
}

impl From<Repr> for Error {
    fn from(cause: Repr) -> Self {
        Self::new(cause, None, None)
    }
}

impl From<ClientError> for Error {
    fn from(error: ClientError) -> Self {
        Repr::Client(error).into()
    }
}

/// Options that are refused: the function that makes them may return this error, too.
///
/// ```
/// # use sdam_core::config::Options;
/// # use sdam_host as sdam;
/// use sdam::{ErrorKind, Result};
///
/// fn options(uri: &str) -> Result<Options> {
///     Ok(Options::builder().uri(uri)?.build()?)
/// }
/// assert_eq!(options("localhost").unwrap_err().kind(), ErrorKind::Configuration);
/// ```
impl From<OptionsError> for Error {
    fn from(error: OptionsError) -> Self {
        ClientError::from(error).into()
    }
}

impl From<SelectionError> for Error {
    fn from(error: SelectionError) -> Self {
        Repr::Selection(error).into()
    }
}

impl From<Box<SelectionError>> for Error {
    fn from(error: Box<SelectionError>) -> Self {
        (*error).into()
    }
}

impl From<CheckOutError> for Error {
    fn from(error: CheckOutError) -> Self {
        Repr::CheckOut(error).into()
    }
}

impl From<Box<CheckOutError>> for Error {
    fn from(error: Box<CheckOutError>) -> Self {
        (*error).into()
    }
}

impl From<OperationError> for Error {
    fn from(error: OperationError) -> Self {
        Repr::Operation(error).into()
    }
}

impl From<OperationFailure> for Error {
    fn from(failure: OperationFailure) -> Self {
        failure.error.into()
    }
}

impl From<InvalidCommand> for Error {
    fn from(error: InvalidCommand) -> Self {
        OperationError::from(error).into()
    }
}

impl From<ClusterTimeError> for Error {
    fn from(error: ClusterTimeError) -> Self {
        ArgumentError::from(error).into()
    }
}

impl From<SessionError> for Error {
    fn from(error: SessionError) -> Self {
        ArgumentError::from(error).into()
    }
}

impl From<TransactionError> for Error {
    fn from(error: TransactionError) -> Self {
        ArgumentError::Transaction(error).into()
    }
}

impl From<ArgumentError> for Error {
    fn from(error: ArgumentError) -> Self {
        Reported::Argument(error).into()
    }
}

impl From<ReplyError> for Error {
    fn from(error: ReplyError) -> Self {
        Reported::Reply(error).into()
    }
}

impl From<Box<DeserializeError>> for Error {
    fn from(error: Box<DeserializeError>) -> Self {
        Reported::Deserialize(error).into()
    }
}

impl From<WriteError> for Error {
    fn from(error: WriteError) -> Self {
        Reported::Write(error.into()).into()
    }
}

impl From<WriteConcernError> for Error {
    fn from(error: WriteConcernError) -> Self {
        Reported::WriteConcern(error.into()).into()
    }
}

impl From<BulkWriteError> for Error {
    fn from(error: BulkWriteError) -> Self {
        Reported::BulkWrite(error.into()).into()
    }
}

impl From<GridFsError> for Error {
    fn from(error: GridFsError) -> Self {
        Reported::GridFs(error.into()).into()
    }
}

impl From<ClientBulkWriteError> for Error {
    fn from(error: ClientBulkWriteError) -> Self {
        Reported::ClientBulkWrite(error.into()).into()
    }
}

/// An error of an application that writes values as BSON, or reads them, itself:
/// [`Serialize`](ErrorKind::Serialize) or [`Deserialize`](ErrorKind::Deserialize).
impl From<bson::error::Error> for Error {
    fn from(error: bson::error::Error) -> Self {
        use bson::error::ErrorKind::{Serialization, TooLargeUnsignedInteger};
        match error.kind {
            Serialization { .. } | TooLargeUnsignedInteger { .. } => Self::serialize(error),
            _ => Reported::Read(error).into(),
        }
    }
}

/// Makes an error of the application's, as when it reads files, one of the kind
/// [`Application`](ErrorKind::Application); takes the error of this library out of one that a
/// stream of GridFS has returned.
impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        match error.downcast::<Self>() {
            Ok(error) => error,
            Err(error) => Self::custom(error),
        }
    }
}

/// The error of a stream of GridFS, for the traits of streams.
impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        let is_missing =
            error.as_grid_fs().is_some_and(|it| it.kind == GridFsErrorKind::FileNotFound);
        let kind = match error.kind() {
            _ if error.is_timeout() => std::io::ErrorKind::TimedOut,
            ErrorKind::GridFs if is_missing => std::io::ErrorKind::NotFound,
            ErrorKind::GridFs => std::io::ErrorKind::InvalidData,
            _ => std::io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

/// [`Options`](sdam_core::config::Options) are never refused where they are taken as they are.
impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// Returns the error of a command or an operation that was given up.
pub(crate) fn given_up(detail: &str) -> OperationError {
    OperationError::Stream(Failure::new(Stage::Operate, Cause::Canceled, detail))
}
