//! Client Backpressure, prose tests 1, 3 and 4. Of test 5, servers that say how long to wait are
//! newer than any that there is: `baseBackoffMS` is tested in `core/src/operation/retry`.

use std::time::Duration;

use bson::{Document, doc};

use super::Fixture;

fn overload(command: &str, code: i32) -> Document {
    doc! {
        "failCommands": [command], "errorCode": code,
        "errorLabels": ["SystemOverloadedError", "RetryableError"],
    }
}

/// 1: retries pause by a random part of 200 ms and then of 400 ms. What is drawn depends on the
/// seed: of many, some come close to no pause at all, and some to the longest.
#[test]
fn retries_pause_longer_each_time() {
    let mut pauses = Vec::new();
    for seed in 0..60 {
        let mut fixture = Fixture::seeded("", seed);
        fixture.fail(fixture.primary(), "alwaysOn", overload("insert", 2));
        let things = fixture.things();
        let (done, took) = fixture.run(async move { things.insert_one(&doc! { "a": 1 }).await });
        assert_eq!(done.unwrap_err().code(), Some(2));
        let (started, ended) = (fixture.started("insert"), fixture.ended("insert"));
        assert_eq!(started.len(), 3);
        let both = [started[1] - ended[0].at, started[2] - ended[1].at];
        assert!(both[0] <= Duration::from_millis(200) && both[1] <= Duration::from_millis(400));
        assert!(took >= both[0] + both[1]);
        pauses.push(both);
    }
    for (index, most) in [200, 400].map(Duration::from_millis).into_iter().enumerate() {
        let drawn = || pauses.iter().map(|both| both[index]);
        assert!(drawn().min().unwrap() < most / 10, "{pauses:?}");
        assert!(drawn().max().unwrap() > most * 9 / 10, "{pauses:?}");
    }
}

/// The number of times that a find is sent which is always refused for overload.
fn attempts(options: &str) -> usize {
    let mut fixture = Fixture::new(options);
    fixture.fail(fixture.primary(), "alwaysOn", overload("find", 462));
    let things = fixture.things();
    let (found, _) = fixture.run(async move { things.find_one(doc! {}).await });
    let error = found.unwrap_err();
    for label in ["RetryableError", "SystemOverloadedError"] {
        assert!(error.labels().contains(&label), "{:?}", error.labels());
    }
    fixture.started("find").len()
}

/// 3: `MAX_RETRIES` is 2.
#[test]
fn overload_is_retried_twice() {
    assert_eq!(attempts(""), 3);
}

/// 4: or as often as `maxAdaptiveRetries` says.
#[test]
fn overload_is_retried_as_often_as_the_application_says() {
    assert_eq!(attempts("maxAdaptiveRetries=1"), 2);
    assert_eq!(attempts("maxAdaptiveRetries=0"), 1);
    assert_eq!(attempts("maxAdaptiveRetries=4"), 5);
}
