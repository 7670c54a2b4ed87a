//! Transactions as sessions and operations have them: what is sent, and what becomes of one that is
//! dropped.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use bson::{RawDocument, RawDocumentBuf, Timestamp, cstr, rawdoc};
use sdam_core::config::WriteConcern;
use sdam_core::operation::{
    CommandMessage, OperationOptions, RETRYABLE, RETRYABLE_WRITE, SYSTEM_OVERLOADED,
    TRANSIENT_TRANSACTION, Timeout, UNKNOWN_COMMIT_RESULT,
};
use sdam_core::selection::Criteria;
use sdam_core::session::{CommitOutcome, SessionOptions, TransactionRemedy, TransactionState};

use super::fixture::{Fixture, Task};
use super::{Puppet, lock};
use crate::client::Topology;
use crate::client::driver::DriverTopology;
use crate::error::{Error, ErrorKind};
use crate::operations::pinned::Pinned;
use crate::operations::request::{Request, Target};
use crate::operations::session::{ClientSession, DriverSession};

/// A client, and a session of it.
pub(super) fn start(fixture: &Fixture) -> (Topology<Puppet>, ClientSession<Puppet>) {
    let client = Topology::from_host(Arc::clone(&fixture.host));
    let session = client.start_session(SessionOptions::default()).unwrap();
    (client, session)
}

pub(super) async fn insert(
    fixture: &Fixture,
    session: &ClientSession<Puppet>,
) -> Result<(), Error> {
    let timeout = session.deadline().map_or(Timeout::Unset, Timeout::At);
    let mut guard = session.acquire(&fixture.host, timeout).await?;
    let (command, options) = (rawdoc! { "insert": "things" }, OperationOptions::write());
    let message = CommandMessage::new("db", &command);
    let target = Target::Select(Arc::new(Criteria::write()));
    let request = Request::new(message, &options, target)
        .with_session(Some(&mut guard))
        .with_timeout(timeout);
    fixture.host.operate(request).await.map(drop)
}

/// The commands that the server has received, without the names of sessions and databases.
pub(super) fn received(fixture: &Fixture) -> Vec<RawDocumentBuf> {
    let commands = std::mem::take(&mut *lock(&fixture.server.commands));
    let mut kept = Vec::new();
    for command in commands.iter().filter(|it| it.get("client").unwrap().is_none()) {
        let mut copy = RawDocumentBuf::new();
        for (name, value) in command.iter().map(Result::unwrap) {
            if !matches!(name.as_str(), "lsid" | "$db" | "$clusterTime") {
                copy.append(name, value);
            }
        }
        kept.push(copy);
    }
    kept
}

pub(super) fn names(commands: &[RawDocumentBuf]) -> Vec<&str> {
    commands.iter().map(|it| it.iter().next().unwrap().unwrap().0.as_str()).collect()
}

pub(super) fn answers(
    fixture: &Fixture,
    replies: impl IntoIterator<Item = Option<RawDocumentBuf>>,
) {
    lock(&fixture.server.replies).extend(replies);
}

pub(super) fn refusal(code: i32, labels: &[&str]) -> Option<RawDocumentBuf> {
    let labels: bson::RawArrayBuf = labels.iter().copied().collect();
    Some(rawdoc! { "ok": 0, "code": code, "errmsg": "no", "errorLabels": labels })
}

pub(super) fn run_tasks(fixture: &Fixture) {
    let tasks = std::mem::take(&mut *lock(&fixture.host.runtime().tasks));
    let mut tasks: Vec<_> = tasks.into_iter().map(Task::new).collect();
    for _ in 0..100 {
        tasks.retain_mut(|task| task.poll().is_pending());
        fixture.establish();
    }
    assert!(tasks.is_empty(), "a task does not end");
}

/// Runs something to its end while time passes, and the server is checked.
pub(super) fn patiently<T>(fixture: &Fixture, future: impl Future<Output = T>) -> T {
    patiently_to_its_end(fixture, Task::new(future))
}

