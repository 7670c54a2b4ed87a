//! The same for several uploads under one `_id`, and for aborts that fail.

use std::sync::Arc;

use bson::spec::BinarySubtype;
use bson::{Binary, Bson, RawDocumentBuf, rawdoc};
use sdam_core::bson;

use super::super::super::testing::{at, command, reply};
use super::super::failure::{FailedAbort, Reason};
use super::super::{Fate, Files, Source};
use super::{
    DONE, batch, begun, chunk, delete, done, file, finish, has_chunks, has_file, insert_of,
    removal, rule, stored, written,
};
use crate::sim::applications::conversation::Command;

/// The bytes of a rival: two chunks of 64.
const RIVAL: Source = Source { seed: 8, length: 128, chunk_size: 64 };

/// A file, with a rival of the client 1, whose number is 1.
fn rivalled(mut files: Files) -> Files {
    files.begin_rival(0, &Bson::Int64(0), (1, RIVAL), ("b", 1));
    files
}

/// A chunk of the rival.
fn rival_chunk(n: i32) -> RawDocumentBuf {
    let start = u64::try_from(n).unwrap() * 64;
    let data = Binary { subtype: BinarySubtype::Generic, bytes: RIVAL.bytes(start, start + 64) };
    rawdoc! { "_id": 200 + n, "files_id": 0_i64, "n": n, "data": data }
}

fn rival_batch(numbers: &[i32]) -> Command {
    insert_of("fs.chunks", numbers.iter().map(|n| rival_chunk(*n)).collect())
}

/// Removes all chunks, by the rival's client.
fn rival_removal(millis: u64) -> Command {
    let mut removal = Arc::unwrap_or_clone(removal(millis));
    removal.line.client = 1;
    removal
}

/// Has a majority have a chunk of the rival.
fn has_rival_chunk(files: &mut Files, n: i32) {
    let document = bson::deserialize_from_slice(rival_chunk(n).as_bytes()).unwrap();
    files.chunk_changes("insert", Some(&(200 + n).into()), Some(&document)).unwrap();
}

/// Asks whose the first chunk is; the chunk of this `_id` is the answer.
fn asked(files: &mut Files, millis: u64, chunk: i32) {
    let filter = rawdoc! { "files_id": { "$eq": 0_i64 }, "n": 0 };
    let find = rawdoc! { "find": "fs.chunks", "filter": filter, "projection": { "_id": 1 } };
    let find = command((millis, 0, 1), None, Some(1), find);
    files.sent(&find).unwrap();
    let found = rawdoc! { "ok": 1.0, "cursor": { "firstBatch": [{ "_id": chunk }] } };
    files.replied(&find, &reply(millis, found));
}

/// Refuses a batch because of the chunks of another upload.
fn refuse(files: &mut Files, batch: &Command) {
    let duplicate = rawdoc! { "ok": 1.0, "writeErrors": [{ "index": 0, "code": 11_000 }] };
    files.sent(batch).unwrap();
    files.replied(batch, &reply(DONE, duplicate));
}

/// An abort of that upload, which has failed.
fn failed(number: usize, reason: Reason) -> FailedAbort {
    let (from, to, error) = (at(6), at(9), String::new());
    FailedAbort { number, client: 0, from, to, reason, error }
}

#[test]
fn chunks_under_one_id_are_those_of_the_upload_that_has_written_them() {
    let mut files = rivalled(begun(1));
    done(&mut files, &rival_batch(&[0, 1]));
    refuse(&mut files, &batch(&[0]));
    has_rival_chunk(&mut files, 1);
    let [file, rival] = &files.all[..] else { panic!("{files:?}") };
    assert!(file.acknowledged.is_empty() && file.is_contested && file.chunks.is_empty());
    assert!(rival.acknowledged.len() == 2 && !rival.is_contested && rival.chunks.len() == 1);
    assert!(rival.has_first_chunk() && !file.has_first_chunk());
    let strange = insert_of("fs.chunks", vec![chunk(0, RIVAL.bytes(1, 65))]);
    assert_eq!(rule(files.sent(&strange)), Some("chunks are what was written"));
}

