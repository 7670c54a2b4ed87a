//! Change streams report what a majority has, in order and once, and say so when they cannot.

use std::time::Duration;

use bson::{Document, Timestamp, doc};
use sdam_core::bson;

use super::{all, answer, ask, batch, client, code, cursor_id, insert, keeping, must, send};
use crate::tests::{ConnectionId, MemberId, SECOND, World, options};
use crate::{ClusterOptions, Deployment, Input, ServerVersion};

mod events;
mod resuming;

/// Opens a stream on the collection `x`.
pub(super) fn watch(stage: Document) -> Document {
    aggregate("x", stage, Vec::new())
}

pub(super) fn aggregate(collection: &str, stage: Document, rest: Vec<Document>) -> Document {
    let pipeline: Vec<Document> =
        [doc! { "$changeStream": stage }].into_iter().chain(rest).collect();
    doc! { "aggregate": collection, "pipeline": pipeline, "cursor": {} }
}

/// A command that goes on with a stream on `x`, and waits for so many milliseconds.
pub(super) fn more(id: i64, wait: i32) -> Document {
    doc! { "getMore": id, "collection": "x", "maxTimeMS": wait }
}

pub(super) fn token(reply: &Document) -> Document {
    let cursor = reply.get_document("cursor").unwrap();
    cursor.get_document("postBatchResumeToken").unwrap().clone()
}

/// The text of a token, which is in the order of the events.
fn text(token: &Document) -> &str {
    token.get_str("_data").unwrap()
}

/// The kinds of events, and the `_id`s of their documents.
pub(super) fn reported(reply: &Document) -> Vec<String> {
    let event = |event: Document| {
        let kind = event.get_str("operationType").unwrap().to_owned();
        match event.get_document("documentKey") {
            Ok(key) => format!("{kind} {}", key.get("_id").unwrap()),
            Err(_) => kind,
        }
    };
    batch(reply).into_iter().map(event).collect()
}

/// The events that a stream has not reported yet.
pub(super) fn rest(world: &mut World, connection: ConnectionId, id: i64) -> Vec<String> {
    reported(&must(world, connection, more(id, 0)))
}

pub(super) fn labels(reply: &Document) -> Vec<&str> {
    reply.get_array("errorLabels").into_iter().flatten().filter_map(|it| it.as_str()).collect()
}

/// Change Streams: events are in the order of the changes, each once, and tokens likewise.
#[test]
fn events_come_in_order_and_once() {
    let (mut world, connection) = client();
    insert(&mut world, connection, vec![doc! { "_id": 0 }]);
    let opened = must(&mut world, connection, watch(doc! {}));
    assert!(batch(&opened).is_empty());
    let id = cursor_id(&opened);
    insert(&mut world, connection, vec![doc! { "_id": 1 }, doc! { "_id": 2 }]);
    let update = doc! { "q": { "_id": 1 }, "u": { "$set": { "a": 1 } } };
    must(&mut world, connection, doc! { "update": "x", "updates": [update] });
    must(&mut world, connection, doc! { "insert": "y", "documents": [{ "_id": 9 }] });
    let delete = doc! { "q": { "_id": 2 }, "limit": 1 };
    must(&mut world, connection, doc! { "delete": "x", "deletes": [delete] });
    let reply = must(&mut world, connection, more(id, 0));
    assert_eq!(reported(&reply), ["insert 1", "insert 2", "update 1", "delete 2"]);
    let tokens: Vec<String> = batch(&reply)
        .iter()
        .map(|it| it.get_document("_id").unwrap().get_str("_data").unwrap().to_owned())
        .collect();
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    assert_eq!(token(&reply).get_str("_data").unwrap(), tokens[3]);
    assert!(rest(&mut world, connection, id).is_empty());
}