pub(super) fn patiently_to_its_end<T>(fixture: &Fixture, mut task: Task<'_, T>) -> T {
    for _ in 0..1000 {
        if let Poll::Ready(output) = task.poll() {
            return output;
        }
        fixture.establish();
        fixture.pass(Duration::from_millis(10));
        fixture.check_again();
    }
    panic!("the task does not end")
}

/// Transactions, "Constructing the first command within a transaction", "Constructing any other
/// command", and the commands that end it.
#[test]
fn commands_carry_what_their_place_in_a_transaction_asks_for() {
    let fixture = Fixture::with_sessions("");
    let (_client, session) = start(&fixture);
    let token = rawdoc! { "shard": "a" };
    answers(&fixture, [Some(rawdoc! { "ok": 1, "recoveryToken": token.clone() })]);
    fixture.run(async {
        session.start_transaction().write_concern(WriteConcern::majority()).await.unwrap();
        assert_eq!(session.transaction_state().unwrap(), TransactionState::Starting);
        insert(&fixture, &session).await.unwrap();
        insert(&fixture, &session).await.unwrap();
        assert_eq!(session.transaction_state().unwrap(), TransactionState::InProgress);
        session.commit_transaction().await.unwrap();
        session.commit_transaction().await.unwrap();
        session.start_transaction().await.unwrap();
        insert(&fixture, &session).await.unwrap();
        session.abort_transaction().await.unwrap();
        insert(&fixture, &session).await.unwrap();
    });
    let within = rawdoc! { "insert": "things", "txnNumber": 1_i64, "autocommit": false };
    let starting = |number: i64| {
        rawdoc! {
            "insert": "things", "txnNumber": number, "startTransaction": true, "autocommit": false,
        }
    };
    let commit = |concern: RawDocumentBuf| {
        rawdoc! {
            "commitTransaction": 1, "txnNumber": 1_i64, "autocommit": false,
            "recoveryToken": token.clone(), "writeConcern": concern,
        }
    };
    let expected = [
        starting(1),
        within,
        commit(rawdoc! { "w": "majority" }),
        commit(rawdoc! { "w": "majority", "wtimeout": 10_000 }),
        starting(2),
        rawdoc! { "abortTransaction": 1, "txnNumber": 2_i64, "autocommit": false },
        rawdoc! { "insert": "things" },
    ];
    assert_eq!(received(&fixture), expected);
}

/// A transaction of which no command was sent ends without one.
#[test]
fn an_empty_transaction_sends_nothing() {
    let fixture = Fixture::with_sessions("");
    let (_client, session) = start(&fixture);
    fixture.run(async {
        session.start_transaction().await.unwrap();
        session.commit_transaction().await.unwrap();
        session.commit_transaction().await.unwrap();
        session.start_transaction().await.unwrap();
        session.abort_transaction().await.unwrap();
    });
    drop(session);
    run_tasks(&fixture);
    assert_eq!(received(&fixture).len(), 0);
}

/// "drivers MUST NOT propagate errors" of an abort, and "MUST retry" it once.
#[test]
fn an_abort_never_fails_and_is_sent_twice_at_most() {
    let fixture = Fixture::with_sessions("retryWrites=false");
    let (_client, session) = start(&fixture);
    fixture.run(async {
        session.start_transaction().await.unwrap();
        insert(&fixture, &session).await.unwrap();
    });
    let unreachable = || refusal(6, &["RetryableWriteError"]);
    answers(&fixture, [unreachable(), unreachable()]);
    fixture.run(async { session.abort_transaction().await.unwrap() });
    assert_eq!(session.transaction_state().unwrap(), TransactionState::Aborted);
    let expected = ["insert", "abortTransaction", "abortTransaction"];
    assert_eq!(names(&received(&fixture)), expected);
}

/// The order of their arrival would decide about the transaction.
#[test]
fn two_operations_of_a_transaction_at_once_are_refused() {
    let fixture = Fixture::with_sessions("");
    let (_client, session) = start(&fixture);
    fixture.run(async { session.start_transaction().await.unwrap() });
    let guard = session.try_acquire().unwrap();
    let refused = fixture.run(insert(&fixture, &session)).unwrap_err();
    assert!(refused.is_session_in_use());
    assert!(refused.to_string().contains("another operation of the transaction"), "{refused}");
    drop(guard);
    fixture.run(insert(&fixture, &session)).unwrap();
}

