//! The place in a transaction at which something of it has failed.

use std::fmt;
use std::time::Duration;

use super::transaction::{SessionTransaction, TransactionState};
use crate::config::ServerAddress;
use crate::text::seconds;
use crate::time::Instant;

/// The course that a transaction has taken, as far as an error has to say it.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// The number of its commands; one that is sent again counts once.
    commands: u32,
    /// The server that the first command was sent to, and when.
    began: Option<(ServerAddress, Instant)>,
    /// The command that had failed when the last one began.
    failed_before: Option<String>,
}

/// The place in a transaction at which something of it has failed: which transaction that is, how
/// far it had come, and what is to be done with it.
///
/// Its text is a part of a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransactionStanding {
    /// The number in its session: `txnNumber`.
    pub number: i64,
    /// The state, as the client has it: [`Committed`](TransactionState::Committed) and
    /// [`Aborted`](TransactionState::Aborted) while that is under way.
    pub state: TransactionState,
    /// The name of the command that has failed.
    pub command: String,
    /// The place of that command among those of the transaction, from 1 on.
    pub place: u32,
    /// The time since the first command was sent, `None` if none was.
    pub open: Option<Duration>,
    /// The server that the first command was sent to.
    pub began_at: Option<ServerAddress>,
    /// True if a mongos has given a recovery token, by which every other one can end it.
    pub is_recoverable: bool,
    /// The command that had failed before, after which servers abort a transaction.
    pub failed_before: Option<String>,
    /// The thing to do.
    pub remedy: TransactionRemedy,
}

/// The thing to do with a transaction of which something has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TransactionRemedy {
    /// Run it again as a whole: nothing of it was done (`TransientTransactionError`).
    RunAgain,
    /// Commit it again: it may have been committed (`UnknownTransactionCommitResult`).
    CommitAgain,
    /// Abort it: servers have done so for most errors.
    Abort,
    /// Nothing: its commit was refused, or its abort has failed.
    Nothing,
}

impl TransactionRemedy {
    /// Returns what the labels of an error ask for, or else what the state does.
    const fn of(state: TransactionState, is_transient: bool, is_unknown: bool) -> Self {
        match state {
            _ if is_unknown => Self::CommitAgain,
            _ if is_transient => Self::RunAgain,
            TransactionState::Starting | TransactionState::InProgress => Self::Abort,
            _ => Self::Nothing,
        }
    }

    /// Returns it in words, as the part of a sentence that begins with a verb; `None` if there is
    /// nothing to do.
    pub const fn words(self) -> Option<&'static str> {
        match self {
            Self::RunAgain => {
                Some("run the transaction again as a whole, as nothing of it was done")
            }
            Self::CommitAgain => {
                Some("commit again, which does nothing twice, as it may have been committed")
            }
            Self::Abort => Some("abort the transaction, as servers do after most errors"),
            Self::Nothing => None,
        }
    }
}

impl SessionTransaction {
    /// Takes note that a command of the transaction begins, which may be sent several times.
    pub fn command_begins(&mut self) {
        self.progress.commands = self.progress.commands.saturating_add(1);
        self.progress.failed_before = self.failed_command().map(ToOwned::to_owned);
    }

    /// Takes note that a command is about to be sent to a server.
    pub fn goes_to(&mut self, server: &ServerAddress, now: impl FnOnce() -> Instant) {
        if self.role().is_some() && self.progress.began.is_none() {
            self.progress.began = Some((server.clone(), now()));
        }
    }

    /// Returns where the transaction stands now that a command of it has failed, with these labels
    /// or not; `None` outside of transactions.
    pub fn standing(
        &self,
        now: Instant,
        command: &str,
        (is_transient, is_unknown): (bool, bool),
    ) -> Option<TransactionStanding> {
        self.role()?;
        let (state, Progress { commands, began, failed_before }) = (self.state(), &self.progress);
        Some(TransactionStanding {
            number: self.number(),
            state,
            command: command.to_owned(),
            place: *commands,
            open: began.as_ref().map(|(_, began)| now - *began),
            began_at: began.as_ref().map(|(server, _)| server.clone()),
            is_recoverable: self.recovery_token().is_some(),
            // It would fail again in the same way.
            remedy: TransactionRemedy::of(
                state,
                is_transient && failed_before.is_none(),
                is_unknown,
            ),
            failed_before: failed_before.clone(),
        })
    }
}

