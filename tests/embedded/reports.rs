//! Bug reports of other drivers, tried here: what their users saw does not happen.

use std::thread;
use std::time::Duration;

use bson::{Document, doc};
use sdam::generic::Client;
use sdam::options::{FindOptions, OptionsBuilder};
use sdam_cluster::MemberId;
use sdam_core::config::Options;

use super::{Fixture, names, session};

/// The time that nothing here may take: less than the 30 s in which a server is looked for.
const LIMIT: Duration = Duration::from_secs(20);

/// mongo-rust-driver 1287 and 384: a client that is made or used where no runtime is.
#[test]
fn a_client_outside_of_a_runtime_is_an_error_and_no_panic() {
    let made = thread::spawn(|| {
        let options = Options::parse("mongodb://127.0.0.1:1/").unwrap();
        sdam_tokio::Topology::new(options).map(drop)
    });
    let error = made.join().expect("no panic").unwrap_err().to_string();
    assert!(error.contains("runtime"), "{error}");
}

/// mongo-rust-driver 719 and 707: a cursor that outlives its runtime, and a client that is used
/// under another one.
#[test]
fn what_outlives_its_runtime_is_dropped_in_silence_and_answers_with_an_error() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let servers = tokio::runtime::Runtime::new().unwrap();
    let fixture = servers.block_on(async {
        let fixture = Fixture::new().await;
        fixture.fill(5).await;
        fixture
    });
    let first = runtime();
    let uri = format!("{}&serverSelectionTimeoutMS=2000", fixture.uri());
    let (client, cursor) = first.block_on(async {
        let client = sdam_tokio::Topology::new(Options::parse(&uri).unwrap()).unwrap();
        let client = Client::from(client);
        let things = client.database("app").collection::<Document>("things");
        let cursor = things.find(doc! {}).batch_size(2).await.unwrap();
        (client, cursor)
    });
    drop(first);
    drop(cursor);
    let used = runtime().block_on(async {
        let things = client.database("app").collection::<Document>("things");
        tokio::time::timeout(LIMIT, things.find_one(doc! {})).await
    });
    let error = used.expect("it ends").expect_err("its tasks have ended with their runtime");
    assert!(error.to_string().contains("ends with the runtime that it was made in"), "{error}");
    drop(client);
}

/// mongo-python-driver 2794 (PYTHON-5436): a getMore after the server was lost from view had no
/// session, and the server refused it. Mongo-python-driver 497 (PYTHON-2390): the second attempt at
/// a read had another session than the first.
#[tokio::test]
async fn attempts_and_batches_keep_their_session_while_the_server_is_lost_from_view() {
    let mut fixture = Fixture::new().await;
    fixture.fill(5).await;
    fixture.fail(1, doc! { "failCommands": ["find"], "closeConnection": true }).await;
    let things = fixture.things();
    let mut cursor = things.find(doc! {}).batch_size(2).await.unwrap();
    fixture.fail(1, doc! { "failCommands": ["insert"], "errorCode": 10107 }).await;
    things.insert_one(&doc! { "_id": 7 }).await.unwrap();
    let mut found = 0;
    while let Some(document) = cursor.next().await {
        document.unwrap();
        found += 1;
    }
    assert!(found >= 5, "{found}");
    let sent = fixture.sent();
    let of_cursor = sent.iter().filter(|it| it.contains_key("find") || it.contains_key("getMore"));
    let of_cursor: Vec<_> = of_cursor.collect();
    assert!(of_cursor.len() >= 4, "{sent:?}");
    assert!(of_cursor.iter().all(|it| session(it) == session(of_cursor[0])), "{sent:?}");
}

/// node-mongodb-native 3363 (NODE-4429): closing a client looked for a server for 30 s, to end its
/// sessions, when all were gone.
#[tokio::test]
async fn a_client_whose_servers_are_gone_is_closed_soon() {
    let fixture = Fixture::new().await;
    let own = fixture.client.start_session().await.unwrap();
    let things = fixture.things().with_session(&own);
    things.insert_one(&doc! { "_id": 7 }).await.unwrap();
    own.end();
    fixture.cluster.kill(MemberId(0)).await.unwrap();
    let closed = tokio::time::timeout(LIMIT, fixture.client.topology().close()).await;
    assert!(closed.is_ok(), "it still waits");
}

/// vibe.d 2716: the next batch of a collection with a dot in its name was asked of another one.
#[tokio::test]
async fn a_collection_may_have_dots_in_its_name() {
    let mut fixture = Fixture::new().await;
    let dotted = fixture.client.database("app").collection::<Document>("a.b.app.c");
    let documents: Vec<Document> = (0..5).map(|id| doc! { "_id": id }).collect();
    dotted.insert_many(&documents).await.unwrap();
    let found = dotted.find(doc! {}).batch_size(2).await.unwrap().try_collect::<Vec<_>>().await;
    assert_eq!(found.unwrap(), documents);
    assert_eq!(fixture.sent()[2].get_str("collection").unwrap(), "a.b.app.c");
}

/// mongo-php-driver 217 (PHPC-515): a negative limit is one batch of so many. Mongoose 6835: a
/// limit above the number of documents cut them at 1,000.
#[tokio::test]
async fn limits_below_zero_and_beyond_all_documents_find_what_they_say() {
    let mut fixture = Fixture::new().await;
    fixture.fill(1001).await;
    let count = async |options: OptionsBuilder<FindOptions>| {
        let cursor = fixture.things().find(doc! {}).with_options(options.build()).await.unwrap();
        cursor.try_collect::<Vec<_>>().await.unwrap().len()
    };
    assert_eq!(count(FindOptions::builder().limit(-7)).await, 7);
    assert_eq!(count(FindOptions::builder().limit(i64::MIN)).await, 1001);
    assert_eq!(count(FindOptions::builder().limit(2000)).await, 1001);
    assert_eq!(count(FindOptions::builder().limit(2000).batch_size(500)).await, 1001);
    let sent = fixture.sent();
    assert_eq!(names(&sent)[..2], ["find", "find"]);
    assert_eq!(sent[0].get_i64("limit").unwrap(), 7);
    assert!(sent[0].get_bool("singleBatch").unwrap());
}

/// infra-controller 6395, nodejs 38326: addresses of version 6 without brackets, and with the zone
/// of a link.
#[test]
fn an_address_of_version_6_needs_brackets_and_may_have_a_zone() {
    let error = Options::parse("mongodb://2001:db8::10:27017/").unwrap_err().to_string();
    assert!(error.contains('['), "{error}");
    let zoned = Options::parse("mongodb://[fe80::1%25lo]:27018/");
    assert!(zoned.is_ok(), "{zoned:?}");
}
