//! Clients: how they are made, and how they end, with futures and with threads.

use std::thread;
use std::time::Duration;

use bson::{Document, doc};
use sdam::options::ClientOptions;
use sdam::results::CommitOutcome;
use sdam::{Client, ErrorKind, Result, blocking};
use sdam_core::topology::{Event, EventKind, Topics};
use sdam_host::Events;

use super::{Fixture, LIMIT, name, names, started};

/// The way in which a client is closed.
#[derive(Clone, Copy, Debug)]
enum Way {
    Close,
    Shutdown,
    Immediately,
}

const WAYS: [Way; 3] = [Way::Close, Way::Shutdown, Way::Immediately];

/// Has a thread do something that waits; fails after [`LIMIT`].
async fn on_a_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, outcome) = tokio::sync::oneshot::channel();
    thread::spawn(move || done.send(work()).is_ok());
    let outcome = tokio::time::timeout(LIMIT, outcome).await;
    outcome.expect("the thread still waits").expect("the thread has panicked")
}

/// Asserts that servers have heard of the end of a client which had a cursor, unless that was not
/// waited for.
fn assert_heard(way: Way, sent: &[Document]) {
    let sent = names(sent);
    match way {
        Way::Close | Way::Shutdown => assert_eq!(sent, ["find", "killCursors", "endSessions"]),
        // The cursor may be closed in the background, as ever.
        Way::Immediately => assert!(!sent.contains(&"endSessions"), "{sent:?}"),
    }
}

/// Driver Sessions, "endSessions", and killCursors: they precede the end of a client.
#[tokio::test]
async fn servers_hear_of_the_end_of_a_client_unless_it_is_immediate() {
    let fixture = Fixture::new().await;
    fixture.fill(3).await;
    for way in WAYS {
        let client = Client::with_uri_str(fixture.uri()).await.unwrap();
        let mut events: Events = client.topology().subscribe_to(Topics::COMMANDS);
        let things = client.database("app").collection::<Document>("things");
        drop(things.find(doc! {}).batch_size(2).await.unwrap());
        match way {
            Way::Close => client.close().await,
            Way::Shutdown => client.clone().shutdown().await,
            Way::Immediately => client.clone().shutdown().immediate(true).await,
        }
        let error = things.find_one(doc! {}).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
        let mut sent = Vec::new();
        while let Some(event) = events.next().await {
            sent.extend(started(event).map(|(command, _)| command));
        }
        assert_heard(way, &sent);
    }
}

/// The same for threads.
#[tokio::test]
async fn servers_hear_of_the_end_of_a_client_for_threads() {
    let fixture = Fixture::new().await;
    fixture.fill(3).await;
    for way in WAYS {
        let uri = fixture.uri();
        let sent = on_a_thread(move || {
            let client = blocking::Client::with_uri_str(uri).unwrap();
            let events = client.topology().subscribe_to(Topics::COMMANDS);
            let things = client.database("app").collection::<Document>("things");
            drop(things.find(doc! {}).batch_size(2).run().unwrap());
            match way {
                Way::Close => client.close(),
                Way::Shutdown => client.clone().shutdown().run(),
                Way::Immediately => client.clone().shutdown().immediate(true).run(),
            }
            let error = things.find_one(doc! {}).run().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
            events.filter_map(started).map(|(command, _)| command).collect::<Vec<_>>()
        });
        assert_heard(way, &sent.await);
    }
}

/// A server that does not answer delays the end of a client for a second each, for its cursors and
/// for its sessions, whether or not the client has a thread of its own.
#[tokio::test]
async fn a_client_for_threads_is_closed_although_its_server_does_not_answer() {
    let fixture = Fixture::new().await;
    fixture.fill(3).await;
    for single_threaded in [false, true] {
        let commands = ["killCursors", "endSessions"];
        let block = doc! {
            "failCommands": commands, "blockConnection": true, "blockTimeMS": 3_600_000_i64,
        };
        fixture.fail(2, block).await;
        let options = ClientOptions::builder().uri(&fixture.uri()).unwrap();
        let options = options.single_threaded(single_threaded).build().unwrap();
        on_a_thread(move || {
            let client = blocking::Client::with_options(options).unwrap();
            let things = client.database("app").collection::<Document>("things");
            drop(things.find(doc! {}).batch_size(2).run().unwrap());
            client.close();
        })
        .await;
    }
}

