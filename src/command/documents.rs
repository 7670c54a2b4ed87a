//! Many documents in one piece of memory: what insertions and bulks of writes send.

use std::fmt;

use bson::oid::ObjectId;
use bson::raw::CStr;
use bson::spec::{BinarySubtype, ElementType};
use bson::{Bson, RawDocument};
use sdam_host::driver::documents::to_bson;
use serde::Serialize;

use super::bounded::Bounded;
use crate::error::Error;

/// The memory that is reserved for documents which are only expected, in bytes.
const MAX_EXPECTED_LEN: usize = 1 << 20;

/// The memory that is reserved for the first document, in bytes.
const FIRST_LEN: usize = 256;

/// The length of an empty document.
const MIN_DOCUMENT_LEN: usize = 5;

/// Documents one behind the other; printed, they are a number and a length.
#[derive(Clone, Default)]
pub(crate) struct Documents {
    bytes: Vec<u8>,
    /// The place where each ends.
    ends: Vec<usize>,
    /// The place of the length of binary data that comes piece by piece.
    binary: usize,
}

impl Documents {
    pub(crate) const fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns a document.
    ///
    /// # Panics
    ///
    /// Panics if there is none of this index.
    pub(crate) fn get(&self, index: usize) -> &RawDocument {
        let (start, end) = self.bounds(index);
        RawDocument::from_bytes(&self.bytes[start..end]).expect("it was written as a document")
    }

    /// Makes room for so many more that are as long as those before, as far as that is not too
    /// much for a guess.
    pub(crate) fn expect(&mut self, more: usize) {
        if let Some(average) = self.bytes.len().checked_div(self.len()) {
            self.bytes.reserve(average.saturating_mul(more).min(MAX_EXPECTED_LEN));
            self.ends.reserve(more.min(MAX_EXPECTED_LEN / MIN_DOCUMENT_LEN));
        }
    }

    /// Returns the length of all documents together, in bytes.
    pub(crate) const fn total_length(&self) -> usize {
        self.bytes.len()
    }

    /// Returns all documents.
    pub(crate) fn all(&self) -> Vec<&RawDocument> {
        (0..self.len()).map(|index| self.get(index)).collect()
    }

    /// Returns the length of a document in bytes.
    pub(crate) fn length(&self, index: usize) -> usize {
        let (start, end) = self.bounds(index);
        end - start
    }

    fn bounds(&self, index: usize) -> (usize, usize) {
        (index.checked_sub(1).map_or(0, |before| self.ends[before]), self.ends[index])
    }

    /// Adds a copy of a document.
    pub(crate) fn push(&mut self, document: &RawDocument) {
        self.bytes.extend_from_slice(document.as_bytes());
        self.ends.push(self.bytes.len());
    }

    /// Adds a value of the application's as a document.
    pub(crate) fn serialize(&mut self, value: &impl Serialize) -> Result<(), Error> {
        let start = self.bytes.len();
        if start == 0 {
            self.bytes.reserve(FIRST_LEN);
        }
        let written = bson::serialize_to_buffer(&Bounded::new(value), &mut self.bytes);
        let is_document = RawDocument::from_bytes(&self.bytes[start..]);
        match written.and(is_document.map(drop)) {
            Ok(()) => {
                self.ends.push(self.bytes.len());
                Ok(())
            }
            Err(error) => {
                self.bytes.truncate(start);
                Err(Error::serialize(error))
            }
        }
    }

    /// Returns the `_id` of the last document, after one was made if it had none: "drivers MUST
    /// generate a new ObjectId and add it as the _id field at the beginning of the document".
    pub(crate) fn identify_last(&mut self) -> Result<Bson, Error> {
        let last = self.get(self.len() - 1);
        let found = if has_id(last) == Some(false) { Ok(None) } else { last.get("_id") };
        match found {
            Ok(Some(id)) => to_bson(id).map_err(Error::serialize),
            Ok(None) => {
                let (id, (start, end)) = (new_id(), self.bounds(self.len() - 1));
                let field = id_field(id);
                let place = start + 4..start + 4 + field.len();
                self.bytes.extend_from_slice(&field);
                self.bytes.copy_within(place.start..end, place.end);
                self.bytes[place].copy_from_slice(&field);
                let length = i32::try_from(self.bytes.len() - start).unwrap_or(i32::MAX);
                self.bytes[start..start + 4].copy_from_slice(&length.to_le_bytes());
                *self.ends.last_mut().expect("there is one") = self.bytes.len();
                Ok(Bson::ObjectId(id))
            }
            Err(error) => Err(Error::serialize(error)),
        }
    }

