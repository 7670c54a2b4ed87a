//! The errors of single writes and of write concerns, and how they are read.
//!
//! Implements "WriteError" and "WriteConcernError" of CRUD, and "writeConcernError" of Read and
//! Write Concern.

use bson::{RawDocument, RawDocumentBuf};
use sdam_core::operation::error_labels;
use sdam_core::wire;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Error;
use crate::documents::{number, read_as};
use crate::results::WriteResult;

/// A write that was refused (CRUD, "WriteError"): by the server, or by the client if it is too
/// long, as the server would refuse all others of the command along with it. That has the server's
/// code, 10334.
#[derive(Clone, Debug, PartialEq, Default, Serialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
#[error("the write at index {index} was refused: {message} (code {code})")]
#[non_exhaustive]
pub struct WriteError {
    /// The index of the write among those of the operation.
    pub index: usize,
    /// The error's number.
    pub code: i32,
    /// The error's message, empty if there is none.
    pub message: String,
    /// Further information (`errInfo`), as the server sent it.
    pub details: Option<RawDocumentBuf>,
    /// The labels of the reply. Those of a bulk are in the bulk's error.
    pub labels: Vec<String>,
}

/// A write that was not acknowledged as its write concern asks for (CRUD, "WriteConcernError").
///
/// The write was done, and may be undone if the primary fails now. [`result`](Self::result) is
/// what the operation would have returned without the error:
///
/// ```
/// # use sdam_core::bson;
/// # use sdam_host as sdam;
/// use bson::Document;
/// use sdam::Result;
///
/// /// Returns a job that was taken off its queue, also if a secondary is late.
/// fn taken(outcome: Result<Option<Document>>) -> Result<Option<Document>> {
///     outcome.or_else(|error| match error.as_write_concern() {
///         Some(late) => late.document(),
///         None => Err(error),
///     })
/// }
/// # let _ = taken;
/// ```
#[derive(Clone, Debug, PartialEq, Default, Serialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
#[error("the write was done, but its write concern was not met: {message} (code {code})")]
#[non_exhaustive]
pub struct WriteConcernError {
    /// The error's number.
    pub code: i32,
    /// The error's name, empty if there is none.
    pub code_name: String,
    /// The error's message, empty if there is none.
    pub message: String,
    /// Further information (`errInfo`), as the server sent it.
    pub details: Option<RawDocumentBuf>,
    /// The labels of the reply.
    pub labels: Vec<String>,
    /// The result that the operation would have returned. `None` for a command that returns
    /// nothing, as `drop`, and in the errors of bulks, which have their results themselves.
    pub result: Option<WriteResult>,
}

/// The code of MongoDB's for documents that are too long.
const TOO_LARGE: i32 = 10334;

impl WriteError {
    /// Reads the fields that errors of writes have wherever they are.
    pub fn of(index: usize, element: &RawDocument) -> Self {
        Self {
            index,
            code: code(element),
            message: text(element, "errmsg"),
            details: element.get_document("errInfo").ok().map(ToOwned::to_owned),
            labels: Vec::new(),
        }
    }

    /// Refuses a write in the server's place, which would refuse the whole command.
    pub fn too_large(index: usize, (length, limit): (usize, usize)) -> Self {
        let message = format!("it has {length} bytes; the server takes at most {limit}");
        Self { index, code: TOO_LARGE, message, details: None, labels: Vec::new() }
    }
}

impl WriteConcernError {
    /// Finds the error of the write concern in a reply.
    pub fn in_reply(reply: &RawDocument) -> Option<Self> {
        // Where there is none, as in most replies, this makes no error.
        let error = reply.get("writeConcernError").ok()??.as_document()?;
        Some(Self {
            code: code(error),
            code_name: text(error, "codeName"),
            message: text(error, "errmsg"),
            details: error.get_document("errInfo").ok().map(ToOwned::to_owned),
            labels: error_labels(reply),
            result: None,
        })
    }

    /// Fails with the error of the write concern in a reply, if there is one (Read and Write
    /// Concern): it is an error of every command that writes.
    ///
    /// # Errors
    ///
    /// Fails with that error.
    pub fn check(reply: &RawDocument) -> Result<(), Error> {
        match Self::in_reply(reply) {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }

    /// The same error of an operation that would have returned this.
    #[must_use]
    pub fn with(self, result: WriteResult) -> Self {
        Self { result: Some(result), ..self }
    }

    /// Reads the document that `find_one_and_delete`, `find_one_and_replace` or
    /// `find_one_and_update` would have returned; `None` if there was none, and for other
    /// operations.
    ///
    /// # Errors
    ///
    /// Fails if the document is not of that type.
    pub fn document<T: DeserializeOwned>(&self) -> Result<Option<T>, Error> {
        match &self.result {
            Some(WriteResult::FindOneAnd(Some(document))) => Ok(Some(read_as(document)?)),
            _ => Ok(None),
        }
    }
}

fn code(error: &RawDocument) -> i32 {
    number(error, "code").and_then(|code| i32::try_from(code).ok()).unwrap_or(0)
}

/// Reads a text for people; servers cut some within a character.
fn text(error: &RawDocument, name: &str) -> String {
    wire::text(error, name).map(std::borrow::Cow::into_owned).unwrap_or_default()
}
