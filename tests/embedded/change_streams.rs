//! Change streams whose server fails in ways that no real one does on demand.

use std::future::{Future as _, poll_fn};
use std::sync::{Arc, Mutex, mpsc};
use std::task::Poll;

use bson::raw::{CStr, cstr};
use bson::{DateTime, Document, RawArrayBuf, RawDocumentBuf, doc, rawdoc};
use sdam::checkpoint::{CheckpointStore, CollectionCheckpointStore, FileCheckpointStore};
use sdam::generic::{ChangeStream, Client, Collection};
use sdam::results::{ChangeStreamEvent, ResumeToken};
use sdam_core::config::Options;
use sdam_core::diagnosis::{ChangeStreamVerdict, Verdict};
use sdam_host::ErrorKind;
use sdam_tokio::Tokio;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::answering::Scripted;
use super::operations::Scene;
use super::{LIMIT, name, names};

pub(crate) type Stream<T = ChangeStreamEvent> = ChangeStream<Tokio, T>;

pub(crate) fn token(n: i32) -> ResumeToken {
    ResumeToken::new(rawdoc! { "_data": n })
}

pub(crate) fn insert(n: i32) -> RawDocumentBuf {
    let document = rawdoc! { "_id": n };
    rawdoc! { "_id": { "_data": n }, "operationType": "insert", "fullDocument": document }
}

/// Makes a batch of the cursor with this number, and with the token of the batch.
pub(crate) fn batch(
    id: i64,
    field: &'static CStr,
    events: &[RawDocumentBuf],
    last: i32,
) -> RawDocumentBuf {
    let events: RawArrayBuf = events.iter().map(AsRef::as_ref).collect();
    let mut cursor = rawdoc! { "id": id, "ns": "app.things" };
    cursor.append(field, events);
    cursor.append(cstr!("postBatchResumeToken"), rawdoc! { "_data": last });
    rawdoc! { "ok": 1, "cursor": cursor }
}

/// The error of a server that does not know the cursor.
pub(crate) fn not_found() -> RawDocumentBuf {
    rawdoc! { "ok": 0, "code": 43, "errmsg": "cursor id 7 not found" }
}

/// The reply to the command that opens the stream, with no event in it.
pub(crate) fn opened() -> RawDocumentBuf {
    batch(7, cstr!("firstBatch"), &[], 0)
}

pub(crate) fn next_batch(events: &[RawDocumentBuf], last: i32) -> RawDocumentBuf {
    batch(7, cstr!("nextBatch"), events, last)
}

/// A server that answers each aggregate with an empty batch, and each getMore with the next of
/// these replies.
fn scene(replies: Vec<RawDocumentBuf>) -> Scene {
    let replies = Mutex::new(replies.into_iter());
    Scene::new(move |command, _| match command {
        "aggregate" => Some(opened()),
        "getMore" => replies.lock().unwrap().next().or(Some(next_batch(&[], 99))),
        _ => None,
    })
}

fn things(scene: &Scene) -> Collection<Tokio> {
    scene.client.database("app").collection("things")
}

pub(crate) fn id(event: Option<Result<ChangeStreamEvent, sdam::Error>>) -> i32 {
    event.unwrap().unwrap().full_document.unwrap().get_i32("_id").unwrap()
}

/// A server whose second aggregate is answered when the test says so; its cursors are 7 and 8.
struct Held {
    client: Client<Tokio>,
    asked: mpsc::Receiver<()>,
    answer: mpsc::Sender<()>,
    killed: mpsc::Receiver<i64>,
    _server: Scripted,
}

