//! The prose tests of Client Side Operations Timeout about GridFS, and a file on its way to a
//! server and back. The times are longer than those of the specification, for servers that have
//! little of a processor.

use std::time::Duration;

use bson::{Document, doc};
use sdam::generic::GridFsBucket;
use sdam::options::GridFsBucketOptions;
use sdam_host::Runtime;

use super::{Fixture, Outcome, V4_4, names};

pub(super) async fn play<R: Runtime>(fixture: &Fixture<'_, R>) -> Outcome {
    files_come_back(fixture).await?;
    if fixture.version >= V4_4 {
        uploads_can_be_timed_out(fixture).await?;
        aborts_can_be_timed_out(fixture).await?;
        downloads_can_be_timed_out(fixture).await?;
    }
    Ok(())
}

/// Returns a bucket whose streams have a second.
async fn limited<R: Runtime>(fixture: &Fixture<'_, R>) -> Outcome<GridFsBucket<R>> {
    let options = GridFsBucketOptions::builder().bucket_name("limited".to_owned());
    let options = options.chunk_size_bytes(2).timeout(Duration::from_secs(1)).build();
    let bucket = fixture.quiet.database("prose").gridfs_bucket_with_options(options);
    bucket.drop().timeout(Duration::ZERO).await?;
    Ok(bucket)
}

async fn block<R: Runtime>(fixture: &Fixture<'_, R>, command: &str) -> Outcome {
    let data = doc! { "failCommands": [command], "blockConnection": true, "blockTimeMS": 1500 };
    fixture.fail(doc! { "times": 1 }, data).await
}

/// A file of several batches, over several connections at once.
async fn files_come_back<R: Runtime>(fixture: &Fixture<'_, R>) -> Outcome {
    let bucket = fixture.quiet.database("prose").gridfs_bucket();
    bucket.drop().await?;
    let content: Vec<u8> =
        (0..10_000_000_u32).map(|n| n.wrapping_mul(31).to_le_bytes()[1]).collect();
    let id = bucket.upload_from_reader("large", &content[..]).await?;
    let mut read = Vec::new();
    assert_eq!(bucket.download_to_writer(id.clone(), &mut read).await?, 10_000_000);
    assert!(read == content);
    let (client, mut log) = fixture.client("")?;
    let bucket = client.database("prose").gridfs_bucket();
    let mut part = Vec::new();
    bucket.download_to_writer(id.clone(), &mut part).start(5_000_000).end(5_000_010).await?;
    assert_eq!(part, content[5_000_000..5_000_010]);
    assert_eq!(names(&log.sent()), ["find", "find"]);
    bucket.delete(id).await?;
    let chunks = client.database("prose").collection::<Document>("fs.chunks");
    assert_eq!(chunks.count_documents(doc! {}).await?, 0);
    Ok(())
}

/// CSOT-P6.1: "uploads via openUploadStream can be timed out".
async fn uploads_can_be_timed_out<R: Runtime>(fixture: &Fixture<'_, R>) -> Outcome {
    let bucket = limited(fixture).await?;
    block(fixture, "insert").await?;
    let mut stream = bucket.open_upload_stream("filename").await?;
    stream.write_all(&[0x12]).await?;
    let error = stream.close().await.err().ok_or("it is stored in time")?;
    assert!(error.is_timeout(), "{error}");
    fixture.fail_no_more().await
}

/// CSOT-P6.2: "Aborting an upload stream can be timed out".
async fn aborts_can_be_timed_out<R: Runtime>(fixture: &Fixture<'_, R>) -> Outcome {
    let bucket = limited(fixture).await?;
    block(fixture, "delete").await?;
    let mut stream = bucket.open_upload_stream("filename").await?;
    stream.write_all(&[1, 2, 3, 4]).await?;
    let error = stream.abort().await.err().ok_or("it is aborted in time")?;
    assert!(error.is_timeout(), "{error}");
    fixture.fail_no_more().await
}

/// CSOT-P7: "two `find` commands were executed", the second of which takes too long.
async fn downloads_can_be_timed_out<R: Runtime>(fixture: &Fixture<'_, R>) -> Outcome {
    let (client, mut log) = fixture.client("&timeoutMS=1000")?;
    let files = fixture.quiet.database("prose").collection::<Document>("fs.files");
    let file = doc! { "_id": 5, "length": 10, "chunkSize": 4, "filename": "length-10" };
    files.insert_one(&file).await?;
    let bucket = client.database("prose").gridfs_bucket();
    let mut stream = bucket.open_download_stream(5).await?;
    block(fixture, "find").await?;
    let error = stream.try_next().await.err().ok_or("it is read in time")?;
    assert!(error.is_timeout(), "{error}");
    assert_eq!(names(&log.sent()), ["find", "find"]);
    fixture.fail_no_more().await?;
    files.delete_one(doc! { "_id": 5 }).await?;
    Ok(())
}
