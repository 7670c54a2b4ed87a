//! The error that applications match on: one type for all that a client, a server that it has
//! selected and a connection in use can fail with. What is particular to one of them is within.

mod client_error;

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bson::RawDocument;
use sdam_core::config::{OptionsError, ServerAddress};
use sdam_core::diagnosis::{SelectionError, Verdict};
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::metrics::ErrorType;
use sdam_core::operation::{
    CommandError, InvalidCommand, NotSent, OperationError, OperationFailure,
};
use sdam_core::pool::CheckOutError;
use sdam_core::session::{ClusterTimeError, SessionError};
use sdam_core::spans::SpanEnd;
use sdam_core::wire::ReplyDocument;

pub use client_error::ClientError;

/// The reason why something failed: its kind, the server, labels, and where the time went.
///
/// It is a pointer in size, and clones share what it points to. Its text is one sentence that says
/// what happened, to which server.
///
/// ```
/// use sdam_host::{Error, ErrorKind};
///
/// fn is_worth_another_try(error: &Error) -> bool {
///     match error.kind() {
///         // Nothing was sent.
///         ErrorKind::Selection | ErrorKind::CheckOut => true,
///         ErrorKind::Command => error.labels().contains(&"RetryableWriteError"),
///         // A connection that broke leaves open whether a write was done.
///         _ => false,
///     }
/// }
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
    /// The whole reply that it comes from.
    reply: Option<ReplyDocument>,
    /// The labels that the client gives it.
    labels: Vec<&'static str>,
    /// True if the operation's own time-out has passed.
    timed_out: bool,
}

/// An error as reported by the part of the client that has failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Repr {
    #[error(transparent)]
    Client(ClientError),
    #[error(transparent)]
    Selection(SelectionError),
    #[error(transparent)]
    CheckOut(CheckOutError),
    #[error(transparent)]
    Operation(OperationError),
    #[error(transparent)]
    NotSent(NotSent),
    #[error(transparent)]
    Argument(Argument),
}

/// An argument of a call that sends nothing, which is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Argument {
    #[error(transparent)]
    ClusterTime(ClusterTimeError),
    #[error(transparent)]
    Session(SessionError),
}

impl Repr {
    /// Returns the likely cause, if the error itself shows it.
    fn verdict(&self) -> Option<Verdict> {
        match self {
            Self::Client(error) => of_client(error),
            Self::CheckOut(CheckOutError::Forked { forked, .. })
            | Self::Operation(OperationError::Invalid(InvalidCommand::Forked(forked))) => {
                Some(Verdict::Forked(*forked))
            }
            Self::Selection(_)
            | Self::CheckOut(_)
            | Self::Operation(_)
            | Self::NotSent(_)
            | Self::Argument(_) => None,
        }
    }

    /// Returns what a verdict says beyond the text of the error: its cause too, unless that is the
    /// error itself in other words.
    fn addition(&self, verdict: &Verdict) -> Option<String> {
        match (self, verdict) {
            // Their texts say it.
            (Self::Client(_) | Self::Selection(_) | Self::NotSent(_) | Self::Argument(_), _)
            | (_, Verdict::Forked(_)) => None,
            (
                Self::CheckOut(_) | Self::Operation(_),
                Verdict::PrimaryRefusesWrites { .. }
                | Verdict::ConnectionLimit { .. }
                | Verdict::ProcessPaused { .. },
            ) => Some(verdict.sentence()),
            (Self::CheckOut(_) | Self::Operation(_), _) => Some(verdict.advice().to_string()),
        }
    }
}

/// Returns the likely cause for which a client could not be created, unless it is the operating
/// system's.
fn of_client(error: &ClientError) -> Option<Verdict> {
    match error {
        ClientError::Options(error) => Some(error.into()),
        ClientError::Srv(error) => Some(error.into()),
        ClientError::NoRuntime(_) | ClientError::NoThread(_) | ClientError::NoSeed(_) => None,
        ClientError::TlsUnsupported
        | ClientError::TlsNotAskedFor
        | ClientError::TlsConfiguredTwice
        | ClientError::ProxyLogin(_)
        | ClientError::ProviderAndEnvironment
        | ClientError::Unresolved(_) => Some(Verdict::InvalidOptions { reason: error.to_string() }),
    }
}

