//! Buckets of GridFS: what streams send, and what is left of them.

use std::future::poll_fn;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use bson::{Bson, Document, doc};
use futures_core::Stream as _;
use sdam::error::GridFsErrorKind;
use sdam::generic::{GridFsBucket, GridFsUploadStream};
use sdam::gridfs::UploadCheckpoint;
use sdam::options::{GridFsBucketOptions, ReadConcern, ReadMode, ReadPreference};
use sdam_host::{Error, ErrorKind};
use sdam_tokio::Tokio;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _, AsyncWriteExt as _};

use super::{Fixture, name, names};

/// The time limit of a step that depends on the load of the machine.
const GENEROUS: Duration = Duration::from_secs(90);

/// A bucket whose chunks have four bytes.
fn bucket(fixture: &Fixture) -> GridFsBucket<Tokio> {
    let options = GridFsBucketOptions::builder().chunk_size_bytes(4).build();
    fixture.client.database("app").gridfs_bucket_with_options(options)
}

/// The bytes of the chunks in a batch of a bucket with chunks of the usual size.
const BATCH: usize = 8 * 255 * 1024;

fn usual_bucket(fixture: &Fixture) -> GridFsBucket<Tokio> {
    fixture.client.database("app").gridfs_bucket()
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|index| u8::try_from(index % 251).unwrap()).collect()
}

/// The number of documents in a collection of the bucket, as a client without subscribers sees it.
async fn count(fixture: &Fixture, collection: &str) -> u64 {
    let collection = fixture.quiet.database("app").collection::<Document>(collection);
    collection.count_documents(doc! {}).await.unwrap()
}

fn kind(error: &Error) -> &GridFsErrorKind {
    assert_eq!(error.kind(), ErrorKind::GridFs, "{error}");
    &error.as_grid_fs().unwrap().kind
}

/// GridFS, "Indexes": "Immediately before the first write operation [..] (and not earlier)"; "File
/// Upload": chunks first, then the document.
#[tokio::test]
async fn the_first_upload_makes_the_indexes() {
    let mut fixture = Fixture::new().await;
    let bucket = bucket(&fixture);
    let mut upload = bucket.open_upload_stream("a").metadata(doc! { "x": 1 }).await.unwrap();
    upload.write_all(b"0123456789").await.unwrap();
    assert_eq!(fixture.sent(), [], "there is room for more in the batch");
    upload.close().await.unwrap();
    let sent = fixture.sent();
    let prepared = ["find", "listIndexes", "createIndexes", "listIndexes", "createIndexes"];
    assert_eq!(names(&sent), [&prepared[..], &["insert", "insert"]].concat());
    let made = |at: usize| {
        let index = sent[at].get_array("indexes").unwrap()[0].as_document().unwrap();
        (index.get_document("key").unwrap().clone(), index.get_bool("unique").ok())
    };
    assert_eq!(made(2), (doc! { "filename": 1, "uploadDate": 1 }, None));
    assert_eq!(made(4), (doc! { "files_id": 1, "n": 1 }, Some(true)));
    assert_eq!(sent[5].get_str("insert").ok(), Some("fs.chunks"));
    assert_eq!(sent[6].get_str("insert").ok(), Some("fs.files"));
    assert_eq!((upload.bytes_done(), upload.bytes_written()), (10, 10));

    upload.close().await.unwrap();
    let error = upload.write_all(b"more").await.unwrap_err();
    assert_eq!(kind(&error), &GridFsErrorKind::UploadEnded);
    bucket.upload_from_reader("b", &b"4"[..]).await.unwrap();
    assert_eq!(names(&fixture.sent()), ["insert", "insert"], "an instance asks once");
    let other = self::bucket(&fixture);
    other.upload_from_reader("c", &b""[..]).id(7).await.unwrap();
    assert_eq!(names(&fixture.sent()), ["find", "insert"], "there are files, and no chunk");
    let found = other.find(doc! { "metadata.x": 1 }).await.unwrap();
    let found: Vec<_> = found.try_collect().await.unwrap();
    assert_eq!((found.len(), found[0].length, found[0].chunk_size_bytes), (1, 10, 4));
}

