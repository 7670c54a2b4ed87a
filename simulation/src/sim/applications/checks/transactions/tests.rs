//! One conversation for each rule.

use std::sync::Arc;

use bson::raw::cstr;
use bson::{RawDocumentBuf, rawdoc};
use sdam_core::bson;

use super::super::testing::{command, reply};
use super::{Command, Finding, Transactions};

/// A command of the session, with the fields of its transaction but the first one's.
fn of(
    (millis, member): (u64, usize),
    operation: i64,
    mut body: RawDocumentBuf,
    number: i64,
) -> Arc<Command> {
    body.append(cstr!("txnNumber"), number);
    body.append(cstr!("autocommit"), false);
    command((millis, member, 1), Some(operation), Some(1), body)
}

fn first(operation: i64, number: i64) -> Arc<Command> {
    of((0, 0), operation, rawdoc! { "insert": "a", "startTransaction": true }, number)
}

fn next(member: usize, operation: i64) -> Arc<Command> {
    of((2, member), operation, rawdoc! { "update": "a" }, 1)
}

fn commit(member: usize) -> Arc<Command> {
    of((4, member), 9, rawdoc! { "commitTransaction": 1 }, 1)
}

fn abort(member: usize) -> Arc<Command> {
    of((4, member), 9, rawdoc! { "abortTransaction": 1 }, 1)
}

fn ok() -> RawDocumentBuf {
    rawdoc! { "ok": 1.0 }
}

fn shed() -> RawDocumentBuf {
    rawdoc! { "ok": 0.0, "errorLabels": ["SystemOverloadedError", "RetryableError"] }
}

fn check(found: Finding) -> &'static str {
    found.unwrap_err().check
}

/// Begins a transaction at member 0, whose first command has this reply.
fn begun(is_sharded: bool, body: RawDocumentBuf) -> Transactions {
    let mut transactions = Transactions::new(is_sharded);
    transactions.sent(&first(1, 1)).unwrap();
    transactions.replied(&first(1, 1), &reply(1, body));
    transactions
}

#[test]
fn a_transaction_that_goes_well_is_fine() {
    let token = rawdoc! { "ok": 1.0, "recoveryToken": { "a": 1 } };
    let mut transactions = begun(true, token);
    transactions.sent(&next(0, 2)).unwrap();
    transactions.replied(&next(0, 2), &reply(3, ok()));
    assert_eq!(check(transactions.closed(0)), "a transaction that is left is aborted");
    transactions.closed(1).unwrap();
    let mut called = transactions.clone();
    called.is_committed(&vec![1]);
    called.closed(0).unwrap();
    let end = |body| of((4, 0), 9, body, 1);
    let lacking = end(rawdoc! { "commitTransaction": 1 });
    assert_eq!(check(transactions.sent(&lacking)), "the recovery token is the last one");
    let token = rawdoc! { "a": 1 };
    let commit = end(rawdoc! { "commitTransaction": 1, "recoveryToken": token });
    transactions.sent(&commit).unwrap();
    transactions.closed(0).unwrap();
}

#[test]
fn fields_in_the_wrong_place_are_found() {
    let whole = "fields of transactions come together";
    let bare = |body| command((0, 0, 1), Some(1), Some(1), body);
    for (body, found) in [
        (rawdoc! { "insert": "a", "startTransaction": true, "txnNumber": 1_i64 }, whole),
        (rawdoc! { "insert": "a", "autocommit": true, "txnNumber": 1_i64 }, whole),
        (rawdoc! { "insert": "a", "autocommit": false }, whole),
        (rawdoc! { "commitTransaction": 1 }, whole),
    ] {
        assert_eq!(check(Transactions::new(false).sent(&bare(body))), found);
    }
    for (body, found) in [
        (rawdoc! { "find": "a", "readConcern": {} }, "only the first command has a read concern"),
        (rawdoc! { "insert": "a", "writeConcern": {} }, "only the end has a write concern"),
        (rawdoc! { "insert": "a", "recoveryToken": {} }, "only the end has a recovery token"),
        (
            rawdoc! { "commitTransaction": 1, "startTransaction": true },
            "an empty transaction has no end",
        ),
    ] {
        let mut transactions = begun(false, ok());
        assert_eq!(check(transactions.sent(&of((2, 0), 2, body, 1))), found);
    }
}

