//! The rules by which operations are sent, a row each.

use bson::{Document, doc};
use sdam_core::config::{ReadMode, ReadPreference};
use sdam_core::operation::OperationKind::{self, Command, Read, Write};

use super::aggregate::{Aggregate, AggregateOptions};
use super::bulk_write::BulkWrite;
use super::collections::{
    CreateCollection, DropCollection, ListCollections, ModifyCollection, RenameCollection,
};
use super::count::{Count, CountDocuments, EstimatedDocumentCount};
use super::databases::{DropDatabase, ListDatabases};
use super::delete::Delete;
use super::distinct::Distinct;
use super::explain::Explain;
use super::find::{Find, FindOne};
use super::find_and_modify::{FindOneAndDelete, FindOneAndReplace, FindOneAndUpdate};
use super::indexes::{CreateIndexes, DropIndexes, IndexModel, ListIndexes};
use super::insert::{InsertMany, InsertOne};
use super::map_reduce::{MapReduce, MapReduceOutput};
use super::models::{DeleteModel, InsertModel, WriteModel};
use super::run::{RunCommand, RunCursorCommand};
use super::search_indexes::{
    CreateSearchIndexes, DropSearchIndex, ListSearchIndexes, SearchIndexModel, UpdateSearchIndex,
};
use super::testing::{NEW, scope, unacknowledged, written};
use super::update::{Replace, Update};
use super::{Facts, Operation, check_name, split_namespace};
use crate::cursor::TimeoutMode;

/// The name of the command, its kind, and whether it may be sent once more.
type Rules = (String, OperationKind, bool);

/// Returns the rules of an operation whose command has the name that it says.
fn rules(mut operation: impl Operation) -> Rules {
    let rules = (operation.command_name().into_owned(), operation.kind(), operation.is_retryable());
    written(&mut operation, NEW);
    rules
}