/// The same: "File Download" and "Partial File Retrieval".
#[tokio::test]
async fn a_file_comes_back_as_it_was() {
    let mut fixture = Fixture::new().await;
    let bucket = bucket(&fixture);
    let content = bytes(1000);
    let id = bucket.upload_from_reader("a", &content[..]).in_flight(4).await.unwrap();
    for in_flight in [1, 3] {
        let mut read = Vec::new();
        let download = bucket.open_download_stream(id.clone()).in_flight(in_flight);
        download.await.unwrap().read_to_end(&mut read).await.unwrap();
        assert_eq!(read, content);
    }
    let mut part = Vec::new();
    let range = bucket.download_to_writer_by_name("a", &mut part).start(9).end(13);
    assert_eq!(range.await.unwrap(), 4);
    assert_eq!(part, content[9..13]);
    fixture.sent();
    let mut stream = bucket.open_download_stream(id.clone()).await.unwrap();
    assert_eq!(stream.seek(SeekFrom::End(-3)).await.unwrap(), 997);
    let mut last = [0; 2];
    stream.read_exact(&mut last).await.unwrap();
    assert_eq!((last, stream.bytes_done()), ([content[997], content[998]], 2));
    let sent = fixture.sent();
    assert_eq!(names(&sent), ["find", "find"]);
    assert_eq!(sent[1].get_i64("limit").ok(), Some(2), "one chunk, and what may be left over");
    assert!(stream.seek(SeekFrom::Current(-1000)).await.is_err());
    let missing = bucket.open_download_stream(id).start(1001).await.unwrap_err();
    let range = GridFsErrorKind::InvalidRange { start: 1001, end: 1000, length: 1000 };
    assert_eq!(kind(&missing), &range);
}

/// "a distinct message for each case" (GridFS, "File Download by Filename").
#[tokio::test]
async fn what_is_not_there_is_an_error() {
    let fixture = Fixture::new().await;
    let bucket = bucket(&fixture);
    let id = bucket.upload_from_reader("a", &b"0123456789"[..]).await.unwrap();
    let error = bucket.open_download_stream_by_name("a").revision(1).await.unwrap_err();
    assert_eq!(kind(&error), &GridFsErrorKind::RevisionNotFound { revision: 1 });
    let error = bucket.open_download_stream_by_name("b").revision(1).await.unwrap_err();
    assert_eq!(kind(&error), &GridFsErrorKind::FileNotFound);
    let chunks = fixture.quiet.database("app").collection::<Document>("fs.chunks");
    chunks.delete_one(doc! { "n": 1 }).await.unwrap();
    let mut stream = bucket.open_download_stream(id.clone()).await.unwrap();
    let error = stream.try_next().await.unwrap_err();
    assert_eq!(kind(&error), &GridFsErrorKind::MissingChunk { n: 1 });
    bucket.delete(id.clone()).await.unwrap();
    assert_eq!(count(&fixture, "fs.chunks").await, 0);
    for error in [
        bucket.delete(id.clone()).await.unwrap_err(),
        bucket.rename(id.clone(), "b").await.unwrap_err(),
        bucket.delete_by_name("a").await.unwrap_err(),
        bucket.rename_by_name("a", "b").await.unwrap_err(),
        bucket.open_download_stream(id).await.unwrap_err(),
    ] {
        assert_eq!(kind(&error), &GridFsErrorKind::FileNotFound);
    }
    let error = bucket.open_upload_stream("a").chunk_size_bytes(0).await.unwrap_err();
    assert_eq!(kind(&error), &GridFsErrorKind::ChunkSize(0));
}

