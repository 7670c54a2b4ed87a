//! Driver Sessions, the prose tests that need no second user, no fork, and no server that has no
//! sessions. Tests 12 and 13 fork for real in the suite of runtimes; 7, 16 and 17 are about clients
//! that log in as several users, which there are none of.

use std::future::Future;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use bson::{Document, Timestamp, doc};
use sdam::error::{ArgumentError, Error};
use sdam::generic::{Client, ClientSession, Collection, Database};
use sdam::operation::{DeleteModel, Find, IndexModel, InsertModel, UpdateModel, WriteModel};
use sdam::options::TimeoutMode;
use sdam_cluster::{ClusterOptions, Deployment};
use sdam_core::command::CommandEvent;
use sdam_core::config::{Options, ReadMode, ReadPreference};
use sdam_core::session::{SessionError, SessionOptions};
use sdam_core::topology::{EventKind, Topics};
use sdam_simulation::virtual_time::Runtime;

use super::{Fixture, address};

/// The commands that were sent since the last look, in their order.
fn sent(fixture: &mut Fixture) -> Vec<Document> {
    let heard = std::mem::take(&mut fixture.heard);
    let started = heard.into_iter().filter_map(|(_, kind)| match kind {
        EventKind::Command { event: CommandEvent::CommandStarted { command }, .. } => {
            Some(Document::try_from(command).unwrap())
        }
        _ => None,
    });
    started.collect()
}

fn names(commands: &[Document]) -> Vec<&str> {
    commands.iter().map(|command| command.keys().next().unwrap().as_str()).collect()
}

fn id(session: &ClientSession<Runtime>) -> Document {
    Document::try_from(session.id().unwrap()).unwrap()
}

fn lsid(command: &Document) -> &Document {
    command.get_document("lsid").unwrap()
}

fn start(client: &Client<Runtime>) -> ClientSession<Runtime> {
    client.start_session().run().unwrap()
}

fn increment() -> Document {
    doc! { "$inc": { "n": 1 } }
}

fn set() -> Document {
    doc! { "$set": { "a": 1 } }
}

fn documents(count: i32) -> Vec<Document> {
    (0..count).map(|id| doc! { "_id": id }).collect()
}

type Done = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// The handles that an operation may be one of.
#[derive(Clone)]
struct Handles {
    client: Client<Runtime>,
    database: Database<Runtime>,
    things: Collection<Runtime>,
}

impl Handles {
    fn new(client: &Client<Runtime>) -> Self {
        let (client, database) = (client.clone(), client.database("app"));
        Self { things: database.collection("things"), client, database }
    }

    fn with_session(&self, session: &ClientSession<Runtime>) -> Self {
        Self::new(&self.client.with_session(session))
    }
}

/// Makes a list of operations, each of a handle.
macro_rules! operations {
    ($($handle:ident.$run:ident($($argument:expr),*);)*) => {
        [$((
            stringify!($run),
            |handles: Handles| -> Done {
                Box::pin(async move {
                    handles.$handle.$run($($argument),*).await.map(drop)
                })
            },
        )),*]
    };
}

