//! The prose tests of Change Streams. P19 needs 6.0.9 or 7.0 and 20 MB of documents: the newest
//! server here plays it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Document, doc, rawdoc};
use sdam::checkpoint::{CheckpointStore as _, CollectionCheckpointStore};
use sdam::generic::{ChangeStream, Collection};
use sdam::results::{ChangeStreamEvent, OperationType, ResumeToken};
use sdam_core::config::{ReadMode, ReadPreference, WriteConcern};
use sdam_host::{ErrorKind, Runtime};

use super::{Fixture, Outcome, Version, name, names};

/// The first version that splits large events.
const SPLITS: Version = Version { major: 6, minor: 0, patch: 9 };

pub(super) async fn play<R: Runtime>(fixture: &Fixture<'_, R>) -> Outcome {
    tokens_follow_what_is_handed_out(fixture).await?;
    events_without_tokens_are_refused(fixture).await?;
    streams_go_on_behind_the_last_event(fixture).await?;
    the_first_command_is_not_resumed(fixture).await?;
    failed_kills_are_ignored(fixture).await?;
    streams_begin_again_by_the_option_they_were_begun_with(fixture).await?;
    an_invalidate_ends_a_stream(fixture).await?;
    a_checkpoint_outlives_its_stream(fixture).await?;
    a_stream_that_waits_ends_when_its_client_is_closed(fixture).await?;
    if fixture.version >= SPLITS {
        large_events_are_split(fixture).await?;
    }
    Ok(())
}

/// docs/change-streams.md: a call ends with its client, however long its server lets it wait.
async fn a_stream_that_waits_ends_when_its_client_is_closed<R: Runtime>(
    fixture: &Fixture<'_, R>,
) -> Outcome {
    let (client, _) = fixture.client("")?;
    // Servers go on for a moment with what another client has asked of a collection.
    let name = format!("closed_{}", ObjectId::new());
    let things = fixture.empty(&client, &name).await?;
    let admin = fixture.quiet.database("admin");
    let ended = AtomicBool::new(false);
    let reading = async {
        let _ends = Ends(&ended);
        let mut stream = things.watch().max_await_time(Duration::from_secs(3600)).await?;
        let error = stream.next().await.expect("it fails").expect_err("nothing happens");
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
        Ok(())
    };
    let closing = async {
        let waits = doc! { "currentOp": 1, "ns": format!("prose.{name}"), "op": "getmore" };
        loop {
            let running = admin.run_command(waits.clone()).await?;
            let has_asked = running.get_array("inprog").is_ok_and(|it| !it.is_empty());
            if has_asked || ended.load(Ordering::Relaxed) {
                break;
            }
        }
        client.close().await;
        Ok(())
    };
    let outcomes = fixture.all(vec![Box::pin(reading), Box::pin(closing)]).await;
    Ok(outcomes.into_iter().collect::<Result<(), _>>()?)
}

/// Says that something has ended, also by a panic.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

type Things<R> = Collection<R, Document>;
type Stream<R> = ChangeStream<R, ChangeStreamEvent<Document>>;

async fn insert<R: Runtime>(things: &Things<R>, ids: std::ops::Range<i32>) -> Outcome {
    for id in ids {
        things.insert_one(&doc! { "_id": id }).await?;
    }
    Ok(())
}

/// Reads events, which are inserts of these documents.
async fn expect<R: Runtime>(stream: &mut Stream<R>, ids: std::ops::Range<i32>) -> Outcome {
    for id in ids {
        let event = stream.try_next().await?.expect("the stream goes on");
        assert_eq!(event.operation_type, OperationType::Insert);
        assert_eq!(event.full_document, Some(doc! { "_id": id }));
    }
    Ok(())
}

fn token(document: &Document) -> Outcome<ResumeToken> {
    Ok(bson::deserialize_from_document(document.clone())?)
}

/// Returns the stage `$changeStream` of each aggregate.
fn stages(commands: &[Document]) -> Vec<Document> {
    let opening = commands.iter().filter(|command| name(command) == "aggregate");
    let stage = |command: &Document| {
        let first = command.get_array("pipeline").ok()?.first()?.as_document()?;
        first.get_document("$changeStream").ok().cloned()
    };
    opening.filter_map(stage).collect()
}

