//! The table of states, row by row, and the fields of commands.

use std::time::Duration;

use bson::{RawDocument, RawDocumentBuf, rawdoc};

use super::{
    AttemptFailure, CommitFault, Ending, ReplyWithin, SessionTransaction, TransactionError,
    TransactionFields, TransactionOptions, TransactionRole, TransactionState,
};
use crate::config::{ReadConcern, WriteConcern};

fn started(options: TransactionOptions) -> SessionTransaction {
    let mut transaction = SessionTransaction::default();
    transaction.start(options, || Some(5)).unwrap();
    transaction
}

fn in_progress(options: TransactionOptions) -> SessionTransaction {
    let mut transaction = started(options);
    transaction.sent();
    transaction
}

fn committed(options: TransactionOptions) -> SessionTransaction {
    let mut transaction = in_progress(options);
    assert_eq!(transaction.begin_commit(None), Ok(Ending::Send));
    replied(&mut transaction, &rawdoc! { "ok": 1 });
    transaction.ended();
    transaction
}

fn aborted() -> SessionTransaction {
    let mut transaction = in_progress(TransactionOptions::default());
    assert_eq!(transaction.begin_abort(), Ok(Ending::Send));
    transaction.failed(AttemptFailure::Answered);
    transaction.ended();
    transaction
}

fn replied(transaction: &mut SessionTransaction, reply: &RawDocument) {
    transaction.replied(ReplyWithin::of(reply), || unreachable!("all went well"));
}

fn write_concern(transaction: &SessionTransaction, has_timeout: bool) -> Option<RawDocumentBuf> {
    transaction.fields(has_timeout).unwrap().write_concern
}

/// Transactions, "startTransaction".
#[test]
fn one_is_started_unless_another_is_in_progress() {
    let options = TransactionOptions::default();
    for mut transaction in [started(options.clone()), in_progress(options.clone())] {
        let state = transaction.state();
        let refused = transaction.start(options.clone(), || Some(6));
        assert_eq!(refused, Err(TransactionError::AlreadyInProgress));
        assert!(refused.unwrap_err().to_string().contains("Transaction already in progress"));
        assert_eq!((transaction.state(), transaction.number), (state, 5), "nothing has changed");
    }
    for mut transaction in [committed(options.clone()), aborted()] {
        transaction.start(options.clone(), || Some(6)).unwrap();
        assert_eq!((transaction.state(), transaction.number), (TransactionState::Starting, 6));
    }
    let ended = SessionTransaction::default().start(options, || None);
    assert_eq!(ended, Err(TransactionError::SessionEnded));
}

/// Transactions, "startTransaction": "transactions do not support unacknowledged write concerns".
#[test]
fn a_commit_is_acknowledged() {
    let w0 = TransactionOptions::default().with_write_concern(WriteConcern::unacknowledged());
    let mut transaction = SessionTransaction::default();
    let refused = transaction.start(w0, || Some(1)).unwrap_err();
    assert_eq!(refused, TransactionError::Unacknowledged);
    let words = "transactions do not support unacknowledged write concerns";
    assert!(refused.to_string().contains(words));
    assert_eq!(transaction.state(), TransactionState::None);
}

/// Transactions, "commitTransaction".
#[test]
fn a_commit_is_allowed_but_for_what_was_not_started_or_was_aborted() {
    let mut none = SessionTransaction::default();
    let refused = none.begin_commit(None).unwrap_err();
    assert_eq!(refused.to_string(), "No transaction started");
    let mut aborted = aborted();
    let refused = aborted.begin_commit(None).unwrap_err();
    let words = "Cannot call commitTransaction after calling abortTransaction";
    assert_eq!(refused.to_string(), words);
    assert_eq!(aborted.state(), TransactionState::Aborted);
    let mut starting = started(TransactionOptions::default());
    assert_eq!(starting.begin_commit(None), Ok(Ending::Nothing), "no server knows of it");
    assert_eq!(starting.state(), TransactionState::Committed);
    assert_eq!(starting.begin_commit(None), Ok(Ending::Nothing), "nor does one the second time");
    let mut committed = committed(TransactionOptions::default());
    assert_eq!(committed.begin_commit(None), Ok(Ending::Send), "MUST re-run the previous one");
    assert_eq!(committed.role(), Some(TransactionRole::Commit));
}

