//! The names that traces give operations, the same in every driver.
//!
//! Implements OpenTelemetry, "Covered operations".

use super::aggregate::Aggregate;
use super::bulk_write::BulkWrite;
use super::client_bulk_write::ClientBulkWrite;
use super::collections::{
    CreateCollection, DropCollection, ListCollections, ModifyCollection, RenameCollection,
};
use super::count::{Count, CountDocuments, EstimatedDocumentCount};
use super::databases::{Databases, DropDatabase};
use super::delete::Deleting;
use super::distinct::Distinct;
use super::explain::Explain;
use super::find::{FindOne, OpenFind};
use super::find_and_modify::{FindOneAndDelete, FindOneAndReplace, FindOneAndUpdate};
use super::indexes::{CreateIndexes, DropIndexes, ListIndexes};
use super::insert::{InsertMany, InsertOne};
use super::map_reduce::MapReduce;
use super::run::{RunCommand, RunCursorCommand};
use super::search_indexes::{
    CreateSearchIndexes, DropSearchIndex, ListSearchIndexes, UpdateSearchIndex,
};
use super::update::Updating;

/// An operation that traces cover.
pub trait Covered {
    /// Returns its name, mostly that of its command.
    fn covered_name(&self) -> &'static str;

    /// Returns the collection that it is about, where that is not the one of the handle.
    fn covered_collection(&self) -> Option<&str> {
        None
    }
}

/// Names operations.
macro_rules! covered {
    ($($operation:ty: $name:literal $(for $generic:ident)?,)+) => {
        $(impl$(<$generic>)? Covered for $operation {
            fn covered_name(&self) -> &'static str {
                $name
            }
        })+
    };
}

covered! {
    Aggregate: "aggregate",
    BulkWrite: "bulkWrite",
    ClientBulkWrite: "bulkWrite",
    Count: "count",
    CountDocuments: "aggregate",
    CreateIndexes: "createIndexes",
    CreateSearchIndexes: "createSearchIndexes",
    Databases<T>: "listDatabases" for T,
    Deleting: "delete",
    Distinct: "distinct",
    DropCollection: "dropCollection",
    DropDatabase: "dropDatabase",
    DropIndexes: "dropIndexes",
    DropSearchIndex: "dropSearchIndex",
    EstimatedDocumentCount: "count",
    Explain<O>: "explain" for O,
    FindOne: "find",
    FindOneAndDelete: "findAndModify",
    FindOneAndReplace: "findAndModify",
    FindOneAndUpdate: "findAndModify",
    InsertMany<T>: "insert" for T,
    InsertOne<T>: "insert" for T,
    ListCollections: "listCollections",
    ListIndexes: "listIndexes",
    ListSearchIndexes: "aggregate",
    MapReduce: "mapReduce",
    ModifyCollection: "collMod",
    OpenFind: "find",
    RenameCollection: "renameCollection",
    RunCommand: "runCommand",
    RunCursorCommand: "runCursorCommand",
    UpdateSearchIndex: "updateSearchIndex",
    Updating: "update",
}

impl Covered for CreateCollection {
    fn covered_name(&self) -> &'static str {
        "createCollection"
    }

    fn covered_collection(&self) -> Option<&str> {
        Some(self.name())
    }
}
