//! The loop of the convenient API: whether a transaction is run again, or its commit, when, and
//! when that is over.
//!
//! Implements "Sequence of Actions" of the Convenient API for Transactions.

use std::time::Duration;

use super::transaction::TransactionState;
use crate::backoff::{jitter, longest_pause};
use crate::time::Instant;

/// "If `timeoutMS` is unset for a `withTransaction` call, drivers MUST enforce a 120-second
/// timeout".
const LIMIT: Duration = Duration::from_secs(120);

/// An error of the callback, or of a commit, as far as it matters to what comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TransactionFault {
    /// True if it has the label `TransientTransactionError`.
    pub is_transient: bool,
    /// True if it has the label `UnknownTransactionCommitResult`.
    pub is_unknown: bool,
    /// True if the server had no more time: `MaxTimeMSExpired`.
    pub is_max_time: bool,
    /// True if the callback has said that all is well although a command has failed: a transaction
    /// that the server has aborted, which would fail like that for ever.
    pub is_hidden: bool,
}

/// The next thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionStep {
    /// Start the transaction after this time, and call the callback.
    Run(Duration),
    /// Commit the transaction.
    Commit,
    /// Return what there is: the value of the callback, or the error.
    Return,
    /// Return an error that says that time is over, with the last error in it.
    TimeOut,
}

/// The loop of one call of the convenient API.
#[derive(Clone, Debug)]
pub struct TransactionLoop {
    begun: Instant,
    limit: Option<Duration>,
    attempts: u32,
}

impl TransactionLoop {
    /// Begins, with `timeoutMS` if that is set; zero means no limit.
    pub fn new(now: Instant, timeout: Option<Duration>) -> Self {
        let limit = Some(timeout.unwrap_or(LIMIT)).filter(|limit| !limit.is_zero());
        Self { begun: now, limit, attempts: 0 }
    }

    /// Returns the time since it has begun.
    pub fn elapsed(&self, now: Instant) -> Duration {
        now - self.begun
    }

    /// Returns how many times the transaction was started.
    pub const fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Takes note that the transaction was started.
    pub const fn started(&mut self) {
        self.attempts = self.attempts.saturating_add(1);
    }

    /// Returns what to do after the callback has returned a value: a transaction that it has ended
    /// itself is left as it is.
    pub const fn succeeded(&self, state: TransactionState) -> TransactionStep {
        match state {
            TransactionState::Starting | TransactionState::InProgress => TransactionStep::Commit,
            TransactionState::None | TransactionState::Committed | TransactionState::Aborted => {
                TransactionStep::Return
            }
        }
    }

    /// Returns what to do after the callback has failed, and the transaction was aborted. `random`
    /// is 64 random bits, for the jitter.
    pub fn failed(&self, now: Instant, fault: TransactionFault, random: u64) -> TransactionStep {
        match fault.is_transient && !fault.is_hidden {
            true => self.again(now, random),
            false => TransactionStep::Return,
        }
    }

    /// Returns what to do after the commit has failed.
    pub fn commit_failed(
        &self,
        now: Instant,
        fault: TransactionFault,
        random: u64,
    ) -> TransactionStep {
        if fault.is_unknown && !fault.is_max_time {
            return match self.is_over(now, Duration::ZERO) {
                true => TransactionStep::TimeOut,
                false => TransactionStep::Commit,
            };
        }
        match fault.is_transient && !fault.is_hidden {
            true => self.again(now, random),
            false => TransactionStep::Return,
        }
    }

    fn again(&self, now: Instant, random: u64) -> TransactionStep {
        let backoff = self.backoff(random);
        match self.is_over(now, backoff) {
            true => TransactionStep::TimeOut,
            false => TransactionStep::Run(backoff),
        }
    }

    fn is_over(&self, now: Instant, wait: Duration) -> bool {
        self.limit.is_some_and(|limit| self.elapsed(now).saturating_add(wait) >= limit)
    }

