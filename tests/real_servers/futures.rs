//! The handles for runtimes with futures.

use std::time::Duration;

use bson::{Document, doc};
use libtest_mimic::Failed;
use sdam::generic::{Client, Collection, Database};
use sdam::operation::{DeleteModel, IndexModel, InsertModel, UpdateModel, WriteModel};
use sdam::options::{CursorType, ReturnDocument, ValidationLevel};
use sdam_blocking::driver::DriverTopology;
use sdam_core::command::CommandEvent;
use sdam_core::config::{Acknowledgment, Options, ReadConcern, WriteConcern};
use sdam_core::pool::PoolEvent;
use sdam_core::topology::{EventKind, Topics};
use sdam_host::{ErrorKind, Runtime};

use super::{Thing, thing};

type Outcome<T = ()> = Result<T, Failed>;

pub(crate) fn tokio(options: &Options) -> Outcome {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build()?;
    runtime.block_on(async { everything(sdam_tokio::Topology::new(options.clone())?).await })
}

pub(crate) fn smol(options: &Options) -> Outcome {
    smol::block_on(async {
        everything(sdam_async_std::smol::Topology::new(options.clone())?).await
    })
}

pub(crate) fn async_std(options: &Options) -> Outcome {
    let client =
        async { everything(sdam_async_std::async_std::Topology::new(options.clone())?).await };
    async_std::task::block_on(client)
}

pub(crate) fn blocking(options: &Options) -> Outcome {
    let client = sdam_blocking::Topology::new(options.clone())?;
    client.wait(everything(client.host_topology()))
}

async fn everything<R: Runtime>(client: sdam_host::Topology<R>) -> Outcome {
    let client = Client::from(client);
    let database = client.database("app");
    let things = database.collection::<Thing>("things");
    inserts(&things).await?;
    finds(&things).await?;
    updates(&things).await?;
    counts(&database, &things).await?;
    bulks(&client, &things).await?;
    concerns(&things).await?;
    deletes(&things).await?;
    indexes(&things).await?;
    catalogue(&client, &database).await?;
    tailable(&database).await?;
    commands(&database).await?;
    dropped_cursors(&database).await?;
    streamed_cursors(&client, &database).await?;
    database.drop().await?;
    client.topology().close().await;
    Ok(())
}

async fn inserts<R: Runtime>(things: &Collection<R, Thing>) -> Outcome {
    let one = things.insert_one(thing(0)).await?;
    assert_eq!((one.acknowledged, one.inserted_id), (true, 0.into()));
    let many: Vec<Thing> = (1..100).map(thing).collect();
    assert_eq!(things.insert_many(&many).await?.inserted_ids.len(), 99);
    let error = things.insert_one(thing(0)).await.unwrap_err();
    assert_eq!(error.as_write().map(|it| it.code), Some(11000));
    assert!(error.is_duplicate_key());
    let error = things.insert_many([thing(1000), thing(0), thing(1001)]).await.unwrap_err();
    assert!(error.is_duplicate_key());
    let error = error.as_bulk_write().unwrap();
    assert_eq!(error.write_errors.keys().collect::<Vec<_>>(), [&1]);
    assert_eq!(error.partial_result.inserted_count, 1);
    let unordered = things.insert_many([thing(0), thing(1001)]).ordered(false);
    let error = unordered.await.unwrap_err();
    let error = error.as_bulk_write().unwrap();
    assert_eq!(error.partial_result.inserted_ids[&1], 1001.into());
    assert_eq!(things.delete_many(doc! { "_id": { "$gte": 1000 } }).await?.deleted_count, 2);
    // Documents without an _id are given one.
    let documents = things.clone_with_type::<Document>();
    let id = documents.insert_one(&doc! { "n": 1 }).await?.inserted_id;
    assert_eq!(documents.delete_one(doc! { "_id": id }).await?.deleted_count, 1);
    Ok(())
}

