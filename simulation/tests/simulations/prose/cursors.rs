//! Find, getMore and killCursors, as far as it is about cursors whose server is not to be reached
//! at the time, or that are closed by the hundred.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bson::{Document, RawDocumentBuf, doc};
use sdam::error::{ClientBulkWriteError, Error};
use sdam::generic::{Client, Cursor};
use sdam::operation::{ClientBulkWrite, CreateCollection, Find, UpdateModel, WriteModel};
use sdam::options::{CursorType, TimeoutMode};
use sdam_cluster::{ClusterOptions, Deployment, Input};
use sdam_core::command::CommandEvent;
use sdam_core::pool::PoolEvent;
use sdam_core::topology::EventKind;
use sdam_host::ErrorKind;
use sdam_simulation::virtual_time::{Runtime, VirtualTime};

use super::{Fixture, address, has_failed};

/// A set whose collection has documents, and nothing heard yet.
fn filled(options: &str) -> Fixture {
    let mut fixture = Fixture::new(options);
    let things = fixture.things();
    let documents: Vec<Document> = (0..10).map(|id| doc! { "_id": id }).collect();
    fixture.run(async move { things.insert_many(&documents).await }).0.unwrap();
    fixture.heard.clear();
    fixture
}

/// Opens so many cursors that have more than one batch.
fn open(fixture: &mut Fixture, count: usize) -> Vec<Cursor<Runtime, Document>> {
    let things = fixture.things();
    let opening = async move {
        let mut cursors = Vec::new();
        for _ in 0..count {
            cursors.push(things.find(doc! {}).batch_size(2).await.unwrap());
        }
        cursors
    };
    fixture.run(opening).0
}

/// The numbers of cursors that each killCursors has named which a server has answered.
fn closed(fixture: &Fixture) -> Vec<Vec<i64>> {
    let ids = |reply: &bson::RawDocument| {
        let killed = reply.get_array("cursorsKilled").unwrap().into_iter();
        killed.map(|id| id.unwrap().as_i64().unwrap()).collect()
    };
    let replies = fixture.heard.iter().filter_map(|(_, kind)| match kind {
        EventKind::Command {
            command, event: CommandEvent::CommandSucceeded { reply, .. }, ..
        } if command.command_name == "killCursors" => Some(ids(reply)),
        _ => None,
    });
    replies.collect()
}

/// Returns a failure of getMore, of this kind.
fn failing(how: Document) -> Document {
    let mut failure = doc! { "failCommands": ["getMore"] };
    failure.extend(how);
    failure
}

/// The ways in which a getMore fails, and their kinds of error: it is refused, its server says that
/// it is no primary, its connection is lost, or its reply comes too late for a `timeoutMS` of a
/// second.
fn failures() -> [(Document, ErrorKind); 4] {
    let of = failing;
    [
        (of(doc! { "errorCode": 96 }), ErrorKind::Command),
        (of(doc! { "errorCode": 10107 }), ErrorKind::Command),
        (of(doc! { "closeConnection": true }), ErrorKind::Network),
        (of(doc! { "blockConnection": true, "blockTimeMS": 1500 }), ErrorKind::Timeout),
    ]
}

/// "if the cursor id is nonzero a KillCursors operation MUST be attempted" (Run Command, "Resource
/// Cleanup"): the pool is cleared by the very error, and an attempt that comes before the server
/// was checked again would be none.
#[test]
fn a_cursor_whose_connection_is_lost_is_closed_when_its_server_is_known_again() {
    for asks in [false, true] {
        let mut fixture = filled("");
        let lost = doc! { "failCommands": ["getMore"], "closeConnection": true };
        fixture.fail(fixture.primary(), doc! { "times": 1 }, lost);
        let mut cursor = open(&mut fixture, 1).remove(0);
        let id = cursor.id();
        fixture.run(async move {
            cursor.next().await.unwrap().unwrap();
            cursor.next().await.unwrap().unwrap();
            cursor.next().await.unwrap().unwrap_err();
            match asks {
                true => cursor.close().await,
                false => drop(cursor),
            }
        });
        fixture.simulation.run_for(Duration::from_secs(5));
        fixture.run(async {});
        assert_eq!(closed(&fixture), [[id]], "{asks}");
    }
}

/// The same of a cursor that only a list of names is read from, whatever its batch fails with: no
/// caller waits for a server that does not answer.
#[test]
fn a_listing_that_fails_closes_its_cursor() {
    for (failure, kind) in failures() {
        let mut fixture = filled("timeoutMS=1000");
        let things = fixture.things();
        fixture.run(async move { things.create_index(doc! { "a": 1 }).await }).0.unwrap();
        fixture.heard.clear();
        fixture.fail(fixture.primary(), doc! { "times": 1 }, failure.clone());
        let things = fixture.things();
        let (names, took) =
            fixture.run(async move { things.list_index_names().batch_size(1).await });
        let error = names.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        let is_late = kind == ErrorKind::Timeout;
        let most = Duration::from_millis(if is_late { 1000 } else { 200 });
        assert!(took <= most, "{failure}, {kind:?}: {took:?}");
        fixture.simulation.run_for(Duration::from_secs(5));
        fixture.run(async {});
        assert_eq!((closed(&fixture).len(), closed(&fixture).concat().len()), (1, 1), "{kind:?}");
    }
}

