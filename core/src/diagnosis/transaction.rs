//! The likely causes for which transactions fail: of one command, by its error and by where the
//! transaction stands; and of many, by what a server counts.

use std::time::Duration;

use serde::Serialize;

use super::advice::Advice;
use super::verdict::{Verdict, named_or_not};
use crate::codes::{NO_SUCH_TRANSACTION, TRANSACTION_TOO_OLD, WRITE_CONFLICT};
use crate::config::ServerAddress;
use crate::description::{millis, optional_millis};
use crate::session::{TransactionRemedy, TransactionStanding};
use crate::text::seconds;

/// `transactionLifetimeLimitSeconds` of a server that is not configured otherwise.
pub const TRANSACTION_LIFETIME: Duration = Duration::from_secs(60);

/// The likely cause for which a transaction fails, or many do.
///
/// It is one of the [verdicts](Verdict), and serialised as those are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "verdict", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum TransactionVerdict {
    /// Another operation has written what the transaction writes (112, WriteConflict).
    #[error("another operation has written to a document that the transaction writes to")]
    WriteConflict,
    /// The transaction was open for longer than servers allow (290, or 251 after so long).
    #[error(
        "the transaction was {}, and servers abort what is open for longer than \
         transactionLifetimeLimitSeconds ({} by default)",
        open_for(*open),
        seconds(TRANSACTION_LIFETIME)
    )]
    TransactionExpired {
        /// The time for which it was open, if that is known.
        #[serde(rename = "openMS", serialize_with = "optional_millis")]
        open: Option<Duration>,
    },
    /// The server does not know the transaction, as another one was primary when that began (251,
    /// NoSuchTransaction).
    #[error(
        "{} does not know the transaction{}: what is not committed ends with a failover",
        named_or_not(server.as_ref()),
        began_at.as_ref().map(|began| format!(", which began at {began}")).unwrap_or_default()
    )]
    TransactionLost {
        /// The server.
        server: Option<ServerAddress>,
        /// The server that it began at, if that is another one.
        began_at: Option<ServerAddress>,
    },
    /// The server has aborted the transaction, for a reason of its own (251, NoSuchTransaction).
    #[error(
        "{} has aborted the transaction: for its lifetime, for want of memory, or because its \
         session was killed",
        named_or_not(server.as_ref())
    )]
    TransactionAborted {
        /// The server.
        server: Option<ServerAddress>,
    },
    /// A command of the transaction had failed before, by which servers abort it (251,
    /// NoSuchTransaction).
    #[error("{command} had failed in the transaction before, by which servers abort it")]
    TransactionFailedBefore {
        /// The command, and its database.
        command: String,
    },
    /// The session was used for a newer transaction or write (225, TransactionTooOld).
    #[error("the session has begun a newer transaction, or a newer write, in the meantime")]
    TransactionSuperseded,
    /// The data of the moment that the transaction reads is not there (246, SnapshotUnavailable,
    /// and 239, SnapshotTooOld).
    #[error("the moment that the transaction reads is not available: a collection was changed")]
    SnapshotUnavailable,

    /// Operations at a server conflict with each other.
    #[error(
        "at {server}, {aborted} of {ended} transactions were aborted {}, and {conflicts} writes \
         outside of transactions tried again: they write to the same documents",
        within(*time, *is_now)
    )]
    WriteConflicts {
        /// The server.
        server: ServerAddress,
        /// The transactions that were aborted.
        aborted: u64,
        /// The transactions that have ended.
        ended: u64,
        /// The times that a write outside of transactions was tried again.
        conflicts: u64,
        /// The time in which that was counted.
        #[serde(rename = "timeMS", serialize_with = "millis")]
        time: Duration,
        /// True if that is the time just now, false if it is that since the server was started.
        is_now: bool,
    },
    /// Transactions are open at a server in which nothing happens.
    #[error(
        "{server} has {} open in which nothing happens, one for {}{}: what they have written is \
         locked until they end{}",
        transactions(*idle),
        seconds(*unused),
        owner.as_ref().map(|owner| format!(" (of {owner})")).unwrap_or_default(),
        limit.map(|limit| format!(", at most {} after their beginning", seconds(limit)))
            .unwrap_or_default()
    )]
    TransactionsIdle {
        /// The server.
        server: ServerAddress,
        /// Their number.
        idle: u64,
        /// The time since the last command of that which was left for longest.
        #[serde(rename = "unusedMS", serialize_with = "millis")]
        unused: Duration,
        /// The time for which that is open.
        #[serde(rename = "openMS", serialize_with = "millis")]
        open: Duration,
        /// The client of that: its address, and what it says of itself.
        owner: Option<String>,
        /// `transactionLifetimeLimitSeconds`, if the user may know it.
        #[serde(rename = "limitMS", serialize_with = "optional_millis")]
        limit: Option<Duration>,
    },
    /// A server has aborted transactions for their lifetime.
    #[error(
        "{server} has aborted {} in the last hour for being open for longer than \
         transactionLifetimeLimitSeconds{}",
        transactions(*expired),
        limit.map(|limit| format!(" ({})", seconds(limit))).unwrap_or_default()
    )]
    TransactionsExpire {
        /// The server.
        server: ServerAddress,
        /// Their number, as far as the log of the server goes back.
        expired: u64,
        /// `transactionLifetimeLimitSeconds`, if the user may know it.
        #[serde(rename = "limitMS", serialize_with = "optional_millis")]
        limit: Option<Duration>,
    },
    /// Commits fail at a server that was elected not long ago, as it does not know what began
    /// before.
    #[error(
        "{failed} of {commits} commits have failed at {server}, which was elected primary {} ago: \
         it knows no transaction that began before that",
        seconds(*since)
    )]
    TransactionsLost {
        /// The server.
        server: ServerAddress,
        /// The commits that have failed since the server was started.
        failed: u64,
        /// All commits since then.
        commits: u64,
        /// The time since its election.
        #[serde(rename = "sinceMS", serialize_with = "millis")]
        since: Duration,
    },
}