impl Held {
    fn new() -> Self {
        let ((asks, asked), (answer, answers)) = (mpsc::channel(), mpsc::channel());
        let (kills, killed) = mpsc::channel();
        let state = Mutex::new((0, answers));
        let replies = Mutex::new(vec![next_batch(&[insert(1)], 1), not_found()].into_iter());
        let server = Scripted::start(25, move |command, body| match command {
            "aggregate" => {
                let mut state = state.lock().unwrap();
                state.0 += 1;
                if state.0 == 2 {
                    asks.send(()).unwrap();
                    // The test may have ended.
                    let _ = state.1.recv();
                }
                Some(batch(6 + state.0, cstr!("firstBatch"), &[], 0))
            }
            "getMore" => {
                let next = replies.lock().unwrap().next();
                next.or_else(|| Some(batch(8, cstr!("nextBatch"), &[insert(2)], 2)))
            }
            "killCursors" => {
                let ids = body.get_array("cursors").unwrap().into_iter();
                for id in ids {
                    // As above.
                    let _ = kills.send(id.unwrap().as_i64().unwrap());
                }
                None
            }
            _ => None,
        });
        let options = Options::parse(&format!("{}&maxPoolSize=1", server.uri)).unwrap();
        let client = Client::from(sdam_tokio::Topology::new(options).unwrap());
        Self { client, asked, answer, killed, _server: server }
    }

    /// Reads until the stream begins again, and gives up that call.
    async fn resuming(&self) -> Stream {
        let things = self.client.database("app").collection::<Document>("things");
        let mut stream = things.watch().await.unwrap();
        assert_eq!(id(stream.next().await), 1);
        {
            let mut next = std::pin::pin!(stream.next());
            let until_asked = poll_fn(|cx| match next.as_mut().poll(cx) {
                Poll::Ready(_) => panic!("it is not answered"),
                Poll::Pending if self.asked.try_recv().is_ok() => Poll::Ready(()),
                Poll::Pending => {
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
            });
            tokio::time::timeout(LIMIT, until_asked).await.expect("it begins again");
        }
        stream
    }
}

/// A call that is given up while the stream begins again leaves that to a task: the only
/// connection comes back, and the next call goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_given_up_while_it_resumes_does_not_keep_the_connection() {
    let held = Held::new();
    let mut stream = held.resuming().await;
    held.answer.send(()).unwrap();
    let app = held.client.database("app");
    let answered = tokio::time::timeout(LIMIT, app.run_command(doc! { "ping": 1 })).await;
    answered.expect("there is a connection").unwrap();
    assert_eq!(id(stream.next().await), 2);
    assert!(stream.is_alive());
}

/// "A driver SHOULD attempt to kill the cursor on the server on which the cursor is opened during
/// the resume process": also one that comes when the stream is closed already, or dropped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_closed_while_it_resumes_leaves_no_cursor() {
    for closes in [true, false] {
        let held = Held::new();
        let stream = held.resuming().await;
        match closes {
            true => stream.close().await,
            false => drop(stream),
        }
        held.answer.send(()).unwrap();
        let both = tokio::task::spawn_blocking(move || {
            loop {
                if held.killed.recv_timeout(LIMIT).expect("its cursor is killed") == 8 {
                    return held;
                }
            }
        });
        both.await.unwrap();
    }
}

/// CS-P2, with the type of events that is not raw: "the driver MUST ... raise an error", and the
/// stream is closed.
#[tokio::test]
async fn a_typed_event_without_a_token_closes_the_stream() {
    let anonymous = rawdoc! { "operationType": "insert" };
    let mut scene = scene(vec![next_batch(&[anonymous, insert(2)], 2)]);
    let mut stream = things(&scene).watch().await.unwrap();
    let error = stream.next().await.unwrap().unwrap_err();
    let text = "Cannot provide resume functionality when the resume token is missing";
    assert!(error.to_string().starts_with(text), "{error}");
    assert!(!stream.is_alive() && stream.next().await.is_none());
    let sent = scene.sent_until("killCursors").await;
    assert_eq!(names(&sent), ["aggregate", "getMore", "killCursors"]);
}