async fn finds<R: Runtime>(things: &Collection<R, Thing>) -> Outcome {
    let sorted = || things.find(doc! {}).sort(doc! { "_id": 1 });
    let mut cursor = sorted().batch_size(7).comment("batches").await?;
    for id in 0..100 {
        assert_eq!(cursor.try_next().await?, Some(thing(id)));
    }
    assert!(cursor.next().await.is_none() && !cursor.is_alive());
    for (limit, batch_size) in [(5, 0), (5, 5), (5, 3), (-5, 0), (5, 100)] {
        let found = sorted().skip(10).limit(limit).batch_size(batch_size).await?;
        let found = found.try_collect::<Vec<_>>().await?;
        assert_eq!(found, (10..15).map(thing).collect::<Vec<_>>());
    }
    assert_eq!(things.find_one(doc! { "n": 50 }).await?, Some(thing(5)));
    let last = things.find_one(doc! {}).sort(doc! { "_id": -1 });
    assert_eq!(last.await?, Some(thing(99)));
    assert_eq!(things.find_one(doc! { "n": -1 }).await?, None);
    let Err(error) = things.find(doc! { "$nonsense": 1 }).await else { panic!() };
    assert_eq!(error.code(), Some(2));
    // A document of another type is an error, and no end.
    let names = things.clone_with_type::<String>();
    let mut cursor = names.find(doc! {}).await?;
    let error = cursor.next().await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Deserialize);
    cursor.close().await;
    Ok(())
}

async fn updates<R: Runtime>(things: &Collection<R, Thing>) -> Outcome {
    let increment = doc! { "$inc": { "n": 1 } };
    let one = things.update_one(doc! { "kind": "odd" }, increment.clone()).await?;
    assert_eq!((one.matched_count, one.modified_count, one.upserted_id), (1, 1, None));
    let many = things.update_many(doc! { "kind": "even" }, increment.clone()).await?;
    assert_eq!((many.matched_count, many.modified_count), (50, 50));
    let pipeline = [doc! { "$set": { "kind": { "$concat": ["$kind", "!"] } } }];
    things.update_one(doc! { "_id": 1 }, pipeline).await?;
    assert_eq!(
        things.find_one(doc! { "_id": 1 }).await?.map(|it| it.kind).as_deref(),
        Some("odd!")
    );
    let (filter, set) = (|| doc! { "_id": 200 }, doc! { "$set": { "kind": "new", "n": 1_i64 } });
    let upserted = things.update_one(filter(), set).upsert(true).await?;
    assert_eq!((upserted.matched_count, upserted.upserted_id), (0, Some(200.into())));
    let replaced = things.replace_one(filter(), thing(200)).await?;
    assert_eq!(replaced.modified_count, 1);
    let update = things.find_one_and_update(filter(), increment);
    let after = update.clone().return_document(ReturnDocument::After);
    assert_eq!(update.await?, Some(thing(200)));
    assert_eq!(after.await?.map(|it| it.n), Some(2002));
    let replaced = things.find_one_and_replace(filter(), thing(200)).await?;
    assert_eq!(replaced.map(|it| it.n), Some(2002));
    assert_eq!(things.find_one_and_delete(filter()).await?, Some(thing(200)));
    assert_eq!(things.find_one_and_delete(filter()).await?, None);
    let invalid = things.update_one(doc! {}, doc! { "n": 1 }).await;
    assert!(invalid.unwrap_err().as_argument().is_some());
    Ok(())
}

