//! Writes, in a collection of our own that is dropped afterwards.

use sdam_core::bson::{Bson, Document, doc};
use sdam_core::failure::Failure;

use super::{DATABASE, Probe, Talk, with};
use crate::lint::evidence::{Kind, Topic, is_ok, number};
use crate::lint::request::Request;

/// The topics that need permission to write.
pub(super) const TOPICS: [Topic; 15] = [
    Topic::Insert,
    Topic::FirstBatch,
    Topic::NextBatch,
    Topic::KillCursor,
    Topic::KilledCursor,
    Topic::Duplicate,
    Topic::Retryable,
    Topic::Retried,
    Topic::RetriedFound,
    Topic::Transaction,
    Topic::Abort,
    Topic::AbortedFound,
    Topic::LargeBatch,
    Topic::Drop,
    Topic::SecondaryWrite,
];

/// The largest batch that is sent, whatever the server says that it takes.
const MOST: i64 = 200_000;

/// NamespaceNotFound.
const NOT_FOUND: i64 = 26;

/// The remains of the writes that are perhaps still on the server.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Left {
    pub(super) collection: bool,
    transaction: bool,
}

/// Writes, if the server takes writes or has to refuse them.
pub(super) async fn ask(probe: &Probe) -> Result<(), Failure> {
    match probe.kind() {
        Some(Kind::Secondary) => {
            probe.not_asked(&TOPICS, "it is a secondary");
            let mut talk = probe.open_logged_in().await?;
            // Nothing there would be deleted, if the server did it.
            let session = doc! { "lsid": probe.session(3), "txnNumber": 1_i64 };
            let nothing = vec![doc! { "q": { "_id": "nothing" }, "limit": 1 }];
            let delete = doc! { "delete": probe.collection(), "deletes": nothing, "$db": DATABASE };
            talk.command(Topic::SecondaryWrite, with(delete, session)).await;
            Ok(())
        }
        Some(Kind::Standalone | Kind::Mongos | Kind::Primary) => {
            let Some(talk) = probe.or_stopped(probe.open_logged_in()).await else {
                return Ok(());
            };
            let mut talk = talk?;
            cursors(&mut talk).await;
            once(&mut talk).await;
            transaction(&mut talk).await;
            large_batch(&mut talk).await;
            clean_up(probe).await
        }
        _ => {
            probe.not_asked(&TOPICS, "it bears no data");
            Ok(())
        }
    }
}

/// Aborts and drops what is left, on a connection of its own, as that of the writes may have ended.
async fn clean_up(probe: &Probe) -> Result<(), Failure> {
    let left = *probe.left();
    if !left.collection {
        probe.not_asked(&[Topic::Drop], "nothing was written");
        return Ok(());
    }
    let mut talk = probe.open_logged_in().await?;
    if left.transaction {
        // The server may have aborted it by itself, and says so.
        talk.connection.ask(probe.request(abort(probe))).await;
    }
    if talk.connection.end().is_some() {
        talk = probe.open_logged_in().await?;
    }
    let drop = doc! { "drop": probe.collection(), "$db": DATABASE };
    let exchange = talk.connection.ask(probe.request(drop)).await;
    let reply = exchange.answers.first().and_then(|answer| answer.document.as_ref().ok());
    let is_absent = |reply: &Document| reply.get("code").and_then(number) == Some(NOT_FOUND);
    if reply.is_some_and(|reply| is_ok(reply) || is_absent(reply)) {
        *probe.left() = Left::default();
    }
    probe.note(Topic::Drop, exchange);
    Ok(())
}

/// Asks for a write that makes the collection; it has unless it was refused.
async fn write(talk: &mut Talk<'_>, topic: Topic, request: Request) {
    let probe = talk.probe;
    let before = std::mem::replace(&mut probe.left().collection, true);
    talk.ask(topic, request).await;
    let is_refused = probe.lock().reply(topic).is_ok_and(|reply| !is_ok(reply));
    if is_refused {
        probe.left().collection = before;
    }
}

/// Returns the fields of every command in the transaction.
fn part(probe: &Probe) -> Document {
    doc! { "lsid": probe.session(4), "txnNumber": 1_i64, "autocommit": false }
}

