//! The options of an operation, besides its command.

use std::time::Duration;

use crate::config::{Options, ReadConcern};

/// The kind of an operation, which says by which rules it is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OperationKind {
    /// A read, as of find, aggregate without `$out`, or listCollections.
    Read,
    /// A write, as of insert, or createIndexes.
    Write,
    /// A command whose nature is not known: that of `runCommand`.
    Command,
}

/// The options of an operation, besides its command.
///
/// ```
/// use sdam_core::config::ReadConcern;
/// use sdam_core::operation::OperationOptions;
///
/// let find = OperationOptions::read().with_read_concern(Some(ReadConcern::default()));
/// let insert_one = OperationOptions::write().with_retryable(true);
/// let update_many = OperationOptions::write();
/// assert!(find.retryable && insert_one.retryable && !update_many.retryable);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OperationOptions {
    /// The kind.
    pub kind: OperationKind,
    /// True if the operation is one that Retryable Reads or Retryable Writes support: then it is
    /// sent again after their errors. After an error of overload every operation is.
    pub retryable: bool,
    /// False if the command asks for no reply, with `writeConcern: { w: 0 }`.
    pub acknowledged: bool,
    /// The read concern; `None` if the command takes none, or says it itself.
    pub read_concern: Option<ReadConcern>,
    /// The `maxTimeMS` that the command carries if the operation has a time-out.
    pub max_time: MaxTime,
}

impl OperationOptions {
    /// Describes a read that takes a read concern, and is retryable.
    pub const fn read() -> Self {
        let (kind, read_concern) = (OperationKind::Read, Some(ReadConcern { level: None }));
        let max_time = MaxTime::Remaining;
        Self { kind, retryable: true, acknowledged: true, read_concern, max_time }
    }

    /// Describes a write that is acknowledged, and not retryable.
    pub const fn write() -> Self {
        Self::of(OperationKind::Write)
    }

    /// Describes a command whose nature is not known; it is sent as it is.
    pub const fn command() -> Self {
        Self::of(OperationKind::Command)
    }

    /// The rules by which a command is sent that goes on with a cursor, or closes it: getMore and
    /// killCursors. It takes no read concern, and says no `maxTimeMS`.
    pub const fn continuing() -> Self {
        let (kind, max_time) = (OperationKind::Read, MaxTime::Never);
        Self { kind, retryable: false, acknowledged: true, read_concern: None, max_time }
    }

    const fn of(kind: OperationKind) -> Self {
        let (read_concern, max_time) = (None, MaxTime::Remaining);
        Self { kind, retryable: false, acknowledged: true, read_concern, max_time }
    }

    /// Replaces [`retryable`](Self::retryable).
    #[must_use]
    pub const fn with_retryable(mut self, retryable: bool) -> Self {
        self.retryable = retryable;
        self
    }

    /// Replaces [`acknowledged`](Self::acknowledged).
    #[must_use]
    pub const fn with_acknowledged(mut self, acknowledged: bool) -> Self {
        self.acknowledged = acknowledged;
        self
    }

    /// Replaces [`read_concern`](Self::read_concern).
    #[must_use]
    pub fn with_read_concern(mut self, read_concern: Option<ReadConcern>) -> Self {
        self.read_concern = read_concern;
        self
    }

    /// Replaces [`max_time`](Self::max_time).
    #[must_use]
    pub const fn with_max_time(mut self, max_time: MaxTime) -> Self {
        self.max_time = max_time;
        self
    }
}

/// The `maxTimeMS` that a command carries (Client Side Operations Timeout, "Command Execution" and
/// "Cursors").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum MaxTime {
    /// The time that is left to the operation, less the least round trip time; nothing without a
    /// time-out.
    #[default]
    Remaining,
    /// None, as in getMore.
    Never,
    /// This time, `maxAwaitTimeMS` of a getMore that awaits data, or what is left if that is less.
    AtMost(Duration),
}

/// The options of a client that say when operations are sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryPolicy {
    /// True if reads are: `retryReads`.
    pub reads: bool,
    /// True if writes are: `retryWrites`.
    pub writes: bool,
    /// The number of times that any operation is once a server has said that it is overloaded:
    /// `maxAdaptiveRetries`.
    pub max_adaptive_retries: u32,
    /// True if the server that is overloaded is then avoided: `enableOverloadRetargeting`.
    pub overload_retargeting: bool,
}

impl RetryPolicy {
    /// Takes over a client's options.
    pub fn of(options: &Options) -> Self {
        Self {
            reads: options.retry_reads(),
            writes: options.retry_writes(),
            max_adaptive_retries: options.max_adaptive_retries(),
            overload_retargeting: options.overload_retargeting(),
        }
    }
}
