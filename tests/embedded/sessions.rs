//! Sessions of operations: those that they have for themselves, and those of the application.

use std::time::Duration;

use bson::{Document, doc};
use sdam_core::selection::Criteria;
use sdam_host::Events;

use super::{Fixture, LIMIT, name, names, session, started};

/// Driver Sessions, "Sessions and Cursors" and "Server Session Pool": the next operation uses the
/// session that was used last.
#[tokio::test]
async fn the_session_of_an_operation_returns_to_the_pool() {
    let mut fixture = Fixture::new().await;
    fixture.fill(3).await;
    let things = fixture.things();
    things.insert_one(&doc! { "_id": 7 }).await.unwrap();
    things.count_documents(doc! {}).await.unwrap();
    // A cursor keeps its session while the server has it open, and no longer.
    let mut cursor = things.find(doc! {}).batch_size(2).await.unwrap();
    cursor.next().await.unwrap().unwrap();
    things.count_documents(doc! {}).await.unwrap();
    cursor.next().await.unwrap().unwrap();
    cursor.next().await.unwrap().unwrap();
    assert!(cursor.next().await.unwrap().is_ok() && cursor.next().await.is_none());
    things.count_documents(doc! {}).await.unwrap();
    let sent = fixture.sent();
    let expected = ["insert", "aggregate", "find", "aggregate", "getMore", "aggregate"];
    assert_eq!(names(&sent), expected);
    let first = session(&sent[0]);
    let is_first: Vec<bool> = sent.iter().map(|command| session(command) == first).collect();
    // The cursor has given back the first after the second was given back: it is used first.
    assert_eq!(is_first, [true, true, true, false, true, true]);
}

/// Driver Sessions, "endSessions", and killCursors, without a call of `close`.
#[tokio::test]
async fn servers_let_go_of_what_they_keep_for_a_client_whose_last_handle_is_dropped() {
    let fixture = Fixture::new().await;
    fixture.fill(3).await;
    let things = fixture.things();
    let mut cursor = things.find(doc! {}).batch_size(2).await.unwrap();
    cursor.next().await.unwrap().unwrap();
    let Fixture { cluster: _cluster, client, quiet: _quiet, mut events } = fixture;
    drop((cursor, things, client));
    let sent = all_sent(&mut events).await;
    assert_eq!(names(&sent), ["find", "killCursors", "endSessions"]);
    let ended = sent[2].get_array("endSessions").unwrap();
    assert!(ended.contains(&session(&sent[0]).into()), "{sent:?}");
}

/// The same where a handle has the last reference to both, the client and the session.
#[tokio::test]
async fn servers_let_go_of_the_session_of_a_handle_that_is_the_last_of_its_client() {
    let fixture = Fixture::new().await;
    fixture.fill(3).await;
    let own = fixture.client.start_session().await.unwrap();
    let id = Document::try_from(own.id().unwrap()).unwrap();
    let things = fixture.things().with_session(&own);
    things.find_one(doc! {}).await.unwrap();
    let Fixture { cluster: _cluster, client, quiet: _quiet, mut events } = fixture;
    drop((client, own));
    drop(things);
    let sent = all_sent(&mut events).await;
    assert_eq!(names(&sent), ["find", "endSessions"]);
    assert_eq!(*sent[1].get_array("endSessions").unwrap(), [bson::Bson::from(id)]);
}

/// Waits until a client that was dropped has ended; returns the commands that it has sent.
async fn all_sent(events: &mut Events) -> Vec<Document> {
    let mut sent: Vec<Document> = Vec::new();
    let ending = async {
        while let Some(event) = events.next().await {
            sent.extend(started(event).map(|(command, _)| command));
        }
    };
    tokio::time::timeout(LIMIT, ending).await.expect("the client ends");
    sent
}

/// The same where only a cursor is left at the server: a session after whose use the connection was
/// lost is not kept (Driver Sessions, dirty sessions).
#[tokio::test]
async fn a_server_closes_the_cursors_of_a_dropped_client_that_has_no_session_left() {
    let fixture = Fixture::new().await;
    fixture.fill(3).await;
    let own = fixture.client.start_session().await.unwrap();
    let things = fixture.things().with_session(&own);
    let cursor = things.find(doc! {}).batch_size(2).await.unwrap();
    let lost = doc! { "failCommands": ["count"], "closeConnection": true };
    fixture.fail(1, lost).await;
    let database = fixture.client.database("app").with_session(&own);
    database.run_command(doc! { "count": "things" }).await.unwrap_err();
    fixture.client.topology().select(Criteria::write()).await.unwrap();
    let Fixture { cluster: _cluster, client, quiet: _quiet, mut events } = fixture;
    drop((cursor, things, database, own, client));
    assert_eq!(names(&all_sent(&mut events).await), ["find", "count", "killCursors"]);
}

/// Causal Consistency: reads have the time of what was written before.
#[tokio::test]
async fn a_session_of_the_application_is_causally_consistent() {
    let mut fixture = Fixture::new().await;
    let own = fixture.client.start_session().await.unwrap();
    let things = fixture.things().with_session(&own);
    assert_eq!(own.operation_time().unwrap(), None);
    things.insert_one(&doc! { "_id": 7 }).await.unwrap();
    let written = own.operation_time().unwrap().unwrap();
    assert_eq!(things.find_one(doc! {}).await.unwrap(), Some(doc! { "_id": 7 }));
    let database = fixture.client.database("app").with_session(&own);
    database.list_collection_names().await.unwrap();
    let sent = fixture.sent();
    assert_eq!(names(&sent), ["insert", "find", "listCollections"]);
    let id = bson::Document::try_from(own.id().unwrap()).unwrap();
    assert!(sent.iter().all(|command| *session(command) == id));
    let concern = sent[1].get_document("readConcern").unwrap();
    assert_eq!(concern.get_timestamp("afterClusterTime").unwrap(), written);
    assert!(!sent[0].contains_key("readConcern") && !sent[2].contains_key("readConcern"));
    assert!(own.cluster_time().unwrap().is_some());

    own.end();
    let error = things.find_one(doc! {}).await.unwrap_err();
    assert!(error.to_string().contains("has ended"), "{error}");
}