impl fmt::Display for TransactionStanding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, command, place, .. } = self;
        write!(f, "{command} was command {place} of transaction {number} of its session")?;
        let open = self.open.map(seconds).unwrap_or_default();
        match (self.state, self.open) {
            (_, None) => write!(f, ", which no server knows yet"),
            (TransactionState::Committed, _) => {
                write!(f, ", which was to be committed after {open}")
            }
            (TransactionState::Aborted, _) => write!(f, ", which was to be aborted after {open}"),
            _ => write!(f, ", which was in progress for {open}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bson::{RawDocument, rawdoc};

    use super::{TransactionRemedy, TransactionStanding};
    use crate::config::ServerAddress;
    use crate::session::transaction::ReplyWithin;
    use crate::session::{SessionTransaction, TransactionOptions, TransactionState};
    use crate::time::Instant;

    fn a() -> ServerAddress {
        "a:27017".parse().unwrap()
    }

    fn started() -> SessionTransaction {
        let mut transaction = SessionTransaction::default();
        transaction.start(TransactionOptions::default(), || Some(5)).unwrap();
        transaction
    }

    fn send(transaction: &mut SessionTransaction, millis: u64) {
        transaction.command_begins();
        transaction.goes_to(&a(), || Instant::from_millis(millis));
        transaction.sent();
    }

    fn standing(transaction: &SessionTransaction, millis: u64) -> TransactionStanding {
        transaction.standing(Instant::from_millis(millis), "update", (true, false)).unwrap()
    }

    /// Transactions, "ClientSession changes": the states, and what each of them is called.
    #[test]
    fn the_words_say_which_command_of_which_transaction_and_how_long_it_was_open() {
        let mut transaction = started();
        transaction.command_begins();
        let text = standing(&transaction, 0).to_string();
        let expected =
            "update was command 1 of transaction 5 of its session, which no server knows yet";
        assert_eq!(text, expected);
        transaction.goes_to(&a(), || Instant::from_millis(1000));
        transaction.sent();
        // It is sent again.
        transaction.goes_to(&a(), || Instant::from_millis(1500));
        send(&mut transaction, 2000);
        let stands = standing(&transaction, 3500);
        assert_eq!(stands.began_at, Some(a()));
        assert_eq!(stands.open, Some(Duration::from_millis(2500)));
        let expected =
            "update was command 2 of transaction 5 of its session, which was in progress for 2.5 s";
        assert_eq!(stands.to_string(), expected);
        for (ends, words) in [
            (
                (|it| it.begin_commit(None)) as fn(&mut SessionTransaction) -> _,
                "which was to be committed after",
            ),
            (SessionTransaction::begin_abort, "which was to be aborted after"),
        ] {
            let mut transaction = started();
            send(&mut transaction, 1000);
            ends(&mut transaction).unwrap();
            let text = standing(&transaction, 2000).to_string();
            assert!(text.contains(words) && text.ends_with("1.0 s"), "{text}");
        }
        transaction.start(TransactionOptions::default(), || Some(6)).unwrap_err();
        assert_eq!(SessionTransaction::default().standing(Instant::ZERO, "x", (true, true)), None);
    }

    /// Transactions, "Error Labels".
    #[test]
    fn the_labels_say_what_to_do_and_else_the_state_does() {
        let mut transaction = started();
        send(&mut transaction, 0);
        let remedy = |labels| {
            transaction.standing(Instant::ZERO, "insert", labels).map(|stands| stands.remedy)
        };
        assert_eq!(remedy((true, false)), Some(TransactionRemedy::RunAgain));
        assert_eq!(remedy((false, true)), Some(TransactionRemedy::CommitAgain));
        assert_eq!(remedy((false, false)), Some(TransactionRemedy::Abort));
        transaction.begin_commit(None).unwrap();
        let stands = transaction.standing(Instant::ZERO, "commitTransaction", (false, false));
        assert_eq!(stands.unwrap().remedy, TransactionRemedy::Nothing);
        assert_eq!(TransactionRemedy::Nothing.words(), None);
    }

    #[test]
    fn the_first_failure_is_remembered_for_those_that_follow() {
        let mut transaction = started();
        send(&mut transaction, 0);
        let replied = |transaction: &mut SessionTransaction, reply: &RawDocument, command: &str| {
            transaction.replied(ReplyWithin::of(reply), || command.to_owned());
        };
        replied(&mut transaction, &rawdoc! { "ok": 1, "n": 1 }, "all went well");
        assert_eq!(transaction.failed_command(), None);
        let refused = rawdoc! { "ok": 1, "n": 0, "writeErrors": [{ "index": 0, "code": 11000 }] };
        replied(&mut transaction, &refused, "insert on db");
        assert_eq!(standing(&transaction, 0).failed_before, None, "it is the failure itself");
        let mut bulk = started();
        send(&mut bulk, 0);
        replied(&mut bulk, &rawdoc! { "ok": 1, "nErrors": 0 }, "all went well");
        assert_eq!(bulk.failed_command(), None);
        replied(&mut bulk, &rawdoc! { "ok": 1, "nErrors": 1 }, "bulkWrite on admin");
        assert_eq!(bulk.failed_command(), Some("bulkWrite on admin"));
        send(&mut transaction, 1);
        assert_eq!(standing(&transaction, 1).failed_before.as_deref(), Some("insert on db"));
        transaction.begin_commit(None).unwrap();
        transaction.ended();
        assert!(transaction.begin_operation());
        transaction.start(TransactionOptions::default(), || Some(6)).unwrap();
        transaction.command_begins();
        let again = standing(&transaction, 2);
        assert_eq!((again.failed_before, again.open, again.place), (None, None, 1));
        assert_eq!(again.state, TransactionState::Starting);
    }
}
