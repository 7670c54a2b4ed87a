//! Transactions whose end is given up, is refused, or comes to no server: what is left open, what is
//! known of them, and what their sessions can do.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bson::rawdoc;
use sdam_core::operation::{
    RETRYABLE, SYSTEM_OVERLOADED, TRANSIENT_TRANSACTION, UNKNOWN_COMMIT_RESULT,
};
use sdam_core::session::{CommitOutcome, TransactionState};

use super::fixture::{Fixture, Task};
use super::transactions::{
    answers, insert, names, patiently, patiently_to_its_end, received, refusal, run_tasks, start,
};
use crate::error::{Error, ErrorKind};
use crate::operations::session::ClientSession;
use crate::tests::Puppet;

/// Starts a transaction, and runs an operation in it.
fn begin(fixture: &Fixture, session: &ClientSession<Puppet>) {
    fixture.run(async {
        session.start_transaction().await.unwrap();
        insert(fixture, session).await.unwrap();
    });
}

/// Of two attempts at a commit, the first is without an answer, and the second is refused for a
/// reason of its own.
#[test]
fn a_commit_stays_in_doubt_when_its_repetition_is_refused() {
    let fixture = Fixture::with_sessions("");
    let (_client, session) = start(&fixture);
    begin(&fixture, &session);
    answers(&fixture, [None, refusal(13, &[])]);
    let outcome = patiently(&fixture, async { session.commit_transaction().outcome().await });
    assert!(matches!(outcome.unwrap(), CommitOutcome::Unknown(_)));
    assert_eq!(names(&received(&fixture))[1..], ["commitTransaction", "commitTransaction"]);
    answers(&fixture, [refusal(13, &[])]);
    let error = fixture.run(async { session.commit_transaction().await.unwrap_err() });
    assert!(error.has_label(UNKNOWN_COMMIT_RESULT) && error.commit_token().is_some(), "{error:?}");
    // A server says what became of it.
    answers(&fixture, [refusal(251, &[TRANSIENT_TRANSACTION]), refusal(13, &[])]);
    for _ in 0..2 {
        let error = fixture.run(async { session.commit_transaction().await.unwrap_err() });
        assert!(!error.has_label(UNKNOWN_COMMIT_RESULT), "{error:?}");
    }
}

/// An overload that is not to be met with another attempt: nothing was done, nothing is unknown.
#[test]
fn a_commit_that_is_refused_for_overload_is_not_in_doubt() {
    let fixture = Fixture::with_sessions("");
    let (_client, session) = start(&fixture);
    answers(&fixture, [Some(rawdoc! { "ok": 1 }), refusal(462, &[SYSTEM_OVERLOADED])]);
    let failed = fixture.run(session.with_transaction(async |session| {
        insert(&fixture, &session).await?;
        Ok::<_, Error>(())
    }));
    assert_eq!(failed.unwrap_err().labels(), [SYSTEM_OVERLOADED]);
    assert_eq!(names(&received(&fixture)), ["insert", "commitTransaction"]);
}

/// A command that was refused for overload, and was done when it came again, has not failed.
#[test]
fn an_overload_that_has_passed_is_no_failure() {
    let fixture = Fixture::with_sessions("");
    let (_client, session) = start(&fixture);
    let overload = refusal(462, &[SYSTEM_OVERLOADED, RETRYABLE]);
    let gone = refusal(251, &[TRANSIENT_TRANSACTION]);
    answers(&fixture, [overload, Some(rawdoc! { "ok": 1 }), gone]);
    let run = session.with_transaction(async |session| insert(&fixture, &session).await);
    patiently(&fixture, run).unwrap();
    let expected = ["insert", "insert", "commitTransaction", "insert", "commitTransaction"];
    assert_eq!(names(&received(&fixture)), expected);
}

/// A callback that goes on behind a command which has failed for good fails each time.
#[test]
fn a_callback_that_goes_on_after_a_failure_is_not_called_again() {
    let fixture = Fixture::with_sessions("");
    let (_client, session) = start(&fixture);
    let calls = Cell::new(0);
    let gone = || refusal(251, &[TRANSIENT_TRANSACTION]);
    answers(&fixture, [refusal(11000, &[]), gone()]);
    let failed = fixture.run(session.with_transaction(async |session| {
        calls.set(calls.get() + 1);
        let _ = insert(&fixture, &session).await;
        insert(&fixture, &session).await
    }));
    let error = failed.unwrap_err();
    assert_eq!((error.code(), calls.get()), (Some(251), 1));
    assert!(!error.to_string().contains("run the transaction again as a whole"), "{error}");
}

