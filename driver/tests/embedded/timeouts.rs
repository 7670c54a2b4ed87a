//! The limit of everything that an operation does (Client Side Operations Timeout).

use std::time::Duration;

use bson::doc;
use sdam_driver::{ArgumentError, Error, Find, TimeoutMode, TimingError};

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
        let find = Find::new(doc! {}).batch_size(2).timeout_mode(mode);
        let found = things.find(find).await.unwrap().collect().await.unwrap();
        assert_eq!(found.len(), 3);
        let sent = fixture.sent();
        assert_eq!(names(&sent), ["find", "getMore"]);
        assert_eq!(sent[0].contains_key("maxTimeMS"), has_limit, "{mode:?}");
        assert!(!sent[1].contains_key("maxTimeMS"));
    }
    let find = Find::new(doc! {}).timeout_mode(TimeoutMode::Iteration);
    let error = fixture.things().find(find).await.unwrap_err();
    let expected = ArgumentError::Timing(TimingError::WithoutTimeout);
    assert!(matches!(&error, Error::Argument(found) if *found == expected), "{error}");
    assert!(fixture.sent().is_empty());
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
