//! Writes that are sent again.

use std::task::Poll;

use bson::{Document, doc};
use sdam::generic::Client;
use sdam::operation::{DeleteModel, InsertModel, UpdateModel, WriteModel};
use sdam_cluster::ServerVersion;
use sdam_core::config::{Acknowledgment, Options, ReadMode, ReadPreference, WriteConcern};
use sdam_core::metrics::Exposition;
use sdam_core::topology::Topics;

use super::{Fixture, names, session};

/// Retryable Writes, "Executing Retryable Write Commands": the number is the same, so that a write
/// whose reply was lost is done once.
#[tokio::test]
async fn a_write_that_is_sent_again_is_done_once() {
    let mut fixture = Fixture::new().await;
    fixture.fill(1).await;
    let concern = doc! { "code": 91, "errmsg": "", "errorLabels": ["RetryableWriteError"] };
    let data = doc! { "failCommands": ["update"], "writeConcernError": concern };
    fixture.fail(1, data).await;
    let increment = doc! { "$inc": { "n": 1 } };
    let updated = fixture.things().update_one(doc! { "_id": 0 }, increment).await.unwrap();
    assert_eq!(updated.modified_count, 1);
    let sent = fixture.sent();
    assert_eq!(names(&sent), ["update", "update"]);
    assert_eq!(sent[0].get_i64("txnNumber").unwrap(), sent[1].get_i64("txnNumber").unwrap());
    assert_eq!(session(&sent[0]), session(&sent[1]));
    let found = fixture.things().find_one(doc! { "_id": 0 }).await.unwrap();
    assert_eq!(found, Some(doc! { "_id": 0, "n": 1 }));
}

/// Retryable Writes, "RetryableWriteError Labels": with servers before 4.4, "the driver MUST add a
/// RetryableWriteError label" by the code in "the `writeConcernError.code` field", too; a bulk goes
/// on, and its error has the label.
#[tokio::test]
async fn the_error_of_a_write_concern_of_an_old_server_has_the_label_that_the_client_gives_it() {
    let mut fixture = Fixture::of(ServerVersion::V4_2).await;
    let concern = doc! { "code": 91, "errmsg": "Replication is being shut down" };
    let data = doc! { "failCommands": ["insert"], "writeConcernError": concern };
    fixture.fail(2, data.clone()).await;
    let error = fixture.things().insert_one(&doc! { "_id": 1 }).await.unwrap_err();
    assert_eq!((error.code(), error.labels()), (Some(91), vec!["RetryableWriteError"]));
    assert_eq!(names(&fixture.sent()), ["insert", "insert"]);

    fixture.fail(2, data).await;
    let insert = WriteModel::InsertOne(InsertModel::new(doc! { "_id": 2 }));
    let delete = WriteModel::DeleteOne(DeleteModel::new(doc! { "_id": 1 }));
    let error = fixture.things().bulk_write([insert, delete]).await.unwrap_err();
    assert_eq!((error.code(), error.labels()), (Some(91), vec!["RetryableWriteError"]));
    assert_eq!(names(&fixture.sent()), ["insert", "insert", "delete"]);
}

