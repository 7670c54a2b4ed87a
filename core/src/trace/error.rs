//! The reason why a text is no trace.

use crate::config::OptionsError;

/// The reason why a text is no trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The text exceeds [`MAX_TRACE_LEN`](super::MAX_TRACE_LEN).
    #[error("the trace has {0} bytes; at most {max} are read", max = super::MAX_TRACE_LEN)]
    TooLong(usize),
    /// A line is not what it should be.
    #[error("line {line}: {error}")]
    Line {
        /// The line's number, from 1.
        line: usize,
        /// The fault of the line.
        error: LineError,
    },
}

/// The fault of a line of a trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LineError {
    /// The first line is another.
    #[error(
        "this is not a trace; the first line must be `{magic} {version}`, with `sealed` behind it \
         if all others have a checksum",
        magic = super::MAGIC, version = super::FORMAT_VERSION
    )]
    NoTrace,
    /// Some program has changed how the text is stored.
    #[error(
        "the file was converted: a trace has no byte order mark, and its lines end in a line feed \
         without a carriage return"
    )]
    Converted,
    /// The line is not UTF-8.
    #[error("the line is not UTF-8")]
    NoText,
    /// The format is of another version.
    #[error(
        "format {0} is not known; this is sdam {sdam}, which reads formats {oldest} to {newest}",
        sdam = env!("CARGO_PKG_VERSION"),
        oldest = super::OLDEST_FORMAT_VERSION, newest = super::FORMAT_VERSION
    )]
    Version(u32),
    /// Another line of the header is due.
    #[error("`{0} …` is due here")]
    Due(&'static str),
    /// The machine is another.
    #[error("machine {0:?} is not known; the only one is `topology`")]
    Machine(String),
    /// The options are not allowed.
    #[error("the options cannot be used: {0}")]
    Options(OptionsError),
    /// The checksum is missing or wrong.
    #[error(
        "the line was changed or cut off, or lines before it are missing: it ends in {stated:?}, \
         not in the checksum {computed:?}"
    )]
    Seal {
        /// The checksum of the line.
        stated: String,
        /// The checksum that it should have, behind ` ~`.
        computed: String,
    },
    /// A value is malformed.
    #[error("{what} is malformed: {reason}")]
    Malformed {
        /// The value.
        what: &'static str,
        /// The error.
        reason: String,
    },
    /// The input is none.
    #[error("there is no input {0:?}")]
    Input(String),
    /// The line belongs to no call of the machine.
    #[error("a line must begin with `+`, or with `  > `, `  ? ` below one that does, or with `#`")]
    Stray,
    /// Time goes back.
    #[error("time goes back to {0}")]
    TimeGoesBack(String),
}

impl From<OptionsError> for LineError {
    fn from(error: OptionsError) -> Self {
        Self::Options(error)
    }
}

impl LineError {
    pub(super) fn malformed(what: &'static str, reason: &dyn ToString) -> Self {
        Self::Malformed { what, reason: reason.to_string() }
    }
}