/// CS-P1, P7, P11, P13 and P14: the token is that of the event handed out last, or of its batch
/// behind the last one, and of an empty batch; and the one that the options have before.
async fn tokens_follow_what_is_handed_out<R: Runtime>(fixture: &Fixture<'_, R>) -> Outcome {
    let (client, mut log) = fixture.client("")?;
    let things = fixture.empty(&client, "tokens").await?;
    insert(&things, 0..1).await?;
    log.all();
    let mut stream = things.watch().await?;
    let opened = log.commands();
    assert_eq!(opened.len(), 1, "P7: an empty batch is no end");
    let batch = |reply: &Document| -> Outcome<Document> {
        Ok(reply.get_document("cursor")?.get_document("postBatchResumeToken")?.clone())
    };
    assert_eq!(stream.resume_token(), Some(&token(&batch(&opened[0].1)?)?), "P11: an empty batch");
    insert(&things, 1..4).await?;
    log.all();
    let first = stream.try_next().await?.expect("the stream goes on");
    // All three are in a batch, or each is in one of its own.
    for n in 1..3 {
        let known = stream.resume_token().cloned().expect("an event was handed out");
        let heard = log.commands();
        let last = heard.iter().rev().find(|(command, _)| name(command) == "getMore");
        if let Some((_, reply)) = last {
            let cursor = reply.get_document("cursor")?;
            let ids = cursor.get_array("nextBatch")?;
            if ids.len() > 1 {
                let id = ids[0].as_document().expect("an event").get_document("_id")?;
                assert_eq!(known, token(id)?, "P13");
            }
        }
        let event = stream.try_next().await?.expect("the stream goes on");
        assert_eq!(event.full_document, Some(doc! { "_id": n + 1 }));
    }
    stream.close().await;
    let resumed = things.watch().resume_after(&first.id).await?;
    assert_eq!(resumed.resume_token(), Some(&first.id), "P14: resumeAfter");
    resumed.close().await;
    let mut resumed = things.watch().start_after(&first.id).await?;
    assert_eq!(resumed.resume_token(), Some(&first.id), "P14: startAfter");
    expect(&mut resumed, 2..4).await?;
    resumed.close().await;
    Ok(())
}

/// CS-P2: "if the server response is missing the resume token (a server-side error)".
async fn events_without_tokens_are_refused<R: Runtime>(fixture: &Fixture<'_, R>) -> Outcome {
    let (client, _) = fixture.client("")?;
    let things = fixture.empty(&client, "anonymous").await?;
    insert(&things, 0..1).await?;
    let mut stream = things.watch().pipeline([doc! { "$project": { "_id": 0 } }]).await?;
    insert(&things, 1..2).await?;
    let error = stream.next().await.expect("it fails").expect_err("it has no token");
    assert!(!stream.is_alive(), "{error}");
    assert!(stream.next().await.is_none());
    Ok(())
}

/// CS-P3 and P6: one resumption for each error, with the first pipeline, options and read
/// preference; what is handed out has no gap, and nothing twice.
async fn streams_go_on_behind_the_last_event<R: Runtime>(fixture: &Fixture<'_, R>) -> Outcome {
    let (client, mut log) = fixture.client("")?;
    let things = fixture.empty(&client, "resumed").await?;
    let nearest = ReadPreference::new(ReadMode::Nearest);
    insert(&things, 0..1).await?;
    log.all();
    let watch = things.watch().pipeline([doc! { "$match": { "operationType": "insert" } }]);
    let mut stream = watch.read_preference(nearest).await?;
    insert(&things, 1..3).await?;
    expect(&mut stream, 1..3).await?;
    let lost = [doc! { "closeConnection": true }, doc! { "errorCode": 43 }];
    for (n, data) in (3..).zip(lost) {
        let mut fail = doc! { "failCommands": ["getMore"] };
        fail.extend(data);
        fixture.fail(doc! { "times": 1 }, fail).await?;
        insert(&things, n..n + 1).await?;
        expect(&mut stream, n..n + 1).await?;
    }
    fixture.fail_no_more().await?;
    let sent = log.sent();
    let opening: Vec<_> = sent.iter().filter(|command| name(command) == "aggregate").collect();
    assert_eq!(opening.len(), 3, "{:?}", names(&sent));
    for again in &opening[1..] {
        let (first, again) = (opening[0], *again);
        assert_eq!(first.get("$readPreference"), again.get("$readPreference"));
        assert_eq!(first.get("lsid"), again.get("lsid"), "the same session");
        assert_eq!(first.get_array("pipeline")?[1], again.get_array("pipeline")?[1]);
    }
    for stage in &stages(&sent)[1..] {
        assert!(stage.contains_key("resumeAfter"), "{stage}");
    }
    stream.close().await;
    Ok(())
}