/// A write whose result fills half a batch.
fn upsert(letter: &str) -> (&'static str, WriteModel) {
    let id = letter.repeat(8 << 20);
    let update = UpdateModel::new(doc! { "_id": id }, doc! { "$set": { "x": 1 } });
    ("app.things", WriteModel::UpdateOne(update.upsert(true)))
}

/// The same of `try_collect`: the server says that it shuts down, and does. A caller that closed
/// the cursor first would wait for it as long as closing may take.
#[test]
fn a_server_that_has_changed_its_state_is_not_waited_for() {
    let mut fixture = filled("");
    let primary = fixture.primary();
    fixture.fail(primary, doc! { "times": 1 }, failing(doc! { "errorCode": 91 }));
    let cursor = open(&mut fixture, 1).remove(0);
    let (outcome, took) = fixture.run_with(cursor.try_collect::<Vec<_>>(), |fixture, kind| {
        if has_failed(kind, "getMore") {
            fixture.simulation.inject(Input::Kill { member: primary });
        }
    });
    assert_eq!(outcome.unwrap_err().code(), Some(91));
    assert!(took < Duration::from_millis(200), "{took:?}");
}

/// Writes whose results are in two batches, while commands fail in this way; returns the error, and
/// how long the operation took.
fn fail_bulk(fixture: &mut Fixture, failure: Document) -> (ClientBulkWriteError, Duration) {
    fixture.fail(fixture.primary(), doc! { "times": 1 }, failure);
    let bulk = ClientBulkWrite::new(["a", "b"].map(upsert)).verbose_results(true);
    let client = fixture.client.clone();
    let (done, took) = fixture.run(async move { client.bulk_write(bulk).await });
    let error = done.unwrap_err().as_client_bulk_write().unwrap().clone();
    fixture.simulation.run_for(Duration::from_secs(5));
    fixture.run(async {});
    (error, took)
}

/// "Bulk Write", "Handling the bulkWrite Server Response": its cursor is closed, for which time
/// of its own begins (CSOT, "Cursors").
#[test]
fn a_bulk_whose_results_are_late_closes_its_cursor() {
    let mut fixture = filled("timeoutMS=1000");
    let late = failing(doc! { "blockConnection": true, "blockTimeMS": 1500 });
    let (error, took) = fail_bulk(&mut fixture, late);
    assert!(error.cause.as_ref().is_some_and(Error::is_timeout), "{error}");
    assert!(took <= Duration::from_secs(1), "{took:?}");
    assert_eq!((closed(&fixture).len(), closed(&fixture).concat().len()), (1, 1));
}

/// The same of one whose server does not know its cursor any more: nothing is left to close.
#[test]
fn a_bulk_whose_cursor_is_not_found_closes_none() {
    for code in [43, 175, 237] {
        let mut fixture = filled("");
        let (error, _) = fail_bulk(&mut fixture, failing(doc! { "errorCode": code }));
        assert_eq!(error.cause.as_ref().and_then(Error::code), Some(code), "{error}");
        assert!(error.partial_result.is_some(), "{error}");
        assert!(fixture.started("killCursors").is_empty(), "{code}");
    }
}

/// "When connected to a load balancer, drivers MUST use the connection used for the bulkWrite
/// command" (Bulk Write), also if the write concern was not met, which ends no bulk.
#[test]
fn behind_a_load_balancer_a_bulk_whose_write_concern_fails_keeps_its_connection() {
    let balanced = ClusterOptions::new("rs", (0..1).map(address));
    let mut fixture = Fixture::of(balanced.with_deployment(Deployment::LoadBalanced), "", 7);
    let late = doc! { "code": 64, "errmsg": "late" };
    let late = doc! { "failCommands": ["bulkWrite"], "writeConcernError": late };
    let (error, _) = fail_bulk(&mut fixture, late);
    assert_eq!(error.write_concern_errors.len(), 1, "{error}");
    let results = error.partial_result.as_ref().and_then(|it| it.verbose.as_ref());
    assert_eq!(results.map(|it| it.update_results.len()), Some(2), "{error}");
    let told = fixture.heard.iter().filter_map(|(_, kind)| match kind {
        EventKind::Command { command, event: CommandEvent::CommandStarted { .. }, .. } => {
            Some(command.command_name.to_string())
        }
        EventKind::Pool { event: PoolEvent::ConnectionCheckedIn { .. }, .. } => {
            Some("connection checked in".to_owned())
        }
        _ => None,
    });
    assert_eq!(told.collect::<Vec<_>>(), ["bulkWrite", "getMore", "connection checked in"]);
}