/// "When returning a document to the user": one whose type does not fit is returned as an error,
/// and a stream from its token goes on behind it.
#[tokio::test]
async fn the_token_moves_past_an_event_of_another_type() {
    let other = rawdoc! { "_id": { "_data": 1 }, "operationType": 5 };
    let scene = scene(vec![next_batch(&[other, insert(2)], 7)]);
    let mut stream = things(&scene).watch().await.unwrap();
    let error = stream.next().await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Deserialize, "{error}");
    assert_eq!(stream.resume_token(), Some(&token(1)));
    assert_eq!(id(stream.next().await), 2);
    assert_eq!(stream.resume_token(), Some(&token(7)), "the last of its batch");
}

/// Such an error names the document that the event is about, if it is about one.
#[tokio::test]
async fn an_event_of_another_type_is_named_by_the_key_of_its_document() {
    let keys = [Some(rawdoc! { "shard": 3, "_id": "order" }), Some(rawdoc! { "shard": 3 }), None];
    let events = (1..).zip(keys).map(|(n, key)| {
        let mut other = rawdoc! { "_id": { "_data": n }, "operationType": 5 };
        key.into_iter().for_each(|key| other.append(cstr!("documentKey"), key));
        other
    });
    let scene = scene(vec![next_batch(&events.collect::<Vec<_>>(), 7)]);
    let mut stream = things(&scene).watch().await.unwrap();
    for named in [r#"{"_id": "order"}"#, r#"{"_id": {"_data": 2}}"#, r#"{"_id": {"_data": 3}}"#] {
        let error = stream.next().await.unwrap().unwrap_err().to_string();
        let expected = format!("the server's document {named} cannot be read");
        assert!(error.starts_with(&expected), "{error}");
    }
}

/// A store that keeps each token, and fails on demand.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    tokens: Mutex<Vec<ResumeToken>>,
    fails: Mutex<bool>,
}

impl Memory {
    pub(crate) fn saved(&self) -> Vec<ResumeToken> {
        self.tokens.lock().unwrap().clone()
    }

    /// Has the next token not be saved.
    pub(crate) fn fail(&self) {
        *self.fails.lock().unwrap() = true;
    }
}

impl CheckpointStore for Memory {
    async fn load(&self) -> sdam::Result<Option<ResumeToken>> {
        Ok(self.tokens.lock().unwrap().last().cloned())
    }

    async fn save(&self, token: &ResumeToken) -> sdam::Result<()> {
        if std::mem::take(&mut *self.fails.lock().unwrap()) {
            return Err(sdam::Error::custom("the disk is full"));
        }
        self.tokens.lock().unwrap().push(token.clone());
        Ok(())
    }
}

/// Returns the stage `$changeStream` of the only aggregate.
fn stage(sent: &[Document]) -> Document {
    let opening: Vec<_> = sent.iter().filter(|command| name(command) == "aggregate").collect();
    assert_eq!(opening.len(), 1, "{sent:?}");
    let first = opening[0].get_array("pipeline").unwrap()[0].as_document().unwrap();
    first.get_document("$changeStream").unwrap().clone()
}