/// Driver Sessions, "endSession": a transaction in progress is aborted, and the servers' session
/// used again only then.
#[test]
fn the_transaction_of_a_session_that_is_dropped_is_aborted_in_the_background() {
    let fixture = Fixture::with_sessions("");
    let mut clients = Vec::new();
    for ends in [false, true] {
        let (client, session) = start(&fixture);
        let id = session.id().unwrap().to_owned();
        fixture.run(async {
            session.start_transaction().await.unwrap();
            insert(&fixture, &session).await.unwrap();
        });
        received(&fixture);
        if ends {
            session.end();
        }
        drop(session);
        let next = client.start_session(SessionOptions::default()).unwrap();
        assert_ne!(next.id(), Some(&*id), "it is still in use");
        run_tasks(&fixture);
        assert_eq!(names(&received(&fixture)), ["abortTransaction"]);
        let again = client.start_session(SessionOptions::default()).unwrap();
        assert_eq!(again.id(), Some(&*id), "it was given back");
        clients.push(client);
    }
}

/// The command may have been carried out, so that the transaction is in progress.
#[test]
fn an_operation_that_is_dropped_leaves_a_transaction_that_is_aborted() {
    let fixture = Fixture::with_sessions("");
    let (_client, session) = start(&fixture);
    fixture.run(async { session.start_transaction().await.unwrap() });
    fixture.run(fixture.ping(None)).unwrap();
    fixture.server.mute.store(true, Ordering::Relaxed);
    let mut dropped = Task::new(insert(&fixture, &session));
    while dropped.poll().is_pending() && received(&fixture).is_empty() {
        fixture.establish();
    }
    drop(dropped);
    fixture.server.mute.store(false, Ordering::Relaxed);
    assert_eq!(session.transaction_state().unwrap(), TransactionState::InProgress);
    received(&fixture);
    drop(session);
    run_tasks(&fixture);
    assert_eq!(names(&received(&fixture)), ["abortTransaction"]);
}

/// CTX-P1 and P2: an error of the callback's own ends it, and its value is returned.
#[test]
fn ctx_p1_p2_the_callback_decides() {
    let fixture = Fixture::with_sessions("");
    let (_client, session) = start(&fixture);
    let value = fixture.run(session.with_transaction(async |session| {
        insert(&fixture, &session).await?;
        Ok::<_, Error>("Foo")
    }));
    assert_eq!(value.unwrap(), "Foo");
    assert_eq!(names(&received(&fixture)), ["insert", "commitTransaction"]);
    let calls = Cell::new(0);
    let failed = fixture.run(session.with_transaction(async |session| {
        calls.set(calls.get() + 1);
        insert(&fixture, &session).await?;
        Err::<(), _>(Error::custom("overdrawn"))
    }));
    assert_eq!((failed.unwrap_err().kind(), calls.get()), (ErrorKind::Application, 1));
    assert_eq!(names(&received(&fixture)), ["insert", "abortTransaction"]);
}

/// "Sequence of Actions", 7.2, 10.1.2 and 10.2.
#[test]
fn transient_errors_run_it_again_and_unknown_results_only_the_commit() {
    let fixture = Fixture::with_sessions("");
    let (_client, session) = start(&fixture);
    let ok = || Some(rawdoc! { "ok": 1 });
    let conflict = || refusal(112, &[TRANSIENT_TRANSACTION]);
    let unknown = || refusal(91, &[UNKNOWN_COMMIT_RESULT]);
    answers(&fixture, [conflict(), ok(), ok(), unknown(), conflict(), ok(), ok()]);
    let calls = Cell::new(0);
    let run = session.with_transaction(async |session| {
        calls.set(calls.get() + 1);
        insert(&fixture, &session).await
    });
    patiently(&fixture, run).unwrap();
    let commands = received(&fixture);
    let expected = [
        "insert",
        "abortTransaction",
        "insert",
        "commitTransaction",
        "commitTransaction",
        "insert",
        "commitTransaction",
    ];
    assert_eq!(names(&commands), expected);
    assert_eq!(calls.get(), 3);
    let number = |command: &RawDocument| command.get_i64("txnNumber").unwrap();
    let numbers: Vec<i64> = commands.iter().map(|it| number(it)).collect();
    assert_eq!(numbers, [1, 1, 2, 2, 2, 3, 3]);
}