/// "the value of batchSize MUST be based on the cursor limit calculations" (Find, getMore and
/// killCursors); a cursor of an application's session goes on, and is closed, in that session
/// (Driver Sessions).
#[test]
fn what_goes_on_with_a_cursor_says_how_much_is_left_and_in_which_session() {
    let mut fixture = filled("");
    let own = fixture.client.start_session().run().unwrap();
    let things = fixture.things().with_session(&own);
    let (read, _) = fixture.run(async move {
        drop(things.find(doc! {}).batch_size(2).await.unwrap());
        let limited = Find::new(doc! {}).batch_size(3).limit(4);
        things.find(limited).await.unwrap().try_collect::<Vec<_>>().await.unwrap().len()
    });
    assert_eq!(read, 4);
    fixture.simulation.run_for(Duration::from_secs(5));
    fixture.run(async {});
    let sent = |name: &str| -> Vec<RawDocumentBuf> {
        let commands = fixture.heard.iter().filter_map(|(_, kind)| match kind {
            EventKind::Command {
                event: CommandEvent::CommandStarted { command },
                command: of,
                ..
            } => (of.command_name == name).then(|| command.clone()),
            _ => None,
        });
        commands.collect()
    };
    let sizes: Vec<_> = sent("getMore").iter().map(|it| it.get_i64("batchSize").ok()).collect();
    assert_eq!(sizes, [Some(1)]);
    let kills = sent("killCursors");
    assert!(!kills.is_empty());
    for command in sent("getMore").iter().chain(&kills) {
        assert_eq!(command.get_document("lsid").ok(), own.id(), "{command:?}");
    }
}

/// CSOT, "Cursors": the time of closing begins again, "even if [...] the timeout associated with
/// the cursor has expired"; so it does after a deadline of the application's.
#[test]
fn a_cursor_is_closed_although_the_deadline_of_its_client_has_passed() {
    let mut fixture = filled("");
    let late = failing(doc! { "blockConnection": true, "blockTimeMS": 1500 });
    fixture.fail(fixture.primary(), doc! { "times": 1 }, late);
    let client = Client::from(fixture.client.topology().with_timeout(Duration::from_secs(1)));
    let (id, _) = fixture.run(async move {
        let things = client.database("app").collection::<Document>("things");
        let mut cursor = things.find(doc! {}).batch_size(2).await.unwrap();
        let id = cursor.id();
        cursor.next().await.unwrap().unwrap();
        cursor.next().await.unwrap().unwrap();
        assert!(cursor.next().await.unwrap().unwrap_err().is_timeout());
        cursor.close().await;
        id
    });
    assert_eq!(closed(&fixture), [[id]]);
}

/// The same where the life of the cursor is over: all of `timeoutMS` counts again.
#[test]
fn a_cursor_whose_life_is_over_has_all_of_its_time_to_be_closed() {
    let mut fixture = filled("");
    let things = fixture.things().with_timeout(Duration::from_secs(10));
    let time = fixture.simulation.time();
    let (id, _) = fixture.run(async move {
        let cursor = things.find(doc! {}).batch_size(2).await.unwrap();
        time.sleep(Duration::from_secs(11)).await;
        let id = cursor.id();
        cursor.close().await;
        id
    });
    assert_eq!(closed(&fixture), [[id]]);
    let [Some(limit)] = fixture.limits("killCursors")[..] else { panic!("one, with its limit") };
    assert!((9_000..=10_000).contains(&limit), "{limit}");
}

/// A server that is checked again is waited for, as by an operation that selects one: what goes on
/// with a cursor can go nowhere else.
#[test]
fn a_cursor_goes_on_when_its_server_is_known_again() {
    let mut fixture = filled("retryReads=false");
    let mut cursor = open(&mut fixture, 1).remove(0);
    let lost = doc! { "failCommands": ["find"], "closeConnection": true };
    fixture.fail(fixture.primary(), doc! { "times": 1 }, lost);
    let things = fixture.things();
    let (all, _) = fixture.run(async move {
        things.find_one(doc! {}).await.unwrap_err();
        let mut all = Vec::new();
        while let Some(document) = cursor.next().await {
            all.push(document.unwrap());
        }
        all
    });
    assert_eq!(all.len(), 10);
}

/// "The computed server selection timeout" counts for that, and closing has ten seconds where
/// `timeoutMS` says nothing.
#[test]
fn a_server_that_stays_away_is_not_waited_for_longer_than_others() {
    let mut fixture = filled("serverSelectionTimeoutMS=20000");
    let [first, mut second] = open(&mut fixture, 2).try_into().unwrap();
    let primary = fixture.primary();
    fixture.simulation.inject(Input::Kill { member: primary });
    fixture.simulation.run_for(Duration::from_secs(30));
    let ((), took) = fixture.run(first.close());
    assert_eq!(took, Duration::from_secs(10));
    let (error, took) = fixture.run(async move {
        second.next().await.unwrap().unwrap();
        second.next().await.unwrap().unwrap();
        second.next().await.unwrap().unwrap_err()
    });
    assert_eq!(error.kind(), ErrorKind::Selection, "{error}");
    assert_eq!(took, Duration::from_secs(20));
}