fn abort(probe: &Probe) -> Document {
    with(doc! { "abortTransaction": 1, "$db": "admin" }, part(probe))
}

/// Returns a find in the collection of our own.
fn find(probe: &Probe, filter: Document) -> Document {
    doc! { "find": probe.collection(), "filter": filter, "$db": DATABASE }
}

fn cursor_of(reply: Option<&Document>) -> Option<i64> {
    let cursor = reply?.get_document("cursor").ok()?;
    number(cursor.get("id")?).filter(|id| *id != 0)
}

async fn cursors(talk: &mut Talk<'_>) {
    let probe = talk.probe;
    let name = probe.collection();
    let documents = (1..=5).map(|number| doc! { "_id": number }).collect();
    let insert = doc! { "insert": &name, "$db": DATABASE };
    let sequence = Some(("documents", documents));
    let insert = Request { sequence, ..probe.request(insert) };
    write(talk, Topic::Insert, insert).await;
    let duplicate = doc! { "insert": &name, "documents": [{ "_id": 1 }], "$db": DATABASE };
    write(talk, Topic::Duplicate, probe.request(duplicate)).await;
    let batch = with(find(probe, doc! {}), doc! { "batchSize": 2 });
    let found = talk.command(Topic::FirstBatch, batch).await;
    let topics = [Topic::NextBatch, Topic::KillCursor, Topic::KilledCursor];
    let Some(id) = cursor_of(found.as_ref()) else {
        return probe.not_asked(&topics, "the first batch has left no cursor");
    };
    let more = || {
        doc! {
            "getMore": Bson::Int64(id), "collection": &name, "batchSize": 2, "$db": DATABASE,
        }
    };
    talk.command(Topic::NextBatch, more()).await;
    let kill = doc! { "killCursors": &name, "cursors": [Bson::Int64(id)], "$db": DATABASE };
    talk.command(Topic::KillCursor, kill).await;
    talk.command(Topic::KilledCursor, more()).await;
}

/// Sends one update twice.
async fn once(talk: &mut Talk<'_>) {
    let probe = talk.probe;
    if probe.kind() == Some(Kind::Standalone) {
        return;
    }
    let updates = vec![doc! { "q": { "_id": 1 }, "u": { "$inc": { "times": 1 } } }];
    let update = doc! {
        "update": probe.collection(), "updates": updates,
        "lsid": probe.session(3), "txnNumber": 1_i64, "$db": DATABASE,
    };
    talk.command(Topic::Retryable, update.clone()).await;
    talk.command(Topic::Retried, update).await;
    talk.command(Topic::RetriedFound, find(probe, doc! { "_id": 1 })).await;
}

async fn transaction(talk: &mut Talk<'_>) {
    let probe = talk.probe;
    if probe.kind() == Some(Kind::Standalone) {
        return;
    }
    let insert = doc! {
        "insert": probe.collection(), "documents": [{ "_id": "aborted" }],
        "startTransaction": true, "$db": DATABASE,
    };
    probe.left().transaction = true;
    write(talk, Topic::Transaction, probe.request(with(insert, part(probe)))).await;
    if talk.command(Topic::Abort, abort(probe)).await.is_some() {
        probe.left().transaction = false;
    }
    talk.command(Topic::AbortedFound, find(probe, doc! { "_id": "aborted" })).await;
}

/// Sends one delete more than a batch may have, none of which finds anything.
async fn large_batch(talk: &mut Talk<'_>) {
    let probe = talk.probe;
    let most = probe.lock().hello().ok().and_then(|it| it.get("maxWriteBatchSize").cloned());
    let most = most.as_ref().and_then(number).filter(|most| (1..=MOST).contains(most));
    let Some(most) = most else {
        return probe.not_asked(&[Topic::LargeBatch], "its maxWriteBatchSize is not usual");
    };
    let one = || doc! { "q": { "_id": "nothing" }, "limit": 1 };
    let deletes = std::iter::repeat_with(one).take(usize::try_from(most).unwrap_or(0) + 1);
    let delete = doc! { "delete": probe.collection(), "$db": DATABASE };
    let sequence = Some(("deletes", deletes.collect()));
    let delete = Request { sequence, ..probe.request(delete) };
    talk.ask(Topic::LargeBatch, delete).await;
}
