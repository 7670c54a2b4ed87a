//! Histories of files that break each rule are found.

mod rivals;

use std::sync::Arc;

use bson::spec::BinarySubtype;
use bson::{Binary, Bson, RawDocumentBuf, doc, rawdoc};
use sdam_cluster::CommittedChanges;
use sdam_core::bson;

use super::super::super::conversation::Command;
use super::super::testing::{at, command, reply};
use super::{CLEANING, Fate, Files, Finding, Source};

/// Ten bytes, in chunks of four.
const SOURCE: Source = Source { seed: 7, length: 10, chunk_size: 4 };

const DONE: u64 = 5;

/// A file of the client 0, whose `_id` is 0, with so many batches at once.
fn begun(in_flight: usize) -> Files {
    let mut files = Files::default();
    let number = files.begin(0, SOURCE, "a", in_flight);
    files.is_named(number, &Bson::Int64(0));
    files
}

fn chunk(n: i32, bytes: Vec<u8>) -> RawDocumentBuf {
    let data = Binary { subtype: BinarySubtype::Generic, bytes };
    rawdoc! { "_id": 100 + n, "files_id": 0_i64, "n": n, "data": data }
}

fn bytes(n: i32) -> Vec<u8> {
    let start = u64::try_from(n).unwrap() * 4;
    SOURCE.bytes(start, (start + 4).min(10))
}

fn insert_of(collection: &str, documents: Vec<RawDocumentBuf>) -> Command {
    let insert = command((1, 0, 1), None, Some(1), rawdoc! { "insert": collection });
    let documents = documents.into_iter().map(|it| ("documents".to_owned(), it)).collect();
    Command { documents, ..Arc::unwrap_or_clone(insert) }
}

/// Inserts these chunks.
fn batch(numbers: &[i32]) -> Command {
    insert_of("fs.chunks", numbers.iter().map(|n| chunk(*n, bytes(*n))).collect())
}

/// Inserts the document of a file of that length.
fn file(length: i64) -> Command {
    let file = rawdoc! { "_id": 0_i64, "length": length, "chunkSize": 4, "filename": "a" };
    insert_of("fs.files", vec![file])
}

fn delete(millis: u64, collection: &str, filter: RawDocumentBuf) -> Arc<Command> {
    let mut deletes = bson::RawArrayBuf::new();
    deletes.push(rawdoc! { "q": filter, "limit": 0 });
    let body = rawdoc! { "delete": collection, "deletes": deletes };
    command((millis, 0, 1), None, Some(1), body)
}

fn removal(millis: u64) -> Arc<Command> {
    delete(millis, "fs.chunks", rawdoc! { "files_id": { "$eq": 0_i64 } })
}

fn done(files: &mut Files, command: &Command) {
    files.sent(command).unwrap();
    files.replied(command, &reply(DONE, rawdoc! { "ok": 1.0 }));
}

/// A file all of whose chunks were acknowledged.
fn written() -> Files {
    let mut files = begun(1);
    done(&mut files, &batch(&[0, 1, 2]));
    files
}

/// A file that is stored, as its application knows.
fn stored() -> Files {
    let mut files = written();
    files.closes(0, false);
    done(&mut files, &file(10));
    files.ends(0, Fate::Acknowledged).unwrap();
    files
}

fn rule(finding: Finding) -> Option<&'static str> {
    finding.err().map(|violation| violation.check)
}

fn has_chunks(files: &mut Files, numbers: &[i32]) {
    for n in numbers {
        let data = Binary { subtype: BinarySubtype::Generic, bytes: bytes(*n) };
        let document = doc! { "files_id": 0_i64, "n": *n, "data": data };
        files.chunk_changes("insert", Some(&(100 + n).into()), Some(&document)).unwrap();
    }
}

fn has_file(files: &mut Files) -> Finding {
    files.file_changes("insert", Some(&Bson::Int64(0)), Some(&doc! { "filename": "a" }))
}

fn finish(files: &Files) -> Option<&'static str> {
    files.finish().err().map(|(_, violation)| violation.check)
}

#[test]
fn bytes_are_the_same_wherever_they_begin() {
    let all = SOURCE.bytes(0, 100);
    assert_eq!(all.len(), 100);
    for from in 0..20 {
        for to in from..40 {
            let range = usize::try_from(from).unwrap()..usize::try_from(to).unwrap();
            assert_eq!(SOURCE.bytes(from, to), all[range]);
        }
    }
    assert_ne!(Source { seed: 8, ..SOURCE }.bytes(0, 100), all);
}