#[test]
fn a_document_of_a_rival_is_found() {
    let mut files = rivalled(written());
    files.closes(0, false);
    let rival = rawdoc! { "_id": 0_i64, "length": 128_i64, "chunkSize": 64, "filename": "b" };
    let stored = rule(files.sent(&insert_of("fs.files", vec![rival])));
    assert_eq!(stored, Some("only what is closed is stored"));
    done(&mut files, &file(10));
    files.ends(0, Fate::Acknowledged).unwrap();
    assert!(files.known().iter().all(|known| known.number == 0));
    assert_eq!(files.found(&Bson::Int64(0), Some("a")).unwrap(), 0);
}

#[test]
fn a_removal_of_the_chunks_of_another_upload_is_found() {
    let broken = Some("the chunks of another upload stay");
    // The file has the first chunk: its own upload removes it, and no other does.
    let mut files = rivalled(written());
    assert_eq!(rule(files.sent(&removal(6))), broken, "no upload is given up");
    let mut files = rivalled(written());
    files.aborts(1);
    assert_eq!(rule(files.sent(&removal(6))), broken);
    let mut files = rivalled(written());
    files.aborts(1);
    files.ends(0, Fate::Dropped { client: 0, at: at(6) }).unwrap();
    files.sent(&removal(6)).unwrap();
    // Then the rival has it.
    done(&mut files, &rival_batch(&[0]));
    files.all[1].began = Some(at(7));
    assert_eq!(rule(files.sent(&removal(8))), broken, "another client sends it");
    files.sent(&rival_removal(8)).unwrap();
    let mut files = rivalled(begun(1));
    done(&mut files, &rival_batch(&[0]));
    files.aborts(0);
    assert_eq!(rule(files.sent(&removal(6))), broken);
    // Without a reply, no upload is known to have it.
    let mut files = rivalled(begun(1));
    files.sent(&rival_batch(&[0])).unwrap();
    files.aborts(0);
    files.sent(&removal(6)).unwrap();
}

#[test]
fn a_removal_of_what_another_upload_goes_on_with_is_found() {
    let behind = |n: i64| {
        let filter = rawdoc! { "files_id": { "$eq": 0_i64 }, "n": { "$gte": n } };
        delete(6, "fs.chunks", filter)
    };
    let broken = Some("the chunks of another upload stay");
    let mut files = rivalled(written());
    files.resumes(1, 64, 1);
    assert_eq!(rule(files.sent(&behind(1))), broken);
    files.resumes(0, 8, 1);
    files.sent(&behind(2)).unwrap();
    files.is_at(0, 8).unwrap();
    files.aborts(1);
    assert_eq!(rule(files.sent(&removal(6))), broken);
}

/// The application may delete a file while another upload has its `_id`.
#[test]
fn chunks_go_with_the_file_that_is_deleted_whatever_upload_has_them() {
    let broken = Some("the chunks of another upload stay");
    let mut files = rivalled(stored());
    done(&mut files, &rival_batch(&[0]));
    files.deletes(0);
    assert_eq!(rule(files.sent(&removal(6))), broken);
    done(&mut files, &delete(6, "fs.files", rawdoc! { "_id": { "$eq": 0_i64 } }));
    files.sent(&removal(7)).unwrap();
    assert!(!files.all[1].is_gone);
}

#[test]
fn an_abort_that_is_refused_without_a_reason_is_found() {
    let broken = Some("an abort is refused for a reason");
    let refusal =
        |files: &mut Files, number| rule(files.fails_to_abort(failed(number, Reason::ChunksInUse)));
    assert_eq!(refusal(&mut written(), 0), broken);
    let mut files = rivalled(written());
    assert_eq!((refusal(&mut files, 0), refusal(&mut files, 1)), (broken, broken));
    // The first chunk is that of the file.
    asked(&mut files, 7, 100);
    assert_eq!((refusal(&mut files, 0), refusal(&mut files, 1)), (broken, None));
    refuse(&mut files, &batch(&[0]));
    assert_eq!(refusal(&mut files, 0), None);
    let mut files = rivalled(written());
    files.closes(0, false);
    files.sent(&file(10)).unwrap();
    assert_eq!((refusal(&mut files, 0), refusal(&mut files, 1)), (None, None));
    let mut files = written();
    files.resumes(0, 0, 1);
    assert_eq!(refusal(&mut files, 0), None);
}

