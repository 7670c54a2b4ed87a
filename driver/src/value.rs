//! The arguments of operations: documents, hints, updates.

use std::time::Duration;

use bson::{Document, RawArrayBuf, RawBson, RawDocument, RawDocumentBuf};
use sdam_core::operation::MAX_MILLIS;

/// A document as an application has it: with its own bytes, or to be written as bytes.
pub trait IntoDocument {
    /// Writes the document as bytes, unless it is there as such.
    ///
    /// # Errors
    ///
    /// Fails if it is no BSON, as with NUL in the name of a field.
    fn into_document(self) -> Result<RawDocumentBuf, bson::error::Error>;
}

impl IntoDocument for RawDocumentBuf {
    fn into_document(self) -> Result<RawDocumentBuf, bson::error::Error> {
        Ok(self)
    }
}

impl IntoDocument for &RawDocumentBuf {
    fn into_document(self) -> Result<RawDocumentBuf, bson::error::Error> {
        Ok(self.clone())
    }
}

impl IntoDocument for &RawDocument {
    fn into_document(self) -> Result<RawDocumentBuf, bson::error::Error> {
        Ok(self.to_owned())
    }
}

impl IntoDocument for Document {
    fn into_document(self) -> Result<RawDocumentBuf, bson::error::Error> {
        RawDocumentBuf::try_from(self)
    }
}

impl IntoDocument for &Document {
    fn into_document(self) -> Result<RawDocumentBuf, bson::error::Error> {
        RawDocumentBuf::try_from(self)
    }
}

/// An index to be used: its name, or its keys.
///
/// ```
/// use sdam_driver::bson::doc;
/// use sdam_driver::{Find, Hint};
///
/// let by_name = Find::new(doc! {}).hint("age_1");
/// let by_keys = Find::new(doc! {}).hint(doc! { "age": 1 });
/// let by_either = Find::new(doc! {}).hint(Hint::from("age_1"));
/// # let _ = (by_name, by_keys, by_either);
/// ```
#[derive(Clone, Debug)]
pub struct Hint(pub(crate) Result<RawBson, bson::error::Error>);

impl From<&str> for Hint {
    fn from(name: &str) -> Self {
        Self::from(name.to_owned())
    }
}

impl From<String> for Hint {
    fn from(name: String) -> Self {
        Self(Ok(RawBson::String(name)))
    }
}

impl From<Document> for Hint {
    fn from(keys: Document) -> Self {
        Self(keys.into_document().map(RawBson::Document))
    }
}

impl From<RawDocumentBuf> for Hint {
    fn from(keys: RawDocumentBuf) -> Self {
        Self(Ok(RawBson::Document(keys)))
    }
}

/// The modifications of an update: a document of operators, or a pipeline.
#[derive(Clone, Debug)]
pub struct Modifications(pub(crate) Result<RawBson, bson::error::Error>);

impl From<Document> for Modifications {
    fn from(operators: Document) -> Self {
        Self(operators.into_document().map(RawBson::Document))
    }
}

impl From<RawDocumentBuf> for Modifications {
    fn from(operators: RawDocumentBuf) -> Self {
        Self(Ok(RawBson::Document(operators)))
    }
}

/// A pipeline, each of its stages a document.
impl<D: IntoDocument> From<Vec<D>> for Modifications {
    fn from(stages: Vec<D>) -> Self {
        Self(array(stages).map(RawBson::Array))
    }
}

/// A pipeline, each of its stages a document.
impl<D: IntoDocument, const N: usize> From<[D; N]> for Modifications {
    fn from(stages: [D; N]) -> Self {
        Self(array(stages).map(RawBson::Array))
    }
}

/// Writes documents as an array.
pub(crate) fn array(
    documents: impl IntoIterator<Item = impl IntoDocument>,
) -> Result<RawArrayBuf, bson::error::Error> {
    let mut array = RawArrayBuf::new();
    for document in documents {
        array.push(document.into_document()?);
    }
    Ok(array)
}

/// Returns a duration in whole milliseconds, rounded up lest a short one becomes none; servers take
/// [`MAX_MILLIS`] at most.
pub(crate) fn whole_millis(time: Duration) -> i64 {
    i32::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(MAX_MILLIS).into()
}
