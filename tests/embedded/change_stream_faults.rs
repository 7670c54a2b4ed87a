//! Change streams whose server fails again and again, late, or while nothing is read, in ways that
//! no real one does on demand.

use std::future::{Future as _, poll_fn};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::Poll;
use std::time::Duration;

use bson::raw::cstr;
use bson::{Document, RawBsonRef, RawDocument, RawDocumentBuf, doc, rawdoc};
use sdam::checkpoint::CheckpointStore;
use sdam::generic::{Client, Collection};
use sdam::results::{OperationType, ResumeToken};
use sdam_core::config::Options;
use sdam_core::diagnosis::{ChangeStreamVerdict, Verdict};
use sdam_core::metrics::Exposition;
use sdam_core::topology::Topics;
use sdam_host::{ErrorKind, Events};
use sdam_tokio::Tokio;

use super::answering::Scripted;
use super::change_streams::{
    Memory, Stream, batch, id, insert, next_batch, not_found, opened, part, token,
};
use super::{LIMIT, name, sent_until, started};

/// A client with options of its own, what it sends, and its server.
struct Scene {
    client: Client<Tokio>,
    events: Events,
    _server: Scripted,
}

impl Scene {
    fn new(
        options: &str,
        script: impl Fn(&str, &RawDocument) -> Option<RawDocumentBuf> + Send + Sync + 'static,
    ) -> Self {
        Self::of(Scripted::start(25, script), options)
    }

    fn of(server: Scripted, options: &str) -> Self {
        let options =
            Options::parse(format!("{}&{options}", server.uri).trim_end_matches('&')).unwrap();
        let client = sdam_tokio::Topology::new(options).unwrap();
        let events = client.subscribe_to(Topics::COMMANDS);
        Self { client: Client::from(client), events, _server: server }
    }

    /// A server that answers each aggregate with an empty batch, and each getMore with the next of
    /// these replies.
    fn replying(options: &str, replies: Vec<RawDocumentBuf>) -> Self {
        let replies = Mutex::new(replies.into_iter());
        Self::new(options, move |command, _| match command {
            "aggregate" => Some(opened()),
            "getMore" => replies.lock().unwrap().next().or(Some(next_batch(&[], 99))),
            _ => None,
        })
    }

    fn things(&self) -> Collection<Tokio> {
        self.client.database("app").collection("things")
    }

    /// Returns the commands of that name that were sent since the last call.
    fn sent(&mut self, of: &str) -> Vec<Document> {
        let events = std::iter::from_fn(|| self.events.try_next()).filter_map(started);
        events.map(|(command, _)| command).filter(|command| name(command) == of).collect()
    }

    /// Waits until the cursor with this number is killed.
    async fn killed(&mut self, id: i64) {
        let sent = sent_until(&mut self.events, "killCursors").await;
        let (last, _) = sent.last().unwrap();
        assert_eq!(last.get_array("cursors").unwrap(), &vec![id.into()]);
    }
}

/// An error of a server, after which a stream begins again.
fn resumable() -> RawDocumentBuf {
    let labels = bson::RawArrayBuf::from_iter(["ResumableChangeStreamError"]);
    rawdoc! { "ok": 0, "code": 133, "errmsg": "no such member", "errorLabels": labels }
}

/// An error of a server that ends a stream.
fn refused() -> RawDocumentBuf {
    rawdoc! { "ok": 0, "code": 2, "errmsg": "a stage is gone" }
}

async fn next(
    stream: &mut Stream,
) -> Option<Result<sdam::results::ChangeStreamEvent, sdam::Error>> {
    tokio::time::timeout(LIMIT, stream.next()).await.expect("the call comes to an end")
}

