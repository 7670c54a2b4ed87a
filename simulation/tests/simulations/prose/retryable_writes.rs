//! Retryable Writes, prose tests 2 to 6. Of test 1, an error with code 20 has another text: see
//! `host/src/tests/operations.rs`.

use bson::{Document, doc};
use sdam::error::Error;
use sdam_cluster::MemberId;
use sdam_core::command::CommandEvent;
use sdam_core::topology::EventKind;

use super::{Fixture, has_failed};

const NOTHING_WRITTEN: &str = "NoWritesPerformed";

fn insert_fails(code: i32, labels: &[&str]) -> Document {
    doc! { "failCommands": ["insert"], "errorCode": code, "errorLabels": labels.to_vec() }
}

/// 2: both writes succeed, although the pool is cleared while the second waits for a connection.
#[test]
fn a_write_that_finds_the_pool_cleared_is_sent_again() {
    let mut fixture = Fixture::new("maxPoolSize=1&retryWrites=true");
    let data = doc! {
        "failCommands": ["insert"], "errorCode": 91, "blockConnection": true, "blockTimeMS": 1000,
        "errorLabels": ["RetryableWriteError"],
    };
    fixture.fail(fixture.primary(), doc! { "times": 1 }, data);
    let (first, second) = (fixture.things(), fixture.things());
    let beside = fixture.begin(async move { second.insert_one(&doc! { "_id": 2 }).await });
    fixture.run(async move { first.insert_one(&doc! { "_id": 1 }).await }).0.unwrap();
    beside.lock().unwrap().take().unwrap().unwrap();
    let told = fixture.check_outs();
    let beginning = ["connectionCheckedOut", "poolCleared", "connectionCheckOutFailed"];
    assert_eq!(told[..3], beginning, "{told:?}");
    assert_eq!(fixture.started("insert").len(), 3);
}

/// 3: an error of the write concern that can be retried is the one that the caller gets, if the
/// next attempt has written nothing.
#[test]
fn the_original_error_of_the_write_concern_is_told() {
    let mut fixture = Fixture::new("retryWrites=true");
    let primary = fixture.primary();
    let data = doc! {
        "failCommands": ["insert"], "errorLabels": ["RetryableWriteError"],
        "writeConcernError": { "code": 91 },
    };
    fixture.fail(primary, doc! { "times": 1 }, data);
    let things = fixture.things();
    let (inserted, _) = fixture.run_with(
        async move { things.insert_one(&doc! { "_id": 1 }).await },
        |fixture, kind| {
            if let EventKind::Command { event: CommandEvent::CommandSucceeded { .. }, .. } = kind {
                let data = insert_fails(10107, &["RetryableWriteError", NOTHING_WRITTEN]);
                fixture.fail(primary, doc! { "times": 1 }, data);
            }
        },
    );
    assert_eq!(inserted.unwrap_err().code(), Some(91));
    assert_eq!(fixture.started("insert").len(), 2);
}

/// 4: on a sharded cluster, another mongos is asked.
#[test]
fn a_write_is_sent_again_to_another_mongos() {
    for seed in 0..20 {
        let mut fixture = Fixture::sharded(2, "retryWrites=true", seed);
        for mongos in 0..2 {
            let data = insert_fails(6, &["RetryableWriteError"]);
            fixture.fail(MemberId(mongos), doc! { "times": 1 }, data);
        }
        let things = fixture.things();
        let (done, _) = fixture.run(async move { things.insert_one(&doc! { "_id": 1 }).await });
        assert_eq!(done.unwrap_err().code(), Some(6));
        let ended = fixture.ended("insert");
        assert_eq!(ended.iter().map(|it| it.succeeded).collect::<Vec<_>>(), [false, false]);
        assert_ne!(ended[0].address, ended[1].address);
    }
}

/// 5: where there is one mongos, the same is asked again, also after a connection that broke.
#[test]
fn a_write_is_sent_again_to_the_only_mongos() {
    let mut fixture = Fixture::sharded(1, "retryWrites=true", 7);
    let mut data = insert_fails(6, &["RetryableWriteError"]);
    data.insert("closeConnection", true);
    fixture.fail(fixture.primary(), doc! { "times": 1 }, data);
    let things = fixture.things();
    let (done, _) = fixture.run(async move { things.insert_one(&doc! { "_id": 1 }).await });
    done.unwrap();
    let ended = fixture.ended("insert");
    assert_eq!(ended.iter().map(|it| it.succeeded).collect::<Vec<_>>(), [false, true]);
    assert_eq!(ended[0].address, ended[1].address);
}