/// The kind of an [`Error`]: what a program decides on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The connection string or an option is refused, or names what cannot be used, such as a file
    /// of certificates.
    Configuration,
    /// DNS gives no servers or options that can be used (`mongodb+srv://`).
    Dns,
    /// The client is created outside its runtime, or the operating system gives no thread or no
    /// randomness.
    Runtime,
    /// No server is suitable, at once or in time; [`Error::verdict`] says why.
    Selection,
    /// The pool gives no connection, as its server has left or just proved unusable; a server may
    /// be selected again at once.
    CheckOut,
    /// The time allowed was over before a connection was available, or before the reply came; or
    /// the server has used up `maxTimeMS`, whichever option has set that, and
    /// [`Error::code`] is 50.
    Timeout,
    /// The connection cannot be opened, or broke.
    Network,
    /// TLS was refused, by the server or for its certificate.
    Tls,
    /// The server sent what is no valid message or reply.
    Protocol,
    /// The server refuses the credentials, or does not prove who it is.
    Authentication,
    /// The server replied with an error: [`Error::code`], [`Error::labels`], [`Error::reply`].
    Command,
    /// The command cannot be sent as it is, or not over this connection, or an argument is refused;
    /// nothing was sent.
    Invalid,
    /// The client was closed.
    Closed,
    /// The client was made in another process than this one, which was forked off.
    Forked,
}

impl ErrorKind {
    /// Returns the name, for labels of metrics and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Configuration => "configuration",
            Self::Dns => "dns",
            Self::Runtime => "runtime",
            Self::Selection => "selection",
            Self::CheckOut => "checkOut",
            Self::Timeout => "timeout",
            Self::Network => "network",
            Self::Tls => "tls",
            Self::Protocol => "protocol",
            Self::Authentication => "authentication",
            Self::Command => "command",
            Self::Invalid => "invalid",
            Self::Closed => "closed",
            Self::Forked => "forked",
        }
    }

    const fn of_client(error: &ClientError) -> Self {
        match error {
            ClientError::NoRuntime(_) | ClientError::NoThread(_) | ClientError::NoSeed(_) => {
                Self::Runtime
            }
            ClientError::Srv(_) => Self::Dns,
            ClientError::Options(_)
            | ClientError::TlsUnsupported
            | ClientError::TlsNotAskedFor
            | ClientError::TlsConfiguredTwice
            | ClientError::ProxyLogin(_)
            | ClientError::ProviderAndEnvironment
            | ClientError::Unresolved(_) => Self::Configuration,
        }
    }

    const fn of_check_out(error: &CheckOutError) -> Self {
        match error {
            CheckOutError::Timeout { .. } => Self::Timeout,
            CheckOutError::Establishing { error, .. }
            | CheckOutError::IdleConnection { error, .. } => Self::of_operation(error),
            CheckOutError::Forked { .. } => Self::Forked,
            // A pool that is closed, cleared or not ready yet.
            _ => Self::CheckOut,
        }
    }

    const fn of_operation(error: &OperationError) -> Self {
        match error {
            error if error.is_timeout() => Self::Timeout,
            OperationError::Stream(failure) => Self::of_failure(failure),
            OperationError::Reply { stage: Stage::Authenticate, .. } => Self::Authentication,
            OperationError::Invalid(InvalidCommand::Forked(_)) => Self::Forked,
            OperationError::Invalid(_) => Self::Invalid,
            _ => Self::Command,
        }
    }

    const fn of_failure(failure: &Failure) -> Self {
        match (&failure.cause, failure.stage) {
            (Cause::Timeout, _) => Self::Timeout,
            (Cause::Configuration, _) => Self::Configuration,
            (Cause::Authentication, _) | (Cause::Command { .. }, Stage::Authenticate) => {
                Self::Authentication
            }
            (Cause::Command { .. }, _) => Self::Command,
            (Cause::Malformed | Cause::OtherProtocol { .. }, _) => Self::Protocol,
            (
                Cause::NotTls
                | Cause::TlsRefused { .. }
                | Cause::CertificateExpired
                | Cause::UnknownIssuer
                | Cause::CertificateName
                | Cause::CertificateUnsupported { .. }
                | Cause::CertificateInvalid,
                _,
            ) => Self::Tls,
            _ => Self::Network,
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The time that each part of running a command took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Spent {
    /// Selecting servers.
    pub selecting: Duration,
    /// Checking out connections.
    pub checking_out: Duration,
    /// The exchange.
    pub exchanging: Duration,
    /// Waiting before a command was sent again, as a server had said that it is overloaded.
    pub waiting: Duration,
}

impl fmt::Display for Spent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = |duration: Duration| duration.as_millis();
        write!(
            f,
            "{} ms went into selecting a server, {} ms into checking out a connection, {} ms into \
             the exchange",
            millis(self.selecting),
            millis(self.checking_out),
            millis(self.exchanging)
        )?;
        match self.waiting.is_zero() {
            true => Ok(()),
            false => {
                write!(f, ", {} ms into waiting for an overloaded server", millis(self.waiting))
            }
        }
    }
}