fn check(rows: impl IntoIterator<Item = (Rules, &'static str, OperationKind, bool)>) {
    for (rules, name, kind, is_retryable) in rows {
        assert_eq!(rules, (name.to_owned(), kind, is_retryable));
    }
}

fn change() -> Document {
    doc! { "$set": { "a": 1 } }
}

/// Retryable Reads, "Supported Read Operations", and "Unsupported": an aggregation that writes, and
/// what `runCommand` sends.
#[test]
fn reads_are_sent_again_unless_they_write_or_are_not_known() {
    let aggregate = |stage| rules(Aggregate::new([stage]));
    let map_reduce = |output| rules(MapReduce::new("f", "g", output));
    check([
        (aggregate(doc! { "$match": {} }), "aggregate", Read, true),
        (aggregate(doc! { "$out": "b" }), "aggregate", Write, false),
        (aggregate(doc! { "$merge": "b" }), "aggregate", Write, false),
        (rules(CountDocuments::new(doc! {})), "aggregate", Read, true),
        (rules(EstimatedDocumentCount::new()), "count", Read, true),
        (rules(Count::new(doc! {})), "count", Read, true),
        (rules(Distinct::new("a", doc! {})), "distinct", Read, true),
        (rules(Find::new(doc! {})), "find", Read, true),
        (rules(FindOne::new(doc! {})), "find", Read, true),
        (rules(ListCollections::new()), "listCollections", Read, true),
        (rules(ListDatabases::new().names()), "listDatabases", Read, true),
        (rules(ListDatabases::new()), "listDatabases", Read, true),
        (rules(ListIndexes::new()), "listIndexes", Read, true),
        (rules(ListSearchIndexes::new()), "aggregate", Read, true),
        (map_reduce(MapReduceOutput::inline()), "mapReduce", Read, false),
        (map_reduce(MapReduceOutput::replace("b")), "mapReduce", Write, false),
        (rules(RunCommand::new(doc! { "ping": 1 })), "ping", Command, false),
        (rules(RunCursorCommand::new(doc! { "find": "a" })), "find", Command, false),
    ]);
}

/// Retryable Writes, "Supported Write Operations": those of single documents, and no commands that
/// change collections and indexes.
#[test]
fn writes_of_single_documents_are_sent_again() {
    let document = doc! { "_id": 1 };
    let insert = || WriteModel::InsertOne(InsertModel::new(doc! { "_id": 1 }));
    let delete = || WriteModel::DeleteOne(DeleteModel::new(doc! {}));
    let definition = || doc! { "mappings": {} };
    check([
        (rules(InsertOne::new(&document)), "insert", Write, true),
        (rules(InsertMany::new::<Document>([&document])), "insert", Write, true),
        (rules(Update::new(doc! {}, change())), "update", Write, true),
        (rules(Update::many(doc! {}, change())), "update", Write, false),
        (rules(Replace::new(doc! {}, &document)), "update", Write, true),
        (rules(Delete::new(doc! {})), "delete", Write, true),
        (rules(Delete::new(doc! {}).multi(true)), "delete", Write, false),
        (rules(FindOneAndDelete::new(doc! {})), "findAndModify", Write, true),
        (rules(FindOneAndReplace::new(doc! {}, &document)), "findAndModify", Write, true),
        (rules(FindOneAndUpdate::new(doc! {}, change())), "findAndModify", Write, true),
        (rules(BulkWrite::new([insert(), delete()])), "insert", Write, true),
        (rules(BulkWrite::new([delete(), insert()])), "delete", Write, true),
        (rules(CreateCollection::new("b")), "create", Write, false),
        (rules(ModifyCollection::new()), "collMod", Write, false),
        (rules(DropCollection::new()), "drop", Write, false),
        (rules(RenameCollection::new("a.b")), "renameCollection", Write, false),
        (rules(DropDatabase::new()), "dropDatabase", Write, false),
        (
            rules(CreateIndexes::new([IndexModel::new(doc! { "a": 1 })])),
            "createIndexes",
            Write,
            false,
        ),
        (rules(DropIndexes::all()), "dropIndexes", Write, false),
        (
            rules(CreateSearchIndexes::new([SearchIndexModel::new(definition())])),
            "createSearchIndexes",
            Write,
            false,
        ),
        (rules(DropSearchIndex::new("a")), "dropSearchIndex", Write, false),
        (rules(UpdateSearchIndex::new("a", definition())), "updateSearchIndex", Write, false),
    ]);
}

/// CSOT, "Cursors": the mode that the application sets is that of the cursor.
#[test]
fn operations_that_open_cursors_say_what_their_time_limits() {
    let mode = TimeoutMode::Iteration;
    let of_pipeline = AggregateOptions::builder().timeout_mode(mode).build();
    let timings = [
        Aggregate::new([doc! { "$match": {} }]).timeout_mode(mode).timing(),
        Find::new(doc! {}).timeout_mode(mode).timing(),
        ListCollections::new().timeout_mode(mode).timing(),
        ListIndexes::new().timeout_mode(mode).timing(),
        ListSearchIndexes::new().with_options(of_pipeline).timing(),
        RunCursorCommand::new(doc! { "find": "a" }).timeout_mode(mode).timing(),
    ];
    assert_eq!(timings.map(|timing| timing.mode), [Some(mode); 6]);
    assert!(Aggregate::new([doc! { "$out": "b" }]).timing().writes);
}

/// OpenTelemetry, "Covered operations": a collection that is created is the one that counts.
#[test]
fn an_operation_is_covered_with_the_collection_that_it_names() {
    let create = CreateCollection::new("new");
    assert_eq!((create.name(), create.collection()), ("createCollection", Some("new")));
    let drop = DropCollection::new();
    assert_eq!((drop.name(), drop.collection()), ("dropCollection", None));
}

/// Run Command, "ReadPreference": the command's own, which is primary unless it is set.
#[test]
fn a_command_of_the_applications_has_a_read_preference_of_its_own() {
    let (primary, nearest) = (ReadPreference::default(), ReadPreference::new(ReadMode::Nearest));
    let ping = RunCommand::new(doc! { "ping": 1 });
    let find = RunCursorCommand::new(doc! { "find": "a" });
    assert_eq!(Operation::read_preference(&ping), Some(&primary));
    assert_eq!(Operation::read_preference(&find), Some(&primary));
    let (ping, find) =
        (ping.read_preference(nearest.clone()), find.read_preference(nearest.clone()));
    assert_eq!(Operation::read_preference(&ping), Some(&nearest));
    assert_eq!(Operation::read_preference(&find), Some(&nearest));
    assert_eq!(Explain::new(Find::new(doc! {})).read_preference(), None);
}

/// Server Write Commands, "Request Size Limits": a document may be as long as the limit, and what
/// is sent around it 16 KiB longer.
#[test]
fn a_write_is_too_large_from_the_first_byte_beyond_the_limit() {
    let facts = Facts { max_bson_object_size: 1000, ..NEW };
    let most = 1000 + 16 * 1024;
    for (length, stored, with_reply, without) in [
        (1000, 1000, None, None),
        (1001, 1000, None, None),
        (1001, 1001, None, Some((1001, 1000))),
        (most, 1001, None, Some((1001, 1000))),
        (most + 1, 1000, Some((most + 1, most)), Some((most + 1, most))),
        (most + 1, 1001, Some((1001, 1000)), Some((1001, 1000))),
    ] {
        assert_eq!(facts.excess(&scope(), length, || stored), with_reply, "{length} {stored}");
        let excess = facts.excess(&unacknowledged(), length, || stored);
        assert_eq!(excess, without, "{length} {stored}");
    }
}

/// Servers take no name of a collection or a database that is empty or has a zero.
#[test]
fn names_that_no_server_takes_are_refused() {
    for name in ["", "a\0", "\0"] {
        assert!(check_name(name).is_err(), "{name:?}");
        assert!(split_namespace(&format!("app.{name}")).is_err(), "{name:?}");
        assert!(split_namespace(&format!("{name}.things")).is_err(), "{name:?}");
    }
    assert!(check_name("a.b").is_ok());
    assert_eq!(split_namespace("a.b.c"), Ok(("a", "b.c")));
    assert!(split_namespace("ab").is_err());
}