/// Bulk Write, "ordered": of writes that have no reply, each is done after the one before it, which
/// a second connection would not keep to.
#[tokio::test]
async fn writes_without_acknowledgment_go_over_one_connection_in_their_order() {
    const BULKS: i32 = 8;
    let mut fixture = Fixture::new().await;
    let options = Options::parse(&format!("{}&maxPoolSize=2", fixture.uri())).unwrap();
    let client = sdam_tokio::Topology::new(options).unwrap();
    fixture.events = client.subscribe_to(Topics::COMMANDS);
    fixture.client = Client::from(client);
    let none = WriteConcern::default().with_w(Some(Acknowledgment::Servers(0)));
    let things = fixture.things().with_write_concern(none);
    let bulks = (0..BULKS).map(|id| {
        let things = things.clone();
        let long = doc! { "_id": id, "text": "x".repeat(2 << 20) };
        let update = UpdateModel::new(doc! { "_id": id }, doc! { "$set": { "done": true } });
        let models = [
            WriteModel::InsertOne(InsertModel::new(long)),
            WriteModel::UpdateOne(update),
            WriteModel::DeleteOne(DeleteModel::new(doc! { "_id": id + BULKS })),
        ];
        tokio::spawn(async move { things.bulk_write(models).await.unwrap() })
    });
    for bulk in bulks.collect::<Vec<_>>() {
        assert!(!bulk.await.unwrap().acknowledged);
    }
    let sent = fixture.sent_over();
    assert_eq!(sent.len(), 3 * BULKS as usize);
    for id in 0..BULKS {
        let of_bulk = |command: &Document| {
            let first = |name| command.get_array(name).ok()?.first()?.as_document();
            let is = |document: &Document, id| document.get_i32("_id").ok() == Some(id);
            let filter = |name| first(name).and_then(|it| it.get_document("q").ok());
            first("documents").is_some_and(|it| is(it, id))
                || filter("updates").is_some_and(|it| is(it, id))
                || filter("deletes").is_some_and(|it| is(it, id + BULKS))
        };
        let over: Vec<_> = sent.iter().filter(|(it, _)| of_bulk(it)).map(|it| it.1).collect();
        assert_eq!(over.len(), 3);
        assert!(over.iter().all(|it| *it == over[0]), "the bulk {id} went over {over:?}");
    }
    let many = [7, 8].map(|id| WriteModel::InsertOne(InsertModel::new(doc! { "_id": 100 + id })));
    fixture.things().bulk_write(many).await.unwrap();
    let counts = fixture.client.topology().members()[0].counts();
    assert_eq!(counts.total(), counts.available, "every connection has come back");
}

/// CRUD, "Read preferences and server selection": with a server before 5.0, drivers "MUST NOT use
/// the available read preference", also where no server is known when the operation begins.
#[tokio::test]
async fn a_pipeline_that_writes_heeds_no_read_preference_before_5_0() {
    for (version, expected) in [
        (ServerVersion::V4_4, None),
        (ServerVersion::V5_0, Some(doc! { "mode": "secondaryPreferred" })),
    ] {
        let mut fixture = Fixture::of(version).await;
        fixture.fill(1).await;
        fixture.begin_anew();
        let preference = ReadPreference::new(ReadMode::SecondaryPreferred);
        let things = fixture.things().with_read_preference(preference);
        let out = [doc! { "$match": {} }, doc! { "$out": "copies" }];
        things.aggregate(out).await.unwrap().try_collect::<Vec<_>>().await.unwrap();
        let sent = fixture.sent();
        assert_eq!(names(&sent), ["aggregate"]);
        assert_eq!(sent[0].get_document("$readPreference").ok(), expected.as_ref(), "{version:?}");
        let copies = fixture.client.database("app").collection::<Document>("copies");
        assert_eq!(copies.find_one(doc! {}).await.unwrap(), Some(doc! { "_id": 0 }));
    }
}

/// "Bulk Write": each batch is a command with a number of its own, and is sent again as it was.
#[tokio::test]
async fn each_batch_of_a_bulk_has_its_number_and_is_sent_again_by_itself() {
    let mut fixture = Fixture::new().await;
    fixture.fill(2).await;
    fixture.fail(1, doc! { "failCommands": ["delete"], "closeConnection": true }).await;
    let increment = doc! { "$inc": { "n": 1 } };
    let many = UpdateModel::new(doc! {}, increment.clone());
    let bulk = [
        WriteModel::InsertOne(InsertModel::new(doc! { "_id": 7 })),
        WriteModel::UpdateOne(UpdateModel::new(doc! { "_id": 0 }, increment)),
        WriteModel::DeleteOne(DeleteModel::new(doc! { "_id": 1 })),
        WriteModel::UpdateMany(many),
    ];
    let done = fixture.things().bulk_write(bulk).await.unwrap();
    assert_eq!((done.inserted_count, done.modified_count, done.deleted_count), (1, 3, 1));
    let sent = fixture.sent();
    assert_eq!(names(&sent), ["insert", "update", "delete", "delete", "update"]);
    let number = |index: usize| sent[index].get_i64("txnNumber").ok();
    assert_eq!([0, 1, 2, 3, 4].map(number), [Some(1), Some(2), Some(3), Some(3), None]);
    assert!(sent.iter().all(|command| session(command) == session(&sent[0])));
    assert_eq!(sent[2].get("deletes"), sent[3].get("deletes"));
}

