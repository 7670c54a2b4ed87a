//! Commands of streams that break each rule are found.

use std::sync::Arc;

use bson::{RawDocumentBuf, rawdoc};
use sdam_core::bson;

use super::super::testing::{command, reply};
use super::{Beginning, Command, Streams};

fn token(text: &str) -> RawDocumentBuf {
    rawdoc! { "_data": text }
}

fn aggregate(session: u8, stage: RawDocumentBuf) -> Arc<Command> {
    let pipeline = [rawdoc! { "$changeStream": stage }];
    let mut body = rawdoc! { "aggregate": "c" };
    let mut stages = bson::RawArrayBuf::new();
    pipeline.into_iter().for_each(|stage| stages.push(stage));
    body.append(bson::raw::cstr!("pipeline"), stages);
    command((0, 0, 1), Some(1), Some(session), body)
}

fn more(session: u8, cursor: i64) -> Arc<Command> {
    command((0, 0, 1), Some(1), Some(session), rawdoc! { "getMore": cursor, "collection": "c" })
}

/// A batch without events.
fn empty(cursor: i64, text: &str) -> RawDocumentBuf {
    let cursor = rawdoc! { "id": cursor, "nextBatch": [], "postBatchResumeToken": token(text) };
    rawdoc! { "ok": 1.0, "cursor": cursor }
}

fn begun(beginning: Beginning) -> Streams {
    let mut streams = Streams::new(2);
    streams.begin(1, beginning, false);
    streams
}

/// A stream that was opened, with the cursor 7 and the token "b".
fn opened(beginning: Beginning, stage: RawDocumentBuf) -> Streams {
    let mut streams = begun(beginning);
    streams.sent(&aggregate(1, stage.clone())).unwrap();
    streams.replied(&aggregate(1, stage), &reply(1, empty(7, "b")));
    streams
}

fn check(streams: &Streams, command: &Command) -> Option<&'static str> {
    streams.clone().sent(command).err().map(|violation| violation.check)
}

#[test]
fn a_stream_that_begins_elsewhere_is_found() {
    let rule = Some("a stream begins where it is to begin");
    let (after, other) = (|| rawdoc! { "startAfter": token("b") }, token("a"));
    let resumes = rawdoc! { "resumeAfter": token("b") };
    assert_eq!(check(&begun(Beginning::Now), &aggregate(1, after())), rule);
    assert_eq!(check(&begun(Beginning::StartAfter(other)), &aggregate(1, after())), rule);
    assert_eq!(check(&begun(Beginning::Stored), &aggregate(1, resumes.clone())), rule);
    assert_eq!(check(&begun(Beginning::Stored), &aggregate(1, after())), None);
    let beginning = Beginning::ResumeAfter(token("b"));
    assert_eq!(check(&begun(beginning.clone()), &aggregate(1, rawdoc! {})), rule);
    assert_eq!(check(&begun(beginning), &aggregate(1, resumes)), None);
}

#[test]
fn a_stream_that_goes_on_elsewhere_or_otherwise_is_found() {
    let streams = opened(Beginning::Now, rawdoc! {});
    let resumes = |text| rawdoc! { "resumeAfter": token(text) };
    assert_eq!(check(&streams, &aggregate(1, resumes("b"))), None);
    for (session, stage, rule) in [
        (1, rawdoc! {}, "a stream goes on where it has come to"),
        (2, resumes("b"), "a stream has one session"),
        (1, rawdoc! { "startAfter": token("b") }, "a stream goes on as it has begun"),
        (
            1,
            rawdoc! { "startAfter": token("b"), "resumeAfter": token("b") },
            "a stream says once where it begins",
        ),
    ] {
        assert_eq!(check(&streams, &aggregate(session, stage)), Some(rule));
    }
    let stage = || rawdoc! { "startAfter": token("b") };
    let mut streams = opened(Beginning::StartAfter(token("b")), stage());
    assert_eq!(check(&streams, &aggregate(1, stage())), None);
    assert_eq!(
        check(&streams, &aggregate(1, resumes("a"))),
        Some("a stream goes on as it has begun")
    );
    streams.handed_out(1);
    assert_eq!(check(&streams, &aggregate(1, stage())), Some("a stream goes on as it has begun"));
    assert_eq!(check(&streams, &aggregate(1, resumes("a"))), Some("tokens only advance"));
    assert_eq!(check(&streams, &aggregate(1, resumes("c"))), None);
}

#[test]
fn a_stream_that_goes_on_again_and_again_for_one_error_is_found() {
    let mut streams = opened(Beginning::Now, rawdoc! {});
    let resumes = aggregate(1, rawdoc! { "resumeAfter": token("b") });
    streams.sent(&resumes).unwrap();
    streams.sent(&resumes).unwrap();
    let rule = Some("a stream goes on once for each error");
    assert_eq!(check(&streams, &resumes), rule);
    streams.calls(1);
    streams.sent(&resumes).unwrap();
    streams.replied(&resumes, &reply(1, empty(8, "b")));
    for _ in 0..2 {
        streams.sent(&resumes).unwrap();
    }
    assert_eq!(check(&streams, &resumes), rule);
    streams.sent(&more(1, 8)).unwrap();
    assert_eq!(check(&streams, &resumes), None);
}

#[test]
fn a_stream_that_goes_on_after_another_error_is_found() {
    let resumes = aggregate(1, rawdoc! { "resumeAfter": token("b") });
    for (error, is_found) in [
        (rawdoc! { "ok": 0.0, "code": 96 }, true),
        (rawdoc! { "ok": 0.0, "code": 43 }, false),
        (rawdoc! { "ok": 0.0, "code": 6, "errorLabels": ["ResumableChangeStreamError"] }, false),
    ] {
        let mut streams = opened(Beginning::Now, rawdoc! {});
        streams.replied(&more(1, 7), &reply(1, error));
        let rule = is_found.then_some("a stream goes on after errors that say so");
        assert_eq!(check(&streams, &resumes), rule);
    }
}

#[test]
fn a_get_more_of_another_cursor_or_session_is_found() {
    let streams = opened(Beginning::Now, rawdoc! {});
    let rule = Some("a stream reads the cursor that it has opened");
    assert_eq!(check(&streams, &more(1, 7)), None);
    assert_eq!(check(&streams, &more(1, 6)), rule);
    assert_eq!(check(&streams, &more(2, 7)), rule);
}

#[test]
fn a_token_that_stays_behind_an_empty_batch_is_found() {
    let streams = opened(Beginning::Now, rawdoc! {});
    streams.finds_nothing(1, Some("b")).unwrap();
    assert!(streams.finds_nothing(1, Some("a")).is_err());
    assert!(streams.finds_nothing(1, None).is_err());
}