/// Change Streams, "postBatchResumeToken": it follows what the stream has seen, also if that was
/// nothing of its own.
#[test]
fn the_token_of_a_batch_follows_what_was_seen() {
    let (mut world, connection) = client();
    let opened = must(&mut world, connection, watch(doc! {}));
    let id = cursor_id(&opened);
    insert(&mut world, connection, vec![doc! { "_id": 1 }, doc! { "_id": 2 }]);
    let mut one = more(id, 0);
    one.insert("batchSize", 1);
    let first = must(&mut world, connection, one);
    assert_eq!(token(&first), *batch(&first)[0].get_document("_id").unwrap());
    must(&mut world, connection, doc! { "insert": "y", "documents": [{}] });
    let second = must(&mut world, connection, more(id, 0));
    assert!(
        token(&second).get_str("_data").unwrap()
            > batch(&second)[0].get_document("_id").unwrap().get_str("_data").unwrap()
    );
}

/// As on real servers, a primary begins with an entry, so that a stream has a token before anything
/// was written.
#[test]
fn a_primary_begins_with_an_entry() {
    let (mut world, connection) = client();
    let old = world.primary().unwrap();
    let opened = must(&mut world, connection, watch(doc! {}));
    for member in (0..3).map(MemberId) {
        let log = world.model.get().log(member);
        let begun: Vec<_> = log.iter().map(|it| (it.term, it.documents, it.committed)).collect();
        assert_eq!(begun, [(1, 0, true)]);
    }
    world.handle(Input::StepDown { member: old });
    world.advance(4 * SECOND);
    let new = world.primary().unwrap();
    let terms = world.model.get().log(new).iter().map(|it| it.term).collect::<Vec<_>>();
    assert_eq!(terms, [1, 2]);
    let connection = world.connect(new);
    let again = must(&mut world, connection, watch(doc! { "resumeAfter": token(&opened) }));
    assert!(text(&token(&again)) > text(&token(&opened)));
}

/// As on real servers, whose idle primary writes an entry each ten seconds, the tokens of a quiet
/// stream go on (Change Streams, "postBatchResumeToken"). Without a stream there is none to see.
#[test]
fn the_token_of_a_quiet_stream_goes_on() {
    let sharded =
        ClusterOptions { deployment: Deployment::Sharded, ..options(ServerVersion::V8_0) };
    for options in [options(ServerVersion::V8_0), sharded] {
        let mut world = World::new(ClusterOptions { keeps_data: true, ..options });
        world.advance(SECOND);
        let connection = world.connect(world.primary().unwrap_or(MemberId(0)));
        insert(&mut world, connection, vec![doc! { "_id": 1 }]);
        let opened = must(&mut world, connection, watch(doc! {}));
        let id = cursor_id(&opened);
        let mut known = token(&must(&mut world, connection, more(id, 0)));
        for _ in 0..3 {
            world.advance(9 * SECOND);
            assert_eq!(token(&must(&mut world, connection, more(id, 0))), known);
            world.advance(SECOND);
            let quiet = must(&mut world, connection, more(id, 0));
            assert!(batch(&quiet).is_empty());
            assert!(text(&token(&quiet)) > text(&known));
            known = token(&quiet);
        }
        // One that waits has it when its time is over.
        send(&mut world, connection, &more(id, 15_000));
        world.advance(15 * SECOND);
        assert!(text(&token(&answer(&mut world, connection))) > text(&known));
        let count = world.model.get().log(MemberId(0)).len();
        world.advance(60 * SECOND);
        assert_eq!(world.model.get().log(MemberId(0)).len(), count);
    }
}

/// A stream reports nothing that may be rolled back, and a rollback ends it.
#[test]
fn only_what_a_majority_has_is_reported() {
    let (mut world, connection) = client();
    insert(&mut world, connection, vec![doc! { "_id": 1 }]);
    let old = world.primary().unwrap();
    let opened = must(&mut world, connection, watch(doc! {}));
    let id = cursor_id(&opened);
    world.handle(Input::Cut { member: old });
    let write = doc! { "insert": "x", "documents": [{ "_id": 2 }], "writeConcern": { "w": 1 } };
    must(&mut world, connection, write);
    assert!(rest(&mut world, connection, id).is_empty());
    world.advance(4 * SECOND);
    let other = world.connect(world.primary().unwrap());
    insert(&mut world, other, vec![doc! { "_id": 3 }]);
    assert!(rest(&mut world, connection, id).is_empty());
    let token = token(&opened);
    world.handle(Input::Heal { member: old });
    world.advance(SECOND);
    assert_eq!(code(&ask(&mut world, connection, more(id, 0))), 43);
    let mut again = watch(doc! { "resumeAfter": token });
    again.insert("$readPreference", doc! { "mode": "secondaryPreferred" });
    assert_eq!(reported(&must(&mut world, connection, again)), ["insert 3"]);
    assert_eq!(all(&mut world, connection).len(), 2);
}