impl Error {
    pub(crate) fn new(
        cause: Repr,
        server: Option<ServerAddress>,
        spent: impl Into<Option<Spent>>,
    ) -> Self {
        let (verdict, spent) = (cause.verdict().map(Box::new), spent.into());
        let (reply, labels, timed_out) = (None, Vec::new(), false);
        let inner = Inner { cause, server, spent, verdict, reply, labels, timed_out };
        Self(Arc::new(inner))
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

    /// Ends the span of an operation that has failed with it: what the server has replied is
    /// recorded with the command.
    pub fn span_end(&self) -> SpanEnd {
        match self.repr() {
            Repr::Operation(OperationError::Reply { .. }) => SpanEnd::failed(),
            _ => SpanEnd::exception("sdam_host::Error", self.to_string()),
        }
    }

    /// Returns what metrics call it.
    pub fn error_type(&self) -> ErrorType {
        match self.repr() {
            Repr::Operation(error) if !self.0.timed_out => error.into(),
            _ => ErrorType::Named(self.kind().name()),
        }
    }

    /// Adds a label.
    pub(crate) fn add_label(&mut self, label: &'static str) {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.labels.push(label);
        }
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
    /// the client or the server has waited as long as others allow.
    pub fn kind(&self) -> ErrorKind {
        if self.0.timed_out {
            return ErrorKind::Timeout;
        }
        match &self.0.cause {
            Repr::NotSent(NotSent::Expired) => ErrorKind::Timeout,
            Repr::NotSent(_) | Repr::Argument(_) => ErrorKind::Invalid,
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

    /// Returns the address of the server that it is about, if it is about one.
    pub fn server(&self) -> Option<&ServerAddress> {
        match &self.0.cause {
            Repr::CheckOut(error) => Some(error.address()),
            Repr::Client(_)
            | Repr::Selection(_)
            | Repr::Operation(_)
            | Repr::NotSent(_)
            | Repr::Argument(_) => self.0.server.as_ref(),
        }
    }

    /// Returns the labels: those that the server gave its error, or that the client gave its own.
    pub fn labels(&self) -> Vec<&str> {
        let mut labels = match &self.0.cause {
            Repr::Client(_) | Repr::Selection(_) | Repr::NotSent(_) | Repr::Argument(_) => {
                Vec::new()
            }
            Repr::CheckOut(error) => error.labels(),
            Repr::Operation(error) => error.labels(),
        };
        for label in &self.0.labels {
            if !labels.contains(label) {
                labels.push(label);
            }
        }
        labels
    }

    /// Returns whether it has this label.
    pub fn has_label(&self, label: &str) -> bool {
        self.labels().contains(&label)
    }

    /// Returns the whole reply of the server that it comes from, if the command was answered.
    pub fn reply_document(&self) -> Option<&RawDocument> {
        self.0.reply.as_deref()
    }

    /// Returns the number of the error that the server replied with.
    pub fn code(&self) -> Option<i32> {
        self.reply()?.code
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
        match &self.0.cause {
            Repr::Selection(error) => Some(&error.verdict),
            Repr::CheckOut(CheckOutError::Timeout { verdict, .. }) => verdict.as_deref(),
            Repr::Client(_)
            | Repr::CheckOut(_)
            | Repr::Operation(_)
            | Repr::NotSent(_)
            | Repr::Argument(_) => self.0.verdict.as_deref(),
        }
    }

    /// Returns where the time went: in all parts of a command if
    /// [`run_command`](crate::Topology::run_command) has failed, or in what has failed alone.
    ///
    /// `None` if nothing was waited for, and for what fails over a connection in use, which has no
    /// clock of its own.
    pub fn spent(&self) -> Option<Spent> {
        self.0.spent.or_else(|| match &self.0.cause {
            Repr::Selection(error) => Some(Spent { selecting: error.waited, ..Spent::default() }),
            Repr::CheckOut(error) => {
                error.waited().map(|checking_out| Spent { checking_out, ..Spent::default() })
            }
            Repr::Client(_) | Repr::Operation(_) | Repr::NotSent(_) | Repr::Argument(_) => None,
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

    /// Returns what went wrong over a connection, even one that was still being established.
    fn operation(&self) -> Option<&OperationError> {
        match &self.0.cause {
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
        let Inner { cause, server, spent, verdict, .. } = &*self.0;
        cause.fmt(f)?;
        if let Some(server) = server {
            write!(f, " (at {server})")?;
        }
        if let Some(addition) = verdict.as_deref().and_then(|verdict| cause.addition(verdict)) {
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
        let Inner { cause, server, spent, verdict, .. } = &*self.0;
        f.debug_struct("Error")
            .field("kind", &self.kind())
            .field("verdict", verdict)
            .field("cause", cause)
            .field("server", server)
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
        Repr::Argument(Argument::ClusterTime(error)).into()
    }
}

impl From<SessionError> for Error {
    fn from(error: SessionError) -> Self {
        Repr::Argument(Argument::Session(error)).into()
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