#[test]
fn chunks_that_are_not_what_was_written_are_found() {
    let rule_of = |chunk| rule(begun(1).sent(&insert_of("fs.chunks", vec![chunk])));
    let broken = Some("chunks are what was written");
    assert_eq!(rule_of(chunk(2, bytes(2))), None);
    assert_eq!(rule_of(chunk(1, bytes(0))), broken);
    assert_eq!(rule_of(chunk(2, SOURCE.bytes(8, 12))), broken);
    assert_eq!(rule_of(chunk(3, Vec::new())), broken);
    let of_none = rawdoc! { "_id": 1, "files_id": 9_i64, "n": 0 };
    assert_eq!(rule_of(of_none), Some("chunks are of a file"));
}

#[test]
fn more_batches_at_once_than_may_be_are_found() {
    let mut files = begun(2);
    files.sent(&batch(&[0])).unwrap();
    files.sent(&batch(&[1])).unwrap();
    // The same one again is no other one.
    files.sent(&batch(&[1])).unwrap();
    files.lost(at(2), &batch(&[1])).unwrap();
    assert_eq!(rule(files.sent(&batch(&[2]))), Some("as many batches are under way as may be"));
    let mut files = begun(1);
    done(&mut files, &batch(&[0]));
    files.sent(&batch(&[1])).unwrap();
    files.lost(at(2), &batch(&[1])).unwrap();
    files.sent(&batch(&[2])).unwrap();
}

#[test]
fn a_document_that_is_sent_too_early_or_says_something_else_is_found() {
    let mut files = written();
    assert_eq!(rule(files.sent(&file(10))), Some("only what is closed is stored"));
    files.closes(0, false);
    files.sent(&file(10)).unwrap();
    assert_eq!(rule(files.sent(&file(11))), Some("the document says what was written"));
    let early = Some("a file is stored once all chunks are acknowledged");
    for (answer, is_early) in [
        (rawdoc! { "ok": 0.0, "code": 8 }, true),
        (rawdoc! { "ok": 1.0, "writeConcernError": { "code": 64 } }, true),
        (rawdoc! { "ok": 1.0, "writeErrors": [{ "index": 1, "code": 8 }] }, true),
        (rawdoc! { "ok": 1.0 }, false),
    ] {
        let mut files = begun(1);
        files.closes(0, false);
        files.sent(&batch(&[0, 1, 2])).unwrap();
        assert_eq!(rule(files.sent(&file(10))), early, "it has no reply");
        files.replied(&batch(&[0, 1, 2]), &reply(DONE, answer));
        assert_eq!(rule(files.sent(&file(10))), early.filter(|_| is_early));
    }
}

#[test]
fn a_document_outside_of_its_transaction_or_in_another_is_found() {
    let in_transaction = || {
        let mut file = file(10);
        file.body.append(bson::raw::cstr!("autocommit"), false);
        file
    };
    let mut files = written();
    files.closes(0, true);
    files.sent(&in_transaction()).unwrap();
    let outside = rule(files.sent(&file(10)));
    let mut files = written();
    files.closes(0, false);
    let broken = Some("a file is in the transaction that it was closed in");
    assert_eq!((rule(files.sent(&in_transaction())), outside), (broken, broken));
}

#[test]
fn an_acknowledgment_without_that_of_a_server_is_found() {
    let mut files = written();
    files.closes(0, false);
    files.sent(&file(10)).unwrap();
    files.replied(&file(10), &reply(DONE, rawdoc! { "ok": 1.0, "writeConcernError": {} }));
    let found = rule(files.ends(0, Fate::Acknowledged));
    assert_eq!(found, Some("what is acknowledged was stored"));
}

#[test]
fn a_checkpoint_before_the_acknowledgment_is_found() {
    let mut files = begun(2);
    files.sent(&batch(&[0])).unwrap();
    done(&mut files, &batch(&[1]));
    files.is_at(0, 0).unwrap();
    let broken = Some("a checkpoint is behind what was acknowledged");
    assert_eq!(rule(files.is_at(0, 4)), broken);
    files.replied(&batch(&[0]), &reply(DONE, rawdoc! { "ok": 1.0 }));
    files.is_at(0, 8).unwrap();
    assert_eq!(rule(files.is_at(0, 12)), broken);
}

#[test]
fn chunks_that_are_removed_before_their_file_are_found() {
    let broken = Some("chunks go after the document of their file");
    let mut files = stored();
    assert_eq!(rule(files.sent(&removal(6))), broken);
    files.deletes(0);
    let of_file = delete(6, "fs.files", rawdoc! { "_id": { "$in": [0_i64] } });
    files.sent(&of_file).unwrap();
    assert_eq!(rule(files.sent(&removal(6))), broken, "that has no reply yet");
    files.replied(&of_file, &reply(7, rawdoc! { "ok": 1.0, "n": 1 }));
    files.sent(&removal(8)).unwrap();
    written().sent(&removal(6)).unwrap();
}