/// "users intending to store the resume token should use this method to get the most up to date
/// resume token": it is saved after an event was handed out, and before the next one is.
#[tokio::test]
async fn tokens_are_saved_between_events_and_another_stream_goes_on_behind_them() {
    let events = [insert(1), insert(2), insert(3)];
    let mut scene = scene(vec![next_batch(&events, 5), next_batch(&[insert(6)], 6)]);
    let (things, store) = (things(&scene), Arc::new(Memory::default()));
    let mut stream = things.watch().checkpoint(Arc::clone(&store)).await.unwrap();
    assert_eq!(id(stream.next().await), 1);
    assert_eq!(store.saved(), [token(0)], "that of the first batch, before it waits");
    assert_eq!(id(stream.next().await), 2);
    assert_eq!(store.saved(), [0, 1].map(token));
    store.fail();
    let error = stream.next().await.unwrap().unwrap_err();
    assert_eq!((error.kind(), stream.is_alive()), (ErrorKind::Application, true));
    assert_eq!(store.saved(), [0, 1].map(token));
    assert_eq!(id(stream.next().await), 3, "it is saved, and nothing is lost");
    assert_eq!(store.saved(), [0, 1, 2].map(token));
    stream.save_checkpoint().await.unwrap();
    stream.save_checkpoint().await.unwrap();
    assert_eq!(store.saved(), [0, 1, 2, 5].map(token), "the last of its batch; once");
    drop(stream);
    scene.sent();
    let watch = || things.watch().resume_after(token(9)).checkpoint(Arc::clone(&store));
    let mut stream = watch().await.unwrap();
    assert_eq!(stage(&scene.sent()), doc! { "startAfter": { "_data": 5 } });
    assert_eq!(id(stream.next().await), 6);
    assert_eq!(store.saved().len(), 4, "nothing was handed out before: {:?}", store.saved());
    drop(stream);
    scene.sent();
    let stream = watch().restart().await.unwrap();
    assert_eq!(stage(&scene.sent()), doc! { "resumeAfter": { "_data": 9 } });
    drop(stream);
}

/// A server that has lost its majority answers a linearizable read after `maxTimeMS` only, which a
/// time of the caller's own replaces.
#[tokio::test]
async fn a_checkpoint_in_a_collection_is_not_waited_for_without_end() {
    let mut scene = Scene::new(|command, _| match command {
        "find" => Some(rawdoc! { "ok": 0, "code": 50, "errmsg": "operation exceeded time limit" }),
        _ => None,
    });
    let things = things(&scene);
    let store = CollectionCheckpointStore::new(&things, "copies");
    let error = things.watch().checkpoint(store).await.unwrap_err();
    assert_eq!(error.code(), Some(50), "{error}");
    let sent = scene.sent();
    let find = sent.iter().find(|command| name(command) == "find").expect("a load");
    let concern = find.get_document("readConcern").unwrap();
    assert_eq!(concern.get_str("level").unwrap(), "linearizable");
    assert_eq!(find.get("maxTimeMS").and_then(bson::Bson::as_i64), Some(10_000), "{find}");
}

/// A store in a collection whose document another stream has replaced: nothing that this one does
/// is right from then on, and an application that reads on would be refused each time.
#[tokio::test]
async fn a_stream_ends_once_another_one_has_saved_its_place() {
    let saves = Arc::new(AtomicUsize::new(0));
    let saved = Arc::clone(&saves);
    let scene = Scene::new(move |command, _| match command {
        "find" => Some(batch(0, cstr!("firstBatch"), &[], 0)),
        "aggregate" => Some(opened()),
        "getMore" => Some(next_batch(&[insert(1), insert(2)], 2)),
        // The first finds no document, and the next one finds another token than that.
        "findAndModify" if saved.fetch_add(1, Ordering::Relaxed) == 0 => {
            Some(rawdoc! { "ok": 1, "value": null })
        }
        "findAndModify" => Some(rawdoc! { "ok": 0, "code": 11000, "errmsg": "E11000" }),
        _ => None,
    });
    let things = things(&scene);
    for saves_itself in [false, true] {
        saves.store(0, Ordering::Relaxed);
        let store = CollectionCheckpointStore::new(&things, "copies");
        let mut stream = things.watch().checkpoint(store).await.unwrap();
        assert_eq!(id(stream.next().await), 1);
        let error = match saves_itself {
            true => stream.save_checkpoint().await.unwrap_err(),
            false => stream.next().await.unwrap().unwrap_err(),
        };
        assert!(error.to_string().contains("another stream has saved its place"), "{error}");
        assert!(!stream.is_alive());
        assert!(stream.next().await.is_none());
    }
}