/// A stream on a secondary that lags behind reports what it has.
#[test]
fn a_majority_wakes_a_stream() {
    let lag = Duration::from_millis(50);
    let options =
        ClusterOptions { keeps_data: true, replication_lag: lag, ..options(ServerVersion::V6_0) };
    let mut world = World::new(options);
    world.advance(SECOND);
    let connection = world.connect(world.primary().unwrap());
    let opened = must(&mut world, connection, watch(doc! {}));
    send(&mut world, connection, &more(cursor_id(&opened), 1000));
    let other = world.connect(world.primary().unwrap());
    let write = doc! { "insert": "x", "documents": [{ "_id": 1 }], "writeConcern": { "w": 1 } };
    must(&mut world, other, write);
    assert!(world.replies(connection).is_empty());
    world.advance(lag);
    assert_eq!(reported(&answer(&mut world, connection)), ["insert 1"]);
}

/// Change Streams: a getMore waits for an event, or until its time is over.
#[test]
fn a_get_more_waits_for_an_event() {
    let (mut world, connection) = client();
    let opened = must(&mut world, connection, watch(doc! {}));
    let id = cursor_id(&opened);
    send(&mut world, connection, &more(id, 500));
    let other = world.connect(world.primary().unwrap());
    must(&mut world, other, doc! { "insert": "y", "documents": [{}] });
    assert!(world.replies(connection).is_empty(), "that is of another collection");
    insert(&mut world, other, vec![doc! { "_id": 1 }]);
    assert_eq!(reported(&answer(&mut world, connection)), ["insert 1"]);
    send(&mut world, connection, &more(id, 500));
    world.advance(Duration::from_millis(499));
    assert!(world.replies(connection).is_empty());
    world.advance(Duration::from_millis(1));
    assert!(batch(&answer(&mut world, connection)).is_empty());
    let mut without = more(id, 0);
    without.remove("maxTimeMS");
    send(&mut world, connection, &without);
    world.advance(SECOND);
    assert!(batch(&answer(&mut world, connection)).is_empty());
}

/// As on real servers, a getMore that waits learns at the end of its time that its cursor is gone.
#[test]
fn a_stream_is_killed() {
    let (mut world, connection) = client();
    let kill = |id: i64| doc! { "killCursors": "x", "cursors": [id] };
    let id = cursor_id(&must(&mut world, connection, watch(doc! {})));
    let killed = must(&mut world, connection, kill(id));
    assert_eq!(killed.get_array("cursorsKilled").unwrap().len(), 1);
    assert_eq!(code(&ask(&mut world, connection, more(id, 0))), 43);
    let id = cursor_id(&must(&mut world, connection, watch(doc! {})));
    send(&mut world, connection, &more(id, 500));
    let other = world.connect(world.primary().unwrap());
    must(&mut world, other, kill(id));
    world.advance(Duration::from_millis(500));
    assert_eq!(code(&answer(&mut world, connection)), 237);
    let again = must(&mut world, other, kill(id));
    assert_eq!(again.get_array("cursorsNotFound").unwrap().len(), 1);
}