/// "A driver MUST only attempt to resume once from a resumable error": the error of the attempt is
/// the caller's; where the server would answer another attempt, the next call makes that.
#[tokio::test]
async fn an_attempt_that_fails_with_a_resumable_error_is_made_again_by_the_next_call() {
    let fails = Arc::new(AtomicBool::new(false));
    let (failing, asked) = (Arc::clone(&fails), AtomicUsize::new(0));
    let mut scene = Scene::new("retryReads=false", move |command, _| match command {
        "aggregate" if failing.load(Ordering::Relaxed) => Some(resumable()),
        "aggregate" => Some(opened()),
        "getMore" if asked.fetch_add(1, Ordering::Relaxed) == 0 => Some(not_found()),
        "getMore" => Some(next_batch(&[insert(1)], 1)),
        _ => None,
    });
    let mut stream = scene.things().watch().await.unwrap();
    scene.sent("aggregate");
    fails.store(true, Ordering::Relaxed);
    for _ in 0..2 {
        let error = next(&mut stream).await.unwrap().unwrap_err();
        assert_eq!((error.code(), stream.is_alive()), (Some(133), true), "{error}");
        assert_eq!(scene.sent("aggregate").len(), 1, "once for each call");
    }
    fails.store(false, Ordering::Relaxed);
    assert_eq!(id(next(&mut stream).await), 1);
}

/// The same where the server refuses to go on: that is the end, and nothing is left behind,
/// although the application holds the stream still.
#[tokio::test]
async fn a_stream_that_is_refused_ends_and_leaves_nothing_behind() {
    let mut scene = Scene::replying("", vec![refused()]);
    let mut stream = scene.things().watch().await.unwrap();
    let error = next(&mut stream).await.unwrap().unwrap_err();
    assert_eq!((error.code(), stream.is_alive()), (Some(2), false), "{error}");
    scene.killed(7).await;
    assert!(next(&mut stream).await.is_none());
}

