//! The table that says whether an operation is sent again after an error, when, and where not.
//!
//! Implements Retryable Reads, Retryable Writes and Client Backpressure; the pseudocode of the
//! last one combines the three.

use std::time::Duration;

use bson::{RawBsonRef, RawDocument};

use super::error::{CommandError, OperationError};
use super::labels::{
    NO_WRITES_PERFORMED, RETRYABLE, RETRYABLE_WRITE, SYSTEM_OVERLOADED, TRANSIENT_TRANSACTION,
    UNKNOWN_COMMIT_RESULT,
};
use super::options::{OperationKind, RetryPolicy};
use super::timeout::MAX_TIME_EXPIRED;
use crate::backoff::jitter;
use crate::codes::NO_SUCH_TRANSACTION;
use crate::config::MIN_HEARTBEAT_FREQUENCY;
use crate::failure::{Cause, Failure};
use crate::session::{CommitFault, TransactionRole};

/// "`MAX_BACKOFF` is 10000ms."
const MAX_BACKOFF: Duration = Duration::from_secs(10);

/// "`BASE_BACKOFF` is constant 100ms."
const BASE_BACKOFF: Duration = Duration::from_millis(100);

/// The time from which the pauses grow where nothing but time limits the attempts: short beside the
/// shortest time-outs, so that an error or two which pass cost no operation its time.
const BASE_PAUSE: Duration = Duration::from_millis(5);

/// The first wire version whose servers say themselves which errors are retryable: 4.4.
const LABELS_ERRORS_WIRE_VERSION: i32 = 9;

