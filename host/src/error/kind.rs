//! The kinds of errors: what a program decides on.

use std::fmt;

use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::operation::{InvalidCommand, OperationError};
use sdam_core::pool::CheckOutError;

use super::ClientError;

/// The kind of an [`Error`](super::Error): what a program decides on.
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
    /// No server is suitable, at once or in time; [`Error::verdict`](super::Error::verdict) says
    /// why.
    Selection,
    /// The pool gives no connection, as its server has left or just proved unusable; a server may
    /// be selected again at once.
    CheckOut,
    /// The time allowed was over before a connection was available, or before the reply came; or
    /// the server has used up `maxTimeMS`, whichever option has set that, and
    /// [`Error::code`](super::Error::code) is 50.
    Timeout,
    /// The connection cannot be opened, or broke.
    Network,
    /// TLS was refused, by the server or for its certificate.
    Tls,
    /// The server sent what is no valid message or reply, or a reply without what its command
    /// promises.
    Protocol,
    /// The server refuses the credentials, or does not prove who it is.
    Authentication,
    /// The server replied with an error: [`Error::code`](super::Error::code),
    /// [`Error::labels`](super::Error::labels), [`Error::reply`](super::Error::reply).
    Command,
    /// The command cannot be sent as it is, or not over this connection, or an argument is refused;
    /// nothing was sent.
    Invalid,
    /// The client was closed.
    Closed,
    /// The client was made in another process than this one, which was forked off.
    Forked,
    /// A single write was refused: [`Error::as_write`](super::Error::as_write).
    Write,
    /// A write was done, but not to the extent that its write concern asks for:
    /// [`Error::as_write_concern`](super::Error::as_write_concern), which has the result.
    WriteConcern,
    /// Some of many writes were refused, or all, or a write concern was not met:
    /// [`Error::as_bulk_write`](super::Error::as_bulk_write), or
    /// [`Error::as_client_bulk_write`](super::Error::as_client_bulk_write) of writes to several
    /// collections.
    BulkWrite,
    /// A value of the application cannot be written as BSON.
    Serialize,
    /// A document of the server is not of the type which the application reads:
    /// [`Error::as_deserialize`](super::Error::as_deserialize).
    Deserialize,
    /// A file of GridFS is not there, or is not what its document says:
    /// [`Error::as_grid_fs`](super::Error::as_grid_fs).
    GridFs,
    /// The application has made the error: [`Error::as_custom`](super::Error::as_custom).
    Application,
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
            Self::Write => "write",
            Self::WriteConcern => "writeConcern",
            Self::BulkWrite => "bulkWrite",
            Self::Serialize => "serialize",
            Self::Deserialize => "deserialize",
            Self::GridFs => "gridFs",
            Self::Application => "application",
        }
    }

    pub(super) const fn of_client(error: &ClientError) -> Self {
        match error {
            ClientError::NoRuntime(_) | ClientError::NoThread(_) | ClientError::NoSeed(_) => {
                Self::Runtime
            }
            ClientError::Srv(_) => Self::Dns,
            ClientError::Options(_)
            | ClientError::TlsUnsupported
            | ClientError::TlsNotAskedFor
            | ClientError::TlsConfiguredTwice
            | ClientError::CertificateKeyTwice
            | ClientError::ProxyLogin(_)
            | ClientError::ProviderAndEnvironment
            | ClientError::EnvironmentUnsupported(_)
            | ClientError::NoTokenProvider
            | ClientError::AwsUnsupported
            | ClientError::GssapiUnsupported
            | ClientError::Unresolved(_) => Self::Configuration,
        }
    }

    pub(super) const fn of_check_out(error: &CheckOutError) -> Self {
        match error {
            CheckOutError::Timeout { .. } => Self::Timeout,
            CheckOutError::Establishing { error, .. }
            | CheckOutError::IdleConnection { error, .. } => Self::of_operation(error),
            CheckOutError::Forked { .. } => Self::Forked,
            // A pool that is closed, cleared or not ready yet.
            _ => Self::CheckOut,
        }
    }

    pub(super) const fn of_operation(error: &OperationError) -> Self {
        match error {
            error if error.is_timeout() => Self::Timeout,
            OperationError::Stream(failure) => Self::of_failure(failure),
            OperationError::Reply { stage: Stage::Authenticate, .. } => Self::Authentication,
            OperationError::Invalid(InvalidCommand::Forked(_)) => Self::Forked,
            OperationError::Invalid(
                InvalidCommand::NotAMember(_) | InvalidCommand::UnknownServer(_),
            ) => Self::CheckOut,
            OperationError::Invalid(_) => Self::Invalid,
            _ => Self::Command,
        }
    }

    const fn of_failure(failure: &Failure) -> Self {
        match (&failure.cause, failure.stage) {
            (Cause::Timeout, _) => Self::Timeout,
            (Cause::Configuration, _) => Self::Configuration,
            (_, Stage::Credentials) => Self::Authentication,
            (Cause::Authentication | Cause::GssapiFailed { .. }, _)
            | (Cause::Command { .. }, Stage::Authenticate) => Self::Authentication,
            (Cause::Command { .. }, _) => Self::Command,
            (Cause::Malformed | Cause::OtherProtocol { .. }, _) => Self::Protocol,
            (
                Cause::NotTls
                | Cause::TlsRefused { .. }
                | Cause::CertificateExpired
                | Cause::UnknownIssuer
                | Cause::CertificateName
                | Cause::CertificateUnsupported { .. }
                | Cause::CertificateRevoked
                | Cause::InvalidStaple
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