/// An operation by its name.
type Named = (&'static str, fn(Handles) -> Done);

/// All that takes a session, in an order in which everything succeeds.
fn operations() -> Vec<Named> {
    let reads: [Named; 16] = operations! {
        client.list_databases();
        client.list_database_names();
        database.run_command(doc! { "ping": 1 });
        database.list_collections();
        database.list_collection_names();
        database.run_cursor_command(doc! { "find": "things" });
        things.aggregate([doc! { "$match": {} }]);
        things.count(doc! {});
        things.count_documents(doc! {});
        things.distinct("a", doc! {});
        things.estimated_document_count();
        things.find(doc! {});
        things.find_one(doc! {});
        things.list_indexes();
        things.list_index_names();
        things.drop_index("a_1");
    };
    let writes: [Named; 20] = operations! {
        database.create_collection("others");
        things.insert_one(&doc! { "a": 1 });
        things.create_index(IndexModel::new(doc! { "a": 1 }));
        things.create_indexes([IndexModel::new(doc! { "a": 1 })]);
        things.insert_many(&[doc! { "a": 2 }, doc! { "a": 3 }]);
        things.update_one(doc! {}, increment());
        things.update_many(doc! {}, increment());
        things.replace_one(doc! {}, &doc! { "a": 4 });
        things.delete_one(doc! { "a": 5 });
        things.delete_many(doc! { "a": 5 });
        things.find_one_and_delete(doc! { "a": 5 });
        things.find_one_and_replace(doc! {}, &doc! { "a": 6 });
        things.find_one_and_update(doc! {}, increment());
        things.bulk_write([
            WriteModel::InsertOne(InsertModel::new(doc! { "a": 7 })),
            WriteModel::UpdateOne(UpdateModel::new(doc! { "a": 7 }, increment())),
            WriteModel::DeleteMany(DeleteModel::new(doc! { "a": 7 })),
        ]);
        client.bulk_write([
            ("app.things", WriteModel::InsertOne(InsertModel::new(doc! { "a": 8 }))),
        ]);
        things.rename("app.renamed");
        things.insert_one(&doc! { "a": 9 });
        things.drop_indexes();
        things.drop();
        database.drop();
    };
    let (first, last) = writes.split_at(15);
    first.iter().chain(&reads).chain(last).copied().collect()
}

/// 1 and 21: options that contradict each other. 22 and 23: a session that reads no snapshots has
/// no time of one, and no method sets it.
#[test]
fn sessions_whose_options_contradict_each_other_are_not_started() {
    let fixture = Fixture::new("");
    let start = |options| {
        fixture.client.start_session().with_options(options).run().err().map(|it| it.to_string())
    };
    let both = SessionOptions::default().with_snapshot(true).with_causal_consistency(Some(true));
    assert_eq!(start(both), Some(SessionError::CausalAndSnapshot.to_string()));
    let time = Some(Timestamp { time: 1, increment: 0 });
    let timed = SessionOptions::default().with_snapshot(false).with_snapshot_time(time);
    assert_eq!(start(timed), Some(SessionError::SnapshotTimeWithoutSnapshot.to_string()));
    let plain = fixture.client.start_session().run().unwrap();
    assert_eq!(plain.snapshot_time().unwrap(), None);
    let snapshot = SessionOptions::default().with_snapshot(true).with_snapshot_time(time);
    let snapshot = fixture.client.start_session().with_options(snapshot).run().unwrap();
    assert_eq!(snapshot.snapshot_time().unwrap(), time);
}

/// 2: the pool is LIFO.
#[test]
fn the_session_that_ended_last_is_used_first() {
    let fixture = Fixture::new("");
    let [a, b] = [start(&fixture.client), start(&fixture.client)];
    let ids = [id(&a), id(&b)];
    a.end();
    b.end();
    let again = [start(&fixture.client), start(&fixture.client)];
    assert_eq!(again.each_ref().map(id), [ids[1].clone(), ids[0].clone()]);
}

/// 3: each command says the greatest cluster time that a reply has sent, the first that of the
/// handshake of its connection, which is no SDAM command.
#[test]
fn commands_carry_the_cluster_time_of_the_reply_before() {
    let wanted = ["run_command", "aggregate", "find", "insert_one"];
    let all = operations();
    for (name, run) in wanted.map(|name| *all.iter().find(|it| it.0 == name).unwrap()) {
        let mut fixture = Fixture::new("");
        let handles = Handles::new(&fixture.client);
        for _ in 0..2 {
            fixture.run(run(handles.clone())).0.unwrap();
        }
        let mut times = Vec::new();
        for (_, kind) in &fixture.heard {
            let EventKind::Command { event, .. } = kind else { continue };
            let time = match event {
                CommandEvent::CommandStarted { command } => command.get_document("$clusterTime"),
                CommandEvent::CommandSucceeded { reply, .. } => reply.get_document("$clusterTime"),
                _ => panic!("{name}: {event:?}"),
            };
            times.push(time.unwrap().to_owned());
        }
        assert_eq!(times.len(), 4, "{name}");
        assert_eq!(times[1], times[2], "{name}: the second command says what the reply has said");
    }
}

/// 4: the session of the application, or one of their own.
#[test]
fn every_operation_carries_its_session() {
    let mut fixture = Fixture::new("");
    let own = start(&fixture.client);
    let implicit = Handles::new(&fixture.client);
    for (handles, expected) in [(implicit.with_session(&own), Some(id(&own))), (implicit, None)] {
        for (name, run) in operations() {
            let (done, _) = fixture.run(run(handles.clone()));
            done.unwrap_or_else(|error| panic!("{name}: {error}"));
            let sent = sent(&mut fixture);
            assert!(!sent.is_empty(), "{name} sends something");
            let is_expected = |it: &Document| expected.as_ref().is_none_or(|own| it == own);
            for command in &sent {
                assert!(is_expected(lsid(command)), "{name}: {command}");
            }
        }
    }
}

/// 5: a session of another client is refused, and nothing is sent.
#[test]
fn no_operation_takes_the_session_of_another_client() {
    let mut fixture = Fixture::new("");
    let options = Options::parse(fixture.simulation.uri()).unwrap();
    let other = Client::from(fixture.simulation.topology(options).unwrap());
    let handles = Handles::new(&fixture.client).with_session(&start(&other));
    for (name, run) in operations() {
        let error = fixture.run(run(handles.clone())).0.unwrap_err().to_string();
        assert!(error.contains("another client"), "{name}: {error}");
        assert!(sent(&mut fixture).is_empty(), "{name}");
    }
}

/// 6: a session that has ended is refused, whether its methods ended it or it was dropped.
#[test]
fn no_operation_takes_a_session_that_has_ended() {
    let mut fixture = Fixture::new("");
    let own = start(&fixture.client);
    let name_of_own = id(&own);
    let handles = Handles::new(&fixture.client).with_session(&own);
    own.end();
    for (name, run) in operations() {
        let error = fixture.run(run(handles.clone())).0.unwrap_err().to_string();
        assert!(error.contains("the session has ended"), "{name}: {error}");
        assert!(sent(&mut fixture).is_empty(), "{name}");
    }
    let dropped = start(&fixture.client);
    assert_eq!(id(&dropped), name_of_own);
    drop(dropped);
    assert_eq!(id(&start(&fixture.client)), name_of_own, "dropping ends it, too");
}

/// 8: a cursor whose first batch is all has no session any more.
#[test]
fn a_cursor_that_is_exhausted_at_once_gives_its_session_back() {
    let mut fixture = Fixture::new("");
    let things = fixture.things();
    fixture.run(async move {
        things.insert_many(documents(2)).await.unwrap();
        let mut cursor = things.find(doc! {}).await.unwrap();
        cursor.next().await.unwrap().unwrap();
        things.find_one(doc! {}).await.unwrap();
        assert!(cursor.next().await.is_some());
    });
    let sent = sent(&mut fixture);
    assert_eq!(names(&sent), ["insert", "find", "find"]);
    assert_eq!(lsid(&sent[1]), lsid(&sent[2]));
}

/// 9: nor has one that a getMore has exhausted.
#[test]
fn a_cursor_that_a_get_more_exhausts_gives_its_session_back() {
    let mut fixture = Fixture::new("");
    let things = fixture.things();
    fixture.run(async move {
        things.insert_many(documents(5)).await.unwrap();
        let mut cursor = things.find(doc! {}).batch_size(3).await.unwrap();
        for _ in 0..4 {
            cursor.next().await.unwrap().unwrap();
        }
        things.find_one(doc! {}).await.unwrap();
        assert!(cursor.next().await.is_some());
    });
    let sent = sent(&mut fixture);
    assert_eq!(names(&sent), ["insert", "find", "getMore", "find"]);
    assert_eq!(lsid(&sent[2]), lsid(&sent[3]));
}

/// 11: find and getMore have one session, whatever the topology and the read preference.
#[test]
fn a_cursor_has_one_session() {
    let modes = [
        ReadMode::Primary,
        ReadMode::PrimaryPreferred,
        ReadMode::Secondary,
        ReadMode::SecondaryPreferred,
        ReadMode::Nearest,
    ];
    let set = ClusterOptions::new("rs", (0..3).map(address));
    let mongos = ClusterOptions::new("rs", (0..2).map(address));
    let sharded = mongos.clone().with_deployment(Deployment::Sharded);
    let balanced = ClusterOptions::new("rs", (0..1).map(address));
    let balanced = balanced.with_deployment(Deployment::LoadBalanced);
    for cluster in [set, sharded, balanced] {
        let mut fixture = Fixture::of(cluster, "", 7);
        let things = fixture.things();
        fixture.run(async move { things.insert_many(documents(3)).await }).0.unwrap();
        // Those that are behind have come up.
        fixture.simulation.run_for(Duration::from_secs(30));
        sent(&mut fixture);
        for mode in modes {
            let things = fixture.things().with_read_preference(ReadPreference::new(mode));
            let find = Find::new(doc! {}).batch_size(2);
            let found = async move { things.find(find).await?.try_collect::<Vec<_>>().await };
            assert_eq!(fixture.run(found).0.unwrap().len(), 3, "{mode:?}");
            let sent = sent(&mut fixture);
            assert_eq!(names(&sent), ["find", "getMore"], "{mode:?}");
            assert_eq!(lsid(&sent[0]), lsid(&sent[1]), "{mode:?}");
        }
    }
}

/// 14: an operation has no session before it has a connection.
#[test]
fn operations_that_wait_for_a_connection_have_no_session() {
    let wanted: [Named; 7] = operations! {
        things.insert_one(&doc! {});
        things.delete_one(doc! {});
        things.update_one(doc! {}, set());
        things.bulk_write([
            WriteModel::UpdateOne(UpdateModel::new(doc! {}, set())),
        ]);
        things.find_one_and_delete(doc! {});
        things.find_one_and_update(doc! {}, set());
        things.find_one_and_replace(doc! {}, &doc! { "a": 1 });
    };
    let find: Named = ("find", |handles| {
        Box::pin(async move {
            handles.things.find(doc! {}).await?.try_collect::<Vec<_>>().await.map(drop)
        })
    });
    let wanted: Vec<Named> = wanted.into_iter().chain([find]).collect();
    let mut numbers = Vec::new();
    for seed in 0..10 {
        let mut fixture = Fixture::seeded("maxPoolSize=1&retryWrites=true", seed);
        let handles = Handles::new(&fixture.client);
        let begun: Vec<_> =
            wanted.iter().map(|(_, run)| fixture.begin(run(handles.clone()))).collect();
        fixture.run(async {});
        for done in begun {
            done.lock().unwrap().take().expect("it has ended").unwrap();
        }
        let mut sessions: Vec<Document> = Vec::new();
        for command in sent(&mut fixture) {
            let session = lsid(&command).clone();
            if !sessions.contains(&session) {
                sessions.push(session);
            }
        }
        numbers.push(sessions.len());
    }
    assert!(numbers.contains(&1), "{numbers:?}");
    assert!(numbers.iter().all(|number| *number < 8), "{numbers:?}");
}

/// 20: monitors neither send a cluster time nor take one from replies.
#[test]
fn the_cluster_time_that_a_monitor_is_told_counts_for_nothing() {
    let mut fixture = Fixture::new("");
    let primary = fixture.primary();
    let options = "directConnection=true&heartbeatFrequencyMS=500";
    let uri = format!("mongodb://{}/?{options}", address(primary.0));
    let direct = fixture.simulation.topology(Options::parse(&uri).unwrap()).unwrap();
    let mut events = direct.subscribe_to(Topics::ALL);
    let direct = Client::from(direct);
    let ping = |client: &Client<Runtime>| {
        let admin = client.database("admin");
        async move { admin.run_command(doc! { "ping": 1 }).await }
    };
    let (reply, _) = fixture.run(ping(&direct));
    let told = reply.unwrap().get_document("$clusterTime").unwrap().clone();
    let things = fixture.things();
    fixture
        .run(async move { things.insert_one(&doc! { "advance": "$clusterTime" }).await })
        .0
        .unwrap();
    while events.try_next().is_some() {}
    fixture.simulation.run_for(Duration::from_secs(5));
    let mut heartbeats = 0;
    while let Some(event) = events.try_next() {
        heartbeats += u32::from(event.kind.name() == "serverHeartbeatSucceeded");
    }
    assert!(heartbeats >= 1);
    fixture.run(ping(&direct)).0.unwrap();
    let mut said = None;
    while let Some(event) = events.try_next() {
        if let EventKind::Command { event: CommandEvent::CommandStarted { command }, .. } =
            event.kind
        {
            said = Some(Document::try_from(command.get_document("$clusterTime").unwrap()).unwrap());
        }
    }
    assert_eq!(said, Some(told));
}

/// "Drivers MUST NOT attempt to detect simultaneous use by multiple threads": operations of one
/// session that are begun at the same time follow one another, and each sees what the one before it
/// has done.
#[test]
fn operations_of_a_session_that_are_begun_together_follow_one_another() {
    let mut fixture = Fixture::new("");
    let own = start(&fixture.client);
    let things = fixture.things().with_session(&own);
    let results: Vec<_> = (0..5)
        .map(|id| {
            let things = things.clone();
            fixture.begin(async move {
                things.insert_one(&doc! { "_id": id }).await?;
                things.find_one(doc! { "_id": id }).await
            })
        })
        .collect();
    fixture.run(async {});
    for (id, result) in results.iter().enumerate() {
        let found = result.lock().unwrap().take().unwrap().unwrap();
        assert_eq!(found.unwrap().get_i32("_id").unwrap() as usize, id);
    }
    let sent = sent(&mut fixture);
    assert_eq!(sent.len(), 10);
    assert!(sent.iter().all(|command| *lsid(command) == id(&own)));
    let numbers: Vec<_> = sent.iter().filter_map(|it| it.get_i64("txnNumber").ok()).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5]);
}

