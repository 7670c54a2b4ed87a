//! Files in the unified test format, read strictly into typed values.
//!
//! Whatever the format's JSON schema refuses is refused here, with the place and the rule: a field
//! that it does not have, one that is missing, and one of another type, length or pattern (Unified
//! Test Format, "JSON Schema Validation"). The values of arguments, results, commands and documents
//! stay BSON, with their special operators; so do fields whose form other specifications define.

pub mod concerns;
mod data;
mod encryption;
mod entity;
mod error;
mod event;
mod file;
mod log;
mod object;
mod operation;
mod requirement;
#[cfg(test)]
mod tests;
mod tracing;
mod version;

pub use data::{CollectionData, CollectionOptions};
pub use encryption::EncryptionOptions;
pub use entity::{ClientEntity, Entity, ServerApi};
pub use error::FormatError;
pub use event::{EventKind, EventType, ExpectedEvent, ExpectedEvents};
pub use file::{File, Test};
pub use log::{Component, ExpectedLogMessages, ExpectedMessage, Level};
pub use object::{Node, Object};
pub use operation::{Expectation, ExpectedError, Operation};
pub use requirement::{Csfle, Requirement, Serverless, Topology};
pub use tracing::{ExpectedSpan, ExpectedTracing};

use bson::Bson;

use crate::mongod::Version;

/// The newest schema version that is read.
pub const NEWEST: Version = Version { major: 1, minor: 28, patch: 0 };

/// Reads a file.
///
/// # Errors
///
/// Fails if the text is no Extended JSON, if its schema version is not read here, and if it breaks
/// a rule of the format; the error then says where, and which.
pub fn parse(text: &str) -> Result<File, FormatError> {
    let json: serde_json::Value = serde_json::from_str(text).map_err(FormatError::Json)?;
    let bson = Bson::try_from(json).map_err(FormatError::ExtendedJson)?;
    file::read(Node::root(bson))
}