/// docs/change-streams.md: "A call that waits fails with the kind `Closed` when the client is
/// closed", also over the connection that its cursor has for itself behind a load balancer.
#[tokio::test]
async fn calls_that_wait_behind_a_load_balancer_end_with_their_client() {
    const HOUR: Duration = Duration::from_secs(3600);
    let mut fixture = Fixture::load_balanced().await;
    let (client, things) = (fixture.client.clone(), fixture.things());
    let waiting = tokio::spawn(async move {
        let mut stream = things.watch().max_await_time(HOUR).await.unwrap();
        stream.next().await.unwrap().unwrap_err()
    });
    fixture.sent_until("getMore").await;
    client.close().await;
    let of_task = tokio::time::timeout(LIMIT, waiting).await.expect("it still waits").unwrap();
    let uri = format!("mongodb://{}/?loadBalanced=true", fixture.cluster.addresses()[0]);
    let of_thread = on_a_thread(move || {
        let client = blocking::Client::with_uri_str(uri).unwrap();
        let mut commands = client.topology().subscribe_to(Topics::COMMANDS).filter_map(started);
        let closing = client.clone();
        let closes = thread::spawn(move || {
            commands.find(|(command, _)| name(command) == "getMore");
            closing.close();
        });
        let things = client.database("app").collection::<Document>("things");
        let mut stream = things.watch().max_await_time(HOUR).run().unwrap();
        let error = stream.next().unwrap().unwrap_err();
        closes.join().unwrap();
        error
    });
    for error in [of_task, of_thread.await] {
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    }
}

/// Each constructor makes a client that finds its servers by itself.
#[tokio::test]
async fn a_client_for_threads_is_made_of_a_string_or_of_options() {
    let fixture = Fixture::new().await;
    let uri = fixture.uri();
    on_a_thread(move || -> Result<()> {
        let options = ClientOptions::parse(&uri)?;
        let builder = blocking::Client::builder(options.clone());
        let (heard, mut events) = builder.build_with_events()?;
        let clients = [
            blocking::Client::connect(uri.as_str())?,
            blocking::Client::connect(options.clone())?,
            blocking::Client::with_uri_str(&uri)?,
            blocking::Client::with_options(options.clone())?,
            blocking::Client::builder(options.clone()).build()?,
            blocking::Client::builder(options).connect()?,
            heard,
        ];
        for (number, client) in (1..).zip(&clients) {
            let things = client.database("app").collection::<Document>("things");
            things.insert_one(doc! {}).run()?;
            assert_eq!(things.count_documents(doc! {}).run()?, number);
        }
        let is_first = |event: Event| matches!(event.kind, EventKind::TopologyOpening);
        assert!(events.next().is_some_and(is_first), "it misses no event");
        clients.iter().for_each(blocking::Client::close);
        for error in [
            blocking::Client::connect("mongodb://").unwrap_err(),
            blocking::Client::with_uri_str("http://localhost").unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Configuration, "{error}");
        }
        Ok(())
    })
    .await
    .unwrap();
}

/// A commit whose outcome is not known, and asking again, as threads do.
#[tokio::test]
async fn a_thread_asks_what_became_of_a_commit() {
    let fixture = Fixture::new().await;
    let uri = fixture.uri();
    fixture.fail(1, doc! { "failCommands": ["commitTransaction"], "errorCode": 50 }).await;
    on_a_thread(move || -> Result<()> {
        let client = blocking::Client::with_uri_str(&uri)?;
        let things = client.database("app").collection::<Document>("things");
        let session = client.start_session().run()?;
        session.start_transaction().run()?;
        things.insert_one(doc! {}).session(&session).run()?;
        let outcome = session.commit_transaction().outcome()?;
        let CommitOutcome::Unknown(token) = outcome else { panic!("{outcome:?}") };
        let asked = client.recover_commit(token).timeout(LIMIT).run()?;
        assert_eq!(asked, CommitOutcome::Committed);
        assert_eq!(things.count_documents(doc! {}).run()?, 1);
        session.start_transaction().run()?;
        things.insert_one(doc! {}).session(&session).run()?;
        assert_eq!(session.abort_transaction().outcome()?, CommitOutcome::Aborted);
        Ok(())
    })
    .await
    .unwrap();
}
