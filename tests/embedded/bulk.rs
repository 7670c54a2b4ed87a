//! The prose tests of CRUD about bulks of writes to several collections, which servers take since
//! 8.0.

use bson::{Document, doc};
use sdam::error::{ClientBulkWriteError, Error};
use sdam::operation::{ClientBulkWrite, InsertModel, UpdateModel, WriteModel};
use sdam_cluster::ServerVersion;
use sdam_core::config::{Acknowledgment, WriteConcern};

use super::{Fixture, name, names};

/// As the members say in hello.
const MAX_WRITE_BATCH_SIZE: usize = 100_000;
const MAX_BSON_OBJECT_SIZE: usize = 16 << 20;
const MAX_MESSAGE_SIZE_BYTES: usize = 48_000_000;

const THINGS: &str = "app.things";

async fn fixture() -> Fixture {
    Fixture::of(ServerVersion::V8_0).await
}

fn insert(namespace: &str, document: &Document) -> (String, WriteModel) {
    (namespace.to_owned(), WriteModel::InsertOne(InsertModel::new(document)))
}

/// An insertion of a document with a text of so many characters.
fn long(length: usize) -> (String, WriteModel) {
    insert(THINGS, &doc! { "a": "b".repeat(length) })
}

/// The number of writes of each `bulkWrite` that was sent.
fn sizes(sent: &[Document]) -> Vec<usize> {
    let bulks = sent.iter().filter(|command| name(command) == "bulkWrite");
    bulks.map(|command| command.get_array("ops").unwrap().len()).collect()
}

fn error(outcome: Result<sdam::results::ClientBulkWriteResult, Error>) -> ClientBulkWriteError {
    outcome.unwrap_err().as_client_bulk_write().unwrap().clone()
}

/// CRUD-P3: "`MongoClient.bulkWrite` batch splits a `writeModels` input with greater than
/// `maxWriteBatchSize` operations"; CRUD-P5: "collects `WriteConcernError`s across batches".
#[tokio::test]
async fn more_writes_than_a_command_may_have_are_several_commands() {
    let mut fixture = fixture().await;
    let models = || {
        let one = insert(THINGS, &doc! { "a": "b" });
        std::iter::repeat_n(one, MAX_WRITE_BATCH_SIZE + 1)
    };
    let count = i64::try_from(MAX_WRITE_BATCH_SIZE + 1).unwrap();
    let done = fixture.client.bulk_write(models()).await.unwrap();
    assert_eq!(i64::try_from(done.inserted_count).unwrap(), count);
    assert_eq!(sizes(&fixture.sent()), [MAX_WRITE_BATCH_SIZE, 1]);
    let concern = doc! { "code": 64, "errmsg": "Replication is being waited for" };
    fixture.fail(2, doc! { "failCommands": ["bulkWrite"], "writeConcernError": concern }).await;
    let error = error(fixture.client.bulk_write(models()).await);
    assert_eq!(error.write_concern_errors.len(), 2);
    let partial = error.partial_result.unwrap();
    assert_eq!(i64::try_from(partial.inserted_count).unwrap(), count);
    assert_eq!(sizes(&fixture.sent()).len(), 2);
}

/// CRUD-P4: "batch splits when an `ops` payload exceeds `maxMessageSizeBytes`"; CRUD-P15: "with
/// unacknowledged write concern uses `w:0` for all batches".
#[tokio::test]
async fn more_bytes_than_a_message_may_have_are_several_commands() {
    const COUNT: usize = MAX_MESSAGE_SIZE_BYTES / MAX_BSON_OBJECT_SIZE + 1;
    let mut fixture = fixture().await;
    let models = || std::iter::repeat_n(long(MAX_BSON_OBJECT_SIZE - 500), COUNT);
    let done = fixture.client.bulk_write(models()).await.unwrap();
    assert_eq!(usize::try_from(done.inserted_count).unwrap(), COUNT);
    assert_eq!(sizes(&fixture.sent()), [COUNT - 1, 1]);
    let none = WriteConcern::default().with_w(Some(Acknowledgment::Servers(0)));
    let client = fixture.client.with_write_concern(none);
    let done = client.bulk_write(models()).ordered(false).await.unwrap();
    assert!(!done.acknowledged);
    let sent = fixture.sent();
    assert_eq!(sizes(&sent), [COUNT - 1, 1]);
    for command in &sent {
        let concern = command.get_document("writeConcern").unwrap();
        assert_eq!(concern.get("w").and_then(bson::Bson::as_i32), Some(0), "{}", name(command));
    }
    // The same connection has done what came before.
    let count = fixture.things().count_documents(doc! {}).await.unwrap();
    assert_eq!(usize::try_from(count).unwrap(), 2 * COUNT);
}