#[test]
fn an_upload_that_is_over_before_its_document_is_sent_is_found() {
    let mut files = written();
    files.closes(0, false);
    let ended = rule(files.fails_to_abort(failed(0, Reason::Ended)));
    assert_eq!(ended, Some("an abort is refused for a reason"));
    files.sent(&file(10)).unwrap();
    files.fails_to_abort(failed(0, Reason::Ended)).unwrap();
}

#[test]
fn an_abort_that_fails_without_trouble_is_found() {
    let broken = Some("an abort fails for a reason");
    let failing = |reason| {
        let mut files = begun(1);
        files.ends(0, Fate::Failed).unwrap();
        files.fails_to_abort(failed(0, reason)).unwrap();
        files
    };
    assert_eq!(finish(&failing(Reason::Other)), broken);
    assert_eq!(finish(&failing(Reason::NoConnection)), None);
    for (client, from, until, is_found) in
        [(0, 1, 6, false), (0, 9, 20, false), (0, 1, 5, true), (0, 10, 20, true), (1, 1, 6, true)]
    {
        let mut files = failing(Reason::Other);
        files.is_troubled(client, (at(from), at(until)));
        assert_eq!(finish(&files), broken.filter(|_| is_found));
    }
    for (millis, is_found) in [(7, false), (5, true)] {
        let mut files = failing(Reason::Other);
        files.lost(at(millis), &removal(5)).unwrap();
        assert_eq!(finish(&files), broken.filter(|_| is_found));
    }
    let mut files = failing(Reason::Timeout);
    assert_eq!(finish(&files), broken);
    files.limits(0);
    assert_eq!(finish(&files), None);
}

/// The removal of another upload's chunks is none of those that come later.
#[test]
fn chunks_of_a_rival_that_are_left_are_found() {
    let left = |fate| {
        let mut files = rivalled(begun(1));
        files.aborts(0);
        done(&mut files, &removal(3));
        files.ends(0, Fate::Aborted).unwrap();
        done(&mut files, &rival_batch(&[0]));
        has_rival_chunk(&mut files, 0);
        files.ends(1, fate).unwrap();
        files
    };
    let (dropped, broken) = (Fate::Dropped { client: 1, at: at(6) }, "what is dropped is removed");
    assert_eq!(finish(&left(Fate::Failed)), None);
    assert_eq!(finish(&left(Fate::Aborted)), Some("what is aborted is removed"));
    assert_eq!(finish(&left(dropped)), Some(broken));
    let mut files = left(dropped);
    files.lost(at(7), &removal(7)).unwrap();
    assert_eq!(finish(&files), None);
    let mut files = left(dropped);
    asked(&mut files, 7, 100);
    assert_eq!(finish(&files), Some(broken), "its own was there");
    files.all[1].began = None;
    asked(&mut files, 7, 100);
    assert_eq!(finish(&files), None, "it was not its own");
    let mut files = left(dropped);
    done(&mut files, &rival_removal(7));
    assert_eq!(finish(&files), Some("what is removed is gone"));
}

#[test]
fn chunks_beside_those_of_a_file_are_found_unless_they_have_come_late() {
    let beside = || {
        let mut files = rivalled(stored());
        has_chunks(&mut files, &[0, 1, 2]);
        files.sent(&rival_batch(&[1])).unwrap();
        has_rival_chunk(&mut files, 1);
        has_file(&mut files).unwrap();
        files.ends(1, Fate::Failed).unwrap();
        files
    };
    let broken = Some("a file has no chunks of another upload");
    let mut files = beside();
    assert_eq!((finish(&files), files.has_more_chunks(0)), (broken, true));
    files.lost(at(7), &rival_batch(&[1])).unwrap();
    assert_eq!(finish(&files), None);
    let mut files = beside();
    files.resumes(1, 64, 1);
    assert_eq!(finish(&files), None);
}
