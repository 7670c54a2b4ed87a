//! Client Side Operations Timeout, the prose and unit tests that are about neither encryption,
//! GridFS, transactions nor change streams. Their times are a hundred times as long, so that the
//! ways through the simulated network do not count.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use bson::{Bson, Document, doc};
use futures_core::Stream;
use sdam::error::Error;
use sdam::generic::Client;
use sdam::operation::{
    BulkWrite, ClientBulkWrite, CreateCollection, DeleteModel, Find, InsertModel, WriteModel,
};
use sdam::options::{CursorType, TimeoutMode};
use sdam_cluster::{ClusterOptions, User};
use sdam_core::command::CommandEvent;
use sdam_core::config::Options;
use sdam_core::pool::PoolEvent;
use sdam_core::topology::{EventKind, Topics};
use sdam_host::driver::DriverTopology;
use sdam_host::{ErrorKind, Recording};

use super::cursors::within;
use super::{Fixture, address};

const SECOND: Duration = Duration::from_secs(1);

/// The ways through the network that come on top of a time.
const WAYS: Duration = Duration::from_millis(400);

/// The commands of a handshake that test 4 holds up.
const HANDSHAKE: &[&str] = &["hello", "isMaster", "saslContinue"];

fn blocks(command: &str, time: Duration) -> Document {
    let millis = i64::try_from(time.as_millis()).unwrap();
    doc! { "failCommands": [command], "blockConnection": true, "blockTimeMS": millis }
}

fn insert(id: i32) -> InsertModel {
    InsertModel::new(doc! { "_id": id })
}

fn is_timeout<T: std::fmt::Debug>(result: &Result<T, Error>) -> bool {
    let error = result.as_ref().unwrap_err();
    error.is_timeout() && error.root_cause().kind() == ErrorKind::Timeout
}

/// 1: the batches of an insertion have one limit, here of a bulk whose kinds make them.
#[test]
fn batches_have_one_limit() {
    let mut fixture = Fixture::new("timeoutMS=20000");
    fixture.fail(fixture.primary(), doc! { "times": 2 }, blocks("insert", 10 * SECOND + WAYS));
    let delete = WriteModel::DeleteOne(DeleteModel::new(doc! { "_id": 0 }));
    let [first, last] = [1, 2].map(|id| WriteModel::InsertOne(insert(id)));
    let things = fixture.things();
    let bulk = BulkWrite::new([first, delete, last]);
    let (done, took) = fixture.run(async move { things.bulk_write(bulk).await });
    assert!(is_timeout(&done), "{done:?}");
    assert!(took <= 20 * SECOND, "{took:?}");
    assert_eq!(fixture.started("insert").len(), 2);
    let limited = |name: &str| fixture.limits(name).iter().all(Option::is_some);
    assert!(limited("insert") && limited("delete"));
}

/// "the `find` and all `getMore`'s on the cursor must finish by time `T + timeoutMS`" ("Cursors"),
/// and the first command alone carries it.
#[test]
fn a_cursor_has_one_limit_for_its_life() {
    let mut fixture = Fixture::new("");
    let things = fixture.things();
    let documents: Vec<Document> = (0..3).map(|id| doc! { "_id": id }).collect();
    let filled = async move { things.insert_many(&documents).await };
    fixture.run(filled).0.unwrap();
    let mut data = blocks("find", 6 * SECOND);
    data.insert("failCommands", ["find", "getMore"].to_vec());
    fixture.fail(fixture.primary(), doc! { "times": 2 }, data);
    let things = fixture.things().with_timeout(10 * SECOND);
    let (found, took) = fixture.run(async move {
        things.find(doc! {}).batch_size(2).await.unwrap().try_collect::<Vec<_>>().await
    });
    assert!(is_timeout(&found), "{found:?}");
    assert_eq!(took, 10 * SECOND);
    let [Some(_)] = fixture.limits("find")[..] else { panic!("find is limited") };
    assert_eq!(fixture.limits("getMore"), [None]);
}

