//! The error that applications match on: one type for all that a client, a server that it has
//! selected and a connection in use can fail with. What is particular to one of them is within.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sdam_core::config::{OptionsError, ServerAddress};
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::operation::{CommandError, InvalidCommand, OperationError, OperationFailure};
use sdam_core::pool::CheckOutError;
use sdam_core::selection::{SelectionError, Verdict};

use crate::client::ClientError;

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
///         ErrorKind::Selection | ErrorKind::CheckOut | ErrorKind::Network => true,
///         ErrorKind::Command => error.labels().contains(&"RetryableWriteError"),
///         _ => false,
///     }
/// }
/// ```
#[derive(Clone)]
pub struct Error(Arc<Inner>);

struct Inner {
    cause: Particular,
    /// The server, where the cause does not name it.
    server: Option<ServerAddress>,
    /// The time that a command took from its selection on.
    spent: Option<Spent>,
}

/// An error as the part of the client tells it that has failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Particular {
    #[error(transparent)]
    Client(ClientError),
    #[error(transparent)]
    Selection(SelectionError),
    #[error(transparent)]
    CheckOut(CheckOutError),
    #[error(transparent)]
    Operation(OperationError),
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
    /// The pool gives no connection, as its server has left or was just found to be of no use; a
    /// server may be selected again at once.
    CheckOut,
    /// The time allowed was over before a connection was available, or before the reply came.
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
    /// The command cannot be sent as it is, or not over this connection; nothing was sent.
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
            (Cause::Malformed, _) => Self::Protocol,
            (
                Cause::NotTls
                | Cause::TlsRefused
                | Cause::CertificateExpired
                | Cause::UnknownIssuer
                | Cause::CertificateName
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
        )
    }
}

impl Error {
    pub(crate) fn new(
        cause: Particular,
        server: Option<ServerAddress>,
        spent: impl Into<Option<Spent>>,
    ) -> Self {
        Self(Arc::new(Inner { cause, server, spent: spent.into() }))
    }

    /// Returns what kind of error it is.
    pub fn kind(&self) -> ErrorKind {
        match &self.0.cause {
            Particular::Client(error) => ErrorKind::of_client(error),
            Particular::Selection(error) => match error.verdict {
                Verdict::Closed => ErrorKind::Closed,
                Verdict::Forked(_) => ErrorKind::Forked,
                _ => ErrorKind::Selection,
            },
            Particular::CheckOut(error) => ErrorKind::of_check_out(error),
            Particular::Operation(error) => ErrorKind::of_operation(error),
        }
    }

    /// Returns the address of the server that it is about, if it is about one.
    pub fn server(&self) -> Option<&ServerAddress> {
        match &self.0.cause {
            Particular::CheckOut(error) => Some(error.address()),
            Particular::Client(_) | Particular::Selection(_) | Particular::Operation(_) => {
                self.0.server.as_ref()
            }
        }
    }

    /// Returns the labels: those that the server gave its error, or that the client gave its own.
    pub fn labels(&self) -> Vec<&str> {
        match &self.0.cause {
            Particular::Client(_) | Particular::Selection(_) => Vec::new(),
            Particular::CheckOut(error) => error.labels(),
            Particular::Operation(error) => error.labels(),
        }
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

    /// Returns how the connection failed, be it one that was still being established: the stage it
    /// had reached, and the cause.
    pub fn failure(&self) -> Option<&Failure> {
        match self.operation()? {
            OperationError::Stream(failure) => Some(failure),
            _ => None,
        }
    }

    /// Returns the likely cause for which no server was found.
    pub fn verdict(&self) -> Option<&Verdict> {
        self.as_selection().map(|error| &error.verdict)
    }

    /// Returns where the time went: in all parts of a command if
    /// [`run_command`](crate::Client::run_command) has failed, or in what has failed alone.
    ///
    /// `None` if nothing was waited for, and for what fails over a connection in use, which has no
    /// clock of its own.
    pub fn spent(&self) -> Option<Spent> {
        self.0.spent.or_else(|| match &self.0.cause {
            Particular::Selection(error) => {
                Some(Spent { selecting: error.waited, ..Spent::default() })
            }
            Particular::CheckOut(error) => {
                error.waited().map(|checking_out| Spent { checking_out, ..Spent::default() })
            }
            Particular::Client(_) | Particular::Operation(_) => None,
        })
    }

    /// Returns why the client could not be created, if that is what has failed.
    pub fn as_client(&self) -> Option<&ClientError> {
        match &self.0.cause {
            Particular::Client(error) => Some(error),
            Particular::Selection(_) | Particular::CheckOut(_) | Particular::Operation(_) => None,
        }
    }

    /// Returns why no server was found, if that is what has failed: each server with its reason.
    pub fn as_selection(&self) -> Option<&SelectionError> {
        match &self.0.cause {
            Particular::Selection(error) => Some(error),
            Particular::Client(_) | Particular::CheckOut(_) | Particular::Operation(_) => None,
        }
    }

    /// Returns why there was no connection, if that is what has failed.
    pub fn as_check_out(&self) -> Option<&CheckOutError> {
        match &self.0.cause {
            Particular::CheckOut(error) => Some(error),
            Particular::Client(_) | Particular::Selection(_) | Particular::Operation(_) => None,
        }
    }

    /// Returns why the exchange failed, if there was a connection for it.
    pub fn as_operation(&self) -> Option<&OperationError> {
        match &self.0.cause {
            Particular::Operation(error) => Some(error),
            Particular::Client(_) | Particular::Selection(_) | Particular::CheckOut(_) => None,
        }
    }

    /// Returns what went wrong over a connection, be it one that was still being established.
    fn operation(&self) -> Option<&OperationError> {
        match &self.0.cause {
            Particular::Operation(error)
            | Particular::CheckOut(
                CheckOutError::Establishing { error, .. }
                | CheckOutError::IdleConnection { error, .. },
            ) => Some(error),
            Particular::Client(_) | Particular::Selection(_) | Particular::CheckOut(_) => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { cause, server, spent } = &*self.0;
        cause.fmt(f)?;
        if let Some(server) = server {
            write!(f, " (at {server})")?;
        }
        match (spent, cause) {
            (None, _) => Ok(()),
            // Its text has several sentences, and the full stop of the last one.
            (Some(spent), Particular::Selection(_)) => write!(f, " {spent}"),
            (Some(spent), _) => write!(f, "; {spent}"),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { cause, server, spent } = &*self.0;
        f.debug_struct("Error")
            .field("kind", &self.kind())
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

impl From<Particular> for Error {
    fn from(cause: Particular) -> Self {
        Self::new(cause, None, None)
    }
}

impl From<ClientError> for Error {
    fn from(error: ClientError) -> Self {
        Particular::Client(error).into()
    }
}

impl From<OptionsError> for Error {
    fn from(error: OptionsError) -> Self {
        ClientError::from(error).into()
    }
}

impl From<SelectionError> for Error {
    fn from(error: SelectionError) -> Self {
        Particular::Selection(error).into()
    }
}

impl From<Box<SelectionError>> for Error {
    fn from(error: Box<SelectionError>) -> Self {
        (*error).into()
    }
}

impl From<CheckOutError> for Error {
    fn from(error: CheckOutError) -> Self {
        Particular::CheckOut(error).into()
    }
}

impl From<Box<CheckOutError>> for Error {
    fn from(error: Box<CheckOutError>) -> Self {
        (*error).into()
    }
}

impl From<OperationError> for Error {
    fn from(error: OperationError) -> Self {
        Particular::Operation(error).into()
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

/// [`Options`](sdam_core::config::Options) are never refused where they are taken as they are.
impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}
