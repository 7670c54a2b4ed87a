//! Cursors that are not read to their end.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use bson::{Document, cstr, doc, rawdoc};
use futures_core::Stream;
use sdam::error::{ArgumentError, Error};
use sdam::generic::{Client, Collection, Cursor};
use sdam::options::CursorType;
use sdam_cluster::{EmbeddedCluster, EmbeddedOptions};
use sdam_core::command::CommandEvent;
use sdam_core::config::{Options, ServerAddress};
use sdam_core::description::ServerType;
use sdam_core::selection::Criteria;
use sdam_core::topology::{EventKind, Topics};
use sdam_host::driver::DriverTopology;
use sdam_tokio::Tokio;

use super::operations::Scene;
use super::{Fixture, LIMIT, name, names, session};

/// Run Command, test 1: "configurable batchSize MUST be sent on getMore".
#[tokio::test]
async fn the_size_of_later_batches_can_be_changed() {
    let mut fixture = Fixture::new().await;
    fixture.fill(11).await;
    let find = doc! { "find": "things", "batchSize": 1 };
    let database = fixture.client.database("app");
    let mut cursor = database.run_cursor_command(find).batch_size(2).await.unwrap();
    let mut read = 0;
    for (size, count) in [(None, 1), (None, 2), (Some(3), 3), (Some(4), 4), (Some(0), 1)] {
        if let Some(size) = size {
            cursor.set_batch_size(size);
        }
        for _ in 0..count {
            assert_eq!(cursor.next().await.unwrap().unwrap().get_i32("_id").ok(), Some(read));
            read += 1;
        }
    }
    assert!(cursor.next().await.is_none());
    let sent = fixture.sent();
    assert_eq!(names(&sent), ["find", "getMore", "getMore", "getMore", "getMore"]);
    let sizes: Vec<_> = sent[1..].iter().map(|it| it.get_i64("batchSize").ok()).collect();
    assert_eq!(sizes, [Some(2), Some(3), Some(4), None]);
}

/// A stream does not hear of it when its reader gives up: the getMore is not the reader's alone, so
/// that the only connection comes back while the cursor lies there.
#[tokio::test]
async fn a_stream_that_is_given_up_does_not_keep_the_connection() {
    let fixture = Fixture::new().await;
    fixture.fill(5).await;
    let options = Options::parse(&format!("{}&maxPoolSize=1", fixture.uri())).unwrap();
    let client = Client::from(sdam_tokio::Topology::new(options).unwrap());
    let things = client.database("app").collection::<Document>("things");
    let own = client.start_session().await.unwrap();
    let things = things.with_session(&own);
    let mut cursor = things.find(doc! {}).batch_size(2).await.unwrap();
    for _ in 0..2 {
        cursor.next().await.unwrap().unwrap();
    }
    let waits = poll_fn(|cx| Poll::Ready(Pin::new(&mut cursor).poll_next(cx).is_pending()));
    assert!(waits.await, "it is asked for");
    things.insert_one(&doc! { "_id": 7 }).await.unwrap();
    let next = poll_fn(|cx| Pin::new(&mut cursor).poll_next(cx)).await;
    assert_eq!(next.unwrap().unwrap().get_i32("_id").ok(), Some(2), "nothing is lost");
    assert_eq!(cursor.try_collect::<Vec<_>>().await.unwrap().len(), 2);
}