/// Driver Sessions, "endSession": what a server may hold open is aborted.
#[test]
fn a_transaction_is_left_open_until_a_server_may_have_ended_it() {
    assert!(!SessionTransaction::default().is_left_open());
    assert!(!started(TransactionOptions::default()).is_left_open(), "no server knows of it");
    assert!(!aborted().is_left_open(), "its abort was answered");
    let mut unsent = in_progress(TransactionOptions::default());
    unsent.begin_abort().unwrap();
    assert!(unsent.is_left_open() && unsent.is_abort_left(), "its command was not sent");
    unsent.ended();
    assert!(unsent.is_left_open() && unsent.is_abort_left(), "nor when the call was over");
    let mut heard = in_progress(TransactionOptions::default());
    heard.begin_abort().unwrap();
    heard.failed(AttemptFailure::Answered);
    assert!(!heard.is_left_open() && !heard.is_abort_left());
    let mut transaction = started(TransactionOptions::default());
    transaction.sent();
    assert!(transaction.is_left_open());
    transaction.begin_commit(None).unwrap();
    assert!(transaction.is_left_open(), "its commit has come to no server");
    let mut committed = transaction;
    committed.failed(AttemptFailure::Overload);
    assert!(!committed.is_left_open());
    let refused = committed.begin_abort_of_left();
    assert_eq!(refused, Err(TransactionError::AbortAfterCommit));
    let mut left = started(TransactionOptions::default());
    left.sent();
    left.begin_commit(None).unwrap();
    assert_eq!(left.begin_abort_of_left(), Ok(Ending::Send));
    assert_eq!(left.role(), Some(TransactionRole::Abort));
    assert!(!left.is_left_open(), "it is not tried for ever");
    let mut empty = started(TransactionOptions::default());
    empty.begin_commit(None).unwrap();
    assert!(!empty.is_left_open());
}

/// UnknownTransactionCommitResult: "once that is open", each answer that says nothing of the commit
/// leaves it so.
#[test]
fn a_commit_is_in_doubt_until_a_server_says_what_became_of_it() {
    let fault = |code| CommitFault { code: Some(code), ..CommitFault::default() };
    let unknown = CommitFault { is_unknown: true, ..fault(91) };
    let gone = CommitFault { is_transient: true, ..fault(251) };
    let mut transaction = committed(TransactionOptions::default());
    transaction.begin_commit(None).unwrap();
    transaction.failed(AttemptFailure::Answered);
    assert!(!transaction.commit_failed(&fault(13)), "it was refused, and nothing else");
    assert!(transaction.commit_failed(&unknown));
    assert!(transaction.commit_failed(&fault(13)), "another one was refused");
    assert!(!transaction.commit_failed(&gone));
    assert!(!transaction.commit_failed(&fault(13)), "it stays known");
    transaction.failed(AttemptFailure::Lost);
    assert!(transaction.commit_failed(&fault(11601)), "of two attempts one is without an answer");
    assert!(!transaction.commit_failed(&fault(225)));
    transaction.failed(AttemptFailure::Lost);
    replied(&mut transaction, &rawdoc! { "ok": 1 });
    assert!(!transaction.commit_failed(&CommitFault::default()));
}