/// Transactions, "UnknownTransactionCommitResult", "write concern failed / timeout": a member that
/// has no such transaction, and does not hear from a majority, leaves open what came of it.
#[test]
fn what_less_than_a_majority_says_of_a_commit_is_not_known() {
    let fixture = Fixture::with_sessions("");
    let (_client, session) = start(&fixture);
    let late = rawdoc! { "code": 64, "errmsg": "waiting for replication timed out" };
    let late = rawdoc! { "ok": 0, "code": 251, "errmsg": "no", "writeConcernError": late };
    let gone = refusal(251, &[TRANSIENT_TRANSACTION]);
    answers(&fixture, [Some(rawdoc! { "ok": 1 }), Some(late), gone]);
    session.start_transaction().run().unwrap();
    fixture.run(insert(&fixture, &session)).unwrap();
    let commit = || fixture.run(session.commit_transaction().into_future()).unwrap_err();
    let unknown = commit();
    assert_eq!(unknown.labels(), [UNKNOWN_COMMIT_RESULT]);
    // It may have been committed: nothing advises to run it again.
    assert_eq!(unknown.verdict(), None, "{unknown}");
    let text = unknown.to_string();
    assert!(text.contains("commit again") && !text.contains("as a whole"), "{text}");
    let gone = commit();
    assert_eq!(gone.labels(), [TRANSIENT_TRANSACTION]);
    assert!(gone.to_string().contains("run the transaction again as a whole"), "{gone}");
}

/// Beyond "Handling errors inside the callback": no loop without an end.
#[test]
fn an_error_that_the_callback_hides_is_named() {
    let fixture = Fixture::with_sessions("");
    let (_client, session) = start(&fixture);
    answers(&fixture, [refusal(11000, &[]), refusal(251, &[TRANSIENT_TRANSACTION])]);
    let failed: Result<(), Error> = fixture.run(session.with_transaction(async |session| {
        let _ = insert(&fixture, &session).await;
        Ok(())
    }));
    let text = failed.unwrap_err().to_string();
    assert!(text.contains("insert on db has failed in it"), "{text}");
    assert_eq!(names(&received(&fixture)), ["insert", "commitTransaction"]);
}

/// "Timeout Error propagation": a time-out with the last error, and its labels.
#[test]
fn ctx_p3_when_time_is_over_the_last_error_is_in_the_time_out() {
    let fixture = Fixture::with_sessions("");
    let (_client, session) = start(&fixture);
    let mut run = Task::new(session.with_transaction(async |session| {
        answers(&fixture, [refusal(112, &[TRANSIENT_TRANSACTION])]);
        insert(&fixture, &session).await
    }));
    let mut outcome = None;
    for _ in 0..300 {
        if let Poll::Ready(failed) = run.poll() {
            outcome = Some(failed);
            break;
        }
        fixture.establish();
        fixture.pass(Duration::from_secs(1));
        fixture.check_again();
    }
    let error = outcome.expect("it ends").unwrap_err();
    assert!(error.is_timeout(), "{error}");
    assert!(error.has_label(TRANSIENT_TRANSACTION), "{error}");
    assert!(error.to_string().contains("107 attempts"), "{error}");
}

/// Client Side Operations Timeout, "Convenient Transactions API": one limit for all of it.
#[test]
fn operations_within_have_what_is_left_of_the_whole() {
    let fixture = Fixture::with_sessions("");
    let (_client, session) = start(&fixture);
    let whole = session.start_transaction().timeout(Duration::from_secs(5));
    let begun = fixture.now();
    let seen = fixture.run(whole.and_run(async |session| {
        insert(&fixture, &session).await?;
        Ok::<_, Error>(session.deadline())
    }));
    assert_eq!(seen.unwrap(), Some(begun + Duration::from_secs(5)));
    assert_eq!(session.deadline(), None, "it is over");
    let commands = received(&fixture);
    assert!(commands.iter().all(|it| it.get("maxTimeMS").unwrap().is_some()), "{commands:?}");
}

