//! The handles for threads.

use std::time::Duration;

use bson::{Document, doc};
use libtest_mimic::Failed;
use sdam::blocking::{Client, Collection, Database};
use sdam::driver::{
    Aggregate, BulkWrite, ClientBulkWrite, CreateIndexes, CursorType, DeleteModel, Distinct,
    DropCollection, DropDatabase, DropIndexes, Error, EstimatedDocumentCount, Explain, Find,
    FindOneAndReplace, FindOneAndUpdate, IndexModel, InsertModel, ListCollections, ListDatabases,
    ListIndexes, MapReduce, MapReduceOutput, ModifyCollection, RenameCollection, Replace, Update,
    WriteModel,
};
use sdam_core::config::Options;
use sdam_core::session::SessionOptions;

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
    let client = Client::new(client);
    let database = client.database("app");
    let things = database.collection::<Thing>("things");
    writes(&things)?;
    reads(&things)?;
    map_reduce(&database, &things)?;
    indexes(&things)?;
    database.create_collection("made")?;
    let names = database.list_collection_names()?;
    assert!(names.iter().any(|name| name == "made"));
    let listed = database.list_collections()?;
    assert_eq!(listed.collect::<Result<Vec<_>, _>>()?.len(), names.len());
    assert!(client.list_database_names()?.iter().any(|name| name == "app"));
    assert!(!client.list_databases()?.is_empty());
    let made = database.collection::<Document>("made");
    made.modify().validation_level("off")?;
    made.rename("app.renamed")?;
    database.collection::<Document>("renamed").drop()?;
    assert_eq!(database.run_command(doc! { "ping": 1 })?.get_f64("ok")?, 1.0);
    let cursor = database.run_cursor_command::<Document>(doc! { "find": "things" })?;
    assert_eq!(cursor.count(), 30);
    let session = client.start_session().await?;
    let within = things.with_timeout(Duration::from_secs(60)).with_session(&session);
    assert_eq!(within.find(doc! {}).batch_size(7)?.count(), 30);
    session.end();
    assert!(within.find_one(doc! {}).is_err());
    let bulk = [("app.things", WriteModel::DeleteOne(DeleteModel::new(doc! {})))];
    assert_eq!(client.bulk_write(bulk).unwrap_err().code(), Some(59));
    database.drop()?;
    Ok(())
}

fn writes(things: &Collection<Thing>) -> Outcome {
    things.insert_one(&thing(0))?;
    things.insert_many(&(1..30).map(thing).collect::<Vec<_>>())?;
    assert!(matches!(things.insert_one(&thing(0)), Err(Error::Write(_))));
    let increment = doc! { "$inc": { "n": 1 } };
    things.update_one(doc! { "_id": 1 }, increment.clone())?;
    assert_eq!(things.update_many(doc! {}, increment.clone())?.matched_count, 30);
    things.replace_one(doc! { "_id": 1 }, &thing(1))?;
    let update = FindOneAndUpdate::new(doc! { "_id": 1 }, increment);
    assert_eq!(things.find_one_and_update(update)?, Some(thing(1)));
    let replace = FindOneAndReplace::new(doc! { "_id": 1 }, &thing(1));
    assert_eq!(things.find_one_and_replace(replace)?.map(|it| it.n), Some(11));
    assert_eq!(things.find_one_and_delete(doc! { "_id": 1 })?, Some(thing(1)));
    things.bulk_write([WriteModel::InsertOne(InsertModel::new(&thing(1)))])?;
    assert_eq!(things.delete_one(doc! { "_id": 2 })?.deleted_count, 1);
    things.insert_one(&thing(2))?;
    assert_eq!(things.delete_many(doc! { "_id": -1 })?.deleted_count, 0);
    Ok(())
}

fn reads(things: &Collection<Thing>) -> Outcome {
    let sorted = Find::new(doc! {}).sort(doc! { "_id": 1 }).batch_size(4);
    let found = things.find(sorted)?.collect::<Result<Vec<_>, _>>()?;
    assert_eq!(found.iter().map(|it| it.id).collect::<Vec<_>>(), (0..30).collect::<Vec<_>>());
    let mut cursor = things.find(doc! {}).batch_size(2)?;
    assert!(cursor.try_next().is_some() && cursor.is_alive());
    cursor.close();
    let exhaust = Find::new(doc! {}).cursor_type(CursorType::Exhaust).batch_size(2);
    assert_eq!(things.find(exhaust)?.count(), things.find(doc! {})?.count());
    let plan = things.operation(Explain::find(doc! { "_id": 1 }))?;
    assert!(plan.contains_key("queryPlanner"), "{plan}");
    assert_eq!(things.find_one(doc! { "_id": 1 })?, Some(thing(1)));
    assert_eq!(things.count_documents(doc! {})?, 30);
    assert_eq!(things.estimated_document_count()?, 30);
    assert_eq!(things.count(doc! {})?, 30);
    assert_eq!(things.distinct("kind", doc! {})?.iter::<String>().count(), 2);
    let all = Aggregate::new([doc! { "$match": {} }]);
    assert_eq!(things.aggregate::<Document>(all)?.count(), 30);
    Ok(())
}

#[expect(deprecated, reason = "servers still have it")]
fn map_reduce(database: &Database, things: &Collection<Thing>) -> Outcome {
    let map = "function() { emit(this.kind, 1); }";
    let reduce = "function(kind, n) { return Array.sum(n); }";
    let sum = |counted: &[Document]| counted.iter().map(|it| it.get_f64("value").unwrap()).sum();
    let some = MapReduce::new(map, reduce, MapReduceOutput::inline());
    let counted = things.map_reduce::<Document>(some.query(doc! { "_id": { "$lt": 10 } }))?;
    assert_eq!((counted.len(), sum(&counted)), (2, 10.0));
    let doubled = MapReduce::new(map, reduce, MapReduceOutput::replace("kinds"))
        .finalize("function(kind, n) { return n * factor; }")
        .scope(doc! { "factor": 2 });
    assert!(things.map_reduce::<Document>(doubled)?.is_empty());
    let kinds = database.collection::<Document>("kinds");
    assert_eq!(sum(&kinds.find(doc! {})?.collect::<Result<Vec<_>, _>>()?), 60.0);
    kinds.drop()?;
    Ok(())
}

fn indexes(things: &Collection<Thing>) -> Outcome {
    assert_eq!(things.create_index(doc! { "n": 1 })?, "n_1");
    things.create_indexes([IndexModel::new(doc! { "kind": 1 })])?;
    assert_eq!(things.list_index_names()?.len(), 3);
    things.drop_index("n_1")?;
    things.drop_indexes()?;
    assert_eq!(things.list_indexes()?.count(), 1);
    Ok(())
}