/// Transactions, "abortTransaction".
#[test]
fn an_abort_is_allowed_of_what_was_started_and_not_ended() {
    let refused = SessionTransaction::default().begin_abort().unwrap_err();
    assert_eq!(refused.to_string(), "No transaction started");
    let refused = committed(TransactionOptions::default()).begin_abort().unwrap_err();
    let words = "Cannot call abortTransaction after calling commitTransaction";
    assert_eq!(refused.to_string(), words);
    let refused = aborted().begin_abort().unwrap_err();
    assert_eq!(refused.to_string(), "Cannot call abortTransaction twice");
    let mut starting = started(TransactionOptions::default());
    assert_eq!(starting.begin_abort(), Ok(Ending::Nothing));
    assert_eq!(starting.state(), TransactionState::Aborted);
}

/// Transactions, "Any other operation": the state becomes "no transaction" first, and the session
/// is unpinned.
#[test]
fn an_operation_after_the_end_is_in_none() {
    for mut transaction in [committed(TransactionOptions::default()), aborted()] {
        assert!(transaction.begin_operation());
        assert_eq!(transaction.state(), TransactionState::None);
        assert_eq!((transaction.role(), transaction.fields(false)), (None, None));
    }
    let options = TransactionOptions::default();
    for mut transaction in [started(options.clone()), in_progress(options)] {
        assert!(!transaction.begin_operation());
        assert_eq!(transaction.role(), Some(TransactionRole::Within));
    }
}

/// Transactions, "Constructing the first command within a transaction", and "any other command".
#[test]
fn the_first_command_starts_it_and_all_have_its_number() {
    let concern = WriteConcern::majority();
    let mut transaction =
        started(TransactionOptions::default().with_write_concern(concern.clone()));
    let fields = |starts| TransactionFields {
        number: 5,
        starts,
        recovery_token: None,
        write_concern: None,
        max_time: None,
    };
    assert_eq!(transaction.fields(false), Some(fields(true)));
    assert_eq!(transaction.fields(false), Some(fields(true)), "nothing was sent");
    transaction.sent();
    assert_eq!(transaction.fields(false), Some(fields(false)));
    transaction.begin_commit(None).unwrap();
    let expected = TransactionFields { write_concern: Some(concern.document()), ..fields(false) };
    assert_eq!(transaction.fields(false), Some(expected));
}

/// Transactions, "Interaction with Client Backpressure": "the command executed in the retry attempt
/// must be treated as the first command within a transaction".
#[test]
fn a_first_command_that_met_an_overload_is_the_first_again() {
    let mut transaction = started(TransactionOptions::default());
    transaction.sent();
    transaction.failed(AttemptFailure::Overload);
    assert!(transaction.fields(false).unwrap().starts);
    transaction.sent();
    replied(&mut transaction, &rawdoc! { "ok": 1 });
    transaction.sent();
    transaction.failed(AttemptFailure::Overload);
    assert!(!transaction.fields(false).unwrap().starts, "it was not the first one");
    let mut transaction = in_progress(TransactionOptions::default());
    transaction.failed(AttemptFailure::Lost);
    assert_eq!(transaction.state(), TransactionState::InProgress);
}

/// Transactions, "writeConcern for commitTransaction attempts".
#[test]
fn a_commit_that_comes_again_is_for_the_majority() {
    let ten = rawdoc! { "w": "majority", "wtimeout": 10_000 };
    let mut transaction = committed(TransactionOptions::default());
    transaction.begin_commit(None).unwrap();
    assert_eq!(write_concern(&transaction, false), Some(ten.clone()), "called again");
    let concern =
        WriteConcern::nodes(1).with_journal(true).with_timeout(Duration::from_millis(500));
    let options = TransactionOptions::default().with_write_concern(concern.clone());
    let mut transaction = in_progress(options);
    transaction.begin_commit(None).unwrap();
    assert_eq!(write_concern(&transaction, false), Some(concern.document()));
    transaction.failed(AttemptFailure::Lost);
    let own = rawdoc! { "w": "majority", "j": true, "wtimeout": 500 };
    assert_eq!(write_concern(&transaction, false), Some(own), "other options are left as they are");
    // Client Side Operations Timeout: wtimeout does not count.
    let without = rawdoc! { "w": "majority", "j": true };
    assert_eq!(write_concern(&transaction, true), Some(without));
    let mut transaction = in_progress(TransactionOptions::default());
    transaction.begin_commit(None).unwrap();
    assert_eq!(write_concern(&transaction, false), None, "the server decides");
    transaction.failed(AttemptFailure::Lost);
    assert_eq!(write_concern(&transaction, false), Some(ten));
}

