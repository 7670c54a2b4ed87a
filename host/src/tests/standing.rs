//! Errors of transactions: where each stood, and the advice for each cause, in virtual time.

use std::time::Duration;

use bson::{RawDocumentBuf, rawdoc};
use sdam_core::diagnosis::Verdict;
use sdam_core::operation::{TRANSIENT_TRANSACTION, UNKNOWN_COMMIT_RESULT};
use sdam_core::session::{TransactionRemedy, TransactionState};

use super::fixture::Fixture;
use super::transactions::{answers, insert, patiently, refusal, start};
use crate::error::Error;

/// Runs a transaction of two inserts, between which so much time passes; the second is answered
/// with this.
fn second(after: Duration, reply: Option<RawDocumentBuf>) -> Error {
    let fixture = Fixture::with_sessions("");
    let (_client, session) = start(&fixture);
    answers(&fixture, [Some(rawdoc! { "ok": 1 })]);
    fixture.run(async {
        session.start_transaction().await.unwrap();
        insert(&fixture, &session).await.unwrap();
    });
    fixture.pass(after);
    fixture.check_again();
    answers(&fixture, [reply]);
    let error = patiently(&fixture, insert(&fixture, &session)).unwrap_err();
    let stood = error.transaction().unwrap();
    assert_eq!((stood.number, stood.place, &*stood.command), (1, 2, "insert"));
    assert_eq!(stood.state, TransactionState::InProgress);
    assert!(stood.open.unwrap() >= after, "{stood:?}");
    error
}

fn unknown(message: &str) -> Option<RawDocumentBuf> {
    Some(rawdoc! {
        "ok": 0, "code": 251, "errmsg": message, "errorLabels": [TRANSIENT_TRANSACTION],
    })
}

fn verdict(error: &Error) -> &'static str {
    error.verdict().map_or("", Verdict::name)
}

const MOMENT: Duration = Duration::from_millis(2500);

/// Transactions, "TransientTransactionError": "the entire transaction can be retried".
#[test]
fn a_conflict_is_explained_and_the_whole_is_to_be_run_again() {
    let error = second(MOMENT, refusal(112, &[TRANSIENT_TRANSACTION]));
    assert_eq!(verdict(&error), "writeConflict");
    assert_eq!(error.transaction().unwrap().remedy, TransactionRemedy::RunAgain);
    let text = error.to_string();
    for part in [
        "; insert was command 2 of transaction 1 of its session, which was in progress for 2.5 s; ",
        "another operation has written to a document that the transaction writes to; ",
        "run the transaction again as a whole",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(text.matches("again as a whole").count(), 1, "{text}");
}

#[test]
fn a_transaction_that_is_gone_has_expired_or_was_lost_or_aborted() {
    let aborted = "Transaction with { txnNumber: 1 } has been aborted.";
    let error = second(Duration::from_secs(61), unknown(aborted));
    assert_eq!(verdict(&error), "transactionExpired");
    let text = error.to_string();
    assert!(text.contains("was open for 61.0 s"), "{text}");
    assert!(text.contains("transactionLifetimeLimitSeconds"), "{text}");
    let error = second(MOMENT, unknown(aborted));
    assert_eq!(verdict(&error), "transactionAborted");
    let lost = "Given transaction number 1 does not match any in-progress transactions. The active \
                transaction number is -1";
    let error = second(MOMENT, unknown(lost));
    assert_eq!(verdict(&error), "transactionLost");
    let text = error.to_string();
    assert!(text.contains("ends with a failover; run the transaction again"), "{text}");
}

#[test]
fn errors_of_sessions_and_snapshots_have_causes_of_their_own() {
    assert_eq!(verdict(&second(MOMENT, refusal(225, &[]))), "transactionSuperseded");
    let error = second(MOMENT, refusal(246, &[TRANSIENT_TRANSACTION]));
    assert_eq!(verdict(&error), "snapshotUnavailable");
}

/// Transactions, "Error Labels": an error of the network has the label, and no other cause.
#[test]
fn what_only_the_label_says_is_said_of_the_network_too() {
    let error = second(MOMENT, None);
    assert_eq!(verdict(&error), "");
    assert!(error.has_label(TRANSIENT_TRANSACTION));
    let text = error.to_string();
    assert!(text.contains("run the transaction again as a whole, as nothing of it was"), "{text}");
}

#[test]
fn an_error_without_a_label_is_for_an_abort() {
    let error = second(MOMENT, refusal(11000, &[]));
    assert_eq!(error.transaction().unwrap().remedy, TransactionRemedy::Abort);
    assert!(error.to_string().contains("; abort the transaction, as servers do"), "{error}");
}

#[test]
fn a_failure_that_was_hidden_is_named_by_what_follows() {
    let fixture = Fixture::with_sessions("");
    let (_client, session) = start(&fixture);
    let refused = rawdoc! { "ok": 1, "n": 0, "writeErrors": [{ "index": 0, "code": 11000 }] };
    answers(&fixture, [Some(refused), unknown("Transaction has been aborted.")]);
    let error = fixture.run(async {
        session.start_transaction().await.unwrap();
        // The reply is the driver's to read.
        insert(&fixture, &session).await.unwrap();
        insert(&fixture, &session).await.unwrap_err()
    });
    assert_eq!(verdict(&error), "transactionFailedBefore");
    let text = error.to_string();
    assert!(text.contains("insert on db had failed in the transaction before"), "{text}");
}

/// Transactions, "UnknownTransactionCommitResult".
#[test]
fn a_commit_whose_outcome_is_not_known_is_to_be_asked_again() {
    let fixture = Fixture::with_sessions("retryWrites=false");
    let (_client, session) = start(&fixture);
    let timed_out = refusal(50, &[UNKNOWN_COMMIT_RESULT]);
    answers(&fixture, [Some(rawdoc! { "ok": 1 }), timed_out]);
    let error = fixture.run(async {
        session.start_transaction().await.unwrap();
        insert(&fixture, &session).await.unwrap();
        session.commit_transaction().await.unwrap_err()
    });
    let stood = error.transaction().unwrap();
    assert_eq!((stood.place, &*stood.command), (2, "commitTransaction"));
    assert_eq!(stood.remedy, TransactionRemedy::CommitAgain);
    let text = error.to_string();
    assert!(text.contains("which was to be committed after 0.0 s; commit again"), "{text}");
    // A write concern that is not met is no error of the command.
    let late = rawdoc! { "ok": 1, "writeConcernError": { "code": 64, "errmsg": "late" } };
    answers(&fixture, [Some(late)]);
    let error = fixture.run(async { session.commit_transaction().await.unwrap_err() });
    assert_eq!(error.transaction().unwrap().place, 3);
}

#[test]
fn what_is_in_no_transaction_says_nothing_of_one() {
    let fixture = Fixture::with_sessions("");
    let (_client, session) = start(&fixture);
    answers(&fixture, [refusal(112, &[])]);
    let error = fixture.run(insert(&fixture, &session)).unwrap_err();
    assert_eq!((error.transaction(), verdict(&error)), (None, ""));
    assert!(!error.to_string().contains("transaction "), "{error}");
}