/// The error of a command in a transaction, as far as it shows a cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TransactionErrorFacts<'a> {
    /// The number of the error.
    pub code: Option<i32>,
    /// The words of the server.
    pub message: &'a str,
    /// The server that has replied.
    pub server: Option<&'a ServerAddress>,
}

const SNAPSHOT_TOO_OLD: i32 = 239;
const SNAPSHOT_UNAVAILABLE: i32 = 246;
const TRANSACTION_EXCEEDED_LIFETIME: i32 = 290;

/// The words of a server that has never heard of a transaction, or no more since it became primary.
const UNKNOWN: &str = "does not match any in-progress transactions";

impl TransactionVerdict {
    /// Finds the likely cause for which a command of a transaction has failed, where the number of
    /// the error shows one.
    pub fn of_error(
        standing: &TransactionStanding,
        error: TransactionErrorFacts<'_>,
    ) -> Option<Self> {
        // It may have been committed, whatever the server says.
        if standing.remedy == TransactionRemedy::CommitAgain {
            return None;
        }
        match error.code? {
            TRANSACTION_EXCEEDED_LIFETIME => Some(Self::TransactionExpired { open: standing.open }),
            NO_SUCH_TRANSACTION => Some(Self::of_unknown(standing, error)),
            code => Self::of_code(code),
        }
    }

    /// Finds the likely cause by the number of an error alone.
    pub const fn of_code(code: i32) -> Option<Self> {
        Some(match code {
            WRITE_CONFLICT => Self::WriteConflict,
            TRANSACTION_TOO_OLD => Self::TransactionSuperseded,
            SNAPSHOT_TOO_OLD | SNAPSHOT_UNAVAILABLE => Self::SnapshotUnavailable,
            NO_SUCH_TRANSACTION => Self::TransactionAborted { server: None },
            TRANSACTION_EXCEEDED_LIFETIME => Self::TransactionExpired { open: None },
            _ => return None,
        })
    }

