//! A change stream whose history a real server has really lost, as its oplog is small.

use std::time::{Duration, Instant};

use bson::{Document, Timestamp, doc};
use libtest_mimic::{Failed, Trial};
use sdam::options::WriteConcern;
use sdam::{Client, Collection};
use sdam_conformance::mongod::{Binary, Options, ReplicaSet};
use sdam_core::diagnosis::{ChangeStreamVerdict, Verdict};

/// The time that anything may take; each step takes at most seconds.
const LIMIT: Duration = Duration::from_secs(120);

/// An oplog of a megabyte. Servers forget no entry that is not in a checkpoint, which they make
/// once a minute by default.
const SMALL_OPLOG: [&str; 4] = ["--oplogSize", "1", "--syncdelay", "1"];

/// The size of a document of which a few fill the oplog.
const LARGE: usize = 256 << 10;

/// ChangeStreamHistoryLost: the error of a stream that begins.
const HISTORY_LOST: i32 = 286;

/// CappedPositionLost: that of a stream that was open.
const POSITION_LOST: i32 = 136;

pub(crate) fn trials(newest: &Binary) -> Vec<Trial> {
    let name = format!("lost_history_is_named_on_mongod_{}", newest.version());
    let binary = newest.clone();
    vec![Trial::test(name, move || {
        let arguments = SMALL_OPLOG.map(str::to_owned).to_vec();
        let set = ReplicaSet::start(&binary, 1, &Options { arguments, ..Options::calm() })?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(lose(&format!("mongodb://{}/?replicaSet=rs", set.members()[0].address())))
    })]
}

/// The time of the oldest entry.
async fn oldest(client: &Client) -> Result<Timestamp, Failed> {
    let oplog = client.database("local").collection::<Document>("oplog.rs");
    let first = oplog.find_one(doc! {}).sort(doc! { "$natural": 1 }).await?;
    Ok(first.ok_or("it has an entry")?.get_timestamp("ts")?)
}

/// A stream that begins again behind what is gone, and one that was open meanwhile
/// and has fallen behind, end with an error that names the gap, and do not begin again.
async fn lose(uri: &str) -> Result<(), Failed> {
    let client = Client::connect(uri).await?;
    let things: Collection<Document> = client.database("lost").collection("things");
    let mut kept = things.watch().await?;
    let mut behind = things.watch().batch_size(1).await?;
    things.insert_many((0..3).map(|id| doc! { "_id": id })).await?;
    let first = kept.try_next().await?.ok_or("it goes on")?;
    behind.try_next().await?.ok_or("it goes on")?;
    let (token, read) = (first.id, first.cluster_time.ok_or("an insert has a time")?);
    kept.close().await;
    let begun = Instant::now();
    for id in 3.. {
        let large = doc! { "_id": id, "data": "x".repeat(LARGE) };
        things.insert_one(large).write_concern(WriteConcern::majority()).await?;
        if oldest(&client).await? > read {
            break;
        }
        assert!(begun.elapsed() < LIMIT, "after {id} documents, the oplog is not full");
    }
    let error = things.watch().start_after(&token).await.expect_err("that is gone");
    assert_eq!(error.code(), Some(HISTORY_LOST), "{error}");
    check(&error, read)?;
    // What its server has sent before is still handed out.
    let mut handed_out = read;
    let error = loop {
        match behind.try_next().await {
            Ok(event) => handed_out = event.and_then(|it| it.cluster_time).ok_or("it fails")?,
            Err(error) => break error,
        }
    };
    assert_eq!(error.code(), Some(POSITION_LOST), "{error}");
    check(&error, handed_out)?;
    assert!(!behind.is_alive() && behind.try_next().await?.is_none(), "it does not begin again");
    // The one way to go on that is documented.
    let mut another = things.watch().await?;
    things.insert_one(doc! { "_id": -1 }).await?;
    let event = another.try_next().await?.ok_or("it goes on")?;
    assert_eq!(event.full_document, Some(doc! { "_id": -1 }));
    another.close().await;
    client.close().await;
    Ok(())
}

/// Checks that an error says what is lost: what came after `read`, and before the oldest entry.
fn check(error: &sdam::Error, read: Timestamp) -> Result<(), Failed> {
    let Some(Verdict::ChangeStream(verdict)) = error.verdict() else {
        return Err(format!("it is not explained: {error}").into());
    };
    let ChangeStreamVerdict::HistoryLost { server, read_until, oldest, is_refused } = verdict
    else {
        return Err(format!("that is another cause: {verdict}").into());
    };
    let seconds = |time: bson::DateTime| time.timestamp_millis() / 1000;
    assert!(server.is_some() && !is_refused, "{verdict}");
    assert_eq!(read_until.map(seconds), Some(read.time.into()), "{verdict}");
    assert!(oldest.map(seconds) >= Some(read.time.into()), "{verdict}");
    Ok(())
}
