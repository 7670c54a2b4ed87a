//! Retryable Reads, prose tests 1 to 5.

use bson::{Document, doc};

use super::{Fixture, has_failed};

/// The labels of an error of overload.
fn overload() -> Vec<&'static str> {
    vec!["RetryableError", "SystemOverloadedError"]
}

fn find_fails(code: i32, labels: Vec<&str>) -> Document {
    doc! { "failCommands": ["find"], "errorCode": code, "errorLabels": labels }
}

/// 1: both reads succeed, although the pool is cleared while the second waits for a connection.
#[test]
fn a_read_that_finds_the_pool_cleared_is_sent_again() {
    let mut fixture = Fixture::new("maxPoolSize=1&retryReads=true");
    let data = doc! {
        "failCommands": ["find"], "errorCode": 91, "blockConnection": true, "blockTimeMS": 1000,
    };
    fixture.fail(fixture.primary(), doc! { "times": 1 }, data);
    let (first, second) = (fixture.things(), fixture.things());
    let beside = fixture.begin(async move { second.find_one(doc! {}).await });
    fixture.run(async move { first.find_one(doc! {}).await }).0.unwrap();
    beside.lock().unwrap().take().unwrap().unwrap();
    let told = fixture.check_outs();
    let beginning = ["connectionCheckedOut", "poolCleared", "connectionCheckOutFailed"];
    assert_eq!(told[..3], beginning, "{told:?}");
    assert_eq!(fixture.started("find").len(), 3);
}

/// 2.1: on a sharded cluster, another mongos is asked.
#[test]
fn a_read_is_sent_again_to_another_mongos() {
    for seed in 0..20 {
        let mut fixture = Fixture::sharded(2, "retryReads=true", seed);
        for mongos in 0..2 {
            let data = doc! { "failCommands": ["find"], "errorCode": 6 };
            fixture.fail(sdam_cluster::MemberId(mongos), doc! { "times": 1 }, data);
        }
        let things = fixture.things();
        let (found, _) = fixture.run(async move { things.find_one(doc! {}).await });
        assert_eq!(found.unwrap_err().code(), Some(6));
        let ended = fixture.ended("find");
        assert_eq!(ended.iter().map(|it| it.succeeded).collect::<Vec<_>>(), [false, false]);
        assert_ne!(ended[0].address, ended[1].address);
    }
}

/// 2.2: where there is one mongos, the same is asked again.
#[test]
fn a_read_is_sent_again_to_the_only_mongos() {
    let mut fixture = Fixture::sharded(1, "retryReads=true", 7);
    let data = doc! { "failCommands": ["find"], "errorCode": 6 };
    fixture.fail(fixture.primary(), doc! { "times": 1 }, data);
    let things = fixture.things();
    let (found, _) = fixture.run(async move { things.find_one(doc! {}).await });
    assert_eq!(found.unwrap(), None);
    let ended = fixture.ended("find");
    assert_eq!(ended.iter().map(|it| it.succeeded).collect::<Vec<_>>(), [false, true]);
    assert_eq!(ended[0].address, ended[1].address);
}

/// Reads with primaryPreferred when the primary fails one with these labels; returns whether the
/// same member was asked again.
fn asks_the_same_member_again(options: &str, labels: Vec<&str>) -> bool {
    let options = format!("{options}&retryReads=true&readPreference=primaryPreferred");
    let options = options.trim_start_matches('&');
    let mut fixture = Fixture::new(options);
    fixture.fail(fixture.primary(), doc! { "times": 1 }, find_fails(6, labels));
    let things = fixture.things();
    let (found, _) = fixture.run(async move { things.find_one(doc! {}).await });
    assert_eq!(found.unwrap(), None);
    let ended = fixture.ended("find");
    assert_eq!(ended.iter().map(|it| it.succeeded).collect::<Vec<_>>(), [false, true]);
    ended[0].address == ended[1].address
}

/// 3.1, 3.2 and 3.3: another member of a replica set is asked after an error of overload only, and
/// if that is wanted.
#[test]
fn a_read_is_sent_to_another_member_after_overload_if_that_is_wanted() {
    assert!(!asks_the_same_member_again("enableOverloadRetargeting=true", overload()));
    assert!(asks_the_same_member_again("enableOverloadRetargeting=true", vec!["RetryableError"]));
    assert!(asks_the_same_member_again("enableOverloadRetargeting=false", overload()));
    assert!(asks_the_same_member_again("", overload()));
}

/// 4: after one error of overload, the number of retries is that of overload for all errors.
#[test]
fn one_error_of_overload_sets_the_number_of_all_retries() {
    let mut fixture = Fixture::new("retryReads=true");
    let primary = fixture.primary();
    fixture.fail(primary, doc! { "times": 1 }, find_fails(91, overload()));
    let things = fixture.things();
    let (mut failed, retryable) = (0, vec!["RetryableError"]);
    let (found, _) =
        fixture.run_with(async move { things.find_one(doc! {}).await }, |fixture, kind| {
            if has_failed(kind, "find") {
                failed += 1;
                if failed == 1 {
                    let data = find_fails(91, retryable.clone());
                    fixture.fail(primary, "alwaysOn", data);
                }
            }
        });
    assert_eq!(found.unwrap_err().code(), Some(91));
    assert_eq!(fixture.started("find").len(), 3, "MAX_RETRIES is 2");
}

/// 5: the operation pauses after the error of overload, and not after the next error. The code is
/// 6 instead of 91, after which the server is Unknown, so that a selection would wait as well.
#[test]
fn a_read_pauses_after_overload_only() {
    let mut pauses = Vec::new();
    for seed in 0..20 {
        let mut fixture = Fixture::seeded("retryReads=true", seed);
        let primary = fixture.primary();
        fixture.fail(primary, doc! { "times": 1 }, find_fails(6, overload()));
        let things = fixture.things();
        let mut failed = 0;
        let (found, _) =
            fixture.run_with(async move { things.find_one(doc! {}).await }, |fixture, kind| {
                if has_failed(kind, "find") {
                    failed += 1;
                    if failed == 1 {
                        fixture.fail(primary, "alwaysOn", find_fails(6, vec!["RetryableError"]));
                    }
                }
            });
        assert_eq!(found.unwrap_err().code(), Some(6));
        let (started, ended) = (fixture.started("find"), fixture.ended("find"));
        assert_eq!(started.len(), 3);
        pauses.push(started[1] - ended[0].at);
        assert_eq!(started[2], ended[1].at, "the second error is no reason to pause");
    }
    let most = std::time::Duration::from_millis(200);
    assert!(pauses.iter().all(|pause| *pause <= most), "{pauses:?}");
    assert!(pauses.iter().any(|pause| *pause > most / 2), "{pauses:?}");
}
