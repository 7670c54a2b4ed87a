//! The limit of everything that an operation does (Client Side Operations Timeout).

use std::time::Duration;

use bson::doc;
use sdam::error::{ArgumentError, TimingError};
use sdam::options::TimeoutMode;

use super::{Fixture, names};

const HOUR: Duration = Duration::from_secs(3600);

/// "Non-tailable Cursors": getMore has no maxTimeMS, and find only if the cursor's life is limited.
#[tokio::test]
async fn the_mode_of_a_cursor_says_which_commands_carry_a_limit() {
    let mut fixture = Fixture::new().await;
    fixture.fill(3).await;
    let things = fixture.things().with_timeout(HOUR);
    for (mode, has_limit) in [(TimeoutMode::CursorLifetime, true), (TimeoutMode::Iteration, false)]
    {
        let cursor = things.find(doc! {}).batch_size(2).timeout_mode(mode).await.unwrap();
        let found = cursor.try_collect::<Vec<_>>().await.unwrap();
        assert_eq!(found.len(), 3);
        let sent = fixture.sent();
        assert_eq!(names(&sent), ["find", "getMore"]);
        assert_eq!(sent[0].contains_key("maxTimeMS"), has_limit, "{mode:?}");
        assert!(!sent[1].contains_key("maxTimeMS"));
    }
    let things = fixture.things();
    let error = things.find(doc! {}).timeout_mode(TimeoutMode::Iteration).await.unwrap_err();
    let expected = ArgumentError::Timing(TimingError::WithoutTimeout);
    assert_eq!(error.as_argument(), Some(&expected), "{error}");
    assert!(fixture.sent().is_empty());
}

/// "Cursors": with `cursorLifetime`, "timeoutMS [...] limits the lifetime of the cursor". Each
/// batch comes in time, but not both. A machine that is slow fails earlier, with the same error.
#[tokio::test]
async fn the_batches_of_a_cursor_share_its_time() {
    let fixture = Fixture::new().await;
    fixture.fill(5).await;
    fixture.things().find_one(doc! {}).await.unwrap();
    let late = doc! { "failCommands": ["getMore"], "blockConnection": true, "blockTimeMS": 700 };
    fixture.fail(2, late).await;
    let things = fixture.things().with_timeout(Duration::from_millis(1200));
    let read = async { things.find(doc! {}).batch_size(2).await?.try_collect::<Vec<_>>().await };
    let error = read.await.unwrap_err();
    assert!(error.is_timeout(), "{error}");
}

/// The longest time that servers take is 24.8 days; a limit that is longer is no reason to fail.
#[tokio::test]
async fn a_limit_may_be_longer_than_servers_take() {
    let mut fixture = Fixture::new().await;
    fixture.fill(3).await;
    for limit in [Duration::MAX, Duration::from_secs(365 * 24 * 3600)] {
        let things = fixture.things().with_timeout(limit);
        things.insert_many(&[doc! { "a": 1 }]).await.unwrap();
        things.find(doc! {}).batch_size(2).await.unwrap().try_collect::<Vec<_>>().await.unwrap();
        let sent = fixture.sent();
        assert_eq!(names(&sent)[..2], ["insert", "find"]);
        for command in &sent[..2] {
            assert_eq!(command.get_i64("maxTimeMS").ok(), Some(i32::MAX.into()), "{command}");
        }
        let plain = fixture.things();
        plain.find_one(doc! {}).max_time(limit).await.unwrap();
        let sent = fixture.sent();
        assert_eq!(sent[0].get_i64("maxTimeMS").ok(), Some(i32::MAX.into()), "{sent:?}");
    }
}

/// "timeoutMS" of a handle overrides that of the handle that it comes from, and zero lifts it.
#[tokio::test]
async fn each_handle_may_have_another_limit() {
    let mut fixture = Fixture::new().await;
    let client = fixture.client.with_timeout(HOUR);
    let database = client.database("app");
    let things = database.collection::<bson::Document>("things");
    things.find_one(doc! {}).await.unwrap();
    things.with_timeout(Duration::from_secs(60)).find_one(doc! {}).await.unwrap();
    database.with_timeout(Duration::ZERO).run_command(doc! { "ping": 1 }).await.unwrap();
    let limits: Vec<Option<i64>> =
        fixture.sent().iter().map(|command| command.get_i64("maxTimeMS").ok()).collect();
    assert!(matches!(limits[..], [Some(60_001..=3_600_000), Some(1..=60_000), None]), "{limits:?}");
}