/// OpenTelemetry's conventions for database clients, `db.client.operation.duration`: the operation
/// that the application calls, once, with the error that it gets.
#[tokio::test]
async fn a_bulk_of_several_commands_is_counted_as_one_operation() {
    let fixture = Fixture::new().await;
    fixture.fill(2).await;
    let client = fixture.client.topology();
    let count = || {
        let text = Exposition::new(&client.metrics()).to_string();
        let of = |line: &&str| line.starts_with("db_client_operation_duration_seconds_count");
        text.lines().filter(of).map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(count().is_empty());
    let bulk = |id| {
        let increment = UpdateModel::new(doc! { "_id": 0 }, doc! { "$inc": { "n": 1 } });
        [
            WriteModel::InsertOne(InsertModel::new(doc! { "_id": id })),
            WriteModel::UpdateOne(increment),
            WriteModel::DeleteOne(DeleteModel::new(doc! { "_id": 1 })),
        ]
    };
    fixture.things().bulk_write(bulk(7)).await.unwrap();
    let [counted] = &count()[..] else { panic!("{:?}", count()) };
    assert!(counted.contains("=\"bulkWrite\"") && counted.ends_with("} 1"), "{counted}");
    assert!(counted.contains("server_address") && !counted.contains("error_type"), "{counted}");
    // The number of its document is taken.
    fixture.things().bulk_write(bulk(7)).await.unwrap_err();
    let refused = count().into_iter().find(|line| line.contains("error_type=\"11000\""));
    assert!(refused.is_some_and(|line| line.ends_with("} 1")), "{:?}", count());
    assert_eq!(count().len(), 2);
    // One that is given up has ended, too.
    let things = fixture.things();
    let mut given_up = things.bulk_write(bulk(8)).into_future();
    let polled = std::future::poll_fn(|cx| Poll::Ready(given_up.as_mut().poll(cx))).await;
    assert!(polled.is_pending());
    drop(given_up);
    assert!(count().iter().any(|line| line.contains("error_type=\"canceled\"")), "{:?}", count());
}

/// Retryable Reads: a read is sent again, too.
#[tokio::test]
async fn a_read_is_sent_again() {
    let mut fixture = Fixture::new().await;
    fixture.fill(3).await;
    fixture.fail(1, doc! { "failCommands": ["find"], "closeConnection": true }).await;
    let found =
        fixture.things().find(doc! {}).await.unwrap().try_collect::<Vec<_>>().await.unwrap();
    assert_eq!(found.len(), 3);
    assert_eq!(names(&fixture.sent()), ["find", "find"]);
}

/// Driver Sessions, "When using unacknowledged writes".
#[tokio::test]
async fn writes_without_acknowledgment_have_no_session() {
    let mut fixture = Fixture::new().await;
    let concern = WriteConcern::default().with_w(Some(Acknowledgment::Servers(0)));
    let things = fixture.things().with_write_concern(concern);
    let insert = WriteModel::InsertOne(InsertModel::new(doc! { "_id": 7 }));
    assert!(!things.bulk_write([insert.clone()]).await.unwrap().acknowledged);
    let sent = fixture.sent();
    assert_eq!(names(&sent), ["insert"]);
    assert!(!sent[0].contains_key("lsid") && !sent[0].contains_key("txnNumber"));
    let session = fixture.client.start_session().await.unwrap();
    let refused = things.with_session(&session).bulk_write([insert]).await;
    assert!(refused.unwrap_err().to_string().contains("not acknowledged"));
    assert!(fixture.sent().is_empty());
}
