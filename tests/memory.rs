//! The memory that streams of files take (GridFS): their batches and ranges in flight, however long
//! a file is. The server keeps nothing of it, and makes up what is read. The test is alone in its
//! process, whose memory it looks at.
#![cfg(target_os = "linux")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bson::spec::BinarySubtype;
use bson::{Binary, RawArrayBuf, RawDocument, RawDocumentBuf, rawdoc};
use sdam::Client;
use sdam_core::wire::OpMsg;

use crate::scripted::{Answer, Scripted, name};

#[path = "embedded/scripted.rs"]
mod scripted;

/// The length of a chunk.
const CHUNK: u64 = 255 * 1024;

const MIB: u64 = 1024 * 1024;

/// Returns the most memory that the process has had so far, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Returns the byte that fills a chunk.
fn filling(n: u64) -> u8 {
    u8::try_from(n % 251).unwrap()
}

/// Takes chunks of a file, and returns their number and their length.
fn take(command: &OpMsg<'_>) -> (i32, u64) {
    let (mut count, mut length) = (0, 0);
    for chunk in command.sequences().flat_map(|sequence| sequence.documents()) {
        let chunk = chunk.unwrap();
        let n = u64::try_from(chunk.get_i32("n").unwrap()).unwrap();
        let data = chunk.get_binary("data").unwrap().bytes;
        assert_eq!((data[0], data[data.len() - 1]), (filling(n), filling(n)));
        (count, length) = (count + 1, length + data.len() as u64);
    }
    (count, length)
}

/// Returns the chunks that a search is for.
fn chunks(length: u64, find: &RawDocument) -> RawDocumentBuf {
    let range = find.get_document("filter").unwrap().get_document("n");
    let first = range.map_or(0, |range| u64::try_from(range.get_i64("$gte").unwrap()).unwrap());
    let limit = u64::try_from(find.get_i64("limit").unwrap()).unwrap();
    let mut batch = RawArrayBuf::new();
    for n in first..(first + limit).min(length.div_ceil(CHUNK)) {
        let bytes = vec![filling(n); usize::try_from(CHUNK.min(length - n * CHUNK)).unwrap()];
        let data = Binary { subtype: BinarySubtype::Generic, bytes };
        batch.push(rawdoc! { "n": i32::try_from(n).unwrap(), "data": data });
    }
    found(batch)
}

fn found(batch: RawArrayBuf) -> RawDocumentBuf {
    rawdoc! { "cursor": { "id": 0_i64, "ns": "app.fs", "firstBatch": batch }, "ok": 1 }
}

/// Starts a server whose bucket has indexes, a file of this length, and whatever is stored.
fn server(length: u64, stored: Arc<AtomicU64>) -> Scripted {
    Scripted::start(move |command| {
        let of = command.body.iter().next().unwrap().unwrap().1;
        let is_of_chunks = of.as_str() == Some("fs.chunks");
        Answer::of(match &*name(command) {
            "insert" if is_of_chunks => {
                let (count, length) = take(command);
                stored.fetch_add(length, Ordering::Relaxed);
                rawdoc! { "n": count, "ok": 1 }
            }
            "find" if is_of_chunks => chunks(length, command.body),
            "find" => {
                let mut batch = RawArrayBuf::new();
                let length = i64::try_from(length).unwrap();
                batch.push(rawdoc! { "_id": 7, "length": length, "chunkSize": 255 * 1024 });
                found(batch)
            }
            _ => rawdoc! { "n": 1, "ok": 1 },
        })
    })
}

/// Stores a file of this length, and reads it.
async fn store_and_read(length: u64) {
    let stored = Arc::<AtomicU64>::default();
    let server = server(length, Arc::clone(&stored));
    let client = Client::connect(&server.uri()).await.unwrap();
    let bucket = client.database("app").gridfs_bucket();
    let mut upload = bucket.open_upload_stream("long").await.unwrap();
    let mut piece = vec![0; usize::try_from(CHUNK).unwrap()];
    for n in 0..length.div_ceil(CHUNK) {
        piece.truncate(usize::try_from(CHUNK.min(length - n * CHUNK)).unwrap());
        piece.fill(filling(n));
        upload.write_all(&piece).await.unwrap();
    }
    upload.close().await.unwrap();
    assert_eq!((upload.bytes_done(), stored.load(Ordering::Relaxed)), (length, length));

    let mut download = bucket.open_download_stream(7).await.unwrap();
    let mut n = 0;
    while let Some(bytes) = download.try_next().await.unwrap() {
        assert_eq!((bytes[0], bytes[bytes.len() - 1]), (filling(n), filling(n)));
        n += 1;
    }
    assert_eq!((download.bytes_done(), n), (length, length.div_ceil(CHUNK)));
    client.close().await;
}

/// "Memory of a stream: at most its chunks in flight".
#[tokio::test]
async fn a_file_of_four_gibibytes_takes_the_memory_of_what_is_in_flight() {
    let before = peak();
    store_and_read(64 * MIB).await;
    let short = peak();
    store_and_read(4096 * MIB + 1).await;
    let long = peak();
    println!(
        "{} MiB before, {} MiB with 64 MiB, {} MiB with 4 GiB",
        before / MIB,
        short / MIB,
        long / MIB
    );
    // Batches of 2 MiB, ranges of 4, three each, and the server's: as messages, and in the buffers
    // of both. Allocators keep what was freed for each thread.
    assert!(short - before < 128 * MIB, "{} MiB", (short - before) / MIB);
    assert!(long - short < 64 * MIB, "{} MiB", (long - short) / MIB);
}