/// An error of an operation, as far as it matters to what comes next.
#[derive(Clone, Copy, Debug)]
pub enum Fault<'a> {
    /// No server was selected; true if that is for lack of time.
    Selection(bool),
    /// The pool was found cleared, paused or not ready: nothing was sent, and the server is known
    /// to be of no use.
    PoolCleared,
    /// An idle connection was found dead: nothing of the operation was sent.
    IdleConnection(&'a OperationError),
    /// A connection could not be established.
    Establishing(&'a OperationError),
    /// No connection was to be had for another reason; true if that is for lack of time.
    CheckOut(bool),
    /// The exchange failed, or the server has replied with an error.
    Exchange(&'a OperationError),
    /// The server has replied with success, and an error of the write concern.
    WriteConcern(&'a CommandError),
    /// The client itself has not sent the command; true if that is for lack of time.
    Refused(bool),
}

impl Fault<'_> {
    /// Returns whether the error reports a time-out.
    pub fn is_timeout(&self) -> bool {
        match self {
            Self::Selection(late) | Self::CheckOut(late) | Self::Refused(late) => *late,
            Self::PoolCleared => false,
            Self::WriteConcern(error) => error.is_timeout(),
            Self::IdleConnection(error) | Self::Establishing(error) | Self::Exchange(error) => {
                error.is_timeout()
            }
        }
    }

    /// Returns whether a command may have been carried out, so that this error is more informative
    /// than one that comes before anything is sent.
    fn shows_attempt(&self) -> bool {
        match self {
            Self::Exchange(OperationError::Invalid(_)) => false,
            Self::Exchange(_) | Self::WriteConcern(_) => !self.has_label(NO_WRITES_PERFORMED),
            Self::Selection(_)
            | Self::PoolCleared
            | Self::IdleConnection(_)
            | Self::Establishing(_)
            | Self::CheckOut(_)
            | Self::Refused(_) => false,
        }
    }

    /// Returns whether a server has said by it what became of a commit.
    pub(super) fn ends_doubt(&self) -> bool {
        let (code, is_transient) = (self.code(), self.has_label(TRANSIENT_TRANSACTION));
        CommitFault { code, is_transient, ..CommitFault::default() }.ends_doubt()
    }

    pub(super) fn has_label(&self, label: &str) -> bool {
        match self {
            Self::Establishing(error) | Self::Exchange(error) => error.labels().contains(&label),
            Self::WriteConcern(error) => error.labels.iter().any(|it| it == label),
            Self::Selection(_)
            | Self::PoolCleared
            | Self::IdleConnection(_)
            | Self::CheckOut(_)
            | Self::Refused(_) => false,
        }
    }

    fn is_overload(&self) -> bool {
        self.has_label(SYSTEM_OVERLOADED)
    }

    /// Returns whether nothing of the operation was sent, and the network or the server's state is
    /// the reason.
    const fn comes_before_sending(&self) -> bool {
        matches!(self, Self::PoolCleared | Self::IdleConnection(_) | Self::Establishing(_))
    }

    /// Returns whether the network has failed, under the operation or while connecting.
    fn is_network_error(&self) -> bool {
        match self {
            Self::PoolCleared => true,
            Self::IdleConnection(error) | Self::Establishing(error) | Self::Exchange(error) => {
                matches!(error, OperationError::Stream(failure) if is_of_network(failure))
            }
            Self::Selection(_) | Self::CheckOut(_) | Self::WriteConcern(_) | Self::Refused(_) => {
                false
            }
        }
    }

    /// Returns the number of the error that the server gave as that of the command.
    const fn code(&self) -> Option<i32> {
        match self {
            Self::Establishing(OperationError::Reply { error, .. })
            | Self::Exchange(OperationError::Reply { error, .. }) => error.code,
            _ => None,
        }
    }
}

/// Returns whether a failure is one of the network: not of what was configured, of what the peer
/// says, of others than the server, nor of the client's own will.
const fn is_of_network(failure: &Failure) -> bool {
    let is_of_server = !failure.stage.is_elsewhere();
    is_of_server
        && matches!(
            failure.cause,
            Cause::NotResolved
                | Cause::LookupFailed
                | Cause::Refused
                | Cause::Unreachable
                | Cause::Timeout
                | Cause::Closed
                | Cause::Io
                | Cause::Interrupted
                | Cause::ProxyRefused { .. }
        )
}

/// "Determining Retryable Write Errors", for servers before 4.4; also what `hello` and steps of
/// authentication may be refused with.
const fn is_retryable_write_code(code: i32) -> bool {
    matches!(code, 11600 | 11602 | 10107 | 13435 | 13436 | 189 | 91 | 7 | 6 | 89 | 9001 | 262)
}

/// Retryable Reads, "Retryable Error".
const fn is_retryable_read_code(code: i32) -> bool {
    is_retryable_write_code(code) || code == 134
}

/// The situation that an error meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Situation {
    /// The kind of the operation.
    pub kind: OperationKind,
    /// True if it is one that Retryable Reads or Retryable Writes support; of a write also whether
    /// it has a transaction number, or would have one.
    pub retryable: bool,
    /// The client's options.
    pub policy: RetryPolicy,
    /// The number of times that the operation was retried.
    pub retries: u32,
    /// True if any error before said that a server is overloaded.
    pub overloaded: bool,
    /// True if the operation has a time-out.
    pub has_timeout: bool,
    /// True if the server is one of a sharded cluster's, to which others are equal.
    pub sharded: bool,
    /// The maxWireVersion of the server.
    pub max_wire_version: i32,
    /// Its part in a transaction, if it has one.
    pub transaction: Option<TransactionRole>,
}

impl Situation {
    /// Begins with an operation that was not sent yet.
    pub const fn new(kind: OperationKind, retryable: bool, policy: RetryPolicy) -> Self {
        Self {
            kind,
            retryable,
            policy,
            retries: 0,
            overloaded: false,
            has_timeout: false,
            sharded: false,
            max_wire_version: 0,
            transaction: None,
        }
    }
}

/// The consequences of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Judgement {
    /// The label that the client gives the error.
    pub adds_label: Option<&'static str>,
    /// The label that the client gives the error for what it means to the transaction.
    pub adds_transaction_label: Option<&'static str>,
    /// True if the session of a transaction is no longer pinned then.
    pub unpins: bool,
    /// True if the caller receives this error rather than an earlier one.
    pub shows_attempt: bool,
    /// True if it says that the server is overloaded.
    pub is_overload: bool,
    /// The time when the operation is sent again.
    pub retry: Retry,
    /// True if the server is avoided then.
    pub avoids_server: bool,
}

