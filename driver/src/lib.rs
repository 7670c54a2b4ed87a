//! Databases, collections and cursors of MongoDB, above the clients of [`sdam_host`].
//!
//! An operation is a value: [`Find`], [`Update`] or [`CreateIndexes`], for instance, with one
//! method an option. A [`Collection`] runs it, under whichever runtime its client is of, and reads
//! and writes documents as types of the application's; `blocking` has the same for threads.
//!
//! ```no_run
//! use sdam_driver::bson::doc;
//! use sdam_driver::{Client, Find};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct Book {
//!     title: String,
//!     year: i32,
//! }
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::new(sdam_tokio::Client::connect("mongodb://localhost/").await?);
//! let books = client.database("library").collection::<Book>("books");
//! books.insert_one(&Book { title: "Emma".into(), year: 1815 }).await?;
//!
//! let old = Find::new(doc! { "year": { "$lt": 1900 } }).sort(doc! { "year": 1 }).limit(10);
//! let mut cursor = books.find(old).await?;
//! while let Some(book) = cursor.next().await {
//!     println!("{}", book?.title);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Each command is performed by the client's operation machine: it is sent again by the rules of
//! Retryable Reads, Retryable Writes and Client Backpressure, in a session, and all that belongs to
//! one operation within one `timeoutMS`. [`Client::start_session`] and
//! [`Collection::with_session`] are for sessions of the application's.
//!
//! # The map
//!
//! `command` has the operations: what each sends, and what it reads of replies, without a client
//! and without waiting; `cursor` has cursors in the same way. What applications hold, `handle` and
//! `blocking`, hands them to the client below in one place.

#[cfg(feature = "blocking")]
pub mod blocking;
pub mod command;
pub mod cursor;
mod error;
mod handle;
mod reply;
mod results;
mod value;

pub use bson;

pub use command::aggregate::Aggregate;
pub use command::bulk_write::BulkWrite;
pub use command::client_bulk_write::ClientBulkWrite;
pub use command::collections::{
    CreateCollection, DropCollection, ListCollections, ModifyCollection, RenameCollection,
};
pub use command::count::{Count, CountDocuments, EstimatedDocumentCount};
pub use command::databases::{DropDatabase, ListDatabases};
pub use command::delete::Delete;
pub use command::distinct::{Distinct, DistinctValues};
pub use command::explain::{Explain, Verbosity};
pub use command::find::{CursorType, Find, FindOne};
pub use command::find_and_modify::{
    FindOneAndDelete, FindOneAndReplace, FindOneAndUpdate, ReturnDocument,
};
pub use command::indexes::{CreateIndexes, DropIndexes, IndexModel, ListIndexes};
pub use command::insert::{InsertMany, InsertOne};
pub use command::map_reduce::{MapReduce, MapReduceOutput};
pub use command::models::{DeleteModel, InsertModel, ReplaceModel, UpdateModel, WriteModel};
pub use command::run::{RunCommand, RunCursorCommand};
pub use command::search_indexes::{
    CreateSearchIndexes, DropSearchIndex, ListSearchIndexes, SearchIndexModel, UpdateSearchIndex,
};
pub use command::update::{Replace, Update};
pub use cursor::{TimeoutMode, TimingError};
pub use error::{
    ArgumentError, BulkWriteError, ClientBulkWriteError, DeserializeError, Error, ReplyError,
    WriteConcernError, WriteError,
};
pub use handle::{Client, ClientSession, Collection, Cursor, Database, SessionAccessError};
pub use results::{
    BulkWriteResult, ClientBulkWriteResult, ClientDeleteResult, ClientInsertResult,
    ClientUpdateResult, DeleteResult, InsertManyResult, InsertOneResult, UpdateResult,
    VerboseResults, WriteResult,
};
pub use value::{Hint, IntoDocument, Modifications};