/// A transaction that is given up is aborted, and its session can be used again.
#[test]
fn a_whole_transaction_that_is_dropped_is_aborted_in_the_background() {
    let fixture = Fixture::with_sessions("");
    let (_client, session) = start(&fixture);
    let mut run = Task::new(session.with_transaction(async |session| {
        insert(&fixture, &session).await?;
        std::future::pending::<Result<(), Error>>().await
    }));
    while run.poll().is_pending() && names(&received(&fixture)).is_empty() {
        fixture.establish();
    }
    drop(run);
    run_tasks(&fixture);
    assert_eq!(names(&received(&fixture)), ["abortTransaction"]);
    fixture.run(async {
        session.start_transaction().await.unwrap();
        insert(&fixture, &session).await.unwrap();
    });
    assert_eq!(received(&fixture)[0].get_i64("txnNumber").unwrap(), 2);
}

/// With a client that is closed, no attempt comes to another end.
#[test]
fn a_client_that_is_closed_ends_a_whole_transaction() {
    let fixture = Fixture::with_sessions("");
    let (client, session) = start(&fixture);
    let ended = fixture.run(session.with_transaction(async |session| {
        client.close_now();
        insert(&fixture, &session).await
    }));
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::Closed);
}

/// The same, if it is closed between the callback and the commit.
#[test]
fn a_client_that_is_closed_ends_the_commit_of_a_whole_transaction() {
    let fixture = Fixture::with_sessions("");
    let (client, session) = start(&fixture);
    let ended = fixture.run(session.with_transaction(async |session| {
        insert(&fixture, &session).await?;
        client.close_now();
        Ok::<_, Error>(())
    }));
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::Closed);
}

/// A callback that does not wait for its operations: nothing is committed, and the transaction is
/// aborted once they have ended.
#[test]
fn a_callback_that_leaves_an_operation_behind_has_its_transaction_aborted() {
    let fixture = Fixture::with_sessions("");
    let (_client, session) = start(&fixture);
    let held = RefCell::new(None);
    let ended = fixture.run(session.with_transaction(async |session| {
        insert(&fixture, &session).await?;
        held.replace(session.try_acquire());
        Ok::<_, Error>(())
    }));
    let error = ended.unwrap_err();
    assert!(error.is_session_in_use(), "{error}");
    run_tasks(&fixture);
    assert_eq!(names(&received(&fixture)), ["insert"]);
    drop(held.take());
    run_tasks(&fixture);
    assert_eq!(names(&received(&fixture)), ["abortTransaction"]);
    assert_eq!(session.transaction_state().unwrap(), TransactionState::Aborted);
    fixture
        .run(session.with_transaction(async |session| insert(&fixture, &session).await))
        .unwrap();
}

/// UnknownTransactionCommitResult: a commit that may have been done stays one, whatever keeps
/// another call from asking.
#[test]
fn a_commit_that_may_have_been_done_is_unknown_until_a_server_answers() {
    let fixture = Fixture::with_sessions("");
    let (_client, session) = start(&fixture);
    let soon = Duration::from_nanos(1);
    let commit = |timeout: Option<Duration>| {
        let commit = session.commit_transaction();
        fixture.run(async {
            match timeout {
                Some(timeout) => commit.timeout(timeout).await,
                None => commit.await,
            }
        })
    };
    fixture.run(async {
        session.start_transaction().await.unwrap();
        insert(&fixture, &session).await.unwrap();
    });
    let late = commit(Some(soon)).unwrap_err();
    assert!(late.is_timeout() && !late.has_label(UNKNOWN_COMMIT_RESULT), "none was sent: {late}");
    answers(&fixture, [refusal(50, &[])]);
    assert!(commit(None).unwrap_err().has_label(UNKNOWN_COMMIT_RESULT));
    let late = commit(Some(soon)).unwrap_err();
    assert!(late.is_timeout() && late.has_label(UNKNOWN_COMMIT_RESULT), "{late:?}");
    assert_eq!(late.transaction().unwrap().remedy, TransactionRemedy::CommitAgain, "{late}");
    answers(&fixture, [refusal(251, &[TRANSIENT_TRANSACTION])]);
    let aborted = commit(None).unwrap_err();
    assert!(!aborted.has_label(UNKNOWN_COMMIT_RESULT), "{aborted:?}");
}