/// "Drivers MUST report an error if sessions are used with another MongoClient"; of one client,
/// operations follow one another.
#[tokio::test]
async fn a_session_is_of_one_client_and_of_one_operation_at_a_time() {
    let mut fixture = Fixture::new().await;
    fixture.fill(1).await;
    let foreign = fixture.quiet.start_session().await.unwrap();
    let error = fixture.things().with_session(&foreign).find_one(doc! {}).await.unwrap_err();
    assert!(error.to_string().contains("another client"), "{error}");
    assert!(fixture.sent().is_empty());

    let own = fixture.client.start_session().await.unwrap();
    let things = fixture.things().with_session(&own);
    let mut first = things.find_one(doc! {}).into_future();
    assert!(futures_poll(first.as_mut()).await.is_none(), "it waits for a connection");
    let mut second = things.find_one(doc! {}).into_future();
    assert!(futures_poll(second.as_mut()).await.is_none(), "it waits for the first");
    let mut third = things.find_one(doc! {}).into_future();
    assert!(futures_poll(third.as_mut()).await.is_none());
    assert!(own.operation_time().is_err());
    assert!(first.await.unwrap().is_some());
    // The second was woken, and is not polled; it does not stand in the way of the third.
    assert!(third.await.unwrap().is_some());
    drop(second);
    let mut last = things.find_one(doc! {}).into_future();
    assert!(futures_poll(last.as_mut()).await.is_none());
    own.end();
    assert!(last.await.unwrap().is_some());
    assert!(things.find_one(doc! {}).await.is_err(), "it has ended with its operation");
    assert_eq!(fixture.sent().iter().map(name).collect::<Vec<_>>(), ["find"; 3]);
}

/// The same where they are of several tasks: each operation that waits is woken when the session
/// comes back, also behind one that is not polled.
#[tokio::test]
async fn an_operation_of_another_task_is_woken_when_its_session_comes_back() {
    let fixture = Fixture::new().await;
    fixture.fill(1).await;
    let own = fixture.client.start_session().await.unwrap();
    let things = fixture.things().with_session(&own);
    let mut first = things.find_one(doc! {}).into_future();
    let mut kept = things.find_one(doc! {}).into_future();
    assert!(futures_poll(first.as_mut()).await.is_none(), "it uses the session");
    assert!(futures_poll(kept.as_mut()).await.is_none());
    let (others, (waits, waiting)) = (things.clone(), tokio::sync::oneshot::channel());
    let other = tokio::spawn(async move {
        let mut find = others.find_one(doc! {}).into_future();
        assert!(futures_poll(find.as_mut()).await.is_none());
        waits.send(()).unwrap();
        find.await
    });
    waiting.await.unwrap();
    assert!(first.await.unwrap().is_some());
    let found = tokio::time::timeout(Duration::from_secs(20), other).await;
    assert!(found.expect("it is woken").unwrap().unwrap().is_some());
    drop(kept);
}

/// Polls a future once.
async fn futures_poll<F: Future + ?Sized>(mut future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
        std::task::Poll::Ready(output) => std::task::Poll::Ready(Some(output)),
        std::task::Poll::Pending => std::task::Poll::Ready(None),
    })
    .await
}

/// Snapshot Reads: all reads see one time, and getMore says nothing of it.
#[tokio::test]
async fn a_cursor_of_a_snapshot_goes_on_without_a_read_concern() {
    let mut fixture = Fixture::new().await;
    fixture.fill(3).await;
    let own = fixture.client.start_session().snapshot(true).await.unwrap();
    let things = fixture.things().with_session(&own);
    let found = things.find(doc! {}).batch_size(2).await.unwrap();
    assert_eq!(found.try_collect::<Vec<_>>().await.unwrap().len(), 3);
    let sent = fixture.sent();
    assert_eq!(names(&sent), ["find", "getMore"]);
    let concern = sent[0].get_document("readConcern").unwrap();
    assert_eq!(concern.get_str("level").unwrap(), "snapshot");
    assert!(!sent[1].contains_key("readConcern"));
    assert_eq!(session(&sent[0]), session(&sent[1]));
}

/// "Drivers MUST NOT attempt to detect simultaneous use" (Driver Sessions, "ClientSession"): one
/// that waits is not passed again and again by those that begin later.
#[tokio::test]
async fn an_operation_that_waits_for_a_session_goes_before_later_ones() {
    let fixture = Fixture::new().await;
    fixture.fill(1).await;
    let session = fixture.client.start_session().await.unwrap();
    let things = fixture.things().with_session(&session);
    let done = std::cell::Cell::new(0);
    let many = async {
        for _ in 0..50 {
            things.find_one(doc! {}).await.unwrap();
            done.set(done.get() + 1);
        }
    };
    let one = async {
        things.find_one(doc! {}).await.unwrap();
        done.get()
    };
    let ((), before) = tokio::join!(many, one);
    assert!(before < 5, "{before} others went before it");
}