/// Makes a part of an event.
pub(crate) fn part(n: i32, fragment: i32, rest: &RawDocumentBuf) -> RawDocumentBuf {
    let place = rawdoc! { "fragment": fragment, "of": 2 };
    let mut part = rawdoc! { "_id": { "_data": n }, "splitEvent": place };
    rest.iter().filter_map(Result::ok).for_each(|(name, value)| part.append(name, value));
    part
}

/// CS-P19, and "Updating the Cached Resume Token": the token of an event that was split is that of
/// its last part; until that has come, the stream goes on behind the event before.
#[tokio::test]
async fn the_parts_of_an_event_are_one_event_also_if_the_stream_is_lost_in_between() {
    let first = || part(2, 1, &rawdoc! { "operationType": "insert" });
    let second = || part(3, 2, &rawdoc! { "fullDocument": { "_id": 2 } });
    let replies = vec![
        next_batch(&[insert(1), first()], 2),
        not_found(),
        next_batch(&[first()], 2),
        next_batch(&[second(), insert(4)], 5),
    ];
    let mut scene = scene(replies);
    let things = things(&scene);
    let mut stream = things.watch().split_large_events(true).await.unwrap();
    assert_eq!(id(stream.next().await), 1);
    let opening = scene.sent();
    let last = doc! { "$changeStreamSplitLargeEvent": {} };
    assert_eq!(opening[0].get_array("pipeline").unwrap().last().unwrap(), &last.into());
    assert_eq!(stream.resume_token(), Some(&token(1)));
    assert_eq!(id(stream.next().await), 2);
    assert_eq!(stream.resume_token(), Some(&token(3)));
    assert_eq!(stage(&scene.sent()), doc! { "resumeAfter": { "_data": 1 } });
    assert_eq!(id(stream.next().await), 4);
    assert_eq!(stream.resume_token(), Some(&token(5)));
}

/// A server that has lost the history, and says of its oplog what the script does.
fn forgetful(oplog: fn() -> RawDocumentBuf, refuses_at_once: bool) -> Scene {
    let lost = || {
        let message = "Resume of change stream was not possible, as the resume point may no \
                       longer be in the oplog.";
        rawdoc! { "ok": 0, "code": 286, "errmsg": message }
    };
    Scene::new(move |command, body| match command {
        "aggregate" if refuses_at_once => Some(lost()),
        "aggregate" => Some(opened()),
        "getMore" => Some(lost()),
        "find" => {
            assert_eq!(body.get_str("$db").unwrap(), "local");
            Some(oplog())
        }
        _ => None,
    })
}

/// A token that shows its time, which is 1,000 s after 1970.
fn early() -> ResumeToken {
    ResumeToken::new(rawdoc! { "_data": "82000003E800000001" })
}

fn first_of_oplog() -> RawDocumentBuf {
    let first = rawdoc! { "ts": bson::Timestamp { time: 4_600, increment: 1 } };
    let cursor = rawdoc! { "id": 0_i64, "ns": "local.oplog.rs", "firstBatch": [first] };
    rawdoc! { "ok": 1, "cursor": cursor }
}

fn forbidden() -> RawDocumentBuf {
    rawdoc! { "ok": 0, "code": 13, "errmsg": "not authorized on local" }
}