/// The same within one call: "a commitTransaction attempt has already failed with an error that is
/// not a retryable overload error" (Interaction with Client Backpressure).
#[test]
fn a_commit_that_may_have_been_done_is_unknown_if_it_meets_an_overload_later() {
    let fixture = Fixture::with_sessions("maxAdaptiveRetries=1");
    let (_client, session) = start(&fixture);
    fixture.run(async {
        session.start_transaction().await.unwrap();
        insert(&fixture, &session).await.unwrap();
    });
    let overload = || refusal(462, &[SYSTEM_OVERLOADED, RETRYABLE]);
    answers(&fixture, [refusal(91, &[RETRYABLE_WRITE]), overload()]);
    let commit = async { session.commit_transaction().await };
    let error = patiently(&fixture, commit).unwrap_err();
    assert_eq!(error.code(), Some(462), "{error}");
    assert!(error.has_label(UNKNOWN_COMMIT_RESULT), "{error}");
}

/// The outcome as a value, and what a client sends that asks for it again.
#[test]
fn an_unknown_outcome_is_asked_for_by_the_same_names() {
    let fixture = Fixture::with_sessions("");
    let (client, session) = start(&fixture);
    let recovery = rawdoc! { "shard": "a" };
    let replied = Some(rawdoc! { "ok": 1, "recoveryToken": recovery.clone() });
    answers(&fixture, [replied, refusal(50, &[])]);
    let outcome = fixture.run(async {
        session.start_transaction().await.unwrap();
        insert(&fixture, &session).await.unwrap();
        session.commit_transaction().outcome().await
    });
    let CommitOutcome::Unknown(token) = outcome.unwrap() else { panic!("it is not known") };
    assert_eq!(Some(token.session()), session.id());
    let id = session.id().unwrap().to_owned();
    drop(session);
    assert_ne!(client.start_session(SessionOptions::default()).unwrap().id(), Some(&*id));
    received(&fixture);
    let ask = |reply| {
        answers(&fixture, [reply]);
        fixture.run(client.recover_commit(&token, None))
    };
    let unknown = ask(refusal(50, &[])).unwrap();
    assert_eq!(unknown, CommitOutcome::Unknown(token.clone()));
    let aborted = ask(refusal(251, &[TRANSIENT_TRANSACTION])).unwrap();
    assert_eq!(aborted, CommitOutcome::Aborted);
    assert_eq!(ask(refusal(225, &[])).unwrap(), CommitOutcome::Forgotten);
    assert_eq!(ask(refusal(13, &[])).unwrap_err().code(), Some(13));
    let sent = lock(&fixture.server.commands).clone();
    assert_eq!(ask(Some(rawdoc! { "ok": 1 })).unwrap(), CommitOutcome::Committed);
    let of_session = |it: &RawDocumentBuf| it.get_document("lsid").is_ok_and(|it| *it == *id);
    assert!(sent.iter().all(of_session), "{sent:?}");
    let commit = rawdoc! {
        "commitTransaction": 1, "txnNumber": 1_i64, "autocommit": false,
        "recoveryToken": recovery, "writeConcern": { "w": "majority", "wtimeout": 10_000 },
    };
    assert_eq!(received(&fixture), vec![commit; 5]);
}