/// Client Side Operations Timeout, "Change Streams": "Drivers MUST error if `maxAwaitTimeMS` is
/// [...] greater than or equal to `timeoutMS`": that of the stream, and once.
#[tokio::test]
async fn a_stream_that_begins_again_has_the_time_that_it_was_opened_with() {
    let replies = vec![not_found(), next_batch(&[insert(1)], 1)];
    let scene = Scene::replying("timeoutMS=2000", replies);
    let watch = scene.things();
    let watch = watch.watch().timeout(LIMIT).max_await_time(Duration::from_secs(5));
    let mut stream = watch.await.unwrap();
    assert_eq!(id(next(&mut stream).await), 1);
    let watch = scene.things();
    let error = watch.watch().max_await_time(Duration::from_secs(5)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

/// "Resume Process": only an event, or a batch without one, has shown that a stream goes on. A
/// part of an event that comes again and again has not.
#[tokio::test]
async fn an_event_whose_last_part_does_not_come_is_asked_for_at_a_pace() {
    let first = part(2, 1, &rawdoc! { "operationType": "insert" });
    let asked = AtomicUsize::new(0);
    let mut scene = Scene::new("", move |command, _| match command {
        "aggregate" => Some(opened()),
        "getMore" if asked.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) => {
            Some(next_batch(std::slice::from_ref(&first), 2))
        }
        "getMore" => Some(not_found()),
        _ => None,
    });
    let things = scene.things();
    let watch = things.watch().split_large_events(true).timeout(Duration::from_millis(150));
    let mut stream = watch.await.unwrap();
    let error = next(&mut stream).await.unwrap().unwrap_err();
    assert!(error.is_timeout() && stream.is_alive(), "{error}");
    // The pauses before the last of twelve attempts would have been longer.
    let attempts = scene.sent("aggregate").len();
    assert!(attempts <= 12, "{attempts}");
}

/// `next_if_any` asks the server once at most, also if each getMore fails and the stream begins
/// again; and if each brings a part of an event.
#[tokio::test]
async fn a_call_that_asks_once_comes_back_after_it_has_begun_again() {
    let first = || part(2, 1, &rawdoc! { "operationType": "insert" });
    for replies in [vec![not_found(); 200], vec![next_batch(&[first()], 2), not_found()]] {
        let mut scene = Scene::replying("", replies);
        let things = scene.things();
        let mut stream = things.watch().split_large_events(true).await.unwrap();
        for call in 0..3 {
            let next = tokio::time::timeout(LIMIT, stream.next_if_any()).await;
            assert!(next.expect("it comes back").unwrap().is_none());
            assert!(stream.is_alive());
            assert_eq!(scene.sent("getMore").len(), 1, "{call}");
        }
    }
}

/// Client Side Operations Timeout, "Change Streams": "If a `next` call fails with a timeout error,
/// drivers MUST NOT invalidate the change stream. The subsequent `next` call MUST perform a resume
/// attempt": also if it was the server that has said so.
#[tokio::test]
async fn a_time_out_of_the_server_is_no_end_where_a_time_is_set() {
    let late = rawdoc! { "ok": 0, "code": 50, "errmsg": "operation exceeded time limit" };
    for (options, goes_on) in [("timeoutMS=60000", true), ("", false)] {
        let replies = vec![late.clone(), next_batch(&[insert(1)], 1)];
        let mut scene = Scene::replying(options, replies);
        let mut stream = scene.things().watch().await.unwrap();
        scene.sent("aggregate");
        let error = next(&mut stream).await.unwrap().unwrap_err();
        assert!(error.is_timeout(), "{error}");
        assert_eq!((stream.is_alive(), scene.sent("aggregate").len()), (goes_on, 0), "{options}");
        if goes_on {
            assert_eq!(id(next(&mut stream).await), 1);
            assert_eq!(scene.sent("aggregate").len(), 1);
        }
    }
}

/// An `invalidate` is the end, also if its server has not closed the cursor yet, which is then
/// lost: no token of an `invalidate` may be resumed after.
#[tokio::test]
async fn a_stream_ends_with_its_invalidate_whatever_becomes_of_the_cursor() {
    let end = rawdoc! { "_id": { "_data": 1 }, "operationType": "invalidate" };
    let mut scene = Scene::replying("", vec![next_batch(&[end], 1), not_found()]);
    let things = scene.things();
    let mut stream = things.watch().batch_size(1).await.unwrap();
    let event = next(&mut stream).await.unwrap().unwrap();
    assert_eq!(event.operation_type, OperationType::Invalidate);
    assert_eq!((stream.resume_token(), stream.is_alive()), (Some(&token(1)), false));
    assert!(next(&mut stream).await.is_none());
    scene.killed(7).await;
    assert!(next(&mut stream).await.is_none());
    assert_eq!(scene.sent("aggregate").len(), 0, "it has not begun again");
}

/// A server that has an event at once, unless it is asked for none.
fn eager(part: bool) -> Scene {
    let first = match part {
        true => part_of_first(),
        false => insert(1),
    };
    Scene::new("", move |command, body| match command {
        "aggregate" => {
            let cursor = body.get_document("cursor").unwrap();
            let size = cursor.get("batchSize").unwrap().and_then(RawBsonRef::as_i32);
            let has_none = size == Some(0);
            let events = if has_none { &[][..] } else { std::slice::from_ref(&first) };
            Some(batch(7, cstr!("firstBatch"), events, events.len() as i32))
        }
        "getMore" => Some(next_batch(&[insert(1)], 1)),
        _ => None,
    })
}

fn part_of_first() -> RawDocumentBuf {
    part(1, 1, &rawdoc! { "operationType": "insert" })
}

/// Each event comes at least once: a process that ends while it deals with the very first one finds
/// a place before that in the store.
#[tokio::test]
async fn a_place_before_the_first_event_is_saved_before_that_is_handed_out() {
    for is_part in [false, true] {
        let mut scene = eager(is_part);
        let (things, store) = (scene.things(), Arc::new(Memory::default()));
        let watch = || things.watch().checkpoint(Arc::clone(&store)).batch_size(3);
        let mut stream = watch().split_large_events(is_part).await.unwrap();
        assert_eq!(store.saved(), [token(0)], "before anything is read");
        assert_eq!(
            scene.sent("aggregate")[0].get_document("cursor").unwrap(),
            &doc! { "batchSize": 0 }
        );
        if !is_part {
            assert_eq!(id(next(&mut stream).await), 1);
        }
        assert_eq!(store.saved(), [token(0)]);
        drop(stream);
        scene.sent("aggregate");
        drop(watch().await.unwrap());
        let again = scene.sent("aggregate").remove(0);
        let stage = again.get_array("pipeline").unwrap()[0].as_document().unwrap();
        let place = doc! { "startAfter": { "_data": 0 } };
        assert_eq!(stage.get_document("$changeStream").unwrap(), &place);
        assert_eq!(again.get_document("cursor").unwrap(), &doc! { "batchSize": 3 });
    }
}

/// Such a place that cannot be saved is an error of opening the stream.
#[tokio::test]
async fn a_stream_whose_place_cannot_be_saved_does_not_begin() {
    let mut scene = eager(false);
    let store = Arc::new(Memory::default());
    store.fail();
    let things = scene.things();
    let error = things.watch().checkpoint(Arc::clone(&store)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Application, "{error}");
    scene.killed(7).await;
}

/// The same of a stream whose options say where to begin: another process begins there, too, so
/// that the first batch may have events.
#[tokio::test]
async fn a_stream_whose_place_is_given_has_events_in_its_first_batch() {
    let mut scene = eager(false);
    let (things, store) = (scene.things(), Arc::new(Memory::default()));
    let watch = things.watch().resume_after(token(0)).checkpoint(Arc::clone(&store));
    let mut stream = watch.await.unwrap();
    assert_eq!(scene.sent("aggregate")[0].get_document("cursor").unwrap(), &doc! {});
    assert_eq!((store.saved(), id(next(&mut stream).await)), (vec![token(0)], 1));
    assert_eq!(scene.sent("getMore").len(), 0);
}

/// A stream that is over has no lag, although the application holds it still.
#[tokio::test]
async fn a_stream_that_is_over_has_no_lag() {
    let time = bson::Timestamp { time: 1_060, increment: 1 };
    let cursor = rawdoc! {
        "id": 7_i64, "ns": "app.things", "nextBatch": [],
        "postBatchResumeToken": { "_data": "82000003E800000001" },
    };
    let reply = rawdoc! { "ok": 1, "operationTime": time, "cursor": cursor };
    let scene = Scene::replying("", vec![reply, refused()]);
    let lags = || {
        let text = Exposition::new(&scene.client.topology().metrics()).to_string();
        text.contains("sdam_change_stream_lag_seconds ")
    };
    assert!(!lags());
    let mut stream = scene.things().watch().await.unwrap();
    assert!(stream.next_if_any().await.unwrap().is_none());
    assert!(lags());
    next(&mut stream).await.unwrap().unwrap_err();
    assert!(!stream.is_alive() && !lags());
}

/// "Dropping a future is always safe" (docs/run.md): a cursor whose closing is given up is closed
/// by a task.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_close_that_is_given_up_is_finished_in_the_background() {
    let (answer, held) = mpsc::channel();
    let held = Mutex::new(held);
    let mut scene = Scene::new("maxPoolSize=1", move |command, _| match command {
        "aggregate" => Some(opened()),
        "ping" => {
            // The test may have ended.
            let _ = held.lock().unwrap().recv();
            None
        }
        _ => None,
    });
    let stream = scene.things().watch().await.unwrap();
    let app = scene.client.database("app");
    let ping = tokio::spawn(async move { app.run_command(doc! { "ping": 1 }).await });
    sent_until(&mut scene.events, "ping").await;
    {
        let mut closing = std::pin::pin!(stream.close());
        let waits = poll_fn(|cx| Poll::Ready(closing.as_mut().poll(cx).is_pending()));
        assert!(waits.await, "there is no connection");
    }
    answer.send(()).unwrap();
    ping.await.unwrap().unwrap();
    scene.killed(7).await;
}