/// ChangeStreamHistoryLost is no resumable error: the stream ends, and says what is missing; the
/// server is asked once how far its history reaches back.
#[tokio::test]
async fn lost_history_ends_a_stream_with_an_error_that_names_the_gap() {
    for refuses_at_once in [false, true] {
        for oplog in [first_of_oplog as fn() -> RawDocumentBuf, forbidden] {
            let mut scene = forgetful(oplog, refuses_at_once);
            let things = things(&scene);
            let error = match things.watch().start_after(early()).await {
                Err(error) => error,
                Ok(mut stream) => {
                    let error = stream.next().await.unwrap().unwrap_err();
                    assert!(!stream.is_alive() && stream.next().await.is_none());
                    error
                }
            };
            assert_eq!(error.code(), Some(286));
            let Some(Verdict::ChangeStream(ChangeStreamVerdict::HistoryLost {
                server,
                read_until,
                oldest,
                is_refused,
                ..
            })) = error.verdict()
            else {
                panic!("{error:?}")
            };
            assert!(server.is_some());
            // That of the batch, which has none, is the token once the stream has begun.
            let until = Some(DateTime::from_millis(1_000_000)).filter(|_| refuses_at_once);
            assert_eq!(*read_until, until);
            let is_known = oplog() == first_of_oplog();
            assert_eq!(*oldest, Some(DateTime::from_millis(4_600_000)).filter(|_| is_known));
            assert_eq!(*is_refused, !is_known);
            let text = error.to_string();
            assert!(text.contains("no longer has the changes that come next"), "{text}");
            assert!(text.contains("restart()"), "{text}");
            let sent = scene.sent();
            assert_eq!(sent.iter().filter(|command| name(command) == "find").count(), 1);
            assert_eq!(sent.iter().filter(|command| name(command) == "aggregate").count(), 1);
        }
    }
}

/// The metrics of a client have the lag of its open streams.
#[tokio::test]
async fn the_lag_of_a_stream_is_a_metric_while_it_is_open() {
    let told = |mut reply: RawDocumentBuf| {
        reply.append(cstr!("operationTime"), bson::Timestamp { time: 1_060, increment: 1 });
        reply
    };
    let event = rawdoc! {
        "_id": early().document().to_owned(), "operationType": "insert",
        "fullDocument": { "_id": 1 },
    };
    let mut cursor = rawdoc! { "id": 7_i64, "ns": "app.things" };
    cursor.append(cstr!("nextBatch"), RawArrayBuf::from_iter([event]));
    let scene = scene(vec![told(rawdoc! { "ok": 1, "cursor": cursor })]);
    let lag = || {
        let families = scene.client.topology().metrics();
        let text = sdam_core::metrics::Exposition::new(&families).to_string();
        let line =
            text.lines().find_map(|line| line.strip_prefix("sdam_change_stream_lag_seconds "));
        line.map(|value| value.parse::<f64>().unwrap())
    };
    assert_eq!(lag(), None);
    let mut stream = things(&scene).watch().await.unwrap();
    assert_eq!(id(stream.next().await), 1);
    assert!(lag().is_some_and(|lag| (60.0..120.0).contains(&lag)), "{:?}", lag());
    drop(stream);
    assert_eq!(lag(), None);
}

/// The same for threads, with a file.
#[test]
fn threads_keep_the_place_of_a_stream_in_a_file() {
    let replies = Mutex::new(vec![next_batch(&[insert(1), insert(2)], 5)].into_iter());
    let stages = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&stages);
    let server = Scripted::start(25, move |command, body| match command {
        "aggregate" => {
            let command = Document::try_from(body).unwrap();
            let stage = command.get_array("pipeline").unwrap()[0].as_document().unwrap().clone();
            seen.lock().unwrap().push(stage);
            Some(opened())
        }
        "getMore" => replies.lock().unwrap().next().or(Some(next_batch(&[], 99))),
        _ => None,
    });
    let folder = tempfile::tempdir().unwrap();
    let store = FileCheckpointStore::new(folder.path().join("things"));
    let client = sdam::blocking::Client::connect(&*server.uri).unwrap();
    let things = client.database("app").collection::<Document>("things");
    let mut stream = things.watch().checkpoint(store.clone()).run().unwrap();
    assert_eq!([id(stream.next()), id(stream.next())], [1, 2]);
    stream.save_checkpoint().unwrap();
    stream.close();
    let stream = things.watch().checkpoint(store).run().unwrap();
    assert_eq!(stream.resume_token(), Some(&token(0)), "that of the empty batch");
    let last = doc! { "$changeStream": { "startAfter": { "_data": 5 } } };
    assert_eq!(*stages.lock().unwrap(), [doc! { "$changeStream": {} }, last]);
}