/// An empty name of a collection would make the pipeline one of the whole database.
#[tokio::test]
async fn names_that_no_server_takes_are_refused_before_anything_is_sent() {
    let mut fixture = Fixture::new().await;
    let client = &fixture.client;
    let is_refused = |error: &Error| matches!(error.as_argument(), Some(ArgumentError::Name(_)));
    for name in ["", "a\0b"] {
        for collection in
            [client.database("app").collection(name), client.database(name).collection("a")]
        {
            let collection: Collection<Tokio> = collection;
            let error = collection.aggregate([doc! { "$match": {} }]).await.unwrap_err();
            assert!(is_refused(&error), "{error}");
            let errors = [
                collection.find(doc! {}).await.unwrap_err(),
                collection.insert_one(&doc! { "a": 1 }).await.unwrap_err(),
                collection.drop().await.unwrap_err(),
                collection.list_index_names().await.unwrap_err(),
            ];
            assert!(errors.iter().all(is_refused), "{errors:?}");
        }
        let error = client.database(name).run_command(doc! { "ping": 1 }).await.unwrap_err();
        assert!(is_refused(&error), "{error}");
        let error = client.database("app").create_collection(name).await.unwrap_err();
        assert!(is_refused(&error), "{error}");
        let namespace = format!("app.{name}");
        let error = fixture.things().rename(&namespace).await.unwrap_err();
        assert_eq!(error.as_argument(), Some(&ArgumentError::Namespace(namespace)));
    }
    assert!(fixture.sent().is_empty());
}

/// find, getMore and killCursors: with the session of the cursor.
#[tokio::test]
async fn a_cursor_that_is_dropped_is_closed_without_another_operation() {
    let mut fixture = Fixture::new().await;
    fixture.fill(5).await;
    let cursor = fixture.things().find(doc! {}).batch_size(2).await.unwrap();
    let id = cursor.id();
    drop(cursor);
    let sent = fixture.sent_until("killCursors").await;
    assert_eq!(names(&sent), ["find", "killCursors"]);
    assert_eq!(sent[1].get_array("cursors").unwrap(), &vec![id.into()]);
    assert_eq!(session(&sent[0]), session(&sent[1]));
    let more = doc! { "getMore": id, "collection": "things" };
    let error = fixture.client.database("app").run_command(more).await.unwrap_err();
    assert_eq!(error.code(), Some(43), "CursorNotFound: {error}");
}

/// A client without threads closes it when it is used next, even over a connection that exists
/// already.
#[cfg(feature = "blocking")]
#[tokio::test]
async fn without_threads_a_dropped_cursor_is_closed_by_later_operations() {
    let fixture = Fixture::new().await;
    fixture.fill(5).await;
    let options = Options::builder().uri(&fixture.uri()).unwrap().single_threaded(true);
    let client = sdam_blocking::Topology::new(options.build().unwrap()).unwrap();
    let sent = tokio::task::spawn_blocking(move || {
        let mut events = client.subscribe_to(Topics::COMMANDS);
        let client = sdam::blocking::Client::from(client);
        let database = client.database("app");
        let things = database.collection::<Document>("things");
        drop(things.find(doc! {}).batch_size(2).run().unwrap());
        for _ in 0..2 {
            database.run_command(doc! { "ping": 1 }).run().unwrap();
        }
        let commands = std::iter::from_fn(|| events.try_next()).filter_map(super::started);
        commands.map(|(command, _)| command).collect::<Vec<_>>()
    });
    let sent = sent.await.unwrap();
    let mut names = names(&sent);
    names.sort_unstable();
    assert_eq!(names, ["find", "killCursors", "ping", "ping"]);
}

/// Closing a client waits for the cursors that were dropped before; dropping the client leaves them
/// to the server.
#[tokio::test]
async fn cursors_that_were_dropped_are_closed_before_their_client_is() {
    let mut fixture = Fixture::new().await;
    fixture.fill(5).await;
    let (things, mut cursors) = (fixture.things(), Vec::new());
    for _ in 0..20 {
        cursors.push(things.find(doc! {}).batch_size(2).await.unwrap());
    }
    let ids: Vec<_> = cursors.iter().map(Cursor::id).collect();
    drop(cursors);
    fixture.client.topology().close().await;
    let sent = fixture.sent();
    let closed: Vec<_> = sent.iter().filter(|command| name(command) == "killCursors").collect();
    assert!(closed.len() <= 2, "{} commands", closed.len());
    for id in ids {
        let more = doc! { "getMore": id, "collection": "things" };
        let error = fixture.quiet.database("app").run_command(more).await.unwrap_err();
        assert_eq!(error.code(), Some(43), "CursorNotFound: {error}");
    }
}

