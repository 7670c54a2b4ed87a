//! The spans of typed operations.

use opentelemetry::trace::{SpanId, Status};
use sdam::bson::{Document, doc};
use sdam::core::config::Options;
use sdam::generic::Client;
use sdam::operation::{DeleteModel, InsertModel, WriteModel};
use sdam_cluster::{EmbeddedCluster, EmbeddedOptions};

use crate::kept::{Kept, text};

crate::scenarios![
    typed_operations_are_named_as_in_all_drivers,
    a_cursor_is_continued_and_closed_in_operations_of_their_own,
    an_operation_that_is_refused_has_the_exception,
    a_stream_that_begins_again_has_left_the_span_of_the_get_more_that_failed,
];

type Collection = sdam::generic::Collection<sdam::tokio::Tokio, Document>;

/// A collection whose spans are kept, and its deployment.
async fn fixture() -> (Kept, Client<sdam::tokio::Tokio>, Collection, EmbeddedCluster) {
    let cluster = EmbeddedOptions::default().with_keeps_data(true);
    let cluster = EmbeddedCluster::start(cluster).await.unwrap();
    let (kept, options) = (Kept::new(), Options::parse(&cluster.uri()).unwrap());
    let client = sdam::Topology::builder(options).tracer(kept.tracer()).build().unwrap();
    let client = Client::from(client);
    let users = client.database("app").collection("users");
    (kept, client, users, cluster)
}

/// OpenTelemetry, "Operation Span Name", "Covered operations".
async fn typed_operations_are_named_as_in_all_drivers() {
    let (kept, client, users, _cluster) = fixture().await;
    client.database("app").create_collection("users").await.unwrap();
    assert_eq!(kept.tree(), "createCollection app.users\n  create\n");
    users.insert_many(&[doc! { "_id": 1 }, doc! { "_id": 2 }]).await.unwrap();
    assert_eq!(kept.tree(), "insert app.users\n  insert\n");
    users.find_one(doc! {}).await.unwrap();
    assert_eq!(kept.tree(), "find app.users\n  find\n");
    users.find_one_and_delete(doc! { "_id": 1 }).await.unwrap();
    assert_eq!(kept.tree(), "findAndModify app.users\n  findAndModify\n");
    users.count_documents(doc! {}).await.unwrap();
    assert_eq!(kept.tree(), "aggregate app.users\n  aggregate\n");
    let insert = WriteModel::InsertOne(InsertModel::new(doc! { "_id": 3 }));
    let delete = WriteModel::DeleteOne(DeleteModel::new(doc! { "_id": 3 }));
    users.bulk_write([insert, delete]).await.unwrap();
    assert_eq!(kept.tree(), "bulkWrite app.users\n  insert\n  delete\n");
    client.list_database_names().await.unwrap();
    assert_eq!(kept.tree(), "listDatabases admin\n  listDatabases\n");
}

/// OpenTelemetry, "db.mongodb.cursor_id": "If the command returns a cursor, or uses a cursor".
async fn a_cursor_is_continued_and_closed_in_operations_of_their_own() {
    let (kept, _, users, _cluster) = fixture().await;
    let many: Vec<_> = (0..9).map(|id| doc! { "_id": id }).collect();
    users.insert_many(&many).await.unwrap();
    kept.take();
    let mut cursor = users.find(doc! {}).batch_size(2).await.unwrap();
    let id = cursor.id().to_string();
    for _ in 0..3 {
        cursor.next().await.unwrap().unwrap();
    }
    cursor.close().await;
    let spans = kept.take();
    let names: Vec<_> = spans.iter().map(|span| &*span.name).collect();
    assert_eq!(
        names,
        [
            "find",
            "find app.users",
            "getMore",
            "getMore app.users",
            "killCursors",
            "killCursors app.users"
        ]
    );
    // Also the operation that consists of getMore (pull request 1973 of the specifications).
    for span in spans.iter().step_by(2).chain([&spans[3]]) {
        let cursor = text(span, "db.mongodb.cursor_id");
        assert_eq!(cursor.as_deref(), Some(&*id), "{}", span.name);
    }
}

/// OpenTelemetry, "Exceptions": "If the driver operation fails with an exception, drivers MUST
/// record an exception to the current operation span."
async fn an_operation_that_is_refused_has_the_exception() {
    let (kept, _, users, _cluster) = fixture().await;
    users.insert_one(&doc! { "_id": 1 }).await.unwrap();
    kept.take();
    // The command has succeeded, and its write has not.
    let error = users.insert_one(&doc! { "_id": 1 }).await.unwrap_err();
    let spans = kept.take();
    let [command, operation] = &*spans else { panic!("{spans:?}") };
    assert_eq!(text(operation, "exception.message"), Some(error.to_string()));
    assert_eq!(text(operation, "exception.type").as_deref(), Some("sdam::Error"));
    assert_eq!(text(command, "exception.type"), None);
    users.insert_many(&[]).await.unwrap_err();
    assert_eq!(kept.tree(), "insert app.users failed with an exception\n");
}

/// OpenTelemetry, pull request 1973 of the specifications: beginning again does not extend the span
/// of the getMore that failed, and each command of it is an operation of its own.
async fn a_stream_that_begins_again_has_left_the_span_of_the_get_more_that_failed() {
    let (kept, client, users, _cluster) = fixture().await;
    client.database("app").create_collection("users").await.unwrap();
    for failure in [doc! { "errorCode": 43 }, doc! { "closeConnection": true }] {
        let mut stream = users.watch().await.unwrap();
        let mut data = doc! { "failCommands": ["getMore"] };
        data.extend(failure);
        let fail =
            doc! { "configureFailPoint": "failCommand", "mode": { "times": 1 }, "data": data };
        client.database("admin").run_command(fail).await.unwrap();
        users.insert_one(&doc! {}).await.unwrap();
        kept.take();
        stream.next().await.unwrap().unwrap();
        // The cursor is killed in the background, where its server may know it.
        let mut spans = kept.take();
        spans.retain(|span| !span.name.starts_with("killCursors"));
        let names: Vec<_> = spans.iter().map(|span| &*span.name).take(4).collect();
        assert_eq!(names, ["getMore", "getMore app.users", "aggregate", "aggregate app.users"]);
        let (failed, again) = (&spans[1], &spans[3]);
        assert_ne!(failed.status, Status::Unset);
        assert_eq!(again.status, Status::Unset);
        assert!(failed.end_time <= again.start_time, "{failed:?} {again:?}");
        for operation in spans.iter().skip(1).step_by(2) {
            assert_eq!(operation.parent_span_id, SpanId::INVALID, "{operation:?}");
        }
    }
}