/// CRUD-P6: "handles individual `WriteError`s across batches".
#[tokio::test]
async fn refused_writes_are_told_of_every_command() {
    let mut fixture = fixture().await;
    fixture.fill(2).await;
    let models = || {
        let one = insert(THINGS, &doc! { "_id": 1 });
        std::iter::repeat_n(one, MAX_WRITE_BATCH_SIZE + 1)
    };
    for (ordered, errors, commands) in [(false, MAX_WRITE_BATCH_SIZE + 1, 2), (true, 1, 1)] {
        let error = error(fixture.client.bulk_write(models()).ordered(ordered).await);
        assert_eq!(error.write_errors.len(), errors);
        assert_eq!(sizes(&fixture.sent()).len(), commands);
    }
}

/// Upserts whose results do not go into one reply.
fn upserts() -> ClientBulkWrite {
    let upsert = |letter: &str| {
        let filter = doc! { "_id": letter.repeat(MAX_BSON_OBJECT_SIZE / 2) };
        let model = UpdateModel::new(filter, doc! { "$set": { "x": 1 } }).upsert(true);
        (THINGS, WriteModel::UpdateOne(model))
    };
    ClientBulkWrite::new([upsert("a"), upsert("b")]).verbose_results(true)
}

/// CRUD-P7: "handles a cursor requiring a `getMore`"; CRUD-P9: "handles a `getMore` error".
#[tokio::test]
async fn results_come_through_a_cursor() {
    let mut fixture = fixture().await;
    let done = fixture.client.bulk_write(upserts()).await.unwrap();
    let verbose = done.verbose.unwrap();
    assert_eq!((done.upserted_count, verbose.update_results.len()), (2, 2));
    assert_eq!(names(&fixture.sent()), ["bulkWrite", "getMore"]);
    fixture.things().delete_many(doc! {}).await.unwrap();
    fixture.sent();
    fixture.fail(1, doc! { "failCommands": ["getMore"], "errorCode": 8 }).await;
    let error = error(fixture.client.bulk_write(upserts()).await);
    assert_eq!(error.cause.unwrap().code(), Some(8));
    let partial = error.partial_result.unwrap();
    let verbose = partial.verbose.unwrap();
    assert_eq!((partial.upserted_count, verbose.update_results.len()), (2, 1));
    assert_eq!(names(&fixture.sent()), ["bulkWrite", "getMore", "killCursors"]);
}

/// CRUD-P8: "handles a cursor requiring `getMore` within a transaction".
#[tokio::test]
async fn results_come_through_a_cursor_in_a_transaction() {
    let mut fixture = fixture().await;
    let session = fixture.client.start_session().run().unwrap();
    session.start_transaction().await.unwrap();
    let done = fixture.client.bulk_write(upserts()).session(&session).await.unwrap();
    let verbose = done.verbose.unwrap();
    assert_eq!((done.upserted_count, verbose.update_results.len()), (2, 2));
    let sent = fixture.sent();
    assert_eq!(names(&sent), ["bulkWrite", "getMore"]);
    let of_transaction = |command: &Document| {
        let has = |name| command.get_bool(name).ok();
        (command.get_i64("txnNumber").ok(), has("autocommit"), has("startTransaction"))
    };
    let fields: Vec<_> = sent.iter().map(of_transaction).collect();
    assert_eq!(fields, [(Some(1), Some(false), Some(true)), (Some(1), Some(false), None)]);
    session.commit_transaction().await.unwrap();
    assert_eq!(fixture.things().count_documents(doc! {}).await.unwrap(), 2);
}

