//! Client Side Operations Timeout, the prose tests about GridFS. Their times are a hundred times as
//! long, so that the ways through the simulated network do not count.

use std::time::Duration;

use bson::{Document, doc};
use sdam::generic::GridFsBucket;
use sdam::options::GridFsBucketOptions;
use sdam_simulation::virtual_time::Runtime;

use super::Fixture;

/// The limit, in the connection string.
const LIMITED: &str = "timeoutMS=15000";

fn bucket(fixture: &Fixture) -> GridFsBucket<Runtime> {
    let options = GridFsBucketOptions::builder().chunk_size_bytes(2).build();
    fixture.client.database("app").gridfs_bucket_with_options(options)
}

fn block(fixture: &mut Fixture, command: &str) {
    let data = doc! { "failCommands": [command], "blockConnection": true, "blockTimeMS": 20_000 };
    fixture.fail(fixture.primary(), doc! { "times": 1 }, data);
}

/// CSOT-P6.1: "uploads via openUploadStream can be timed out".
#[test]
fn an_upload_can_be_timed_out() {
    let mut fixture = Fixture::new(LIMITED);
    block(&mut fixture, "insert");
    let bucket = bucket(&fixture);
    let (stored, took) = fixture.run(async move {
        let mut stream = bucket.open_upload_stream("filename").await?;
        stream.write_all(&[0x12]).await?;
        stream.close().await
    });
    assert!(stored.unwrap_err().is_timeout());
    assert!(took <= Duration::from_secs(15), "{took:?}");
}

/// CSOT-P6.2: "Aborting an upload stream can be timed out".
#[test]
fn an_abort_can_be_timed_out() {
    let mut fixture = Fixture::new(LIMITED);
    block(&mut fixture, "delete");
    let bucket = bucket(&fixture);
    let (aborted, took) = fixture.run(async move {
        let mut stream = bucket.open_upload_stream("filename").await?;
        stream.write_all(&[1, 2, 3, 4]).await?;
        stream.abort().await
    });
    assert!(aborted.unwrap_err().is_timeout());
    assert!(took <= Duration::from_secs(15), "{took:?}");
}

/// CSOT-P7: "two `find` commands were executed during the read", the second of which takes too
/// long.
#[test]
fn a_download_can_be_timed_out() {
    let mut fixture = Fixture::new(LIMITED);
    let files = fixture.client.database("app").collection::<Document>("fs.files");
    let file = doc! { "_id": 5, "length": 10, "chunkSize": 4, "filename": "length-10" };
    fixture.run(async move { files.insert_one(&file).await }).0.unwrap();
    let bucket = bucket(&fixture);
    let (opened, _) = fixture.run(async move { bucket.open_download_stream(5).await });
    let mut stream = opened.unwrap();
    block(&mut fixture, "find");
    let (read, took) = fixture.run(async move { stream.try_next().await });
    assert!(read.unwrap_err().is_timeout());
    assert!(took <= Duration::from_secs(15), "{took:?}");
    assert_eq!(fixture.started("find").len(), 2);
}