#[test]
fn files_that_are_not_to_be_deleted_and_are_are_found() {
    let of_file = delete(6, "fs.files", rawdoc! { "_id": { "$eq": 0_i64 } });
    let broken = Some("only what is to be deleted is");
    assert_eq!(rule(stored().sent(&of_file)), broken);
    let mut files = stored();
    files.deletes_name("b");
    assert_eq!(rule(files.sent(&of_file)), broken);
    files.renames_name("c", "b");
    files.renames(0, "c");
    files.sent(&of_file).unwrap();
}

#[test]
fn chunks_that_are_removed_though_another_stream_goes_on_behind_them_are_found() {
    let behind = |n: i64| {
        let filter = rawdoc! { "files_id": { "$eq": 0_i64 }, "n": { "$gte": n } };
        delete(6, "fs.chunks", filter)
    };
    let mut files = begun(1);
    done(&mut files, &batch(&[0, 1]));
    files.resumes(0, 8, 1);
    files.sent(&behind(2)).unwrap();
    let broken = Some("what was acknowledged is kept for another stream");
    assert_eq!(rule(files.sent(&behind(1))), broken);
    files.is_at(0, 8).unwrap();
    files.sent(&behind(2)).unwrap();
    assert_eq!(rule(files.sent(&removal(6))), broken);
    files.aborts(0);
    files.sent(&removal(6)).unwrap();
}

#[test]
fn downloads_of_other_bytes_or_files_are_found() {
    let mut files = stored();
    files.reads(0, 3, &SOURCE.bytes(3, 9)).unwrap();
    let broken = Some("downloads are what was stored");
    assert_eq!(rule(files.reads(0, 3, &SOURCE.bytes(4, 9))), broken);
    assert_eq!(rule(files.reads(0, 9, &SOURCE.bytes(9, 11))), broken);
    assert_eq!(files.found(&Bson::Int64(0), Some("a")).unwrap(), 0);
    files.found(&Bson::Int64(0), Some("b")).unwrap_err();
    files.found(&Bson::Int64(1), None).unwrap_err();
}

#[test]
fn a_file_that_is_without_a_chunk_at_any_time_is_found() {
    let broken = Some("no file is without its chunks");
    let mut files = stored();
    has_chunks(&mut files, &[0, 2]);
    assert_eq!(rule(has_file(&mut files)), broken);
    has_chunks(&mut files, &[1]);
    has_file(&mut files).unwrap();
    let stays = Some("the chunks of a file that is stored stay");
    assert_eq!(rule(files.chunk_changes("delete", Some(&101.into()), None)), stays);
    files.file_changes("delete", Some(&Bson::Int64(0)), None).unwrap();
    files.chunk_changes("delete", Some(&101.into()), None).unwrap();
}

#[test]
fn a_log_that_is_not_whole_is_found() {
    let mut files = stored();
    files.learn(CommittedChanges::default()).unwrap();
    let mut lost = CommittedChanges::default();
    lost.is_whole = false;
    files.learn(lost).unwrap_err();
}

#[test]
fn files_that_are_missing_or_should_not_be_there_are_found() {
    let mut files = stored();
    has_chunks(&mut files, &[0, 1, 2]);
    assert_eq!(finish(&files), Some("what was acknowledged is there"));
    has_file(&mut files).unwrap();
    assert_eq!(finish(&files), None);
    for (fate, is_found) in [
        (Fate::Unknown, false),
        (Fate::Failed, true),
        (Fate::Aborted, true),
        (Fate::Open, true),
        (Fate::Dropped { client: 0, at: at(9) }, true),
    ] {
        files.ends(0, fate).unwrap();
        let broken = Some("what has failed, or was given up, is not stored");
        assert_eq!(finish(&files), broken.filter(|_| is_found), "{fate:?}");
    }
    files.ends(0, Fate::Acknowledged).unwrap();
    files.deletes(0);
    done(&mut files, &delete(6, "fs.files", rawdoc! { "_id": { "$eq": 0_i64 } }));
    assert_eq!(finish(&files), Some("what was deleted is gone"));
}

