//! An error as reported by the part of the client that has failed.

use sdam_core::diagnosis::{SelectionError, Verdict};
use sdam_core::operation::{InvalidCommand, NotSent, OperationError};
use sdam_core::pool::CheckOutError;

use super::{ClientError, Reported};

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
    Reported(Reported),
}

impl Repr {
    /// Returns the likely cause, if the error itself shows it.
    pub(super) fn verdict(&self) -> Option<Verdict> {
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
            | Self::Reported(_) => None,
        }
    }

    /// Returns what a verdict says beyond the text of the error: its cause too, unless that is the
    /// error itself in other words.
    pub(super) fn addition(&self, verdict: &Verdict) -> Option<String> {
        match (self, verdict) {
            (_, Verdict::Transaction(_) | Verdict::ChangeStream(_)) => Some(verdict.sentence()),
            // Their texts say it.
            (Self::Client(_) | Self::Selection(_) | Self::NotSent(_) | Self::Reported(_), _)
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
        | ClientError::CertificateKeyTwice
        | ClientError::ProxyLogin(_)
        | ClientError::ProviderAndEnvironment
        | ClientError::EnvironmentUnsupported(_)
        | ClientError::NoTokenProvider
        | ClientError::AwsUnsupported
        | ClientError::GssapiUnsupported
        | ClientError::Unresolved(_) => Some(Verdict::InvalidOptions { reason: error.to_string() }),
    }
}
