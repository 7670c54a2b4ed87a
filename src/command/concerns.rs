//! The operations that take concerns. A command that the application has written itself takes none:
//! "RunCommand MUST NOT support read concern and write concern options" (Run Command).

use super::Operation;
use super::aggregate::Aggregate;
use super::bulk_write::BulkWrite;
use super::client_bulk_write::ClientBulkWrite;
use super::collections::{CreateCollection, DropCollection, ModifyCollection, RenameCollection};
use super::count::{Count, CountDocuments, EstimatedDocumentCount};
use super::databases::DropDatabase;
use super::delete::Delete;
use super::distinct::Distinct;
use super::find::{Find, FindOne};
use super::find_and_modify::{FindOneAndDelete, FindOneAndReplace, FindOneAndUpdate};
use super::indexes::{CreateIndexes, DropIndexes};
use super::insert::{InsertMany, InsertOne};
use super::map_reduce::MapReduce;
use super::update::{Replace, Update};
use super::watch::Watch;

/// An operation whose reads have a read concern.
#[diagnostic::on_unimplemented(message = "`{Self}` takes no read concern")]
pub trait TakesReadConcern: Operation {}

/// An operation whose writes have a write concern.
#[diagnostic::on_unimplemented(message = "`{Self}` takes no write concern")]
pub trait TakesWriteConcern: Operation {}

/// Says which operations a trait is of.
macro_rules! take {
    ($($concern:ident: $($operation:ident)+;)+) => {
        $($(impl $concern for $operation {})+)+
    };
}

take! {
    TakesReadConcern: Aggregate Count CountDocuments Distinct EstimatedDocumentCount Find FindOne
        MapReduce Watch;
    TakesWriteConcern: Aggregate BulkWrite ClientBulkWrite CreateCollection CreateIndexes Delete
        DropCollection DropDatabase DropIndexes FindOneAndDelete FindOneAndReplace FindOneAndUpdate
        InsertMany InsertOne MapReduce ModifyCollection RenameCollection Replace Update;
}