/// The time when an operation is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Never.
    No,
    /// At once.
    Now,
    /// After this time.
    After(Duration),
}

/// Judges an error: whether the operation is sent again, when, and where not. `random` is 64 random
/// bits, for the jitter, and `base` the [`base_backoff`] that the server gives.
///
/// ```
/// use sdam_core::config::Options;
/// use sdam_core::operation::{Fault, OperationKind, Retry, RetryPolicy, Situation, judge};
///
/// let policy = RetryPolicy::of(&Options::parse("mongodb://a")?);
/// let once = Situation::new(OperationKind::Read, true, policy);
/// assert_eq!(judge(&once, &Fault::PoolCleared, None, 7).retry, Retry::Now);
/// let mut twice = once;
/// twice.retries = 1;
/// assert_eq!(judge(&twice, &Fault::PoolCleared, None, 7).retry, Retry::No);
/// # Ok::<(), sdam_core::config::OptionsError>(())
/// ```
pub fn judge(
    situation: &Situation,
    fault: &Fault<'_>,
    base: Option<Duration>,
    random: u64,
) -> Judgement {
    let adds_retryable_write = adds_retryable_write(situation, fault);
    let adds_transaction_label = situation
        .transaction
        .and_then(|role| label_in_transaction(role, fault, adds_retryable_write));
    let is_overload = fault.is_overload();
    let retryable = match situation.kind {
        OperationKind::Read => is_retryable_read(situation, fault),
        OperationKind::Write => {
            situation.retryable
                && situation.policy.writes
                && (adds_retryable_write || fault.has_label(RETRYABLE_WRITE))
        }
        OperationKind::Command => false,
    };
    let overload_retryable = is_overload && fault.has_label(RETRYABLE) && allows(situation);
    let attempt = situation.retries.saturating_add(1);
    let most = match (situation.overloaded || is_overload, situation.has_timeout) {
        (true, _) => Some(situation.policy.max_adaptive_retries),
        (false, true) => None,
        (false, false) => Some(1),
    };
    let retry = match (retryable || overload_retryable) && most.is_none_or(|most| attempt <= most) {
        false => Retry::No,
        true if is_overload => Retry::After(backoff(attempt, base.unwrap_or(BASE_BACKOFF), random)),
        // Where nothing counts the attempts: not every server that fails them is Unknown, for which
        // the next one would wait. A load balancer never is, nor is a secondary to which a client
        // connects directly and sends writes.
        true if most.is_none() && situation.retries > 0 => {
            let pause = backoff(attempt, BASE_PAUSE, random);
            Retry::After(pause.min(MIN_HEARTBEAT_FREQUENCY))
        }
        true => Retry::Now,
    };
    Judgement {
        adds_label: adds_retryable_write.then_some(RETRYABLE_WRITE),
        adds_transaction_label,
        unpins: situation
            .transaction
            .is_some_and(|role| unpins(role, fault, adds_transaction_label)),
        shows_attempt: fault.shows_attempt(),
        is_overload,
        retry,
        // "Sharded clusters deprioritize on all retryable errors. Other topologies only
        // deprioritize on overload errors", if that is wanted.
        avoids_server: situation.sharded || (is_overload && situation.policy.overload_retargeting),
    }
}

/// Transactions, "Error Labels": what the client says of an error itself; a server may have said it
/// already.
fn label_in_transaction(
    role: TransactionRole,
    fault: &Fault<'_>,
    is_retryable_write: bool,
) -> Option<&'static str> {
    let is_unreachable = fault.is_network_error() || matches!(fault, Fault::Selection(_));
    if role != TransactionRole::Commit {
        // "any network error or server selection error encountered running any command besides
        // commitTransaction in a transaction".
        return is_unreachable.then_some(TRANSIENT_TRANSACTION);
    }
    let is_unknown = match fault {
        // "Write concern errors [...] except UnsatisfiableWriteConcern [...] and
        // UnknownReplWriteConcern".
        Fault::WriteConcern(error) => !matches!(error.code, Some(100 | 79)),
        _ => {
            is_unreachable
                || is_retryable_write
                || fault.has_label(RETRYABLE_WRITE)
                || fault.code() == Some(MAX_TIME_EXPIRED)
                // "write concern failed / timeout": without a majority, the server leaves its label
                // away, as another member may have committed the transaction.
                || (fault.code() == Some(NO_SUCH_TRANSACTION)
                    && !fault.has_label(TRANSIENT_TRANSACTION))
        }
    };
    is_unknown.then_some(UNKNOWN_COMMIT_RESULT)
}

