//! Operations as values: each writes the commands that it sends, one after another, and reads their
//! replies. Nothing of them waits, and nothing knows a client.
//!
//! The methods of handles make them, as [`Action`](crate::action::Action); one that was made
//! before, of a configuration for instance, is performed by the method `operation` of a handle.

pub use crate::command::aggregate::Aggregate;
pub use crate::command::bulk_write::BulkWrite;
pub use crate::command::client_bulk_write::ClientBulkWrite;
pub use crate::command::collections::{
    CreateCollection, DropCollection, ListCollections, ModifyCollection, RenameCollection,
};
pub use crate::command::concerns::{TakesReadConcern, TakesWriteConcern};
pub use crate::command::count::{Count, CountDocuments, EstimatedDocumentCount};
pub use crate::command::databases::{DropDatabase, ListDatabases};
pub use crate::command::delete::Delete;
pub use crate::command::distinct::{Distinct, DistinctValues};
pub use crate::command::explain::{Explain, Explainable, Verbosity};
pub use crate::command::find::{Find, FindOne};
pub use crate::command::find_and_modify::{FindOneAndDelete, FindOneAndReplace, FindOneAndUpdate};
pub use crate::command::indexes::{
    CreateIndexes, DropIndexes, IndexModel, IndexModelBuilder, ListIndexes,
};
pub use crate::command::insert::{InsertMany, InsertOne};
pub use crate::command::map_reduce::{MapReduce, MapReduceOutput};
pub use crate::command::models::{DeleteModel, InsertModel, ReplaceModel, UpdateModel, WriteModel};
pub use crate::command::run::{RunCommand, RunCursorCommand};
pub use crate::command::search_indexes::{
    CreateSearchIndexes, DropSearchIndex, ListSearchIndexes, SearchIndexModel, UpdateSearchIndex,
};
pub use crate::command::update::{Replace, Update};
pub use crate::command::watch::{FullDocumentType, Watch};
pub use crate::command::{Command, Facts, Operation, Progress, Route, Scope};
pub use crate::cursor::{CursorState, CursorStep, Timing};
pub use crate::value::{IntoDocument, Modifications};