/// So does one that uses its caller's thread, where no other task would do it.
#[cfg(feature = "blocking")]
#[tokio::test]
async fn without_threads_cursors_are_closed_when_their_client_is() {
    let fixture = Fixture::new().await;
    fixture.fill(5).await;
    let options = Options::builder().uri(&fixture.uri()).unwrap().single_threaded(true);
    let options = options.build().unwrap();
    let ids = tokio::task::spawn_blocking(move || {
        let below = sdam_blocking::Topology::new(options).unwrap();
        let client = sdam::blocking::Client::from(below.clone());
        let things = client.database("app").collection::<Document>("things");
        let open = |_| things.find(doc! {}).batch_size(2).run().unwrap();
        let cursors: Vec<_> = (0..20).map(open).collect();
        let ids: Vec<_> = cursors.iter().map(sdam::blocking::Cursor::id).collect();
        drop(cursors);
        assert!(below.close(std::time::Duration::from_secs(60)));
        ids
    });
    for id in ids.await.unwrap() {
        let more = doc! { "getMore": id, "collection": "things" };
        let error = fixture.quiet.database("app").run_command(more).await.unwrap_err();
        assert_eq!(error.code(), Some(43), "CursorNotFound: {error}");
    }
}

/// Operations of the application do not wait for a server that is slow to close a cursor.
#[tokio::test]
async fn nothing_waits_for_a_cursor_that_is_dropped() {
    let mut fixture = Fixture::new().await;
    fixture.fill(5).await;
    let block = doc! {
        "failCommands": ["killCursors"], "blockConnection": true, "blockTimeMS": 3_600_000_i64,
    };
    fixture.fail(1, block).await;
    drop(fixture.things().find(doc! {}).batch_size(2).await.unwrap());
    fixture.sent_until("killCursors").await;
    fixture.things().find_one(doc! {}).await.unwrap();
    assert_eq!(names(&fixture.sent()), ["find"]);
    // The task that closes the cursor keeps no client alive, and closing waits for none.
    fixture.client.topology().close().await;
}

/// A cursor in a session of the application's is closed with the name of that session, which the
/// application may use meanwhile.
#[tokio::test]
async fn a_dropped_cursor_does_not_get_in_the_way_of_its_session() {
    let mut fixture = Fixture::new().await;
    fixture.fill(5).await;
    let own = fixture.client.start_session().await.unwrap();
    let things = fixture.things().with_session(&own);
    for _ in 0..10 {
        drop(things.find(doc! {}).batch_size(2).await.unwrap());
        things.find_one(doc! {}).await.unwrap();
        fixture.sent_until("killCursors").await;
    }
    drop(things.find(doc! {}).batch_size(2).await.unwrap());
    let sent = fixture.sent_until("killCursors").await;
    let id = bson::Document::try_from(own.id().unwrap()).unwrap();
    assert!(sent.iter().all(|command| *session(command) == id));
    assert_eq!(name(sent.last().unwrap()), "killCursors");
}

#[tokio::test]
async fn closing_a_cursor_closes_it_at_its_server() {
    let mut fixture = Fixture::new().await;
    fixture.fill(5).await;
    let things = fixture.things().with_timeout(std::time::Duration::from_secs(3600));
    let cursor = things.find(doc! {}).batch_size(2).await.unwrap();
    cursor.close().await;
    let sent = fixture.sent();
    assert_eq!(names(&sent), ["find", "killCursors"]);
    assert_eq!(session(&sent[0]), session(&sent[1]));
    assert!(sent.iter().all(|command| command.contains_key("maxTimeMS")), "each has its limit");
    assert_eq!(sent.iter().filter(|command| name(command) == "killCursors").count(), 1);
}