/// Transactions, "When to unpin": an abort does, whatever comes of it, and so does what says that
/// the transaction is over, or that its mongos may be. An abort that nothing was sent of, for lack
/// of time, is still to be made, at the mongos that knows the transaction.
fn unpins(role: TransactionRole, fault: &Fault<'_>, added: Option<&str>) -> bool {
    let has = |label: &str| added == Some(label) || fault.has_label(label);
    let is_left = matches!(fault, Fault::CheckOut(true) | Fault::Refused(true));
    (role == TransactionRole::Abort && !is_left)
        || has(TRANSIENT_TRANSACTION)
        || (role == TransactionRole::Commit && has(UNKNOWN_COMMIT_RESULT))
}

/// "The command is a write and retryWrites is enabled or the command is a read and retryReads is
/// enabled. To retry `runCommand`, both [...] MUST be enabled."
const fn allows(situation: &Situation) -> bool {
    let RetryPolicy { reads, writes, .. } = situation.policy;
    match situation.kind {
        OperationKind::Read => reads,
        OperationKind::Write => writes,
        OperationKind::Command => reads && writes,
    }
}

fn is_retryable_read(situation: &Situation, fault: &Fault<'_>) -> bool {
    situation.retryable
        && situation.policy.reads
        && (fault.is_network_error() || fault.code().is_some_and(is_retryable_read_code))
}

/// Retryable Writes, "RetryableWriteError Labels".
fn adds_retryable_write(situation: &Situation, fault: &Fault<'_>) -> bool {
    if situation.kind != OperationKind::Write || !situation.retryable || !situation.policy.writes {
        return false;
    }
    if fault.is_network_error() {
        return true;
    }
    let is_old = situation.max_wire_version < LABELS_ERRORS_WIRE_VERSION;
    match fault {
        Fault::WriteConcern(error) => {
            is_old && !situation.sharded && error.code.is_some_and(is_retryable_write_code)
        }
        _ if is_old || fault.comes_before_sending() => {
            fault.code().is_some_and(is_retryable_write_code)
        }
        _ => false,
    }
}

/// Reads the time that a client is to start from that sends a command again, from an error of
/// overload: "if `baseBackoffMS` is present on the error and has a positive value" (Client
/// Backpressure).
///
/// ```
/// use std::time::Duration;
/// use sdam_core::bson::rawdoc;
/// use sdam_core::operation::base_backoff;
///
/// let reply = rawdoc! { "ok": 0, "code": 462, "baseBackoffMS": 50 };
/// assert_eq!(base_backoff(&reply), Some(Duration::from_millis(50)));
/// assert_eq!(base_backoff(&rawdoc! { "ok": 0, "baseBackoffMS": 0 }), None);
/// ```
pub fn base_backoff(reply: &RawDocument) -> Option<Duration> {
    let millis = match reply.get("baseBackoffMS").ok()?? {
        RawBsonRef::Int32(millis) => u64::try_from(millis).ok()?,
        RawBsonRef::Int64(millis) => u64::try_from(millis).ok()?,
        RawBsonRef::Double(millis) => millis as u64,
        _ => return None,
    };
    (millis > 0).then(|| Duration::from_millis(millis))
}

/// "`backoff = jitter * min(MAX_BACKOFF, BASE_BACKOFF * 2^attempt)`", with the attempts counted
/// from 1.
fn backoff(attempt: u32, base: Duration, random: u64) -> Duration {
    let factor = 2_u32.saturating_pow(attempt);
    base.saturating_mul(factor).min(MAX_BACKOFF).mul_f64(jitter(random))
}

#[cfg(test)]
mod tests;