    /// Begins a document with these fields, and one behind them, of binary data that comes piece by
    /// piece; nothing else is added before its [end](Self::end_binary).
    pub(crate) fn begin_binary(&mut self, fields: &RawDocument, name: &CStr) {
        let fields = fields.as_bytes();
        self.bytes.extend_from_slice(&fields[..fields.len() - 1]);
        self.bytes.push(ElementType::Binary as u8);
        self.bytes.extend_from_slice(name.as_str().as_bytes());
        self.bytes.push(0);
        self.binary = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.push(BinarySubtype::Generic.into());
    }

    /// Makes room for so many bytes in all, and no more.
    pub(crate) fn reserve_whole(&mut self, length: usize) {
        self.bytes.reserve_exact(length.saturating_sub(self.bytes.len()));
    }

    /// Adds to the binary data that was begun.
    pub(crate) fn extend_binary(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Ends the binary data, and its document.
    pub(crate) fn end_binary(&mut self) {
        let length = self.bytes.len() - self.binary - 5;
        self.bytes.push(0);
        let start = self.ends.last().copied().unwrap_or_default();
        for (place, length) in [(self.binary, length), (start, self.bytes.len() - start)] {
            let length = i32::try_from(length).unwrap_or(i32::MAX);
            self.bytes[place..place + 4].copy_from_slice(&length.to_le_bytes());
        }
        self.ends.push(self.bytes.len());
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

impl fmt::Debug for Documents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} documents of {} bytes", self.len(), self.bytes.len())
    }
}

/// Returns whether a document has an `_id`, by a look at the names of its fields alone; `None` if
/// that does not decide it.
fn has_id(document: &RawDocument) -> Option<bool> {
    let (_, fields) = document.as_bytes().split_at_checked(4)?;
    let mut rest = fields.strip_suffix(&[0])?;
    while let Some((&kind, named)) = rest.split_first() {
        let length = named.iter().position(|&byte| byte == 0)?;
        if &named[..length] == b"_id" {
            return Some(true);
        }
        let value = &named[length + 1..];
        rest = value.get(length_of(kind, value)?..)?;
    }
    Some(false)
}

/// Returns the length of a value that begins here, if it is of a common type.
fn length_of(kind: u8, value: &[u8]) -> Option<usize> {
    let behind = |more: usize| {
        let length = i32::from_le_bytes(*value.first_chunk()?);
        usize::try_from(length).ok()?.checked_add(more)
    };
    match ElementType::from(kind)? {
        ElementType::Null => Some(0),
        ElementType::Boolean => Some(1),
        ElementType::Int32 => Some(4),
        ElementType::Double
        | ElementType::Int64
        | ElementType::DateTime
        | ElementType::Timestamp => Some(8),
        ElementType::ObjectId => Some(12),
        ElementType::Decimal128 => Some(16),
        ElementType::String => behind(4),
        ElementType::Binary => behind(5),
        ElementType::EmbeddedDocument | ElementType::Array => behind(0),
        _ => None,
    }
}

/// Writes an `_id` as a field.
fn id_field(id: ObjectId) -> [u8; 17] {
    let mut field = *b"\x07_id\0............";
    field[5..].copy_from_slice(&id.bytes());
    field
}