/// GridFS, "Aborting an upload": "any chunks already uploaded MUST be deleted".
#[tokio::test]
async fn an_upload_that_is_given_up_leaves_nothing() {
    let mut fixture = Fixture::new().await;
    let bucket = usual_bucket(&fixture);
    let content = bytes(BATCH + 1);
    let mut upload = bucket.open_upload_stream("a").await.unwrap();
    upload.write_all(&content).await.unwrap();
    upload.abort().await.unwrap();
    assert_eq!(count(&fixture, "fs.chunks").await, 0);
    assert_eq!(kind(&upload.write_all(b"4").await.unwrap_err()), &GridFsErrorKind::UploadEnded);
    assert_eq!(kind(&upload.close().await.unwrap_err()), &GridFsErrorKind::UploadEnded);
    upload.abort().await.unwrap();

    fixture.sent();
    let mut upload = bucket.open_upload_stream("b").await.unwrap();
    upload.write_all(&content).await.unwrap();
    drop(upload);
    let sent = fixture.sent_until("delete").await;
    assert_eq!(names(&sent), ["insert", "delete"]);
    let removed = async {
        while count(&fixture, "fs.chunks").await > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(GENEROUS, removed).await.unwrap();
    drop(bucket.open_upload_stream("c").await.unwrap());
    assert_eq!(fixture.sent(), []);
}

/// The same: "if the upload is being aborted because the source stream [..] raised an error then
/// the original error should be re-raised".
#[tokio::test]
async fn a_reader_that_fails_aborts_the_upload() {
    struct Broken(usize);

    impl futures_io::AsyncRead for Broken {
        fn poll_read(
            mut self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
            buffer: &mut [u8],
        ) -> std::task::Poll<std::io::Result<usize>> {
            let count = self.0.min(buffer.len());
            self.0 -= count;
            std::task::Poll::Ready(match count {
                0 => Err(std::io::Error::other("the disk is gone")),
                _ => Ok(count),
            })
        }
    }

    let mut fixture = Fixture::new().await;
    let error =
        usual_bucket(&fixture).upload_from_reader("a", Broken(BATCH + 1)).await.unwrap_err();
    assert_eq!(error.to_string(), "the disk is gone");
    assert_eq!(fixture.sent().last().map(name), Some("delete"));
    let counts = (count(&fixture, "fs.chunks").await, count(&fixture, "fs.files").await);
    assert_eq!(counts, (0, 0));
}

/// GridFS, "Operation Failure": "drivers MUST raise an error", and "MUST NOT attempt to clean up".
#[tokio::test]
async fn an_insertion_that_fails_is_reported_and_left() {
    let mut fixture = Fixture::new().await;
    let bucket = bucket(&fixture);
    bucket.upload_from_reader("a", &b"4"[..]).await.unwrap();
    fixture.sent();
    fixture.fail(1, doc! { "failCommands": ["insert"], "errorCode": 50 }).await;
    let mut upload = bucket.open_upload_stream("b").await.unwrap();
    upload.write_all(b"0123456789").await.unwrap();
    assert!(upload.close().await.unwrap_err().is_timeout());
    assert_eq!(names(&fixture.sent()), ["insert"]);
    assert_eq!(kind(&upload.close().await.unwrap_err()), &GridFsErrorKind::UploadEnded);
    upload.abort().await.unwrap();
    assert_eq!(names(&fixture.sent()), ["delete"]);
    drop(upload);
    assert_eq!(fixture.sent(), []);
}

/// "GridFS takes sessions": files in a transaction are there with it, or not at all.
#[tokio::test]
async fn a_transaction_has_a_file_or_none() {
    let mut fixture = Fixture::new().await;
    let bucket = usual_bucket(&fixture);
    bucket.upload_from_reader("first", &b"4"[..]).await.unwrap();
    let session = fixture.client.start_session().await.unwrap();
    let content = bytes(BATCH + 1);
    for commits in [false, true] {
        session.start_transaction().await.unwrap();
        fixture.sent();
        let mut upload = bucket.open_upload_stream("a").session(&session).await.unwrap();
        upload.write_all(&content).await.unwrap();
        upload.close().await.unwrap();
        let mut read = Vec::new();
        let stream = bucket.open_download_stream(upload.id().clone()).session(&session);
        stream.await.unwrap().read_to_end(&mut read).await.unwrap();
        assert!(read == content, "the transaction sees its own");
        let is_of_it = |command: &Document| command.contains_key("txnNumber");
        assert!(fixture.sent().iter().all(is_of_it));
        match commits {
            true => session.commit_transaction().await.unwrap(),
            false => session.abort_transaction().await.unwrap(),
        }
        assert_eq!(count(&fixture, "fs.files").await, 1 + u64::from(commits));
    }
}

/// A process that has ended leaves what another one goes on with.
#[tokio::test]
async fn an_upload_goes_on_from_its_checkpoint() {
    let fixture = Fixture::new().await;
    let bucket = usual_bucket(&fixture);
    let content = bytes(5_000_000);
    let mut upload = bucket.open_upload_stream("a").metadata(doc! { "x": 1 }).await.unwrap();
    upload.write_all(&content[..4_500_000]).await.unwrap();
    while upload.bytes_done() < 2 * BATCH as u64 {
        assert_eq!(upload.write(&[]).await.unwrap(), 0);
        tokio::task::yield_now().await;
    }
    let kept = bson::serialize_to_document(&upload.checkpoint()).unwrap();
    drop(upload);
    let checkpoint: UploadCheckpoint = bson::deserialize_from_document(kept).unwrap();
    let place = usize::try_from(checkpoint.bytes()).unwrap();
    assert_eq!(place, 2 * BATCH, "what is not sent is written again");
    let mut upload = bucket.resume_upload_stream(checkpoint.clone()).await.unwrap();
    upload.write_all(&content[place..]).await.unwrap();
    upload.close().await.unwrap();
    assert_eq!(upload.bytes_done(), 5_000_000);
    let mut read = Vec::new();
    bucket.download_to_writer(upload.id().clone(), &mut read).await.unwrap();
    assert!(read == content);
    let error = bucket.resume_upload_stream(checkpoint).await.unwrap_err();
    assert_eq!(kind(&error), &GridFsErrorKind::AlreadyStored);
}

/// A stream that is suspended has no batch under way, which the next one could meet.
#[tokio::test]
async fn an_upload_is_suspended_and_goes_on_at_once() {
    let fixture = Fixture::new().await;
    let bucket = usual_bucket(&fixture);
    let content = bytes(3 * BATCH);
    let mut upload = bucket.open_upload_stream("a").in_flight(4).await.unwrap();
    upload.write_all(&content[..2 * BATCH + 5]).await.unwrap();
    let checkpoint = upload.suspend().await.unwrap();
    assert_eq!(checkpoint.bytes(), 2 * BATCH as u64);
    assert_eq!(kind(&upload.close().await.unwrap_err()), &GridFsErrorKind::UploadEnded);
    assert_eq!(kind(&upload.suspend().await.unwrap_err()), &GridFsErrorKind::UploadEnded);
    drop(upload);
    let shown = format!("{checkpoint:?}");
    assert_eq!(shown, format!("UploadCheckpoint {{ bytes: {}, .. }}", 2 * BATCH));
    let mut upload = bucket.resume_upload_stream(checkpoint).await.unwrap();
    upload.write_all(&content[2 * BATCH..]).await.unwrap();
    upload.close().await.unwrap();
    let mut read = Vec::new();
    bucket.download_to_writer(upload.id().clone(), &mut read).await.unwrap();
    assert!(read == content);
}

/// A document that one member has acknowledged is there, though it is not at the majority yet: it
/// must not be overlooked before its chunks are removed.
#[tokio::test]
async fn what_is_stored_is_looked_for_with_read_concern_local() {
    let mut fixture = Fixture::new().await;
    let bucket = bucket(&fixture).with_read_concern(ReadConcern::majority());
    bucket.upload_from_reader("a", &b"0123456789"[..]).id(7).await.unwrap();
    fixture.sent();
    let mut upload = bucket.open_upload_stream("b").id(7).await.unwrap();
    upload.write_all(b"4").await.unwrap();
    assert_eq!(kind(&upload.abort().await.unwrap_err()), &GridFsErrorKind::ChunksInUse);
    let find = &fixture.sent()[0];
    assert_eq!(find.get_document("readConcern").ok(), Some(&doc! { "level": "local" }));
}

/// A call that was given up has begun to store the document.
#[tokio::test]
async fn an_upload_is_aborted_behind_a_close_that_was_given_up() {
    let fixture = Fixture::new().await;
    let bucket = bucket(&fixture);
    bucket.upload_from_reader("first", &b"4"[..]).await.unwrap();
    for fails in [false, true] {
        let mut upload = bucket.open_upload_stream("a").await.unwrap();
        if fails {
            fixture.fail(1, doc! { "failCommands": ["insert"], "errorCode": 50 }).await;
        }
        let mut close = Box::pin(upload.close());
        let polled = poll_fn(|cx| Poll::Ready(close.as_mut().poll(cx))).await;
        assert!(polled.is_pending(), "the document is under way");
        drop(close);
        assert_eq!(upload.abort().await.is_ok(), fails);
        assert_eq!(count(&fixture, "fs.files").await, 2);
    }
}

/// A loop over a stream ends, also if it skips what fails.
#[tokio::test]
async fn a_stream_ends_with_an_error() {
    let fixture = Fixture::new().await;
    let bucket = bucket(&fixture);
    let id = bucket.upload_from_reader("a", &b"0123456789"[..]).await.unwrap();
    let chunks = fixture.quiet.database("app").collection::<Document>("fs.chunks");
    chunks.delete_one(doc! { "n": 1 }).await.unwrap();
    let mut stream = bucket.open_download_stream(id.clone()).await.unwrap();
    let mut next = async || poll_fn(|cx| Pin::new(&mut stream).poll_next(cx)).await;
    let error = next().await.unwrap().unwrap_err();
    assert_eq!(kind(&error), &GridFsErrorKind::MissingChunk { n: 1 });
    assert!(next().await.is_none());

    let mut stream = bucket.open_download_stream(id).await.unwrap();
    assert_eq!(stream.read(&mut []).await.unwrap(), 0, "an empty buffer waits for nothing");
    stream.seek(SeekFrom::Start(11)).await.unwrap();
    assert_eq!(stream.try_next().await.unwrap(), None, "so does a place behind the end");
    let file = bucket.find_one(doc! { "filename": "a" }).await.unwrap().unwrap();
    assert_eq!(file.length, 10);
}

/// The chunks of a file are those of its `_id`: an upload that is given up may not take them from
/// another file which has it, nor from its own once that is stored.
#[tokio::test]
async fn an_upload_that_is_given_up_leaves_the_chunks_of_what_is_stored() {
    let fixture = Fixture::new().await;
    let bucket = bucket(&fixture);
    let stored = |error: Error| {
        let kind = kind(&error);
        assert!(matches!(kind, GridFsErrorKind::ChunksInUse | GridFsErrorKind::UploadEnded));
    };
    bucket.upload_from_reader("a", &b"0123456789"[..]).id(7).await.unwrap();
    let mut early = bucket.open_upload_stream("b").id(7).await.unwrap();
    early.write_all(b"4").await.unwrap();
    stored(early.abort().await.unwrap_err());
    let late = bucket.open_upload_stream("b").id(7).chunk_size_bytes(255 * 1024);
    let mut late = late.await.unwrap();
    assert!(late.write_all(&bytes(9_000_000)).await.unwrap_err().is_duplicate_key());
    assert_eq!(count(&fixture, "fs.chunks").await, 3, "no second batch was sent");
    stored(late.abort().await.unwrap_err());

    let session = fixture.client.start_session().await.unwrap();
    let mut own = bucket.open_upload_stream("c").id(8).await.unwrap();
    own.write_all(b"0123456789").await.unwrap();
    let file = own.prepare_close().await.unwrap();
    session.start_transaction().await.unwrap();
    file.store_in(&session).await.unwrap();
    session.commit_transaction().await.unwrap();
    stored(file.abort().await.unwrap_err());
    stored(own.abort().await.unwrap_err());
    stored(own.close().await.unwrap_err());
    for id in [7, 8] {
        let mut read = Vec::new();
        assert_eq!(bucket.download_to_writer(id, &mut read).await.unwrap(), 10);
    }
}

/// An empty file has no chunks: an upload under its `_id` removes its own.
#[tokio::test]
async fn an_upload_that_meets_an_empty_file_removes_its_chunks() {
    let mut fixture = Fixture::new().await;
    let bucket = usual_bucket(&fixture);
    bucket.upload_from_reader("empty", &b""[..]).id(7).await.unwrap();
    let content = bytes(BATCH + 1);
    for length in [1, BATCH + 1] {
        let mut upload = bucket.open_upload_stream("a").id(7).await.unwrap();
        upload.write_all(&content[..length]).await.unwrap();
        assert!(upload.close().await.unwrap_err().is_duplicate_key());
        upload.abort().await.unwrap();
        assert_eq!(count(&fixture, "fs.chunks").await, 0, "{length}");

        let mut upload = bucket.open_upload_stream("a").id(7).await.unwrap();
        upload.write_all(&content[..length]).await.unwrap();
        upload.prepare_close().await.unwrap().abort().await.unwrap();
        assert_eq!(count(&fixture, "fs.chunks").await, 0, "{length}");
    }
    let mut upload = bucket.open_upload_stream("a").id(7).await.unwrap();
    write_first_batch(&mut upload, &content).await;
    // Its content is not stored, whatever else is: another process may not take it for done.
    let checkpoint = upload.checkpoint();
    let error = bucket.resume_upload_stream(checkpoint).await.unwrap_err();
    assert_eq!(kind(&error), &GridFsErrorKind::NotResumable);
    upload.abort().await.unwrap();

    let mut upload = bucket.open_upload_stream("a").id(7).await.unwrap();
    write_first_batch(&mut upload, &content).await;
    drop(upload);
    fixture.sent_until("delete").await;
    let mut read = Vec::new();
    assert_eq!(bucket.download_to_writer(7, &mut read).await.unwrap(), 0);

    let mut empty = bucket.open_upload_stream("b").id(7).await.unwrap();
    assert!(empty.close().await.unwrap_err().is_duplicate_key());
    assert_eq!(kind(&empty.abort().await.unwrap_err()), &GridFsErrorKind::ChunksInUse);
}

/// Writes the first batch of an upload, and waits until a server has acknowledged it.
async fn write_first_batch(upload: &mut GridFsUploadStream<Tokio>, content: &[u8]) {
    upload.write_all(content).await.unwrap();
    while upload.bytes_done() == 0 {
        assert_eq!(upload.write(&[]).await.unwrap(), 0);
        tokio::task::yield_now().await;
    }
}

/// Writes a batch that a server refuses, and waits for that.
async fn write_refused(upload: &mut GridFsUploadStream<Tokio>, content: &[u8]) {
    upload.write_all(content).await.unwrap();
    while upload.write(&[]).await.is_ok() {
        tokio::task::yield_now().await;
    }
}

/// Two uploads may have one `_id`, which applications choose: neither takes a chunk from the other
/// when it is aborted, resumed or prepared.
#[tokio::test]
async fn an_upload_that_is_given_up_leaves_the_chunks_of_another_one_under_way() {
    let fixture = Fixture::new().await;
    let bucket = usual_bucket(&fixture);
    bucket.upload_from_reader("first", &b"4"[..]).await.unwrap();
    let content = bytes(BATCH + 1);
    for id in 0..4 {
        let mut other = bucket.open_upload_stream("a").id(id).await.unwrap();
        write_first_batch(&mut other, &content).await;
        let mut upload = bucket.open_upload_stream("b").id(id).await.unwrap();
        let checkpoint = upload.checkpoint();
        let refused = match id {
            0 => {
                write_refused(&mut upload, &content[..BATCH]).await;
                let error = upload.abort().await.unwrap_err();
                assert_eq!(kind(&upload.abort().await.unwrap_err()), kind(&error));
                error
            }
            1 => bucket.resume_upload_stream(checkpoint).await.unwrap_err(),
            2 => {
                write_refused(&mut upload, &content[..BATCH]).await;
                bucket.resume_upload_stream(upload.checkpoint()).await.unwrap_err()
            }
            _ => {
                upload.prepare_close().await.unwrap().abort().await.unwrap();
                other.close().await.unwrap();
                bucket.resume_upload_stream(checkpoint).await.unwrap_err()
            }
        };
        let in_use = matches!(kind(&refused), GridFsErrorKind::ChunksInUse);
        assert_eq!(in_use, id == 0, "{refused}");
        assert!(in_use || kind(&refused) == &GridFsErrorKind::NotResumable, "{refused}");
        other.close().await.unwrap();
        let mut read = Vec::new();
        bucket.download_to_writer(id, &mut read).await.unwrap();
        assert!(read == content);
    }
}

/// The task that removes the chunks of a dropped upload asks whose they are.
#[tokio::test]
async fn an_upload_that_is_dropped_leaves_the_chunks_of_another_one_under_way() {
    let mut fixture = Fixture::new().await;
    let bucket = usual_bucket(&fixture);
    bucket.upload_from_reader("first", &b"4"[..]).await.unwrap();
    let content = bytes(BATCH + 1);
    let mut other = bucket.open_upload_stream("a").id(7).await.unwrap();
    write_first_batch(&mut other, &content).await;
    let failed = doc! { "failCommands": ["insert"], "errorCode": 50 };
    fixture.fail(1, failed).await;
    let mut upload = bucket.open_upload_stream("b").id(7).await.unwrap();
    upload.write_all(&content).await.unwrap();
    fixture.sent();
    drop(upload);
    for collection in ["fs.files", "fs.chunks"] {
        let sent = fixture.sent_until("find").await;
        assert_eq!(sent.last().unwrap().get_str("find").unwrap(), collection);
    }
    other.close().await.unwrap();
    let mut read = Vec::new();
    bucket.download_to_writer(7, &mut read).await.unwrap();
    assert!(read == content);
    assert!(!names(&fixture.sent()).contains(&"delete"));
}

/// Chunks whose insertion has failed, or has had no answer, are an upload's own by the first of
/// them, also under an `_id` that the application has chosen.
#[tokio::test]
async fn an_upload_removes_what_it_has_stored_though_nothing_was_acknowledged() {
    let fixture = Fixture::new().await;
    let bucket = usual_bucket(&fixture);
    bucket.upload_from_reader("first", &b"4"[..]).await.unwrap();
    let content = bytes(BATCH);
    let mut upload = bucket.open_upload_stream("a").id(7).await.unwrap();
    let unmet = doc! { "code": 64, "errmsg": "waiting for replication timed out" };
    fixture.fail(1, doc! { "failCommands": ["insert"], "writeConcernError": unmet }).await;
    write_refused(&mut upload, &content).await;
    assert!(count(&fixture, "fs.chunks").await > 1);
    fixture.fail(1, doc! { "failCommands": ["delete"], "errorCode": 50 }).await;
    assert!(upload.abort().await.unwrap_err().as_grid_fs().is_none());
    upload.abort().await.unwrap();
    assert_eq!(count(&fixture, "fs.chunks").await, 1, "that of the first file");
}

/// A session that is in no transaction is in use while a batch of it is under way.
#[tokio::test]
async fn an_upload_in_a_session_that_is_dropped_while_it_writes_leaves_nothing() {
    let mut fixture = Fixture::new().await;
    let bucket = usual_bucket(&fixture);
    bucket.upload_from_reader("first", &b"4"[..]).await.unwrap();
    let session = fixture.client.start_session().await.unwrap();
    let mut upload = bucket.open_upload_stream("a").session(&session).await.unwrap();
    fixture.sent();
    let content = bytes(BATCH + 1);
    {
        let mut write = std::pin::pin!(upload.write_all(&content));
        let waits = poll_fn(|cx| Poll::Ready(write.as_mut().poll(cx).is_pending())).await;
        assert!(waits, "its batch is under way");
    }
    drop(upload);
    let sent = fixture.sent_until("delete").await;
    let delete = sent.last().unwrap();
    assert_ne!(delete.get_document("lsid").unwrap(), sent[0].get_document("lsid").unwrap());
    let removed = async {
        while count(&fixture, "fs.chunks").await > 1 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(GENEROUS, removed).await.unwrap();
}

/// Another member may have a name that a file has no more.
#[tokio::test]
async fn files_are_deleted_by_the_names_that_the_primary_has() {
    let mut fixture = Fixture::new().await;
    let secondary = ReadPreference::new(ReadMode::SecondaryPreferred);
    let bucket = bucket(&fixture).with_read_preference(secondary);
    let bucket = bucket.with_read_concern(ReadConcern::majority());
    bucket.upload_from_reader("a", &b"4"[..]).await.unwrap();
    fixture.sent();
    bucket.delete_by_name("a").await.unwrap();
    let find = &fixture.sent()[0];
    assert_eq!(find.get_document("readConcern").ok(), Some(&doc! { "level": "local" }));
    assert!(!find.contains_key("$readPreference"));
}

/// The document of a file is there with what the transaction writes besides.
#[tokio::test]
async fn a_file_is_closed_in_a_transaction() {
    let fixture = Fixture::new().await;
    let bucket = usual_bucket(&fixture);
    bucket.upload_from_reader("first", &b"4"[..]).await.unwrap();
    let session = fixture.client.start_session().await.unwrap();
    let content = bytes(BATCH + 1);
    let mut upload = bucket.open_upload_stream("a").await.unwrap();
    upload.write_all(&content).await.unwrap();
    let file = upload.prepare_close().await.unwrap();
    drop(upload);
    for commits in [false, true] {
        session.start_transaction().await.unwrap();
        file.store_in(&session).await.unwrap();
        assert_eq!(count(&fixture, "fs.files").await, 1);
        match commits {
            true => session.commit_transaction().await.unwrap(),
            false => session.abort_transaction().await.unwrap(),
        }
    }
    let mut read = Vec::new();
    bucket.download_to_writer(file.id().clone(), &mut read).await.unwrap();
    assert!(read == content);
    assert_eq!(file.length(), content.len() as u64);

    let mut upload = bucket.open_upload_stream("b").await.unwrap();
    upload.write_all(&content).await.unwrap();
    let file = upload.prepare_close().await.unwrap();
    let chunks = count(&fixture, "fs.chunks").await;
    file.abort().await.unwrap();
    assert!(count(&fixture, "fs.chunks").await < chunks);
    let stored = session.with_transaction(async |session| file.store_in(&session).await).await;
    assert_eq!(kind(&stored.unwrap_err()), &GridFsErrorKind::UploadEnded);
    let mut upload = bucket.open_upload_stream("c").await.unwrap();
    upload.write_all(b"4").await.unwrap();
    let file = upload.prepare_close().await.unwrap();
    let stored = session.with_transaction(async |session| file.store_in(&session).await).await;
    stored.unwrap();
    assert_eq!(count(&fixture, "fs.files").await, 3, "a closure lends it to each run");
}

/// Streams of tokio are copied into each other.
#[tokio::test]
async fn tokio_copies_a_file() {
    let fixture = Fixture::new().await;
    let bucket = fixture.client.database("app").gridfs_bucket();
    let content = bytes(9_000_000);
    let mut upload = bucket.open_upload_stream("a").await.unwrap();
    assert_eq!(tokio::io::copy(&mut &content[..], &mut upload).await.unwrap(), 9_000_000);
    upload.shutdown().await.unwrap();
    let mut download = bucket.open_download_stream(upload.id().clone()).await.unwrap();
    let mut read = Vec::new();
    tokio::io::copy(&mut download, &mut read).await.unwrap();
    assert!(read == content);
    bucket.drop().await.unwrap();
    let counts = (count(&fixture, "fs.chunks").await, count(&fixture, "fs.files").await);
    assert_eq!(counts, (0, 0));
}

/// Threads use `std::io`.
#[tokio::test]
async fn threads_have_the_same() {
    let fixture = Fixture::new().await;
    let uri = fixture.uri();
    let content = bytes(3_000_000);
    let work = move || {
        let client = sdam::blocking::Client::with_uri_str(&uri).unwrap();
        let bucket = client.database("app").gridfs_bucket();
        let mut upload = bucket.open_upload_stream("a").id("own").run().unwrap();
        upload.write_all(&content).unwrap();
        upload.close().unwrap();
        assert_eq!((upload.id(), upload.bytes_done()), (&Bson::from("own"), 3_000_000));
        let mut read = Vec::new();
        let mut download = bucket.open_download_stream("own").run().unwrap();
        download.read_to_end(&mut read).unwrap();
        assert!(read == content);
        download.seek(SeekFrom::Start(2_999_999)).unwrap();
        read.clear();
        download.read_to_end(&mut read).unwrap();
        assert_eq!(read, content[2_999_999..]);
        let other = bucket.upload_from_reader("b", &content[..100]).run().unwrap();
        read.clear();
        assert_eq!(bucket.download_to_writer(other, &mut read).run().unwrap(), 100);
        assert_eq!(read, content[..100]);
        let found = bucket.find(doc! { "filename": "b" }).run().unwrap();
        assert_eq!(found.count(), 1);
        bucket.rename_by_name("b", "c").run().unwrap();
        bucket.delete_by_name("c").run().unwrap();
        bucket.delete("own").run().unwrap();
        let error = bucket.rename("own", "d").run().unwrap_err();
        assert_eq!(kind(&error), &GridFsErrorKind::FileNotFound);
        client.close();
    };
    tokio::task::spawn_blocking(work).await.unwrap();
}