/// Judges the error of an operation that has waited for its session, with this `timeoutMS`: the end
/// of that is a time-out ("drivers MUST return a timeout error", Client Side Operations Timeout,
/// "Errors").
fn is_of_session(error: &Error, timeout: Option<Duration>) {
    assert_eq!(error.is_timeout(), timeout.is_some(), "{error}");
    let Some(timeout) = timeout else {
        assert_eq!(error.as_argument(), Some(&ArgumentError::SessionInUse), "{error}");
        return;
    };
    let sentence = format!(
        "the operation has waited {} ms for its session, which another operation uses, and its \
         timeoutMS is over; nothing was sent",
        timeout.as_millis()
    );
    assert_eq!(error.to_string(), sentence);
}

/// The same where an operation comes to no end, as one that is kept and not polled: others fail in
/// time, with nothing sent. A cursor is what it was then.
#[test]
fn a_session_that_does_not_come_back_is_waited_for_as_long_as_a_server() {
    let mut fixture = Fixture::new("serverSelectionTimeoutMS=20000");
    let own = start(&fixture.client);
    let (things, time) = (fixture.things().with_session(&own), fixture.simulation.time());
    let (waits, _) = fixture.run(async move {
        things.insert_many(documents(5)).await.unwrap();
        let mut cursor = things.find(doc! {}).batch_size(3).await.unwrap();
        let find = Find::new(doc! {}).batch_size(3).timeout_mode(TimeoutMode::Iteration);
        let mut limited = things.with_timeout(Duration::from_secs(2)).find(find).await.unwrap();
        for _ in 0..3 {
            cursor.next().await.unwrap().unwrap();
            limited.next().await.unwrap().unwrap();
        }
        let mut kept = things.find_one(doc! {}).into_future();
        let polled = std::future::poll_fn(|cx| Poll::Ready(kept.as_mut().poll(cx).is_pending()));
        assert!(polled.await, "it uses the session");
        let mut waits = Vec::new();
        for limit in [None, Some(Duration::from_secs(5))] {
            let things = limit.map_or(things.clone(), |limit| things.with_timeout(limit));
            let begun = time.elapsed();
            let error = things.find_one(doc! {}).await.unwrap_err();
            is_of_session(&error, limit);
            waits.push(time.elapsed() - begun);
        }
        is_of_session(&cursor.next().await.unwrap().unwrap_err(), None);
        let error = limited.next().await.unwrap().unwrap_err();
        is_of_session(&error, Some(Duration::from_secs(2)));
        assert!(cursor.is_alive() && limited.is_alive());
        kept.await.unwrap();
        for cursor in [&mut cursor, &mut limited] {
            assert!(cursor.next().await.unwrap().is_ok() && cursor.next().await.unwrap().is_ok());
            assert!(cursor.next().await.is_none());
        }
        waits
    });
    assert_eq!(waits, [20, 5].map(Duration::from_secs));
    let sent = sent(&mut fixture);
    assert_eq!(names(&sent), ["insert", "find", "find", "find", "getMore", "getMore"]);
}