/// Cursors that are dropped are closed a thousand at a time, over one connection: a caller that
/// drops thousands does not have the pool to itself.
#[test]
fn cursors_that_are_dropped_together_are_closed_together() {
    let mut fixture = filled("maxPoolSize=100");
    let cursors = open(&mut fixture, 300);
    let mut ids: Vec<i64> = cursors.iter().map(Cursor::id).collect();
    fixture.run(async move { drop(cursors) });
    fixture.simulation.run_for(Duration::from_secs(5));
    fixture.run(async {});
    let commands = closed(&fixture);
    let mut killed = commands.concat();
    killed.sort_unstable();
    ids.sort_unstable();
    assert_eq!(killed, ids);
    assert!(commands.len() <= 2, "{} commands", commands.len());
    let pool = fixture.client.topology().members().into_iter().map(|it| it.counts().total());
    assert!(pool.sum::<usize>() <= 2);
}

/// Waits for `work` so long, and gives it up then.
pub(super) async fn within<T>(
    time: &VirtualTime,
    most: Duration,
    work: impl IntoFuture<Output = T>,
) -> Option<T> {
    let (mut work, mut end) = (pin!(work.into_future()), pin!(time.sleep(most)));
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => end.as_mut().poll(cx).map(|()| None),
    })
    .await
}

/// "Dropping a future is always safe" (docs/run.md): a getMore that no call waits for any more
/// comes to its end all the same, and what it has of the only connection and of the session goes
/// back whether or not the cursor is read again; no document is lost.
#[test]
fn a_call_for_a_document_that_is_given_up_comes_to_its_end() {
    const TENTH: Duration = Duration::from_millis(100);
    for tries in [false, true] {
        let mut fixture = filled("maxPoolSize=1");
        let late = failing(doc! { "blockConnection": true, "blockTimeMS": 1000 });
        fixture.fail(fixture.primary(), doc! { "times": 1 }, late);
        let own = fixture.client.start_session().run().unwrap();
        let (things, time) = (fixture.things().with_session(&own), fixture.simulation.time());
        let (id, took) = fixture.run(async move {
            let mut cursor = things.find(doc! {}).batch_size(2).await.unwrap();
            for _ in 0..2 {
                cursor.next().await.unwrap().unwrap();
            }
            let given_up = match tries {
                true => within(&time, TENTH, cursor.next_if_any()).await.is_none(),
                false => within(&time, TENTH, cursor.next()).await.is_none(),
            };
            assert!(given_up);
            things.insert_one(&doc! { "_id": 100 }).await.unwrap();
            let id = cursor.next().await.unwrap().unwrap().get_i32("_id").unwrap();
            drop(cursor);
            id
        });
        assert_eq!(id, 2);
        assert!(took < Duration::from_secs(2), "{took:?}");
        assert_eq!(connections_closed(&fixture), 0);
        assert_eq!(fixture.started("getMore").len(), 1, "it is not sent again");
    }
}

/// The task that goes on with a getMore ends with its client: the reader who has come back goes on
/// by itself, as with any exchange that is under way then.
#[test]
fn a_reader_that_comes_back_goes_on_when_the_client_is_closed() {
    for comes_before in [false, true] {
        let mut fixture = filled("");
        let late = failing(doc! { "blockConnection": true, "blockTimeMS": 60_000 });
        fixture.fail(fixture.primary(), doc! { "times": 1 }, late);
        let mut cursor = open(&mut fixture, 1).remove(0);
        let (client, time) = (fixture.client.clone(), fixture.simulation.time());
        let (next, took) = fixture.run(async move {
            for _ in 0..2 {
                cursor.next().await.unwrap().unwrap();
            }
            let second = Duration::from_secs(1);
            assert!(within(&time, second, cursor.next()).await.is_none());
            match comes_before {
                true => {
                    let closing = time.clone();
                    time.spawn(async move {
                        closing.sleep(second).await;
                        client.topology().close_now();
                    });
                }
                false => client.topology().close_now(),
            }
            cursor.next().await.unwrap()
        });
        assert!(took < Duration::from_secs(61), "{took:?}");
        assert_eq!(next.unwrap().get_i32("_id").ok(), Some(2));
    }
}