/// A store that waits until it may save, as one in another network does.
struct Waiting {
    saved: Arc<Memory>,
    may_save: Arc<tokio::sync::Semaphore>,
}

impl CheckpointStore for Waiting {
    async fn load(&self) -> sdam::Result<Option<ResumeToken>> {
        self.saved.load().await
    }

    async fn save(&self, token: &ResumeToken) -> sdam::Result<()> {
        self.may_save.acquire().await.expect("it is open").forget();
        self.saved.save(token).await
    }
}

/// "Dropping a future is always safe" (docs/run.md): a token that a call was saving when it was
/// given up is saved by a task, once, and the next call goes on behind it.
#[tokio::test]
async fn a_token_is_saved_although_its_call_is_given_up() {
    let events = [insert(1), insert(2)];
    let scene = Scene::replying("", vec![next_batch(&events, 2)]);
    let (saved, may_save) = (Arc::new(Memory::default()), Arc::new(tokio::sync::Semaphore::new(1)));
    let store = Waiting { saved: Arc::clone(&saved), may_save: Arc::clone(&may_save) };
    let mut stream = scene.things().watch().checkpoint(store).await.unwrap();
    assert_eq!(id(stream.next().await), 1);
    {
        let mut next = std::pin::pin!(stream.next());
        let waits = poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx).is_pending()));
        assert!(waits.await, "the store waits");
    }
    assert_eq!(saved.saved(), [token(0)]);
    may_save.add_permits(1);
    let in_time = tokio::time::timeout(LIMIT, async {
        while saved.saved().len() < 2 {
            tokio::task::yield_now().await;
        }
    });
    in_time.await.expect("a task goes on with it");
    assert_eq!(id(stream.next().await), 2);
    assert_eq!(saved.saved(), [0, 1].map(token));
}