/// Inserts when the first attempt fails with code 91 and these labels, and all others with that
/// code and those labels; returns the error, and the number of attempts.
fn two_errors(first: &[&str], code: i32, others: &[&str]) -> (Error, usize) {
    let mut fixture = Fixture::new("retryWrites=true");
    let primary = fixture.primary();
    fixture.fail(primary, doc! { "times": 1 }, insert_fails(91, first));
    let things = fixture.things();
    let mut failed = 0;
    let (done, _) = fixture.run_with(
        async move { things.insert_one(&doc! { "_id": 1 }).await },
        |fixture, kind| {
            if has_failed(kind, "insert") {
                failed += 1;
                if failed == 1 {
                    fixture.fail(primary, "alwaysOn", insert_fails(code, others));
                }
            }
        },
    );
    (done.unwrap_err(), fixture.started("insert").len())
}

const OVERLOAD: [&str; 2] = ["RetryableError", "SystemOverloadedError"];
const OVERLOAD_BEFORE_WRITING: [&str; 3] =
    ["RetryableError", "SystemOverloadedError", NOTHING_WRITTEN];

/// 6, case 1: of errors without `NoWritesPerformed`, the last is returned.
#[test]
fn the_last_error_is_told_where_all_may_have_written() {
    assert_eq!(two_errors(&OVERLOAD, 10107, &OVERLOAD).0.code(), Some(10107));
}

/// 6, case 2: of errors with `NoWritesPerformed`, the first is returned.
#[test]
fn the_first_error_is_told_where_none_has_written() {
    let (error, _) = two_errors(&OVERLOAD_BEFORE_WRITING, 10107, &OVERLOAD_BEFORE_WRITING);
    assert_eq!(error.code(), Some(91));
}

/// 6, case 3: of both kinds, one without `NoWritesPerformed` is returned.
#[test]
fn an_error_that_may_have_written_is_told_rather_than_one_that_has_not() {
    let (error, _) = two_errors(&OVERLOAD, 91, &OVERLOAD_BEFORE_WRITING);
    assert_eq!(error.code(), Some(91));
    assert!(!error.labels().contains(&NOTHING_WRITTEN), "{:?}", error.labels());
}

/// 6, case 4: after one error of overload, the number of retries is that of overload for all.
#[test]
fn one_error_of_overload_sets_the_number_of_all_retries_of_a_write() {
    let (error, attempts) = two_errors(&OVERLOAD, 91, &["RetryableError", "RetryableWriteError"]);
    assert_eq!((error.code(), attempts), (Some(91), 3), "MAX_RETRIES is 2");
}

/// 6, case 5: the operation pauses after the error of overload, and not after the next error. The
/// code is 6 instead of 91, after which the server is Unknown, so that a selection would wait.
#[test]
fn a_write_pauses_after_overload_only() {
    let mut fixture = Fixture::new("retryWrites=true");
    let primary = fixture.primary();
    fixture.fail(primary, doc! { "times": 1 }, insert_fails(6, &OVERLOAD));
    let things = fixture.things();
    let mut failed = 0;
    let (done, _) = fixture.run_with(
        async move { things.insert_one(&doc! { "_id": 1 }).await },
        |fixture, kind| {
            if has_failed(kind, "insert") {
                failed += 1;
                if failed == 1 {
                    let data = insert_fails(6, &["RetryableError", "RetryableWriteError"]);
                    fixture.fail(primary, "alwaysOn", data);
                }
            }
        },
    );
    assert_eq!(done.unwrap_err().code(), Some(6));
    let (started, ended) = (fixture.started("insert"), fixture.ended("insert"));
    assert_eq!(started.len(), 3);
    assert!(started[1] > ended[0].at, "overload is a reason to pause");
    assert_eq!(started[2], ended[1].at, "the second error is no reason to pause");
}