/// Makes an `_id` for a document that has none.
pub(crate) fn new_id() -> ObjectId {
    ObjectId::new()
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use bson::raw::cstr;
    use bson::spec::BinarySubtype;
    use bson::{Binary, Bson, DateTime, Decimal128, Document, Regex, Timestamp, doc, rawdoc};

    use super::Documents;

    #[test]
    fn documents_lie_one_behind_the_other() {
        let mut documents = Documents::default();
        documents.serialize(&doc! { "a": 1 }).unwrap();
        assert!(documents.serialize(&1).is_err());
        documents.push(&rawdoc! { "b": 2 });
        assert_eq!(documents.len(), 2);
        assert_eq!(documents.get(0), &*rawdoc! { "a": 1 });
        assert_eq!(documents.get(1), &*rawdoc! { "b": 2 });
        assert_eq!(documents.length(1), rawdoc! { "b": 2 }.as_bytes().len());
    }

    /// GridFS, "Chunk": the data are the last field.
    #[test]
    fn binary_data_come_piece_by_piece() {
        let mut documents = Documents::default();
        documents.push(&rawdoc! { "a": 1 });
        for pieces in [&[&b"123"[..], b"45"][..], &[]] {
            documents.begin_binary(&rawdoc! { "_id": 7 }, cstr!("data"));
            pieces.iter().for_each(|piece| documents.extend_binary(piece));
            documents.end_binary();
            let data = Binary { subtype: BinarySubtype::Generic, bytes: pieces.concat() };
            let expected = rawdoc! { "_id": 7, "data": data };
            assert_eq!(documents.get(documents.len() - 1), &*expected);
        }
    }

    /// CRUD, "Generated identifiers"; Bulk Write, "Insert".
    #[test]
    fn only_a_document_without_id_is_given_one_in_front() {
        let mut documents = Documents::default();
        documents.push(&rawdoc! { "a": 1 });
        let Bson::ObjectId(id) = documents.identify_last().unwrap() else { panic!() };
        assert_eq!(documents.get(0), &*rawdoc! { "_id": id, "a": 1 });
        documents.push(&rawdoc! { "a": 1, "_id": null });
        assert_eq!(documents.identify_last().unwrap(), Bson::Null);
        assert_eq!(documents.get(1), &*rawdoc! { "a": 1, "_id": null });
        documents.push(&rawdoc! { "_id": 7 });
        assert_eq!(documents.identify_last().unwrap(), Bson::Int32(7));
        assert_eq!(documents.get(2), &*rawdoc! { "_id": 7 });
        documents.push(&rawdoc! {});
        let Bson::ObjectId(other) = documents.identify_last().unwrap() else { panic!() };
        assert_ne!(id, other);
    }

    /// The same, behind values of every type, those included that are rare.
    #[test]
    fn an_id_is_found_behind_whatever_comes_first() {
        let all = doc! {
            "double": 1.5,
            "text": "_id",
            "document": { "_id": 1 },
            "array": ["_id", { "_id": 2 }],
            "binary": Binary { subtype: BinarySubtype::Generic, bytes: b"\x07_id\0".to_vec() },
            "old binary": Binary { subtype: BinarySubtype::BinaryOld, bytes: vec![1] },
            "object": ObjectId::from_bytes([7; 12]),
            "truth": true,
            "date": DateTime::MIN,
            "none": null,
            "int": 3,
            "time": Timestamp { time: 1, increment: 2 },
            "long": 4_i64,
            "decimal": Decimal128::from_bytes([9; 16]),
        };
        let rare = doc! {
            "regex": Regex { pattern: cstr!("_id").into(), options: cstr!("").into() },
            "code": Bson::JavaScriptCode("_id".to_owned()),
            "least": Bson::MinKey,
        };
        for (begin, count) in [(all, 14), (rare, 3)] {
            assert_eq!(begin.len(), count);
            let mut documents = Documents::default();
            documents.serialize(&begin).unwrap();
            assert!(matches!(documents.identify_last().unwrap(), Bson::ObjectId(_)));
            let mut given: Document = documents.get(0).try_into().unwrap();
            assert_eq!(given.keys().next().unwrap(), "_id");
            given.remove("_id");
            assert_eq!(given, begin);
            let mut own = begin;
            own.insert("_id", "mine");
            documents.serialize(&own).unwrap();
            assert_eq!(documents.identify_last().unwrap(), Bson::from("mine"));
            assert_eq!(Document::try_from(documents.get(1)).unwrap(), own);
        }
    }

    /// A document of the application's whose bytes are none is refused, or left to the server.
    #[test]
    fn a_value_that_is_longer_than_its_document_is_an_error() {
        let mut bytes = rawdoc! { "a": "b", "c": 1 }.into_bytes();
        bytes[7] = 200;
        let mut documents = Documents::default();
        documents.push(bson::RawDocument::from_bytes(&bytes).unwrap());
        assert!(documents.identify_last().is_err());
    }
}