/// "drivers MUST ignore any deprecated timeout options if timeoutMS is set on the operation or is
/// inherited" ("Validation and Overrides"): zero is set, too, and lifts the limit.
#[test]
fn an_operation_without_limit_has_not_that_of_sockets() {
    for (timeout, expected) in [(None, Err(ErrorKind::Timeout)), (Some(Duration::ZERO), Ok(()))] {
        let mut fixture = Fixture::new("socketTimeoutMS=1000&retryReads=false");
        fixture.fail(fixture.primary(), doc! { "times": 1 }, blocks("find", 3 * SECOND));
        let things = match timeout {
            Some(timeout) => fixture.things().with_timeout(timeout),
            None => fixture.things(),
        };
        let (found, took) = fixture.run(async move { things.find_one(doc! {}).await });
        assert_eq!(found.map(|_| ()).map_err(|error| error.kind()), expected, "{took:?}");
        assert_eq!(fixture.started("find").len(), 1);
    }
}

/// 11: so have those of a bulk of the client's.
#[test]
fn batches_of_a_bulk_of_the_client_have_one_limit() {
    let mut fixture = Fixture::new("timeoutMS=20000");
    fixture.fail(fixture.primary(), doc! { "times": 2 }, blocks("bulkWrite", 10 * SECOND + WAYS));
    let text = "b".repeat(900_000);
    let insert = InsertModel::new(doc! { "a": text });
    let writes = (0..54).map(|_| ("app.things", WriteModel::InsertOne(insert.clone())));
    let (client, bulk) = (fixture.client.clone(), ClientBulkWrite::new(writes));
    let (done, took) = fixture.run(async move { client.bulk_write(bulk).await });
    assert!(is_timeout(&done), "{done:?}");
    assert!(took <= 20 * SECOND, "{took:?}");
    assert_eq!(fixture.started("bulkWrite").len(), 2);
}

/// A set whose clients log in, and a client with these options that has begun.
fn with_users(options: &str, fail: &[&str], time: Duration, times: Option<i32>) -> Fixture {
    let cluster = ClusterOptions::new("rs", (0..1).map(address));
    let users = vec![User::new("me", "pass")];
    let mut fixture = Fixture::of(cluster.with_users(users), "", 7);
    let mut data = blocks("", time);
    data.insert("failCommands", fail.iter().copied().map(Bson::from).collect::<Vec<_>>());
    data.insert("appName", "test");
    match times {
        Some(times) => fixture.fail(fixture.primary(), doc! { "times": times }, data),
        None => fixture.fail(fixture.primary(), "alwaysOn", data),
    }
    let at = fixture.simulation.uri().replace("mongodb://", "mongodb://me:pass@");
    let options = Options::parse(&format!("{at}&appName=test&{options}")).unwrap();
    let client = fixture.simulation.topology(options).unwrap();
    fixture.events = client.subscribe_to(Topics::COMMANDS.with(Topics::POOLS));
    fixture.client = Client::from(client);
    fixture.heard.clear();
    fixture
}

/// The names of the events of connections, in their order.
fn connections(fixture: &mut Fixture) -> Vec<&'static str> {
    let mut told = Vec::new();
    while let Some(event) = fixture.events.try_next() {
        if let EventKind::Pool {
            event:
                event @ (PoolEvent::ConnectionCreated { .. }
                | PoolEvent::ConnectionReady { .. }
                | PoolEvent::ConnectionClosed { .. }),
            ..
        } = event.kind
        {
            told.push(event.name());
        }
    }
    told
}

/// 4, its first part: timeoutMS limits the commands of a handshake in the background.
#[test]
fn the_time_of_an_operation_limits_each_command_of_a_handshake_in_the_background() {
    let options = "minPoolSize=1&timeoutMS=1000";
    let mut fixture = with_users(options, &["saslContinue"], 3 * SECOND / 2, Some(1));
    // connectTimeoutMS has not passed by then.
    fixture.simulation.run_for(9 * SECOND);
    let told = connections(&mut fixture);
    assert_eq!(told, ["connectionCreated", "connectionClosed"]);
    fixture.simulation.run_for(20 * SECOND);
    let told = connections(&mut fixture);
    assert_eq!(told, ["connectionCreated", "connectionReady"], "it is tried again");
}