async fn counts<R: Runtime>(database: &Database<R>, things: &Collection<R, Thing>) -> Outcome {
    assert_eq!(things.count_documents(doc! {}).await?, 100);
    let some = things.count_documents(doc! { "kind": "even" }).skip(10).limit(100);
    assert_eq!(some.await?, 40);
    assert_eq!(things.count_documents(doc! { "n": -1 }).await?, 0);
    assert_eq!(things.estimated_document_count().await?, 100);
    assert_eq!(things.count(doc! { "kind": "even" }).await?, 50);
    let mut kinds = things.distinct("kind", doc! {}).with_type::<String>().await?;
    kinds.sort();
    assert_eq!(kinds, ["even", "odd", "odd!"]);
    let group = doc! { "$group": { "_id": "$kind", "count": { "$sum": 1 } } };
    let groups = things.aggregate([group, doc! { "$sort": { "_id": 1 } }]).batch_size(1);
    let groups = groups.await?.try_collect::<Vec<_>>().await?;
    assert_eq!(groups[0], doc! { "_id": "even", "count": 50 });
    assert_eq!(groups.len(), 3);
    let out = [doc! { "$match": { "_id": 1 } }, doc! { "$out": "copies" }];
    let nothing = things.aggregate(out).await?.try_collect::<Vec<_>>().await?;
    assert!(nothing.is_empty());
    let copies = database.collection::<Thing>("copies");
    assert_eq!(copies.count_documents(doc! {}).await?, 1);
    let local = [doc! { "$listLocalSessions": {} }, doc! { "$limit": 1 }];
    database.aggregate(local).await?.try_collect::<Vec<_>>().await?;
    Ok(())
}

async fn bulks<R: Runtime>(client: &Client<R>, things: &Collection<R, Thing>) -> Outcome {
    let set = doc! { "$set": { "kind": "bulk" } };
    let models = || {
        [
            WriteModel::InsertOne(InsertModel::new(thing(300))),
            WriteModel::UpdateMany(UpdateModel::new(doc! { "_id": { "$lt": 3 } }, set.clone())),
            WriteModel::DeleteOne(DeleteModel::new(doc! { "_id": 300 })),
        ]
    };
    let result = things.bulk_write(models()).await?;
    assert_eq!((result.inserted_count, result.matched_count, result.deleted_count), (1, 3, 1));
    assert_eq!(result.inserted_ids[&0], 300.into());
    let twice = models().into_iter().chain([
        WriteModel::InsertOne(InsertModel::new(thing(0))),
        WriteModel::InsertOne(InsertModel::new(thing(301))),
    ]);
    let error = things.bulk_write(twice).await.unwrap_err();
    let error = error.as_bulk_write().unwrap();
    assert_eq!(error.write_errors[&3].code, 11000);
    assert_eq!(error.partial_result.deleted_count, 1);
    // MongoDB 8.0 has the command.
    let error = client.bulk_write([("app.things", models()[0].clone())]).await.unwrap_err();
    assert_eq!(error.code(), Some(59), "{error}");
    Ok(())
}

async fn concerns<R: Runtime>(things: &Collection<R, Thing>) -> Outcome {
    let w = |w| WriteConcern::default().with_w(Some(w));
    let unacknowledged = things.with_write_concern(w(Acknowledgment::Servers(0)));
    assert!(!unacknowledged.insert_one(thing(400)).await?.acknowledged);
    let update = doc! { "$set": { "n": 1_i64 } };
    assert!(!unacknowledged.update_one(doc! { "_id": 400 }, update).await?.acknowledged);
    let mut tries = 0;
    while things.find_one(doc! { "_id": 400 }).await?.is_none_or(|it| it.n != 1) {
        tries += 1;
        assert!(tries < 100_000, "it was never written");
    }
    // Together longer than a command may be: they are a sequence beside it, or lost unnoticed.
    let text = "x".repeat(6 * 1024 * 1024);
    let long: Vec<Document> = (500..503).map(|id| doc! { "_id": id, "text": &text }).collect();
    let documents = unacknowledged.clone_with_type::<Document>();
    assert!(!documents.insert_many(&long).await?.acknowledged);
    let ids = doc! { "_id": { "$gte": 500, "$lt": 503 } };
    let mut tries = 0;
    while things.count_documents(ids.clone()).await? != 3 {
        tries += 1;
        assert!(tries < 100_000, "they were never written");
    }
    assert_eq!(things.delete_many(ids).await?.deleted_count, 3);
    let majority = things.with_write_concern(w(Acknowledgment::Named("majority".to_owned())));
    assert_eq!(majority.delete_one(doc! { "_id": 400 }).await?.deleted_count, 1);
    let level = ReadConcern::default().with_level(Some("local".to_owned()));
    let local = things.with_read_concern(level);
    assert_eq!(local.find(doc! { "_id": 5 }).await?.try_collect::<Vec<_>>().await?.len(), 1);
    let level = ReadConcern::default().with_level(Some("nonsense".to_owned()));
    assert!(things.with_read_concern(level).count_documents(doc! {}).await.is_err());
    Ok(())
}