/// CS-P4: "will not attempt to resume on any error encountered while executing an `aggregate`
/// command".
async fn the_first_command_is_not_resumed<R: Runtime>(fixture: &Fixture<'_, R>) -> Outcome {
    let (client, mut log) = fixture.client("&retryReads=false")?;
    let things = fixture.empty(&client, "refused").await?;
    log.all();
    let fail = doc! { "failCommands": ["aggregate"], "errorCode": 10107 };
    fixture.fail(doc! { "times": 1 }, fail).await?;
    let error = things.watch().await.expect_err("it is refused");
    assert_eq!(error.code(), Some(10107));
    fixture.fail_no_more().await?;
    assert_eq!(names(&log.sent()), ["aggregate"]);
    Ok(())
}

/// CS-P8: "must not be allowed to throw an exception".
async fn failed_kills_are_ignored<R: Runtime>(fixture: &Fixture<'_, R>) -> Outcome {
    let (client, mut log) = fixture.client("")?;
    let things = fixture.empty(&client, "unkilled").await?;
    insert(&things, 0..1).await?;
    let mut stream = things.watch().await?;
    log.all();
    let fail = doc! {
        "failCommands": ["getMore", "killCursors"], "errorCode": 7,
        "errorLabels": ["ResumableChangeStreamError"],
    };
    fixture.fail("alwaysOn", fail).await?;
    // It begins again each time, and its old cursor is killed meanwhile.
    let killed = loop {
        assert!(stream.next_if_any().await?.is_none());
        let kills = log.ended().into_iter().filter(|(it, _)| name(it) == "killCursors");
        if let Some(reply) = kills.filter_map(|(_, reply)| reply).next() {
            break reply;
        }
    };
    fixture.fail_no_more().await?;
    assert!(killed.is_empty(), "it has failed: {killed}");
    insert(&things, 1..2).await?;
    expect(&mut stream, 1..2).await?;
    stream.close().await;
    Ok(())
}

/// CS-P17 and P18: `startAfter` until something was received, and `resumeAfter` from then on.
async fn streams_begin_again_by_the_option_they_were_begun_with<R: Runtime>(
    fixture: &Fixture<'_, R>,
) -> Outcome {
    let (client, mut log) = fixture.client("")?;
    let things = fixture.empty(&client, "begun").await?;
    insert(&things, 0..1).await?;
    let mut before = things.watch().await?;
    insert(&things, 1..2).await?;
    let event = before.try_next().await?.expect("the stream goes on");
    before.close().await;
    for (receives, option) in [(false, "startAfter"), (true, "resumeAfter")] {
        log.all();
        let mut stream = things.watch().start_after(&event.id).await?;
        let id = if receives { 3 } else { 2 };
        if receives {
            expect(&mut stream, 2..3).await?;
        }
        let fail = doc! { "failCommands": ["getMore"], "closeConnection": true };
        fixture.fail(doc! { "times": 1 }, fail).await?;
        // Without an event at hand, the stream asks for the next batch.
        let mut waiting = stream.next_if_any().await?;
        insert(&things, id..id + 1).await?;
        while waiting.is_none() {
            waiting = stream.next_if_any().await?;
        }
        fixture.fail_no_more().await?;
        assert_eq!(waiting.and_then(|it| it.full_document), Some(doc! { "_id": id }));
        let stages = stages(&log.sent());
        let again = stages.last().expect("it was begun again");
        assert!(stages.len() == 2 && again.contains_key(option), "{option}: {stages:?}");
        let other = if receives { "startAfter" } else { "resumeAfter" };
        assert!(!again.contains_key(other), "{again}");
        stream.close().await;
    }
    Ok(())
}

/// An `invalidate` ends a stream, which may be begun again behind it by `startAfter`.
async fn an_invalidate_ends_a_stream<R: Runtime>(fixture: &Fixture<'_, R>) -> Outcome {
    let (client, _) = fixture.client("")?;
    let things = fixture.empty(&client, "dropped").await?;
    insert(&things, 0..1).await?;
    let mut stream = things.watch().await?;
    things.drop().await?;
    let mut kinds = Vec::new();
    while let Some(event) = stream.try_next().await? {
        kinds.push(event.operation_type);
    }
    assert_eq!(kinds, [OperationType::Drop, OperationType::Invalidate]);
    assert!(!stream.is_alive());
    let last = stream.resume_token().cloned().expect("it has handed out events");
    let mut again = things.watch().start_after(last).await?;
    insert(&things, 0..1).await?;
    expect(&mut again, 0..1).await?;
    again.close().await;
    Ok(())
}