/// All operations that wait are woken when a session comes back: the first of them may be a future
/// that is kept, and not polled.
#[test]
fn an_operation_that_is_kept_holds_up_no_other_of_its_session() {
    let mut fixture = Fixture::new("");
    let own = start(&fixture.client);
    let things = fixture.things().with_session(&own);
    let (late, later) = (things.clone(), fixture.simulation.time());
    let other = fixture.begin(async move {
        later.sleep(Duration::from_millis(20)).await;
        late.find_one(doc! {}).await?;
        Ok::<_, Error>(later.elapsed())
    });
    let time = fixture.simulation.time();
    let (returned, _) = fixture.run(async move {
        let mut first = things.find_one(doc! {}).into_future();
        let mut kept = things.find_one(doc! {}).into_future();
        for waiting in [&mut first, &mut kept] {
            let polled = std::future::poll_fn(|cx| Poll::Ready(waiting.as_mut().poll(cx)));
            assert!(polled.await.is_pending());
        }
        time.sleep(Duration::from_millis(40)).await;
        first.await.unwrap();
        let returned = time.elapsed();
        time.sleep(Duration::from_secs(5)).await;
        drop(kept);
        returned
    });
    let ended = other.lock().unwrap().take().unwrap().unwrap();
    assert!(ended < returned + Duration::from_secs(1), "{returned:?}, then {ended:?}");
}