/// 4, its second part: "timeoutMS is refreshed for each handshake command".
#[test]
fn each_command_of_a_handshake_in_the_background_has_a_time_of_its_own() {
    let options = "minPoolSize=1&timeoutMS=2000";
    let mut fixture = with_users(options, HANDSHAKE, 3 * SECOND / 2, None);
    fixture.simulation.run_for(20 * SECOND);
    let told = connections(&mut fixture);
    assert_eq!(told, ["connectionCreated", "connectionReady"]);
}

/// connectTimeoutMS counts for all of a handshake where the time of operations is not limited.
#[test]
fn the_time_for_a_connection_limits_a_handshake_in_the_background_where_nothing_else_does() {
    for (options, expected) in [
        ("timeoutMS=0&connectTimeoutMS=1000", "connectionClosed"),
        ("timeoutMS=0", "connectionReady"),
        ("connectTimeoutMS=1000", "connectionClosed"),
        ("timeoutMS=2000&connectTimeoutMS=1000", "connectionReady"),
    ] {
        let options = format!("minPoolSize=1&{options}");
        let mut fixture = with_users(&options, &["saslContinue"], 3 * SECOND / 2, Some(1));
        fixture.simulation.run_for(2 * SECOND);
        let told = connections(&mut fixture);
        assert_eq!(told[..2], ["connectionCreated", expected], "{options}");
    }
}

/// 5: a call for the next document has one limit for all of its getMores.
#[test]
fn a_tailable_cursor_has_one_limit_for_each_call() {
    let mut fixture = Fixture::new("");
    let app = fixture.client.database("app");
    let create = CreateCollection::new("things").capped(true).size(100_000);
    let things = fixture.things();
    fixture.run(async move {
        app.create_collection(create).await.unwrap();
        things.insert_one(&doc! { "x": 1 }).await.unwrap();
    });
    fixture.fail(fixture.primary(), "alwaysOn", blocks("getMore", 3 * SECOND / 2));
    let things = fixture.things().with_timeout(2 * SECOND);
    let (result, took) = fixture.run(async move {
        let find = Find::new(doc! {}).cursor_type(CursorType::Tailable);
        let mut cursor = things.find(find).await.unwrap();
        assert_ne!(cursor.id(), 0);
        assert_eq!(cursor.next().await.unwrap().unwrap().get_i32("x").unwrap(), 1);
        cursor.next().await.unwrap()
    });
    assert!(is_timeout(&result), "{result:?}");
    assert!(took <= 2 * SECOND + WAYS, "{took:?}");
    assert_eq!((fixture.started("find").len(), fixture.started("getMore").len()), (1, 2));
}

/// 8: the lesser of serverSelectionTimeoutMS and timeoutMS is the limit of a selection. "Expect
/// this to fail with a server selection timeout error": where timeoutMS is set, that is within the
/// error of a time-out, which "MUST be distinguished in some way" ("Errors").
#[test]
fn selections_have_the_lesser_of_two_limits() {
    for (options, kind_of) in [
        ("serverSelectionTimeoutMS=1000", ErrorKind::Selection),
        ("timeoutMS=1000&serverSelectionTimeoutMS=2000", ErrorKind::Timeout),
        ("timeoutMS=2000&serverSelectionTimeoutMS=1000", ErrorKind::Timeout),
        ("timeoutMS=0&serverSelectionTimeoutMS=1000", ErrorKind::Timeout),
    ] {
        let mut fixture = Fixture::new("");
        let parsed = Options::parse(&format!("mongodb://invalid/?{options}")).unwrap();
        let client = Client::from(fixture.simulation.topology(parsed).unwrap());
        let admin = client.database("admin");
        let (done, took) = fixture.run(async move { admin.run_command(doc! { "ping": 1 }).await });
        let error = done.unwrap_err();
        assert_eq!(error.kind(), kind_of, "{options}: {error}");
        let of_selection = error.as_selection().unwrap();
        assert_eq!(of_selection.waited, SECOND, "{options}");
        assert!(error.to_string().contains(&of_selection.to_string()), "{error}");
        assert!(error.to_string().contains("invalid"), "{error}");
        assert_eq!(took, SECOND);
    }
}