/// Load Balancer Support, "Connection Pinning": a cursor that is dropped after its batch has come
/// unread is closed over its own connection.
#[test]
fn behind_a_load_balancer_a_batch_that_nobody_reads_does_not_lose_the_connection() {
    let balanced = ClusterOptions::new("rs", (0..1).map(address));
    let mut fixture = Fixture::of(balanced.with_deployment(Deployment::LoadBalanced), "", 7);
    let things = fixture.things();
    let documents: Vec<Document> = (0..10).map(|id| doc! { "_id": id }).collect();
    fixture.run(async move { things.insert_many(&documents).await }).0.unwrap();
    let late = failing(doc! { "blockConnection": true, "blockTimeMS": 1000 });
    fixture.fail(fixture.primary(), doc! { "times": 1 }, late);
    let mut cursor = open(&mut fixture, 1).remove(0);
    let (id, time) = (cursor.id(), fixture.simulation.time());
    fixture.run(async move {
        for _ in 0..2 {
            cursor.next().await.unwrap().unwrap();
        }
        assert!(within(&time, Duration::from_millis(10), cursor.next()).await.is_none());
        time.sleep(Duration::from_secs(5)).await;
        drop(cursor);
    });
    fixture.simulation.run_for(Duration::from_secs(5));
    fixture.run(async {});
    assert_eq!(closed(&fixture), [[id]]);
    assert_eq!(connections_closed(&fixture), 0);
}

/// Load Balancer Support, "Behaviour With Cursors": after a network error, drivers "MUST NOT
/// execute a `killCursors` command because the pinned connection is no longer valid". Nor is it
/// after a reply that came too late: what is behind the balancer on another connection need not
/// know the cursor.
#[test]
fn behind_a_load_balancer_a_cursor_that_was_late_is_left_to_its_server() {
    let balanced = ClusterOptions::new("rs", (0..1).map(address));
    let balanced = balanced.with_deployment(Deployment::LoadBalanced);
    let mut fixture = Fixture::of(balanced, "timeoutMS=1000", 7);
    let things = fixture.things();
    let documents: Vec<Document> = (0..10).map(|id| doc! { "_id": id }).collect();
    fixture.run(async move { things.insert_many(&documents).await }).0.unwrap();
    let late = failing(doc! { "blockConnection": true, "blockTimeMS": 1500 });
    fixture.fail(fixture.primary(), doc! { "times": 1 }, late);
    let mut cursor = open(&mut fixture, 1).remove(0);
    fixture.run(async move {
        for _ in 0..2 {
            cursor.next().await.unwrap().unwrap();
        }
        assert!(cursor.next().await.unwrap().unwrap_err().is_timeout());
        cursor.close().await;
    });
    fixture.simulation.run_for(Duration::from_secs(5));
    fixture.run(async {});
    assert!(fixture.started("killCursors").is_empty());
}

/// Client Bulk Write, "Handling the bulkWrite Server Response": an operation that is given up
/// leaves no cursor open.
#[test]
fn a_bulk_that_is_given_up_while_it_reads_its_results_closes_its_cursor() {
    let mut fixture = filled("");
    let late = failing(doc! { "blockConnection": true, "blockTimeMS": 5000 });
    fixture.fail(fixture.primary(), doc! { "times": 1 }, late);
    let bulk = ClientBulkWrite::new(["a", "b"].map(upsert)).verbose_results(true);
    let (client, time) = (fixture.client.clone(), fixture.simulation.time());
    fixture.run(async move {
        let bulk = client.bulk_write(bulk);
        assert!(within(&time, Duration::from_secs(3), bulk).await.is_none());
    });
    fixture.simulation.run_for(Duration::from_secs(10));
    fixture.run(async {});
    assert_eq!(fixture.started("getMore").len(), 1);
    assert_eq!((closed(&fixture).len(), closed(&fixture).concat().len()), (1, 1));
}

/// The same of an attempt that another one was made after, which has opened a cursor of its own.
#[test]
fn a_bulk_that_is_sent_again_closes_the_cursor_of_the_attempt_before() {
    let mut fixture = filled("");
    let again = doc! { "code": 91, "errmsg": "", "errorLabels": ["RetryableWriteError"] };
    let again = doc! { "failCommands": ["bulkWrite"], "writeConcernError": again };
    fixture.fail(fixture.primary(), doc! { "times": 1 }, again);
    let bulk = ClientBulkWrite::new(["a", "b"].map(upsert)).verbose_results(true);
    let client = fixture.client.clone();
    let done = fixture.run(async move { client.bulk_write(bulk).await }).0.unwrap();
    assert_eq!(done.verbose.unwrap().update_results.len(), 2);
    fixture.simulation.run_for(Duration::from_secs(5));
    fixture.run(async {});
    let replies = fixture.heard.iter().filter_map(|(_, kind)| match kind {
        EventKind::Command {
            command, event: CommandEvent::CommandSucceeded { reply, .. }, ..
        } if command.command_name == "bulkWrite" => {
            Some(reply.get_document("cursor").unwrap().get_i64("id").unwrap())
        }
        _ => None,
    });
    let [first, second] = replies.collect::<Vec<_>>()[..] else { panic!("two attempts") };
    assert!(first != 0 && second != first);
    assert_eq!(closed(&fixture), [[first]]);
}