/// Each attempt opens a cursor of its own: that of one which another follows is closed.
#[tokio::test]
async fn a_bulk_that_is_sent_again_leaves_no_cursor_open() {
    let mut fixture = fixture().await;
    let again = doc! { "code": 91, "errmsg": "", "errorLabels": ["RetryableWriteError"] };
    let again = doc! { "failCommands": ["bulkWrite"], "writeConcernError": again };
    fixture.fail(1, again).await;
    fixture.client.bulk_write(upserts()).await.unwrap();
    let sent = fixture.sent_until("killCursors").await;
    let named = |wanted: &str| sent.iter().filter(|it| it.contains_key(wanted)).count();
    assert_eq!([named("bulkWrite"), named("getMore")], [2, 1]);
    let read = sent.iter().find_map(|it| it.get_i64("getMore").ok()).unwrap();
    let closed = sent.last().unwrap().get_array("cursors").unwrap();
    assert!(closed.len() == 1 && closed[0].as_i64() != Some(read), "{closed:?}, not {read}");
}

/// CRUD-P11: "batch splits when the addition of a new namespace exceeds the maximum message size".
#[tokio::test]
async fn a_namespace_that_makes_a_message_too_long_goes_into_the_next() {
    const BYTES: usize = MAX_MESSAGE_SIZE_BYTES - 1122;
    const REST: usize = BYTES % MAX_BSON_OBJECT_SIZE;
    let mut fixture = fixture().await;
    // As long as "db.coll", which the sizes are those of.
    let namespace = "ap.thin";
    let one = |length: usize| insert(namespace, &doc! { "a": "b".repeat(length) });
    let full = std::iter::repeat_n(one(MAX_BSON_OBJECT_SIZE - 57), BYTES / MAX_BSON_OBJECT_SIZE);
    let mut models: Vec<_> = full.collect();
    if REST >= 217 {
        models.push(one(REST - 57));
    }
    let count = models.len();
    let other = format!("db.{}", "c".repeat(200));
    for (last, expected) in [(namespace, vec![count + 1]), (&other, vec![count, 1])] {
        let last = insert(last, &doc! { "a": "b" });
        let bulk = models.iter().cloned().chain([last.clone()]);
        let done = fixture.client.bulk_write(bulk).await.unwrap();
        assert_eq!(usize::try_from(done.inserted_count).unwrap(), count + 1);
        let sent = fixture.sent();
        assert_eq!(sizes(&sent), expected);
        let spaces = |command: &Document| {
            let spaces = command.get_array("nsInfo").unwrap();
            assert_eq!(spaces.len(), 1);
            spaces[0].as_document().unwrap().get_str("ns").unwrap().to_owned()
        };
        assert_eq!(spaces(&sent[0]), namespace);
        assert_eq!(spaces(sent.last().unwrap()), last.0);
    }
}

/// CRUD-P12: "returns an error if no operations can be added to `ops`".
#[tokio::test]
async fn a_write_that_no_message_can_hold_is_refused() {
    let mut fixture = fixture().await;
    let namespace = format!("db.{}", "c".repeat(MAX_MESSAGE_SIZE_BYTES));
    let models = [long(MAX_MESSAGE_SIZE_BYTES), insert(&namespace, &doc! { "a": "b" })];
    for model in models {
        let outcome = fixture.client.bulk_write([model]).await;
        let error = outcome.unwrap_err();
        // A document is refused with the code that servers have for that.
        assert!(matches!(error.code(), None | Some(10334)), "a client's own error: {error}");
        if let Some(error) = error.as_client_bulk_write() {
            assert!(error.partial_result.is_none());
        }
        assert!(fixture.sent().is_empty());
    }
}