    /// Finds why a server does not know a transaction, or not any more.
    fn of_unknown(standing: &TransactionStanding, error: TransactionErrorFacts<'_>) -> Self {
        if let Some(command) = standing.failed_before.clone() {
            return Self::TransactionFailedBefore { command };
        }
        let server = error.server.cloned();
        // Another mongos asks the shards.
        let began_at = standing.began_at.clone().filter(|_| !standing.is_recoverable);
        let began_at = began_at.filter(|began| server.as_ref() != Some(began));
        if began_at.is_some() || error.message.contains(UNKNOWN) {
            return Self::TransactionLost { server, began_at };
        }
        match standing.open {
            Some(open) if open >= TRANSACTION_LIFETIME => {
                Self::TransactionExpired { open: Some(open) }
            }
            _ => Self::TransactionAborted { server },
        }
    }

    /// Returns the name, as in JSON.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::WriteConflict => "writeConflict",
            Self::TransactionExpired { .. } => "transactionExpired",
            Self::TransactionLost { .. } => "transactionLost",
            Self::TransactionAborted { .. } => "transactionAborted",
            Self::TransactionFailedBefore { .. } => "transactionFailedBefore",
            Self::TransactionSuperseded => "transactionSuperseded",
            Self::SnapshotUnavailable => "snapshotUnavailable",
            Self::WriteConflicts { .. } => "writeConflicts",
            Self::TransactionsIdle { .. } => "transactionsIdle",
            Self::TransactionsExpire { .. } => "transactionsExpire",
            Self::TransactionsLost { .. } => "transactionsLost",
        }
    }

    /// Returns what to do about it.
    pub(super) fn advice(&self) -> Advice {
        match self {
            Self::WriteConflict => RUN_AGAIN_AFTER_CONFLICT,
            Self::TransactionLost { .. }
            | Self::TransactionAborted { .. }
            | Self::SnapshotUnavailable => RUN_AGAIN,
            Self::TransactionExpired { .. } => RUN_SHORTER,
            Self::TransactionFailedBefore { .. } => RETURN_FIRST_ERROR,
            Self::TransactionSuperseded => ONE_AT_A_TIME,
            Self::WriteConflicts { .. } => SPREAD_WRITES,
            Self::TransactionsIdle { .. } => END_TRANSACTIONS,
            Self::TransactionsExpire { .. } => KEEP_SHORT,
            Self::TransactionsLost { .. } => RUN_AGAIN_AFTER_FAILOVERS,
        }
        .into()
    }
}

impl From<TransactionVerdict> for Verdict {
    fn from(verdict: TransactionVerdict) -> Self {
        Self::Transaction(verdict)
    }
}

const RUN_AGAIN: &str = "run the transaction again as a whole, as with_transaction does";
const RUN_AGAIN_AFTER_CONFLICT: &str = "run the transaction again as a whole, as with_transaction \
    does; if that happens often, write to such documents last, or from fewer transactions at once";
const RUN_SHORTER: &str = "run the transaction again as a whole, with less in it, or raise that \
    limit of the servers";
const RETURN_FIRST_ERROR: &str = "return the first error of a transaction, and run nothing more in \
    it";
const ONE_AT_A_TIME: &str = "run one transaction of a session at a time, and share no session with \
    another process";
const SPREAD_WRITES: &str = "keep transactions short, write to documents that many write to last, \
    and let fewer writers at them at once";
const END_TRANSACTIONS: &str = "end each transaction, also when the code within fails, and do \
    nothing slow while it is open, such as a call to another service";
const KEEP_SHORT: &str = "do less in one transaction, end each also when the code within fails, or \
    raise that limit";