#[test]
fn numbers_that_are_not_raised_and_commands_of_nothing_are_found() {
    let mut transactions = begun(false, ok());
    assert_eq!(check(transactions.sent(&first(2, 1))), "each transaction has its number");
    transactions.sent(&first(2, 2)).unwrap();
    let none = "a transaction begins with its first command";
    assert_eq!(check(transactions.sent(&next(0, 3))), none);
    assert_eq!(check(Transactions::new(false).sent(&abort(0))), none);
    let write = command((0, 0, 1), Some(1), Some(1), rawdoc! { "insert": "a", "txnNumber": 5_i64 });
    transactions.sent(&write).unwrap();
    assert_eq!(check(transactions.sent(&first(4, 5))), "each transaction has its number");
}

#[test]
fn commands_that_are_sent_twice_are_found_unless_they_were_shed() {
    begun(false, shed()).sent(&first(1, 1)).unwrap();
    let failed = rawdoc! { "ok": 0.0, "code": 6 };
    let mut transactions = begun(false, failed);
    assert_eq!(check(transactions.sent(&first(1, 1))), "each transaction has its number");
    for (body, is_found) in [(ok(), false), (shed(), false), (rawdoc! { "ok": 0.0 }, true)] {
        let mut transactions = begun(false, ok());
        transactions.sent(&next(0, 2)).unwrap();
        transactions.replied(&next(0, 2), &reply(3, body));
        assert_eq!(transactions.sent(&next(0, 2)).is_err(), is_found);
    }
}

#[test]
fn a_transaction_at_two_mongos_is_found() {
    assert_eq!(check(begun(true, ok()).sent(&next(1, 2))), "a transaction is at one mongos");
    begun(false, ok()).sent(&next(1, 2)).unwrap();
    let majority = rawdoc! { "w": "majority", "wtimeout": 10_000 };
    let transient = rawdoc! { "ok": 0.0, "errorLabels": ["TransientTransactionError"] };
    begun(true, transient).sent(&next(1, 2)).unwrap();
    let mut transactions = begun(true, ok());
    transactions.is_unpinned(&vec![1]);
    transactions.sent(&next(1, 2)).unwrap();
    for (was_steady, is_found) in [(true, true), (false, false)] {
        let mut transactions = begun(true, ok());
        transactions.ends(&commit(1), |_, _| was_steady);
        assert_eq!(transactions.sent(&commit(1)).is_err(), is_found);
    }
    for (body, is_found) in [(rawdoc! { "ok": 0.0, "code": 91 }, false), (shed(), true)] {
        let mut transactions = begun(true, ok());
        transactions.sent(&commit(0)).unwrap();
        transactions.replied(&commit(0), &reply(5, body));
        let again = rawdoc! { "commitTransaction": 1, "writeConcern": majority.clone() };
        assert_eq!(transactions.sent(&of((6, 1), 9, again, 1)).is_err(), is_found);
    }
    let mut transactions = begun(true, ok());
    transactions.sent(&abort(0)).unwrap();
    transactions.replied(&abort(0), &reply(5, shed()));
    transactions.sent(&abort(1)).unwrap();
    let mut transactions = begun(true, ok());
    transactions.sent(&commit(0)).unwrap();
    transactions.lost(&commit(0));
    let again = rawdoc! { "commitTransaction": 1, "writeConcern": majority };
    transactions.sent(&of((5, 1), 9, again, 1)).unwrap();
}