/// A server that knows no such transaction has aborted or forgotten it: it keeps the outcome for
/// as long as the session, from when the commit was called first.
#[test]
fn an_outcome_that_is_asked_for_after_half_an_hour_may_be_forgotten() {
    let fixture = Fixture::with_sessions("");
    let (client, session) = start(&fixture);
    let at = |mut reply: RawDocumentBuf, time| {
        reply.append(cstr!("operationTime"), Timestamp { time, increment: 1 });
        Some(reply)
    };
    let refused = |code, time| at(refusal(code, &[]).unwrap(), time);
    let unknown_there = |time| at(refusal(251, &[TRANSIENT_TRANSACTION]).unwrap(), time);
    answers(&fixture, [at(rawdoc! { "ok": 1 }, 1000), refused(50, 1010), refused(50, 2700)]);
    let outcome = || fixture.run(async { session.commit_transaction().outcome().await }).unwrap();
    fixture.run(async {
        session.start_transaction().await.unwrap();
        insert(&fixture, &session).await.unwrap();
    });
    assert!(matches!(outcome(), CommitOutcome::Unknown(_)));
    let CommitOutcome::Unknown(token) = outcome() else { panic!("it is not known") };
    let ask = |time| {
        answers(&fixture, [unknown_there(time)]);
        fixture.run(client.recover_commit(&token, None)).unwrap()
    };
    assert_eq!(ask(2739), CommitOutcome::Aborted);
    assert_eq!(ask(2740), CommitOutcome::Forgotten);
    answers(&fixture, [unknown_there(2740)]);
    assert_eq!(outcome(), CommitOutcome::Forgotten);
}

/// A commit that was called and has come to no server leaves the transaction open there, with its
/// locks: it is aborted with the session.
#[test]
fn a_transaction_whose_commit_was_not_sent_is_aborted_in_the_background() {
    let fixture = Fixture::with_sessions("");
    let (client, session) = start(&fixture);
    fixture.run(async {
        session.start_transaction().await.unwrap();
        insert(&fixture, &session).await.unwrap();
        let commit = session.commit_transaction().timeout(Duration::from_nanos(1));
        let late = commit.await.unwrap_err();
        assert!(late.is_timeout() && !late.has_label(UNKNOWN_COMMIT_RESULT), "{late:?}");
    });
    drop(session);
    run_tasks(&fixture);
    assert_eq!(names(&received(&fixture)), ["insert", "abortTransaction"]);
    // One that a server has answered is not aborted, whatever the answer was.
    let session = client.start_session(SessionOptions::default()).unwrap();
    answers(&fixture, [Some(rawdoc! { "ok": 1 }), refusal(13, &[])]);
    fixture.run(async {
        session.start_transaction().await.unwrap();
        insert(&fixture, &session).await.unwrap();
        session.commit_transaction().await.unwrap_err();
    });
    drop(session);
    run_tasks(&fixture);
    assert_eq!(names(&received(&fixture)), ["insert", "commitTransaction"]);
}

/// "any network error or server selection error": a mongos that is removed from the deployment
/// while transactions are pinned to it.
#[test]
fn a_mongos_that_is_removed_ends_no_more_than_an_attempt() {
    let fixture = Fixture::with_sessions("");
    let (_client, session) = start(&fixture);
    let pin_to_another = || {
        let criteria = Arc::new(Criteria::write());
        let another = "b:27017".parse().unwrap();
        session.try_acquire().unwrap().pin = Some(Pinned::to_server(another, criteria));
    };
    fixture.run(async {
        session.start_transaction().await.unwrap();
        insert(&fixture, &session).await.unwrap();
        pin_to_another();
        let failed = insert(&fixture, &session).await.unwrap_err();
        assert!(failed.has_label(TRANSIENT_TRANSACTION), "{failed:?}");
        assert_eq!(session.pinned_server(), None);
        session.abort_transaction().await.unwrap();
        session.start_transaction().await.unwrap();
        insert(&fixture, &session).await.unwrap();
        pin_to_another();
        let failed = session.commit_transaction().await.unwrap_err();
        assert!(failed.has_label(UNKNOWN_COMMIT_RESULT), "{failed:?}");
        session.commit_transaction().await.unwrap();
    });
    let expected = ["insert", "abortTransaction", "insert", "commitTransaction"];
    assert_eq!(names(&received(&fixture)), expected);
}
