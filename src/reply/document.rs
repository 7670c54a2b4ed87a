//! The reading of a document as a type of the application's.

use bson::RawDocument;
use sdam_host::driver::documents;
use serde::Deserialize;

use crate::error::Error;

/// Reads a document as a type of the application's.
///
/// # Errors
///
/// Fails as [`documents::read_as`] does.
pub(crate) fn read_as<'de, T: Deserialize<'de>>(document: &'de RawDocument) -> Result<T, Error> {
    documents::read_as(document).map_err(Error::from)
}