/// 8: and of the commands of a new connection's login.
#[test]
fn logins_have_the_lesser_of_two_limits() {
    for options in [
        "timeoutMS=1000&serverSelectionTimeoutMS=2000",
        "timeoutMS=2000&serverSelectionTimeoutMS=1000",
    ] {
        let mut fixture = with_users(options, &["saslContinue"], 3 * SECOND / 2, Some(1));
        fixture.simulation.run_for(SECOND);
        let things = fixture.things();
        let (done, took) = fixture.run(async move { things.insert_one(&doc! { "x": 1 }).await });
        assert!(is_timeout(&done), "{done:?}");
        assert!(took <= SECOND, "{options}: {took:?}");
    }
}

/// "Operations should ignore waitQueueTimeoutMS if timeoutMS is also set"; without it,
/// "waitQueueTimeoutMS should apply to connection checkout".
#[test]
fn check_outs_have_the_time_that_is_left_or_that_of_the_queue() {
    for (options, expected) in
        [("timeoutMS=3000", 3 * SECOND), ("timeoutMS=0&serverSelectionTimeoutMS=5000", 5 * SECOND)]
    {
        let took = waits(&format!("maxPoolSize=1&waitQueueTimeoutMS=1000&{options}"));
        assert_eq!(took, expected, "{options}");
    }
    assert_eq!(waits("maxPoolSize=1&waitQueueTimeoutMS=1000"), SECOND);
}

/// Returns how long an operation waits for a connection that another one has for an hour.
fn waits(options: &str) -> Duration {
    let mut fixture = Fixture::new(options);
    fixture.fail(fixture.primary(), doc! { "times": 1 }, blocks("find", 3600 * SECOND));
    let first = fixture.things().with_timeout(3600 * SECOND);
    let first = fixture.begin(async move { first.find_one(doc! {}).await.map(drop) });
    fixture.simulation.run_for(SECOND);
    let things = fixture.things();
    let second = fixture.begin_timed(async move { things.find_one(doc! {}).await });
    fixture.simulation.run_for(10 * SECOND);
    assert!(first.lock().unwrap().is_none());
    let (done, took) = second.lock().unwrap().take().expect("it has ended");
    assert_eq!(done.unwrap_err().kind(), ErrorKind::Timeout, "{options}");
    took
}

/// "Command Execution": what is sent says what is left, less the least round trip time.
#[test]
fn a_command_says_how_long_the_server_may_take() {
    let mut fixture = Fixture::new("timeoutMS=5000");
    let things = fixture.things();
    fixture.run(async move { things.find_one(doc! {}).await }).0.unwrap();
    let started = fixture.heard.iter().find_map(|(_, kind)| match kind {
        EventKind::Command { event: CommandEvent::CommandStarted { command }, .. } => {
            Some(command.get_i64("maxTimeMS").unwrap())
        }
        _ => None,
    });
    let view = fixture.client.topology().view();
    let round_trip = view.servers().iter().map(|it| it.min_round_trip_time).max().unwrap();
    let least = i64::try_from((5 * SECOND - round_trip).as_millis()).unwrap();
    let said = started.unwrap();
    assert!(said <= 5000 && said >= least - 400, "{said}");
}

/// Traces contain attempts that have failed, and nothing that was said.
#[test]
fn a_recording_tells_of_attempts_that_have_failed() {
    let mut fixture = Fixture::new("");
    let mut recording = Recording::everything();
    fixture.client.topology().host().record(&recording);
    let data = doc! { "failCommands": ["find"], "errorCode": 91 };
    fixture.fail(fixture.primary(), doc! { "times": 1 }, data);
    let things = fixture.things();
    fixture.run(async move { things.find_one(doc! { "a": "secret" }).await }).0.unwrap();
    let mut trace = String::new();
    while let Some(lines) = recording.try_next() {
        trace.push_str(&lines);
    }
    let comments = trace.lines().filter(|line| line.contains("has failed: "));
    let [comment] = comments.collect::<Vec<_>>()[..] else { panic!("{trace}") };
    assert!(comment.contains("find at m"), "{comment}");
    assert!(comment.contains("operate, code 91; it is tried again"), "{comment}");
    assert!(!trace.contains("secret"));
}