async fn deletes<R: Runtime>(things: &Collection<R, Thing>) -> Outcome {
    let one = things.delete_one(doc! { "kind": "odd" }).collation(doc! { "locale": "en" });
    assert_eq!(one.await?.deleted_count, 1);
    assert_eq!(things.delete_many(doc! { "kind": "even" }).await?.deleted_count, 48);
    Ok(())
}

async fn indexes<R: Runtime>(things: &Collection<R, Thing>) -> Outcome {
    assert_eq!(things.create_index(doc! { "n": -1 }).await?, "n_-1");
    let model = IndexModel::new(doc! { "kind": 1 }).name("kinds").sparse(true);
    let more = [model, IndexModel::new(doc! { "a": 1, "b": "text" })];
    assert_eq!(things.create_indexes(more).await?, ["kinds", "a_1_b_text"]);
    let mut names = things.list_index_names().batch_size(2).await?;
    names.sort();
    assert_eq!(names, ["_id_", "a_1_b_text", "kinds", "n_-1"]);
    let listed = things.list_indexes().await?.try_collect::<Vec<_>>().await?;
    assert_eq!(listed.len(), 4);
    let hinted = things.find(doc! {}).hint("kinds").limit(1);
    assert_eq!(hinted.await?.try_collect::<Vec<_>>().await?.len(), 1);
    things.drop_index("kinds").await?;
    things.drop_indexes().await?;
    assert_eq!(things.list_index_names().await?, ["_id_"]);
    assert!(things.drop_index("*").await.unwrap_err().as_argument().is_some());
    assert!(things.drop_index("none").await.is_err());
    Ok(())
}

async fn catalogue<R: Runtime>(client: &Client<R>, database: &Database<R>) -> Outcome {
    let names = client.list_database_names().await?;
    assert!(names.iter().any(|name| name == "app"), "{names:?}");
    let found = client.list_databases().filter(doc! { "name": "app" }).await?;
    assert_eq!((found[0].name.as_str(), found[0].empty), ("app", false));
    let validator = doc! { "n": { "$gte": 0 } };
    let strict = database.create_collection("strict").validator(validator);
    strict.validation_level(ValidationLevel::Strict).await?;
    let strict = database.collection::<Document>("strict");
    let error = strict.insert_one(&doc! { "n": -1 }).await.unwrap_err();
    assert_eq!(error.as_write().map(|it| it.code), Some(121));
    strict.modify().validator(doc! {}).await?;
    strict.insert_one(&doc! { "n": -1 }).await?;
    let listed = database.list_collections().batch_size(1).await?;
    let names = database.list_collection_names().batch_size(1).await?;
    assert_eq!(listed.try_collect::<Vec<_>>().await?.len(), names.len());
    assert!(["strict", "things", "copies"].iter().all(|name| names.iter().any(|it| it == name)));
    strict.rename("app.loose").await?;
    let loose = database.collection::<Document>("loose");
    assert_eq!(loose.count_documents(doc! {}).await?, 1);
    loose.drop().await?;
    // It is no error that there is none.
    loose.drop().await?;
    assert!(loose.list_index_names().await?.is_empty());
    Ok(())
}