const RUN_AGAIN_AFTER_FAILOVERS: &str = "run transactions again as a whole after errors with the \
    label TransientTransactionError, as with_transaction does";

fn open_for(open: Option<Duration>) -> String {
    open.map_or_else(|| "open for too long".to_owned(), |it| format!("open for {}", seconds(it)))
}

fn transactions(count: u64) -> String {
    match count {
        1 => "1 transaction".to_owned(),
        _ => format!("{count} transactions"),
    }
}

fn within(time: Duration, is_now: bool) -> String {
    match is_now {
        true => format!("within {}", seconds(time)),
        false => format!("since it was started {} ago", seconds(time)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{TRANSACTION_LIFETIME, TransactionErrorFacts, TransactionVerdict, UNKNOWN};
    use crate::config::ServerAddress;
    use crate::session::{SessionTransaction, TransactionOptions, TransactionStanding};
    use crate::time::Instant;

    fn at(host: &str) -> ServerAddress {
        format!("{host}:27017").parse().unwrap()
    }

    /// A transaction that began at `a`, after so long.
    fn after(open: Duration) -> TransactionStanding {
        let mut transaction = SessionTransaction::default();
        transaction.start(TransactionOptions::default(), || Some(1)).unwrap();
        transaction.command_begins();
        transaction.goes_to(&at("a"), || Instant::ZERO);
        transaction.sent();
        transaction.standing(Instant::ZERO + open, "update", (true, false)).unwrap()
    }

    fn cause(standing: &TransactionStanding, code: i32, host: &str, message: &str) -> &'static str {
        let server = at(host);
        let facts = TransactionErrorFacts { code: Some(code), message, server: Some(&server) };
        TransactionVerdict::of_error(standing, facts).map_or("", |verdict| verdict.name())
    }

    /// A server says 251 for all of these.
    #[test]
    fn a_transaction_that_is_not_known_was_lost_or_aborted_or_took_too_long() {
        const ABORTED: &str = "Transaction with { txnNumber: 1 } has been aborted.";
        let (short, long) = (after(Duration::from_secs(2)), after(TRANSACTION_LIFETIME));
        assert_eq!(cause(&short, 251, "a", ABORTED), "transactionAborted");
        assert_eq!(cause(&short, 251, "a", UNKNOWN), "transactionLost", "it was primary again");
        assert_eq!(cause(&short, 251, "b", ABORTED), "transactionLost");
        assert_eq!(cause(&long, 251, "a", ABORTED), "transactionExpired");
        assert_eq!(cause(&long, 251, "b", ABORTED), "transactionLost");
        let failed_before = Some("insert on db".to_owned());
        let hidden = TransactionStanding { failed_before, ..long };
        assert_eq!(cause(&hidden, 251, "b", UNKNOWN), "transactionFailedBefore");
    }

    #[test]
    fn other_numbers_say_it_themselves() {
        let standing = after(Duration::ZERO);
        for (code, name) in [
            (112, "writeConflict"),
            (225, "transactionSuperseded"),
            (239, "snapshotUnavailable"),
            (246, "snapshotUnavailable"),
            (290, "transactionExpired"),
            (11000, ""),
        ] {
            assert_eq!(cause(&standing, code, "a", ""), name);
            assert_eq!(TransactionVerdict::of_code(code).map_or("", |it| it.name()), name);
        }
        let none = TransactionErrorFacts::default();
        assert_eq!(TransactionVerdict::of_error(&standing, none), None);
    }

    #[test]
    fn a_loss_names_both_servers() {
        let (b, standing) = (at("b"), after(Duration::ZERO));
        let facts = TransactionErrorFacts { code: Some(251), message: "", server: Some(&b) };
        let text = TransactionVerdict::of_error(&standing, facts).unwrap().to_string();
        let expected = "b:27017 does not know the transaction, which began at a:27017: what is not \
                        committed ends with a failover";
        assert_eq!(text, expected);
    }
}