/// An abort that is given up while it waits for a connection is made in the background.
#[test]
fn an_abort_that_is_dropped_before_it_is_sent_is_sent_in_the_background() {
    let fixture = Fixture::with_sessions("maxPoolSize=1");
    let (_client, session) = start(&fixture);
    begin(&fixture, &session);
    fixture.server.mute.store(true, Ordering::Relaxed);
    let mut holds_the_connection = Task::new(fixture.ping(None));
    assert!(holds_the_connection.poll().is_pending());
    let mut abort = Task::new(async { session.abort_transaction().await });
    assert!(abort.poll().is_pending());
    drop((abort, holds_the_connection));
    fixture.server.mute.store(false, Ordering::Relaxed);
    received(&fixture);
    run_tasks(&fixture);
    assert_eq!(names(&received(&fixture)), ["abortTransaction"]);
    assert_eq!(session.transaction_state().unwrap(), TransactionState::Aborted);
}

/// An abort whose time is over while it waits for a connection is made in the background, and the
/// next operation of the session waits for that.
#[test]
fn an_abort_that_was_not_sent_in_time_is_sent_in_the_background() {
    let fixture = Fixture::with_sessions("maxPoolSize=1");
    let (_client, session) = start(&fixture);
    begin(&fixture, &session);
    fixture.server.mute.store(true, Ordering::Relaxed);
    let mut holds_the_connection = Task::new(fixture.ping(None));
    assert!(holds_the_connection.poll().is_pending());
    let abort = session.abort_transaction().timeout(Duration::from_millis(100));
    let mut abort = Task::new(async { abort.await });
    assert!(abort.poll().is_pending());
    fixture.pass(Duration::from_millis(100));
    assert!(abort.poll().is_ready(), "its time is over");
    let mut next = Task::new(insert(&fixture, &session));
    assert!(next.poll().is_pending(), "it waits for the abort");
    drop(holds_the_connection);
    fixture.server.mute.store(false, Ordering::Relaxed);
    received(&fixture);
    run_tasks(&fixture);
    patiently_to_its_end(&fixture, next).unwrap();
    assert_eq!(names(&received(&fixture)), ["abortTransaction", "insert"]);
}

/// The next transaction of a session waits for the abort of one that was given up before.
#[test]
fn a_session_whose_transaction_is_being_aborted_is_waited_for() {
    let fixture = Fixture::with_sessions("");
    let (_client, session) = start(&fixture);
    let mut given_up = Task::new(session.with_transaction(async |session| {
        insert(&fixture, &session).await?;
        std::future::pending::<Result<(), Error>>().await
    }));
    while given_up.poll().is_pending() && names(&received(&fixture)).is_empty() {
        fixture.establish();
    }
    drop(given_up);
    let mut next =
        Task::new(session.with_transaction(async |session| insert(&fixture, &session).await));
    assert!(next.poll().is_pending(), "it waits for the abort");
    run_tasks(&fixture);
    patiently_to_its_end(&fixture, next).unwrap();
    let expected = ["abortTransaction", "insert", "commitTransaction"];
    assert_eq!(names(&received(&fixture)), expected);
}

/// `close` waits for transactions that are being aborted, and aborts those that are open.
#[test]
fn a_client_that_is_closed_aborts_what_is_open() {
    for is_held in [false, true] {
        let fixture = Fixture::with_sessions("");
        let (client, session) = start(&fixture);
        begin(&fixture, &session);
        received(&fixture);
        let held = is_held.then_some(session);
        let mut close = Task::new(client.close());
        assert!(close.poll().is_pending(), "it waits for the abort");
        run_tasks(&fixture);
        assert_eq!(names(&received(&fixture)), ["abortTransaction"]);
        drop((close, held));
    }
}

/// A time-out has the error within for which all was run again.
#[test]
fn the_last_error_that_says_something_is_in_the_time_out() {
    let fixture = Fixture::with_sessions("timeoutMS=400");
    let (_client, session) = start(&fixture);
    let calls = Cell::new(0);
    let run = session.with_transaction(async |session| {
        calls.set(calls.get() + 1);
        if calls.get() > 1 {
            fixture.pass(Duration::from_millis(400));
        }
        insert(&fixture, &session).await
    });
    answers(&fixture, [refusal(112, &[TRANSIENT_TRANSACTION])]);
    let error = patiently(&fixture, run).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::Timeout, Some(112)), "{error}");
    assert!(error.has_label(TRANSIENT_TRANSACTION));
}
