//! The reasons for which an abort may fail.

use sdam::error::{Error, GridFsErrorKind};
use sdam_core::time::Instant;

use super::file::File;
use super::{Finding, ensure};

/// The reason that an error gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sim::applications) enum Reason {
    /// The chunks are another upload's, or those of a file that is stored.
    ChunksInUse,
    /// The upload is over already.
    Ended,
    /// There was no connection for a command.
    NoConnection,
    Timeout,
    Other,
}

impl Reason {
    fn of(error: &Error) -> Self {
        match error.as_grid_fs().map(|it| &it.kind) {
            Some(GridFsErrorKind::ChunksInUse) => Self::ChunksInUse,
            Some(GridFsErrorKind::UploadEnded) => Self::Ended,
            Some(_) => Self::Other,
            None if error.as_check_out().is_some() => Self::NoConnection,
            None if error.is_timeout() => Self::Timeout,
            None => Self::Other,
        }
    }
}

/// An abort that has failed.
#[derive(Clone, Debug)]
pub(in crate::sim::applications) struct FailedAbort {
    pub(super) number: usize,
    pub(super) client: usize,
    pub(super) from: Instant,
    pub(super) to: Instant,
    pub(super) reason: Reason,
    pub(super) error: String,
}

impl FailedAbort {
    /// Takes note of the error of an abort, by a client, from one time to another.
    pub(in crate::sim::applications) fn new(
        (number, client): (usize, usize),
        (from, to): (Instant, Instant),
        error: &Error,
    ) -> Self {
        let (reason, error) = (Reason::of(error), format!("{error:?}"));
        Self { number, client, from, to, reason, error }
    }

    /// Judges whether the upload may have been refused, if a document under its `_id` was sent or
    /// not.
    ///
    /// A stream that was left may have stored its first chunk after another stream has made one.
    pub(super) fn judge_refusal(&self, file: &File, was_sent: bool) -> Finding {
        let is_right = match self.reason {
            Reason::ChunksInUse => {
                was_sent || file.is_contested || file.has_met_another || file.lives > 1
            }
            Reason::Ended => file.was_sent,
            Reason::NoConnection | Reason::Timeout | Reason::Other => true,
        };
        ensure(is_right, "an abort is refused for a reason", || self.said(file))
    }

    /// Judges any other error, if its client may have had no server or no connection meanwhile or
    /// not: a command of the abort has failed, or none was sent in time.
    pub(super) fn judge(&self, file: &File, was_troubled: bool) -> Finding {
        let is_right = match self.reason {
            Reason::ChunksInUse | Reason::Ended | Reason::NoConnection => true,
            Reason::Timeout if file.is_limited => true,
            Reason::Timeout | Reason::Other => {
                was_troubled || file.not_cleaned.is_some_and(|failed| failed >= self.from)
            }
        };
        ensure(is_right, "an abort fails for a reason", || self.said(file))
    }

    fn said(&self, file: &File) -> String {
        let Self { client, from, to, error, .. } = self;
        format!("client {client}, {from:?} to {to:?}: {error}, of {file:?}")
    }
}