/// Client Backpressure, "getMores are retried": a cursor that cannot be read any more is closed,
/// and nothing is left to do for an operation that may never come.
#[tokio::test]
async fn collecting_closes_a_cursor_that_fails_before_its_error_is_returned() {
    let mut fixture = Fixture::new().await;
    fixture.fill(5).await;
    fixture.fail(1, doc! { "failCommands": ["getMore"], "errorCode": 2 }).await;
    let cursor = fixture.things().find(doc! {}).batch_size(2).await.unwrap();
    assert_eq!(cursor.try_collect::<Vec<_>>().await.unwrap_err().code(), Some(2));
    assert_eq!(names(&fixture.sent()), ["find", "getMore", "killCursors"]);
}

/// A server that does not know a cursor any more receives no request to close it; one whose
/// connection was lost does: "if the cursor id is nonzero a KillCursors operation MUST be
/// attempted" (Run Command, "Resource Cleanup").
#[tokio::test]
async fn a_cursor_is_closed_unless_its_server_has_said_that_it_is_gone() {
    let mut fixture = Fixture::new().await;
    fixture.fill(5).await;
    let lost = doc! { "failCommands": ["getMore"], "closeConnection": true };
    let unknown = doc! { "failCommands": ["getMore"], "errorCode": 43 };
    let closed: &[&str] = &["find", "getMore", "killCursors"];
    for (failure, expected) in [(lost, closed), (unknown, &closed[..2])] {
        fixture.fail(1, failure).await;
        let mut cursor = fixture.things().find(doc! {}).batch_size(2).await.unwrap();
        for _ in 0..2 {
            cursor.next().await.unwrap().unwrap();
        }
        cursor.next().await.unwrap().unwrap_err();
        assert!(cursor.next().await.is_none() && !cursor.is_alive());
        // The pool is ready when the server has been checked again.
        fixture.client.topology().select(Criteria::write()).await.unwrap();
        cursor.close().await;
        assert_eq!(names(&fixture.sent()), expected);
    }
}

/// Load Balancer Support, "Connection Pinning": a cursor is continued and closed over the very
/// connection that it was opened over, which goes back when the cursor is exhausted.
#[tokio::test]
async fn behind_a_load_balancer_a_cursor_keeps_its_connection() {
    let mut fixture = Fixture::load_balanced().await;
    fixture.fill(5).await;
    let things = fixture.things();
    let mut cursor = things.find(doc! {}).batch_size(2).await.unwrap();
    things.find_one(doc! {}).await.unwrap();
    for _ in 0..3 {
        cursor.next().await.unwrap().unwrap();
    }
    drop(cursor);
    let mut sent = fixture.sent_over_until("killCursors").await;
    things.find_one(doc! {}).await.unwrap();
    sent.extend(fixture.sent_over());
    let (commands, over): (Vec<_>, Vec<_>) = sent.into_iter().unzip();
    assert_eq!(names(&commands), ["find", "find", "getMore", "killCursors", "find"]);
    assert_ne!(over[0], over[1], "the first is in use");
    assert_eq!((over[2], over[3]), (over[0], over[0]));
    let all =
        things.find(doc! {}).batch_size(2).await.unwrap().try_collect::<Vec<_>>().await.unwrap();
    assert_eq!(all.len(), 5);
    let sent = fixture.sent_over();
    assert!(sent.iter().all(|(_, over)| *over == sent[0].1), "it came back, and was used again");
}

/// A replica set of three members, of any of which the client reads.
async fn fixture_of_three() -> Fixture {
    let options = EmbeddedOptions::default().with_members(3).with_keeps_data(true);
    let cluster = EmbeddedCluster::start(options).await.unwrap();
    cluster.elected().await.unwrap();
    let uri = format!("{}&w=3&readPreference=nearest&localThresholdMS=60000", cluster.uri());
    let fixture = Fixture::with(cluster, &uri);
    let mut views = fixture.client.topology().watch_topology();
    let is_known = |it: &ServerType| matches!(it, ServerType::RsPrimary | ServerType::RsSecondary);
    let all_known = async {
        loop {
            let view = views.next().await.expect("the client is open");
            if view.servers().iter().filter(|server| is_known(&server.server_type)).count() == 3 {
                break;
            }
        }
    };
    tokio::time::timeout(LIMIT, all_known).await.expect("all members are known");
    fixture
}