    /// "`jitter * min(BACKOFF_INITIAL * 1.5 ** transactionAttempt, BACKOFF_MAX)`".
    fn backoff(&self, random: u64) -> Duration {
        longest_pause(self.attempts).mul_f64(jitter(random))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{TransactionFault, TransactionLoop, TransactionStep};
    use crate::session::TransactionState;
    use crate::time::Instant;

    const HALF: u64 = 1 << 63;
    const FULL: u64 = u64::MAX;

    const TRANSIENT: TransactionFault = TransactionFault {
        is_transient: true,
        is_unknown: false,
        is_max_time: false,
        is_hidden: false,
    };
    const UNKNOWN: TransactionFault =
        TransactionFault { is_transient: false, is_unknown: true, ..TRANSIENT };

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    fn begun(attempts: usize) -> TransactionLoop {
        let mut run = TransactionLoop::new(at(0), None);
        (0..attempts).for_each(|_| run.started());
        run
    }

    /// "Sequence of Actions", steps 7 to 10.
    #[test]
    fn the_table_of_what_comes_next() {
        let run = begun(1);
        let other = TransactionFault::default();
        assert_eq!(run.failed(at(1), other, 0), TransactionStep::Return);
        assert_eq!(run.failed(at(1), UNKNOWN, 0), TransactionStep::Return, "7.3");
        assert_eq!(run.failed(at(1), TRANSIENT, 0), TransactionStep::Run(Duration::ZERO), "7.2");
        let hidden = TransactionFault { is_hidden: true, ..TRANSIENT };
        assert_eq!(run.failed(at(1), hidden, 0), TransactionStep::Return, "it fails each time");
        for state in [TransactionState::Starting, TransactionState::InProgress] {
            assert_eq!(run.succeeded(state), TransactionStep::Commit, "9");
        }
        let ended =
            [TransactionState::None, TransactionState::Committed, TransactionState::Aborted];
        for state in ended {
            assert_eq!(run.succeeded(state), TransactionStep::Return, "8");
        }
        assert_eq!(run.commit_failed(at(1), other, 0), TransactionStep::Return, "10.3");
        assert_eq!(run.commit_failed(at(1), UNKNOWN, 0), TransactionStep::Commit, "10.1.2");
        let late = TransactionFault { is_max_time: true, ..UNKNOWN };
        assert_eq!(run.commit_failed(at(1), late, 0), TransactionStep::Return, "10.1");
        let again = TransactionStep::Run(Duration::ZERO);
        assert_eq!(run.commit_failed(at(1), TRANSIENT, 0), again, "10.2");
        let hidden = TransactionFault { is_hidden: true, ..TRANSIENT };
        assert_eq!(run.commit_failed(at(1), hidden, 0), TransactionStep::Return);
    }

    /// CTX-P3, "Retry Timeout is Enforced".
    #[test]
    fn ctx_p3_nothing_is_tried_again_when_time_is_over() {
        let run = begun(1);
        assert_eq!(run.failed(at(120_000), TRANSIENT, 0), TransactionStep::TimeOut);
        assert_eq!(run.commit_failed(at(120_000), UNKNOWN, 0), TransactionStep::TimeOut);
        assert_eq!(run.commit_failed(at(120_000), TRANSIENT, 0), TransactionStep::TimeOut);
        assert_eq!(run.failed(at(119_999), TRANSIENT, FULL), TransactionStep::TimeOut, "backoff");
        let mut own = TransactionLoop::new(at(0), Some(Duration::from_millis(50)));
        own.started();
        assert_eq!(own.commit_failed(at(50), UNKNOWN, 0), TransactionStep::TimeOut);
        assert_eq!(own.commit_failed(at(49), UNKNOWN, 0), TransactionStep::Commit);
        let endless = TransactionLoop::new(at(0), Some(Duration::ZERO));
        assert_eq!(endless.commit_failed(at(1 << 40), UNKNOWN, 0), TransactionStep::Commit);
    }

    /// CTX-P4, "Retry Backoff is Enforced": with a jitter of 1, thirteen retries wait for 2.2 s.
    #[test]
    fn ctx_p4_the_pauses_grow_up_to_their_maximum() {
        let wait = |attempts, random| match begun(attempts).failed(at(0), TRANSIENT, random) {
            TransactionStep::Run(wait) => wait,
            other => panic!("{other:?}"),
        };
        assert_eq!(wait(1, HALF), Duration::from_micros(3750));
        let all: Duration = (1..=13).map(|attempts| wait(attempts, FULL)).sum();
        assert!((2.2..2.4).contains(&all.as_secs_f64()), "{all:?}");
        assert!(wait(1000, FULL) <= Duration::from_millis(500));
    }
}
