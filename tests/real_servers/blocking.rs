//! The handles for threads.

use std::time::Duration;

use bson::{Document, doc};
use libtest_mimic::Failed;
use sdam::blocking::{Client, Collection, Database};
use sdam::operation::{DeleteModel, IndexModel, InsertModel, MapReduceOutput, WriteModel};
use sdam::options::{CursorType, ValidationLevel};
use sdam_core::config::Options;

use super::{Thing, thing};

type Outcome<T = ()> = Result<T, Failed>;

pub(crate) fn with_a_thread(options: &Options) -> Outcome {
    everything(sdam_blocking::Topology::new(options.clone())?)
}

pub(crate) fn without_threads(options: &Options) -> Outcome {
    let seeds = options.seeds().iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let uri = format!("mongodb://{seeds}/");
    let options = Options::builder().uri(&uri)?.single_threaded(true).build()?;
    everything(sdam_blocking::Topology::new(options)?)
}

fn everything(client: sdam_blocking::Topology) -> Outcome {
    let client = Client::from(client);
    let database = client.database("app");
    let things = database.collection::<Thing>("things");
    writes(&things)?;
    reads(&things)?;
    map_reduce(&database, &things)?;
    indexes(&things)?;
    database.create_collection("made").run()?;
    let names = database.list_collection_names().run()?;
    assert!(names.iter().any(|name| name == "made"));
    let listed = database.list_collections().run()?;
    assert_eq!(listed.collect::<Result<Vec<_>, _>>()?.len(), names.len());
    assert!(client.list_database_names().run()?.iter().any(|name| name == "app"));
    assert!(!client.list_databases().run()?.is_empty());
    let made = database.collection::<Document>("made");
    made.modify().validation_level(ValidationLevel::Off).run()?;
    made.rename("app.renamed").run()?;
    database.collection::<Document>("renamed").drop().run()?;
    assert_eq!(database.run_command(doc! { "ping": 1 }).run()?.get_f64("ok")?, 1.0);
    let cursor = database.run_cursor_command(doc! { "find": "things" }).run()?;
    assert_eq!(cursor.count(), 30);
    let session = client.start_session().run()?;
    let within = things.with_timeout(Duration::from_secs(60)).with_session(&session);
    assert_eq!(within.find(doc! {}).batch_size(7).run()?.count(), 30);
    session.end();
    assert!(within.find_one(doc! {}).run().is_err());
    let bulk = [("app.things", WriteModel::DeleteOne(DeleteModel::new(doc! {})))];
    assert_eq!(client.bulk_write(bulk).run().unwrap_err().code(), Some(59));
    database.drop().run()?;
    Ok(())
}

fn writes(things: &Collection<Thing>) -> Outcome {
    things.insert_one(thing(0)).run()?;
    things.insert_many((1..30).map(thing)).run()?;
    assert!(things.insert_one(thing(0)).run().unwrap_err().is_duplicate_key());
    let increment = doc! { "$inc": { "n": 1 } };
    things.update_one(doc! { "_id": 1 }, increment.clone()).run()?;
    assert_eq!(things.update_many(doc! {}, increment.clone()).run()?.matched_count, 30);
    things.replace_one(doc! { "_id": 1 }, thing(1)).run()?;
    let one = || doc! { "_id": 1 };
    assert_eq!(things.find_one_and_update(one(), increment).run()?, Some(thing(1)));
    let replaced = things.find_one_and_replace(one(), thing(1)).run()?;
    assert_eq!(replaced.map(|it| it.n), Some(11));
    assert_eq!(things.find_one_and_delete(one()).run()?, Some(thing(1)));
    things.bulk_write([WriteModel::InsertOne(InsertModel::new(thing(1)))]).run()?;
    assert_eq!(things.delete_one(doc! { "_id": 2 }).run()?.deleted_count, 1);
    things.insert_one(thing(2)).run()?;
    assert_eq!(things.delete_many(doc! { "_id": -1 }).run()?.deleted_count, 0);
    Ok(())
}

fn reads(things: &Collection<Thing>) -> Outcome {
    let sorted = things.find(doc! {}).sort(doc! { "_id": 1 }).batch_size(4);
    let found = sorted.run()?.collect::<Result<Vec<_>, _>>()?;
    assert_eq!(found.iter().map(|it| it.id).collect::<Vec<_>>(), (0..30).collect::<Vec<_>>());
    let mut cursor = things.find(doc! {}).batch_size(2).run()?;
    assert!(cursor.next_if_any()?.is_some() && cursor.is_alive());
    cursor.close();
    let exhaust = things.find(doc! {}).cursor_type(CursorType::Exhaust).batch_size(2);
    assert_eq!(exhaust.run()?.count(), things.find(doc! {}).run()?.count());
    let plan = things.find(doc! { "_id": 1 }).explain().run()?;
    assert!(plan.contains_key("queryPlanner"), "{plan}");
    assert_eq!(things.find_one(doc! { "_id": 1 }).run()?, Some(thing(1)));
    assert_eq!(things.count_documents(doc! {}).run()?, 30);
    assert_eq!(things.estimated_document_count().run()?, 30);
    assert_eq!(things.count(doc! {}).run()?, 30);
    assert_eq!(things.distinct("kind", doc! {}).with_type::<String>().run()?.len(), 2);
    assert_eq!(things.distinct("kind", doc! {}).unread().run()?.iter::<String>().count(), 2);
    assert_eq!(things.aggregate([doc! { "$match": {} }]).run()?.count(), 30);
    Ok(())
}

#[expect(deprecated, reason = "servers still have it")]
fn map_reduce(database: &Database, things: &Collection<Thing>) -> Outcome {
    let map = "function() { emit(this.kind, 1); }";
    let reduce = "function(kind, n) { return Array.sum(n); }";
    let sum = |counted: &[Document]| counted.iter().map(|it| it.get_f64("value").unwrap()).sum();
    let some = things.map_reduce(map, reduce, MapReduceOutput::inline());
    let counted = some.query(doc! { "_id": { "$lt": 10 } }).run()?;
    assert_eq!((counted.len(), sum(&counted)), (2, 10.0));
    let doubled = things
        .map_reduce(map, reduce, MapReduceOutput::replace("kinds"))
        .finalize("function(kind, n) { return n * factor; }")
        .scope(doc! { "factor": 2 });
    assert!(doubled.run()?.is_empty());
    let kinds = database.collection::<Document>("kinds");
    assert_eq!(sum(&kinds.find(doc! {}).run()?.collect::<Result<Vec<_>, _>>()?), 60.0);
    kinds.drop().run()?;
    Ok(())
}

fn indexes(things: &Collection<Thing>) -> Outcome {
    assert_eq!(things.create_index(doc! { "n": 1 }).run()?, "n_1");
    things.create_indexes([IndexModel::new(doc! { "kind": 1 })]).run()?;
    assert_eq!(things.list_index_names().run()?.len(), 3);
    things.drop_index("n_1").run()?;
    things.drop_indexes().run()?;
    assert_eq!(things.list_indexes().run()?.count(), 1);
    Ok(())
}
