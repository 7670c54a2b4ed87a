//! The documents of files.
//!
//! Implements "Files collection document" of GridFS.

use bson::{Bson, DateTime, Document, RawBson, RawBsonRef, RawDocument};
use sdam_host::driver::documents;
use serde::{Deserialize, Deserializer, Serialize};

use crate::error::GridFsErrorKind;

/// The greatest size of a chunk, in bytes: its document has 16 KiB for the `_id` of its file and
/// what else is in it.
pub(crate) const MAX_CHUNK_SIZE: u32 = 16 * 1024 * 1024 - 16 * 1024;

/// The number of chunks that a file may have: `n` is an Int32.
const MAX_CHUNKS: u64 = 1 << 31;

/// The document of a file, as it lies in the bucket's collection `files`.
///
/// Fields that are not of GridFS are left out: [`find`](crate::gridfs::GridFsBucket::find) reads
/// them with another type, by `with_type`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct FilesCollectionDocument {
    /// The `_id`, of any type.
    #[serde(rename = "_id")]
    pub id: Bson,
    /// The length in bytes.
    #[serde(deserialize_with = "number")]
    pub length: u64,
    /// The length of each chunk but the last, in bytes.
    #[serde(rename = "chunkSize", deserialize_with = "number")]
    pub chunk_size_bytes: u32,
    /// The time when the file was stored.
    pub upload_date: DateTime,
    /// The name, which several files may have; `None` of old files without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filename: Option<String>,
    /// The document that the application has given it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Document>,
    /// The MIME type; deprecated in favour of a field of the metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// Further names; deprecated in favour of a field of the metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aliases: Option<Vec<String>>,
}

/// Reads a whole number of any numeric type: "drivers MUST be able to handle existing GridFS files
/// where the length and chunkSize fields might have been stored using a different numeric data
/// type".
fn number<'de, D: Deserializer<'de>, T: TryFrom<i64>>(deserializer: D) -> Result<T, D::Error> {
    let value = RawBson::deserialize(deserializer)?;
    let whole = whole(value.as_raw_bson_ref()).and_then(|number| T::try_from(number).ok());
    whole.ok_or_else(|| serde::de::Error::custom("it is no number that a file can have"))
}

/// Returns a whole number of any numeric type.
pub(super) fn whole(value: RawBsonRef<'_>) -> Option<i64> {
    match value {
        RawBsonRef::Decimal128(decimal) => {
            let double = decimal.to_string().parse().ok()?;
            documents::whole(RawBsonRef::Double(double))
        }
        other => documents::whole(other),
    }
}

/// The facts about a stored file that its chunks are checked against.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StoredFile {
    pub(crate) id: RawBson,
    pub(crate) length: u64,
    pub(super) chunk_size: u64,
}

impl StoredFile {
    /// Reads the document of a file, which may be wrong.
    ///
    /// # Errors
    ///
    /// Fails if no file can be of this length, or have chunks of this size.
    pub(crate) fn read(document: &RawDocument) -> Result<Self, GridFsErrorKind> {
        let invalid = |field| GridFsErrorKind::InvalidFile { field };
        let field = |name| document.get(name).ok().flatten();
        let number = |name| field(name).and_then(whole).and_then(|it| u64::try_from(it).ok());
        let id = RawBson::from(field("_id").ok_or(invalid("_id"))?);
        let length = number("length").ok_or(invalid("length"))?;
        let chunk_size = match number("chunkSize") {
            Some(size) if (1..=i32::MAX as u64).contains(&size) => size,
            // There is no chunk that would have it.
            _ if length == 0 => 1,
            _ => return Err(invalid("chunkSize")),
        };
        match length.div_ceil(chunk_size) > MAX_CHUNKS {
            true => Err(invalid("length")),
            false => Ok(Self { id, length, chunk_size }),
        }
    }

    /// Returns the number of chunks.
    pub(super) fn chunks(&self) -> i64 {
        i64::try_from(self.length.div_ceil(self.chunk_size)).expect("there are 2^31 at most")
    }

    /// Returns the number of the chunk that has this byte.
    pub(super) fn chunk_of(&self, position: u64) -> i64 {
        i64::try_from(position / self.chunk_size).unwrap_or(i64::MAX)
    }

    /// Returns the place of the first byte of a chunk.
    pub(super) const fn start_of(&self, n: i64) -> u64 {
        self.chunk_size * n.unsigned_abs()
    }

    /// Returns the length of a chunk.
    pub(super) fn length_of(&self, n: i64) -> u64 {
        self.chunk_size.min(self.length - self.start_of(n))
    }
}

#[cfg(test)]
mod tests {
    use bson::{Bson, DateTime, RawBson, doc, rawdoc};

    use super::{FilesCollectionDocument, GridFsErrorKind, StoredFile};

    /// "drivers MUST be able to handle existing GridFS files where the length and chunkSize fields
    /// might have been stored using a different numeric data type" (GridFS, "Files collection
    /// document").
    #[test]
    fn numbers_may_be_of_any_numeric_type() {
        let decimal: bson::Decimal128 = "10".parse().unwrap();
        for length in [Bson::Int32(10), Bson::Int64(10), Bson::Double(10.0), decimal.into()] {
            let raw = RawBson::try_from(length.clone()).unwrap();
            let mut document = rawdoc! { "_id": 7, "chunkSize": 4.0 };
            document.append(bson::raw::cstr!("length"), raw);
            let file = StoredFile::read(&document).unwrap();
            assert_eq!((file.length, file.chunk_size, file.chunks()), (10, 4, 3), "{length:?}");
            assert_eq!((file.length_of(0), file.length_of(2)), (4, 2));
            let read: FilesCollectionDocument = bson::deserialize_from_document(doc! {
                "_id": 7, "length": length, "chunkSize": 4.0, "uploadDate": DateTime::MIN, "x": 1,
            })
            .unwrap();
            assert_eq!((read.length, read.chunk_size_bytes, read.filename), (10, 4, None));
        }
    }

    /// Its document may lie; "download legacy file with no name" is of the suite.
    #[test]
    fn a_file_that_cannot_be_is_refused() {
        let invalid = |field| Err(GridFsErrorKind::InvalidFile { field });
        let huge = rawdoc! { "_id": 1, "length": i64::MAX, "chunkSize": 4 };
        for (document, field) in [
            (rawdoc! { "length": 1, "chunkSize": 4 }, "_id"),
            (rawdoc! { "_id": 1, "length": -1, "chunkSize": 4 }, "length"),
            (rawdoc! { "_id": 1, "length": 1.5, "chunkSize": 4 }, "length"),
            (rawdoc! { "_id": 1, "length": f64::NAN, "chunkSize": 4 }, "length"),
            (rawdoc! { "_id": 1, "length": "1", "chunkSize": 4 }, "length"),
            (rawdoc! { "_id": 1, "chunkSize": 4 }, "length"),
            (rawdoc! { "_id": 1, "length": 1, "chunkSize": 0 }, "chunkSize"),
            (rawdoc! { "_id": 1, "length": 1, "chunkSize": -4 }, "chunkSize"),
            (rawdoc! { "_id": 1, "length": 1, "chunkSize": 1e300 }, "chunkSize"),
            (rawdoc! { "_id": 1, "length": 1 }, "chunkSize"),
            (huge, "length"),
        ] {
            assert_eq!(StoredFile::read(&document), invalid(field), "{document:?}");
        }
        let empty = StoredFile::read(&rawdoc! { "_id": 1, "length": 0, "chunkSize": 0 }).unwrap();
        assert_eq!(empty.chunks(), 0);
    }
}