/// Change Streams, "Resumable Error": of a log that has gone on, history is lost.
#[test]
fn history_is_lost_when_the_log_has_gone_on() {
    let options =
        ClusterOptions { keeps_data: true, oplog_entries: 4, ..options(ServerVersion::V6_0) };
    let mut world = World::new(options);
    world.advance(SECOND);
    let connection = world.connect(world.primary().unwrap());
    let opened = must(&mut world, connection, watch(doc! {}));
    let id = cursor_id(&opened);
    insert(&mut world, connection, vec![doc! { "_id": 0 }]);
    let first = must(&mut world, connection, more(id, 0));
    for id in 1..=4 {
        insert(&mut world, connection, vec![doc! { "_id": id }]);
    }
    // All that it has not seen is still there.
    assert_eq!(rest(&mut world, connection, id).len(), 4);
    for start in [doc! { "resumeAfter": token(&first) }, doc! { "startAfter": token(&opened) }] {
        let lost = ask(&mut world, connection, watch(start));
        assert_eq!(code(&lost), 286, "{lost}");
        assert_eq!(labels(&lost), ["NonResumableChangeStreamError"]);
    }
    let long_ago = Timestamp { time: 1, increment: 1 };
    let lost = ask(&mut world, connection, watch(doc! { "startAtOperationTime": long_ago }));
    assert_eq!(code(&lost), 286);
    for id in 5..=9 {
        insert(&mut world, connection, vec![doc! { "_id": id }]);
    }
    assert_eq!(code(&ask(&mut world, connection, more(id, 0))), 136);
    assert_eq!(code(&ask(&mut world, connection, more(id, 0))), 43, "it is gone");
}

/// Change Streams, "Resumable Error" and "labels": servers since 4.4 say what may be resumed.
#[test]
fn errors_that_can_be_resumed_have_a_label() {
    for version in [ServerVersion::V4_2, ServerVersion::V4_4] {
        let (mut world, connection) = keeping(version);
        let is_new = version >= ServerVersion::V4_4;
        let expected: &[&str] = if is_new { &["ResumableChangeStreamError"] } else { &[] };
        let fail = |name: &str, command: &str| {
            let times = doc! { "times": 1 };
            let data = doc! { "failCommands": [command], "errorCode": 91 };
            doc! { "configureFailPoint": name, "mode": times, "data": data, "$db": "admin" }
        };
        let id = cursor_id(&must(&mut world, connection, watch(doc! {})));
        must(&mut world, connection, fail("failCommand", "getMore"));
        let failed = ask(&mut world, connection, more(id, 0));
        assert!(labels(&failed).is_empty(), "it has no cursor yet: {failed}");
        must(&mut world, connection, fail("failCommand", "aggregate"));
        assert_eq!(labels(&ask(&mut world, connection, watch(doc! {}))), expected);
        must(&mut world, connection, fail("failGetMoreAfterCursorCheckout", "getMore"));
        assert_eq!(labels(&ask(&mut world, connection, more(id, 0))), expected);
        assert_eq!(code(&ask(&mut world, connection, more(id, 0))), 43);
    }
}

/// A mongos answers with an empty first batch; others that share its data go on.
#[test]
fn a_mongos_reports_the_same_later() {
    let options = ClusterOptions {
        keeps_data: true,
        deployment: Deployment::Sharded,
        ..options(ServerVersion::V8_0)
    };
    let mut world = World::new(options);
    world.advance(SECOND);
    let connection = world.connect(MemberId(0));
    let other = world.connect(MemberId(1));
    let opened = must(&mut world, connection, watch(doc! {}));
    insert(&mut world, other, vec![doc! { "_id": 1 }, doc! { "_id": 2 }]);
    let reply = must(&mut world, connection, more(cursor_id(&opened), 0));
    assert_eq!(reported(&reply), ["insert 1", "insert 2"]);
    let first = batch(&reply)[0].get_document("_id").unwrap().clone();
    let again = must(&mut world, other, watch(doc! { "resumeAfter": first }));
    assert!(batch(&again).is_empty());
    assert_eq!(rest(&mut world, other, cursor_id(&again)), ["insert 2"]);
    let shard = doc! { "shardCollection": "test.x", "key": { "_id": 1 }, "$db": "admin" };
    let expanded = must(&mut world, connection, watch(doc! { "showExpandedEvents": true }));
    must(&mut world, connection, shard);
    assert_eq!(rest(&mut world, connection, cursor_id(&expanded)), ["shardCollection"]);
}