/// The commands that were sent since the last call, each with its server.
fn sent_to(fixture: &mut Fixture) -> Vec<(Document, ServerAddress)> {
    let events = std::iter::from_fn(|| fixture.events.try_next());
    let started = events.filter_map(|event| match event.kind {
        EventKind::Command { address, event: CommandEvent::CommandStarted { command }, .. } => {
            Some((Document::try_from(command).unwrap(), address))
        }
        _ => None,
    });
    started.collect()
}

/// Run Command, "RunCursorCommand implementation details": getMore goes to "the same server the
/// initial command was executed on", and so does killCursors, be the cursor closed or dropped.
#[tokio::test]
async fn cursors_are_continued_and_closed_at_the_server_that_has_them() {
    for closes in [true, false] {
        let mut fixture = fixture_of_three().await;
        fixture.fill(5).await;
        let (things, mut cursors) = (fixture.things(), Vec::new());
        for _ in 0..24 {
            cursors.push(things.find(doc! {}).batch_size(2).await.unwrap());
        }
        let places = sent_to(&mut fixture).into_iter().map(|(_, address)| address);
        let opened: Vec<_> = cursors.iter().map(Cursor::id).zip(places).collect();
        assert!(opened.iter().any(|(_, address)| *address != opened[0].1), "{opened:?}");
        for cursor in &mut cursors {
            for _ in 0..3 {
                cursor.next().await.unwrap().unwrap();
            }
        }
        for cursor in cursors {
            match closes {
                true => cursor.close().await,
                false => drop(cursor),
            }
        }
        fixture.client.topology().close_cursors().await;
        let (mut continued, mut closed) = (Vec::new(), Vec::new());
        for (command, address) in sent_to(&mut fixture) {
            match name(&command) {
                "getMore" => continued.push((command.get_i64("getMore").unwrap(), address)),
                _ => {
                    let ids = command.get_array("cursors").unwrap().iter();
                    closed.extend(ids.map(|id| (id.as_i64().unwrap(), address.clone())));
                }
            }
        }
        assert_eq!(continued, opened);
        // Those that were dropped are closed many at a time.
        closed.sort_by_key(|closed| opened.iter().position(|it| it == closed));
        assert_eq!(closed, opened);
    }
}

/// Driver Sessions, "Sessions and Cursors": the session of a cursor is given back when the cursor
/// is exhausted or closed, and all its commands have that one.
#[tokio::test]
async fn a_cursor_has_its_session_to_itself_while_it_is_open() {
    let mut fixture = Fixture::new().await;
    fixture.fill(5).await;
    let (things, database) = (fixture.things(), fixture.client.database("app"));
    let run = doc! { "find": "things", "batchSize": 2 };
    let mut cursors = [
        things.find(doc! {}).batch_size(2).await.unwrap(),
        things.aggregate([doc! { "$match": {} }]).batch_size(2).await.unwrap(),
        database.run_cursor_command(run).batch_size(2).await.unwrap(),
    ];
    let opened = fixture.sent();
    for _ in 0..3 {
        things.find_one(doc! {}).await.unwrap();
        for cursor in &mut cursors {
            cursor.next().await.unwrap().unwrap();
        }
    }
    let between = fixture.sent();
    for cursor in cursors {
        cursor.close().await;
    }
    let closed = fixture.sent();
    let of = |name: &str, sent: &[Document]| {
        let sent = sent.iter().filter(|it| super::name(it) == name);
        sent.map(|it| session(it).clone()).collect::<Vec<_>>()
    };
    let own: Vec<_> = opened.iter().map(|it| session(it).clone()).collect();
    assert!(own[0] != own[1] && own[1] != own[2] && own[2] != own[0], "{own:?}");
    assert_eq!((of("getMore", &between), of("killCursors", &closed)), (own.clone(), own.clone()));
    let others = of("find", &between);
    assert!(others.iter().all(|other| !own.contains(other)), "{others:?}");
    things.find_one(doc! {}).await.unwrap();
    assert!(own.contains(session(&fixture.sent()[0])), "they were given back");
}