/// A capped collection with one document, and nothing heard yet.
fn capped() -> Fixture {
    with_capped(Fixture::new(""))
}

/// The same in another deployment.
fn with_capped(mut fixture: Fixture) -> Fixture {
    let client = fixture.client.clone();
    fixture.run(async move {
        let database = client.database("app");
        let create = CreateCollection::new("things").capped(true).size(100_000);
        database.create_collection(create).await.unwrap();
        database.collection::<Document>("things").insert_one(&doc! { "_id": 0 }).await.unwrap();
    });
    fixture.heard.clear();
    fixture
}

/// A server that has nothing is asked less and less often, up to twice a second; once there is a
/// document, often again. A call that is given up leaves nothing that asks.
#[test]
fn a_tailable_cursor_asks_at_a_pace_that_slows_down() {
    let mut fixture = capped();
    let (things, time) = (fixture.things(), fixture.simulation.time());
    fixture.run(async move {
        let tail = Find::new(doc! {}).cursor_type(CursorType::Tailable);
        let mut cursor = things.find(tail).await.unwrap();
        cursor.next().await.unwrap().unwrap();
        assert!(within(&time, Duration::from_secs(20), cursor.next()).await.is_none());
        time.sleep(Duration::from_secs(20)).await;
        things.insert_one(&doc! { "_id": 1 }).await.unwrap();
        let next = within(&time, Duration::from_secs(1), cursor.next()).await;
        assert_eq!(next.unwrap().unwrap().unwrap().get_i32("_id").ok(), Some(1));
        assert!(within(&time, Duration::from_millis(300), cursor.next()).await.is_none());
    });
    let times = fixture.started("getMore");
    let inserted = *fixture.started("insert").last().unwrap();
    let (before, after): (Vec<Duration>, Vec<Duration>) =
        times.into_iter().partition(|at| *at < inserted);
    assert!((30..60).contains(&before.len()), "{} in 20 s", before.len());
    let longest = before.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
    assert!((Duration::from_millis(500)..Duration::from_millis(700)).contains(&longest));
    assert!(
        before[before.len() - 1] + Duration::from_secs(20) <= inserted,
        "nothing asks by itself"
    );
    assert!(after.len() >= 3, "it begins again: {after:?}");
}

/// A server that awaits documents takes its time itself: the cursor loses none.
#[test]
fn a_cursor_that_awaits_documents_asks_again_at_once() {
    let mut fixture = capped();
    let (things, time) = (fixture.things(), fixture.simulation.time());
    fixture.run(async move {
        let tail = Find::new(doc! {}).cursor_type(CursorType::TailableAwait);
        let tail = tail.max_await_time(Duration::from_secs(2));
        let mut cursor = things.find(tail).await.unwrap();
        cursor.next().await.unwrap().unwrap();
        assert!(within(&time, Duration::from_secs(20), cursor.next()).await.is_none());
    });
    let (asked, told) = (fixture.started("getMore"), fixture.ended("getMore"));
    assert!((8..=11).contains(&asked.len()), "{asked:?}");
    for (told, asked) in told.iter().zip(&asked[1..]) {
        assert_eq!(told.at, *asked, "at once");
    }
}

fn exhaust() -> Find {
    Find::new(doc! {}).cursor_type(CursorType::Exhaust).batch_size(2)
}

/// Returns how many connections were closed.
fn connections_closed(fixture: &Fixture) -> usize {
    let is_closed = |kind: &EventKind| {
        matches!(kind, EventKind::Pool { event: PoolEvent::ConnectionClosed { .. }, .. })
    };
    fixture.heard.iter().filter(|(_, kind)| is_closed(kind)).count()
}

/// OP_MSG, "exhaustAllowed" and "moreToCome On Responses": one getMore has the server send all
/// batches, each of which has events, and the connection is as good as before when the last has
/// come.
#[test]
fn the_batches_of_a_cursor_come_without_being_asked_for() {
    let mut fixture = filled("");
    let things = fixture.things();
    let (all, _) = fixture.run(async move {
        let mut cursor = things.find(exhaust()).await.unwrap();
        let mut all = Vec::new();
        while let Some(document) = cursor.next().await {
            all.push(document.unwrap().get_i32("_id").unwrap());
            // Another operation takes another connection meanwhile.
            things.find_one(doc! {}).await.unwrap();
        }
        all
    });
    assert_eq!(all, (0..10).collect::<Vec<_>>());
    let times = fixture.started("getMore");
    assert_eq!((times.len(), fixture.ended("getMore").len()), (4, 4));
    assert!(fixture.started("killCursors").is_empty());
    assert_eq!(connections_closed(&fixture), 0);
    let primary = fixture.client.topology().members().into_iter().map(|it| it.counts());
    assert_eq!(primary.map(|counts| counts.available).sum::<usize>(), 2, "both came back");
}

