//! The prose tests of Retryable Reads, Retryable Writes and Client Backpressure that real servers
//! can play.

use bson::{Bson, Document, doc};
use sdam_core::pool::PoolEvent;
use sdam_core::topology::EventKind;
use sdam_host::Runtime;

use super::{Fixture, Outcome, V4_4, name};

pub(super) async fn play<R: Runtime>(fixture: &Fixture<'_, R>) -> Outcome {
    // Older fail points ignore labels and time.
    if fixture.version < V4_4 {
        return Ok(());
    }
    cleared_pools_are_tried_again(fixture, "find").await?;
    cleared_pools_are_tried_again(fixture, "insert").await?;
    overload_is_tried_again_so_often(fixture, "", 3).await?;
    overload_is_tried_again_so_often(fixture, "&maxAdaptiveRetries=1", 2).await
}

/// RR-P1: "PoolClearedError Retryability Test"; RW-P2: "Test that drivers properly retry after
/// encountering PoolClearedErrors".
async fn cleared_pools_are_tried_again<R: Runtime>(
    fixture: &Fixture<'_, R>,
    command: &str,
) -> Outcome {
    let (client, mut log) = fixture.client("&maxPoolSize=1&heartbeatFrequencyMS=500")?;
    let things = &fixture.empty(&client, "cleared").await?;
    // The connection is there, so that both wait for it.
    client.database("admin").run_command(doc! { "ping": 1 }).await?;
    log.all();
    let mut data = doc! {
        "failCommands": [command], "errorCode": 91, "blockConnection": true, "blockTimeMS": 1000,
    };
    if command == "insert" {
        data.insert("errorLabels", ["RetryableWriteError"].map(Bson::from).to_vec());
    }
    fixture.fail(doc! { "times": 1 }, data).await?;
    let run = |id: i32| async move {
        match command {
            "insert" => things.insert_one(&doc! { "_id": id }).await.map(drop),
            _ => things.find_one(doc! {}).await.map(drop),
        }
    };
    let done = fixture.all(vec![Box::pin(run(1)), Box::pin(run(2))]).await;
    assert!(done.iter().all(Result::is_ok), "{done:?}");
    let (mut steps, mut started) = (Vec::new(), 0);
    for kind in log.all() {
        match kind {
            EventKind::Pool { event: PoolEvent::ConnectionCheckedOut { .. }, .. } => {
                steps.push("checked out");
            }
            EventKind::Pool { event: PoolEvent::PoolCleared { .. }, .. } => steps.push("cleared"),
            EventKind::Pool { event: PoolEvent::ConnectionCheckOutFailed { .. }, .. } => {
                steps.push("failed");
            }
            EventKind::Command { command: monitored, event, .. }
                if event.name() == "commandStarted" && monitored.command_name == command =>
            {
                started += 1;
            }
            _ => {}
        }
    }
    assert!(steps.starts_with(&["checked out", "cleared", "failed"]), "{steps:?}");
    assert_eq!(started, 3, "of {command}");
    Ok(())
}

/// BP-P3: "Overload Errors are Retried a Maximum of MAX_RETRIES times"; BP-P4: the same as
/// `maxAdaptiveRetries` says.
async fn overload_is_tried_again_so_often<R: Runtime>(
    fixture: &Fixture<'_, R>,
    options: &str,
    attempts: usize,
) -> Outcome {
    let (client, mut log) = fixture.client(options)?;
    let things = fixture.empty(&client, "overload").await?;
    log.all();
    let labels = ["SystemOverloadedError", "RetryableError"];
    let data = doc! {
        "failCommands": ["find"], "errorCode": 462, "errorLabels": labels.map(Bson::from).to_vec(),
    };
    fixture.fail("alwaysOn", data).await?;
    let error = things.find_one(doc! {}).await.err().ok_or("every attempt fails")?;
    fixture.fail_no_more().await?;
    assert!(labels.iter().all(|label| error.labels().iter().any(|it| it == label)), "{error:?}");
    let sent: Vec<Document> = log.sent();
    assert_eq!(sent.iter().filter(|it| name(it) == "find").count(), attempts);
    Ok(())
}
