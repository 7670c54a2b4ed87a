//! The results of operations.

pub use crate::change_stream::{
    ChangeNamespace, ChangeStreamEvent, OperationType, ResumeToken, SplitEvent, TruncatedArray,
    UpdateDescription,
};
pub use crate::specifications::{
    CollectionSpecification, CollectionSpecificationInfo, CollectionType, DatabaseSpecification,
};
pub use sdam_core::session::CommitOutcome;
pub use sdam_host::results::{
    BulkWriteResult, ClientBulkWriteResult, ClientDeleteResult, ClientInsertResult,
    ClientUpdateResult, DeleteResult, InsertManyResult, InsertOneResult, UpdateResult,
    VerboseResults, WriteResult,
};