/// "The client MUST either consume all messages with the moreToCome flag set or close the
/// connection."
#[test]
fn a_cursor_that_is_left_with_batches_to_come_closes_its_connection() {
    for (read, closes, expected) in [(3, false, 1), (3, true, 1), (1, true, 0)] {
        let mut fixture = filled("");
        let things = fixture.things();
        fixture.run(async move {
            let mut cursor = things.find(exhaust()).await.unwrap();
            for _ in 0..read {
                cursor.next().await.unwrap().unwrap();
            }
            match closes {
                true => cursor.close().await,
                false => drop(cursor),
            }
        });
        fixture.simulation.run_for(Duration::from_secs(1));
        fixture.run(async {});
        assert_eq!(connections_closed(&fixture), expected, "{read} {closes}");
        // Servers before 4.4 do not close it with its connection.
        assert_eq!(fixture.started("killCursors").len(), 1, "{read} {closes}");
    }
}

/// The same while a batch is awaited: its connection is lost with the wait, and servers before 4.4
/// keep the cursor.
#[test]
fn a_cursor_that_is_given_up_while_a_batch_is_to_come_is_closed_over_another_connection() {
    for closes in [false, true] {
        let mut fixture = filled("");
        let things = fixture.things();
        fixture.run(async move {
            let mut cursor = things.find(exhaust()).await.unwrap();
            cursor.next().await.unwrap().unwrap();
            cursor.next().await.unwrap().unwrap();
            let waits = poll_fn(|cx| Poll::Ready(pin!(cursor.next()).poll(cx).is_pending()));
            assert!(waits.await, "it is asked for");
            match closes {
                true => cursor.close().await,
                false => drop(cursor),
            }
        });
        fixture.simulation.run_for(Duration::from_secs(1));
        fixture.run(async {});
        assert_eq!(connections_closed(&fixture), 1, "{closes}");
        assert_eq!(fixture.started("killCursors").len(), 1, "{closes}");
    }
}

/// "if the cursor id is nonzero a KillCursors operation MUST be attempted": servers before 4.4 keep
/// a cursor whose connection is lost, or is closed because a batch was late.
#[test]
fn a_cursor_whose_stream_fails_is_closed() {
    for (failure, kind) in failures() {
        for given_up in ["dropped", "closed", "collected"] {
            let mut fixture = filled("timeoutMS=1000");
            fixture.fail(fixture.primary(), doc! { "times": 1 }, failure.clone());
            let things = fixture.things();
            let ((id, error), _) = fixture.run(async move {
                let find = exhaust().timeout_mode(TimeoutMode::Iteration);
                let mut cursor = things.find(find).await.unwrap();
                let id = cursor.id();
                cursor.next().await.unwrap().unwrap();
                cursor.next().await.unwrap().unwrap();
                if given_up == "collected" {
                    return (id, cursor.try_collect::<Vec<_>>().await.unwrap_err());
                }
                let error = cursor.next().await.unwrap().unwrap_err();
                match given_up {
                    "closed" => cursor.close().await,
                    _ => drop(cursor),
                }
                (id, error)
            });
            assert_eq!(error.kind(), kind, "{error}");
            fixture.simulation.run_for(Duration::from_secs(5));
            fixture.run(async {});
            assert_eq!(closed(&fixture), [[id]], "{kind:?}, {given_up}");
            let others = usize::from(kind != ErrorKind::Command);
            assert_eq!(connections_closed(&fixture), others, "{kind:?}, {given_up}");
        }
    }
}

/// CursorNotFound: nothing is left to close, and what the cursor had is there for others while the
/// application still has it.
#[test]
fn a_cursor_that_its_server_does_not_know_keeps_no_connection() {
    let mut fixture = filled("maxPoolSize=1&timeoutMS=1000");
    let unknown = doc! { "failCommands": ["getMore"], "errorCode": 43 };
    fixture.fail(fixture.primary(), doc! { "times": 1 }, unknown);
    let things = fixture.things();
    fixture.run(async move {
        let mut cursor = things.find(exhaust()).await.unwrap();
        cursor.next().await.unwrap().unwrap();
        cursor.next().await.unwrap().unwrap();
        assert_eq!(cursor.next().await.unwrap().unwrap_err().code(), Some(43));
        assert_eq!(cursor.id(), 0);
        things.find_one(doc! {}).await.unwrap().unwrap();
        drop(cursor);
    });
    fixture.simulation.run_for(Duration::from_secs(5));
    fixture.run(async {});
    assert!(fixture.started("killCursors").is_empty());
}

