//! Options apart from what they are of, as configurations have them: each struct is read by serde,
//! with the names of the specifications, and given to the method `with_options`.
//!
//! ```
//! use sdam::bson::{self, doc};
//! use sdam::options::FindOptions;
//!
//! let options = FindOptions::builder().sort(doc! { "year": -1 }).limit(10).build();
//! let read: FindOptions =
//!     bson::deserialize_from_document(doc! { "sort": { "year": -1 }, "limit": 10 })?;
//! assert_eq!((options.limit, options.sort), (read.limit, read.sort));
//! # Ok::<(), bson::error::Error>(())
//! ```

pub use crate::collation::{
    Collation, CollationAlternate, CollationBuilder, CollationCaseFirst, CollationMaxVariable,
    CollationStrength,
};
pub use crate::command::aggregate::AggregateOptions;
pub use crate::command::arguments::OptionsBuilder;
pub use crate::command::bulk_write::BulkWriteOptions;
pub use crate::command::client_bulk_write::ClientBulkWriteOptions;
pub use crate::command::collection_values::{
    ClusteredIndex, CommitQuorum, IndexOptionDefaults, TimeseriesGranularity, TimeseriesOptions,
    ValidationAction, ValidationLevel,
};
pub use crate::command::collections::{
    CreateCollectionOptions, DropCollectionOptions, ListCollectionsOptions,
    ModifyCollectionOptions, RenameCollectionOptions,
};
pub use crate::command::count::{CountCommandOptions, CountOptions, EstimatedDocumentCountOptions};
pub use crate::command::databases::{DropDatabaseOptions, ListDatabasesOptions};
pub use crate::command::delete::DeleteOptions;
pub use crate::command::distinct::DistinctOptions;
pub use crate::command::find::{CursorType, FindOneOptions, FindOptions};
pub use crate::command::find_and_modify::{
    FindOneAndDeleteOptions, FindOneAndReplaceOptions, FindOneAndUpdateOptions, ReturnDocument,
};
pub use crate::command::indexes::{
    CreateIndexOptions, DropIndexOptions, IndexOptions, ListIndexesOptions,
};
pub use crate::command::insert::{InsertManyOptions, InsertOneOptions};
pub use crate::command::map_reduce::MapReduceOptions;
pub use crate::command::run::RunCursorCommandOptions;
pub use crate::command::update::{ReplaceOptions, UpdateOptions};
pub use crate::command::watch::{ChangeStreamOptions, FullDocumentType};
pub use crate::cursor::TimeoutMode;
pub use crate::handle::gridfs::{GridFsBucketOptions, GridFsBucketOptionsBuilder};
pub use crate::handle::{
    CollectionOptions, CollectionOptionsBuilder, DatabaseOptions, DatabaseOptionsBuilder,
};
pub use crate::value::Hint;
pub use sdam_core::config::{
    Acknowledgment, AuthMechanism, Credential, DriverInfo, Options as ClientOptions, PoolOptions,
    ReadConcern, ReadMode, ReadPreference, ServerAddress, ServerApi, ServerApiVersion, TagSet,
    TlsOptions, WriteConcern,
};
pub use sdam_core::session::{SessionOptions, TransactionOptions};
