//! The threads of a case: what each is at, and what it has failed with.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use sdam_core::id::WaiterId;
use sdam_core::pool::CheckOutError;
use sdam_core::time::Instant;

use super::case::Step;

/// The reason why a case cannot be played.
#[derive(Debug, thiserror::Error)]
pub(in super::super) enum PlayError {
    /// A thread that was not started.
    #[error("the thread {0:?} was not started")]
    NoThread(String),
    /// A connection that is not there.
    #[error("no connection with the label {0:?} is checked out")]
    NoConnection(String),
    /// A thread that starts threads, which only the main thread does.
    #[error("the thread {0:?} is to be started twice")]
    Started(String),
    /// All wait, and nothing will happen any more.
    #[error("after {waited:?} all threads wait, and nothing more happens")]
    Stuck {
        /// The virtual time that has passed.
        waited: Duration,
    },
}

/// The reason why a thread has ended before its time.
#[derive(Clone, Debug)]
pub(super) enum ThreadError {
    CheckOut(Box<CheckOutError>),
    NoSuchEvent { event: String, count: usize },
}

impl ThreadError {
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::CheckOut(error) => match **error {
                CheckOutError::PoolClosed { .. } => "PoolClosedError",
                CheckOutError::PoolCleared { .. } | CheckOutError::NotReady { .. } => {
                    "PoolClearedError"
                }
                CheckOutError::Timeout { .. } => "WaitQueueTimeoutError",
                _ => "ConnectionError",
            },
            Self::NoSuchEvent { .. } => "NoSuchEvent",
        }
    }
}

impl fmt::Display for ThreadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CheckOut(error) => error.fmt(f),
            Self::NoSuchEvent { event, count } => {
                write!(f, "the event {event} was waited for, but did not come {count} times")
            }
        }
    }
}

/// The current activity of a thread.
#[derive(Clone, Debug)]
pub(super) enum Doing {
    Nothing,
    Sleeping { until: Instant },
    CheckingOut { waiter: WaiterId, label: Option<String> },
    AwaitingThread { target: String },
    AwaitingEvent { event: String, count: usize, until: Instant },
    Failed(ThreadError),
}

#[derive(Clone, Debug)]
pub(super) struct Thread {
    pub(super) operations: VecDeque<Step>,
    pub(super) doing: Doing,
}
