//! The errors of many writes at once: each has those of its writes, and what was done all the same.
//!
//! Implements "BulkWriteException" of CRUD and "Exception" of Bulk Write.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use super::{Error, WriteConcernError, WriteError};
use crate::results::{BulkWriteResult, ClientBulkWriteResult, indexed};

/// Writes to a collection of which some failed (CRUD, "BulkWriteException").
#[derive(Clone, Debug, Default, Serialize, thiserror::Error)]
#[error("{}", summary(.write_errors.values(), .write_concern_error.as_ref(), .cause.as_ref()))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct BulkWriteError {
    /// The errors of single writes, by index.
    #[serde(serialize_with = "indexed")]
    pub write_errors: BTreeMap<usize, WriteError>,
    /// The first error of a write concern.
    pub write_concern_error: Option<WriteConcernError>,
    /// The error that ended the operation, if it was no single write's.
    #[serde(serialize_with = "text")]
    pub cause: Option<Error>,
    /// The results of the writes that were done.
    pub partial_result: BulkWriteResult,
    /// The labels of the replies that have these errors, each once; those of [`cause`](Self::cause)
    /// are its own.
    pub labels: Vec<String>,
}

/// Writes to several collections of which some failed (Bulk Write, "Exception").
#[derive(Clone, Debug, Default, Serialize, thiserror::Error)]
#[error("{}", summary(.write_errors.values(), .write_concern_errors.first(), .cause.as_ref()))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ClientBulkWriteError {
    /// The error that ended the operation, if it was no single write's.
    #[serde(serialize_with = "text")]
    pub cause: Option<Error>,
    /// The errors of write concerns, one a command at most.
    pub write_concern_errors: Vec<WriteConcernError>,
    /// The errors of single writes, by index.
    #[serde(serialize_with = "indexed")]
    pub write_errors: BTreeMap<usize, WriteError>,
    /// The results of the writes that were done; `None` if it is not known that any was.
    pub partial_result: Option<ClientBulkWriteResult>,
    /// The labels of the replies that have these errors, each once; those of [`cause`](Self::cause)
    /// are its own.
    pub labels: Vec<String>,
}

/// Says what has gone wrong in a bulk of writes, in the order in which [`Error::code`] looks for a
/// number.
fn summary<'a>(
    mut write_errors: impl Iterator<Item = &'a WriteError>,
    write_concern: Option<&WriteConcernError>,
    cause: Option<&Error>,
) -> String {
    let first = write_errors.next().map(|first| match write_errors.count() {
        0 => first.to_string(),
        more => format!("{first}, and {more} more"),
    });
    let parts = [first, write_concern.map(ToString::to_string), cause.map(ToString::to_string)];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    match parts.is_empty() {
        true => "the bulk write failed".to_owned(),
        false => parts.join("; "),
    }
}

/// Writes the sentence of an error.
fn text<S: Serializer>(error: &Option<Error>, serializer: S) -> Result<S::Ok, S::Error> {
    error.as_ref().map(ToString::to_string).serialize(serializer)
}