async fn tailable<R: Runtime>(database: &Database<R>) -> Outcome {
    database.create_collection("capped").capped(true).size(100_000).await?;
    let capped = database.collection::<Document>("capped");
    capped.insert_one(&doc! { "_id": 1 }).await?;
    let find = capped.find(doc! {}).cursor_type(CursorType::TailableAwait);
    let mut cursor = find.max_await_time(Duration::from_millis(1)).await?;
    assert_eq!(cursor.next_if_any().await?, Some(doc! { "_id": 1 }));
    assert!(cursor.next_if_any().await?.is_none() && cursor.is_alive());
    capped.insert_one(&doc! { "_id": 2 }).await?;
    assert_eq!(cursor.try_next().await?, Some(doc! { "_id": 2 }));
    cursor.close().await;
    Ok(())
}

async fn commands<R: Runtime>(database: &Database<R>) -> Outcome {
    let reply = database.run_command(doc! { "ping": 1 }).await?;
    assert_eq!(reply.get_f64("ok")?, 1.0);
    let error = database.run_command(doc! { "nonsense": 1 }).await.unwrap_err();
    assert_eq!(error.code(), Some(59));
    let find = doc! { "find": "things", "batchSize": 2, "limit": 7 };
    let cursor = database.run_cursor_command(find).batch_size(3).await?;
    let found = cursor.try_collect::<Vec<_>>().await?;
    assert_eq!(found.len(), 7);
    let ping = database.run_cursor_command(doc! { "ping": 1 }).await;
    assert!(ping.unwrap_err().as_reply().is_some());
    Ok(())
}

/// A cursor that is dropped is closed at its server, while others ask how many there are.
async fn dropped_cursors<R: Runtime>(database: &Database<R>) -> Outcome {
    let things = database.collection::<Thing>("things");
    let before = open_cursors(database).await?;
    let mut cursor = things.find(doc! {}).batch_size(2).await?;
    cursor.next().await.transpose()?;
    assert_eq!(open_cursors(database).await?, before + 1);
    drop(cursor);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while open_cursors(database).await? != before {
        assert!(std::time::Instant::now() < deadline, "it is open for ever");
    }
    Ok(())
}

/// "The client MUST either consume all messages with the moreToCome flag set or close the
/// connection" (OP_MSG): the server sends batches without being asked, and closes a cursor whose
/// connection is closed.
async fn streamed_cursors<R: Runtime>(client: &Client<R>, database: &Database<R>) -> Outcome {
    let streamed = database.collection::<Document>("streamed");
    let text = "x".repeat(1000);
    let documents: Vec<Document> = (0..500).map(|id| doc! { "_id": id, "text": &text }).collect();
    streamed.insert_many(&documents).await?;
    let find = || streamed.find(doc! {}).cursor_type(CursorType::Exhaust).batch_size(7);
    let mut events = client.topology().subscribe_to(Topics::POOLS.with(Topics::COMMANDS));
    let mut heard = || -> (usize, usize) {
        let (mut more, mut closed) = (0, 0);
        while let Some(event) = events.try_next() {
            match event.kind {
                EventKind::Command {
                    command,
                    event: CommandEvent::CommandSucceeded { .. },
                    ..
                } => {
                    more += usize::from(command.command_name == "getMore");
                }
                EventKind::Pool { event: PoolEvent::ConnectionClosed { .. }, .. } => closed += 1,
                _ => {}
            }
        }
        (more, closed)
    };
    let before = open_cursors(database).await?;
    let found = find().await?.try_collect::<Vec<_>>().await?;
    assert_eq!(found, documents);
    assert_eq!(heard(), (71, 0), "500 documents are 72 batches");
    assert_eq!(open_cursors(database).await?, before);

    let mut cursor = find().await?;
    for _ in 0..10 {
        cursor.next().await.transpose()?;
    }
    drop(cursor);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while open_cursors(database).await? != before {
        assert!(std::time::Instant::now() < deadline, "it is open for ever");
    }
    assert_eq!(heard(), (1, 1), "its connection is closed, with what was to come");
    Ok(())
}

async fn open_cursors<R: Runtime>(database: &Database<R>) -> Outcome<i64> {
    let status = database.run_command(doc! { "serverStatus": 1 }).await?;
    let open = status.get_document("metrics")?.get_document("cursor")?.get_document("open")?;
    Ok(open.get_i64("total")?)
}