/// A stream that is late is given up as any other exchange.
#[test]
fn a_stream_that_breaks_ends_its_cursor() {
    let mut fixture = filled("");
    let primary = fixture.primary();
    let things = fixture.things();
    let opened = fixture.run(async move {
        let mut cursor = things.find(exhaust()).await.unwrap();
        cursor.next().await.unwrap().unwrap();
        cursor.next().await.unwrap().unwrap();
        cursor
    });
    let mut cursor = opened.0;
    fixture.simulation.inject(Input::Kill { member: primary });
    let (error, _) = fixture.run(async move {
        let error = cursor.next().await.unwrap().unwrap_err();
        assert!(cursor.next().await.is_none() && !cursor.is_alive());
        error
    });
    assert!(error.failure().is_some() || error.as_selection().is_some(), "{error}");
    fixture.simulation.run_for(Duration::from_secs(30));
    fixture.run(async {});
    assert!(fixture.started("killCursors").is_empty(), "nothing can reach it any more");
}

/// Mongos is asked for each batch.
#[test]
fn mongos_streams_no_cursor() {
    let mut fixture = Fixture::sharded(1, "", 7);
    let things = fixture.things();
    let documents: Vec<Document> = (0..5).map(|id| doc! { "_id": id }).collect();
    let (all, _) = fixture.run(async move {
        things.insert_many(&documents).await.unwrap();
        let cursor = things.find(exhaust()).await.unwrap();
        cursor.try_collect::<Vec<_>>().await.unwrap()
    });
    assert_eq!(all.len(), 5);
    let times = fixture.started("getMore");
    assert_eq!(times.len(), 2);
    let waits = times.windows(2).all(|pair| pair[1] > pair[0]);
    assert!(waits, "each is a way there and back: {times:?}");
}

/// Returns what a cursor that is open says, and when, if its client is closed after a second.
fn closed_after_a_second(
    fixture: &mut Fixture,
    mut cursor: Cursor<Runtime, Document>,
) -> Vec<(Duration, Result<i32, ErrorKind>)> {
    let (client, time) = (fixture.client.clone(), fixture.simulation.time());
    let begun = time.elapsed();
    let closer = time.clone();
    fixture.begin(async move {
        closer.sleep(Duration::from_secs(1)).await;
        client.close().await;
    });
    let reading = async move {
        let mut all = Vec::new();
        while let Some(next) = cursor.next().await {
            let id = |next: Document| next.get_i32("_id").unwrap();
            all.push((time.elapsed() - begun, next.map(id).map_err(|error| error.kind())));
        }
        all
    };
    fixture.run(reading).0
}

/// docs/change-streams.md: "A call that waits fails with the kind `Closed` when the client is
/// closed", also over the connection that its cursor has for itself, behind a load balancer.
#[test]
fn a_cursor_that_awaits_documents_ends_with_its_client() {
    let balanced = ClusterOptions::new("rs", (0..1).map(address));
    let balanced = balanced.with_deployment(Deployment::LoadBalanced);
    for fixture in [Fixture::new(""), Fixture::of(balanced, "", 7)] {
        let mut fixture = with_capped(fixture);
        let things = fixture.things();
        let tail = Find::new(doc! {}).cursor_type(CursorType::TailableAwait);
        let tail = tail.max_await_time(Duration::from_secs(60));
        let (cursor, _) = fixture.run(async move { things.find(tail).await.unwrap() });
        let told = closed_after_a_second(&mut fixture, cursor);
        let [(_, Ok(0)), (at, Err(ErrorKind::Closed))] = told[..] else { panic!("{told:?}") };
        assert!((Duration::from_secs(1)..Duration::from_secs(2)).contains(&at), "{at:?}");
    }
}

/// `Client::close`: calls that wait for a change fail at once. The others come to their own ends,
/// as does one that waits for a batch over the connection that its cursor has for itself.
#[test]
fn a_batch_that_is_under_way_comes_although_the_client_is_closed() {
    let balanced = ClusterOptions::new("rs", (0..1).map(address));
    let balanced = balanced.with_deployment(Deployment::LoadBalanced);
    let set = (Fixture::new(""), exhaust());
    for (mut fixture, find) in
        [set, (Fixture::of(balanced, "", 7), Find::new(doc! {}).batch_size(2))]
    {
        let things = fixture.things();
        let documents: Vec<Document> = (0..10).map(|id| doc! { "_id": id }).collect();
        fixture.run(async move { things.insert_many(&documents).await }).0.unwrap();
        let late = failing(doc! { "blockConnection": true, "blockTimeMS": 5000 });
        fixture.fail(fixture.primary(), doc! { "times": 1 }, late);
        let things = fixture.things();
        let (cursor, _) = fixture.run(async move { things.find(find).await.unwrap() });
        let told = closed_after_a_second(&mut fixture, cursor);
        let ids: Vec<_> = told.iter().map_while(|(_, next)| next.ok()).collect();
        assert!(ids.starts_with(&[0, 1, 2, 3]), "{told:?}");
        assert!(told[2].0 >= Duration::from_secs(5), "{told:?}");
    }
}
