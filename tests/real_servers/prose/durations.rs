//! Durations of any length, as servers take them: what an application means by "no limit" is none
//! that a server refuses.

use std::time::Duration;

use bson::{Document, doc};
use sdam::options::{CursorType, TimeoutMode};
use sdam_core::config::{Acknowledgment, WriteConcern};
use sdam_host::Runtime;

use super::{Fixture, Operation, Outcome};

pub(super) async fn play<R: Runtime>(fixture: &Fixture<'_, R>) -> Outcome {
    let (client, _) = fixture.client("")?;
    let things = fixture.empty(&client, "durations").await?;
    things.insert_many(&[doc! { "_id": 1 }, doc! { "_id": 2 }, doc! { "_id": 3 }]).await?;
    let days = |days: u64| Duration::from_secs(days * 24 * 3600);
    for (index, limit) in [Duration::MAX, days(365), days(25), days(24)].into_iter().enumerate() {
        let within = things.with_timeout(limit);
        within.find_one(doc! {}).await?;
        within.insert_one(&doc! { "x": 1 }).await?;
        let find = || within.find(doc! {}).batch_size(1);
        assert!(find().await?.try_collect::<Vec<_>>().await?.len() > 2);
        let iterating = find().timeout_mode(TimeoutMode::Iteration);
        assert!(iterating.await?.try_collect::<Vec<_>>().await?.len() > 2);
        within.find(doc! {}).explain().await?;
        client.with_timeout(limit).database("admin").run_command(doc! { "ping": 1 }).await?;

        things.find_one(doc! {}).max_time(limit).await?;
        let count = things.aggregate([doc! { "$count": "n" }]).max_time(limit);
        count.await?.try_collect::<Vec<_>>().await?;
        let concern = WriteConcern::default().with_w(Some(Acknowledgment::Servers(1)));
        let concern = concern.with_timeout(Some(limit));
        things.with_write_concern(concern).insert_one(&doc! { "x": 1 }).await?;
        awaits(fixture, index, limit).await?;
    }
    Ok(())
}

/// A cursor that awaits documents for so long gets the one that comes.
async fn awaits<R: Runtime>(fixture: &Fixture<'_, R>, index: usize, limit: Duration) -> Outcome {
    let (client, _) = fixture.client("")?;
    let (database, name) = (client.database("prose"), format!("capped{index}"));
    let capped = database.collection::<Document>(&name);
    capped.drop().await?;
    database.create_collection(name).capped(true).size(4096).max_time(limit).await?;
    capped.insert_one(&doc! { "_id": 1 }).await?;
    let tail = capped.find(doc! {}).cursor_type(CursorType::TailableAwait);
    let mut cursor = tail.max_await_time(limit).await?;
    cursor.next().await.ok_or("there is one")??;
    let reads: Operation<'_> = Box::pin(async {
        let next = cursor.next().await;
        next.map_or(Ok(()), |document| document.map(drop))
    });
    let writes: Operation<'_> =
        Box::pin(async { capped.insert_one(&doc! { "_id": 2 }).await.map(drop) });
    for outcome in fixture.all(vec![reads, writes]).await {
        outcome?;
    }
    cursor.close().await;
    Ok(())
}