/// A cursor of a server that has these batches, one after the other, and then nothing for ever.
async fn tailing(batches: Vec<Vec<i32>>) -> (Scene, Cursor<Tokio, Document>) {
    let batches = std::sync::Mutex::new(batches.into_iter());
    let scene = Scene::new(move |command, _| {
        let field = match command {
            "find" => cstr!("firstBatch"),
            "getMore" => cstr!("nextBatch"),
            _ => return None,
        };
        let ids = batches.lock().unwrap().next().unwrap_or_default();
        let id = if ids.contains(&-1) { 0_i64 } else { 7 };
        let batch: bson::RawArrayBuf =
            ids.into_iter().filter(|id| *id >= 0).map(|id| rawdoc! { "_id": id }).collect();
        let mut cursor = rawdoc! { "id": id, "ns": "app.things" };
        cursor.append(field, batch);
        Some(rawdoc! { "ok": 1, "cursor": cursor })
    });
    let things = scene.client.database("app").collection::<Document>("things");
    let cursor = things.find(doc! {}).cursor_type(CursorType::Tailable).await.unwrap();
    (scene, cursor)
}

/// Of a tailable cursor, an empty batch is no end; [`Cursor::next_if_any`] returns after one,
/// and [`Cursor::next`] goes on.
#[tokio::test]
async fn a_cursor_says_whether_it_has_ended() {
    let (mut scene, mut cursor) =
        tailing(vec![vec![1], vec![], vec![2], vec![], vec![3], vec![-1]]).await;
    let id = |document: Option<Result<Document, Error>>| {
        document.map(|document| document.unwrap().get_i32("_id").unwrap())
    };
    assert_eq!((cursor.id(), cursor.is_alive()), (7, true));
    assert_eq!(id(cursor.next_if_any().await.transpose()), Some(1));
    assert_eq!(names(&scene.sent()), ["find"]);
    assert_eq!(id(cursor.next_if_any().await.transpose()), None);
    assert_eq!(names(&scene.sent()), ["getMore"]);
    assert!(cursor.is_alive());
    assert_eq!(id(cursor.next_if_any().await.transpose()), Some(2));
    assert_eq!(id(cursor.next().await), Some(3));
    assert_eq!(names(&scene.sent()), ["getMore"; 3]);
    assert_eq!(id(cursor.next().await), None);
    assert_eq!((cursor.id(), cursor.is_alive()), (0, false));
    assert_eq!(id(cursor.next().await), None);
    assert_eq!(id(cursor.next_if_any().await.transpose()), None);
    cursor.close().await;
    assert_eq!(names(&scene.sent()), ["getMore"], "the server has closed it");
}

/// A cursor that its server has closed has documents until the last batch is read.
#[tokio::test]
async fn a_cursor_of_which_a_document_is_left_has_not_ended() {
    let (_scene, mut cursor) = tailing(vec![vec![1, 2, -1]]).await;
    assert_eq!(cursor.id(), 0);
    for _ in 0..2 {
        assert!(cursor.is_alive());
        cursor.next().await.unwrap().unwrap();
    }
    assert!(!cursor.is_alive() && cursor.next().await.is_none());
}