#[test]
fn a_commit_that_comes_again_for_fewer_than_the_majority_is_found() {
    for (body, is_found) in [(Some(ok()), true), (None, true), (Some(shed()), false)] {
        let mut transactions = begun(false, ok());
        transactions.sent(&commit(0)).unwrap();
        match body {
            Some(body) => transactions.replied(&commit(0), &reply(5, body)),
            None => transactions.lost(&commit(0)),
        }
        let again = transactions.sent(&commit(0));
        assert_eq!(again.is_err(), is_found);
        if is_found {
            assert_eq!(check(again), "a commit that comes again is for the majority");
        }
    }
}

#[test]
fn what_comes_after_the_end_is_found() {
    let ended = |end: &Arc<Command>| {
        let mut transactions = begun(false, ok());
        transactions.sent(end).unwrap();
        transactions.replied(end, &reply(5, ok()));
        transactions
    };
    let over = "a transaction that is ended is over";
    assert_eq!(check(ended(&commit(0)).sent(&next(0, 2))), over);
    assert_eq!(check(ended(&abort(0)).sent(&next(0, 2))), over);
    assert_eq!(check(ended(&commit(0)).sent(&abort(0))), "what is committed is not aborted");
    assert_eq!(check(ended(&abort(0)).sent(&commit(0))), "what is aborted is not committed");
    assert_eq!(check(ended(&abort(0)).sent(&abort(0))), "a transaction is aborted once");
    let mut transactions = begun(false, ok());
    transactions.sent(&abort(0)).unwrap();
    let late = rawdoc! { "ok": 1.0, "errorLabels": ["RetryableWriteError"] };
    transactions.replied(&abort(0), &reply(5, late));
    transactions.sent(&abort(0)).unwrap();
}

#[test]
fn the_token_of_another_transaction_is_found() {
    let mut transactions = begun(true, ok());
    let token = rawdoc! { "a": 1 };
    let commit = rawdoc! { "commitTransaction": 1, "recoveryToken": token };
    let found = transactions.sent(&of((4, 0), 9, commit, 1));
    assert_eq!(check(found), "the recovery token is the last one");
}

/// The question of another client is none of the session's own commands: "drivers MUST apply a
/// majority write concern" to it (Transactions, "writeConcern for commitTransaction attempts").
#[test]
fn a_question_of_another_client_that_is_none_is_found() {
    let by_another = |body, number| {
        let mut command = Arc::unwrap_or_clone(of((9, 1), 7, body, number));
        command.line.client = 1;
        command
    };
    let majority = rawdoc! { "w": "majority", "wtimeout": 10_000 };
    let token = rawdoc! { "a": 1 };
    let ask = |token: Option<&RawDocumentBuf>| {
        let mut body = rawdoc! { "commitTransaction": 1, "writeConcern": majority.clone() };
        token.into_iter().for_each(|it| body.append(cstr!("recoveryToken"), it.clone()));
        body
    };
    let mut transactions = begun(true, rawdoc! { "ok": 1.0, "recoveryToken": token.clone() });
    transactions.sent(&next(0, 2)).unwrap();
    transactions.replied(&next(0, 2), &reply(3, ok()));
    assert!(!transactions.is_question(&commit(1)), "it is the client's own");
    let question = by_another(ask(Some(&token)), 1);
    assert!(transactions.is_question(&question));
    transactions.asked(&question).unwrap();
    let lacking = transactions.asked(&by_another(ask(None), 1));
    assert_eq!(check(lacking), "the recovery token is the last one");
    let weak = by_another(rawdoc! { "commitTransaction": 1, "recoveryToken": token }, 1);
    assert_eq!(check(transactions.asked(&weak)), "a commit that comes again is for the majority");
    let unknown = transactions.asked(&by_another(ask(None), 2));
    assert_eq!(check(unknown), "others ask for what was begun");
    assert!(transactions.has_newer(&vec![1], 0) && !transactions.has_newer(&vec![1], 1));
}