/// Transactions, "Interaction with Client Backpressure": "drivers MUST retry using the same write
/// concern", unless an attempt has failed otherwise.
#[test]
fn a_commit_that_met_only_overloads_keeps_its_write_concern() {
    let options = TransactionOptions::default().with_write_concern(WriteConcern::nodes(1));
    let mut transaction = in_progress(options);
    transaction.begin_commit(None).unwrap();
    let one = Some(rawdoc! { "w": 1 });
    for _ in 0..3 {
        transaction.failed(AttemptFailure::Overload);
        assert_eq!(write_concern(&transaction, false), one);
    }
    transaction.failed(AttemptFailure::Lost);
    transaction.failed(AttemptFailure::Overload);
    let majority = rawdoc! { "w": "majority", "wtimeout": 10_000 };
    assert_eq!(write_concern(&transaction, false), Some(majority));
}

/// Transactions, "abortTransaction": its write concern is that of the transaction, each time.
#[test]
fn an_abort_that_comes_again_is_as_it_was() {
    let options = TransactionOptions::default().with_write_concern(WriteConcern::nodes(1));
    let mut transaction = in_progress(options);
    transaction.begin_abort().unwrap();
    transaction.failed(AttemptFailure::Lost);
    assert_eq!(write_concern(&transaction, false), Some(rawdoc! { "w": 1 }));
}

/// Transactions, "recoveryToken field": the latest, of commits and aborts alone, unmodified;
/// forgotten when another begins.
#[test]
fn the_latest_recovery_token_goes_with_the_end() {
    let mut transaction = in_progress(TransactionOptions::default());
    for shard in ["a", "b"] {
        replied(&mut transaction, &rawdoc! { "ok": 1, "recoveryToken": { "shard": shard } });
    }
    replied(&mut transaction, &rawdoc! { "ok": 1 });
    replied(&mut transaction, &rawdoc! { "ok": 1, "recoveryToken": "none" });
    assert_eq!(transaction.fields(false).unwrap().recovery_token, None);
    transaction.begin_commit(None).unwrap();
    let token = rawdoc! { "shard": "b" };
    assert_eq!(transaction.fields(false).unwrap().recovery_token, Some(&*token));
    transaction.ended();
    transaction.start(TransactionOptions::default(), || Some(6)).unwrap();
    transaction.sent();
    transaction.begin_commit(None).unwrap();
    assert_eq!(transaction.fields(false).unwrap().recovery_token, None);
}

/// Transactions, "maxCommitTimeMS": of commits alone; Client Side Operations Timeout: not with
/// `timeoutMS`.
#[test]
fn a_commit_may_be_limited() {
    let limit = Duration::from_millis(60);
    let mut transaction = in_progress(TransactionOptions::default().with_max_commit_time(limit));
    assert_eq!(transaction.fields(false).unwrap().max_time, None);
    transaction.begin_commit(None).unwrap();
    assert_eq!(transaction.fields(false).unwrap().max_time, Some(limit));
    assert_eq!(transaction.fields(true).unwrap().max_time, None);
}

/// Transactions, "TransactionOptions": each option is inherited by itself.
#[test]
fn each_option_is_inherited_by_itself() {
    let own = TransactionOptions::default().with_read_concern(ReadConcern::snapshot());
    let others = TransactionOptions::default()
        .with_read_concern(ReadConcern::local())
        .with_write_concern(WriteConcern::majority());
    let merged = own.or(&others);
    assert_eq!(merged.read_concern, Some(ReadConcern::snapshot()));
    assert_eq!(merged.write_concern, Some(WriteConcern::majority()));
}
