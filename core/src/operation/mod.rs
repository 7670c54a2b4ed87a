//! An operation of an application: the machine that performs it, when it is sent again, by when it
//! ends, what is added to its command; and the errors of operations with their meaning for the
//! server.

mod error;
mod kill_cursors;
mod labels;
mod machine;
mod options;
mod overlay;
mod retry;
mod timeout;

pub use error::{
    CommandError, InvalidCommand, OperationError, OperationFailure, ReplyFacts, StateChange,
    unreadable,
};
pub use kill_cursors::{
    CursorsToKill, KillCursors, MAX_CURSORS_TO_KILL, MAX_KILLED_CURSORS, OpenCursor,
};
pub use labels::{
    NO_WRITES_PERFORMED, RETRYABLE, RETRYABLE_WRITE, SYSTEM_OVERLOADED, TRANSIENT_TRANSACTION,
    UNKNOWN_COMMIT_RESULT, add_labels, error_labels,
};
pub use machine::{
    Action, AttemptOutcome, ConnectionFacts, Input, NotSent, Operation, Plan, SelectedFacts,
    Sending, SessionUse,
};
pub use options::{MaxTime, OperationKind, OperationOptions, RetryPolicy};
pub use overlay::{CommandMessage, MAX_MILLIS, Overlay};
pub use retry::{Fault, Judgement, Retry, Situation, base_backoff, judge};
pub use timeout::{MAX_TIME_EXPIRED, Timeout, is_max_time_expired};
