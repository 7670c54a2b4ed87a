//! The errors of a server under test.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use super::CommandError;

/// The reason why the harness could not do what a test asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HarnessError {
    /// The operating system refused something.
    #[error("cannot {doing}: {source}")]
    Io {
        /// The activity that failed.
        doing: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A file that should be a mongod does not act like one.
    #[error("{} is no usable mongod: {reason}", path.display())]
    Binary {
        /// The path of the file.
        path: PathBuf,
        /// The reason why `mongod --version` failed.
        reason: String,
    },
    /// The server ended before it answered.
    #[error("mongod ended early with {status}; the end of its log:\n{log}")]
    EndedEarly {
        /// The exit status of the process.
        status: ExitStatus,
        /// The last lines of its log.
        log: String,
    },
    /// A program that logs what it sees of the servers has failed.
    #[error("the program ended with {status}")]
    Program {
        /// The exit status of the process.
        status: ExitStatus,
    },
    /// A command failed that should not have.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// An awaited condition did not come about in time.
    #[error("{awaited} did not come within {waited:?}; at last: {last}")]
    TimedOut {
        /// The awaited condition.
        awaited: String,
        /// For how long.
        waited: Duration,
        /// The state at the end.
        last: String,
    },
}

impl HarnessError {
    /// Says what was being done when the operating system refused.
    pub(super) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }
}

/// The interval at which the state of a server is looked at while something is awaited.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Tries until it succeeds or the time is up.
///
/// # Errors
///
/// [`HarnessError::TimedOut`] with the last reason that `attempt` gave.
pub(super) fn poll<T>(
    awaited: &str,
    limit: Duration,
    mut attempt: impl FnMut() -> Result<T, String>,
) -> Result<T, HarnessError> {
    let start = std::time::Instant::now();
    loop {
        match attempt() {
            Ok(value) => return Ok(value),
            Err(last) if start.elapsed() >= limit => {
                return Err(HarnessError::TimedOut {
                    awaited: awaited.to_owned(),
                    waited: limit,
                    last,
                });
            }
            Err(_) => std::thread::sleep(POLL_INTERVAL),
        }
    }
}
