//! A MongoDB client library: it discovers the servers of a deployment, monitors them, selects one
//! for each operation, and pools connections to them. With the feature `driver`, it also reads and
//! writes documents.
#![cfg_attr(feature = "tokio", doc = "\n")]
#![cfg_attr(feature = "tokio", doc = include_str!("front_page.md"))]

#[cfg(feature = "tokio")]
#[doc(inline)]
pub use runtimes::tokio::{CheckedOut, Client, ClientBuilder, Registry, SelectedServer, Topology};

#[doc(inline)]
pub use sdam_core::config::{Options, ReadMode, ReadPreference, ServerAddress};
#[doc(inline)]
pub use sdam_core::description::{
    ServerDescription, ServerType, TopologyDescription, TopologyType,
};
#[doc(inline)]
pub use sdam_core::selection::Criteria;
#[doc(inline)]
pub use sdam_core::topology::{Event, EventKind, Topics};
#[doc(inline)]
pub use sdam_host::{Error, ErrorKind, Events, Recording, Reply, Views};

pub use sdam_core::bson;

#[cfg(feature = "blocking")]
pub mod blocking;
pub mod command;
pub mod cursor;
mod error;
mod handle;
#[cfg(feature = "metrics")]
pub mod metrics;
mod reply;
mod results;
mod runtimes;
mod value;

#[cfg(feature = "async-std")]
pub use runtimes::async_std;
#[cfg(feature = "smol")]
pub use runtimes::smol;
#[cfg(feature = "tokio")]
pub use runtimes::tokio;

/// Databases, collections and cursors.
pub mod driver {
    pub use crate::command;
    pub use crate::command::aggregate::Aggregate;
    pub use crate::command::bulk_write::BulkWrite;
    pub use crate::command::client_bulk_write::ClientBulkWrite;
    pub use crate::command::collections::{
        CreateCollection, DropCollection, ListCollections, ModifyCollection, RenameCollection,
    };
    pub use crate::command::count::{Count, CountDocuments, EstimatedDocumentCount};
    pub use crate::command::databases::{DropDatabase, ListDatabases};
    pub use crate::command::delete::Delete;
    pub use crate::command::distinct::{Distinct, DistinctValues};
    pub use crate::command::explain::{Explain, Verbosity};
    pub use crate::command::find::{CursorType, Find, FindOne};
    pub use crate::command::find_and_modify::{
        FindOneAndDelete, FindOneAndReplace, FindOneAndUpdate, ReturnDocument,
    };
    pub use crate::command::indexes::{CreateIndexes, DropIndexes, IndexModel, ListIndexes};
    pub use crate::command::insert::{InsertMany, InsertOne};
    pub use crate::command::map_reduce::{MapReduce, MapReduceOutput};
    pub use crate::command::models::{
        DeleteModel, InsertModel, ReplaceModel, UpdateModel, WriteModel,
    };
    pub use crate::command::run::{RunCommand, RunCursorCommand};
    pub use crate::command::search_indexes::{
        CreateSearchIndexes, DropSearchIndex, ListSearchIndexes, SearchIndexModel,
        UpdateSearchIndex,
    };
    pub use crate::command::update::{Replace, Update};
    pub use crate::cursor::{TimeoutMode, TimingError};
    pub use crate::error::{
        ArgumentError, BulkWriteError, ClientBulkWriteError, DeserializeError, Error, ReplyError,
        WriteConcernError, WriteError,
    };
    pub use crate::handle::{
        Client, ClientSession, Collection, Cursor, Database, SessionAccessError,
    };
    pub use crate::results::{
        BulkWriteResult, ClientBulkWriteResult, ClientDeleteResult, ClientInsertResult,
        ClientUpdateResult, DeleteResult, InsertManyResult, InsertOneResult, UpdateResult,
        VerboseResults, WriteResult,
    };
    pub use crate::value::{Hint, IntoDocument, Modifications};
}
pub use sdam_core as core;
#[doc = include_str!("../docs/write-your-own-runtime.md")]
pub use sdam_host as host;
#[cfg(feature = "otel")]
pub use sdam_host::otel;

/// The README and the guide, whose examples are tests; their links are for the repository.
#[cfg(all(doctest, feature = "tokio"))]
mod pages {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../docs/connect.md")]
    struct Connect;
    #[doc = include_str!("../docs/run.md")]
    struct Run;
    #[doc = include_str!("../docs/collections.md")]
    struct Collections;
    #[doc = include_str!("../docs/watch.md")]
    struct Watch;
    #[doc = include_str!("../docs/log.md")]
    struct Log;
    #[doc = include_str!("../docs/record.md")]
    struct Record;
    #[doc = include_str!("../docs/diagnose.md")]
    struct Diagnose;
    #[doc = include_str!("../docs/last-night.md")]
    struct LastNight;
    #[doc = include_str!("../docs/proxy.md")]
    struct Proxy;
    #[doc = include_str!("../docs/core.md")]
    struct Core;
    #[doc = include_str!("../docs/runtimes.md")]
    struct Runtimes;
}