/// The numbers of errors by which servers say that the history is gone: ChangeStreamHistoryLost,
/// and CappedPositionLost of a getMore whose place in the oplog was overtaken.
#[tokio::test]
async fn a_place_that_the_oplog_has_overtaken_is_lost_history() {
    for code in [286, 136] {
        let lost = rawdoc! { "ok": 0, "code": code, "errmsg": "it was overtaken" };
        let scene = Scene::replying("", vec![lost]);
        let mut stream = scene.things().watch().await.unwrap();
        let error = next(&mut stream).await.unwrap().unwrap_err();
        let verdict = error.verdict();
        let is_lost =
            matches!(verdict, Some(Verdict::ChangeStream(ChangeStreamVerdict::HistoryLost { .. })));
        assert!(is_lost && !stream.is_alive(), "{code}: {verdict:?}");
    }
}

/// "The driver MUST use the wire version of the connection used to do the initial `aggregate` or
/// the `getMore` that resulted in the error".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_is_judged_by_the_connection_that_it_came_over() {
    let (version, asked) = (Arc::new(AtomicI32::new(8)), AtomicUsize::new(0));
    let (answer, held) = mpsc::channel();
    let held = Mutex::new(held);
    let mut labelled = refused();
    labelled
        .append(cstr!("errorLabels"), bson::RawArrayBuf::from_iter(["ResumableChangeStreamError"]));
    let server = Scripted::upgraded(Arc::clone(&version), move |command, _| match command {
        "aggregate" => Some(opened()),
        "getMore" if asked.fetch_add(1, Ordering::Relaxed) == 0 => Some(labelled.clone()),
        "getMore" => Some(next_batch(&[insert(1)], 1)),
        "ping" => {
            // The test may have ended.
            let _ = held.lock().unwrap().recv();
            None
        }
        _ => None,
    });
    let mut scene = Scene::of(server, "");
    let mut stream = scene.things().watch().await.unwrap();
    version.store(9, Ordering::Relaxed);
    let app = scene.client.database("app");
    let ping = tokio::spawn(async move { app.run_command(doc! { "ping": 1 }).await });
    // The old connection is in use.
    sent_until(&mut scene.events, "ping").await;
    assert_eq!(id(next(&mut stream).await), 1);
    answer.send(()).unwrap();
    ping.await.unwrap().unwrap();
}