/// Tailable cursors of a server that has nothing ask again after 1, 2, 4, ... ms: seven times in
/// 100 ms, and never as fast as it answers.
#[tokio::test]
async fn a_server_that_has_nothing_is_asked_at_a_pace() {
    let (mut scene, mut cursor) = tailing(vec![vec![1], vec![2]]).await;
    for _ in 0..2 {
        cursor.next().await.unwrap().unwrap();
    }
    let begun = tokio::time::Instant::now();
    let late = tokio::time::timeout(std::time::Duration::from_millis(100), cursor.next()).await;
    assert!(late.is_err(), "there is nothing");
    let most = 8 + begun.elapsed().as_millis() / 100;
    let asked = scene.sent().iter().filter(|command| name(command) == "getMore").count();
    assert!(asked <= usize::try_from(most).unwrap(), "{asked} times");
    // The call that was given up has lost nothing.
    assert!(cursor.is_alive());
    assert!(cursor.next_if_any().await.unwrap().is_none() && cursor.is_alive());
}

/// A call that is given up leaves the getMore to a task: the only connection comes back, and the
/// next call has the document.
#[tokio::test]
async fn a_call_that_is_given_up_does_not_keep_the_connection() {
    let fixture = Fixture::new().await;
    fixture.fill(5).await;
    let uri = format!("{}&maxPoolSize=1&serverSelectionTimeoutMS=9000", fixture.uri());
    let client = Client::from(sdam_tokio::Topology::new(Options::parse(&uri).unwrap()).unwrap());
    let things = client.database("app").collection::<Document>("things");
    let mut cursor = things.find(doc! {}).batch_size(2).await.unwrap();
    for _ in 0..2 {
        cursor.next().await.unwrap().unwrap();
    }
    {
        let mut next = std::pin::pin!(cursor.next());
        let polled = poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx).is_pending()));
        assert!(polled.await, "it is asked for");
    }
    let insert = things.insert_one(doc! { "_id": 7 });
    let inserted = tokio::time::timeout(std::time::Duration::from_secs(30), insert).await;
    inserted.expect("there is a connection").unwrap();
    assert_eq!(cursor.next().await.unwrap().unwrap().get_i32("_id").ok(), Some(2));
    assert_eq!(cursor.try_collect::<Vec<_>>().await.unwrap().len(), 2);
}

/// Load Balancers, "Behaviour With Cursors": a cursor is closed after an error of its server's, and
/// not after one of its connection.
#[tokio::test]
async fn behind_a_load_balancer_a_cursor_is_closed_while_it_has_its_connection() {
    let mut fixture = Fixture::load_balanced().await;
    fixture.fill(5).await;
    let refused = doc! { "failCommands": ["getMore"], "errorCode": 2 };
    let lost = doc! { "failCommands": ["getMore"], "closeConnection": true };
    let closed: &[&str] = &["find", "getMore", "killCursors"];
    for (failure, expected) in [(refused, closed), (lost, &closed[..2])] {
        fixture.fail(1, failure).await;
        let mut cursor = fixture.things().find(doc! {}).batch_size(2).await.unwrap();
        for _ in 0..2 {
            cursor.next().await.unwrap().unwrap();
        }
        cursor.next().await.unwrap().unwrap_err();
        assert!(!cursor.is_alive());
        cursor.close().await;
        assert_eq!(names(&fixture.sent()), expected);
    }
}

/// CSOT, "Cursors": closing has the time that it is given, and none limits it if that is zero.
#[tokio::test]
async fn closing_has_the_time_that_it_is_given() {
    let mut fixture = Fixture::new().await;
    fixture.fill(5).await;
    for (seconds, has_limit) in [(60, true), (0, false)] {
        let cursor = fixture.things().find(doc! {}).batch_size(2).await.unwrap();
        cursor.close_within(std::time::Duration::from_secs(seconds)).await;
        let sent = fixture.sent();
        assert_eq!(names(&sent), ["find", "killCursors"]);
        assert_eq!(sent[1].contains_key("maxTimeMS"), has_limit, "{seconds} s");
    }
}