/// "users intending to store the resume token": a store in a collection has that of each event, and
/// within a transaction only if that is committed.
async fn a_checkpoint_outlives_its_stream<R: Runtime>(fixture: &Fixture<'_, R>) -> Outcome {
    let (client, _) = fixture.client("")?;
    let things = fixture.empty(&client, "kept").await?;
    let tokens = fixture.empty(&client, "tokens_kept").await?;
    let copies = fixture.empty(&client, "copies").await?;
    insert(&things, 0..1).await?;
    insert(&copies, 0..1).await?;
    let store = CollectionCheckpointStore::new(&tokens, "things");
    let mut stream = things.watch().checkpoint(store.clone()).await?;
    insert(&things, 1..5).await?;
    expect(&mut stream, 1..3).await?;
    drop(stream);
    // That of the first was saved before the second was handed out.
    let mut stream = things.watch().checkpoint(store.clone()).await?;
    expect(&mut stream, 2..3).await?;
    stream.save_checkpoint().await?;
    drop(stream);
    let session = client.start_session().await?;
    let refused = store.save_in(&session, &ResumeToken::new(rawdoc! {})).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "there is no transaction: {refused}");
    // A mode that the set defines may ask for one member only.
    for concern in [WriteConcern::nodes(1), WriteConcern::custom("one_room")] {
        session.start_transaction().write_concern(concern).await?;
        let refused = store.save_in(&session, &ResumeToken::new(rawdoc! {})).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "a failover could undo it: {refused}");
        session.abort_transaction().await?;
    }
    for commits in [false, true, true] {
        let mut stream = things.watch().checkpoint(store.clone()).await?;
        let event = stream.try_next().await?.expect("the stream goes on");
        let copy = event.full_document.expect("it is an insert");
        let token = stream.resume_token().expect("an event was handed out");
        session.start_transaction().write_concern(WriteConcern::majority()).await?;
        copies.insert_one(&copy).session(&session).await?;
        store.save_in(&session, token).await?;
        match commits {
            true => session.commit_transaction().await?,
            false => session.abort_transaction().await?,
        }
    }
    let count = copies.count_documents(doc! { "_id": { "$gt": 0 } }).await?;
    assert_eq!(count, 2, "each was copied once");
    // A process that goes on behind the same place finds that another one has saved its own.
    let slow = CollectionCheckpointStore::new(&tokens, "things");
    let stored = slow.load().await?.expect("a place was saved");
    let other = CollectionCheckpointStore::new(&tokens, "things");
    other.load().await?;
    other.save(&ResumeToken::new(rawdoc! { "_data": "other" })).await?;
    session.start_transaction().write_concern(WriteConcern::majority()).await?;
    let superseded = slow.save_in(&session, &stored).await.unwrap_err().to_string();
    assert!(superseded.contains("another stream has saved its place"), "{superseded}");
    session.abort_transaction().await?;
    other.save(&stored).await?;
    let mut stream = things.watch().checkpoint(store).await?;
    insert(&things, 5..6).await?;
    expect(&mut stream, 5..6).await?;
    stream.close().await;
    Ok(())
}

/// CS-P19: the parts of one event.
async fn large_events_are_split<R: Runtime>(fixture: &Fixture<'_, R>) -> Outcome {
    let (client, _) = fixture.client("")?;
    let database = client.database("prose");
    database.collection::<Document>("large").drop().await?;
    let images = doc! { "create": "large", "changeStreamPreAndPostImages": { "enabled": true } };
    database.run_command(images).await?;
    let large = database.collection::<Document>("large");
    let text = |letter: &str| letter.repeat(10 * 1024 * 1024);
    large.insert_one(&doc! { "value": text("q") }).await?;
    let split = large.watch().pipeline([doc! { "$changeStreamSplitLargeEvent": {} }]);
    // Its parts have their fields once.
    let stream = split.full_document_before_change("required").await?;
    let mut stream = stream.with_type::<Document>();
    large.update_one(doc! {}, doc! { "$set": { "value": text("z") } }).await?;
    for fragment in 1..=2 {
        let event = stream.try_next().await?.expect("the stream goes on");
        assert_eq!(event.get_document("splitEvent")?, &doc! { "fragment": fragment, "of": 2 });
    }
    stream.close().await;
    // Put together, it is one event.
    let watch = large.watch().split_large_events(true).full_document_before_change("required");
    let mut stream = watch.await?;
    large.update_one(doc! {}, doc! { "$set": { "value": text("w") } }).await?;
    let event = stream.try_next().await?.expect("the stream goes on");
    let value = |document: Option<Document>| {
        let document = document.expect("it was asked for");
        document.get_str("value").ok().and_then(|value| value.chars().next())
    };
    assert_eq!(value(event.full_document_before_change), Some('z'));
    let updated = event.update_description.map(|it| it.updated_fields);
    assert_eq!((value(updated), event.split_event), (Some('w'), None));
    stream.close().await;
    large.drop().await?;
    Ok(())
}