#[test]
fn a_file_with_another_name_is_found() {
    let mut files = stored();
    has_chunks(&mut files, &[0, 1, 2]);
    let named = Some(doc! { "filename": "b" });
    files.file_changes("insert", Some(&Bson::Int64(0)), named.as_ref()).unwrap();
    assert_eq!(finish(&files), Some("files have the names that they were given"));
    files.renames(0, "b");
    assert_eq!(finish(&files), None);
}

/// Chunks that were dropped are removed unless that has failed, or had no server, or met another
/// upload.
#[test]
fn chunks_that_are_left_are_found_unless_their_removal_has_failed() {
    let dropped = || {
        let mut files = written();
        has_chunks(&mut files, &[0, 1, 2]);
        files.ends(0, Fate::Dropped { client: 0, at: at(6) }).unwrap();
        files
    };
    let broken = Some("what is dropped is removed");
    assert_eq!(finish(&dropped()), broken);
    for (client, from, until, is_found) in
        [(0, 1, 6, false), (0, 20_000, 90_000, false), (1, 1, 6, true), (0, 1, 5, true)]
    {
        let mut files = dropped();
        files.is_troubled(client, (at(from), at(until)));
        assert_eq!(finish(&files), broken.filter(|_| is_found));
    }
    for (millis, is_found) in [(7, false), (5, true)] {
        let mut files = dropped();
        files.lost(at(millis), &removal(6)).unwrap();
        assert_eq!(finish(&files), broken.filter(|_| is_found));
    }
    let mut files = dropped();
    let duplicate = rawdoc! { "ok": 1.0, "writeErrors": [{ "index": 0, "code": 11_000 }] };
    files.replied(&batch(&[0]), &reply(6, duplicate));
    assert_eq!(finish(&files), None);
}

/// Chunks without a reply may come after the removal, and nothing else may.
#[test]
fn chunks_that_are_left_by_a_removal_that_was_done_are_found() {
    let broken = Some("what is removed is gone");
    let mut files = written();
    has_chunks(&mut files, &[2]);
    done(&mut files, &removal(6));
    files.ends(0, Fate::Aborted).unwrap();
    assert_eq!(finish(&files), broken);
    files.lost(at(7), &batch(&[2])).unwrap();
    assert_eq!(finish(&files), None);
    let mut files = written();
    files.ends(0, Fate::Aborted).unwrap();
    assert_eq!(finish(&files), Some("what is aborted is removed"));
    let mut files = begun(1);
    files.ends(0, Fate::Aborted).unwrap();
    assert_eq!(finish(&files), None, "nothing was sent");
}

#[test]
fn a_batch_of_a_stream_that_was_left_may_come_after_the_removal() {
    let mut files = begun(1);
    files.sent(&batch(&[2])).unwrap();
    files.resumes(0, 0, 1);
    done(&mut files, &removal(3));
    files.replied(&batch(&[2]), &reply(4, rawdoc! { "ok": 1.0 }));
    has_chunks(&mut files, &[2]);
    files.ends(0, Fate::Aborted).unwrap();
    assert_eq!(finish(&files), None);
}

/// A removal may need the connection of a command that takes long.
#[test]
fn a_command_that_takes_long_is_a_trouble() {
    let mut files = begun(1);
    let find = command((1, 0, 1), None, Some(1), rawdoc! { "find": "a" });
    files.replied(&find, &reply(1_000, rawdoc! { "ok": 1.0 }));
    assert!(!files.was_troubled(0, at(0), at(0) + CLEANING));
    files.replied(&find, &reply(2_001, rawdoc! { "ok": 1.0 }));
    assert!(files.was_troubled(0, at(0), at(0) + CLEANING));
    let mut files = begun(1);
    files.unused(at(60_000), find.line);
    assert!(files.was_troubled(0, at(30_000), at(30_000)));
    assert!(!files.was_troubled(0, at(61_000), at(61_000)));
}

#[test]
fn a_batch_that_its_upload_does_not_wait_for_is_found() {
    let under_way = || {
        let mut files = begun(1);
        files.sent(&batch(&[0])).unwrap();
        files
    };
    let broken = Some("batches under way are waited for");
    let mut files = under_way();
    files.ends(0, Fate::Dropped { client: 0, at: at(6) }).unwrap();
    assert_eq!(rule(files.lost(at(6), &batch(&[0]))), broken);
    files.lost(at(7), &batch(&[0])).unwrap();
    let mut files = under_way();
    files.is_given_up(0, at(6));
    assert_eq!(rule(files.lost(at(6), &batch(&[0]))), broken);
    // With the connection, other batches may be lost at once.
    let mut files = under_way();
    files.ends(0, Fate::Failed).unwrap();
    files.is_given_up(0, at(6));
    files.lost(at(6), &batch(&[0])).unwrap();
}