/// "Cursors": "the timeoutMS value MUST be refreshed" for each document that is asked for, also of
/// a cursor that is read as a stream: pauses between them are the application's own.
#[test]
fn each_document_of_a_stream_has_its_own_time() {
    let mut fixture = Fixture::new("timeoutMS=1000");
    let things = fixture.things();
    let documents: Vec<Document> = (0..6).map(|id| doc! { "_id": id }).collect();
    fixture.run(async move { things.insert_many(&documents).await }).0.unwrap();
    let (things, time) = (fixture.things(), fixture.simulation.time());
    let find = Find::new(doc! {}).batch_size(2).timeout_mode(TimeoutMode::Iteration);
    let (count, took) = fixture.run(async move {
        let (mut cursor, mut count) = (things.find(find).await.unwrap(), 0);
        while let Some(next) = poll_fn(|cx| Pin::new(&mut cursor).poll_next(cx)).await {
            next.unwrap();
            count += 1;
            time.sleep(SECOND * 2).await;
        }
        count
    });
    assert_eq!(count, 6);
    assert!(took >= 12 * SECOND, "{took:?}");
}

/// The same of a call that comes after one that was given up: it waits for the batch which that one
/// has asked for, and has all of its own time for that, not what is left of the other's.
#[test]
fn a_call_after_one_that_was_given_up_has_its_own_time() {
    // The batch comes in the time of the third call, of the last one, or of none.
    for (late, comes) in [(13, true), (20, true), (30, false)] {
        for cursor_type in [CursorType::NonTailable, CursorType::TailableAwait] {
            let mut fixture = Fixture::new("timeoutMS=1000");
            let client = fixture.client.clone();
            let documents: Vec<Document> = (0..4).map(|id| doc! { "_id": id }).collect();
            fixture.run(async move {
                let database = client.database("app");
                let create = CreateCollection::new("things").capped(true).size(100_000);
                database.create_collection(create).await.unwrap();
                database.collection::<Document>("things").insert_many(&documents).await.unwrap();
            });
            let block = blocks("getMore", SECOND * late / 10);
            fixture.fail(fixture.primary(), doc! { "times": 1 }, block);
            let (things, time) = (fixture.things(), fixture.simulation.time());
            let find = Find::new(doc! {}).cursor_type(cursor_type).batch_size(2);
            let find = find.timeout_mode(TimeoutMode::Iteration);
            let ((next, after), _) = fixture.run(async move {
                let mut cursor = things.find(find).await.unwrap();
                for _ in 0..2 {
                    cursor.next().await.unwrap().unwrap();
                }
                let begun = time.elapsed();
                assert!(within(&time, SECOND / 2, cursor.next()).await.is_none());
                for _ in 0..2 {
                    // Each call has its own time, also where many are given up.
                    time.sleep(SECOND / 20).await;
                    assert!(within(&time, SECOND / 4, cursor.next()).await.is_none());
                }
                time.sleep(SECOND / 10).await;
                (cursor.next().await.unwrap(), time.elapsed() - begun)
            });
            match next {
                Ok(document) => {
                    assert!(comes, "{late}");
                    assert_eq!(document.get_i32("_id").ok(), Some(2));
                }
                Err(error) => {
                    assert!(!comes, "{late}: {error}");
                    assert_eq!(error.kind(), ErrorKind::Timeout);
                    assert!((SECOND * 22 / 10..SECOND * 22 / 10 + WAYS).contains(&after));
                }
            }
            assert_eq!(fixture.started("getMore").len(), 1);
        }
    }
}
